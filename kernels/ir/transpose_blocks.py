"""Blocks of elements that compiled functions transpose in registers.

All are intrinsics, for compiled functions only. Elements are bytes without meaning, so that
one function serves every dtype of a size. Only targets of non-temporal stores need be aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.choices import choose
from tilesolve.kernels.ir.intrinsics import intrinsic
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

BLOCK_SIDES = {
    1: (16, 4, 1),
    2: (16, 4, 1),
    4: (16, 8, 4, 1),
    8: (8, 4, 1),
    16: (4, 1),
    32: (2, 1),
    64: (1,),
}
"""For each size of an element in bytes, the sides of the blocks that there is code for. A block
need not fit the registers: LLVM spills the rest."""

LISTED_KINDS = tuple(
    (size, side) for size, sides in BLOCK_SIDES.items() for side in sides if len(sides) > 1
)
"""Size of an element and side of the blocks that `transpose_listed` knows, by its numbers."""

BLOCK_KINDS = (
    *((size, side, False) for size, sides in BLOCK_SIDES.items() for side in sides),
    *(
        (size, LINE_BYTES // size, True)
        for size, sides in BLOCK_SIDES.items()
        if LINE_BYTES // size in sides[:-1]
    ),
)
"""Size of an element, side, and whether columns are lines that are stored non-temporally: all
blocks, by the numbers that `transpose_tile` takes."""

TRANSPOSED_KINDS = tuple((size, side) for size in (4, 8, 16) for side in BLOCK_SIDES[size])
"""Element size and side of the blocks of `transpose_by_blocks`, by number: the longest side of each
size first."""


@intrinsic
def transpose_tile(
    builder,
    kind,
    source,
    target,
    later,
    columns,
    rows,
    column_steps,
    row_steps,
):
    """Transpose a tile by blocks of a kind: a number of `BLOCK_KINDS`.

    Parameters
    ----------
    source, target
        Addresses of the first element.
    later
        Source of a later tile, which is prefetched to the second cache.
    columns, rows
        Extents, no less than the block's side. Unless they are multiples, the last blocks overlap
        others. For non-temporal stores columns are multiples, and the target's lines whole.
    column_steps, row_steps
        Bytes between neighbours in the target and in the source, as pairs. Columns are next to each
        other in the target and rows in the source, unless the side is 1.
    """
    tile = (source, target, columns, rows, column_steps, row_steps)
    _transpose(builder, kind, BLOCK_KINDS, tile, builder.sub(later, source))


@intrinsic
def transpose_by_blocks(builder, kind, *tile):
    """Transpose a tile in the first cache by blocks of a kind, a number of `TRANSPOSED_KINDS`.

    Parameters
    ----------
    tile
        Source, target, columns, rows, column_steps and row_steps as of `transpose_tile`.
    """
    _transpose(builder, kind, [(*one, False) for one in TRANSPOSED_KINDS], tile)


@intrinsic
def transpose_listed(
    builder,
    kind,
    source,
    target,
    later,
    distances,
    columns,
    rows,
    row_steps,
):
    """Transpose a tile whose columns lie anywhere, by blocks of a kind of `LISTED_KINDS`.

    Parameters
    ----------
    source
        Address that distances count from.
    distances
        Address of a list of the bytes from there to each column.
    target, later, columns, rows, row_steps
        As of `transpose_tile`; columns are next to each other in the target, rows in the source.
    """
    row_far, row_near = row_steps
    ahead = builder.sub(later, source)

    def emit(size: int, side: int) -> None:
        def block(near: ir.Value, far: ir.Value, distance: ir.Value) -> None:
            listed = [
                vectors.to_pointer(builder, distance, INT64(WORD_BYTES * lane))
                for lane in range(side)
            ]
            places = [
                builder.add(near, vectors.load(builder, where, INT64, WORD_BYTES))
                for where in listed
            ]
            _transpose_block(builder, size, places, far, row_far, ahead)

        # Single elements are a few columns, or a few rows of many.
        down = (rows, row_near, row_far, INT64(0))
        across = (columns, INT64(0), INT64(size), INT64(WORD_BYTES))
        axes = (down, across) if side == 1 else (across, down)
        _repeat_blocks(builder, side, (source, target, distances), axes, block)

    choose(builder, kind, {at: partial(emit, *one) for at, one in enumerate(LISTED_KINDS)})


def _transpose(
    builder: ir.IRBuilder,
    number: ir.Value,
    kinds: Sequence[tuple[int, int, bool]],
    tile: Sequence[Any],
    ahead: ir.Value | None = None,
) -> None:
    """Emit the transpose of a tile by blocks of one of some kinds, which a number tells."""
    source, target, columns, rows, (column_far, column_near), (row_far, row_near) = tile
    down, across = (rows, row_near, row_far), (columns, column_near, column_far)

    def emit(size: int, side: int, whole: bool) -> None:
        def block(near: ir.Value, far: ir.Value) -> None:
            places = [
                builder.add(near, builder.mul(INT64(lane), column_near)) for lane in range(side)
            ]
            _transpose_block(builder, size, places, far, row_far, ahead, whole=whole)

        # Lines are stored non-temporally row by row: those of a row are neighbours.
        axes = (down, across) if whole else (across, down)
        _repeat_blocks(builder, side, (source, target), axes, block)

    choose(builder, number, {at: partial(emit, *kind) for at, kind in enumerate(kinds)})


def _transpose_block(
    builder: ir.IRBuilder,
    size: int,
    places: Sequence[ir.Value],
    far: ir.Value,
    step: ir.Value,
    ahead: ir.Value | None = None,
    *,
    whole: bool = False,
) -> None:
    """Emit a block whose columns are at given places, and prefetches of what is so far ahead."""
    side, part = len(places), min(size, WORD_BYTES)
    vector = ir.VectorType(ir.IntType(8 * part), side * size // part)
    loaded = [
        vectors.load(builder, vectors.to_pointer(builder, place), vector, 1) for place in places
    ]
    # CPUs drop most prefetches of a burst, so they are spread over the stores; beside non-temporal
    # stores they drop more, and each line is prefetched once more (docs/decisions/043).
    count = tuning.NON_TEMPORAL_PREFETCHES_PER_ROW if whole else tuning.BLOCK_PREFETCHES_PER_ROW
    reaches = (0, *(number * side * size - 1 for number in range(1, count)))
    ends = reaches if side > 1 else (0,)
    moved = vectors.transpose_vectors(builder, loaded, size // part)
    for lane, (place, value) in enumerate(zip(places, moved, strict=True)):
        where = vectors.to_pointer(builder, far, builder.mul(INT64(lane), step))
        align = LINE_BYTES if whole else 1
        vectors.store(builder, value, where, align, non_temporal=whole)
        if ahead is None:
            continue
        for away in ends:
            line = builder.add(ahead, INT64(away))
            vectors.prefetch(builder, vectors.to_pointer(builder, place, line), near=False)


def _repeat_blocks(
    builder: ir.IRBuilder,
    side: int,
    places: Sequence[ir.Value],
    axes: Sequence[Sequence[ir.Value]],
    block: Callable[..., None],
) -> None:
    """Emit loops over two axes, the last innermost: each an extent and the steps of all places."""
    (extent, *steps), *inner = axes

    def at(trip: ir.Value) -> None:
        begin = _block_begin(builder, trip, side, extent)
        here = [
            builder.add(place, builder.mul(begin, step))
            for place, step in zip(places, steps, strict=True)
        ]
        if inner:
            _repeat_blocks(builder, side, here, inner, block)
        else:
            block(*here)

    vectors.repeat(builder, _count_blocks(builder, extent, side), at)


def _count_blocks(builder: ir.IRBuilder, extent: ir.Value, side: int) -> ir.Value:
    """Return how many blocks cover an extent."""
    return builder.udiv(builder.add(extent, INT64(side - 1)), INT64(side))


def _block_begin(builder: ir.IRBuilder, trip: ir.Value, side: int, extent: ir.Value) -> ir.Value:
    """Return where a block begins, so that it ends within the extent."""
    if side == 1:  # equal steps, which LLVM strength-reduces
        return trip
    usual, last = builder.mul(trip, INT64(side)), builder.sub(extent, INT64(side))
    return vectors.extreme(builder, "<", usual, last)
