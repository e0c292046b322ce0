"""Pairwise logistic regression: weights of times by which the faster of two variants is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Sample = tuple[Numbers, Numbers]
"""Of one problem: a row of numbers for each variant, and what each took."""

RIDGE = 1e-3
"""Weight of the squares of the weights, beside that of a problem, which is 1."""

MOST_STEPS = 50
"""Steps of Newton's method at most; some ten are enough."""


def fit_logistic(samples: Sequence[Sample]) -> Numbers:
    """Return weights whose sum of a variant's numbers is less for the faster of two.

    Each pair of variants of a problem counts by the logarithm of the ratio of their seconds, each
    problem as much as another.

    Examples
    --------
    >>> times = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
    >>> weights = fit_logistic([(times, np.array([1.0, 2.0, 4.0]))])
    >>> bool(weights[0] > abs(weights[1]))
    True
    """
    found = [_list_pairs(*sample) for sample in samples]
    gaps = np.concatenate([pairs for pairs, _ in found])
    shares = np.concatenate([share for _, share in found])
    weights = np.zeros(gaps.shape[1])
    for _ in range(MOST_STEPS):
        wrong = _sigmoid(-gaps @ weights)
        slope = RIDGE * weights - gaps.T @ (shares * wrong)
        curve = (gaps.T * (shares * wrong * (1 - wrong))) @ gaps
        step = np.linalg.solve(curve + RIDGE * np.eye(len(weights)), slope)
        before, length = _loss(gaps, shares, weights), 1.0
        while _loss(gaps, shares, weights - length * step) > before and length > RIDGE:
            length /= 2
        weights = weights - length * step
        if np.abs(step).max() < RIDGE**2:
            break
    return weights


def _list_pairs(numbers: Numbers, seconds: Numbers) -> tuple[Numbers, Numbers]:
    """Return by how much the slower of two has more of each number, and what the pair counts."""
    first, second = np.triu_indices(len(seconds), 1)
    ratios = np.log(seconds[first] / seconds[second])
    gaps = (numbers[first] - numbers[second]) * np.sign(ratios)[:, None]
    total = np.abs(ratios).sum()
    return gaps, np.abs(ratios) / total if total else ratios


def _loss(gaps: Numbers, shares: Numbers, weights: Numbers) -> float:
    """Return what is minimised: the cross-entropy of the pairs, and the ridge."""
    return float(shares @ np.logaddexp(0.0, -gaps @ weights) + RIDGE / 2 * float(weights @ weights))


def _sigmoid(x: Numbers) -> Numbers:
    found: Numbers = np.exp(-np.logaddexp(0.0, -x))
    return found
