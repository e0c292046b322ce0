"""Sums: the part of a microkernel that runs over k with the whole tile in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from llvmlite import ir

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.emitter import TileEmitter
from tilesolve.kernels.codegen.load_operands import Operands, StepLoader
from tilesolve.kernels.codegen.shape import HALVED_REGISTERS, Mode, Shape
from tilesolve.kernels.codegen.unrolling import accumulator_sets, trip_steps
from tilesolve.kernels.codegen.vectors import INT64
from tilesolve.kernels.tuning import (
    MAX_COLUMNS_PER_PASS,
    MIN_STEPS_TO_PREFETCH_C,
    PREFETCHING_STEPS,
    WIDE_VECTOR_BITS,
)
from tilesolve.packing.sizes import LINE_BYTES


@dataclass(frozen=True, slots=True)
class LoopSplit:
    """How an unrolled loop over k is parted: the same for all tiles of a call.

    Parameters
    ----------
    asking, single, trips
        Trips of `PREFETCHING_STEPS` steps that ask for what ``fetch`` lists, single steps, and
        trips of `trip_steps`.
    asked, done
        Steps before the single ones, and before those trips.
    awaits
        Whether C is worth asking for.
    room
        Address of the list of its lines. It ends with the frame, which is near and stands for all
        trips that ask for no line.
    listed, lines
        Where the trips read the list, and the number of the frame there.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> tile = TileEmitter(builder, shape, function.args[0], 256)
    >>> print(LoopSplit.of(tile, INT64(24)).trips.type)
    i64
    """

    asking: ir.Value
    single: ir.Value
    trips: ir.Value
    asked: ir.Value
    done: ir.Value
    awaits: ir.Value
    room: ir.Value
    listed: ir.Value
    lines: ir.Value

    @classmethod
    def of(cls, tile: TileEmitter, count: ir.Value) -> Self:
        """Emit the division of so many steps."""
        builder, shape, fetches = tile.builder, tile.shape, tile.field("fetches")
        size = trip_steps(shape)
        asked = builder.select(builder.icmp_signed("<", count, fetches), count, fetches)
        trips = builder.sdiv(builder.sub(count, asked), INT64(size))
        asking = (
            builder.sdiv(asked, INT64(PREFETCHING_STEPS))
            if shape.bits < WIDE_VECTOR_BITS
            else INT64(0)
        )
        asked = builder.mul(asking, INT64(PREFETCHING_STEPS))
        done = builder.sub(count, builder.mul(trips, INT64(size)))
        lines = shape.vectors * shape.columns
        list_of_c = builder.alloca(ir.ArrayType(INT64, lines + 1))
        list_of_c.align = LINE_BYTES
        room: ir.Value = builder.ptrtoint(list_of_c, INT64)
        builder.store(tile.frame, vectors.to_pointer(builder, room, 8 * lines), align=8)
        awaits = _awaits_c(tile)
        listed = builder.select(awaits, room, builder.add(room, INT64(8 * lines)))
        number = builder.select(awaits, INT64(lines), INT64(0))
        single = builder.sub(done, asked)
        return cls(asking, single, trips, asked, done, awaits, room, listed, number)


def accumulate(
    tile: TileEmitter, read: StepLoader, count: ir.Value, lengths: LoopSplit | None
) -> list[ir.Value]:
    """Emit the loop over k and return the sums: for each group its columns, for each its parts.

    Few accumulators would wait for each other's FMAs: then several steps of k have sets of
    their own, which are added up in the end.

    Parameters
    ----------
    tile
        The kernel.
    read
        What `operands.reader` returned for it.
    count
        Steps, an `INT64`.
    lengths
        Of the loop, if it is unrolled.

    Examples
    --------
    `microkernel.emit` calls it:

    >>> from tilesolve.kernels.codegen.microkernel import emit_microkernel
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> text = str(emit_microkernel(ir.Module(), shape, native=256))
    >>> "llvm.fmuladd.v4f64" in text
    True
    """
    builder, shape = tile.builder, tile.shape
    if lengths is not None:
        return _unrolled(tile, read, lengths, tile.zeros())
    with builder.if_then(_awaits_c(tile), likely=True):
        for line in _lines_of_c(tile):
            vectors.prefetch(builder, vectors.to_pointer(builder, line), write=True)
    if shape.packed or shape.complex or shape.bits >= WIDE_VECTOR_BITS:
        return _steps(tile, read, INT64(0), count, tile.zeros())
    # What only reading columns in place asks for would take a third of the time of short steps.
    in_place = builder.icmp_signed("!=", tile.field("b_ahead"), INT64(0))
    asking = builder.select(in_place, count, INT64(0))
    sums = _steps(tile, read, INT64(0), asking, tile.zeros())
    return _steps(tile, partial(read, listed=False), asking, count, sums)


def _steps(
    tile: TileEmitter, read: StepLoader, begin: ir.Value, end: ir.Value, sums: list[ir.Value]
) -> list[ir.Value]:
    """Emit a loop over some steps, with as many sets of sums as keep the FMAs busy."""
    builder, shape = tile.builder, tile.shape
    sets, size = accumulator_sets(shape), shape.accumulators

    def step(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        return multiply_steps(tile, [read(trip)], values)

    def parts(values: Sequence[ir.Value]) -> list[list[ir.Value]]:
        return [list(values[at * size : (at + 1) * size]) for at in range(sets)]

    def steps(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        first = builder.add(begin, builder.mul(trip, INT64(sets)))
        found: list[ir.Value] = []
        for at, mine in enumerate(parts(values)):
            found += step(builder.add(first, INT64(at)), mine)
        return found

    count = builder.sub(end, begin)
    whole = builder.sdiv(count, INT64(sets))
    carried = [*sums, *tile.zeros() * (sets - 1)]
    total, *others = parts(vectors.emit_loop(builder, whole, carried, steps))
    if sets == 1:
        return total
    for other in others:
        total = [builder.fadd(x, y) for x, y in zip(total, other, strict=True)]
    done = builder.add(begin, builder.mul(whole, INT64(sets)))
    return vectors.emit_loop(
        builder,
        builder.sub(end, done),
        total,
        lambda trip, values: step(builder.add(done, trip), values),
    )


def _unrolled(
    tile: TileEmitter, read: StepLoader, lengths: LoopSplit, sums: list[ir.Value]
) -> list[ir.Value]:
    """Emit the steps that ask for what ``fetch`` lists, then several a trip, with a line of C each.

    What fills no trip comes between them.
    """
    builder, size = tile.builder, trip_steps(tile.shape)
    with builder.if_then(lengths.awaits, likely=True):
        for number, line in enumerate(_lines_of_c(tile)):
            builder.store(line, vectors.to_pointer(builder, lengths.room, 8 * number), align=8)

    def asks(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = _begin(tile, builder.mul(trip, INT64(PREFETCHING_STEPS)))
        for at in range(PREFETCHING_STEPS):
            now = read(begin, at, follow=_follows(tile, at), few=False)
            values = multiply_steps(tile, [now], values)
        return values

    def single(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        return multiply_steps(tile, [read(_begin(tile, builder.add(lengths.asked, trip)))], values)

    def steps(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = _begin(tile, builder.add(lengths.done, builder.mul(trip, INT64(size))))
        last = lengths.lines
        number = builder.select(builder.icmp_signed("<", trip, last), trip, last)
        line = tile.integer(lengths.listed, builder.mul(number, INT64(8)))
        vectors.prefetch(builder, vectors.to_pointer(builder, line))
        for at in range(size):
            now = read(begin, at, follow=_follows(tile, at), listed=False)
            values = multiply_steps(tile, [now], values)
        return values

    if tile.shape.bits < WIDE_VECTOR_BITS:
        sums = vectors.emit_loop(builder, lengths.asking, sums, asks)
    sums = vectors.emit_loop(builder, lengths.single, sums, single)
    return vectors.emit_loop(builder, lengths.trips, sums, steps)


def _begin(tile: TileEmitter, step: ir.Value) -> ir.Value:
    """Return the number of a trip's first step as narrow kernels count with it.

    LLVM would keep an address for each stream and add to all of them in every trip.
    """
    return vectors.hide_origin(tile.builder, step) if tile.shape.bits < WIDE_VECTOR_BITS else step


def _follows(tile: TileEmitter, at: int) -> bool:
    """Return whether a step of a trip begins a line of the rows that are next."""
    return at * tile.parts * tile.shape.bits // 8 % LINE_BYTES == 0


def _awaits_c(tile: TileEmitter) -> ir.Value:
    """Return whether C is worth asking for: not what streaming stores drop from the caches."""
    builder = tile.builder
    far = builder.icmp_signed(">=", tile.field("k"), INT64(MIN_STEPS_TO_PREFETCH_C))
    streams = builder.icmp_signed("==", tile.field("mode"), INT64(int(Mode.STREAM)))
    return builder.and_(far, builder.not_(streams))


def _lines_of_c(tile: TileEmitter) -> list[ir.Value]:
    """Return the addresses of all vectors of C."""
    rows, columns_c = tile.rows_of_c(), tile.field("columns_c")
    columns = [tile.integer(columns_c, 8 * column) for column in range(tile.shape.columns)]
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

    Examples
    --------
    `accumulate` calls it for each step, `writing.weave` for the last ones:

    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 3, 4, packed=True)
    >>> tile = TileEmitter(builder, shape, function.args[0], 256)
    >>> from tilesolve.kernels.codegen.load_operands import step_loader
    >>> read, sums = step_loader(tile), tile.zeros()
    >>> order = []
    >>> new = multiply_steps(tile, [read(INT64(0))], sums, lambda column, _: order.append(column))
    >>> len(new), order
    (6, [0, 1, 2])
    """
    builder, size, kind = tile.builder, tile.parts, tile.kinds[0]
    found = list(sums)
    together = columns_per_pass(tile.shape)
    for first in range(0, tile.shape.columns, together):
        numbers = range(first, min(first + together, tile.shape.columns))
        for rows, columns in steps:
            factors = [
                [
                    vectors.broadcast(builder, tile.number(address, offset + i * tile.size), kind)
                    for i in range(size)
                ]
                for address, offset in (columns[number] for number in numbers)
            ]
            places = zip(*(tile.places(number, len(sums)) for number in numbers), strict=True)
            for ats, group in zip(places, rows, strict=True):
                for at, parts in zip(ats, factors, strict=True):
                    row = group()
                    found[at] = tile.fma(row[0], tile.narrowed(parts[0], row[0].type), found[at])
                    if size == 2:
                        found[at + 1] = tile.fma(row[0], parts[1], found[at + 1])
                        found[at] = tile.fms(row[1], parts[1], found[at])
                        found[at + 1] = tile.fma(row[1], parts[0], found[at + 1])
        values = [tile.column(found, number) for number in numbers]
        # LLVM would load all columns first, and spill accumulators to find room for them.
        if tile.ordered:
            vectors.order_after(
                builder, [part for column in values for group in column for part in group]
            )
        for number, column in zip(numbers, values, strict=True):
            done(number, column)
    return found


def columns_per_pass(shape: Shape) -> int:
    """Return how many columns a step multiplies side by side, group of rows by group.

    A CPU that takes whole vectors in two halves loses half a cycle at each change between whole and
    halved ones. So halved groups have as many columns together as registers are free for, if not
    all vectors are halved (measured on a Zen 4, cycles a step: one and a half groups by 8 columns
    take 16.4 column by column, as long as two whole groups, 14.0 side by side, 12.6 in halves only;
    two and a half groups 21.4 and 20.3).

    Examples
    --------
    >>> [columns_per_pass(Shape("float64", 512, 3, 8, 8, True, halved)) for halved in (False, True)]
    [1, 4]
    """
    if not shape.halved or shape.narrow:
        return 1
    free = HALVED_REGISTERS - shape.accumulators - shape.vectors - 1
    return max(1, min(MAX_COLUMNS_PER_PASS, free))
