"""The loop over k: the part of a microkernel that sums products, with the whole tile in registers.

Measurements behind it are in docs/decisions/040.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.load_operands import (
    EVERYTHING,
    NO_LISTED_LINE,
    Operands,
    Prefetches,
    StepLoader,
)
from tilesolve.kernels.codegen.shape import HALVED_REGISTERS, Mode, Shape
from tilesolve.kernels.codegen.tile_emitter import TileEmitter
from tilesolve.kernels.codegen.unrolling import (
    accumulator_sets,
    prefetches_columns_of_c,
    steps_per_trip,
    stores_lines,
)
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES


@dataclass(frozen=True, slots=True)
class LoopSplit:
    """How an unrolled loop over k is split: the same for all tiles of a call.

    Parameters
    ----------
    storing, fetching, prefetching, single, trips
        Steps that each store a line of ``lines``, or prefetch a column of C; trips of
        `tuning.PREFETCHING_STEPS` steps, each of which prefetches a line of ``fetch``; single
        steps; and trips of `steps_per_trip`.
    first_single, first_trip
        Steps before the single ones, and before those trips.
    prefetches_c
        Whether C is prefetched.
    lines
        Address of the list of the lines of C. It ends with the address of the frame, which all
        trips prefetch that have no line of C left.
    first_line, last_line
        Where the trips read the list, and the number of its last entry from there.
    """

    storing: ir.Value
    fetching: ir.Value
    prefetching: ir.Value
    single: ir.Value
    trips: ir.Value
    first_single: ir.Value
    first_trip: ir.Value
    prefetches_c: ir.Value
    lines: ir.Value
    first_line: ir.Value
    last_line: ir.Value

    @classmethod
    def of(cls, tile: TileEmitter, count: ir.Value) -> Self:
        """Emit the split of so many steps."""
        builder, shape, fetches = tile.builder, tile.shape, tile.field("fetches")
        size, narrow = steps_per_trip(shape), shape.bits < tuning.WIDE_VECTOR_BITS
        storing = tile.field("line_count") if stores_lines(shape) else INT64(0)
        fetching = INT64(0)
        if prefetches_columns_of_c(shape):
            alone = builder.icmp_signed("==", storing, INT64(0))
            fetching = builder.select(alone, _columns_to_fetch(tile, count), INT64(0))
        before = builder.add(storing, fetching)
        first_single = vectors.extreme(
            builder, "<", count, vectors.extreme(builder, ">", fetches, before)
        )
        trips = builder.sdiv(builder.sub(count, first_single), INT64(size))
        steps = INT64(tuning.PREFETCHING_STEPS)
        prefetching = builder.sdiv(first_single, steps) if narrow else INT64(0)
        first_single = builder.mul(prefetching, steps) if narrow else before
        first_trip = builder.sub(count, builder.mul(trips, INT64(size)))
        count_c = shape.vectors * shape.columns
        list_of_c = builder.alloca(ir.ArrayType(INT64, count_c + 1))
        list_of_c.align = LINE_BYTES
        lines: ir.Value = builder.ptrtoint(list_of_c, INT64)
        end = WORD_BYTES * count_c
        builder.store(tile.frame, vectors.to_pointer(builder, lines, end), align=WORD_BYTES)
        prefetches_c = _prefetches_c(tile)
        first_line = builder.select(prefetches_c, lines, builder.add(lines, INT64(end)))
        last_line = builder.select(prefetches_c, INT64(count_c), INT64(0))
        single = builder.sub(first_trip, first_single)
        return cls(
            storing,
            fetching,
            prefetching,
            single,
            trips,
            first_single,
            first_trip,
            prefetches_c,
            lines,
            first_line,
            last_line,
        )


def accumulate(
    tile: TileEmitter, load: StepLoader, count: ir.Value, split: LoopSplit | None
) -> list[ir.Value]:
    """Emit the loop over k and return the sums: for each group its columns, for each its parts.

    Few accumulators would wait for each other's FMAs: then several steps of k have sets of
    their own, which are added up in the end.

    Parameters
    ----------
    tile
        The kernel.
    load
        Emits the loads of a step, see `load_operands.step_loader`.
    count
        Steps, an `INT64`.
    split
        Of the loop, if it is unrolled.
    """
    builder, shape = tile.builder, tile.shape
    if split is not None:
        return _sum_unrolled(tile, load, split, _first_sums(tile))
    with builder.if_then(_prefetches_c(tile), likely=True):
        for line in _lines_of_c(tile):
            vectors.prefetch(builder, vectors.to_pointer(builder, line), write=True)
    if prefetches_columns_of_c(shape):
        fetched, sums = _columns_to_fetch(tile, count), _first_sums(tile)
        sums = _sum_steps(tile, _fetching_loader(tile, load), INT64(0), fetched, sums)
        return _sum_steps(tile, load, fetched, count, sums)
    if shape.packed or shape.complex or shape.bits >= tuning.WIDE_VECTOR_BITS:
        return _sum_steps(tile, load, INT64(0), count, _first_sums(tile))
    # Prefetches that only columns in place need would take a third of the time of short steps.
    in_place = builder.icmp_signed("!=", tile.field("b_ahead"), INT64(0))
    listed = builder.select(in_place, count, INT64(0))
    sums = _sum_steps(tile, load, INT64(0), listed, _first_sums(tile))
    return _sum_steps(tile, partial(load, prefetches=NO_LISTED_LINE), listed, count, sums)


def _first_sums(tile: TileEmitter) -> list[ir.Value]:
    """Return the sums before the first step: zeros, or what the frame has for each row."""
    builder, shape = tile.builder, tile.shape
    zeros = tile.zero_sums()
    if not shape.takes_epilogue:
        return zeros
    starts, before = tile.field("starts"), builder.block
    with builder.if_then(builder.icmp_unsigned("!=", starts, INT64(0))):
        table = builder.add(tile.field("rows_c"), tile.field("starts_rows"))
        places = tile.add_entries(starts, table, shape.vectors, shape.lanes)
        loaded = _load_starts(tile, places)
        after = builder.block
    found = []
    for kind, one in zip(tile.kinds, loaded, strict=True):
        phi = builder.phi(kind)
        phi.add_incoming(ir.Constant(kind, None), before)
        phi.add_incoming(one, after)
        found += [phi] * shape.columns
    return found


def _load_starts(tile: TileEmitter, places: list[ir.Value]) -> list[ir.Value]:
    """Return what each group of sums begins with; of the last one the rows that it has."""
    builder, shape = tile.builder, tile.shape
    if shape.narrow:
        half = INT64(shape.bits // 16)
        places = [place for row in places for place in (row, builder.add(row, half))][:-1]
    *others, last = zip(places, tile.kinds, strict=True)
    found = [vectors.load(builder, vectors.to_pointer(builder, at), kind, 1) for at, kind in others]
    at, kind = last
    rows = builder.sub(tile.field("rows"), INT64(sum(kind.count for _, kind in others)))
    mask = masking.mask_first_lanes(builder, kind.count, rows)
    found.append(masking.load_masked(builder, vectors.to_pointer(builder, at), kind, mask))
    return found


def _sum_steps(
    tile: TileEmitter, load: StepLoader, begin: ir.Value, end: ir.Value, sums: list[ir.Value]
) -> list[ir.Value]:
    """Emit a loop over some steps, with as many sets of sums as keep the FMAs busy."""
    builder, shape = tile.builder, tile.shape
    sets, size = accumulator_sets(shape), shape.accumulators

    def add_step(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        return multiply_steps(tile, [load(trip)], values)

    def split(values: Sequence[ir.Value]) -> list[list[ir.Value]]:
        return [list(values[at * size : (at + 1) * size]) for at in range(sets)]

    def add_steps(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        first = builder.add(begin, builder.mul(trip, INT64(sets)))
        found: list[ir.Value] = []
        for at, mine in enumerate(split(values)):
            found += add_step(builder.add(first, INT64(at)), mine)
        return found

    count = builder.sub(end, begin)
    trips = builder.sdiv(count, INT64(sets))
    carried = [*sums, *tile.zero_sums() * (sets - 1)]
    total, *others = split(vectors.emit_loop(builder, trips, carried, add_steps))
    if sets == 1:
        return total
    for other in others:
        total = [tile.join(x, y) for x, y in zip(total, other, strict=True)]
    done = builder.add(begin, builder.mul(trips, INT64(sets)))
    return vectors.emit_loop(
        builder,
        builder.sub(end, done),
        total,
        lambda trip, values: add_step(builder.add(done, trip), values),
    )


def _sum_unrolled(
    tile: TileEmitter, load: StepLoader, split: LoopSplit, sums: list[ir.Value]
) -> list[ir.Value]:
    """Emit steps that store lines, or prefetch columns of C or ``fetch``, then trips that do so.

    Each trip prefetches one line of C. Steps that fill no trip come between them.
    """
    builder, size = tile.builder, steps_per_trip(tile.shape)
    with builder.if_then(split.prefetches_c, likely=True):
        for number, line in enumerate(_lines_of_c(tile)):
            entry = vectors.to_pointer(builder, split.lines, WORD_BYTES * number)
            builder.store(line, entry, align=WORD_BYTES)

    def add_prefetching(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = _opaque_step(tile, builder.mul(trip, INT64(tuning.PREFETCHING_STEPS)))
        for at in range(tuning.PREFETCHING_STEPS):
            wanted = Prefetches(next_rows=_begins_line(tile, at), bounded=False)
            values = multiply_steps(tile, [load(begin, at, wanted)], values)
        return values

    def add_storing(step: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        operands = load(step)
        _store_line(tile, step)
        return multiply_steps(tile, [operands], values)

    def add_single(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        step = _opaque_step(tile, builder.add(split.first_single, trip))
        return multiply_steps(tile, [load(step)], values)

    def add_trip(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = builder.add(split.first_trip, builder.mul(trip, INT64(size)))
        begin = _opaque_step(tile, begin)
        last = split.last_line
        number = vectors.extreme(builder, "<", trip, last)
        line = tile.load_integer(split.first_line, builder.mul(number, INT64(WORD_BYTES)))
        vectors.prefetch(builder, vectors.to_pointer(builder, line))
        for at in range(size):
            wanted = Prefetches(next_rows=_begins_line(tile, at), listed=False)
            values = multiply_steps(tile, [load(begin, at, wanted)], values)
        return values

    if stores_lines(tile.shape):
        sums = vectors.emit_loop(builder, split.storing, sums, add_storing)
    if prefetches_columns_of_c(tile.shape):
        sums = _sum_steps(tile, _fetching_loader(tile, load), INT64(0), split.fetching, sums)
    if tile.shape.bits < tuning.WIDE_VECTOR_BITS:
        sums = vectors.emit_loop(builder, split.prefetching, sums, add_prefetching)
    sums = vectors.emit_loop(builder, split.single, sums, add_single)
    return vectors.emit_loop(builder, split.trips, sums, add_trip)


def _store_line(tile: TileEmitter, step: ir.Value) -> None:
    """Emit the copy of a step's line of ``lines``."""
    builder = tile.builder
    entry = builder.add(tile.field("lines"), builder.mul(step, INT64(2 * WORD_BYTES)))
    source, target = (
        vectors.to_pointer(builder, tile.load_integer(entry, at)) for at in (0, WORD_BYTES)
    )
    kind = vectors.vector_type("int64", 8 * LINE_BYTES)
    line = vectors.load(builder, source, kind, 1)
    vectors.store(builder, line, target, LINE_BYTES, non_temporal=True)


def _columns_to_fetch(tile: TileEmitter, count: ir.Value) -> ir.Value:
    """Return how many columns of C are prefetched by the first of so many steps, one by each."""
    builder = tile.builder
    many = builder.icmp_signed(">=", tile.field("k"), INT64(tuning.MIN_STEPS_TO_PREFETCH_C))
    others = builder.or_(many, builder.not_(_writes_through_caches(tile)))
    most = vectors.extreme(builder, "<", count, INT64(tile.shape.columns))
    return builder.select(others, INT64(0), most)


def _fetching_loader(tile: TileEmitter, load: StepLoader) -> StepLoader:
    """Return a loader that prefetches a step's column of C: the lines that vectors end in.

    What lies ``c_ahead`` bytes beyond is written later, and goes to the second cache.
    """
    builder, vector = tile.builder, tile.shape.bits // 8
    rows = [tile.added_to(row) for row in tile.c_row_addresses()]
    columns_c = tile.field("columns_c")

    def load_and_fetch(
        step: ir.Value, beyond: int = 0, prefetches: Prefetches = EVERYTHING
    ) -> Operands:
        operands = load(step, beyond, prefetches)
        column = tile.load_integer(columns_c, builder.mul(step, INT64(WORD_BYTES)))
        later = builder.add(column, tile.field("c_ahead"))
        for offset, near in ((column, True), (later, False)):
            for row in rows:
                last = vectors.to_pointer(builder, builder.add(row, offset), vector - tile.element)
                vectors.prefetch(builder, last, near=near)
        return operands

    return load_and_fetch


def _opaque_step(tile: TileEmitter, step: ir.Value) -> ir.Value:
    """Return the number of a trip's first step, of unknown origin in narrow kernels.

    LLVM would keep an address for each stream and add to all of them in every trip.
    """
    narrow = tile.shape.bits < tuning.WIDE_VECTOR_BITS
    return vectors.hide_origin(tile.builder, step) if narrow else step


def _begins_line(tile: TileEmitter, at: int) -> bool:
    """Return whether a step of a trip begins a line of the next micro-panel of rows."""
    return at * tile.parts * tile.shape.bits // 8 % LINE_BYTES == 0


def _prefetches_c(tile: TileEmitter) -> ir.Value:
    """Return whether C is worth prefetching: not if non-temporal stores drop it from the caches."""
    builder = tile.builder
    enough = INT64(tuning.MIN_STEPS_TO_PREFETCH_C)
    many = builder.icmp_signed(">=", tile.field("k"), enough)
    return builder.and_(many, _writes_through_caches(tile))


def _writes_through_caches(tile: TileEmitter) -> ir.Value:
    """Return whether C is written by stores that are not non-temporal."""
    builder = tile.builder
    beyond = builder.sub(tile.field("mode"), INT64(int(Mode.STREAM)))
    last = INT64(int(Mode.STREAM_PIECES) - int(Mode.STREAM))
    return builder.icmp_unsigned(">", beyond, last)


def _lines_of_c(tile: TileEmitter) -> list[ir.Value]:
    """Return the addresses of all vectors of C, or of what is added to."""
    rows, columns_c = tile.c_row_addresses(), tile.field("columns_c")
    columns = [
        tile.added_to(tile.load_integer(columns_c, WORD_BYTES * column))
        for column in range(tile.shape.columns)
    ]
    return [tile.builder.add(row, column) for column in columns for row in rows]


def multiply_steps(
    tile: TileEmitter,
    steps: Sequence[Operands],
    sums: list[ir.Value],
    done: Callable[[int, list[list[ir.Value]]], None] = lambda _column, _values: None,
) -> list[ir.Value]:
    """Emit steps of k a column at a time: in each, every group of rows times the column's element.

    Parameters
    ----------
    tile
        The kernel.
    steps
        What each of them multiplies.
    sums
        So far, in the order of `accumulate`.
    done
        Called with the number of each column and its sums, the parts of each group, once the code
        for it is there.

    Returns
    -------
    list
        The new sums.
    """
    builder, size = tile.builder, tile.parts
    found = list(sums)
    together = columns_per_pass(tile.shape)
    for first in range(0, tile.shape.columns, together):
        numbers = range(first, min(first + together, tile.shape.columns))
        for rows, columns in steps:
            factors = zip(*(columns(number) for number in numbers), strict=True)
            positions = zip(
                *(tile.sum_positions(number, len(sums)) for number in numbers), strict=True
            )
            for ats, group, of_group in zip(positions, rows, factors, strict=True):
                for at, parts in zip(ats, of_group, strict=True):
                    row = group()
                    factor = tile.narrow(parts[0], row[0].type)
                    found[at] = tile.take_in(row[0], factor, found[at])
                    if size == 2:
                        found[at + 1] = tile.fma(row[0], parts[1], found[at + 1])
                        found[at] = tile.fms(row[1], parts[1], found[at])
                        found[at + 1] = tile.fma(row[1], parts[0], found[at + 1])
        values = [tile.column_sums(found, number) for number in numbers]
        # LLVM would load all columns first, and spill accumulators to find room for them.
        if tile.ordered:
            vectors.order_after(
                builder, [part for column in values for group in column for part in group]
            )
        for number, column in zip(numbers, values, strict=True):
            done(number, column)
    return found


def columns_per_pass(shape: Shape) -> int:
    """Return how many columns a step multiplies in one pass over the groups of rows.

    CPUs that execute whole vectors in two halves lose time at each change between whole and halved
    vectors. So kernels with both take as many columns in a pass as registers are free for.

    Examples
    --------
    >>> [columns_per_pass(Shape("float64", 512, 3, 8, 8, True, halved)) for halved in (False, True)]
    [1, 4]
    """
    if not shape.halved or shape.narrow:
        return 1
    free = HALVED_REGISTERS - shape.accumulators - shape.vectors - 1
    return max(1, min(tuning.MAX_COLUMNS_PER_PASS, free))
