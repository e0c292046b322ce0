"""How many rows of an array stay in a cache together: interference in closed form.

Algorithm 1 of the thesis fetches rows one after another and stops at the first that finds its set
full. What is here gives the same number without the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np

from tilesolve.constants.nests import NEST_CROWD_RATIO
from tilesolve.machine.level import Level

SetRule = Literal["cache", "printed"]
"""How many sets a cache has: capacity by ways and bytes of a line; or, as Algorithm 1 prints it, by
ways and bytes of an element."""


@dataclass(frozen=True, slots=True)
class CacheSets:
    """Where lines go in a cache, in elements of one array.

    Parameters
    ----------
    sets, ways
        Those that a thread may count on.
    line
        Elements of a line.
    ahead
        Lines that are fetched behind each row, and must find room.
    next_line
        Whether each row brings the line behind it, which stays.
    """

    sets: int
    ways: int
    line: int
    ahead: int = 0
    next_line: bool = False

    @classmethod
    def first(
        cls, level: Level, element: int, threads: int = 1, sets: SetRule = "cache"
    ) -> CacheSets:
        """Return the first cache: the next line of each row comes along.

        Examples
        --------
        >>> CacheSets.first(Level("L1", 32768, 1e11, ways=8), 4, threads=2)
        CacheSets(sets=64, ways=4, line=16, ahead=0, next_line=True)
        """
        count, ways = _count(level, element, sets)
        line = max(level.line // element, 1)
        return cls(count, max(ways // threads, 1), line, next_line=True)

    @classmethod
    def second(
        cls, level: Level, element: int, threads: int = 1, ahead: int = 0, sets: SetRule = "cache"
    ) -> CacheSets:
        """Return the second cache: half its sets are left to what is prefetched by strides.

        Examples
        --------
        >>> CacheSets.second(Level("L2", 262144, 1e11, ways=8), 4, threads=2, ahead=2)
        CacheSets(sets=256, ways=4, line=16, ahead=2, next_line=False)
        """
        count, ways = _count(level, element, sets)
        line = max(level.line // element, 1)
        return cls(max(count // 2, 1), max(ways // threads, 1), line, ahead)

    @classmethod
    def whole(cls, level: Level, element: int) -> CacheSets:
        """Return a cache as it is, with nothing fetched ahead.

        Examples
        --------
        >>> CacheSets.whole(Level("L2", 262144, 1e11, ways=8), 4)
        CacheSets(sets=512, ways=8, line=16, ahead=0, next_line=False)
        """
        return cls(*_count(level, element, "cache"), max(level.line // element, 1))

    def row_lines(self, width: int) -> int:
        """Return the lines that a row of so many elements takes."""
        wanted = max(width, self.line) + (self.line if self.next_line else 0)
        return -(-wanted // self.line)


def _count(level: Level, element: int, sets: SetRule) -> tuple[int, int]:
    """Return the sets and ways of a cache; one whose ways are unknown has one set."""
    capacity = level.capacity or 0
    unit = level.line if sets == "cache" else element
    if level.ways is None:
        return 1, max(capacity // unit, 1)
    return max(capacity // (level.ways * unit), 1), level.ways


@lru_cache(maxsize=65536)
def largest_height(
    cache: CacheSets, row_lines: int, pitch: int, limit: int, address: int = 0
) -> int:
    """Return how many rows of an array lie in a cache without evicting one another.

    Parameters
    ----------
    cache
        Where.
    row_lines
        Lines of a row, see `CacheSets.row_lines`.
    pitch
        Elements from row to row.
    limit
        The number of rows there are.
    address
        Of the first element, in elements.

    Examples
    --------
    >>> cache = CacheSets(sets=64, ways=4, line=16, next_line=True)
    >>> [largest_height(cache, cache.row_lines(64), pitch, 4096) for pitch in (2048, 2000)]
    [4, 43]
    """
    rows = min(limit, cache.sets * cache.ways // row_lines + 1)
    if rows <= 0:
        return 0
    first = -(-(address + pitch * np.arange(rows, dtype=np.int64)) // cache.line)
    places = ((first[:, None] + np.arange(row_lines)) % cache.sets).ravel()
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    starts = np.flatnonzero(np.r_[True, sorted_places[1:] != sorted_places[:-1]])
    counts = np.diff(np.r_[starts, places.size])
    rank = np.arange(places.size) - np.repeat(starts, counts)
    over = order[rank >= cache.ways]
    found = int(over.min()) // row_lines if over.size else rows
    if cache.ahead:
        filled = np.full(cache.sets, rows, dtype=np.int64)
        last = rank == cache.ways - 1
        filled[sorted_places[last]] = order[last] // row_lines
        fetched = (first[:, None] + row_lines + np.arange(cache.ahead)) % cache.sets
        refused = (filled[fetched] <= np.arange(rows)[:, None]).any(axis=1)
        found = min(found, int(refused.argmax()) if refused.any() else rows)
    return found


@lru_cache(maxsize=65536)
def conflict_share(cache: CacheSets, sides: tuple[int, ...], strides: tuple[int, ...]) -> float:
    """Return the share of a box's lines that lie in sets with more of them than ways.

    Parameters
    ----------
    cache
        Where.
    sides, strides
        Positions of each axis, and elements from one to the next; of the last axis 1.

    Examples
    --------
    >>> cache = CacheSets(sets=64, ways=8, line=16)
    >>> [conflict_share(cache, (9, 16), (pitch, 1)) for pitch in (1024, 1040)]
    [1.0, 0.0]
    """
    most = NEST_CROWD_RATIO * cache.sets * cache.ways
    across = -(-sides[-1] // cache.line)
    if prod(sides[:-1]) * across > most:
        return 1.0
    rows = np.zeros(1, dtype=np.int64)
    for side, stride in zip(sides[:-1], strides[:-1], strict=True):
        rows = (rows[:, None] + stride * np.arange(side, dtype=np.int64)).ravel()
    lines = np.unique((rows // cache.line)[:, None] + np.arange(across))
    counts = np.bincount(lines % cache.sets, minlength=cache.sets)
    return float(counts[counts > cache.ways].sum() / lines.size)
