"""Output: the part of a microkernel that scales its sums and writes them to C.

All stores of a tile at once fill the CPU's store buffer, and what follows has to wait. So stores of
whole vectors are mostly *interleaved* with the last steps of k, each column's stores between the
FMAs of the columns beside it. Measurements behind it are in docs/decisions/041.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.accumulate import multiply_steps
from tilesolve.kernels.codegen.load_operands import StepLoader
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.codegen.tile_emitter import TileEmitter
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.choices import choose
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, VECTOR_BYTES, WORD_BYTES

WHOLE_VECTOR_MODES = (Mode.STORE, Mode.ADD, Mode.STREAM)
"""Modes that write whole vectors from registers."""


def interleaved_steps(shape: Shape) -> int:
    """Return how many steps of k stores are interleaved with; 0 where that gains nothing.

    Narrow vectors are stored in half the time, small tiles have few stores, and kernels that read
    in place wait for their operands.

    Examples
    --------
    >>> interleaved_steps(Shape("float64", 512, 3, 8, 8, packed=True))
    3
    >>> interleaved_steps(Shape("float64", 256, 2, 6, 4, packed=True))
    0
    """
    wide = shape.bits >= tuning.WIDE_VECTOR_BITS
    many = shape.accumulators >= tuning.MIN_INTERLEAVED_VECTORS
    if not (shape.packed and not shape.halved and wide and many):
        return 0
    three = shape.vectors == 3
    return tuning.INTERLEAVED_STEPS_OF_3_VECTORS if three else tuning.INTERLEAVED_STEPS


def needs_scaling(tile: TileEmitter) -> ir.Value:
    """Emit the test whether alpha is not one, and return an integer that is not 0 then."""
    builder = tile.builder
    real, imaginary = (
        tile.load_real(tile.frame, WORD_BYTES * FIELDS.index(name))
        for name in ("alpha", "alpha_imaginary")
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
    """
    builder, steps = tile.builder, INT64(interleaved_steps(tile.shape))
    last_mode = INT64(int(Mode.STREAM_PIECES))
    whole = builder.icmp_unsigned("<=", tile.field("mode"), last_mode)
    enough = builder.icmp_signed(">=", tile.field("k"), steps)
    plain = builder.icmp_unsigned("==", scaling, INT64(0))
    able = builder.and_(builder.and_(whole, enough), plain)
    return builder.select(able, steps, INT64(0))


def write_interleaved(
    tile: TileEmitter, load: StepLoader, first: ir.Value, sums: list[ir.Value]
) -> None:
    """Emit the last steps of k, writing each column of whole vectors as soon as it is summed.

    Parameters
    ----------
    tile
        The kernel.
    load
        Emits the loads of a step.
    first
        Number of the first of these steps.
    sums
        Of all steps before.
    """
    builder, function = tile.builder, tile.builder.function
    end = function.append_basic_block("interleaved")
    usual, *others = [
        function.append_basic_block(f"interleaved_{mode.name.lower()}")
        for mode in WHOLE_VECTOR_MODES
    ]
    choice = builder.switch(tile.field("mode"), usual)
    for mode, block in zip(WHOLE_VECTOR_MODES, (usual, *others), strict=True):
        if block is not usual:
            choice.add_case(INT64(int(mode)), block)
        if mode is Mode.STREAM:
            choice.add_case(INT64(int(Mode.STREAM_PIECES)), block)
        builder.position_at_end(block)
        if mode is Mode.STREAM:
            with builder.if_then(builder.icmp_signed("!=", tile.field("prefetch_next"), INT64(0))):
                _prefetch_next_panels(tile)
        count = interleaved_steps(tile.shape)
        steps = [load(builder.add(first, INT64(i))) for i in range(count)]
        multiply_steps(tile, steps, sums, _column_writer(tile, mode))
        builder.branch(end)
    builder.position_at_end(end)


def _prefetch_next_panels(tile: TileEmitter) -> None:
    """Emit prefetches of the first lines of the micro-panels that the call's next tile reads."""
    builder, shape = tile.builder, tile.shape
    a, b = (builder.add(tile.field(name), tile.field(f"{name}_move")) for name in "ab")
    if shape.mixed:
        _prefetch_panels(tile, a, tile.field("a_step"), shape.vectors)
        return
    moves = builder.icmp_signed("!=", tile.field("b_move"), INT64(0))
    with builder.if_else(moves, likely=True) as (columns, rows):
        with columns:
            _prefetch_panels(tile, b, tile.field("b_step"), -(-shape.columns // shape.group))
        with rows:
            _prefetch_panels(tile, a, tile.field("a_step"), shape.vectors)


def _prefetch_panels(tile: TileEmitter, first: ir.Value, step: ir.Value, count: int) -> None:
    """Emit prefetches of the first lines of some micro-panels, so many bytes apart."""
    panels = tile.chain(first, step, count)
    for line in range(tuning.NEXT_PANEL_LINES):
        for panel in panels:
            place = vectors.to_pointer(tile.builder, panel, LINE_BYTES * line)
            vectors.prefetch(tile.builder, place)


def write_tile(tile: TileEmitter, sums: list[ir.Value], scaling: ir.Value) -> None:
    """Emit the modes of writing C once all is summed, and the choice between them.

    Parameters
    ----------
    tile
        The kernel.
    sums
        Of all steps.
    scaling
        What `needs_scaling` returned for it.
    """
    builder, scaled = tile.builder, _scale(tile, tile.widen(sums), scaling)
    mode = tile.field("mode")

    def write_whole(whole: Mode) -> None:
        write_column = _column_writer(tile, whole)
        for column in range(tile.shape.columns):
            write_column(column, tile.column_sums(scaled, column))

    def write_copied() -> None:
        scratch = _store_to_scratch(tile, scaled)
        ways = {int(Mode.PART_ADD): partial(_add_part, tile, scratch)}
        choose(builder, mode, ways, lambda: _scatter(tile, scratch, mode))

    whole = () if tile.shape.halved else WHOLE_VECTOR_MODES
    ways = {int(one): partial(write_whole, one) for one in whole}
    ways[int(Mode.PART)] = partial(_write_part, tile, scaled)
    in_pieces = builder.icmp_signed("==", mode, INT64(int(Mode.STREAM_PIECES)))
    way = builder.select(in_pieces, INT64(int(Mode.STREAM)), mode)  # the same code
    choose(builder, way, ways, write_copied)


def _scale(tile: TileEmitter, sums: list[ir.Value], scaling: ir.Value) -> list[ir.Value]:
    """Emit the product with alpha, which is skipped where alpha is one, as it mostly is."""
    builder = tile.builder
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", scaling, INT64(0)), likely=False):
        alpha = _broadcast_factor(tile, "alpha")
        found: list[ir.Value] = []
        if tile.parts == 1:
            found = [builder.fmul(x, alpha[0]) for x in sums]
        else:
            for real, imaginary in zip(sums[::2], sums[1::2], strict=True):
                found += _complex_product(tile, alpha, [real, imaginary])
        scaled = builder.block
    return _choose(builder, [sums, found], [before, scaled])


def _broadcast_factor(tile: TileEmitter, name: str) -> list[ir.Value]:
    """Return the vectors of the parts of alpha or of beta."""
    found = []
    for field in (name, f"{name}_imaginary")[: tile.parts]:
        part = tile.load_real(tile.frame, WORD_BYTES * FIELDS.index(field))
        found.append(vectors.broadcast(tile.builder, part, tile.kind))
    return found


def _complex_product(tile: TileEmitter, x: list[ir.Value], y: list[ir.Value]) -> list[ir.Value]:
    """Return ``x * y``."""
    multiply = tile.builder.fmul
    return [
        tile.fms(x[1], y[1], multiply(x[0], y[0])),
        tile.fma(x[1], y[0], multiply(x[0], y[1])),
    ]


def _column_writer(tile: TileEmitter, mode: Mode) -> Callable[[int, list[list[ir.Value]]], None]:
    """Return what emits the writing of one column, given the parts of each of its groups."""
    builder, shape = tile.builder, tile.shape
    rows, columns_c = tile.c_row_addresses(), tile.field("columns_c")
    beta = _broadcast_factor(tile, "beta") if mode is Mode.ADD else []
    streams = mode is Mode.STREAM
    in_pieces = builder.icmp_signed("==", tile.field("mode"), INT64(int(Mode.STREAM_PIECES)))

    def write(places: list[ir.Value], values: list[ir.Value], aligned: int) -> None:
        for place, vector in zip(places, values, strict=True):
            vectors.store(builder, vector, place, aligned, non_temporal=streams)

    def write_column(column: int, values: list[list[ir.Value]]) -> None:
        offset = tile.load_integer(columns_c, WORD_BYTES * column)
        places, found, added_to = [], [], tile.added_to(offset) if beta else offset
        for row, value in zip(rows, values, strict=True):
            place = builder.add(row, offset)
            if beta:
                value = _add_to_c(tile, beta, tile.load_rows(builder.add(row, added_to), 1), value)
            for part, vector in enumerate(tile.interleave(value)):
                places.append(vectors.to_pointer(builder, place, part * shape.bits // 8))
                found.append(vector)
        found = _bound(tile, found)
        if not streams:
            write(places, found, 1)
            return
        with builder.if_else(in_pieces, likely=False) as (pieces, whole):
            with pieces:
                write(places, found, VECTOR_BYTES)
            with whole:
                write(places, found, shape.bits // 8)

    return write_column


def _add_to_c(
    tile: TileEmitter, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    """Return ``beta * old + new``, or what a reduction that adds nothing makes of both."""
    if tile.pairs and not tile.pairs.pairing.adds:
        return [tile.join(x, y) for x, y in zip(old, new, strict=True)]
    found = [tile.fma(beta[0], x, y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = tile.fms(beta[1], old[1], found[0])
        found[1] = tile.fma(beta[1], old[0], found[1])
    return found


def _bound(tile: TileEmitter, values: list[ir.Value]) -> list[ir.Value]:
    """Return vectors, or numbers, within the bounds of the frame, if it has some."""
    if not tile.shape.takes_epilogue:
        return values
    builder, bounds = tile.builder, tile.field("bounds")
    ends, found = [builder.block], [values]

    def add_bounded(symbol: str, name: str) -> None:
        bound = tile.load_real(tile.frame, WORD_BYTES * FIELDS.index(name))
        found.append([_take_bound(builder, symbol, x, bound) for x in found[-1]])
        ends.append(builder.block)

    with builder.if_then(builder.icmp_signed("!=", bounds, INT64(0))):
        add_bounded(">", "least")
        with builder.if_then(builder.icmp_signed(">", bounds, INT64(1))):
            add_bounded("<", "largest")
        found[1:] = [_choose(builder, found[1:], ends[1:])]
        ends[1:] = [builder.block]
    return _choose(builder, found, ends)


def _take_bound(builder: ir.IRBuilder, symbol: str, x: ir.Value, bound: ir.Value) -> ir.Value:
    """Return a bound in place of each number that is beyond it."""
    if isinstance(x.type, ir.VectorType):
        bound = vectors.broadcast(builder, bound, x.type)
    return builder.select(builder.fcmp_ordered(symbol, bound, x), bound, x)


def _choose(
    builder: ir.IRBuilder, values: Sequence[list[ir.Value]], blocks: Sequence[ir.Block]
) -> list[ir.Value]:
    """Return the values of the block that came before."""
    chosen = []
    for each in zip(*values, strict=True):
        phi = builder.phi(each[0].type)
        for value, block in zip(each, blocks, strict=True):
            phi.add_incoming(value, block)
        chosen.append(phi)
    return chosen


def _store_to_scratch(tile: TileEmitter, values: list[ir.Value]) -> ir.Value:
    """Emit stores of the tile, column by column, to memory of its own; return its address.

    A loop writes it to C from there: straight-line code for tiles at edges, as for whole ones,
    would make compilation a third longer.
    """
    builder, shape = tile.builder, tile.shape
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(ir.IntType(8), _column_bytes(tile) * shape.columns))
        memory.align = LINE_BYTES
    scratch: ir.Value = builder.ptrtoint(memory, INT64)
    for column in range(shape.columns):
        for i, value in enumerate(tile.column_sums(values, column)):
            base = column * _column_bytes(tile) + i * shape.lanes * tile.element
            for part, vector in enumerate(tile.interleave(value)):
                where = vectors.to_pointer(builder, scratch, base + part * shape.bits // 8)
                vectors.store(builder, vector, where, shape.bits // 8)
    return scratch


def _column_bytes(tile: TileEmitter) -> int:
    """Return the bytes of a column of a scratch tile."""
    return tile.shape.rows * tile.element


def _write_part(tile: TileEmitter, values: list[ir.Value]) -> None:
    """Emit the stores of a tile's vectors, with a mask for the last ones of a column."""
    builder, shape, masks = tile.builder, tile.shape, last_masks(tile)
    rows = tile.c_row_addresses()
    for column in range(shape.columns):
        offset = tile.load_integer(tile.field("columns_c"), WORD_BYTES * column)
        parts = [part for one in tile.column_sums(values, column) for part in tile.interleave(one)]
        parts = _bound(tile, parts)
        for i, row in enumerate(rows):
            last = masks if i == shape.vectors - 1 else ()
            own = parts[i * tile.parts : (i + 1) * tile.parts]
            _store_part(tile, own, builder.add(row, offset), last)


def _add_part(tile: TileEmitter, scratch: ir.Value) -> None:
    """Emit the same of a scratch tile that is added to C."""
    builder, shape, masks = tile.builder, tile.shape, last_masks(tile)
    rows, beta = tile.c_row_addresses(), _broadcast_factor(tile, "beta")

    def add_column(column: ir.Value) -> None:
        offset = tile.load_integer(tile.field("columns_c"), builder.mul(column, INT64(WORD_BYTES)))
        spot = builder.add(scratch, builder.mul(column, INT64(_column_bytes(tile))))
        for i, row in enumerate(rows):
            last = masks if i == shape.vectors - 1 else ()
            source = builder.add(spot, INT64(i * shape.lanes * tile.element))
            new = tile.load_rows(source, shape.bits // 8)
            place = builder.add(row, offset)
            old = tile.load_rows(tile.added_to(place), 1, last)
            values = tile.interleave(_add_to_c(tile, beta, old, new))
            _store_part(tile, _bound(tile, values), place, last)

    vectors.repeat(builder, INT64(shape.columns), add_column)


def last_masks(tile: TileEmitter) -> list[ir.Value]:
    """Return masks of the rows that the last group has: one for each of its vectors."""
    builder, shape = tile.builder, tile.shape
    rows = builder.sub(tile.field("rows"), INT64(shape.rows - shape.lanes))
    numbers = builder.mul(rows, INT64(tile.parts))
    counts = [builder.sub(numbers, INT64(part * shape.lanes)) for part in range(tile.parts)]
    return [masking.mask_first_lanes(builder, shape.lanes, count) for count in counts]


def _store_part(
    tile: TileEmitter, parts: Sequence[ir.Value], place: ir.Value, masks: Sequence[ir.Value]
) -> None:
    """Store the vectors of a group of rows, each with its mask if there are any."""
    builder = tile.builder
    for part, vector in enumerate(parts):
        where = vectors.to_pointer(builder, place, part * tile.shape.bits // 8)
        if masks:
            masking.store_masked(builder, vector, where, masks[part])
        else:
            vectors.store(builder, vector, where, 1)


def _scatter(tile: TileEmitter, scratch: ir.Value, mode: ir.Value) -> None:
    """Emit the copy of a scratch tile to C, an element at a time."""
    builder, shape = tile.builder, tile.shape
    adding = builder.icmp_signed("==", mode, INT64(int(Mode.SCATTER_ADD)))
    c, rows_c, columns_c = tile.field("c"), tile.field("rows_c"), tile.field("columns_c")
    rows = tile.field("rows")
    beta = [
        tile.load_real(tile.frame, WORD_BYTES * FIELDS.index(name))
        for name in ("beta", "beta_imaginary")[: tile.parts]
    ]

    def write_element(row: ir.Value, column: ir.Value) -> None:
        spot = builder.add(
            builder.mul(column, INT64(_column_bytes(tile))), builder.mul(row, INT64(tile.element))
        )
        new = [tile.load_real(builder.add(scratch, spot), i * tile.size) for i in range(tile.parts)]
        place = builder.add(
            builder.add(c, tile.load_integer(rows_c, builder.mul(row, INT64(WORD_BYTES)))),
            tile.load_integer(columns_c, builder.mul(column, INT64(WORD_BYTES))),
        )
        with builder.if_else(adding) as (then, otherwise):
            with then:
                old_place = tile.added_to(place)
                old = [tile.load_real(old_place, i * tile.size) for i in range(tile.parts)]
                _store_element(tile, _bound(tile, _add_element(tile, beta, old, new)), place)
            with otherwise:
                _store_element(tile, _bound(tile, new), place)

    def write_column(column: ir.Value) -> None:
        vectors.repeat(builder, rows, lambda row: write_element(row, column))

    vectors.repeat(builder, INT64(shape.columns), write_column)


def _add_element(
    tile: TileEmitter, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
) -> list[ir.Value]:
    """Return the same for a single element."""
    builder = tile.builder
    if tile.pairs and not tile.pairs.pairing.adds:
        return [tile.join(x, y) for x, y in zip(old, new, strict=True)]
    found = [builder.fadd(builder.fmul(beta[0], x), y) for x, y in zip(old, new, strict=True)]
    if tile.parts == 2:
        found[0] = builder.fsub(found[0], builder.fmul(beta[1], old[1]))
        found[1] = builder.fadd(found[1], builder.fmul(beta[1], old[0]))
    return found


def _store_element(tile: TileEmitter, parts: list[ir.Value], place: ir.Value) -> None:
    """Store the parts of an element."""
    for i, part in enumerate(parts):
        where = vectors.to_pointer(tile.builder, place, i * tile.size)
        tile.builder.store(part, where, align=1)
