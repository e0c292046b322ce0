"""Integer tilings: what many of them cost at once, exactly, and which of them is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import TILINGS_AT_ONCE
from tilesolve.model.nest import Band, Nest
from tilesolve.model.score import score_times
from tilesolve.planning.geometric.class_trees import (
    held_bytes,
    list_bands,
    list_boxes,
    price_boxes,
)
from tilesolve.planning.setting import Choice, Setting

Chain = tuple[int, ...]
"""Tile sizes of one index, nearest level first."""


@dataclass(frozen=True, slots=True)
class Integral:
    """An integer tiling of the fused problem.

    Parameters
    ----------
    nest
        The bands, ready to be priced.
    chains
        For each index its tile sizes, nearest level first.
    times
        The exact predicted seconds of every server and of the arithmetic.
    score
        What tilings are compared by.
    priced
        Number of tilings that were compared.
    """

    nest: Nest
    chains: tuple[tuple[str, Chain], ...]
    times: tuple[float, ...]
    score: float
    priced: int

    @property
    def seconds(self) -> float:
        """The exact predicted time: the longest."""
        return max(self.times)


def integral_of(
    setting: Setting,
    choice: Choice,
    chains: Mapping[str, Chain],
    times: NDArray[np.float64],
    priced: int,
) -> Integral:
    """Return a tiling with its nest, given its times and how many were priced."""
    nest = nest_of(setting, choice, chains)
    score = float(score_times(times, setting.overlap))
    return Integral(nest, tuple(chains.items()), tuple(times.tolist()), score, priced)


def tilings_of(
    base: Mapping[str, Chain], options: Mapping[str, Sequence[Chain]], group: Sequence[str]
) -> list[dict[str, Chain]]:
    """Return a tiling for each combination of the options of some indices.

    Examples
    --------
    >>> tilings_of({"M": (8,), "N": (6,)}, {"M": [(8,), (16,)]}, "M")
    [{'M': (8,), 'N': (6,)}, {'M': (16,), 'N': (6,)}]
    """
    return [
        {**base, **dict(zip(group, chains, strict=True))}
        for chains in product(*(options[i] for i in group))
    ]


def best_of(
    setting: Setting, choice: Choice, combined: Sequence[Mapping[str, Chain]]
) -> tuple[dict[str, Chain], NDArray[np.float64], float, int]:
    """Return the best of some tilings, its times, its score, and how many they were."""
    times = times_of(setting, choice, combined)
    scores = score_times(times, setting.overlap)
    at = int(np.argmin(scores))
    return dict(combined[at]), times[:, at], float(scores[at]), len(combined)


def times_of(
    setting: Setting, choice: Choice, combined: Sequence[Mapping[str, Chain]]
) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling.

    Those of a tiling that breaks a limit are infinite.
    """
    times, fits = survey(setting, choice, combined)
    return np.where(fits, times, np.inf)


def survey(
    setting: Setting, choice: Choice, combined: Sequence[Mapping[str, Chain]]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what `times_of` does for tilings that break limits, too, and which keep all."""
    columns = _columns(combined, setting.fused.problem.spec.letters)
    times, fits = (look(setting, choice, columns) for look in (_exact_times, _keeps_limits))
    # Without indices all tilings are the same one, which is priced once.
    width = len(combined)
    return np.broadcast_to(times, (len(times), width)), np.broadcast_to(fits, width)


def groups_of(options: Mapping[str, Sequence[Chain]]) -> list[tuple[str, ...]]:
    """Return the groups of indices to combine: all, or as many as `TILINGS_AT_ONCE` allows.

    Examples
    --------
    >>> groups_of({"M": [(8,), (16,)], "N": [(6,)], "K": [(64,), (128,)]})
    [('M', 'K')]
    """
    free = [i for i in options if len(options[i]) > 1]
    for together in range(len(free), 1, -1):
        groups: list[tuple[str, ...]] = [
            group
            for group in combinations(free, together)
            if prod(len(options[i]) for i in group) <= TILINGS_AT_ONCE
        ]
        if groups:
            return [*groups, *((i,) for i in free if not any(i in group for group in groups))]
    return [(i,) for i in free]


def _columns(
    combined: Sequence[Mapping[str, Chain]], indices: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Return for each index an array: level by tiling."""
    tilings = len(combined)
    return {
        i: np.array([chains[i] for chains in combined], dtype=float).reshape(tilings, -1).T
        for i in indices
    }


def _boxes(
    setting: Setting, columns: Mapping[str, NDArray[np.float64]]
) -> list[dict[str, NDArray[np.float64]]]:
    """Return the boxes of all bands: a call's, each level's, and the whole problem."""
    one = np.ones(_width(columns))
    tiles = [{i: columns[i][level] for i in columns} for level in range(setting.levels)]
    return [{i: one * side for i, side in box.items()} for box in list_boxes(setting, tiles)]


def _width(columns: Mapping[str, NDArray[np.float64]]) -> int:
    """Return how many tilings the columns hold; one if there is no index at all."""
    return next((column.shape[1] for column in columns.values()), 1)


def _exact_times(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling."""
    times = price_boxes(setting, choice, _boxes(setting, columns))
    width = _width(columns)
    return np.array([np.broadcast_to(seconds, width) for seconds in times.values()])


def _keeps_limits(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Return whether tilings keep the capacities and, in whole ways, Eq. 9."""
    boxes = _boxes(setting, columns)
    good = np.ones(_width(columns), dtype=bool)
    for level, place in enumerate(setting.places[1:], start=1):
        held = held_bytes(setting, boxes[level], level)
        fits = sum(held) <= place.capacity
        if (ways := place.ways_for(len(held))) is not None:
            way = place.capacity / ways
            fits &= sum(np.ceil(size / way) for size in held) <= ways
        if level > 1 and choice[level - 2] is None:  # the nearer tile, which is held there, may do
            nearer = [boxes[level][i] == boxes[level - 1][i] for i in columns]
            fits |= np.all(nearer, axis=0)
        good &= fits
    return good


def feasible(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> bool:
    """Return whether an integer tiling keeps all limits."""
    columns = _columns([chains], setting.fused.problem.spec.letters)
    return bool(_keeps_limits(setting, choice, columns)[0])


def nest_of(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> Nest:
    """Return the nest of one integer tiling."""
    indices = setting.fused.problem.spec.letters
    boxes = _boxes(setting, _columns([chains], indices))
    return Nest(
        tuple(
            Band(level, order, tuple((i, int(box[i][0])) for i in indices))
            for (level, order), box in zip(list_bands(setting, choice), boxes, strict=True)
        ),
        setting.packed,
        setting.output,
        setting.kinds,
        setting.scattered,
    )
