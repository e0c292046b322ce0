"""Sums: the part of a microkernel that runs over k with the whole tile in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

from llvmlite import ir

from tilesolve.kernels import vectors
from tilesolve.kernels.shape import Mode, Shape
from tilesolve.kernels.tile import Tile
from tilesolve.kernels.vectors import INT64

FAR = 64
"""Steps of k that take long enough for prefetches of C to be worth their issue."""

PENDING = 8
"""Independent FMA chains that a kernel keeps busy: the latency times the rate of all CPUs known."""

WIDE = 512
"""Bits of vectors from which on a step takes so long that asking for lines costs nothing, and that
as many stores as a tile has fill the queue of stores."""

UNROLLED = 4
"""Steps of k in a trip of the loop, twice as many of narrow vectors and half as many of complex
numbers, once all lines of ``fetch`` are asked for. With both prefetches in each of six cycles whole
runs were a tenth slower (Zen 4, AVX2 kernels). A line of C is asked for in each trip: all of them
at once keep what comes from the second cache waiting (24 lines, 190 ns away, took 0.35 µs a call
instead of 0.1; Granite Rapids)."""

LISTED = 4
"""Steps in a trip of narrow kernels while these lines are asked for."""

SPARE_LOADS = 1
"""Loads in the time of a step that are left for what is asked for ahead."""

LINE = 64
"""Bytes between the addresses of which it is enough to ask for one."""

Rows = Callable[[], list[ir.Value]]
"""The vectors of a group of rows: held in registers, or loaded wherever they are asked for."""

Operands = tuple[list[Rows], list[tuple[ir.Value, int]]]
"""What one step of k multiplies: each group's vectors, and the address of each column's element."""


class Reader(Protocol):
    """Emits the loads of one step of k.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 1, 2, 4, packed=True)
    >>> read: Reader = reader(Tile(builder, shape, function.args[0], 256))
    >>> _ = read(INT64(0)), read(INT64(0), 1, follow=False, listed=False)
    >>> str(function).count("llvm.prefetch")
    2
    """

    def __call__(
        self,
        step: ir.Value,
        beyond: int = 0,
        *,
        follow: bool = True,
        listed: bool = True,
        few: bool = True,
    ) -> Operands:
        """Emit the loads of a step that is so many beyond one whose number is given.

        With `follow` the line of the strip ``next_a`` is asked for that belongs to the step, with
        `listed` one from the table ``fetch``, which has as many unless they are `few`; of operands
        in place the lines of the next tile's rows, and those of its columns.
        """


def pending(shape: Shape) -> int:
    """Return how many steps of k have sums of their own, so that enough FMAs are under way.

    Examples
    --------
    >>> pending(Shape("float64", 256, 1, 3, 4, packed=True))
    4
    """
    sets = 1
    while sets * shape.accumulators < PENDING:
        sets *= 2
    return sets


def unrolled(shape: Shape) -> bool:
    """Return whether a kernel does several steps of k a trip once all lines are asked for.

    Examples
    --------
    >>> [unrolled(Shape("float64", 512, 2, 6, 8, packed=packed)) for packed in (True, False)]
    [True, False]
    """
    return shape.packed and not shape.halved and pending(shape) == 1


def folded(shape: Shape) -> int:
    """Return how many groups of rows an unrolled kernel's FMAs take from memory for each column.

    That spares an instruction and a register for each, and takes more loads, of which a CPU does
    no more at a time than FMAs.

    Examples
    --------
    >>> [folded(Shape("float64", 256, *sides, 4, packed=True)) for sides in ((3, 4), (2, 6))]
    [1, 0]
    """
    if not unrolled(shape) or shape.complex or shape.bits >= WIDE or shape.columns == 1:
        return 0
    spare = shape.accumulators - shape.columns - shape.vectors - SPARE_LOADS
    return max(0, min(shape.vectors, spare // (shape.columns - 1)))


def trip_steps(shape: Shape) -> int:
    """Return the steps of k in a trip of a loop that is unrolled.

    What a trip takes beside its products keeps narrow kernels busy: where another thread shares the
    core, a step has half of its instructions' time, and is bound by them.

    Examples
    --------
    >>> [trip_steps(Shape("float64", bits, 2, 6, 8, packed=True)) for bits in (256, 512)]
    [8, 4]
    """
    steps = UNROLLED if shape.bits >= WIDE else 2 * UNROLLED
    return steps // 2 if shape.complex else steps


@dataclass(frozen=True, slots=True)
class Lengths:
    """How an unrolled loop over k is parted: the same for all tiles of a call.

    Parameters
    ----------
    asking, single, trips
        Trips of `LISTED` steps that ask for what ``fetch`` lists, single steps, and trips of
        `trip_steps`.
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
    >>> tile = Tile(builder, Shape("float64", 256, 2, 6, 4, packed=True), function.args[0], 256)
    >>> print(Lengths.of(tile, INT64(24)).trips.type)
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
    def of(cls, tile: Tile, count: ir.Value) -> Self:
        """Emit the division of so many steps."""
        builder, shape, fetches = tile.builder, tile.shape, tile.field("fetches")
        size = trip_steps(shape)
        asked = builder.select(builder.icmp_signed("<", count, fetches), count, fetches)
        trips = builder.sdiv(builder.sub(count, asked), INT64(size))
        asking = builder.sdiv(asked, INT64(LISTED)) if shape.bits < WIDE else INT64(0)
        asked = builder.mul(asking, INT64(LISTED))
        done = builder.sub(count, builder.mul(trips, INT64(size)))
        lines = shape.vectors * shape.columns
        list_of_c = builder.alloca(ir.ArrayType(INT64, lines + 1))
        list_of_c.align = LINE
        room: ir.Value = builder.ptrtoint(list_of_c, INT64)
        builder.store(tile.frame, vectors.pointer(builder, room, 8 * lines), align=8)
        awaits = _awaits_c(tile)
        listed = builder.select(awaits, room, builder.add(room, INT64(8 * lines)))
        number = builder.select(awaits, INT64(lines), INT64(0))
        single = builder.sub(done, asked)
        return cls(asking, single, trips, asked, done, awaits, room, listed, number)


def accumulate(
    tile: Tile, read: Reader, count: ir.Value, lengths: Lengths | None
) -> list[ir.Value]:
    """Emit the loop over k and return the sums: for each group its columns, for each its parts.

    Few accumulators would wait for each other's FMAs: then several steps of k have sets of
    their own, which are added up in the end.

    Parameters
    ----------
    tile
        The kernel.
    read
        What `reader` returned for it.
    count
        Steps, an `INT64`.
    lengths
        Of the loop, if it is unrolled.

    Examples
    --------
    `microkernel.emit` calls it:

    >>> from tilesolve.kernels.microkernel import emit
    >>> from tilesolve.kernels.shape import Shape
    >>> text = str(emit(ir.Module(), Shape("float64", 256, 2, 6, 4, packed=True), native=256))
    >>> "llvm.fmuladd.v4f64" in text
    True
    """
    builder, shape = tile.builder, tile.shape
    if lengths is not None:
        return _unrolled(tile, read, lengths, tile.zeros())
    with builder.if_then(_awaits_c(tile), likely=True):
        for line in _lines_of_c(tile):
            vectors.prefetch(builder, vectors.pointer(builder, line), write=True)
    if shape.packed or shape.complex or shape.bits >= WIDE:
        return _steps(tile, read, INT64(0), count, tile.zeros())
    # What only reading columns in place asks for would take a third of the time of short steps.
    in_place = builder.icmp_signed("!=", tile.field("b_ahead"), INT64(0))
    asking = builder.select(in_place, count, INT64(0))
    sums = _steps(tile, read, INT64(0), asking, tile.zeros())
    return _steps(tile, partial(read, listed=False), asking, count, sums)


def _steps(
    tile: Tile, read: Reader, begin: ir.Value, end: ir.Value, sums: list[ir.Value]
) -> list[ir.Value]:
    """Emit a loop over some steps, with as many sets of sums as keep the FMAs busy."""
    builder, shape = tile.builder, tile.shape
    sets, size = pending(shape), shape.accumulators

    def step(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        return multiply(tile, [read(trip)], values)

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
    total, *others = parts(vectors.loop(builder, whole, carried, steps))
    if sets == 1:
        return total
    for other in others:
        total = [builder.fadd(x, y) for x, y in zip(total, other, strict=True)]
    done = builder.add(begin, builder.mul(whole, INT64(sets)))
    return vectors.loop(
        builder,
        builder.sub(end, done),
        total,
        lambda trip, values: step(builder.add(done, trip), values),
    )


def _unrolled(tile: Tile, read: Reader, lengths: Lengths, sums: list[ir.Value]) -> list[ir.Value]:
    """Emit the steps that ask for what ``fetch`` lists, then several a trip, with a line of C each.

    What fills no trip comes between them.
    """
    builder, size = tile.builder, trip_steps(tile.shape)
    with builder.if_then(lengths.awaits, likely=True):
        for number, line in enumerate(_lines_of_c(tile)):
            builder.store(line, vectors.pointer(builder, lengths.room, 8 * number), align=8)

    def asks(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = _begin(tile, builder.mul(trip, INT64(LISTED)))
        for at in range(LISTED):
            now = read(begin, at, follow=_follows(tile, at), few=False)
            values = multiply(tile, [now], values)
        return values

    def single(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        return multiply(tile, [read(_begin(tile, builder.add(lengths.asked, trip)))], values)

    def steps(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        begin = _begin(tile, builder.add(lengths.done, builder.mul(trip, INT64(size))))
        last = lengths.lines
        number = builder.select(builder.icmp_signed("<", trip, last), trip, last)
        line = tile.integer(lengths.listed, builder.mul(number, INT64(8)))
        vectors.prefetch(builder, vectors.pointer(builder, line))
        for at in range(size):
            now = read(begin, at, follow=_follows(tile, at), listed=False)
            values = multiply(tile, [now], values)
        return values

    if tile.shape.bits < WIDE:
        sums = vectors.loop(builder, lengths.asking, sums, asks)
    sums = vectors.loop(builder, lengths.single, sums, single)
    return vectors.loop(builder, lengths.trips, sums, steps)


def _begin(tile: Tile, step: ir.Value) -> ir.Value:
    """Return the number of a trip's first step as narrow kernels count with it.

    LLVM would keep an address for each stream and add to all of them in every trip.
    """
    return vectors.opaque(tile.builder, step) if tile.shape.bits < WIDE else step


def _follows(tile: Tile, at: int) -> bool:
    """Return whether a step of a trip begins a line of the rows that are next."""
    return at * tile.parts * tile.shape.bits // 8 % LINE == 0


def _awaits_c(tile: Tile) -> ir.Value:
    """Return whether C is worth asking for: not what streaming stores drop from the caches."""
    builder = tile.builder
    far = builder.icmp_signed(">=", tile.field("k"), INT64(FAR))
    streams = builder.icmp_signed("==", tile.field("mode"), INT64(int(Mode.STREAM)))
    return builder.and_(far, builder.not_(streams))


def _lines_of_c(tile: Tile) -> list[ir.Value]:
    """Return the addresses of all vectors of C."""
    builder, shape = tile.builder, tile.shape
    c, rows_c, columns_c = tile.field("c"), tile.field("rows_c"), tile.field("columns_c")
    rows = [builder.add(c, tile.integer(rows_c, 8 * shape.lanes * i)) for i in range(shape.vectors)]
    columns = [tile.integer(columns_c, 8 * column) for column in range(shape.columns)]
    return [builder.add(row, column) for column in columns for row in rows]


def reader(tile: Tile) -> Reader:
    """Return what emits the loads of a step of k, with the prefetches that go with them.

    Examples
    --------
    >>> from tilesolve.kernels.shape import Shape
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> rows, columns = reader(Tile(builder, shape, function.args[0], 256))(INT64(0))
    >>> len(rows), len(columns)
    (2, 6)
    """
    return _packed(tile) if tile.shape.packed else _placed(tile)


def _packed(tile: Tile) -> Reader:
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    a_step, b_step, soon = (tile.field(name) for name in ("a_step", "b_step", "next_a"))
    wanted, fetches = tile.field("fetch"), tile.field("fetches")
    rows = [a]
    for _ in range(1, shape.vectors):
        rows.append(builder.add(rows[-1], a_step))
    groups = [b]
    for _ in range(1, -(-shape.columns // shape.group)):
        groups.append(builder.add(groups[-1], b_step))
    stride_a = tile.parts * shape.bits // 8
    stride_b = shape.group * tile.element
    from_memory = folded(shape)

    def read(
        step: ir.Value,
        beyond: int = 0,
        *,
        follow: bool = True,
        listed: bool = True,
        few: bool = True,
    ) -> Operands:
        # What is constant stands apart, so that all steps of a trip share the other part.
        at_a = builder.mul(step, INT64(stride_a))
        at_b = builder.mul(step, INT64(stride_b))

        def place(base: ir.Value) -> ir.Value:
            return builder.add(builder.add(base, at_a), INT64(beyond * stride_a))

        if follow:
            vectors.prefetch(builder, vectors.pointer(builder, place(soon)), near=False)
        if listed:
            number, more = step, 8 * beyond
            if few:
                number, more = builder.add(step, INT64(beyond)), 0
                number = builder.select(builder.icmp_signed("<", number, fetches), number, fetches)
            entry = builder.add(wanted, builder.mul(number, INT64(8)))
            line = tile.integer(entry, more)
            vectors.prefetch(builder, vectors.pointer(builder, line), near=False)
        loaded = [
            _group(tile, place(row), kind, held=at >= from_memory)
            for at, (row, kind) in enumerate(zip(rows, tile.kinds, strict=True))
        ]
        columns = [
            (
                builder.add(groups[c // shape.group], at_b),
                c % shape.group * tile.element + beyond * stride_b,
            )
            for c in range(shape.columns)
        ]
        return loaded, columns

    return read


def _group(tile: Tile, place: ir.Value, kind: ir.VectorType, *, held: bool) -> Rows:
    """Return the vectors of a group of rows: loaded once, or anew for each column."""

    def load() -> list[ir.Value]:
        return tile.unpacked(place, tile.shape.bits // 8, kind=kind)

    return _held(load()) if held else load


def _held(found: list[ir.Value]) -> Rows:
    return lambda: found


def _placed(tile: Tile) -> Reader:
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    rows_a, columns_b = tile.field("rows_a"), tile.field("columns_b")
    sums_a, sums_b = tile.field("sums_a"), tile.field("sums_b")
    a_ahead, b_ahead = tile.field("a_ahead"), tile.field("b_ahead")
    rows = [builder.add(a, tile.integer(rows_a, 8 * shape.lanes * i)) for i in range(shape.vectors)]
    columns = [builder.add(b, tile.integer(columns_b, 8 * c)) for c in range(shape.columns)]
    each = max(1, LINE // (tile.parts * shape.bits // 8))
    turns = builder.select(_close(tile, sums_b), INT64(8 * (shape.group - 1)), INT64(0))

    def read(
        step: ir.Value,
        beyond: int = 0,
        *,
        follow: bool = True,
        listed: bool = True,
        few: bool = True,
    ) -> Operands:
        at = builder.mul(builder.add(step, INT64(beyond)), INT64(8))
        at_a, at_b = tile.integer(sums_a, at), tile.integer(sums_b, at)
        places = [builder.add(row, at_a) for row in rows]
        loaded = [_held(tile.unpacked(place, 1)) for place in places]
        place_b = builder.add(b, at_b)
        scalars = [(builder.add(column, at_b), 0) for column in columns]
        if follow:
            for place in places[::each]:
                _prefetch(tile, builder.add(place, a_ahead))
        if listed:
            turn = builder.and_(at, turns)
            for first in range(0, shape.columns, shape.group):
                last = 8 * (min(shape.columns - first, shape.group) - 1)
                entry = turn
                if last < 8 * (shape.group - 1):
                    entry = builder.select(
                        builder.icmp_signed("<", turn, INT64(last)), turn, INT64(last)
                    )
                column = tile.integer(builder.add(columns_b, INT64(8 * first)), entry)
                _prefetch(tile, builder.add(builder.add(place_b, column), b_ahead))
        return loaded, scalars

    return read


def _close(tile: Tile, sums: ir.Value) -> ir.Value:
    """Return whether steps of k are within a line of an operand in place, given their offsets.

    Then columns are in lines of their own, and take turns in being asked for while k is in one.
    """
    builder = tile.builder
    several = builder.icmp_signed(">", tile.field("k"), INT64(1))
    table = builder.select(several, sums, tile.frame)
    second = builder.select(several, builder.add(sums, INT64(8)), tile.frame)
    step = builder.sub(tile.integer(second, INT64(0)), tile.integer(table, INT64(0)))
    return builder.icmp_unsigned("<", builder.add(step, INT64(LINE)), INT64(2 * LINE))


def _prefetch(tile: Tile, address: ir.Value) -> None:
    vectors.prefetch(tile.builder, vectors.pointer(tile.builder, address))


def multiply(
    tile: Tile,
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

    >>> from tilesolve.kernels.shape import Shape
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> tile = Tile(builder, Shape("float64", 256, 2, 3, 4, packed=True), function.args[0], 256)
    >>> read, sums = reader(tile), tile.zeros()
    >>> order = []
    >>> new = multiply(tile, [read(INT64(0))], sums, lambda column, _: order.append(column))
    >>> len(new), order
    (6, [0, 1, 2])
    """
    builder, size = tile.builder, tile.parts
    found = list(sums)
    for number in range(tile.shape.columns):
        for rows, columns in steps:
            address, offset = columns[number]
            parts = [
                vectors.broadcast(builder, tile.number(address, offset + i * tile.size), tile.kind)
                for i in range(size)
            ]
            for at, group in zip(tile.places(number), rows, strict=True):
                row = group()
                found[at] = tile.fma(row[0], tile.narrowed(parts[0], row[0].type), found[at])
                if size == 2:
                    found[at + 1] = tile.fma(row[0], parts[1], found[at + 1])
                    found[at] = tile.fms(row[1], parts[1], found[at])
                    found[at + 1] = tile.fma(row[1], parts[0], found[at + 1])
        values = tile.column(found, number)
        # LLVM would load all columns first, and spill accumulators to find room for them.
        if tile.ordered:
            vectors.after(builder, [part for group in values for part in group])
        done(number, values)
    return found
