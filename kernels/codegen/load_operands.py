"""Operands: how a microkernel loads what a step of k multiplies, and prefetches what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.tile_emitter import TileEmitter
from tilesolve.kernels.codegen.unrolling import listed_lines, vectors_from_memory
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

Rows = Callable[[], list[ir.Value]]
"""The vectors of a group of rows: held in registers, or loaded at each call."""

Columns = Callable[[int], list[list[ir.Value]]]
"""What a column multiplies each group of rows by, given its number: the parts, as vectors."""

Operands = tuple[list[Rows], Columns]
"""What one step of k multiplies: each group's vectors, and the columns."""


@dataclass(frozen=True, slots=True)
class Prefetches:
    """What a step of k prefetches.

    Parameters
    ----------
    next_rows
        The step's line of the micro-panel ``next_a``; of rows in place, the lines of the next
        tile's rows.
    listed
        The step's lines of the table ``fetch``; of columns in place, the lines of the next tile's
        columns.
    bounded
        Whether the table may have fewer lines than there are steps.
    """

    next_rows: bool = True
    listed: bool = True
    bounded: bool = True


EVERYTHING = Prefetches()
"""All that a step can prefetch."""

NO_LISTED_LINE = Prefetches(listed=False)
"""All but a line of ``fetch``, or of columns in place."""


class StepLoader(Protocol):
    """Emits the loads and the prefetches of one step of k."""

    def __call__(
        self, step: ir.Value, beyond: int = 0, prefetches: Prefetches = EVERYTHING
    ) -> Operands:
        """Emit the loads of the step that is so many beyond the given one."""


def step_loader(tile: TileEmitter) -> StepLoader:
    """Return what emits the loads of a step of k, with the prefetches that go with them.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.shape import Shape
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> load = step_loader(TileEmitter(builder, shape, function.args[0], 256))
    >>> rows, columns = load(INT64(0))
    >>> len(rows), len(columns(0))
    (2, 2)
    """
    return _packed_loader(tile) if tile.shape.packed else _in_place_loader(tile)


def _packed_loader(tile: TileEmitter) -> StepLoader:
    """Return the loader of kernels that read micro-panels."""
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    a_step, b_step = tile.field("a_step"), tile.field("b_step")
    prefetch = _packed_prefetcher(tile)
    rows = tile.chain(a, a_step, shape.vectors)
    if shape.narrow:
        half = INT64(shape.bits // 16)
        rows = [place for row in rows for place in (row, builder.add(row, half))][:-1]
    columns_at = _columns_in_place(tile, b) if shape.mixed else _packed_columns(tile, b, b_step)
    stride_a = tile.parts * shape.bits // 8
    from_memory = vectors_from_memory(shape)

    def load(step: ir.Value, beyond: int = 0, prefetches: Prefetches = EVERYTHING) -> Operands:
        # Constants are added last, so that all steps of a trip share the other part of an address.
        at_a = builder.mul(step, INT64(stride_a))
        columns = columns_at(step)
        prefetch(step, at_a, beyond, prefetches)
        loaded = []
        for at, (row, kind) in enumerate(zip(rows, tile.kinds, strict=True)):
            place = builder.add(builder.add(row, at_a), INT64(beyond * stride_a))
            loaded.append(_group(tile, place, kind, held=at >= from_memory))
        return loaded, _broadcasts(tile, columns(beyond))

    return load


def lanewise_loader(tile: TileEmitter, masks: Sequence[ir.Value]) -> StepLoader:
    """Return what emits the loads of a step of lanewise kernels.

    Parameters
    ----------
    tile
        The kernel.
    masks
        Of the last group's rows, one for each of its vectors; none where all are there.
    """
    builder, shape = tile.builder, tile.shape
    a, b, sums_a, sums_b = (tile.field(name) for name in ("a", "b", "sums_a", "sums_b"))
    rows_a, columns_b = tile.field("rows_a"), tile.field("columns_b")
    rows_b = builder.add(rows_a, tile.field("rows_b"))
    numbers = [WORD_BYTES * shape.lanes * at for at in range(shape.vectors)]
    rows = tile.add_entries(a, rows_a, shape.vectors, shape.lanes)
    across = [tile.load_integer(rows_b, at) for at in numbers]
    columns = tile.add_entries(b, columns_b, shape.columns)

    def load_group(place: ir.Value, present: Sequence[ir.Value]) -> list[ir.Value]:
        if shape.source:
            return tile.load_halves(place, present)
        return tile.load_rows(place, 1, present)

    def load_groups(places: Sequence[ir.Value]) -> list[list[ir.Value]]:
        return [
            load_group(place, masks if at == len(places) - 1 else ())
            for at, place in enumerate(places)
        ]

    def load(step: ir.Value, beyond: int = 0, prefetches: Prefetches = EVERYTHING) -> Operands:
        at = builder.mul(builder.add(step, INT64(beyond)), INT64(WORD_BYTES))
        at_a, at_b = tile.load_integer(sums_a, at), tile.load_integer(sums_b, at)
        loaded = [_held(parts) for parts in load_groups([builder.add(row, at_a) for row in rows])]
        beside = [builder.add(offset, at_b) for offset in across]

        def load_column(number: int) -> list[list[ir.Value]]:
            return load_groups([builder.add(columns[number], offset) for offset in beside])

        return loaded, load_column

    return load


def _broadcasts(tile: TileEmitter, places: Sequence[tuple[ir.Value, int]]) -> Columns:
    """Return columns that are one element each, given their addresses as sums of two."""

    def broadcast(number: int) -> list[list[ir.Value]]:
        address, offset = places[number]
        parts = [
            vectors.broadcast(
                tile.builder, tile.load_real(address, offset + i * tile.size), tile.kinds[0]
            )
            for i in range(tile.parts)
        ]
        return [parts] * len(tile.kinds)

    return broadcast


ColumnPlaces = Callable[[ir.Value], Callable[[int], list[tuple[ir.Value, int]]]]
"""For a step what tells the address of each column's element at a step so many beyond it."""


def _packed_columns(tile: TileEmitter, b: ir.Value, b_step: ir.Value) -> ColumnPlaces:
    """Return where columns are in micro-panels."""
    builder, shape = tile.builder, tile.shape
    groups = tile.chain(b, b_step, -(-shape.columns // shape.group))
    stride = shape.group * tile.element

    def columns_at(step: ir.Value) -> Callable[[int], list[tuple[ir.Value, int]]]:
        at = builder.mul(step, INT64(stride))
        return lambda beyond: [
            (
                builder.add(groups[c // shape.group], at),
                c % shape.group * tile.element + beyond * stride,
            )
            for c in range(shape.columns)
        ]

    return columns_at


def _columns_in_place(tile: TileEmitter, b: ir.Value) -> ColumnPlaces:
    """Return where columns are in place."""
    builder, shape = tile.builder, tile.shape
    columns_b, sums_b = tile.field("columns_b"), tile.field("sums_b")
    columns = tile.add_entries(b, columns_b, shape.columns)

    def columns_at(step: ir.Value) -> Callable[[int], list[tuple[ir.Value, int]]]:
        entry = builder.add(sums_b, builder.mul(step, INT64(WORD_BYTES)))

        def places(beyond: int) -> list[tuple[ir.Value, int]]:
            at = tile.load_integer(entry, WORD_BYTES * beyond)
            return [(builder.add(column, at), 0) for column in columns]

        return places

    return columns_at


def _packed_prefetcher(
    tile: TileEmitter,
) -> Callable[[ir.Value, ir.Value, int, Prefetches], None]:
    """Return what emits the prefetches of a step of kernels that read micro-panels."""
    builder, shape = tile.builder, tile.shape
    next_a, table = tile.field("next_a"), tile.field("fetch")
    stride_a, lines = tile.parts * shape.bits // 8, listed_lines(shape)

    def prefetch(step: ir.Value, at_a: ir.Value, beyond: int, wanted: Prefetches) -> None:
        if wanted.next_rows:
            # Narrow kernels have no register left for another step than that of micro-panels.
            wide = shape.bits >= tuning.WIDE_VECTOR_BITS
            moved = builder.mul(step, tile.field("next_step")) if wide else at_a
            line = builder.add(builder.add(next_a, moved), INT64(beyond * stride_a))
            vectors.prefetch(builder, vectors.to_pointer(builder, line), near=False)
        if wanted.listed:
            number, offset, size = step, lines * WORD_BYTES * beyond, lines * WORD_BYTES
            if wanted.bounded:
                number, offset = builder.add(step, INT64(beyond)), 0
                number = vectors.extreme(builder, "<", number, tile.field("fetches"))
            entry = builder.add(table, builder.mul(number, INT64(size)))
            for at in range(lines):
                line = tile.load_integer(entry, offset + WORD_BYTES * at)
                vectors.prefetch(builder, vectors.to_pointer(builder, line), near=False)

    return prefetch


def _group(tile: TileEmitter, place: ir.Value, kind: ir.VectorType, *, held: bool) -> Rows:
    """Return the vectors of a group of rows: loaded once, or anew for each column."""

    def load() -> list[ir.Value]:
        return tile.load_rows(place, kind.count * tile.size, kind=kind)

    return _held(load()) if held else load


def _held(found: list[ir.Value]) -> Rows:
    """Return vectors that stay in registers."""
    return lambda: found


def _in_place_loader(tile: TileEmitter) -> StepLoader:
    """Return the loader of kernels that read operands in place.

    Of the vectors that a line has room for the line of the last element is prefetched: where they
    begin amid a line, that of the first element was read with what lies before them.
    """
    builder, shape = tile.builder, tile.shape
    a, b = tile.field("a"), tile.field("b")
    rows_a, columns_b = tile.field("rows_a"), tile.field("columns_b")
    sums_a, sums_b = tile.field("sums_a"), tile.field("sums_b")
    a_ahead, b_ahead = tile.field("a_ahead"), tile.field("b_ahead")
    rows = tile.add_entries(a, rows_a, shape.vectors, shape.lanes)
    columns = tile.add_entries(b, columns_b, shape.columns)
    prefetch_columns = _column_prefetcher(tile, columns_b, sums_b, b_ahead)
    vector = tile.parts * shape.bits // 8
    together = max(1, LINE_BYTES // vector)

    def load(step: ir.Value, beyond: int = 0, prefetches: Prefetches = EVERYTHING) -> Operands:
        at = builder.mul(builder.add(step, INT64(beyond)), INT64(WORD_BYTES))
        at_a, at_b = tile.load_integer(sums_a, at), tile.load_integer(sums_b, at)
        places = [builder.add(row, at_a) for row in rows]
        loaded = [_held(tile.load_rows(place, 1)) for place in places]
        place_b = builder.add(b, at_b)
        scalars = [(builder.add(column, at_b), 0) for column in columns]
        if prefetches.next_rows:
            for first in range(0, shape.vectors, together):
                place = places[min(first + together, shape.vectors) - 1]
                last = builder.add(place, INT64(vector - tile.element))
                _prefetch(tile, builder.add(last, a_ahead))
        if prefetches.listed:
            prefetch_columns(at, place_b)
        return loaded, _broadcasts(tile, scalars)

    return load


def _column_prefetcher(
    tile: TileEmitter, columns_b: ir.Value, sums_b: ir.Value, b_ahead: ir.Value
) -> Callable[[ir.Value, ir.Value], None]:
    """Return what emits the prefetches of columns in place: one of each group of columns.

    It is the group's last column. Where steps of k are within a line, the columns take turns.
    """
    builder, shape = tile.builder, tile.shape
    within = _is_within_line(tile, sums_b)
    mask = INT64(WORD_BYTES * (shape.group - 1))
    least = builder.select(within, INT64(0), mask)

    def prefetch(at: ir.Value, place_b: ir.Value) -> None:
        turn = builder.or_(builder.and_(at, mask), least)
        for first in range(0, shape.columns, shape.group):
            last = WORD_BYTES * (min(shape.columns - first, shape.group) - 1)
            entry = turn
            if last < WORD_BYTES * (shape.group - 1):
                entry = vectors.extreme(builder, "<", turn, INT64(last))
            row = builder.add(columns_b, INT64(WORD_BYTES * first))
            column = tile.load_integer(row, entry)
            _prefetch(tile, builder.add(builder.add(place_b, column), b_ahead))

    return prefetch


def _is_within_line(tile: TileEmitter, sums: ir.Value) -> ir.Value:
    """Return whether steps of k are within a line of an operand in place, given their offsets."""
    builder = tile.builder
    several = builder.icmp_signed(">", tile.field("k"), INT64(1))
    table = builder.select(several, sums, tile.frame)
    second = builder.select(several, builder.add(sums, INT64(WORD_BYTES)), tile.frame)
    step = builder.sub(tile.load_integer(second, INT64(0)), tile.load_integer(table, INT64(0)))
    return builder.icmp_unsigned("<", builder.add(step, INT64(LINE_BYTES)), INT64(2 * LINE_BYTES))


def _prefetch(tile: TileEmitter, address: ir.Value) -> None:
    """Emit the prefetch of the line of an address."""
    vectors.prefetch(tile.builder, vectors.to_pointer(tile.builder, address))
