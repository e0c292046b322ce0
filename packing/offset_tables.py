"""Tables: axes as flat arrays of integers, with all that packing and the microkernels read.

A table begins with the positions of its parts (`table_fields`); position 0 stands for a part that
an axis does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tilesolve.packing import table_fields
from tilesolve.packing.distinct_rows import number_rows
from tilesolve.packing.offsets import Integers, RoleAxis
from tilesolve.packing.sizes import ALIGNMENT_BYTES, VECTOR_BYTES

Truths = NDArray[np.bool_]


class TileLayout(IntEnum):
    """How a register tile lies in the output; a larger number allows wider stores."""

    SCATTERED = 0
    """Some group is not contiguous."""
    PART = 1
    """Each group is contiguous, but the last one not full."""
    WHOLE = 2
    """Each group is full and contiguous."""


@dataclass(frozen=True, slots=True)
class TransposedBlocks:
    """Blocks of a segment that are contiguous in a tensor, and transposed while they are packed.

    Parameters
    ----------
    level
        The level whose segments are packed.
    lanes
        Length of a block.
    element
        Bytes from one element to the next.
    whole_lines
        Whether neighbours along all other letters are whole lines apart.
    """

    level: int
    lanes: int
    element: int
    whole_lines: bool

    @property
    def few(self) -> int:
        """Length of a block of few entries."""
        return few_entries(self.lanes, self.element)


def few_entries(lanes: int, element: int) -> int:
    """Return the length of a block of few entries, for what fills no block of lanes: 16 bytes.

    Examples
    --------
    >>> few_entries(16, 4), few_entries(8, 8), few_entries(4, 16)
    (4, 2, 1)
    """
    return max(1, min(lanes, VECTOR_BYTES // element))


def offset_table(
    axis: RoleAxis,
    *,
    operand: int = 0,
    group: int = 0,
    element: int = 0,
    written: int = 0,
    transposed: Sequence[TransposedBlocks | None] = (None, None),
) -> Integers:
    """Return an axis as a table.

    Parameters
    ----------
    axis
        The axis.
    operand
        The tensor whose micro-panels the axis' groups fill; with `group` 0 it has no groups.
    group
        Indices of one group.
    element, written
        Bytes of an element, and of one as calls write it, if these are others.
    transposed
        For the first and the second operand how blocks of it are transposed, None if none are:
        blocks of indices where the axis is summed over, else of groups.

    Examples
    --------
    >>> from tilesolve.packing.offsets import RoleTile, build_axis
    >>> tiles = [RoleTile("m", (8,)), RoleTile("m", (20,))]
    >>> axis = build_axis(tiles, [{"m": 8}, {"m": 80}, {}], {"m": 4})
    >>> found = offset_table(axis, operand=1, group=4, element=8)
    >>> at = found[table_fields.GROUPS]
    >>> found[at : at + 4].tolist()
    [0, 2, 4, 5]
    """
    header = np.zeros(table_fields.SIZE, np.int64)
    data = [header]
    used = table_fields.SIZE

    def put(field: int, values: Integers) -> None:
        nonlocal used
        header[field] = used
        data.append(values.astype(np.int64))
        used += len(values)

    for level, bounds in enumerate(axis.bounds):
        put(table_fields.BOUNDS + level, bounds)
    for tensor, offsets in enumerate(axis.offsets):
        put(table_fields.OFFSETS + tensor, offsets)
    put(table_fields.COUNTING, np.arange(max(axis.size, 1)))
    units, alike, even, places = axis.offsets, None, None, None
    if group:
        starts, counts, places = _split_groups(axis.bounds[0], group)
        source, target = axis.offsets[operand], axis.offsets[0]
        put(table_fields.GROUPS, places)
        put(table_fields.GROUP_STARTS, starts)
        put(table_fields.GROUP_COUNTS, counts)
        put(table_fields.GROUP_OFFSETS, source[starts])
        inside = starts + group <= axis.size
        put(table_fields.GROUP_WHOLE, are_contiguous(source, starts, group, element) & inside)
        groups = are_contiguous(target, starts, counts, written or element) * np.where(
            counts == group, int(TileLayout.WHOLE), int(TileLayout.PART)
        )
        stored = np.minimum.reduceat(groups, places[:-1]) if len(groups) else groups
        put(table_fields.STORED, stored)
        put(table_fields.ALIKE, _count_alike(np.diff(axis.bounds[0]), stored))
        put(table_fields.STEADY, count_steady(target))
        lanes = source[starts[:, None] + np.minimum(np.arange(group), counts[:, None] - 1)]
        put(table_fields.LANES, lanes.ravel())
        put(table_fields.GROUP_ENDS, lanes[:, -1])
        units = (source[starts],) * 3
        if any(transposed):
            _, alike = number_rows(lanes - lanes[:, :1])
            even = _are_equidistant(lanes)
    for number, how in enumerate(transposed):
        if how is not None:
            ranges = _segment_ranges(axis, how.level, places)
            found = _find_blocks(units[number + 1], alike, even, ranges, how)
            if group:
                found[table_fields.LINE_OFFSETS] = lanes[found[table_fields.LINE_OFFSETS]].ravel()
                found[table_fields.LINE_BOUNDS] *= group
            else:
                found[table_fields.LINE_OFFSETS] = axis.offsets[number + 1][
                    found[table_fields.LINE_OFFSETS]
                ]
            for at, values in enumerate(found):
                put(table_fields.BLOCKS + table_fields.BLOCK_WORDS * number + at, values)
    return np.concatenate(data)


def _split_groups(tiles: Integers, group: int) -> tuple[Integers, Integers, Integers]:
    """Return the first index and the size of each group, and the groups before each tile."""
    sizes = np.diff(tiles)
    per_tile = -(-sizes // group)
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_tile)])
    within = np.arange(places[-1]) - np.repeat(places[:-1], per_tile)
    starts = np.repeat(tiles[:-1], per_tile) + within * group
    counts = np.minimum(group, np.repeat(tiles[1:], per_tile) - starts)
    return starts, counts, places


def _count_alike(sizes: Integers, stored: Integers) -> Integers:
    """Return for each register tile how many from there on have the same size and layout."""
    if not len(stored):
        return np.ones(len(sizes), np.int64)
    other = (np.diff(sizes) != 0) | (np.diff(stored) != 0)
    ends = np.append(np.flatnonzero(other) + 1, len(sizes))
    tiles = np.arange(len(sizes))
    found: Integers = ends[np.searchsorted(ends, tiles, side="right")] - tiles
    return found


def count_steady(offsets: Integers) -> Integers:
    """Return for each entry how many from there on are as far apart as the first two."""
    count = len(offsets)
    if count < 3:
        return np.arange(count, 0, -1)
    ends = np.append(np.flatnonzero(np.diff(offsets, 2)) + 1, count - 1)
    at = np.arange(count - 1)
    found: Integers = np.append(ends[np.searchsorted(ends, at + 1)] - at + 1, 1)
    return found


def are_contiguous(
    offsets: Integers, starts: Integers, counts: Integers | int, element: int
) -> Integers:
    """Return for each group whether its offsets follow each other."""
    steps = np.diff(offsets) == element
    broken = np.concatenate([np.zeros(1, np.int64), np.cumsum(~steps)])
    last = np.minimum(starts + counts - 1, max(len(offsets) - 1, 0))
    found: Integers = (broken[last] == broken[starts]).astype(np.int64)
    return found


def _segment_ranges(axis: RoleAxis, level: int, places: Integers | None) -> list[tuple[int, int]]:
    """Return the range of indices, or of groups, of each segment of a level."""
    count = len(axis.bounds[level]) - 1
    if places is None:
        return [axis.range(level, segment) for segment in range(count)]
    tiles = [axis.register_tiles(level, segment) for segment in range(count)]
    return [(int(places[low]), int(places[high])) for low, high in tiles]


def _find_blocks(
    offsets: Integers,
    alike: Integers | None,
    even: Truths | None,
    ranges: Sequence[tuple[int, int]],
    how: TransposedBlocks,
) -> list[Integers]:
    """Return the fields of blocks for some ranges; of lines, an entry that is in each.

    The entries of a block lie one element apart. Where entries have kinds, a block has entries of
    one kind; blocks whose groups and lanes are equidistant are listed apart.
    """
    parts: list[list[Integers]] = [[] for _ in range(table_fields.BLOCK_WORDS // 2)]
    counts = np.zeros((len(ranges) + 1, table_fields.BLOCK_WORDS // 2), np.int64)
    for number, (low, high) in enumerate(ranges, start=1):
        kinds = np.zeros(high - low, np.int64) if alike is None else alike[low:high]
        sort = low + np.lexsort((offsets[low:high], kinds))
        broken = np.diff(offsets[sort]) != how.element
        breaks = np.flatnonzero(broken | (np.diff(kinds[sort - low]) != 0)) + 1
        for run in np.split(sort, breaks):
            begin = int(offsets[run[0]]) if len(run) else 0
            whole, *others = _split_run(run, begin, how)
            blocks = whole.reshape(-1, how.lanes)
            evenly = np.zeros(len(blocks), bool)
            if even is not None:
                evenly = even[blocks[:, 0]] & _are_equidistant(blocks)
            found = (blocks[~evenly].ravel(), *others, blocks[evenly].ravel())
            for at, entries in enumerate(found):
                parts[at].append(entries)
                counts[number, at] += len(entries)
    ends = np.cumsum(counts, axis=0) // (how.lanes, how.few, 1, 1, how.lanes)
    empty = np.zeros(0, np.int64)
    return [
        values
        for at, entries in enumerate(parts)
        for values in (ends[:, at], np.concatenate([empty, *entries]))
    ]


def _are_equidistant(rows: Integers) -> Truths:
    """Return for each row whether its entries are all one distance apart."""
    steps = np.diff(rows, axis=1)
    found: Truths = (steps == steps[:, :1]).all(axis=1)
    return found


def _split_run(
    run: Integers, begin: int, how: TransposedBlocks
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the blocks of a run, those of few entries, its rest, and an entry of each line.

    The last block of few entries begins early enough to be full, and packs some entries again. Of
    each part as long as a line the last entry is listed: wherever the tensor begins, only the first
    line of a run may be missing. Where all runs are whole lines long, that is read with the run
    before it; else the first entry is listed, too (docs/decisions/042).
    """
    cut = len(run) // how.lanes * how.lanes
    line = max(1, ALIGNMENT_BYTES // how.element)
    lines = run[np.minimum(np.arange(line - 1, len(run) + line - 1, line), len(run) - 1)]
    if not (
        how.whole_lines and begin % ALIGNMENT_BYTES == len(run) * how.element % ALIGNMENT_BYTES == 0
    ):
        lines = np.append(run[:1], lines)
    if len(run) < how.few:
        return run[:0], run[:0], run, lines
    begins = np.minimum(np.arange(cut, len(run), how.few), len(run) - how.few)
    return run[:cut], run[begins[:, None] + np.arange(how.few)].ravel(), run[:0], lines
