"""Blocks of elements that compiled functions copy: transposed in registers, or one by one.

All are intrinsics, for compiled functions only. Elements are bytes without meaning, so that
one function serves every dtype of a size. Only targets of non-temporal stores need be aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.intrinsics import intrinsic
from tilesolve.kernels.ir import vectors
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
    (column_far, column_near), (row_far, row_near) = column_steps, row_steps
    ahead = builder.sub(later, source)
    done = builder.append_basic_block("transposed")
    choice = builder.switch(kind, done)
    down, across = (rows, row_near, row_far), (columns, column_near, column_far)
    for at, (size, side, whole) in enumerate(BLOCK_KINDS):
        choice.add_case(INT64(at), builder.append_basic_block(f"blocks{size}x{side}"))
        builder.position_at_end(choice.cases[-1][1])

        def block(
            near: ir.Value,
            far: ir.Value,
            size: int = size,
            side: int = side,
            whole: bool = whole,
        ) -> None:
            places = [
                builder.add(near, builder.mul(INT64(lane), column_near)) for lane in range(side)
            ]
            _transpose_block(builder, size, places, far, row_far, ahead, whole=whole)

        # Lines are stored non-temporally row by row: those of a row are neighbours.
        _repeat_blocks(
            builder, side, (source, target), (down, across)[:: 1 if whole else -1], block
        )
        builder.branch(done)
    builder.position_at_end(done)


TURNED_KINDS = tuple((size, side) for size in (4, 8, 16) for side in BLOCK_SIDES[size])
"""Size of an element and side of the blocks that `turn_blocks` knows, by its numbers: the longest
side of each size first."""


@intrinsic
def turn_blocks(builder, kind, source, target, columns, rows, column_steps, row_steps):
    """Transpose a tile that is in the first cache by blocks of a kind: a number of `TURNED_KINDS`.

    Parameters
    ----------
    source, target, columns, rows, column_steps, row_steps
        As of `transpose_tile`.
    """
    (column_far, column_near), (row_far, row_near) = column_steps, row_steps
    done = builder.append_basic_block("turned")
    choice = builder.switch(kind, done)
    for at, (size, side) in enumerate(TURNED_KINDS):
        choice.add_case(INT64(at), builder.append_basic_block(f"turned{size}x{side}"))
        builder.position_at_end(choice.cases[-1][1])

        def block(near: ir.Value, far: ir.Value, size: int = size, side: int = side) -> None:
            places = [
                builder.add(near, builder.mul(INT64(lane), column_near)) for lane in range(side)
            ]
            _transpose_block(builder, size, places, far, row_far)

        across, down = (columns, column_near, column_far), (rows, row_near, row_far)
        _repeat_blocks(builder, side, (source, target), (across, down), block)
        builder.branch(done)
    builder.position_at_end(done)


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
    done = builder.append_basic_block("transposed")
    choice = builder.switch(kind, done)
    for at, (size, side) in enumerate(LISTED_KINDS):
        choice.add_case(INT64(at), builder.append_basic_block(f"listed{size}x{side}"))
        builder.position_at_end(choice.cases[-1][1])

        def block(
            near: ir.Value,
            far: ir.Value,
            distance: ir.Value,
            size: int = size,
            side: int = side,
        ) -> None:
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
        builder.branch(done)
    builder.position_at_end(done)


@intrinsic
def prefetch_source(builder, address):
    """Prefetch a line to the second cache, to be read."""
    vectors.prefetch(builder, vectors.to_pointer(builder, address), near=False)


@intrinsic
def prefetch_target(builder, address):
    """Prefetch a line to the first cache, to be written to."""
    vectors.prefetch(builder, vectors.to_pointer(builder, address), write=True)


@intrinsic
def store_line(builder, source, target):
    """Copy a line to an address that is a multiple of `LINE_BYTES`, by non-temporal stores."""
    _copy(builder, LINE_BYTES, (source, target), non_temporal=True)


@intrinsic
def store_joined_line(builder, before, source, target, size):
    """Store a line non-temporally: so many bytes from one address, then those of another line.

    Both lines are joined in registers: through memory, the load of the joined line would wait for
    the stores of its parts, and for all stores before them.
    """
    kind = ir.VectorType(ir.IntType(8), LINE_BYTES)
    first, second = (
        vectors.load(builder, vectors.to_pointer(builder, place), kind, 1)
        for place in (before, source)
    )
    count = builder.trunc(size, kind.element)
    counts = vectors.broadcast(builder, count, kind)
    lanes = ir.Constant(kind, list(range(LINE_BYTES)))
    value = builder.select(builder.icmp_signed("<", lanes, counts), first, second)
    vectors.store(
        builder, value, vectors.to_pointer(builder, target), LINE_BYTES, non_temporal=True
    )


@intrinsic
def copy_line(builder, source, target):
    """Copy `LINE_BYTES` bytes."""
    _copy(builder, LINE_BYTES, (source, target))


@intrinsic
def copy_part(builder, source, target, size):
    """Copy less than `LINE_BYTES` bytes."""
    done = builder.append_basic_block("copied")
    power = LINE_BYTES // 2
    while power:  # two parts that may overlap
        enough = builder.icmp_unsigned(">=", size, INT64(power))
        with builder.if_then(enough, likely=True):
            last = builder.sub(size, INT64(power))
            for away in (INT64(0), last):
                places = [builder.add(place, away) for place in (source, target)]
                _copy(builder, power, places)
            builder.branch(done)
        power //= 2
    builder.branch(done)
    builder.position_at_end(done)


@intrinsic
def store_head(builder, source, target, size):
    """Copy the bytes up to the end of a line, by non-temporal stores."""
    _store_parts(
        builder, (source, target, size), [1 << at for at in range(LINE_BYTES.bit_length() - 1)]
    )


@intrinsic
def store_tail(builder, source, target, size):
    """Copy less than `LINE_BYTES` bytes to the beginning of a line, by non-temporal stores."""
    _store_parts(
        builder,
        (source, target, size),
        [LINE_BYTES >> at for at in range(1, LINE_BYTES.bit_length())],
    )


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
    return builder.select(builder.icmp_signed("<", usual, last), usual, last)


def _store_parts(builder: ir.IRBuilder, args: Any, powers: Sequence[int]) -> None:
    """Copy less than `LINE_BYTES` bytes in parts, each to a multiple of its size."""
    source, target, size = args
    for power in powers:
        part = builder.and_(size, INT64(power))
        with builder.if_then(builder.icmp_signed("!=", part, INT64(0))):
            _copy(
                builder,
                power,
                (source, target),
                non_temporal=power >= tuning.MIN_NON_TEMPORAL_BYTES,
            )
        source, target = builder.add(source, part), builder.add(target, part)


def _copy(builder: ir.IRBuilder, size: int, places: Any, *, non_temporal: bool = False) -> None:
    """Copy so many bytes, a power of two, through a register."""
    part = min(size, WORD_BYTES)
    kind = ir.VectorType(ir.IntType(8 * part), size // part)
    source, target = (vectors.to_pointer(builder, place) for place in places)
    value = vectors.load(builder, source, kind, 1)
    vectors.store(builder, value, target, size if non_temporal else 1, non_temporal=non_temporal)
