"""How moves are cut: tiles that are long in both arrays, and how a few of their rows lie meanwhile.

A tile's rows go to the target by way of a buffer, in which they lie as there, or at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from tilesolve.kernels.codegen.transpose_blocks import BLOCK_SIDES
from tilesolve.kernels.runtime import transpose_walk
from tilesolve.kernels.tuning import MIN_NON_TEMPORAL_BYTES
from tilesolve.model.pages import crowded
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.transposes.limits import Limits

SIDE = 2048
"""Bytes of a run, more or less; half as many where the source of a run would crowd a cache, or
where there is no buffer. A quarter at least where elements are so small that lines of the source
are many rows, all of which have to stay in the nearest cache."""

ROOM = 1 << 20
"""Bytes of a tile at most, more or less. No cache has to hold it: its source is read once."""

NEAREST = 5 << 12
"""Bytes of the buffer, more or less: what is left of the nearest cache is for the source. More was
slower (measured on a Zen 4: 48 KiB by 2 to 6 %)."""

MOST = 1 << 15
"""Bytes of a run that covers rows, at most: the longer, the earlier is what follows asked for."""

ROWS = 1 << 14
"""Bytes of the rows of which a line of the source holds parts, about: they are the least that the
buffer holds."""

WORTH = 1.05
"""How much less work makes a larger buffer worth it."""

NEAR = 512
"""Bytes of rows that are moved at once where they go to the target without the buffer, about: the
more there are, the earlier is what follows asked for, and the larger a cache has to hold it."""

EVEN = 16
"""What parts of columns and rows are a multiple of, so that lines and blocks are whole."""

ALL = 1 << 40
"""No bound of rows."""

CROWD = 4
"""Lines that the source of a run of whole lines may have on a set of a cache, for each of its ways
(measured on a Zen 4, 8 ways, all axes of 16×16×16×16×16×16 numbers of 4 and of 8 bytes reversed: 16
lines 69 and 115 % of a copy, 32 lines 86 and 109, 64 lines 38 and 74)."""

WHOLE = 128
"""Bytes of an element from which on it is moved without the buffer; twice as many if it ends amid
what can be written past the caches."""


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
        Bytes of all, with a line before each run, and one behind a run that is alone.
    joined
        Whether rows follow each other as they do in the target.
    piece
        Bytes of a run that columns and rows are, if it covers further axes, and 0 otherwise: they
        go to the target as they come, see `transpose_walk.SOON`.

    Examples
    --------
    >>> axes, limits = [Axis(4, 80, 8, 4), Axis(2, 8, 32, 2)], Limits(512, False, 0, 0, 65536, 4)
    >>> found = Buffer.of(axes, 8, rows=0, side=64, limits=limits)
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
    joined: bool = False
    piece: int = 0

    @classmethod
    def of(cls, axes: Sequence[Axis], element: int, rows: int, side: int, limits: Limits) -> Buffer:
        """Let axes of a run lie as in the target, and rows behind each other.

        Further axes may go on where a run ends. Half of `side` is enough for it, so that the buffer
        stays small; but for a run that covers rows, of which the buffer holds no other.
        """
        steps, run, others = _run(axes, element, rows, side)
        length = run[0] * axes[run[1]].tile
        if rows not in others:
            fills = [at for at in range(len(axes) - 1) if at not in (rows, *others)]
            piece = element * axes[-1].tile * axes[rows].tile
            if piece != min((steps[at] for at in fills), default=0):  # fills lie amid them, or none
                piece = 0
            size = (min(length, piece + transpose_walk.SOON) if piece else length) + 2 * LINE_BYTES
            return cls(tuple(steps), run, tuple(others), (), ALL, True, size, piece=piece)
        inner = _inner(axes, rows, others)
        # Rows that follow each other in the target are written as one run, without parted lines.
        joined = len(inner) == 1 and axes[rows].far == length and length % LINE_BYTES != 0
        steps[rows] = length if joined else LINE_BYTES * (length // LINE_BYTES + 2 | 1)
        covered = [at for at in range(len(axes)) if at not in others]
        crowded = _crowded(axes, covered, limits)
        total = prod(axes[at].tile for at in inner)
        group = _group(element, total, steps[rows], limits, crowded=crowded)
        outer = tuple(at for at in others if at not in inner)
        size = group * steps[rows] + (2 if joined else 1) * LINE_BYTES
        return cls(tuple(steps), run, outer, tuple(inner), group, not crowded, size, joined)

    @classmethod
    def none(cls, axes: Sequence[Axis], rows: int) -> Buffer:
        """Return where a tile lies that is moved at once."""
        others = [at for at in range(len(axes) - 1) if at != rows]
        others.sort(key=lambda at: abs(axes[at].near), reverse=True)
        return cls(tuple(axis.far for axis in axes), (0, 0), tuple(others), (), ALL, False, 0)

    @classmethod
    def skipped(cls, axes: Sequence[Axis], element: int, rows: int, limits: Limits) -> Buffer:
        """Return where a tile lies whose blocks are whole lines of the target.

        They go there past the caches: a few rows of what a run would cover, then the next ones.
        """
        run = _of_lines(axes, element, rows)
        others = [at for at in range(len(axes)) if at not in (*run, rows)]
        others.sort(key=lambda at: abs(axes[at].near), reverse=True)
        high = axes[rows].tile
        group = -(-high // max(1, round(high * element / NEAR)))
        steps = tuple(axis.far for axis in axes)
        ahead = not _crowded(axes, run, limits)
        return cls(steps, (0, 0), tuple(others), (rows,), group, ahead, 0)


def in_lines(element: int, axes: Sequence[Axis], rows: int, *, at_once: bool) -> bool:
    """Return whether blocks of a target that begins with a line are whole lines of it.

    They are not worth it where many of the last rows would be moved twice. Nor are they where lines
    of one block are at one place in pages, unless a line is written `at_once`: CPUs whose vectors
    are parts of one let it wait while another one is under way there (Zen 3); on one whose vectors
    are lines, what all axes of 64×64×64×48 reversed take goes from 69 to 116 % of a copy's speed,
    of 16×16×16×16×16×16 from 71 to 98 % (Zen 4, numbers of 8 bytes).

    Examples
    --------
    >>> axes = [[Axis(40, 8 * wide, 8), Axis(wide, 8, 320)] for wide in (48, 50, 512)]
    >>> [in_lines(8, both, 0, at_once=False) for both in axes]
    [True, False, False]
    """
    *others, last = axes
    side = LINE_BYTES // element
    if side not in BLOCK_SIDES.get(element, ())[:-1] or not last.far == axes[rows].near == element:
        return False
    if last.extent % side or any(axis.far % LINE_BYTES for axis in others):
        return False
    high, far = axes[rows].extent, axes[rows].far
    if 4 * high < 3 * (high + -high % side):
        return False
    block = {"rows": side, "columns": side}
    return at_once or not crowded({"rows": far, "columns": element}, block, LINE_BYTES)


def cut(
    element: int,
    axes: Sequence[Axis],
    rows: int,
    limits: Limits,
    *,
    whole: bool,
    held: bool = False,
    threads: int = 1,
) -> tuple[list[Axis], Buffer]:
    """Return the axes with the extents of tiles, and how a tile lies before it is in the target.

    Parameters
    ----------
    element
        Bytes that stay together.
    axes
        The longest steps in the target first.
    rows
        The axis with the shortest step in the source.
    limits
        What the machine holds.
    whole
        Whether blocks go to the target line by line, see `in_lines`.
    held
        Whether a cache that is near holds both arrays: where their lines are neither short nor at
        one place in pages, they need no buffer.
    threads
        How many share the work: as many tiles at least, more or less.

    Examples
    --------
    Small arrays are moved at once, without a buffer:

    >>> both, limits = [Axis(40, 400, 8), Axis(50, 8, 320)], Limits(512, False, 0, 0, 65536, 4)
    >>> axes, buffer = cut(8, both, 0, limits, whole=False)
    >>> [axis.tile for axis in axes], buffer.size
    ([40, 50], 0)
    """
    room = min(ROOM, element * prod(axis.extent for axis in axes) // threads)
    if whole:  # what is not whole lines of columns would end amid a block
        side = max(LINE_BYTES, SIDE // 2)
        tiled = _tiled(element, axes, side, room, whole=True)
        while side > LINE_BYTES and _crowd(tiled, _of_lines(tiled, element, rows), limits) > CROWD:
            side //= 2
            tiled = _tiled(element, axes, side, room, whole=True)
        return tiled, Buffer.skipped(tiled, element, rows, limits)
    least = WHOLE if element % MIN_NON_TEMPORAL_BYTES == 0 else 2 * WHOLE
    if axes[-1].far == element < least and not (held and _spread(element, axes, rows)):
        longest = min(SIDE, max(SIDE // 4, ROWS // -(-LINE_BYTES // element)))
        for side in (longest, longest // 2):
            tiled = _tiled(element, axes, side, room)
            if all(axis.trips == 1 for axis in tiled):
                return tiled, Buffer.none(tiled, rows)
            buffer = Buffer.of(tiled, element, rows, side, limits)
            if buffer.ahead:
                break
        return tiled, buffer
    tiled = _tiled(element, axes, SIDE // 2, room)
    return tiled, Buffer.none(tiled, rows)


def _spread(element: int, axes: Sequence[Axis], rows: int) -> bool:
    """Return whether the target has whole lines along columns, in different places of pages."""
    steps = {"rows": axes[rows].far, "columns": element}
    block = {"rows": min(EVEN, axes[rows].extent), "columns": max(1, LINE_BYTES // element)}
    return axes[-1].extent * element >= 2 * LINE_BYTES and not crowded(steps, block, LINE_BYTES)


def _tiled(
    element: int, axes: Sequence[Axis], side: int, room: int, *, whole: bool = False
) -> list[Axis]:
    """Return the axes with the extents of tiles: all of some, and a part of one on either side.

    Those on the target's side have `side` bytes, about; not more, if blocks are whole lines.
    """
    tile, length = [1] * len(axes), element
    for at in reversed(range(len(axes))):
        if length >= side:
            break
        even = length == element
        tile[at] = _share(axes[at].extent, side // length, even=even, within=whole)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    length = element
    for at in sorted(range(len(axes)), key=lambda at: abs(axes[at].near)):
        if tile[at] == 1 or length == element:
            most = room // (element * prod(tile) // tile[at])
            share = _share(axes[at].extent, most, even=length == element)
            tile[at] = max(tile[at], share)
        length *= tile[at]
        if tile[at] < axes[at].extent:
            break
    return [replace(axis, tile=share) for axis, share in zip(axes, tile, strict=True)]


def _run(
    axes: Sequence[Axis], element: int, rows: int, side: int
) -> tuple[list[int], tuple[int, int], list[int]]:
    """Return the steps in the buffer of the axes that a run covers, `Buffer.run`, and the others.

    Those with the longest steps in the source come first.
    """
    steps, step, run = [0] * len(axes), element, (0, 0)
    others = list(range(len(axes)))
    while others and axes[others[-1]].far == step:
        more = rows not in others and step * axes[others[-1]].tile <= MOST
        # The next tile goes on where this one's runs end: their ends are kept for it.
        going_on = axes[others[-1]].tile == 1 < axes[others[-1]].trips
        if run[0] and step >= side // 2 and not more and not going_on:
            break
        at = others.pop()
        run = (step, at)
        steps[at], step = step, step * axes[at].tile
        if axes[at].trips > 1:
            break
    others.sort(key=lambda at: abs(axes[at].near), reverse=True)
    return steps, run, others


def _inner(axes: Sequence[Axis], rows: int, others: Sequence[int]) -> list[int]:
    """Return rows, behind the axes that go on in the source where they end."""
    inner = [rows]
    while True:
        last = axes[inner[0]]
        end = last.near * last.extent
        on = [at for at in others if at not in inner and axes[at].near == end]
        if last.tile < last.extent or not on:
            return inner
        inner.insert(0, on[0])


def _group(element: int, total: int, step: int, limits: Limits, *, crowded: bool) -> int:
    """Return how many of a tile's rows the buffer holds, which have so many bytes between them."""
    line = -(-LINE_BYTES // element)
    if crowded:  # what is asked for is what follows, if a cache holds that of a block at all
        held = line <= limits.ways
        group = max(line, transpose_walk.CLOSE // element) if held else transpose_walk.TOGETHER
        return min(transpose_walk.TOGETHER, group)
    group = min(transpose_walk.TOGETHER, max(line, NEAREST // step // line * line))
    if total % line == 0 or total <= group:
        return min(group, total)
    # Lines are not whole in any case: up to twice as many, if blocks leave fewer rows over then.
    work = {rows: _work(element, total, rows) for rows in range(group, min(2 * group, total) + 1)}
    least = WORTH * min(work.values())
    return min(
        transpose_walk.TOGETHER, next(rows for rows, taken in work.items() if taken <= least)
    )


def _work(element: int, total: int, group: int) -> int:
    """Return what it takes to move rows in groups: 1 for each that is in a block.

    It is 2 in a smaller block, and 4 for one that is moved alone (measured on a Zen 4).
    """
    side, parts = BLOCK_SIDES.get(element, (1,))[0], 2 if element >= MIN_NON_TEMPORAL_BYTES else 4

    def of(rows: int) -> int:
        left = rows % side
        if rows >= side <= parts * left:  # the last block overlaps another one
            return rows - left + side
        return rows - left + 2 * (left - left % 4) + 4 * (left % 4)

    return total // group * of(group) + of(total % group)


def _of_lines(axes: Sequence[Axis], element: int, rows: int) -> list[int]:
    """Return the axes that a run of whole lines covers: columns, and those that go on behind them.

    Nothing is gained by longer runs, as each line is written at once.
    """
    others, run = [at for at in range(len(axes) - 1) if at != rows], [len(axes) - 1]
    length = element * axes[-1].tile
    while others and axes[others[-1]].far == length < SIDE // 4:
        run.append(others.pop())
        length *= axes[run[-1]].tile
    return run


def _crowded(axes: Sequence[Axis], run: Sequence[int], limits: Limits) -> bool:
    """Return whether the source of a run has more lines on a set of a cache than it has ways."""
    return _crowd(axes, run, limits) > 1


def _crowd(axes: Sequence[Axis], run: Sequence[int], limits: Limits) -> float:
    """Return how many lines the source of a run has on a set of a cache, for each of its ways."""
    lines = np.zeros(1, np.int64)
    for at in run:
        lines = np.add.outer(lines, np.arange(axes[at].tile) * axes[at].near).ravel()
    return float(np.bincount(lines % limits.way // LINE_BYTES).max()) / limits.ways


def _share(extent: int, most: int, *, even: bool, within: bool = False) -> int:
    """Return near-equal parts of an extent, of about so many, or within that."""
    share = -(-extent // max(1, (ceil if within else round)(extent / max(1, most))))
    return min(extent, -(-share // EVEN) * EVEN) if even else share
