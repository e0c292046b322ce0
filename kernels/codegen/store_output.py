"""Writing: the part of a microkernel that scales its sums and brings them to C.

All stores of a tile at once fill the CPU's queue of stores, and what follows has to wait: that
takes 40 to 60 cycles a tile on Zen 4. So whole vectors are mostly *woven* into the last steps of k,
each column's stores between the FMAs of the columns beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.accumulate import multiply_steps
from tilesolve.kernels.codegen.emitter import TileEmitter
from tilesolve.kernels.codegen.load_operands import StepLoader
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.codegen.vectors import INT64
from tilesolve.kernels.tuning import MIN_INTERLEAVED_VECTORS, NEXT_PANEL_LINES, WIDE_VECTOR_BITS
from tilesolve.packing.sizes import LINE_BYTES

WHOLE_VECTOR_MODES = (Mode.STORE, Mode.ADD, Mode.STREAM)
"""Modes that write whole vectors."""


def interleaved_steps(shape: Shape) -> int:
    """Return how many steps of k a kernel's stores are woven into; none where that gains nothing.

    Vectors of 256 bits are stored in half the time, and small tiles have few: with and without,
    measured in turns, differed by less than two cycles. Kernels that read in place wait for their
    operands. For large tiles two and three steps were best; with three groups of rows two lost
    what they gain elsewhere.

    Examples
    --------
    >>> interleaved_steps(Shape("float64", 512, 3, 8, 8, packed=True))
    3
    >>> interleaved_steps(Shape("float64", 256, 2, 6, 4, packed=True))
    0
    """
    if (
        not shape.packed
        or shape.halved
        or shape.bits < WIDE_VECTOR_BITS
        or shape.accumulators < MIN_INTERLEAVED_VECTORS
    ):
        return 0
    return 3 if shape.vectors == 3 else 2


def needs_scaling(tile: TileEmitter) -> ir.Value:
    """Return whether alpha is not one, as an integer that is not 0.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> print(needs_scaling(TileEmitter(builder, shape, function.args[0], 256)).type)
    i64
    """
    builder = tile.builder
    real, imaginary = (
        tile.number(tile.frame, 8 * FIELDS.index(name)) for name in ("alpha", "alpha_imaginary")
    )
    plain = builder.fcmp_ordered("==", real, ir.Constant(tile.scalar, 1.0))
    if tile.parts == 2:
        zero = ir.Constant(tile.scalar, 0.0)
        plain = builder.and_(plain, builder.fcmp_ordered("==", imaginary, zero))
    # LLVM would compare again for each tile.
    return vectors.hide_origin(builder, builder.zext(builder.not_(plain), INT64))


def steps_kept_back(tile: TileEmitter, scaling: ir.Value) -> ir.Value:
    """Return how many of the last steps of k `write_interleaved` computes: all of its own or none.

    It writes whole vectors that are not scaled.

    Parameters
    ----------
    tile
        The kernel.
    scaling
        What `needs_scaling` returned for it.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 512, 3, 8, 8, packed=True)
    >>> tile = TileEmitter(builder, shape, function.args[0], 512)
    >>> print(steps_kept_back(tile, needs_scaling(tile)).type)
    i64
    """
    builder, steps = tile.builder, INT64(interleaved_steps(tile.shape))
    whole = builder.icmp_unsigned("<=", tile.field("mode"), INT64(int(max(WHOLE_VECTOR_MODES))))
    enough = builder.icmp_signed(">=", tile.field("k"), steps)
    plain = builder.icmp_unsigned("==", scaling, INT64(0))
    able = builder.and_(builder.and_(whole, enough), plain)
    return builder.select(able, steps, INT64(0))


def write_interleaved(
    tile: TileEmitter, read: StepLoader, first: ir.Value, sums: list[ir.Value]
) -> None:
    """Emit the last steps of k, writing each column of whole vectors as soon as it is summed.

    Parameters
    ----------
    tile
        The kernel.
    read
        What `operands.reader` returned for it.
    first
        Number of the first of these steps.
    sums
        Of all steps before.

    Examples
    --------
    `microkernel.emit` calls it:

    >>> from tilesolve.kernels.codegen.microkernel import emit_microkernel
    >>> shape = Shape("float64", 512, 3, 8, 8, packed=True)
    >>> text = str(emit_microkernel(ir.Module(), shape, native=512))
    >>> text.count("!nontemporal")  # here and in `write_tile`
    48
    """
    builder, function = tile.builder, tile.builder.function
    end = function.append_basic_block("woven")
    usual, *others = [
        function.append_basic_block(f"weave_{way.name.lower()}") for way in WHOLE_VECTOR_MODES
    ]
    choice = builder.switch(tile.field("mode"), usual)
    for way, block in zip(WHOLE_VECTOR_MODES, (usual, *others), strict=True):
        if block is not usual:
            choice.add_case(INT64(int(way)), block)
        builder.position_at_end(block)
        if way is Mode.STREAM:
            with builder.if_then(builder.icmp_signed("!=", tile.field("entering"), INT64(0))):
                _bring_next(tile)
        steps = [read(builder.add(first, INT64(i))) for i in range(interleaved_steps(tile.shape))]
        multiply_steps(tile, steps, sums, _columns(tile, way))
        builder.branch(end)
    builder.position_at_end(end)


def _bring_next(tile: TileEmitter) -> None:
    """Emit what asks for the first lines of the strips that the next tile of a call has anew."""
    builder, shape = tile.builder, tile.shape
    a, b = (builder.add(tile.field(name), tile.field(f"{name}_move")) for name in "ab")
    moves = builder.icmp_signed("!=", tile.field("b_move"), INT64(0))
    with builder.if_else(moves, likely=True) as (columns, rows):
        with columns:
            _ask_for(tile, b, tile.field("b_step"), -(-shape.columns // shape.group))
        with rows:
            _ask_for(tile, a, tile.field("a_step"), shape.vectors)


def _ask_for(tile: TileEmitter, strip: ir.Value, step: ir.Value, strips: int) -> None:
    """Emit prefetches of the first lines of some strips, so many bytes apart."""
    places = [strip]
    for _ in range(1, strips):
        places.append(tile.builder.add(places[-1], step))
    for line in range(NEXT_PANEL_LINES):
        for place in places:
            vectors.prefetch(
                tile.builder, vectors.to_pointer(tile.builder, place, LINE_BYTES * line)
            )


def write_tile(tile: TileEmitter, sums: list[ir.Value], scaling: ir.Value) -> None:
    """Emit the ways of writing C once all is summed, and the choice between them.

    Parameters
    ----------
    tile
        The kernel.
    sums
        Of all steps.
    scaling
        What `needs_scaling` returned for it.

    Examples
    --------
    `microkernel.emit` calls it:

    >>> from tilesolve.kernels.codegen.microkernel import emit_microkernel
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> text = str(emit_microkernel(ir.Module(), shape, native=256))
    >>> "!nontemporal" in text
    True
    """
    builder, function = tile.builder, tile.builder.function
    scaled = _scaled(tile, tile.whole(sums), scaling)
    mode = tile.field("mode")
    end = function.append_basic_block("end")
    otherwise = function.append_basic_block("otherwise")
    choice = builder.switch(mode, otherwise)
    for way in () if tile.shape.halved else WHOLE_VECTOR_MODES:
        block = function.append_basic_block(way.name.lower())
        choice.add_case(INT64(int(way)), block)
        builder.position_at_end(block)
        put = _columns(tile, way)
        for column in range(tile.shape.columns):
            put(column, tile.column(scaled, column))
        builder.branch(end)
    part = function.append_basic_block("part")
    choice.add_case(INT64(int(Mode.PART)), part)
    builder.position_at_end(part)
    _part(tile, scaled)
    builder.branch(end)
    builder.position_at_end(otherwise)
    scratch = _scratch(tile, scaled)
    adding = builder.icmp_signed("==", mode, INT64(int(Mode.PART_ADD)))
    with builder.if_else(adding) as (parts, elements):
        with parts:
            _part_add(tile, scratch)
        with elements:
            _scatter(tile, scratch, builder.icmp_signed("==", mode, INT64(int(Mode.SCATTER_ADD))))
    builder.branch(end)
    builder.position_at_end(end)


def _scaled(tile: TileEmitter, sums: list[ir.Value], scaling: ir.Value) -> list[ir.Value]:
    """Emit the product with alpha, which is skipped where alpha is one, as it mostly is."""
    builder = tile.builder
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", scaling, INT64(0)), likely=False):
        alpha = _factor(tile, "alpha")
        found: list[ir.Value] = []
        if tile.parts == 1:
            found = [builder.fmul(x, alpha[0]) for x in sums]
        else:
            for real, imaginary in zip(sums[::2], sums[1::2], strict=True):
                found += _product(tile, alpha, [real, imaginary])
        scaled = builder.block
    chosen = []
    for old, new in zip(sums, found, strict=True):
        phi = builder.phi(tile.kind)
        phi.add_incoming(old, before)
        phi.add_incoming(new, scaled)
        chosen.append(phi)
    return chosen


def _factor(tile: TileEmitter, name: str) -> list[ir.Value]:
    names = (name, f"{name}_imaginary")[: tile.parts]
    return [
        vectors.broadcast(tile.builder, tile.number(tile.frame, 8 * FIELDS.index(field)), tile.kind)
        for field in names
    ]


def _product(tile: TileEmitter, x: list[ir.Value], y: list[ir.Value]) -> list[ir.Value]:
    multiply = tile.builder.fmul
    return [
        tile.fms(x[1], y[1], multiply(x[0], y[0])),
        tile.fma(x[1], y[0], multiply(x[0], y[1])),
    ]


def _columns(tile: TileEmitter, way: Mode) -> Callable[[int, list[list[ir.Value]]], None]:
    """Return what emits the writing of one column, given the parts of each of its groups."""
    builder, shape = tile.builder, tile.shape
    rows, columns_c = tile.rows_of_c(), tile.field("columns_c")
    beta = _factor(tile, "beta") if way is Mode.ADD else []
    aligned = shape.bits // 8 if way is Mode.STREAM else 1

    def put(column: int, values: list[list[ir.Value]]) -> None:
        offset = tile.integer(columns_c, 8 * column)
        for row, value in zip(rows, values, strict=True):
            place = builder.add(row, offset)
            if way is Mode.ADD:
                value = _sum(tile, beta, tile.unpacked(place, 1), value)
            for part, vector in enumerate(tile.interleaved(value)):
                where = vectors.to_pointer(builder, place, part * shape.bits // 8)
                vectors.store(builder, vector, where, aligned, streaming=way is Mode.STREAM)

    return put


def _sum(
    tile: TileEmitter, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    """Return ``beta * old + new``."""
    found = [tile.fma(beta[0], x, y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = tile.fms(beta[1], old[1], found[0])
        found[1] = tile.fma(beta[1], old[0], found[1])
    return found


def _scratch(tile: TileEmitter, values: list[ir.Value]) -> ir.Value:
    """Emit stores of the tile, column by column, to memory of its own; return its address.

    What is read from there is written by a loop: code for cells at edges, straight as that for
    whole ones, would make compilation a third longer.
    """
    builder, shape = tile.builder, tile.shape
    with builder.goto_entry_block():
        room = builder.alloca(ir.ArrayType(ir.IntType(8), _column_bytes(tile) * shape.columns))
        room.align = 64
    scratch: ir.Value = builder.ptrtoint(room, INT64)
    for column in range(shape.columns):
        for i, value in enumerate(tile.column(values, column)):
            base = column * _column_bytes(tile) + i * shape.lanes * tile.element
            for part, vector in enumerate(tile.interleaved(value)):
                where = vectors.to_pointer(builder, scratch, base + part * shape.bits // 8)
                vectors.store(builder, vector, where, shape.bits // 8)
    return scratch


def _column_bytes(tile: TileEmitter) -> int:
    return tile.shape.rows * tile.element


def _part(tile: TileEmitter, values: list[ir.Value]) -> None:
    """Emit the writing of a tile in vectors, of which the last in a column has a mask."""
    builder, shape, masks = tile.builder, tile.shape, _last_masks(tile)
    rows = tile.rows_of_c()
    for column in range(shape.columns):
        offset = tile.integer(tile.field("columns_c"), 8 * column)
        for i, value in enumerate(tile.column(values, column)):
            last = masks if i == shape.vectors - 1 else ()
            _put_part(tile, tile.interleaved(value), builder.add(rows[i], offset), last)


def _part_add(tile: TileEmitter, scratch: ir.Value) -> None:
    """Emit the same of a scratch tile, which is added to C."""
    builder, shape, masks = tile.builder, tile.shape, _last_masks(tile)
    rows, beta = tile.rows_of_c(), _factor(tile, "beta")

    def in_column(column: ir.Value) -> None:
        offset = tile.integer(tile.field("columns_c"), builder.mul(column, INT64(8)))
        spot = builder.add(scratch, builder.mul(column, INT64(_column_bytes(tile))))
        for i, row in enumerate(rows):
            last = masks if i == shape.vectors - 1 else ()
            source = builder.add(spot, INT64(i * shape.lanes * tile.element))
            new = tile.unpacked(source, shape.bits // 8)
            place = builder.add(row, offset)
            values = _sum(tile, beta, tile.unpacked(place, 1, last), new)
            _put_part(tile, tile.interleaved(values), place, last)

    vectors.repeat(builder, INT64(shape.columns), in_column)


def _last_masks(tile: TileEmitter) -> list[ir.Value]:
    """Return masks of the rows that there are of the last group: one for each of its vectors."""
    builder, shape = tile.builder, tile.shape
    rows = builder.sub(tile.field("rows"), INT64(shape.rows - shape.lanes))
    numbers = builder.mul(rows, INT64(tile.parts))
    return [
        vectors.mask_first_lanes(
            builder, tile.kind, builder.sub(numbers, INT64(part * shape.lanes))
        )
        for part in range(tile.parts)
    ]


def _put_part(
    tile: TileEmitter, parts: Sequence[ir.Value], place: ir.Value, masks: Sequence[ir.Value]
) -> None:
    """Store the vectors of a group of rows, each with its mask if there are any."""
    builder = tile.builder
    for part, vector in enumerate(parts):
        where = vectors.to_pointer(builder, place, part * tile.shape.bits // 8)
        if masks:
            vectors.store_masked(builder, vector, where, masks[part])
        else:
            vectors.store(builder, vector, where, 1)


def _scatter(tile: TileEmitter, scratch: ir.Value, adding: ir.Value) -> None:
    """Emit the way from a scratch tile an element at a time."""
    builder, shape = tile.builder, tile.shape
    c, rows_c, columns_c = tile.field("c"), tile.field("rows_c"), tile.field("columns_c")
    rows = tile.field("rows")
    beta = [
        tile.number(tile.frame, 8 * FIELDS.index(name))
        for name in ("beta", "beta_imaginary")[: tile.parts]
    ]

    def element(row: ir.Value, column: ir.Value) -> None:
        spot = builder.add(
            builder.mul(column, INT64(_column_bytes(tile))), builder.mul(row, INT64(tile.element))
        )
        new = [tile.number(builder.add(scratch, spot), i * tile.size) for i in range(tile.parts)]
        place = builder.add(
            builder.add(c, tile.integer(rows_c, builder.mul(row, INT64(8)))),
            tile.integer(columns_c, builder.mul(column, INT64(8))),
        )
        with builder.if_else(adding) as (then, otherwise):
            with then:
                old = [tile.number(place, i * tile.size) for i in range(tile.parts)]
                _put(tile, _scalar_sum(tile, beta, old, new), place)
            with otherwise:
                _put(tile, new, place)

    def in_column(column: ir.Value) -> None:
        vectors.repeat(builder, rows, lambda row: element(row, column))

    vectors.repeat(builder, INT64(shape.columns), in_column)


def _scalar_sum(
    tile: TileEmitter, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    builder = tile.builder
    found = [builder.fadd(builder.fmul(beta[0], x), y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = builder.fsub(found[0], builder.fmul(beta[1], old[1]))
        found[1] = builder.fadd(found[1], builder.fmul(beta[1], old[0]))
    return found


def _put(tile: TileEmitter, parts: list[ir.Value], place: ir.Value) -> None:
    for i, part in enumerate(parts):
        where = vectors.to_pointer(tile.builder, place, i * tile.size)
        tile.builder.store(part, where, align=1)
