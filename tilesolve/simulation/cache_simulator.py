"""Least-recently-used caches in levels, fast enough to be fed with the trace of a whole nest.

Every set of a cache is a doubly linked list of its ways, newest to oldest, and a table says
where a line is, so that an access costs the same whatever the associativity. A fully
associative cache is one set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

EMPTY = cast(int, np.int64(-1))
"""A plain -1 would be a type of its own: numba compiles each function anew for it."""

TAG, NEWER, OLDER = range(3)
"""What is known of a way: side by side, as looking it up waits for memory when caches are large."""

_njit: Any = njit  # numba's types do not describe it well

Function = TypeVar("Function", bound=Callable[..., Any])


def lean(function: Function) -> Function:
    """Compile a function that allocates nothing: counting references would take most of the time.

    Examples
    --------
    >>> lean(lambda number: 2 * number)(3)
    6
    """
    compiled: Function = _njit(_nrt=False, cache=_is_kept(function))(function)
    return compiled


def lean_part(function: Function) -> Function:
    """Compile a lean function that only compiled ones call: what Python calls takes a third more.

    Examples
    --------
    >>> lean_part(lambda number: 2 * number).__name__
    '<lambda>'
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "cache": _is_kept(function)}
    compiled: Function = _njit(_nrt=False, **options)(function)
    return compiled


def _is_kept(function: Callable[..., Any]) -> bool:
    """Return whether compiled code is kept: of functions in files, where NUMBA_CACHE_DIR is set."""
    return "NUMBA_CACHE_DIR" in os.environ and Path(function.__code__.co_filename).is_file()


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The shape of one level: fully associative unless ways are given, inclusive or a victim.

    Examples
    --------
    >>> CacheShape(32768, 64, 8).inclusive
    True
    """

    capacity: int
    line: int
    ways: int | None = None
    inclusive: bool = True


class Caches(NamedTuple):
    """The state of all levels, nearest first, and the misses of each level and owner.

    Examples
    --------
    >>> caches([CacheShape(4096, 64), CacheShape(16384, 64)], 10**6).misses.shape
    (2, 1)
    """

    shift: NDArray[np.int64]  # level -> bits of the address within a line
    mask: NDArray[np.int64]  # level -> bits of the line that number its set
    inclusive: NDArray[np.bool_]
    where: NDArray[np.int32]  # level, line -> way that holds it
    ways: NDArray[np.int32]  # level, way -> line it holds, neighbours in the list of its set
    newest: NDArray[np.int32]  # level, set -> ends of its list
    oldest: NDArray[np.int32]
    misses: NDArray[np.int64]  # level, owner


def caches(shapes: Sequence[CacheShape], span: int, owners: int = 1) -> Caches:
    """Return empty caches for addresses below `span`, with a counter for each owner.

    Examples
    --------
    >>> caches([CacheShape(4096, 64, 3)], 10**6)
    Traceback (most recent call last):
    ValueError: the ways [3] do not divide the lines [64]
    """
    slots = [max(1, shape.capacity // shape.line) for shape in shapes]
    ways = [shape.ways or slot for shape, slot in zip(shapes, slots, strict=True)]
    sets = [slot // way for slot, way in zip(slots, ways, strict=True)]
    if any(way * count != slot for way, count, slot in zip(ways, sets, slots, strict=True)):
        raise ValueError(f"the ways {ways} do not divide the lines {slots}")
    if any(n & (n - 1) for n in (*sets, *(shape.line for shape in shapes))):
        raise ValueError(f"lines and the number of sets, {sets}, must be powers of two")
    lines = span // min(shape.line for shape in shapes) + 1
    if lines > np.iinfo(np.int32).max:
        raise ValueError(f"{span} bytes are more lines than can be told apart, {lines}")
    levels, most = len(shapes), max(slots)
    held = np.full((levels, most, 3), EMPTY, np.int32)
    newest = np.zeros((levels, max(sets)), np.int32)
    oldest = np.zeros((levels, max(sets)), np.int32)
    for level in range(levels):
        chain = np.arange(slots[level]).reshape(sets[level], ways[level])
        held[level, chain[:, 1:], NEWER] = chain[:, :-1]
        held[level, chain[:, :-1], OLDER] = chain[:, 1:]
        newest[level, : sets[level]] = chain[:, 0]
        oldest[level, : sets[level]] = chain[:, -1]
    return Caches(
        np.array([shape.line.bit_length() - 1 for shape in shapes]),
        np.array(sets) - 1,
        np.array([shape.inclusive for shape in shapes]),
        np.full((levels, lines), EMPTY, np.int32),
        held,
        newest,
        oldest,
        np.zeros((levels, owners), np.int64),
    )


@lean_part
def _unlink(state: Caches, level: int, group: int, way: int) -> None:
    """Take a way out of its set's list."""
    before, after = state.ways[level, way, NEWER], state.ways[level, way, OLDER]
    if before == EMPTY:
        state.newest[level, group] = after
    else:
        state.ways[level, before, OLDER] = after
    if after == EMPTY:
        state.oldest[level, group] = before
    else:
        state.ways[level, after, NEWER] = before


@lean_part
def _make_newest(state: Caches, level: int, group: int, way: int) -> None:
    """Move a way to the new end of its set's list."""
    if state.newest[level, group] != way:
        _unlink(state, level, group, way)
        first = state.newest[level, group]
        state.ways[level, way, NEWER], state.ways[level, way, OLDER] = EMPTY, first
        state.ways[level, first, NEWER] = way
        state.newest[level, group] = way


@lean_part
def _make_oldest(state: Caches, level: int, group: int, way: int) -> None:
    """Move a way to the old end of its set's list."""
    if state.oldest[level, group] != way:
        _unlink(state, level, group, way)
        final = state.oldest[level, group]
        state.ways[level, way, OLDER], state.ways[level, way, NEWER] = EMPTY, final
        state.ways[level, final, OLDER] = way
        state.oldest[level, group] = way


@lean_part
def _insert(state: Caches, level: int, line: int) -> int:
    """Put a line that is not there into a level; return the line that had to go, or EMPTY."""
    group = line & state.mask[level]
    way = state.oldest[level, group]
    gone: int = state.ways[level, way, TAG]
    if gone != EMPTY:
        state.where[level, gone] = EMPTY
    state.ways[level, way, TAG] = line
    state.where[level, line] = way
    _make_newest(state, level, group, way)
    return gone


@lean
def access(state: Caches, address: int, owner: int) -> None:
    """Touch an address: each level that lacks it counts a miss, asks the next and fills itself.

    A victim cache gives the line up to the nearer level and takes what that one let go.

    Examples
    --------
    >>> small = caches([CacheShape(128, 64)], 1000)
    >>> for address in (0, 8, 64, 0, 128, 64):
    ...     access(small, address, 0)
    >>> int(small.misses[0, 0])
    4
    """
    gone = EMPTY
    for level in range(state.shift.size):
        line = address >> state.shift[level]
        way = state.where[level, line]
        group = line & state.mask[level]
        if state.inclusive[level]:
            if way != EMPTY:
                _make_newest(state, level, group, way)
            else:
                gone = _insert(state, level, line)
        else:
            if way != EMPTY:
                state.ways[level, way, TAG] = EMPTY
                state.where[level, line] = EMPTY
                _make_oldest(state, level, group, way)
            if gone != EMPTY:
                gone = _insert(state, level, gone)
        if way != EMPTY:
            return
        state.misses[level, owner] += 1
