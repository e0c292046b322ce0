"""Transposes: how the elements of one strided array get to another of the same shape.

One walk serves every pair of strides: axes that stay together are merged, tiles are boxes that are
long in both arrays (`tiles`), and loops go from the longest steps to the shortest. The source of
the rows that follow is prefetched while blocks are transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import prod

import numpy as np

from tilesolve.constants import policy
from tilesolve.kernels.ir.transpose_blocks import BLOCK_KINDS, BLOCK_SIDES, LISTED_KINDS
from tilesolve.kernels.runtime import transpose_walk
from tilesolve.kernels.runtime import walk_fields as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array, data_pointer_address
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES
from tilesolve.system.cancellation import stop_address
from tilesolve.system.workers import run_together
from tilesolve.transposes.limits import Limits, limits_in_force
from tilesolve.transposes.tiles import Staging, WalkAxis, blocks_are_lines, cut_tiles

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """How arrays of given strides are copied.

    Compiled code reads `table`, see `kernels.runtime.walk_fields`. The workspace holds the
    staging buffer, ends of runs that are kept, and offsets. `parts` are the trips of the
    outermost loop that each thread does.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> found = walk_between((3, 2), target.strides, source.T.strides, 8, 1, limits_in_force())
    >>> found.run(target, source.T)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    table: Integers
    address: int
    workspace_bytes: int
    parts: tuple[tuple[int, int], ...]

    def run(self, target: Array, source: Array) -> None:
        """Copy one array to the other."""
        jobs = [partial(self._run_part, target, source, *part) for part in self.parts]
        run_together(jobs, long=target.nbytes >= policy.LONG_COPY_BYTES)

    def _run_part(self, target: Array, source: Array, first: int, last: int) -> None:
        # A store that crosses pages is slow: the staging buffer begins with a page.
        memory = workspace(self.workspace_bytes + PAGE_BYTES)
        buffer = memory.address + -memory.address % PAGE_BYTES
        transpose_walk.run(
            self.address,
            data_pointer_address(target),
            data_pointer_address(source),
            buffer,
            first,
            last,
            stop_address(),
        )


def copy_strided(target: Array, source: Array, threads: int) -> None:
    """Copy an array that is not empty to another one of the same shape and dtype.

    Where the last cache cannot hold both, the target is written by non-temporal stores: otherwise
    its lines would be read before they are written, and evict the source.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> copy_strided(target, source.T, 1)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    both, limits = 2 * target.nbytes, limits_in_force()
    streamed, held = both > limits.last_cache_bytes, both <= limits.near_bytes
    aligned = streamed and target.ctypes.data % LINE_BYTES == 0
    found = walk_between(
        source.shape,
        target.strides,
        source.strides,
        source.itemsize,
        threads,
        limits,
        streamed=streamed,
        aligned=aligned,
        held=held,
    )
    found.run(target, source)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a walk's table says, by name; see `kernels.runtime.walk_fields`."""

    element: int
    begin: tuple[int, int]
    axes: Sequence[WalkAxis]
    columns: int
    rows: int
    sides: Sequence[int]
    kinds: Sequence[int]
    staging: Staging
    loops: Sequence[int]
    fills: Sequence[int]
    streamed: bool
    whole: bool
    listed: bool
    kept_bytes: int

    @property
    def staging_bytes(self) -> int:
        """Bytes of the staging buffer, in whole lines."""
        return self.staging.nbytes + -self.staging.nbytes % LINE_BYTES

    def table(self) -> Integers:
        """Return the table that compiled code reads."""
        walk, staging = np.zeros(fields.SIZE, np.int64), self.staging
        walk[fields.ELEMENT_BYTES] = self.element
        walk[fields.COLUMNS], walk[fields.ROWS] = self.columns, self.rows
        blocks = np.stack([self.sides, self.kinds], axis=1).ravel()
        walk[fields.BLOCKS : fields.BLOCKS + len(blocks)] = blocks
        walk[fields.NON_TEMPORAL] = self.streamed
        walk[fields.WHOLE], walk[fields.LISTED] = self.whole, self.listed
        walk[fields.START : fields.START + 2] = self.begin
        walk[fields.RUN], walk[fields.RUN_AXIS] = staging.run
        walk[fields.GROUP] = staging.group
        walk[fields.PREFETCHES_NEXT_ROWS] = staging.prefetches_rows or not self.sides[0]
        walk[fields.JOINED], walk[fields.FILL_BYTES] = staging.joined, staging.piece
        walk[fields.KEPT] = self.kept_bytes and self.staging_bytes
        walk[fields.OFFSETS] = self.staging_bytes + self.kept_bytes
        walk[fields.TILE_FUNCTION] = address(transpose_walk.transpose_whole_tile)
        for at, (axis, step) in enumerate(zip(self.axes, staging.steps, strict=True)):
            words = (axis.extent, axis.tile, axis.trips, axis.target_step, axis.source_step, step)
            first = fields.AXES + fields.AXIS_WORDS * at
            walk[first : first + fields.AXIS_WORDS] = words
        lists = (
            (fields.LOOPS, self.loops),
            (fields.OUTER, staging.outer),
            (fields.INNER, staging.inner),
            (fields.FILLS, self.fills),
        )
        for number, (field, members) in enumerate(lists):
            walk[fields.COUNTS + number] = len(members)
            walk[field : field + len(members)] = members
        return walk

    def workspace_bytes(self, word: int) -> int:
        """Return the bytes of all that one thread needs, offsets being words of so many bytes."""
        positions = prod(self.axes[at].tile for at in self.fills)
        offsets = word * positions * (self.axes[self.columns].tile if self.listed else 2)
        return self.staging_bytes + self.kept_bytes + offsets + 2 * LINE_BYTES


@lru_cache(maxsize=256)
def walk_between(
    shape: tuple[int, ...],
    target_strides: Strides,
    source_strides: Strides,
    itemsize: int,
    threads: int,
    limits: Limits,
    *,
    streamed: bool = False,
    aligned: bool = False,
    held: bool = False,
) -> Walk:
    """Return the walk between arrays that are not empty: of their shape and both strides.

    Strides and `itemsize` are in bytes. `streamed` says whether non-temporal stores write whole
    lines of the target, `aligned` whether its first element begins a line, and `held` whether a
    near cache holds both arrays.

    Examples
    --------
    >>> len(walk_between((400, 300), (2400, 8), (8, 3200), 8, 2, limits_in_force()).parts)
    2
    """
    begin, element, axes = merge_axes(shape, target_strides, source_strides, itemsize)
    columns = len(axes) - 1
    rows = min(range(len(axes)), key=lambda at: abs(axes[at].source_step) or np.inf)
    if rows == columns:  # then rows are an axis more
        axes, rows, columns = [_ALONE, *axes], 0, columns + 1
    whole = streamed and aligned and begin[0] % LINE_BYTES == 0
    whole = whole and blocks_are_lines(element, axes, rows, limits)
    axes, staging = cut_tiles(element, axes, rows, limits, whole=whole, held=held, threads=threads)
    in_blocks = axes[columns].target_step == axes[rows].source_step == element
    sides = BLOCK_SIDES.get(element, ())[-1:] or (0,)
    if in_blocks:
        sides = _block_sides(element, limits, abs(axes[columns].source_step), whole=whole)
    loops = _order_loops(axes, threads)
    kept_bytes = _kept_bytes(element, axes, staging, loops, threads) if streamed else 0
    if kept_bytes:  # the next tile is the one that continues these runs
        ended = [at for at in loops if axes[at].trips == 1]
        others = [at for at in loops if at not in (staging.run[1], *ended)]
        loops = [*others, staging.run[1], *ended]
    elsewhere = {columns, rows, *staging.outer, *staging.inner}
    fills = [at for at in range(len(axes)) if at not in elsewhere]
    listed = in_blocks and not (whole or staging.piece)
    listed = listed and _fills_follow(element, axes, staging, fills, sides[0])
    by_target = listed or staging.piece
    fills.sort(
        key=lambda at: staging.steps[at] if by_target else abs(axes[at].source_step), reverse=True
    )
    kinds = [_block_kind(element, side, listed, whole) if side else 0 for side in sides]
    layout = _Layout(
        *(element, begin, axes, columns, rows, sides, kinds),
        *(staging, loops, fills, streamed, whole, listed, kept_bytes),
    )
    trips = axes[loops[0]].trips
    bounds = [trips * part // threads for part in range(threads + 1)]
    parts = tuple((low, high) for low, high in pairwise(bounds) if low < high)
    table = layout.table()
    return Walk(table, table.ctypes.data, layout.workspace_bytes(table.itemsize), parts)


_ALONE = WalkAxis(1, 0, 0)
"""The axis of an array that has none."""


def _order_loops(axes: Sequence[WalkAxis], threads: int) -> list[int]:
    """Return the axes from the outermost loop on: the longest steps first."""
    loops = sorted(
        range(len(axes)),
        key=lambda at: axes[at].target_step + abs(axes[at].source_step),
        reverse=True,
    )
    if threads > 1:  # the outermost loop is shared: one with enough trips, if there is any
        loops.sort(key=lambda at: min(axes[at].trips, 4 * threads), reverse=True)
    return loops


def merge_axes(
    shape: tuple[int, ...], target: Strides, source: Strides, itemsize: int
) -> tuple[tuple[int, int], int, list[WalkAxis]]:
    """Return where a walk begins, the bytes that stay together, and the axes that do not.

    Steps in the target are made positive, axes that are one on both sides are merged, and the
    longest steps come first.

    Examples
    --------
    >>> begin, element, axes = merge_axes((2, 3, 4), (96, 32, 8), (32, 64, 8), 8)
    >>> begin, element, [(axis.extent, axis.target_step) for axis in axes]
    ((0, 0), 32, [(2, 96), (3, 32)])
    """
    target_begin = source_begin = 0
    axes: list[WalkAxis] = []
    for axis in map(WalkAxis, shape, target, source):
        if axis.extent == 1:
            continue
        if axis.target_step < 0:
            target_begin += (axis.extent - 1) * axis.target_step
            source_begin += (axis.extent - 1) * axis.source_step
            axis = WalkAxis(axis.extent, -axis.target_step, -axis.source_step)
        axes.append(axis)
    axes.sort(key=lambda axis: axis.target_step, reverse=True)
    found: list[WalkAxis] = []
    for axis in axes:
        length = (axis.extent * axis.target_step, axis.extent * axis.source_step)
        if found and (found[-1].target_step, found[-1].source_step) == length:
            axis = replace(axis, extent=found.pop().extent * axis.extent)
        found.append(axis)
    element = itemsize
    if found and found[-1].target_step == found[-1].source_step == itemsize:
        element *= found.pop().extent
    return (target_begin, source_begin), element, found or [_ALONE]


def _block_sides(element: int, limits: Limits, step: int, *, whole: bool) -> tuple[int, ...]:
    """Return sides of blocks: the largest that registers hold, or a line; a small one; and 1.

    Where columns are so far apart in the source that all lines of a block have 4 KiB aliasing, the
    first cache does not hold many: blocks are smaller.
    """
    *sides, least = BLOCK_SIDES.get(element, (0,))
    held = [side for side in sides if side * side * element <= limits.register_bytes]
    lines = int(limits.costs.transpose_block_lines)
    aliased = bool(held) and held[0] * min(step % PAGE_BYTES, -step % PAGE_BYTES) <= LINE_BYTES
    if aliased and not whole and lines in held[1:]:
        held = held[held.index(lines) :]
    first = [LINE_BYTES // element] if whole else held[:1]
    return tuple(dict.fromkeys((*first, *held[-1:], least)))


def _block_kind(element: int, side: int, listed: bool, whole: bool) -> int:
    """Return the number of blocks."""
    if listed:
        return LISTED_KINDS.index((element, side))
    return BLOCK_KINDS.index((element, side, whole and side * element == LINE_BYTES))


def _fills_follow(
    element: int, axes: Sequence[WalkAxis], staging: Staging, fills: Sequence[int], side: int
) -> bool:
    """Return whether staged columns of all fills follow each other, so that listing them pays.

    Blocks of each fill would leave columns over, which are then transposed one by one.
    """
    several = any(axes[at].tile > 1 for at in fills)
    if not several or not side or not staging.run[0] or axes[-1].tile % side == 0:
        return False
    step = element * axes[-1].tile
    for at in sorted(fills, key=lambda at: staging.steps[at]):
        if staging.steps[at] != step:
            return False
        step *= axes[at].tile
    return True


def _kept_bytes(
    element: int, axes: Sequence[WalkAxis], staging: Staging, loops: Sequence[int], threads: int
) -> int:
    """Return the bytes that the ends of a tile's runs take, 0 if no tile continues them."""
    step, along = staging.run
    length, trips = step * axes[along].tile, axes[along].trips
    shared = threads > 1 and loops[0] == along and any(axes[at].trips > 1 for at in loops[1:])
    if shared or trips == 1 or length < LINE_BYTES:
        return 0
    return LINE_BYTES * (prod(axis.tile for axis in axes) * element // length)
