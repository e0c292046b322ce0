"""Operands: how a microkernel loads what one step of k multiplies, and asks for what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from llvmlite import ir

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.emitter import TileEmitter
from tilesolve.kernels.codegen.unrolling import vectors_from_memory
from tilesolve.kernels.codegen.vectors import INT64
from tilesolve.kernels.tuning import WIDE_VECTOR_BITS
from tilesolve.packing.sizes import LINE_BYTES

Rows = Callable[[], list[ir.Value]]
"""The vectors of a group of rows: held in registers, or loaded wherever they are asked for."""

Operands = tuple[list[Rows], list[tuple[ir.Value, int]]]
"""What one step of k multiplies: each group's vectors, and the address of each column's element."""


class StepLoader(Protocol):
    """Emits the loads of one step of k.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> shape = Shape("float64", 256, 1, 2, 4, packed=True)
    >>> read: StepLoader = step_loader(TileEmitter(builder, shape, function.args[0], 256))
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


def step_loader(tile: TileEmitter) -> StepLoader:
    """Return what emits the loads of a step of k, with the prefetches that go with them.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> rows, columns = step_loader(TileEmitter(builder, shape, function.args[0], 256))(INT64(0))
    >>> len(rows), len(columns)
    (2, 6)
    """
    return _packed(tile) if tile.shape.packed else _placed(tile)


def _packed(tile: TileEmitter) -> StepLoader:
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    a_step, b_step = tile.field("a_step"), tile.field("b_step")
    soon = tile.field("next_a")
    wanted, fetches = tile.field("fetch"), tile.field("fetches")
    rows = [a]
    for _ in range(1, shape.vectors):
        rows.append(builder.add(rows[-1], a_step))
    if shape.narrow:
        half = INT64(shape.bits // 16)
        rows = [place for row in rows for place in (row, builder.add(row, half))][:-1]
    groups = [b]
    for _ in range(1, -(-shape.columns // shape.group)):
        groups.append(builder.add(groups[-1], b_step))
    stride_a = tile.parts * shape.bits // 8
    stride_b = shape.group * tile.element
    from_memory = vectors_from_memory(shape)

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
            # Narrow kernels have no register left for another pace than that of strips.
            moved = (
                builder.mul(step, tile.field("next_step"))
                if shape.bits >= WIDE_VECTOR_BITS
                else at_a
            )
            line = builder.add(builder.add(soon, moved), INT64(beyond * stride_a))
            vectors.prefetch(builder, vectors.to_pointer(builder, line), near=False)
        if listed:
            number, more = step, 8 * beyond
            if few:
                number, more = builder.add(step, INT64(beyond)), 0
                number = builder.select(builder.icmp_signed("<", number, fetches), number, fetches)
            entry = builder.add(wanted, builder.mul(number, INT64(8)))
            line = tile.integer(entry, more)
            vectors.prefetch(builder, vectors.to_pointer(builder, line), near=False)
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


def _group(tile: TileEmitter, place: ir.Value, kind: ir.VectorType, *, held: bool) -> Rows:
    """Return the vectors of a group of rows: loaded once, or anew for each column."""

    def load() -> list[ir.Value]:
        return tile.unpacked(place, kind.count * tile.size, kind=kind)

    return _held(load()) if held else load


def _held(found: list[ir.Value]) -> Rows:
    return lambda: found


def _placed(tile: TileEmitter) -> StepLoader:
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    rows_a, columns_b = tile.field("rows_a"), tile.field("columns_b")
    sums_a, sums_b = tile.field("sums_a"), tile.field("sums_b")
    a_ahead, b_ahead = tile.field("a_ahead"), tile.field("b_ahead")
    rows = [builder.add(a, tile.integer(rows_a, 8 * shape.lanes * i)) for i in range(shape.vectors)]
    columns = [builder.add(b, tile.integer(columns_b, 8 * c)) for c in range(shape.columns)]
    each = max(1, LINE_BYTES // (tile.parts * shape.bits // 8))
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


def _close(tile: TileEmitter, sums: ir.Value) -> ir.Value:
    """Return whether steps of k are within a line of an operand in place, given their offsets.

    Then columns are in lines of their own, and take turns in being asked for while k is in one.
    """
    builder = tile.builder
    several = builder.icmp_signed(">", tile.field("k"), INT64(1))
    table = builder.select(several, sums, tile.frame)
    second = builder.select(several, builder.add(sums, INT64(8)), tile.frame)
    step = builder.sub(tile.integer(second, INT64(0)), tile.integer(table, INT64(0)))
    return builder.icmp_unsigned("<", builder.add(step, INT64(LINE_BYTES)), INT64(2 * LINE_BYTES))


def _prefetch(tile: TileEmitter, address: ir.Value) -> None:
    vectors.prefetch(tile.builder, vectors.to_pointer(tile.builder, address))
