"""Tiles: what the parts of a microkernel's generator share while one kernel is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

from llvmlite import ir

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.shape import FIELDS, Shape
from tilesolve.kernels.codegen.vectors import INT64


class TileEmitter:
    """One kernel while it is written.

    Parameters
    ----------
    builder
        Where to emit.
    shape
        Which kernel.
    frame
        Address of its arguments.
    native
        Bits of the CPU's widest vector.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (INT64,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> shape = Shape("float64", 256, 2, 6, 4, packed=True)
    >>> tile = TileEmitter(builder, shape, function.args[0], 256)
    >>> print(tile.kind, tile.parts, tile.element)
    <4 x double> 1 8
    """

    def __init__(self, builder: ir.IRBuilder, shape: Shape, frame: ir.Value, native: int) -> None:
        self.builder, self.shape, self.frame = builder, shape, frame
        self.kind = vectors.vector_type(shape.real, shape.bits)
        self.scalar = self.kind.element
        self.size = shape.bits // 8 // shape.lanes
        self.element = self.size * (2 if shape.complex else 1)
        self.parts = 2 if shape.complex else 1
        half = vectors.vector_type(shape.real, shape.bits // 2)
        self.kinds = [self.kind] * shape.vectors
        if shape.narrow:
            self.kinds = [half] * (2 * shape.vectors - 1)
        elif shape.halved:
            self.kinds[-1] = half
        self.ordered = shape.bits <= native
        self._fields: dict[str, ir.Value] = {}

    def having(self, fields: Mapping[str, ir.Value]) -> Self:
        """Return the same with some fields that need not be read from the frame."""
        other = copy(self)
        other._fields = {**self._fields, **fields}
        return other

    def field(self, name: str) -> ir.Value:
        """Return a field of the frame."""
        return self._fields.get(name) or self.integer(self.frame, 8 * FIELDS.index(name))

    def integer(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """Return the integer at an address."""
        where = vectors.to_pointer(self.builder, address, offset)
        return self.builder.load(where, typ=INT64, align=8)

    def number(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """Return the real number at an address, which may be any."""
        where = vectors.to_pointer(self.builder, address, offset)
        return self.builder.load(where, typ=self.scalar, align=1)

    def rows_of_c(self) -> list[ir.Value]:
        """Return where the rows of each group lie in C, but for the columns' offsets."""
        c, rows_c, group = self.field("c"), self.field("rows_c"), 8 * self.shape.lanes
        numbers = range(self.shape.vectors)
        return [self.builder.add(c, self.integer(rows_c, group * i)) for i in numbers]

    def places(self, column: int, count: int) -> list[int]:
        """Return where the parts of each group of a column begin in a list of so many sums."""
        each = self.parts * self.shape.columns
        return [begin + column * self.parts for begin in range(0, count, each)]

    def column(self, sums: Sequence[ir.Value], number: int) -> list[list[ir.Value]]:
        """Return the sums of a column: the parts of each group."""
        return [list(sums[at : at + self.parts]) for at in self.places(number, len(sums))]

    def zeros(self) -> list[ir.Value]:
        """Return the sums before the first step."""
        repeated = self.shape.columns * self.parts
        return [ir.Constant(kind, None) for kind in self.kinds for _ in range(repeated)]

    def narrowed(self, value: ir.Value, kind: ir.VectorType) -> ir.Value:
        """Return the first lanes of a vector, as many as a kind has."""
        if value.type == kind:
            return value
        return vectors.shuffle(self.builder, value, value, range(kind.count))

    def whole(self, sums: list[ir.Value]) -> list[ir.Value]:
        """Return sums in vectors of the full width: behind what there is of the last, zeros."""
        if not self.shape.halved:
            return sums
        columns, found = self.shape.columns, []
        groups = [sums[at : at + columns] for at in range(0, len(sums), columns)]
        groups.append([ir.Constant(self.kinds[-1], None)] * columns)
        while groups:
            pieces = groups[:1] if groups[0][0].type == self.kind else groups[:2]
            found += [
                vectors.concatenate(self.builder, parts) for parts in zip(*pieces, strict=True)
            ]
            groups = groups[len(pieces) :]
        return found

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``x * y + z``."""
        return vectors.multiply_add(self.builder, x, y, z, self.shape.real)

    def fms(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``z - x * y``."""
        return self.fma(self.builder.fneg(x), y, z)

    def unpacked(
        self,
        place: ir.Value,
        align: int,
        masks: Sequence[ir.Value] = (),
        kind: ir.VectorType | None = None,
    ) -> list[ir.Value]:
        """Return the vectors of real and imaginary parts of rows that lie interleaved.

        Rows change places within a group, as numbers then move within 16 bytes only, which takes
        no table of places; `interleaved` brings them back. With a mask for each vector, numbers
        beyond are taken for zeros, not loaded.
        """
        builder, kind = self.builder, kind or self.kind
        loaded = []
        for part in range(self.parts):
            where = vectors.to_pointer(builder, place, part * self.shape.bits // 8)
            if masks:
                loaded.append(vectors.load_masked(builder, where, kind, masks[part]))
            else:
                loaded.append(vectors.load(builder, where, kind, align))
        return loaded if self.parts == 1 else self._shuffled(loaded, self._turns())

    def interleaved(self, parts: list[ir.Value]) -> list[ir.Value]:
        """Return the vectors of rows as they lie in memory, from `unpacked` parts."""
        if self.parts == 1:
            return parts
        turns = self._turns()
        return self._shuffled(parts, sorted(range(len(turns)), key=turns.__getitem__))

    def _shuffled(self, pair: list[ir.Value], order: Sequence[int]) -> list[ir.Value]:
        lanes = self.shape.lanes
        halves = order[:lanes], order[lanes:]
        return [vectors.shuffle(self.builder, pair[0], pair[1], half) for half in halves]

    def _turns(self) -> list[int]:
        """Return which numbers of two interleaved vectors go where: real parts, then imaginary."""
        lanes, few = self.shape.lanes, 16 // self.size
        return [
            vector * lanes + block + number
            for part in range(2)
            for block in range(0, lanes, few)
            for vector in range(2)
            for number in range(part, few, 2)
        ]
