"""The emitter: what the parts of a microkernel's generator share while one kernel is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Self

from llvmlite import ir

from tilesolve.kernels.codegen.pairs import Pairs
from tilesolve.kernels.codegen.shape import FIELDS, Shape
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.half_precision import load_kind, widen
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import VECTOR_BYTES, WORD_BYTES


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

    Attributes
    ----------
    kind, kinds
        LLVM's type of a vector, and that of each group of rows.
    scalar
        Type of a real number.
    size, element
        Bytes of a real number and of an element.
    parts
        Real numbers of an element.
    ordered
        Whether the kernel is kept in the written order.
    pairs
        What is done with pairs of elements; None where their products are added up.

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
        self.pairs = Pairs.of(shape.pairing, shape.dtype)
        self._fields: dict[str, ir.Value] = {}

    def with_fields(self, fields: Mapping[str, ir.Value]) -> Self:
        """Return an emitter that knows the values of some fields and does not load them."""
        other = copy(self)
        other._fields = {**self._fields, **fields}
        return other

    def field(self, name: str) -> ir.Value:
        """Return a field of the frame: known, or loaded."""
        return self._fields.get(name) or self.load_integer(
            self.frame, WORD_BYTES * FIELDS.index(name)
        )

    def load_integer(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """Return the integer at an address."""
        where = vectors.to_pointer(self.builder, address, offset)
        return self.builder.load(where, typ=INT64, align=WORD_BYTES)

    def load_real(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """Return the real number at an address, which may be any."""
        where = vectors.to_pointer(self.builder, address, offset)
        return self.builder.load(where, typ=self.scalar, align=1)

    def load_halves(self, place: ir.Value, masks: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Return the vector of a group of rows of an operand of halves, perhaps masked."""
        builder, kind = self.builder, load_kind(self.kind)
        where = vectors.to_pointer(builder, place)
        if masks:
            loaded = masking.load_masked(builder, where, kind, masks[0])
        else:
            loaded = vectors.load(builder, where, kind, 1)
        return [widen(builder, loaded, self.shape.source)]

    def c_row_addresses(self) -> list[ir.Value]:
        """Return the address in C of the rows of each group, without the columns' offsets."""
        c, rows_c = self.field("c"), self.field("rows_c")
        return self.add_entries(c, rows_c, self.shape.vectors, self.shape.lanes)

    def added_to(self, place: ir.Value) -> ir.Value:
        """Return a place in C, or its offset, as one in what is added to."""
        if not self.shape.takes_epilogue:
            return place
        return self.builder.add(place, self.field("apart"))

    def add_entries(
        self, base: ir.Value, table: ir.Value, count: int, apart: int = 1
    ) -> list[ir.Value]:
        """Return the sums of an address and so many entries of a table, each so far apart."""
        places = [WORD_BYTES * apart * at for at in range(count)]
        return [self.builder.add(base, self.load_integer(table, place)) for place in places]

    def chain(self, first: ir.Value, step: ir.Value, count: int) -> list[ir.Value]:
        """Return so many addresses, a step apart."""
        found = [first]
        for _ in range(1, count):
            found.append(self.builder.add(found[-1], step))
        return found

    def sum_positions(self, column: int, count: int) -> list[int]:
        """Return where the parts of each of a column's groups begin in a list of so many sums."""
        each = self.parts * self.shape.columns
        return [begin + column * self.parts for begin in range(0, count, each)]

    def column_sums(self, sums: Sequence[ir.Value], number: int) -> list[list[ir.Value]]:
        """Return the sums of a column: the parts of each group."""
        return [list(sums[at : at + self.parts]) for at in self.sum_positions(number, len(sums))]

    def zero_sums(self) -> list[ir.Value]:
        """Return the sums before the first step."""
        repeated = self.shape.columns * self.parts
        begin = self.pairs.identity if self.pairs else partial(ir.Constant, constant=None)
        return [begin(kind) for kind in self.kinds for _ in range(repeated)]

    def narrow(self, value: ir.Value, kind: ir.VectorType) -> ir.Value:
        """Return the first lanes of a vector, as many as a type has."""
        if value.type == kind:
            return value
        return vectors.shuffle(self.builder, value, value, range(kind.count))

    def widen(self, sums: list[ir.Value]) -> list[ir.Value]:
        """Return sums in vectors of the full width, halved ones filled with zeros."""
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

    def take_in(self, row: ir.Value, column: ir.Value, found: ir.Value) -> ir.Value:
        """Return what was found together with one more pair: mostly ``row * column + found``."""
        if self.pairs is None:
            return self.fma(row, column, found)
        return self.pairs.take_in(self.builder, row, column, found)

    def join(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return what two sets of pairs give together: mostly ``x + y``."""
        return self.pairs.join(self.builder, x, y) if self.pairs else self.builder.fadd(x, y)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``x * y + z``."""
        return vectors.multiply_add(self.builder, x, y, z)

    def fms(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``z - x * y``."""
        return self.fma(self.builder.fneg(x), y, z)

    def load_rows(
        self,
        place: ir.Value,
        align: int,
        masks: Sequence[ir.Value] = (),
        kind: ir.VectorType | None = None,
    ) -> list[ir.Value]:
        """Return the vectors of real and imaginary parts of rows that lie interleaved.

        Rows of a group change their order, as shuffles within 16 bytes are the cheapest;
        `interleave` restores it. With a mask for each vector, numbers beyond count as zeros and
        are not loaded.
        """
        builder, kind = self.builder, kind or self.kind
        loaded = []
        for part in range(self.parts):
            where = vectors.to_pointer(builder, place, part * self.shape.bits // 8)
            if masks:
                loaded.append(masking.load_masked(builder, where, kind, masks[part]))
            else:
                loaded.append(vectors.load(builder, where, kind, align))
        return loaded if self.parts == 1 else self._shuffle_pair(loaded, self._split_order())

    def interleave(self, parts: list[ir.Value]) -> list[ir.Value]:
        """Return the vectors of rows as they lie in memory, from the parts of `load_rows`."""
        if self.parts == 1:
            return parts
        order = self._split_order()
        return self._shuffle_pair(parts, sorted(range(len(order)), key=order.__getitem__))

    def _shuffle_pair(self, pair: list[ir.Value], order: Sequence[int]) -> list[ir.Value]:
        """Return two vectors of the numbers of two others, in an order."""
        lanes = self.shape.lanes
        halves = order[:lanes], order[lanes:]
        return [vectors.shuffle(self.builder, pair[0], pair[1], half) for half in halves]

    def _split_order(self) -> list[int]:
        """Return the order in which numbers of two interleaved vectors are real, then imaginary."""
        lanes, few = self.shape.lanes, VECTOR_BYTES // self.size
        return [
            vector * lanes + block + number
            for part in range(2)
            for block in range(0, lanes, few)
            for vector in range(2)
            for number in range(part, few, 2)
        ]
