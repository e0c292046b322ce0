"""Transposes as values: the tiles and loops of the walk that copies one strided array to another.

One walk serves every pair of strides: axes that stay together are merged, tiles are boxes that are
long in both arrays (`tiles`), and loops go from the longest steps to the shortest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tilesolve.constants import policy
from tilesolve.kernels.ir.transpose_blocks import BLOCK_SIDES
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES
from tilesolve.transposes.limits import Limits
from tilesolve.transposes.tiles import Staging, WalkAxis, blocks_are_lines, cut_tiles

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransposeSolution:
    """How arrays of given strides are copied.

    Parameters
    ----------
    element
        Bytes that stay together.
    begin
        Bytes from the first element of each array to where the walk begins.
    axes
        Of both arrays, with their tiles: the longest steps in the target first.
    columns, rows
        The axes with the shortest steps in the target and in the source.
    sides
        Of blocks that are transposed in registers, the largest first; 0 for none.
    staging
        How a tile's rows go to the target.
    loops
        The axes over whose tiles loops go, outermost first.
    fills
        The axes of a staged tile that are neither rows, columns nor walked outside of them.
    streamed
        Whether non-temporal stores write whole lines of the target.
    whole
        Whether blocks are whole lines of it.
    listed
        Whether staged columns of all fills are listed.
    kept_bytes
        Bytes that the ends of a tile's runs take, which the next tile continues.
    threads
        How many share the outermost loop.
    """

    element: int
    begin: tuple[int, int]
    axes: tuple[WalkAxis, ...]
    columns: int
    rows: int
    sides: tuple[int, ...]
    staging: Staging
    loops: tuple[int, ...]
    fills: tuple[int, ...]
    streamed: bool
    whole: bool
    listed: bool
    kept_bytes: int
    threads: int

    def __str__(self) -> str:
        tiles = " x ".join(str(axis.tile) for axis in self.axes)
        ways = ["staged" if self.staging.nbytes else "", "past the caches" if self.streamed else ""]
        return ", ".join([f"tiles {tiles} of {self.element} bytes", *filter(None, ways)])


def solve_transpose(
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
) -> TransposeSolution:
    """Return how arrays that are not empty are copied, of their shape and both strides.

    Strides and `itemsize` are in bytes. `streamed` says whether non-temporal stores write whole
    lines of the target, `aligned` whether its first element begins a line, and `held` whether a
    near cache holds both arrays; see `choose_stores`.

    Examples
    --------
    >>> from tilesolve.machine.model import Machine
    >>> limits = Limits.of(Machine.load("i7-6700k"))
    >>> found = solve_transpose((4000, 3000), (24000, 8), (8, 32000), 8, 1, limits)
    >>> [(axis.extent, axis.tile) for axis in found.axes], found.loops
    ([(4000, 512), (3000, 256)], (1, 0))
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
    listed = in_blocks and not (whole or bool(staging.piece))
    listed = listed and _fills_follow(element, axes, staging, fills, sides[0])
    by_target = listed or staging.piece
    fills.sort(
        key=lambda at: staging.steps[at] if by_target else abs(axes[at].source_step), reverse=True
    )
    return TransposeSolution(
        *(element, begin, tuple(axes), columns, rows, sides, staging, tuple(loops), tuple(fills)),
        *(streamed, whole, listed, kept_bytes, threads),
    )


def choose_stores(nbytes: int, limits: Limits) -> tuple[bool, bool]:
    """Return whether a target of so many bytes is streamed, and whether a near cache holds it.

    Where the last cache cannot hold source and target, the target is written by non-temporal
    stores: otherwise its lines would be read before they are written, and evict the source.

    Examples
    --------
    >>> choose_stores(4096, Limits(512, False, 16384, 65536, 65536, 4))
    (False, True)
    """
    return 2 * nbytes > limits.last_cache_bytes, 2 * nbytes <= limits.near_bytes


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
    lines = policy.TRANSPOSE_BLOCK_LINES
    aliased = bool(held) and held[0] * min(step % PAGE_BYTES, -step % PAGE_BYTES) <= LINE_BYTES
    if aliased and not whole and lines in held[1:]:
        held = held[held.index(lines) :]
    first = [LINE_BYTES // element] if whole else held[:1]
    return tuple(dict.fromkeys((*first, *held[-1:], least)))


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
