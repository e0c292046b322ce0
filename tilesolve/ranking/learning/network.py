"""The network of the PolyDL paper (section 4.2.2): which of two variants is faster, by their sets.

The sizes of both variants' working sets go in, as shares of their sum. A variant's rank is how many
others it beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilesolve.ranking.learning.logistic import Numbers, Sample

WIDTHS = (64, 32, 16, 8)
"""Neurons of the hidden layers, whose activations are relu, relu, softsign and relu."""

SOFTSIGN_LAYER = 2
"""The hidden layer that has softsign."""

WIN_PROBABILITY = 0.6
"""What the network has to give a variant, more than that, so that it beats another."""

STEPS, BATCH_PAIRS = 2000, 200
"""Steps of training, and pairs in each."""

RATE, MEAN_DECAY, SQUARE_DECAY, TINY = 1e-3, 0.9, 0.999, 1e-8
"""Of Adam: the length of a step, and what it keeps of the mean and of the mean square."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A layer: what goes in is multiplied by weights, and biases are added.

    Examples
    --------
    >>> Layer(np.zeros((8, 64)), np.zeros(64)).weights.shape
    (8, 64)
    """

    weights: Numbers
    biases: Numbers


Network = tuple[Layer, ...]


def draw_network(inputs: int, draw: np.random.Generator) -> Network:
    """Return a network of random weights that keep the size of what goes through.

    Examples
    --------
    >>> [len(one.biases) for one in draw_network(8, np.random.default_rng(1))]
    [64, 32, 16, 8, 2]
    """
    sizes = (inputs, *WIDTHS, 2)
    return tuple(
        Layer(draw.normal(0.0, (2 / before) ** 0.5, (before, after)), np.zeros(after))
        for before, after in pairwise(sizes)
    )


def describe_pairs(one: Numbers, other: Numbers) -> Numbers:
    """Return what goes in: the sets of both variants of each pair, as shares of their sum.

    Examples
    --------
    >>> describe_pairs(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])).tolist()
    [[0.1, 0.2, 0.3, 0.4]]
    """
    both = np.concatenate([one, other], axis=1)
    total = both.sum(axis=1, keepdims=True)
    shares: Numbers = both / np.where(total > 0, total, 1.0)
    return shares


def predict(network: Network, inputs: Numbers) -> Numbers:
    """Return the probability that the first, and that the second of each pair is faster.

    Examples
    --------
    >>> network = draw_network(4, np.random.default_rng(1))
    >>> predict(network, np.full((3, 4), 0.25)).sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0]
    """
    return _run(network, inputs)[-1]


def find_slopes(network: Network, inputs: Numbers, faster: Numbers) -> tuple[float, Network]:
    """Return the mean cross-entropy of some pairs, and its derivatives by weights and biases.

    Parameters
    ----------
    network, inputs
        What is asked, and about which pairs.
    faster
        For each pair 1 beside the faster one and 0 beside the other.
    """
    values = _run(network, inputs)
    loss = -float((faster * np.log(np.maximum(values[-1], TINY))).sum()) / len(inputs)
    slope = (values[-1] - faster) / len(inputs)
    slopes: list[Layer] = []
    for at in reversed(range(len(network))):
        slopes.append(Layer(values[at].T @ slope, slope.sum(axis=0)))
        if at:
            slope = (slope @ network[at].weights.T) * _bend(values[at], at - 1)
    return loss, tuple(reversed(slopes))


def train_network(samples: Sequence[Sample], seed: int) -> Network:
    """Return a network that tells the faster of two variants, trained on pairs by Adam.

    Each step draws pairs of variants of a problem, each problem as often as another.

    Parameters
    ----------
    samples
        For each problem the sets of its variants, and what they took.
    seed
        Of the first weights and of the pairs: the same one gives the same network.
    """
    draw = np.random.default_rng(seed)
    sets, seconds = map(np.concatenate, zip(*samples, strict=True))
    bounds = np.cumsum([0, *(len(taken) for _, taken in samples)])
    network = draw_network(2 * samples[0][0].shape[1], draw)
    means = squares = tuple(
        Layer(np.zeros_like(one.weights), np.zeros_like(one.biases)) for one in network
    )
    for step in range(1, STEPS + 1):
        _, slopes = find_slopes(network, *_draw_pairs((sets, seconds), bounds, draw))
        means = _mix(means, slopes, MEAN_DECAY)
        squares = _mix(squares, tuple(map(_square, slopes)), SQUARE_DECAY)
        rate = RATE * (1 - SQUARE_DECAY**step) ** 0.5 / (1 - MEAN_DECAY**step)
        network = tuple(
            Layer(
                one.weights - rate * mean.weights / (np.sqrt(square.weights) + TINY),
                one.biases - rate * mean.biases / (np.sqrt(square.biases) + TINY),
            )
            for one, mean, square in zip(network, means, squares, strict=True)
        )
    return network


def count_defeats(network: Network, sets: Numbers) -> list[float]:
    """Return for each variant how many others it does not beat: the less, the better.

    Examples
    --------
    >>> count_defeats(draw_network(4, np.random.default_rng(1)), np.ones((3, 2)))
    [2.0, 2.0, 2.0]
    """
    count = len(sets)
    first, second = (at.ravel() for at in np.indices((count, count)))
    given = predict(network, describe_pairs(sets[first], sets[second])).reshape(count, count, 2)
    # A pair is asked in both orders: which one stands first must not matter.
    wins = given[:, :, 0] + given[:, :, 1].T > 2 * WIN_PROBABILITY
    np.fill_diagonal(wins, False)
    return [float(count - 1 - won) for won in wins.sum(axis=1)]


def _run(network: Network, inputs: Numbers) -> list[Numbers]:
    """Return what goes into each layer, and what comes out of the last one."""
    values = [inputs]
    for at, layer in enumerate(network):
        found = values[-1] @ layer.weights + layer.biases
        if at == len(network) - 1:
            found = np.exp(found - found.max(axis=1, keepdims=True))
            found /= found.sum(axis=1, keepdims=True)
        elif at == SOFTSIGN_LAYER:
            found = found / (1 + np.abs(found))
        else:
            found = np.maximum(found, 0.0)
        values.append(found)
    return values


def _bend(values: Numbers, at: int) -> Numbers:
    """Return the derivatives of a hidden layer's activation, given what came out of it."""
    if at == SOFTSIGN_LAYER:
        slopes: Numbers = (1 - np.abs(values)) ** 2
        return slopes
    return (values > 0).astype(float)


def _draw_pairs(
    sample: Sample, bounds: NDArray[np.int64], draw: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """Return random pairs of variants, each of one problem, and which of them is faster.

    The variants of a problem lie between two bounds.
    """
    sets, seconds = sample
    problems = draw.integers(len(bounds) - 1, size=BATCH_PAIRS)
    one, other = draw.integers(bounds[problems], bounds[problems + 1], size=(2, BATCH_PAIRS))
    gap = np.sign(seconds[other] - seconds[one])
    return describe_pairs(sets[one], sets[other]), np.stack([1 + gap, 1 - gap], axis=1) / 2


def _mix(kept: Network, new: Network, decay: float) -> Network:
    return tuple(
        Layer(
            decay * old.weights + (1 - decay) * one.weights,
            decay * old.biases + (1 - decay) * one.biases,
        )
        for old, one in zip(kept, new, strict=True)
    )


def _square(layer: Layer) -> Layer:
    return Layer(layer.weights**2, layer.biases**2)
