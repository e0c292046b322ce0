"""Integer tilings: what many of them cost at once, exactly, and which of them is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import TILINGS_AT_ONCE
from tilesolve.model.loop_tree import LoopTree, tree_of_bands
from tilesolve.model.nest import Band, Nest
from tilesolve.model.price import arithmetic
from tilesolve.model.score import score_times
from tilesolve.model.traffic import count_traffic
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
    fused, sizes = setting.fused, setting.fused.problem.sizes
    one = np.ones(_width(columns))
    whole = {i: one * sizes[i] for i in columns}
    nearest = {i: columns[i][0] for i in columns} if setting.levels else whole
    call = {i: nearest[i] if i in fused.reduced else one * setting.smallest(i) for i in columns}
    tiles = [{i: columns[i][level] for i in columns} for level in range(setting.levels)]
    return [call, *tiles, whole]


def _width(columns: Mapping[str, NDArray[np.float64]]) -> int:
    """Return how many tilings the columns hold; one if there is no index at all."""
    return next((column.shape[1] for column in columns.values()), 1)


def list_bands(setting: Setting, choice: Choice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the level and the loop order, innermost first, of each band of a choice's nest.

    Inside a call the register tile's sides come before the summed indices, so that it stays
    in registers; inside the nearest tile the rows come first, so that a panel of the columns
    stays while those of the rows pass by.
    """
    fused = setting.fused
    indices = fused.problem.spec.letters
    sides = [i for i in (fused.columns, fused.rows) if i is not None]
    free = [i for i in indices if i not in fused.reduced and i not in sides]
    inner = [i for i in (fused.rows, fused.columns) if i is not None]
    orders = [
        (*sides, *fused.reduced, *free),
        (*inner, *fused.reduced, *free),
        *((*(first or ""), *(i for i in indices if i not in (first or ""))) for first in choice),
    ]
    names = [place.name for place in setting.places] + [setting.places[-1].server]
    return tuple((name, tuple(order)) for name, order in zip(names, orders, strict=True))


def _tree(setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]) -> LoopTree:
    return tree_of_bands(
        setting.fused.problem,
        list_bands(setting, choice),
        _boxes(setting, columns),
        setting.packed,
        setting.output,
        setting.kinds,
    )


def _exact_times(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling."""
    problem = setting.fused.problem
    found = count_traffic(_tree(setting, choice, columns), setting.places)
    width = _width(columns)
    rows = [
        np.broadcast_to(place.seconds(volumes), width)
        for place, volumes in zip(setting.places, found.volumes, strict=True)
    ]
    seconds = arithmetic(problem, setting.microkernel, setting.rate, setting.frequency, found)
    rows.append(np.broadcast_to(seconds, width))
    return np.array(rows)


def _keeps_limits(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Return whether tilings keep the capacities and, in whole ways, Eq. 9."""
    boxes = _boxes(setting, columns)
    good = np.ones(_width(columns), dtype=bool)
    for level, place in enumerate(setting.places[1:], start=1):
        held = [one.touched(boxes[level], 1) for one in setting.accesses_at(level)]
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
