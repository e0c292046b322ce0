"""Moves: how the elements of one strided array get to another of the same shape.

One walk serves every pair of strides: axes that stay together are merged, tiles are boxes that are
long in both arrays (`move_tiles`), and loops go from the longest steps to the shortest. Memory is
kept busy all the while: the source of the rows that follow is asked for as blocks are transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import prod

import numpy as np

from tilesolve.kernels.codegen.transpose_blocks import BLOCK_KINDS, BLOCK_SIDES, LISTED_KINDS
from tilesolve.kernels.runtime import transpose_walk
from tilesolve.kernels.runtime.transpose_walk import PLACE, A, W
from tilesolve.model.pages import PAGE
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array, data_pointer_address
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.system.workers import run_together
from tilesolve.transposes.limits import Limits, in_force
from tilesolve.transposes.tiles import Axis, Buffer, cut, in_lines

WAYS = 8
"""Lines at one place in their pages that the nearest cache of any CPU has ways for."""

Strides = tuple[int, ...]


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
    >>> found = move((3, 2), target.strides, source.T.strides, 8, 1, in_force())
    >>> found.run(target, source.T)
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
            run_together(jobs)

    def _part(self, target: Array, source: Array, first: int, last: int) -> None:
        # A store that crosses pages takes several times as long as others: a small buffer has one
        # (measured on a Zen 4, the case of `transpose_walk.SOON`: 11 instead of 16 ms).
        memory = workspace(self.room + PAGE)
        buffer = memory.address + -memory.address % PAGE
        transpose_walk.run(
            self.address,
            data_pointer_address(target),
            data_pointer_address(source),
            buffer,
            first,
            last,
        )


def copy(target: Array, source: Array, threads: int) -> None:
    """Copy an array that is not empty to another one of the same shape and dtype.

    What the last cache cannot hold of both goes past it: otherwise the target's lines would be read
    before they are written, and drive the source out.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> copy(target, source.T, 1)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    both, here = 2 * target.nbytes, in_force()
    streamed, held = both > here.last, both <= here.near
    aligned = streamed and target.ctypes.data % LINE_BYTES == 0
    found = move(
        source.shape,
        target.strides,
        source.strides,
        source.itemsize,
        threads,
        here,
        streamed=streamed,
        aligned=aligned,
        held=held,
    )
    found.run(target, source)


@lru_cache(maxsize=256)
def move(
    shape: tuple[int, ...],
    far: Strides,
    near: Strides,
    itemsize: int,
    threads: int,
    limits: Limits,
    *,
    streamed: bool = False,
    aligned: bool = False,
    held: bool = False,
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
    limits
        What the machine holds.
    streamed
        Whether whole lines of the target are written past the caches.
    aligned
        Whether the target's first element is at the beginning of a line.
    held
        Whether a cache that is near holds both arrays.

    Examples
    --------
    >>> len(move((400, 300), (2400, 8), (8, 3200), 8, 2, in_force()).parts)
    2
    """
    begin, element, axes = merged(shape, far, near, itemsize)
    columns = len(axes) - 1
    rows = min(range(len(axes)), key=lambda at: abs(axes[at].near) or np.inf)
    if rows == columns:  # then rows are an axis more
        axes, rows, columns = [_ALONE, *axes], 0, columns + 1
    lined = streamed and aligned and begin[0] % LINE_BYTES == 0
    whole = lined and in_lines(element, axes, rows, at_once=limits.at_once)
    axes, buffer = cut(element, axes, rows, limits, whole=whole, held=held, threads=threads)
    blocked = axes[columns].far == axes[rows].near == element
    least = BLOCK_SIDES.get(element, ())[-1:] or (0,)
    sides = _sides(element, limits, abs(axes[columns].near), whole=whole) if blocked else least
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
    listed = blocked and not (whole or buffer.piece)
    listed = listed and _in_a_row(element, axes, buffer, fills, sides[0])
    here = listed or buffer.piece
    fills.sort(key=lambda at: buffer.steps[at] if here else abs(axes[at].near), reverse=True)
    kinds = [_kind(element, side, listed=listed, whole=whole) if side else 0 for side in sides]

    walk = np.zeros(W.SIZE, np.int64)
    walk[W.ELEMENT], walk[W.COLUMNS], walk[W.ROWS] = element, columns, rows
    walk[W.BLOCKS : W.BLOCKS + 2 * len(sides)] = np.stack([sides, kinds], axis=1).ravel()
    walk[W.STREAMED] = streamed
    walk[W.BEGIN : W.BEGIN + 2] = begin
    walk[W.RUN : W.RUN + 2] = buffer.run
    walk[W.GROUP], walk[W.AHEAD] = buffer.group, buffer.ahead or not sides[0]
    size = buffer.size + -buffer.size % LINE_BYTES
    walk[W.KEPT], walk[W.OFFSETS], walk[W.MOVE] = kept and size, size + kept, PLACE
    walk[W.WHOLE], walk[W.LISTED], walk[W.JOINED] = whole, listed, buffer.joined
    walk[W.PIECE] = buffer.piece
    for at, (axis, step) in enumerate(zip(axes, buffer.steps, strict=True)):
        fields = (axis.extent, axis.tile, axis.trips, axis.far, axis.near, step)
        walk[W.AXES + A.SIZE * at : W.AXES + A.SIZE * (at + 1)] = fields
    lists = (
        (W.LOOPS, loops),
        (W.OUTER, buffer.outer),
        (W.INNER, buffer.inner),
        (W.FILLS, fills),
    )
    for number, (field, members) in enumerate(lists):
        walk[W.COUNTS + number] = len(members)
        walk[field : field + len(members)] = members

    trips = axes[loops[0]].trips
    bounds = [trips * part // threads for part in range(threads + 1)]
    parts = tuple((low, high) for low, high in pairwise(bounds) if low < high)
    positions = prod(axes[at].tile for at in fills)
    offsets = walk.itemsize * positions * (axes[columns].tile if listed else 2)
    return Move(walk, walk.ctypes.data, size + kept + offsets + 2 * LINE_BYTES, parts)


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


def _sides(element: int, limits: Limits, step: int, *, whole: bool) -> tuple[int, ...]:
    """Return sides of blocks: the largest that registers hold, or a line; a small one; and 1.

    Where columns are so far apart in the source that all lines of a block are at one place in their
    pages, the nearest cache has no ways for many (measured on a Zen 4: axes of 5121×5121 numbers of
    4 bytes reversed at 80 instead of 74 % of a copy).
    """
    *sides, least = BLOCK_SIDES.get(element, (0,))
    held = [side for side in sides if side * side * element <= limits.registers]
    if not whole and WAYS in held[1:] and held[0] * min(step % PAGE, -step % PAGE) <= LINE_BYTES:
        held = held[held.index(WAYS) :]
    first = [LINE_BYTES // element] if whole else held[:1]
    return tuple(dict.fromkeys((*first, *held[-1:], least)))


def _kind(element: int, side: int, *, listed: bool, whole: bool) -> int:
    """Return the number of blocks."""
    if listed:
        return LISTED_KINDS.index((element, side))
    return BLOCK_KINDS.index((element, side, whole and side * element == LINE_BYTES))


def _in_a_row(
    element: int, axes: Sequence[Axis], buffer: Buffer, fills: Sequence[int], side: int
) -> bool:
    """Return whether the columns of all fills follow each other in the buffer, and had better.

    Blocks of each fill would leave columns over, which are then moved one by one (measured on a Zen
    4: all axes of 17×17×17×17×17×17 numbers of 4 bytes take 9.9 ms instead of 11).
    """
    several = any(axes[at].tile > 1 for at in fills)
    if not several or not side or not buffer.run[0] or axes[-1].tile % side == 0:
        return False
    step = element * axes[-1].tile
    for at in sorted(fills, key=lambda at: buffer.steps[at]):
        if buffer.steps[at] != step:
            return False
        step *= axes[at].tile
    return True


def _kept(
    element: int, axes: Sequence[Axis], buffer: Buffer, loops: Sequence[int], threads: int
) -> int:
    """Return the bytes that the ends of a tile's runs take, 0 if no tile goes on where they end."""
    step, along = buffer.run
    length, trips = step * axes[along].tile, axes[along].trips
    shared = threads > 1 and loops[0] == along and any(axes[at].trips > 1 for at in loops[1:])
    if shared or trips == 1 or length < LINE_BYTES:
        return 0
    return LINE_BYTES * (prod(axis.tile for axis in axes) * element // length)
