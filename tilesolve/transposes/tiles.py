"""How transposes are cut: tiles that are long in both arrays, and how rows of a tile are staged.

A tile's rows go to the target by way of a staging buffer, in which they lie as there, or at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from tilesolve.constants import policy
from tilesolve.constants.tuning import (
    MAX_TRANSPOSED_ROWS,
    MIN_NON_TEMPORAL_BYTES,
    TRANSPOSE_FLUSH_BYTES,
    TRANSPOSE_PREFETCH_BYTES,
)
from tilesolve.kernels.ir.transpose_blocks import BLOCK_SIDES
from tilesolve.model.pages import has_aliased_lines
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.transposes.limits import Limits

LONGEST_BLOCK = max(side for sides in BLOCK_SIDES.values() for side in sides)
"""What parts of columns and rows are a multiple of, so that lines and blocks are whole."""


@dataclass(frozen=True, slots=True)
class WalkAxis:
    """An axis of both arrays.

    Steps are the bytes between neighbours in each array; `tile` is the elements of a tile.

    Examples
    --------
    >>> WalkAxis(extent=5, target_step=8, source_step=80, tile=2).trips
    3
    """

    extent: int
    target_step: int
    source_step: int
    tile: int = 1

    @property
    def trips(self) -> int:
        """How many tiles there are."""
        return -(-self.extent // self.tile)


@dataclass(frozen=True, slots=True)
class Staging:
    """How a few rows of a tile lie in the staging buffer before they go to the target.

    Parameters
    ----------
    steps
        Bytes between neighbours along each axis; 0 for one that is never within the buffer.
    run
        Bytes of a run for each element of its outermost axis, and that axis; 0 if a tile is not
        staged.
    outer
        The axes that neither runs nor rows cover.
    inner
        Rows, if runs do not cover them, behind the axes that continue them in the source.
    group
        Rows that are transposed at once.
    prefetches_rows
        Whether the source of the rows that follow is prefetched, and not just of what is close.
    nbytes
        Bytes of all, with a line before each run, and one behind a run that is alone.
    joined
        Whether rows follow each other as they do in the target.
    piece
        Bytes of a run that columns and rows are, if it covers further axes, and 0 otherwise: they
        go to the target as they come, see `tuning.TRANSPOSE_FLUSH_BYTES`.

    Examples
    --------
    >>> axes = [WalkAxis(4, 80, 8, 4), WalkAxis(2, 8, 32, 2)]
    >>> found = Staging.of(axes, 8, rows=0, run_bytes=64, limits=Limits(512, False, 0, 0, 65536, 4))
    >>> found.steps, found.inner, found.group
    ((192, 8), (0,), 4)
    """

    steps: tuple[int, ...]
    run: tuple[int, int]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    group: int
    prefetches_rows: bool
    nbytes: int
    joined: bool = False
    piece: int = 0

    @classmethod
    def of(
        cls, axes: Sequence[WalkAxis], element: int, rows: int, run_bytes: int, limits: Limits
    ) -> Staging:
        """Let axes of a run lie as in the target, and rows behind each other.

        Further axes may continue a run. Half of `run_bytes` is enough for it, so that the buffer
        stays small; but for a run that covers rows, of which the buffer holds no other.
        """
        steps, run, others = _run(axes, element, rows, run_bytes, limits)
        length = run[0] * axes[run[1]].tile
        if rows not in others:
            fills = [at for at in range(len(axes) - 1) if at not in (rows, *others)]
            piece = element * axes[-1].tile * axes[rows].tile
            if piece != min((steps[at] for at in fills), default=0):  # fills lie amid them, or none
                piece = 0
            longest = min(length, piece + TRANSPOSE_FLUSH_BYTES) if piece else length
            nbytes = longest + 2 * LINE_BYTES
            group = axes[rows].tile
            return cls(tuple(steps), run, tuple(others), (), group, True, nbytes, piece=piece)
        inner = _inner(axes, rows, others)
        # Rows that follow each other in the target are written as one run, without parted lines.
        joined = len(inner) == 1 and axes[rows].target_step == length and length % LINE_BYTES != 0
        steps[rows] = length if joined else LINE_BYTES * (length // LINE_BYTES + 2 | 1)
        covered = [at for at in range(len(axes)) if at not in others]
        conflicts = _lines_per_way(axes, covered, limits) > 1
        total = prod(axes[at].tile for at in inner)
        group = _rows_at_once(element, total, steps[rows], limits, conflicts=conflicts)
        outer = tuple(at for at in others if at not in inner)
        nbytes = group * steps[rows] + (2 if joined else 1) * LINE_BYTES
        return cls(tuple(steps), run, outer, tuple(inner), group, not conflicts, nbytes, joined)

    @classmethod
    def none(cls, axes: Sequence[WalkAxis], rows: int) -> Staging:
        """Return the staging of a tile that goes to the target at once."""
        others = [at for at in range(len(axes) - 1) if at != rows]
        others.sort(key=lambda at: abs(axes[at].source_step), reverse=True)
        steps = tuple(axis.target_step for axis in axes)
        return cls(steps, (0, 0), tuple(others), (), axes[rows].tile, False, 0)

    @classmethod
    def of_whole_lines(
        cls, axes: Sequence[WalkAxis], element: int, rows: int, limits: Limits
    ) -> Staging:
        """Return the staging of a tile whose blocks are whole lines of the target.

        They go there by non-temporal stores: a few rows of a run's length, then the next.
        """
        run = _line_axes(axes, element, rows, limits)
        others = [at for at in range(len(axes)) if at not in (*run, rows)]
        others.sort(key=lambda at: abs(axes[at].source_step), reverse=True)
        high = axes[rows].tile
        group = -(-high // max(1, round(high * element / policy.TRANSPOSE_GROUP_BYTES)))
        steps = tuple(axis.target_step for axis in axes)
        prefetches_rows = _lines_per_way(axes, run, limits) <= 1
        return cls(steps, (0, 0), tuple(others), (rows,), group, prefetches_rows, 0)


def blocks_are_lines(element: int, axes: Sequence[WalkAxis], rows: int, limits: Limits) -> bool:
    """Return whether blocks of a target that begins with a line should be whole lines of it.

    They are not worth it where many of the last rows would be transposed twice. Nor are they where
    lines of one block have 4 KiB aliasing, unless one instruction stores a line: a line that is
    stored in parts waits while an aliased one is under way.

    Examples
    --------
    >>> limits = Limits(512, False, 0, 0, 65536, 4)
    >>> axes = [[WalkAxis(40, 8 * wide, 8), WalkAxis(wide, 8, 320)] for wide in (48, 50, 512)]
    >>> [blocks_are_lines(8, both, 0, limits) for both in axes]
    [True, False, False]
    """
    *others, last = axes
    side = LINE_BYTES // element
    if side not in BLOCK_SIDES.get(element, ())[:-1]:
        return False
    if not last.target_step == axes[rows].source_step == element:
        return False
    if last.extent % side or any(axis.target_step % LINE_BYTES for axis in others):
        return False
    high = axes[rows].extent
    if 4 * high < 3 * (high + -high % side):
        return False
    steps = {"rows": axes[rows].target_step, "columns": element}
    block = {"rows": side, "columns": side}
    return limits.stores_whole_lines or not has_aliased_lines(steps, block, LINE_BYTES)


def cut_tiles(
    element: int,
    axes: Sequence[WalkAxis],
    rows: int,
    limits: Limits,
    *,
    whole: bool,
    held: bool = False,
    threads: int = 1,
) -> tuple[list[WalkAxis], Staging]:
    """Return the axes with the extents of tiles, and how a tile is staged.

    Parameters
    ----------
    element
        Bytes that stay together.
    axes
        The longest steps in the target first.
    rows
        The axis with the shortest step in the source.
    limits
        The limits of the machine.
    whole
        Whether blocks go to the target line by line, see `blocks_are_lines`.
    held
        Whether a near cache holds both arrays: where their lines are neither short nor aliased,
        they need no staging buffer.
    threads
        How many share the work: as many tiles at least, more or less.

    Examples
    --------
    Small arrays are transposed at once, without a staging buffer:

    >>> both = [WalkAxis(40, 400, 8), WalkAxis(50, 8, 320)]
    >>> axes, staging = cut_tiles(8, both, 0, Limits(512, False, 0, 0, 65536, 4), whole=False)
    >>> [axis.tile for axis in axes], staging.nbytes
    ([40, 50], 0)
    """
    run_bytes = policy.TRANSPOSE_RUN_BYTES
    total = element * prod(axis.extent for axis in axes)
    tile_bytes = min(policy.TRANSPOSE_TILE_BYTES, total // threads)
    if whole:  # what is not whole lines of columns would end amid a block
        return _cut_whole_lines(element, axes, rows, limits, tile_bytes)
    least = policy.TRANSPOSE_ELEMENT_BYTES
    if element % MIN_NON_TEMPORAL_BYTES:  # it ends amid what a non-temporal store writes
        least *= 2
    if axes[-1].target_step == element < least and not (held and _is_spread(element, axes, rows)):
        rows_per_line = -(-LINE_BYTES // element)
        longest = policy.TRANSPOSE_SOURCE_BYTES // rows_per_line
        longest = min(run_bytes, max(run_bytes // 4, longest))
        for length in (longest, longest // 2):  # the shorter one where the source's lines conflict
            tiled = _tiled(element, axes, length, tile_bytes)
            if all(axis.trips == 1 for axis in tiled):
                return tiled, Staging.none(tiled, rows)
            staging = Staging.of(tiled, element, rows, length, limits)
            if staging.prefetches_rows:
                break
        return tiled, staging
    tiled = _tiled(element, axes, run_bytes // 2, tile_bytes)
    return tiled, Staging.none(tiled, rows)


def _cut_whole_lines(
    element: int, axes: Sequence[WalkAxis], rows: int, limits: Limits, tile_bytes: int
) -> tuple[list[WalkAxis], Staging]:
    """Return tiles of whole lines, with runs so short that a cache holds their source."""
    length = max(LINE_BYTES, policy.TRANSPOSE_RUN_BYTES // 2)
    while True:
        tiled = _tiled(element, axes, length, tile_bytes, whole=True)
        conflicts = _lines_per_way(tiled, _line_axes(tiled, element, rows, limits), limits)
        if length <= LINE_BYTES or conflicts <= policy.TRANSPOSE_ALIASED_LINES:
            return tiled, Staging.of_whole_lines(tiled, element, rows, limits)
        length //= 2


def _is_spread(element: int, axes: Sequence[WalkAxis], rows: int) -> bool:
    """Return whether the target has whole lines along columns, without 4 KiB aliasing."""
    steps = {"rows": axes[rows].target_step, "columns": element}
    block = {
        "rows": min(LONGEST_BLOCK, axes[rows].extent),
        "columns": max(1, LINE_BYTES // element),
    }
    return axes[-1].extent * element >= 2 * LINE_BYTES and not has_aliased_lines(
        steps, block, LINE_BYTES
    )


def _tiled(
    element: int,
    axes: Sequence[WalkAxis],
    run_bytes: int,
    tile_bytes: int,
    *,
    whole: bool = False,
) -> list[WalkAxis]:
    """Return the axes with the extents of tiles: all of some, and a part of one on either side.

    Those on the target's side have `run_bytes`, about; not more, if blocks are whole lines.
    """
    tile, length = [1] * len(axes), element
    for at in reversed(range(len(axes))):
        if length >= run_bytes:
            break
        even = length == element
        tile[at] = _near_equal_part(axes[at].extent, run_bytes // length, even=even, within=whole)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    length = element
    for at in sorted(range(len(axes)), key=lambda at: abs(axes[at].source_step)):
        if tile[at] == 1 or length == element:
            most = tile_bytes // (element * prod(tile) // tile[at])
            part = _near_equal_part(axes[at].extent, most, even=length == element)
            tile[at] = max(tile[at], part)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    return [replace(axis, tile=part) for axis, part in zip(axes, tile, strict=True)]


def _run(
    axes: Sequence[WalkAxis], element: int, rows: int, run_bytes: int, limits: Limits
) -> tuple[list[int], tuple[int, int], list[int]]:
    """Return the steps in the buffer of the axes that a run covers, `Staging.run`, and the others.

    Those with the longest steps in the source come first.
    """
    longest = policy.TRANSPOSE_LONG_RUN_BYTES
    steps, step, run = [0] * len(axes), element, (0, 0)
    others = list(range(len(axes)))
    while others and axes[others[-1]].target_step == step:
        more = rows not in others and step * axes[others[-1]].tile <= longest
        # The next tile continues this one's runs: their ends are kept for it.
        continues = axes[others[-1]].tile == 1 < axes[others[-1]].trips
        if run[0] and step >= run_bytes // 2 and not more and not continues:
            break
        at = others.pop()
        run = (step, at)
        steps[at], step = step, step * axes[at].tile
        if axes[at].trips > 1:
            break
    others.sort(key=lambda at: abs(axes[at].source_step), reverse=True)
    return steps, run, others


def _inner(axes: Sequence[WalkAxis], rows: int, others: Sequence[int]) -> list[int]:
    """Return rows, behind the axes that continue them in the source."""
    inner = [rows]
    while True:
        last = axes[inner[0]]
        end = last.source_step * last.extent
        on = [at for at in others if at not in inner and axes[at].source_step == end]
        if last.tile < last.extent or not on:
            return inner
        inner.insert(0, on[0])


def _rows_at_once(element: int, total: int, step: int, limits: Limits, *, conflicts: bool) -> int:
    """Return how many of a tile's rows, which are `step` bytes apart, the staging buffer holds."""
    line = -(-LINE_BYTES // element)
    if conflicts:  # the source of what follows is prefetched, if a cache holds that of a block
        if line > limits.ways:
            return MAX_TRANSPOSED_ROWS
        return min(MAX_TRANSPOSED_ROWS, max(line, TRANSPOSE_PREFETCH_BYTES // element))
    held = policy.TRANSPOSE_STAGING_BYTES // step // line * line
    group = min(MAX_TRANSPOSED_ROWS, max(line, held))
    if total % line == 0 or total <= group:
        return min(group, total)
    # Lines are not whole in any case: up to twice as many, if blocks leave fewer rows over then.
    work = {
        rows: _row_work(element, total, rows, limits)
        for rows in range(group, min(2 * group, total) + 1)
    }
    least = policy.TRANSPOSE_GROUP_GAIN * min(work.values())
    return min(MAX_TRANSPOSED_ROWS, next(rows for rows, taken in work.items() if taken <= least))


def _row_work(element: int, total: int, group: int, limits: Limits) -> float:
    """Return the work of all rows in groups: 1 for each that is in one of the largest blocks."""
    sides = BLOCK_SIDES.get(element, (1,))
    side, parts = sides[0], 2 if element >= MIN_NON_TEMPORAL_BYTES else 4
    small = limits.costs.transpose_small_block_slowdown
    single = limits.costs.transpose_row_slowdown

    def of(rows: int) -> float:
        left = rows % side
        if rows >= side <= parts * left:  # the last block overlaps another one
            return rows - left + side
        return rows - left + small * (left - left % 4) + single * (left % 4)

    return total // group * of(group) + of(total % group)


def _line_axes(axes: Sequence[WalkAxis], element: int, rows: int, limits: Limits) -> list[int]:
    """Return the axes that a run of whole lines covers: columns, and those that continue them.

    Longer runs gain nothing, as each line is stored at once.
    """
    longest = policy.TRANSPOSE_RUN_BYTES // 4
    others, run = [at for at in range(len(axes) - 1) if at != rows], [len(axes) - 1]
    length = element * axes[-1].tile
    while others and axes[others[-1]].target_step == length < longest:
        run.append(others.pop())
        length *= axes[run[-1]].tile
    return run


def _lines_per_way(axes: Sequence[WalkAxis], run: Sequence[int], limits: Limits) -> float:
    """Return how many lines the source of a run has on a set of a cache, for each of its ways.

    More than one conflict: they evict each other.
    """
    lines = np.zeros(1, np.int64)
    for at in run:
        lines = np.add.outer(lines, np.arange(axes[at].tile) * axes[at].source_step).ravel()
    return float(np.bincount(lines % limits.way_bytes // LINE_BYTES).max()) / limits.ways


def _near_equal_part(extent: int, most: int, *, even: bool, within: bool = False) -> int:
    """Return near-equal parts of an extent, of about so many, or within that."""
    part = -(-extent // max(1, (ceil if within else round)(extent / max(1, most))))
    return min(extent, -(-part // LONGEST_BLOCK) * LONGEST_BLOCK) if even else part
