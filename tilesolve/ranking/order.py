"""Orders with ties: ranks, how far two orders agree, and what the first few of one are worth.

Who is tied takes the mean of the places that it shares, never the best of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, inf, nan


def mean_ranks(scores: Sequence[float]) -> list[float]:
    """Return the place of each score, from 1 on; tied ones share the mean of their places.

    Examples
    --------
    >>> mean_ranks([0.2, 0.1, 0.2])
    [2.5, 1.0, 2.5]
    """
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(scores)]


def count_ties(scores: Sequence[float]) -> int:
    """Return how many have the score of another one.

    Examples
    --------
    >>> count_ties([0.2, 0.1, 0.2])
    2
    """
    return sum(scores.count(one) > 1 for one in list(scores))


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau of two orders, 1 for the same and -1 for the reverse; NaN for none.

    Examples
    --------
    >>> kendall([1, 2, 3], [10, 20, 30])
    1.0
    """
    from scipy.stats import kendalltau

    if min(len(set(first)), len(set(second))) < 2:
        return nan
    return round(float(kendalltau(first, second).statistic), 12)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's correlation of two orders; NaN where one has a single score.

    Examples
    --------
    >>> spearman([1, 2, 3], [30, 20, 10])
    -1.0
    """
    from scipy.stats import spearmanr

    if min(len(set(first)), len(set(second))) < 2:
        return nan
    return round(float(spearmanr(first, second).statistic), 12)


def best_of_first(scores: Sequence[float], seconds: Sequence[float], count: int) -> float:
    """Return the least seconds of the first few by some scores.

    Where a tie leaves open who is among them, it is the mean over all that may be.

    Examples
    --------
    A rule that tells nothing apart is worth the mean:

    >>> best_of_first([1.0, 1.0, 1.0], [2.0, 3.0, 4.0], 1)
    3.0
    """
    ranked = sorted(zip(scores, seconds, strict=True))
    border = ranked[count - 1][0]
    sure = min((taken for score, taken in ranked if score < border), default=inf)
    tied = sorted(taken for score, taken in ranked if score == border)
    drawn = count - sum(score < border for score, _ in ranked)
    # The fastest of those drawn is number `at` where all others drawn come after it.
    ways = [comb(len(tied) - at - 1, drawn - 1) for at in range(len(tied))]
    found = (way * min(sure, taken) for way, taken in zip(ways, tied, strict=True))
    return sum(found) / comb(len(tied), drawn)
