"""Integer tilings: what many of them cost at once, exactly, and which of them is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import combinations
from math import prod
from operator import and_
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import TILINGS_AT_ONCE
from tilesolve.model.access import Box, Size
from tilesolve.model.nest import Band, Nest
from tilesolve.model.score import score_times
from tilesolve.model.walk import Truth
from tilesolve.planning.geometric.class_trees import (
    held_bytes,
    list_bands,
    list_boxes,
    price_boxes,
    price_some,
)
from tilesolve.planning.setting import Choice, Setting

Chain = tuple[int, ...]
"""Tile sizes of one index, nearest level first."""


@dataclass(frozen=True, slots=True)
class Integral:
    """An integer tiling of the fused problem.

    Parameters
    ----------
    chains
        For each index its tile sizes, nearest level first.
    times
        The exact predicted seconds of every server and of the arithmetic.
    score
        What tilings are compared by.
    priced
        Number of tilings that were compared.
    """

    chains: tuple[tuple[str, Chain], ...]
    times: tuple[float, ...]
    score: float
    priced: int

    @property
    def seconds(self) -> float:
        """The exact predicted time: the longest."""
        return max(self.times)


def integral_of(
    setting: Setting, chains: Mapping[str, Chain], times: NDArray[np.float64], priced: int
) -> Integral:
    """Return a tiling, given its times and how many were priced."""
    score = float(score_times(times, setting.overlap))
    return Integral(tuple(chains.items()), tuple(times.tolist()), score, priced)


@dataclass(frozen=True, slots=True)
class Product:
    """Tilings that combine the chains of indices: each one with each of the others'.

    Parameters
    ----------
    options
        For each index its chains.

    Examples
    --------
    >>> tilings = Product((("M", ((8,), (16,))), ("N", ((6,),))))
    >>> len(tilings), tilings.tiling(1)
    (2, {'M': (16,), 'N': (6,)})
    """

    options: tuple[tuple[str, tuple[Chain, ...]], ...]

    @classmethod
    def of(
        cls, base: Mapping[str, Chain], options: Mapping[str, Sequence[Chain]], group: Sequence[str]
    ) -> Self:
        """Return a tiling for each combination of the options of some indices.

        The other indices have the chains of a base.
        """
        return cls(
            tuple((i, tuple(options[i]) if i in group else (chain,)) for i, chain in base.items())
        )

    def __len__(self) -> int:
        return prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many chains each index has; the last one's are nearest to one another."""
        return tuple(len(chains) for _, chains in self.options)

    def tiling(self, number: int) -> dict[str, Chain]:
        """Return one of the tilings."""
        places = np.unravel_index(number, self.shape)
        pairs = zip(self.options, places, strict=True)
        return {i: chains[int(place)] for (i, chains), place in pairs}


Tilings = Product | Sequence[Mapping[str, Chain]]
"""Many tilings: all combinations of chains, or a list."""


def times_of(setting: Setting, choice: Choice, tilings: Tilings) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling.

    Those of a tiling that breaks a limit are infinite.
    """
    numbers, found = _find_times(setting, choice, tilings)
    times = np.full((len(setting.places) + 1, len(tilings)), np.inf)
    times[:, numbers] = found
    return times


def _find_times(
    setting: Setting,
    choice: Choice,
    tilings: Tilings,
    limit: float = np.inf,
    overlap: float = 0.0,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the numbers of tilings that keep all limits, in order, and the times of each.

    Some that score more than `limit`, with this overlap, may be left out.
    """
    boxes, shape = _boxes(setting, tilings)
    fits = np.broadcast_to(_keeps_limits(setting, choice, boxes), shape).copy()
    if not fits.any():
        return np.arange(0), np.empty((len(setting.places) + 1, 0))
    some = price_some(setting, choice, boxes, fits, limit, overlap)
    if some is not None:
        return np.flatnonzero(fits), some
    if fits.all():
        return np.arange(fits.size), _price(setting, choice, boxes, shape)
    left, numbers = _leave_out(tilings, fits.ravel())
    kept = fits.ravel()[numbers]
    return numbers[kept], _price(setting, choice, *_boxes(setting, left))[:, kept]


def _leave_out(tilings: Tilings, fits: NDArray[np.bool_]) -> tuple[Tilings, NDArray[np.intp]]:
    """Return tilings without most of those that break limits, and the numbers of the others.

    What is left of a product is one, of the chains of which some tiling keeps all limits.
    """
    if not isinstance(tilings, Product):
        some = [one for one, keeps in zip(tilings, fits.tolist(), strict=True) if keeps]
        return some, np.flatnonzero(fits)
    grid = fits.reshape(tilings.shape)
    axes = range(grid.ndim)
    kept = [np.flatnonzero(grid.any(axis=tuple(i for i in axes if i != at))) for at in axes]
    options = tuple(
        (index, tuple(chains[place] for place in places))
        for (index, chains), places in zip(tilings.options, kept, strict=True)
    )
    return Product(options), np.arange(fits.size).reshape(grid.shape)[np.ix_(*kept)].ravel()


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The best tiling of some, its times and its score."""

    tiling: dict[str, Chain]
    times: NDArray[np.float64]
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """What tilings of a setting take with a choice of loops; no product is priced twice.

    Parameters
    ----------
    setting, choice
        The problem, the machine, and the loops around each tile.
    known
        The best of each product so far by overlap, and the limit within which it was looked for.
    """

    setting: Setting
    choice: Choice
    known: dict[Product, dict[float, tuple[float, Best]]] = field(default_factory=dict)

    def least(self, tilings: Product, overlap: float, limit: float) -> Best:
        """Return the tiling of least score, see `score_times`, if that is no more than a limit.

        Else return any one of a score beyond that.
        """
        known = self.known.setdefault(tilings, {})
        most, best = known.get(overlap, (-np.inf, None))
        if best is None or most < min(best.score, limit):
            numbers, times = _find_times(self.setting, self.choice, tilings, limit, overlap)
            scores = score_times(times, overlap) if numbers.size else np.array([np.inf])
            at = int(np.argmin(scores))
            if scores[at] <= limit and numbers.size:
                best = Best(tilings.tiling(int(numbers[at])), times[:, at], float(scores[at]))
            else:
                best = Best(tilings.tiling(0), np.array([np.inf]), np.inf)
            known[overlap] = limit, best
        return best

    @property
    def count(self) -> int:
        """How many tilings were priced."""
        return sum(len(tilings) for tilings in self.known)


def survey(
    setting: Setting, choice: Choice, tilings: Tilings
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what `times_of` does for tilings that break limits, too, and which keep all."""
    boxes, shape = _boxes(setting, tilings)
    fits = np.broadcast_to(_keeps_limits(setting, choice, boxes), shape).ravel()
    return _price(setting, choice, boxes, shape), fits


def _price(
    setting: Setting, choice: Choice, boxes: Sequence[Box], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling."""
    times = price_boxes(setting, choice, boxes)
    found = np.empty((len(times), *shape))
    for at, seconds in enumerate(times.values()):
        found[at] = seconds
    return found.reshape(len(times), -1)


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


def _boxes(setting: Setting, tilings: Tilings) -> tuple[list[dict[str, Size]], tuple[int, ...]]:
    """Return the boxes of all bands, and the shape of the tilings.

    Sides are arrays, or numbers where all tilings have the same. An index of a product has an axis
    of its own: what depends on few indices is found for few boxes.
    """
    indices = setting.fused.problem.spec.letters
    columns: dict[str, Sequence[Size]] = {}
    if isinstance(tilings, Product):
        shape = tuple(length for length in tilings.shape if length > 1)
        axes = len(shape)
        for index, chains in tilings.options:
            columns[index] = _sizes(chains, axes)
            axes -= len(chains) > 1
    else:
        shape = (len(tilings),)
        for index in indices:
            columns[index] = _sizes(tuple([tiling[index] for tiling in tilings]), 1)
    tiles = [{i: columns[i][level] for i in indices} for level in range(setting.levels)]
    return list_boxes(setting, tiles), shape


@lru_cache(maxsize=256)
def _sizes(chains: tuple[Chain, ...], axes: int) -> Sequence[Size]:
    """Return the sizes of chains, level by level: along the first of some axes, if they differ."""
    if all(chain == chains[0] for chain in chains):
        return [float(size) for size in chains[0]]
    rows = np.array(chains, dtype=float).T
    return list(rows.reshape(*rows.shape, *(1,) * (axes - 1)))


def _keeps_limits(setting: Setting, choice: Choice, boxes: Sequence[Box]) -> Truth:
    """Return whether tilings keep the capacities and, in whole ways, Eq. 9."""
    good: Truth = True
    for level, place in enumerate(setting.places[1:], start=1):
        held = held_bytes(setting, boxes[level], level)
        fits: Truth = sum(held) <= place.capacity
        if (ways := place.ways_for(len(held))) is not None:
            way = place.capacity / ways
            fits = fits & (sum(np.ceil(size / way) for size in held) <= ways)
        if level > 1 and choice[level - 2] is None:  # the nearer tile, which is held there, may do
            pairs = ((boxes[level][i], boxes[level - 1][i]) for i in boxes[level])
            fits = fits | reduce(and_, (one == other for one, other in pairs), True)
        good = good & fits
    return good


def feasible(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> bool:
    """Return whether an integer tiling keeps all limits."""
    return bool(_keeps_limits(setting, choice, _boxes(setting, [chains])[0]))


def nest_of(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> Nest:
    """Return the nest of one integer tiling."""
    indices = setting.fused.problem.spec.letters
    boxes, _ = _boxes(setting, [chains])
    return Nest(
        tuple(
            Band(level, order, tuple((i, int(box[i])) for i in indices))
            for (level, order), box in zip(list_bands(setting, choice), boxes, strict=True)
        ),
        setting.packed,
        setting.output,
        setting.kinds,
        setting.scattered,
    )
