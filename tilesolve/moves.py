"""Moves: how the elements of one strided array get to another of the same shape.

One walk serves every pair of strides: axes that stay together are merged, tiles are boxes that are
long in both arrays, and loops go from the longest steps to the shortest. Memory is kept busy all
the while: the source of the rows that follow is asked for as blocks are transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import pairwise
from math import prod

import numpy as np

from tilesolve.arrays import Array, pointer
from tilesolve.kernels import moving
from tilesolve.kernels.blocks import BLOCKS, KINDS, LINE
from tilesolve.kernels.moving import A, W
from tilesolve.machine import Machine
from tilesolve.packing.axes import Integers
from tilesolve.packing.buffers import room
from tilesolve.pages import crowded
from tilesolve.workers import together

SIDE = 2048
"""Bytes of a run, more or less; half as many where the source of a run would crowd a cache, or
where there is no buffer."""

ROOM = 1 << 20
"""Bytes of a tile at most, more or less. No cache has to hold it: its source is read once."""

NEAREST = 3 << 14
"""Bytes of the buffer, more or less: it stays in the nearest caches. Less and more were slower."""

MOST = 1 << 15
"""Bytes of a run that covers rows, at most: the longer, the earlier is what follows asked for."""

NEAR = 512
"""Bytes of rows that are moved at once where they go to the target without the buffer, about: the
more there are, the earlier is what follows asked for, and the larger a cache has to hold it."""

LINES = 2
"""Lines of rows that are moved at once, at least."""

EVEN = 16
"""What parts of columns and rows are a multiple of, so that lines and blocks are whole."""

ALL = 1 << 40
"""No bound of rows."""

WHOLE = 128
"""Bytes of an element from which on it is moved without the buffer."""

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of both arrays.

    Parameters
    ----------
    extent
        Elements along it.
    far, near
        Bytes between neighbours in the target and in the source.
    tile
        Elements of a tile along it.

    Examples
    --------
    >>> Axis(extent=5, far=8, near=80, tile=2).trips
    3
    """

    extent: int
    far: int
    near: int
    tile: int = 1

    @property
    def trips(self) -> int:
        """How many tiles there are."""
        return -(-self.extent // self.tile)


@dataclass(frozen=True, slots=True)
class Buffer:
    """How a few rows of a tile lie before they go to the target.

    Parameters
    ----------
    steps
        Bytes between neighbours along each axis; 0 for one that is never within the buffer.
    run
        Bytes of a run for each element of its outermost axis, and that axis; 0 if a tile is moved
        without a buffer.
    outer
        The axes that neither runs nor rows cover.
    inner
        Rows, if runs do not cover them, behind the axes that go on where they end.
    group
        Rows that are moved at once.
    ahead
        Whether the source of those that follow is asked for, and not just what is close.
    size
        Bytes of all, with a line before each run.

    Examples
    --------
    >>> found = Buffer.of([Axis(4, 80, 8, 4), Axis(2, 8, 32, 2)], 8, rows=0, side=64)
    >>> found.steps, found.inner, found.group
    ((192, 8), (0,), 4)
    """

    steps: tuple[int, ...]
    run: tuple[int, int]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    group: int
    ahead: bool
    size: int

    @classmethod
    def of(cls, axes: Sequence[Axis], element: int, rows: int, side: int) -> Buffer:
        """Let axes of a run lie as in the target, and rows behind each other.

        Further axes may go on where a run ends. Half of `side` is enough for it, so that the buffer
        stays small; but for a run that covers rows, of which the buffer holds no other.
        """
        steps, step, run = [0] * len(axes), element, (0, 0)
        others = list(range(len(axes)))
        while others and axes[others[-1]].far == step:
            more = rows not in others and step * axes[others[-1]].tile <= MOST
            if run[0] and step >= side // 2 and not more:
                break
            at = others.pop()
            run = (step, at)
            steps[at], step = step, step * axes[at].tile
            if axes[at].trips > 1:
                break
        others.sort(key=lambda at: abs(axes[at].near), reverse=True)
        if rows not in others:
            return cls(tuple(steps), run, tuple(others), (), ALL, True, LINE + step)
        inner = [rows]
        while True:
            last = axes[inner[0]]
            end = last.near * last.extent
            on = [at for at in others if at not in inner and axes[at].near == end]
            if last.tile < last.extent or not on:
                break
            inner.insert(0, on[0])
        steps[rows] = LINE * (step // LINE + 2 | 1)
        line = -(-LINE // element)
        group = max(LINES * line, NEAREST // steps[rows] // line * line)
        crowded = _crowded(axes, [at for at in range(len(axes)) if steps[at] and at != rows])
        total = prod(axes[at].tile for at in inner)
        if total % line:  # groups of about as many each, as lines are not whole in any case
            group = -(-total // max(1, round(total / group)))
        group = moving.TOGETHER if crowded else min(moving.TOGETHER, group)
        outer = tuple(at for at in others if at not in inner)
        return cls(
            tuple(steps), run, outer, tuple(inner), group, not crowded, group * steps[rows] + LINE
        )

    @classmethod
    def none(cls, axes: Sequence[Axis], rows: int) -> Buffer:
        """Return where a tile lies that is moved at once."""
        others = [at for at in range(len(axes) - 1) if at != rows]
        others.sort(key=lambda at: abs(axes[at].near), reverse=True)
        return cls(tuple(axis.far for axis in axes), (0, 0), tuple(others), (), ALL, False, 0)

    @classmethod
    def skipped(cls, axes: Sequence[Axis], element: int, rows: int) -> Buffer:
        """Return where a tile lies whose blocks are whole lines of the target.

        They go there past the caches: a few rows of what a run would cover, then the next ones.
        """
        others, run, length = [*range(len(axes) - 1)], [len(axes) - 1], element * axes[-1].tile
        others.remove(rows)
        while others and length < SIDE // 4:
            run.append(others.pop())
            length *= axes[run[-1]].tile
        others.sort(key=lambda at: abs(axes[at].near), reverse=True)
        high = axes[rows].tile
        group = -(-high // max(1, round(high * element / NEAR)))
        steps = tuple(axis.far for axis in axes)
        ahead = not _crowded(axes, run)
        return cls(steps, (0, 0), tuple(others), (rows,), group, ahead, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """How arrays of given strides are copied.

    Parameters
    ----------
    walk
        What compiled code knows of it, see `kernels.moving.W`.
    address
        Of the walk.
    room
        Bytes of a tile's buffer.
    parts
        Trips of the outermost loop that each thread does.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> move((3, 2), target.strides, source.T.strides, 8, 1).run(target, source.T)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    walk: Integers
    address: int
    room: int
    parts: tuple[tuple[int, int], ...]

    def run(self, target: Array, source: Array) -> None:
        """Copy one array to the other."""
        jobs = [partial(self._part, target, source, *part) for part in self.parts]
        if len(jobs) == 1:
            jobs[0]()
        else:
            together(jobs)

    def _part(self, target: Array, source: Array, first: int, last: int) -> None:
        memory = room(self.room)
        moving.run(self.address, pointer(target), pointer(source), memory.address, first, last)


def copy(target: Array, source: Array, threads: int) -> None:
    """Copy an array that is not empty to another one of the same shape and dtype.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> copy(target, source.T, 1)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    streamed = target.nbytes > _last_cache()
    aligned = streamed and target.ctypes.data % LINE == 0
    steps, size = (target.strides, source.strides), source.itemsize
    move(source.shape, *steps, size, threads, streamed=streamed, aligned=aligned).run(
        target, source
    )


@lru_cache(maxsize=256)
def move(
    shape: tuple[int, ...],
    far: Strides,
    near: Strides,
    itemsize: int,
    threads: int,
    *,
    streamed: bool = False,
    aligned: bool = False,
) -> Move:
    """Return the move between arrays that are not empty: of their shape and both strides.

    Parameters
    ----------
    shape
        Of both arrays.
    far, near
        Strides of the target and of the source.
    itemsize
        Bytes of an element.
    threads
        How many share the work.
    streamed
        Whether whole lines of the target are written past the caches.
    aligned
        Whether the target's first element is at the beginning of a line.

    Examples
    --------
    >>> len(move((400, 300), (2400, 8), (8, 3200), 8, 2).parts)
    2
    """
    begin, element, axes = merged(shape, far, near, itemsize)
    columns = len(axes) - 1
    rows = min(range(len(axes)), key=lambda at: abs(axes[at].near) or np.inf)
    if rows == columns:  # then rows are an axis more
        axes, rows, columns = [_ALONE, *axes], 0, columns + 1
    whole = streamed and aligned and begin[0] % LINE == 0 and _in_lines(element, axes, rows)
    axes, buffer = _unbuffered(element, axes, rows) if whole else _buffered(element, axes, rows)
    blocked = axes[columns].far == axes[rows].near == element
    sides = _sides(element, whole=whole) if blocked else BLOCKS.get(element, ())[-1:] or (0,)
    kinds = [
        KINDS.index((element, side, whole and side * element == LINE)) if side else 0
        for side in sides
    ]
    count = len(axes)
    loops = sorted(range(count), key=lambda at: axes[at].far + abs(axes[at].near), reverse=True)
    if threads > 1:  # the outermost loop is shared: one with enough trips, if there is any
        loops.sort(key=lambda at: min(axes[at].trips, 4 * threads), reverse=True)
    kept = _kept(element, axes, buffer, loops, threads) if streamed else 0
    if kept:  # the next tile is the one whose runs go on where these end
        ended = [at for at in loops if axes[at].trips == 1]
        others = [at for at in loops if at not in (buffer.run[1], *ended)]
        loops = [*others, buffer.run[1], *ended]
    moved = {columns, rows, *buffer.outer, *buffer.inner}
    fills = [at for at in range(count) if at not in moved]
    fills.sort(key=lambda at: abs(axes[at].near), reverse=True)

    walk = np.zeros(W.SIZE, np.int64)
    walk[W.ELEMENT], walk[W.COLUMNS], walk[W.ROWS] = element, columns, rows
    walk[W.BLOCKS : W.BLOCKS + 2 * len(sides)] = np.stack([sides, kinds], axis=1).ravel()
    walk[W.STREAMED] = streamed
    walk[W.BEGIN : W.BEGIN + 2] = begin
    walk[W.RUN : W.RUN + 2] = buffer.run
    walk[W.GROUP], walk[W.AHEAD] = buffer.group, buffer.ahead or not sides[0]
    walk[W.KEPT] = kept and buffer.size + -buffer.size % LINE
    walk[W.WHOLE] = whole
    for at, (axis, here) in enumerate(zip(axes, buffer.steps, strict=True)):
        fields = (axis.extent, axis.tile, axis.trips, axis.far, axis.near, here)
        walk[W.AXES + A.SIZE * at : W.AXES + A.SIZE * (at + 1)] = fields
    lists = (
        (W.LOOPS, loops),
        (W.OUTER, buffer.outer),
        (W.INNER, buffer.inner),
        (W.FILLS, fills),
    )
    for number, (field, listed) in enumerate(lists):
        walk[W.COUNTS + number] = len(listed)
        walk[field : field + len(listed)] = listed

    trips = axes[loops[0]].trips
    bounds = [trips * part // threads for part in range(threads + 1)]
    parts = tuple((low, high) for low, high in pairwise(bounds) if low < high)
    return Move(walk, walk.ctypes.data, buffer.size + LINE + kept, parts)


_ALONE = Axis(1, 0, 0)
"""The axis of an array that has none."""


def merged(
    shape: tuple[int, ...], far: Strides, near: Strides, itemsize: int
) -> tuple[tuple[int, int], int, list[Axis]]:
    """Return where a walk begins, the bytes that stay together, and the axes that do not.

    Steps in the target are made positive, axes that are one on both sides are merged, and the
    longest steps come first.

    Examples
    --------
    >>> merged((2, 3, 4), (96, 32, 8), (32, 64, 8), 8)
    ((0, 0), 32, [Axis(extent=2, far=96, near=32, tile=1), Axis(extent=3, far=32, near=64, tile=1)])
    """
    begin_far = begin_near = 0
    axes: list[Axis] = []
    for axis in map(Axis, shape, far, near):
        if axis.extent == 1:
            continue
        if axis.far < 0:
            begin_far += (axis.extent - 1) * axis.far
            begin_near += (axis.extent - 1) * axis.near
            axis = Axis(axis.extent, -axis.far, -axis.near)
        axes.append(axis)
    axes.sort(key=lambda axis: axis.far, reverse=True)
    found: list[Axis] = []
    for axis in axes:
        length = (axis.extent * axis.far, axis.extent * axis.near)
        if found and (found[-1].far, found[-1].near) == length:
            axis = replace(axis, extent=found.pop().extent * axis.extent)
        found.append(axis)
    element = itemsize
    if found and found[-1].far == found[-1].near == itemsize:
        element *= found.pop().extent
    return (begin_far, begin_near), element, found or [_ALONE]


def _sides(element: int, *, whole: bool) -> tuple[int, ...]:
    """Return sides of blocks: the largest that registers hold, or a line; a small one; and 1."""
    *sides, least = BLOCKS.get(element, (0,))
    held = [side for side in sides if side * side * element <= _registers()]
    first = [LINE // element] if whole else held[:1]
    return tuple(dict.fromkeys((*first, *held[-1:], least)))


def _in_lines(element: int, axes: Sequence[Axis], rows: int) -> bool:
    """Return whether blocks of a target that begins with a line are whole lines of it.

    They are not worth it where many of the last rows would be moved twice, or where lines of one
    block are at one place in pages: some CPUs let one wait for the other then (Zen 3).
    """
    *others, last = axes
    side = LINE // element
    if side not in BLOCKS.get(element, ())[:-1] or not last.far == axes[rows].near == element:
        return False
    if last.extent % side or any(axis.far % LINE for axis in others):
        return False
    high, far = axes[rows].extent, axes[rows].far
    if 4 * high < 3 * (high + -high % side):
        return False
    block = {"rows": side, "columns": side}
    return not crowded({"rows": far, "columns": element}, block, LINE)


def _unbuffered(element: int, axes: Sequence[Axis], rows: int) -> tuple[list[Axis], Buffer]:
    """Return the axes with the extents of tiles that go to the target line by line."""
    tiled = _tiled(element, axes, SIDE // 2)
    return tiled, Buffer.skipped(tiled, element, rows)


def _buffered(element: int, axes: Sequence[Axis], rows: int) -> tuple[list[Axis], Buffer]:
    """Return the axes with the extents of tiles, and how a tile lies before it is in the target."""
    if axes[-1].far == element < WHOLE:
        for side in (SIDE, SIDE // 2):
            tiled = _tiled(element, axes, side)
            if all(axis.trips == 1 for axis in tiled):
                return tiled, Buffer.none(tiled, rows)
            buffer = Buffer.of(tiled, element, rows, side)
            if buffer.ahead:
                break
        return tiled, buffer
    tiled = _tiled(element, axes, SIDE // 2)
    return tiled, Buffer.none(tiled, rows)


def _tiled(element: int, axes: Sequence[Axis], side: int) -> list[Axis]:
    """Return the axes with the extents of tiles: all of some, and a part of one on either side."""
    tile, length = [1] * len(axes), element
    for at in reversed(range(len(axes))):
        if length >= side:
            break
        tile[at] = _share(axes[at].extent, side // length, even=length == element)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    length = element
    for at in sorted(range(len(axes)), key=lambda at: abs(axes[at].near)):
        if tile[at] == 1 or length == element:
            most = ROOM // (element * prod(tile) // tile[at])
            share = _share(axes[at].extent, most, even=length == element)
            tile[at] = max(tile[at], share)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    return [replace(axis, tile=share) for axis, share in zip(axes, tile, strict=True)]


def _kept(
    element: int, axes: Sequence[Axis], buffer: Buffer, loops: Sequence[int], threads: int
) -> int:
    """Return the bytes that the ends of a tile's runs take, 0 if no tile goes on where they end."""
    step, along = buffer.run
    length, trips = step * axes[along].tile, axes[along].trips
    shared = threads > 1 and loops[0] == along and any(axes[at].trips > 1 for at in loops[1:])
    if shared or trips == 1 or length < LINE:
        return 0
    return LINE * (prod(axis.tile for axis in axes) * element // length)


def _crowded(axes: Sequence[Axis], run: Sequence[int]) -> bool:
    """Return whether the source of a run has more lines on a set of a cache than it has ways."""
    lines = np.zeros(1, np.int64)
    for at in run:
        lines = np.add.outer(lines, np.arange(axes[at].tile) * axes[at].near).ravel()
    way, ways = _second_cache()
    return int(np.bincount(lines % way // LINE).max()) > ways


def _share(extent: int, most: int, *, even: bool) -> int:
    """Return near-equal parts of an extent, of about so many."""
    share = -(-extent // max(1, -(-extent // max(1, most))))
    return min(extent, -(-share // EVEN) * EVEN) if even else share


@cache
def _second_cache() -> tuple[int, float]:
    """Return the bytes of a way of the cache that lines are asked to, and how many ways it has.

    Lines that are whole ways apart share a set. Where ways are unknown, no lines are too many.
    """
    level = Machine.load().caches[:2][-1]
    if not level.capacity or not level.ways:
        return LINE, np.inf
    return level.capacity // level.ways, level.ways


@cache
def _registers() -> int:
    """Return the bytes that this machine's vector registers hold."""
    machine = Machine.load()
    return machine.vector_registers * machine.vector_bits // 8


@cache
def _last_cache() -> int:
    """Return the bytes of this machine's last cache that its cores may count on."""
    return Machine.load().lasting
