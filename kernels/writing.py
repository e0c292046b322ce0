"""Writing: the part of a microkernel that scales its sums and brings them to C."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels import vectors
from tilesolve.kernels.shape import FIELDS, Mode
from tilesolve.kernels.tile import Tile
from tilesolve.kernels.vectors import INT64


def write(tile: Tile, sums: list[ir.Value]) -> None:
    """Emit the ways of writing C, and the choice between them.

    Examples
    --------
    `microkernel.emit` calls it:

    >>> from tilesolve.kernels.microkernel import emit
    >>> from tilesolve.kernels.shape import Shape
    >>> text = str(emit(ir.Module(), Shape("float64", 256, 2, 6, 4, packed=True), native=256))
    >>> "!nontemporal" in text
    True
    """
    builder, function = tile.builder, tile.builder.function
    scaled = _scaled(tile, sums)
    mode = tile.field("mode")
    end = function.append_basic_block("end")
    scattered = function.append_basic_block("scattered")
    choice = builder.switch(mode, scattered)
    for way in (Mode.STORE, Mode.ADD, Mode.STREAM, Mode.PART, Mode.PART_ADD):
        block = function.append_basic_block(way.name.lower())
        choice.add_case(INT64(int(way)), block)
        builder.position_at_end(block)
        _vectors(tile, scaled, way)
        builder.branch(end)
    builder.position_at_end(scattered)
    _scatter(tile, scaled, builder.icmp_signed("==", mode, INT64(int(Mode.SCATTER_ADD))))
    builder.branch(end)
    builder.position_at_end(end)


def _scaled(tile: Tile, sums: list[ir.Value]) -> list[ir.Value]:
    """Emit the product with alpha, which is skipped where alpha is one, as it mostly is."""
    builder = tile.builder
    before = builder.block
    with builder.if_then(builder.not_(_plain(tile))):
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


def _plain(tile: Tile) -> ir.Value:
    """Return whether alpha is one."""
    builder = tile.builder
    real, imaginary = (
        tile.number(tile.frame, 8 * FIELDS.index(name)) for name in ("alpha", "alpha_imaginary")
    )
    plain = builder.fcmp_ordered("==", real, ir.Constant(tile.scalar, 1.0))
    if tile.parts == 1:
        return plain
    zero = ir.Constant(tile.scalar, 0.0)
    return builder.and_(plain, builder.fcmp_ordered("==", imaginary, zero))


def _factor(tile: Tile, name: str) -> list[ir.Value]:
    names = (name, f"{name}_imaginary")[: tile.parts]
    return [
        vectors.broadcast(tile.builder, tile.number(tile.frame, 8 * FIELDS.index(field)), tile.kind)
        for field in names
    ]


def _product(tile: Tile, x: list[ir.Value], y: list[ir.Value]) -> list[ir.Value]:
    multiply = tile.builder.fmul
    return [
        tile.fms(x[1], y[1], multiply(x[0], y[0])),
        tile.fma(x[1], y[0], multiply(x[0], y[1])),
    ]


def _vectors(tile: Tile, values: list[ir.Value], way: Mode) -> None:
    builder, shape = tile.builder, tile.shape
    c, rows_c, columns_c = tile.field("c"), tile.field("rows_c"), tile.field("columns_c")
    adding, streaming = way in (Mode.ADD, Mode.PART_ADD), way is Mode.STREAM
    beta = _factor(tile, "beta") if adding else []
    rows = [builder.add(c, tile.integer(rows_c, 8 * shape.lanes * i)) for i in range(shape.vectors)]
    last = _last_group(tile) if way in (Mode.PART, Mode.PART_ADD) else None
    for column in range(shape.columns):
        offset = tile.integer(columns_c, 8 * column)
        for i in range(shape.vectors):
            masks = last if i == shape.vectors - 1 else None
            at = (i * shape.columns + column) * tile.parts
            value = values[at : at + tile.parts]
            place = builder.add(rows[i], offset)
            if adding:
                value = _sum(tile, beta, tile.unpacked(place, 1, masks), value)
            for part, vector in enumerate(tile.interleaved(value)):
                where = vectors.pointer(builder, place, part * shape.bits // 8)
                if masks:
                    vectors.store_part(builder, vector, where, masks[part])
                else:
                    aligned = shape.bits // 8 if streaming else 1
                    vectors.store(builder, vector, where, aligned, streaming=streaming)


def _last_group(tile: Tile) -> list[ir.Value]:
    """Return for each vector of the last group which of its numbers belong to rows of C."""
    builder, shape = tile.builder, tile.shape
    rows = builder.sub(tile.field("rows"), INT64(shape.rows - shape.lanes))
    numbers = builder.mul(rows, INT64(tile.parts))
    return [
        vectors.first_lanes(builder, tile.kind, builder.sub(numbers, INT64(part * shape.lanes)))
        for part in range(tile.parts)
    ]


def _sum(
    tile: Tile, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    """Return ``beta * old + new``."""
    found = [tile.fma(beta[0], x, y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = tile.fms(beta[1], old[1], found[0])
        found[1] = tile.fma(beta[1], old[0], found[1])
    return found


def _scatter(tile: Tile, values: list[ir.Value], adding: ir.Value) -> None:
    """Emit the way through a scratch tile, an element at a time."""
    builder, shape = tile.builder, tile.shape
    column_bytes = shape.rows * tile.element
    with builder.goto_entry_block():
        room = builder.alloca(ir.ArrayType(ir.IntType(8), column_bytes * shape.columns))
        room.align = 64
    scratch = builder.ptrtoint(room, INT64)
    for column in range(shape.columns):
        for i in range(shape.vectors):
            at = (i * shape.columns + column) * tile.parts
            value = values[at : at + tile.parts]
            base = column * column_bytes + i * shape.lanes * tile.element
            for part, vector in enumerate(tile.interleaved(value)):
                where = vectors.pointer(builder, scratch, base + part * shape.bits // 8)
                vectors.store(builder, vector, where, tile.size)
    c, rows_c, columns_c = tile.field("c"), tile.field("rows_c"), tile.field("columns_c")
    rows = tile.field("rows")
    beta = [
        tile.number(tile.frame, 8 * FIELDS.index(name))
        for name in ("beta", "beta_imaginary")[: tile.parts]
    ]

    def element(row: ir.Value, column: ir.Value) -> None:
        spot = builder.add(
            builder.mul(column, INT64(column_bytes)), builder.mul(row, INT64(tile.element))
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
        vectors.each(builder, rows, lambda row: element(row, column))

    vectors.each(builder, INT64(shape.columns), in_column)


def _scalar_sum(
    tile: Tile, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    builder = tile.builder
    found = [builder.fadd(builder.fmul(beta[0], x), y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = builder.fsub(found[0], builder.fmul(beta[1], old[1]))
        found[1] = builder.fadd(found[1], builder.fmul(beta[1], old[0]))
    return found


def _put(tile: Tile, parts: list[ir.Value], place: ir.Value) -> None:
    for i, part in enumerate(parts):
        where = vectors.pointer(tile.builder, place, i * tile.size)
        tile.builder.store(part, where, align=1)
