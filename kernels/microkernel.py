"""The microkernel generator: LLVM IR of register tiles, for any dtype, width and shape.

A microkernel computes one register tile of C over a range of the summed index,

    C[r, c] = alpha * sum_k A[r, k] * B[c, k] + beta * C[r, c],

with all of the tile in registers. The contract, which `frame` addresses by `FIELDS`:

* *Rows* run along the lanes of vectors, in up to `vectors` groups of ``lanes`` rows each; *columns*
  are broadcast.
* ``packed`` kernels read strips: A has for each k one aligned vector a group (two for complex
  dtypes), group i starting ``a_step * i`` bytes after ``a``; B has for each k `group` elements, of
  which as many are read as there are columns, group i starting ``b_step * i`` bytes after ``b``.
  Padding lanes of A are read and must exist; columns beyond the kernel's are never read.
* ``placed`` kernels read operands where they lie: element (r, k) of A is at
  ``a + rows_a[r] + sums_a[k]`` and is loaded as an unaligned vector from the first row of each
  group, element (c, k) of B is at ``b + columns_b[c] + sums_b[k]``. Offsets are in bytes.
  Nothing else is read, but prefetches go ``a_ahead`` and ``b_ahead`` bytes beyond each access.
* C is written where it lies: element (r, c) at ``c + rows_c[r] + columns_c[c]``. ``mode`` says how
  (`Mode`); only the first ``rows`` rows are touched, and C is read only by the modes that add
  to it. The vector modes need all groups to be full and each to be contiguous in C; ``STREAM``
  also needs it aligned to the vector; the scattered modes need nothing.
* ``alpha`` and ``beta`` are elements of the dtype in the frame; ``k`` may be 0.

No other memory is touched, no alignment is assumed but what is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from llvmlite import ir

from tilesolve.kernels import vectors
from tilesolve.kernels.vectors import INT64

FIELDS = (
    "a",
    "b",
    "k",
    "a_step",
    "b_step",
    "rows_a",
    "columns_b",
    "sums_a",
    "sums_b",
    "a_ahead",
    "b_ahead",
    "c",
    "rows_c",
    "columns_c",
    "rows",
    "mode",
    "alpha",
    "alpha_imaginary",
    "beta",
    "beta_imaginary",
)
"""Names of the 8-byte fields of a frame, in order."""

FAR = 64
"""Steps of k that take long enough for prefetches of C to be worth their issue."""

PENDING = 8
"""Independent FMA chains that a kernel keeps busy: the latency times the rate of all CPUs known."""


Step = Callable[[ir.Value, list[ir.Value]], list[ir.Value]]
"""Emits one step of k: takes its number and the sums so far, and returns the new sums."""


class Mode(IntEnum):
    """How a microkernel writes C.

    Examples
    --------
    >>> Mode(2).name
    'STREAM'
    """

    STORE = 0
    """Vectors of ``alpha * sum``; C is not read."""
    ADD = 1
    """Vectors of ``alpha * sum + beta * C``."""
    STREAM = 2
    """Aligned vectors past the caches; C is not read."""
    SCATTER = 3
    """Element by element; C is not read."""
    SCATTER_ADD = 4
    """Element by element, ``beta * C`` added."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a microkernel's code depends on.

    Parameters
    ----------
    dtype
        Of all tensors.
    bits
        Vector width: 128, 256 or 512.
    vectors
        Groups of rows.
    columns
        Columns.
    group
        Columns that lie together in a packed strip.
    packed
        Whether it reads strips, or operands where they lie.

    Examples
    --------
    >>> shape = Shape("float64", 512, vectors=3, columns=8, group=8, packed=True)
    >>> shape.name, shape.rows
    ('packed_float64_512_3x8_8', 24)
    """

    dtype: str
    bits: int
    vectors: int
    columns: int
    group: int
    packed: bool

    @property
    def name(self) -> str:
        """The symbol that the kernel has in its object file."""
        kind = "packed" if self.packed else "placed"
        return f"{kind}_{self.dtype}_{self.bits}_{self.vectors}x{self.columns}_{self.group}"

    @property
    def real(self) -> str:
        """The dtype of the vectors."""
        return real_of(self.dtype)

    @property
    def complex(self) -> bool:
        """Whether an element is two numbers."""
        return self.real != self.dtype

    @property
    def lanes(self) -> int:
        """Rows of one group."""
        return vectors.lanes(self.real, self.bits)

    @property
    def rows(self) -> int:
        """Rows of the whole tile."""
        return self.vectors * self.lanes

    @property
    def accumulators(self) -> int:
        """Vectors that hold the tile of C."""
        return self.vectors * self.columns * (2 if self.complex else 1)


def real_of(dtype: str) -> str:
    """Return the dtype of the numbers that an element is made of.

    Examples
    --------
    >>> real_of("complex64"), real_of("float64")
    ('float32', 'float64')
    """
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def emit(module: ir.Module, shape: Shape, native: int) -> ir.Function:
    """Add a microkernel to a module.

    Parameters
    ----------
    module
        Receives the function ``void shape.name(int64 frame)``.
    shape
        Which one.
    native
        Bits of the CPU's widest vector; a kernel no wider is kept in the written order.

    Examples
    --------
    >>> module = ir.Module()
    >>> emit(module, Shape("float32", 256, 2, 6, 6, packed=True), native=256).name
    'packed_float32_256_2x6_6'
    """
    signature = ir.FunctionType(ir.VoidType(), (INT64,))
    function = ir.Function(module, signature, shape.name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block())
    tile = _Tile(builder, shape, function.args[0], native)
    tile.write(tile.accumulate())
    builder.ret_void()
    return function


class _Tile:
    """One kernel while it is written."""

    def __init__(self, builder: ir.IRBuilder, shape: Shape, frame: ir.Value, native: int) -> None:
        self.builder, self.shape, self.frame = builder, shape, frame
        self.kind = vectors.vector_type(shape.real, shape.bits)
        self.scalar = self.kind.element
        self.size = shape.bits // 8 // shape.lanes
        self.element = self.size * (2 if shape.complex else 1)
        self.parts = 2 if shape.complex else 1
        self.ordered = shape.bits <= native

    def field(self, name: str) -> ir.Value:
        return self.integer(self.frame, 8 * FIELDS.index(name))

    def integer(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        where = vectors.pointer(self.builder, address, offset)
        return self.builder.load(where, typ=INT64, align=8)

    def number(self, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        where = vectors.pointer(self.builder, address, offset)
        return self.builder.load(where, typ=self.scalar, align=self.size)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return vectors.multiply_add(self.builder, x, y, z, self.shape.real)

    def fms(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``z - x * y``."""
        return self.fma(self.builder.fneg(x), y, z)

    # The loop over k

    def accumulate(self) -> list[ir.Value]:
        """Emit the loop over k and return the sums: for each group its columns, for each its parts.

        Few accumulators would wait for each other's FMAs: then several steps of k have sets of
        their own, which are added up in the end.
        """
        builder, shape = self.builder, self.shape
        step = self._packed_step() if shape.packed else self._placed_step()
        sets = 1
        while sets * shape.accumulators < PENDING:
            sets *= 2
        zero = ir.Constant(self.kind, None)
        count = self.field("k")
        with builder.if_then(builder.icmp_signed(">=", count, INT64(FAR)), likely=True):
            self._expect_c()
        sums = [[zero] * shape.accumulators for _ in range(sets)]
        whole = builder.sdiv(count, INT64(sets))
        if sets > 1:
            flat = [x for one in sums for x in one]

            def body(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
                first = builder.mul(trip, INT64(sets))
                found: list[ir.Value] = []
                for at in range(sets):
                    mine = values[at * shape.accumulators : (at + 1) * shape.accumulators]
                    found += step(builder.add(first, INT64(at)), mine)
                return found

            flat = vectors.loop(builder, whole, flat, body)
            total = flat[: shape.accumulators]
            for at in range(1, sets):
                more = flat[at * shape.accumulators : (at + 1) * shape.accumulators]
                total = [builder.fadd(x, y) for x, y in zip(total, more, strict=True)]
        else:
            total = sums[0]
        done = builder.mul(whole, INT64(sets)) if sets > 1 else INT64(0)
        rest = builder.sub(count, done)
        return vectors.loop(
            builder, rest, total, lambda trip, values: step(builder.add(done, trip), values)
        )

    def _expect_c(self) -> None:
        """Have C fetched while the sums are computed."""
        builder, shape = self.builder, self.shape
        c, rows_c, columns_c = self.field("c"), self.field("rows_c"), self.field("columns_c")
        rows = [
            builder.add(c, self.integer(rows_c, 8 * shape.lanes * i)) for i in range(shape.vectors)
        ]
        for column in range(shape.columns):
            offset = self.integer(columns_c, 8 * column)
            for row in rows:
                where = vectors.pointer(builder, builder.add(row, offset))
                vectors.prefetch(builder, where, write=True)

    def _packed_step(self) -> Step:
        builder, shape = self.builder, self.shape
        a, b = self.field("a"), self.field("b")
        a_step, b_step = self.field("a_step"), self.field("b_step")
        rows = [a]
        for _ in range(1, shape.vectors):
            rows.append(builder.add(rows[-1], a_step))
        groups = [b]
        for _ in range(1, -(-shape.columns // shape.group)):
            groups.append(builder.add(groups[-1], b_step))
        stride_a = self.parts * shape.bits // 8
        stride_b = shape.group * self.element

        def step(trip: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            at_a = builder.mul(trip, INT64(stride_a))
            at_b = builder.mul(trip, INT64(stride_b))
            loaded = [self._unpacked(builder.add(row, at_a), shape.bits // 8) for row in rows]
            columns = [
                (
                    builder.add(groups[c // shape.group], at_b),
                    c % shape.group * self.element,
                )
                for c in range(shape.columns)
            ]
            return self._multiply(loaded, columns, sums)

        return step

    def _placed_step(self) -> Step:
        builder, shape = self.builder, self.shape
        a, b = self.field("a"), self.field("b")
        rows_a, columns_b = self.field("rows_a"), self.field("columns_b")
        sums_a, sums_b = self.field("sums_a"), self.field("sums_b")
        a_ahead, b_ahead = self.field("a_ahead"), self.field("b_ahead")
        rows = [
            builder.add(a, self.integer(rows_a, 8 * shape.lanes * i)) for i in range(shape.vectors)
        ]
        columns = [builder.add(b, self.integer(columns_b, 8 * c)) for c in range(shape.columns)]

        def step(trip: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            at = builder.mul(trip, INT64(8))
            at_a, at_b = self.integer(sums_a, at), self.integer(sums_b, at)
            places = [builder.add(row, at_a) for row in rows]
            loaded = [self._unpacked(place, self.size) for place in places]
            for place in places:
                self._prefetch(builder.add(place, a_ahead))
            scalars = [(builder.add(column, at_b), 0) for column in columns]
            for place, _ in scalars[:: shape.group]:
                self._prefetch(builder.add(place, b_ahead))
            return self._multiply(loaded, scalars, sums)

        return step

    def _unpacked(self, place: ir.Value, align: int) -> list[ir.Value]:
        """Return the vectors of real and imaginary parts of rows that lie interleaved."""
        builder, kind = self.builder, self.kind
        loaded = [
            vectors.load(
                builder, vectors.pointer(builder, place, i * self.shape.bits // 8), kind, align
            )
            for i in range(self.parts)
        ]
        if self.parts == 1:
            return loaded
        lanes = self.shape.lanes
        return [
            vectors.shuffle(builder, loaded[0], loaded[1], range(part, 2 * lanes, 2))
            for part in range(2)
        ]

    def _prefetch(self, address: ir.Value) -> None:
        vectors.prefetch(self.builder, vectors.pointer(self.builder, address))

    def _multiply(
        self,
        rows: list[list[ir.Value]],
        columns: list[tuple[ir.Value, int]],
        sums: list[ir.Value],
    ) -> list[ir.Value]:
        """Emit one step of k: every group of rows times every column."""
        builder = self.builder
        found = list(sums)
        since: list[ir.Value] = []
        for number, (address, offset) in enumerate(columns):
            parts = [
                vectors.broadcast(builder, self.number(address, offset + i * self.size), self.kind)
                for i in range(self.parts)
            ]
            for i, row in enumerate(rows):
                at = (i * self.shape.columns + number) * self.parts
                if self.parts == 1:
                    found[at] = self.fma(row[0], parts[0], found[at])
                else:
                    found[at] = self.fma(row[0], parts[0], found[at])
                    found[at + 1] = self.fma(row[0], parts[1], found[at + 1])
                    found[at] = self.fms(row[1], parts[1], found[at])
                    found[at + 1] = self.fma(row[1], parts[0], found[at + 1])
                since += found[at : at + self.parts]
            # LLVM would load all columns first, and spill accumulators to find room for them.
            if self.ordered and (number + 1) % max(1, 4 // self.parts) == 0:
                vectors.after(builder, since)
                since = []
        return found

    # Writing C

    def write(self, sums: list[ir.Value]) -> None:
        """Emit the ways of writing C, and the choice between them."""
        builder, function = self.builder, self.builder.function
        scaled = self._scaled(sums)
        mode = self.field("mode")
        end = function.append_basic_block("end")
        scattered = function.append_basic_block("scattered")
        choice = builder.switch(mode, scattered)
        for way in (Mode.STORE, Mode.ADD, Mode.STREAM):
            block = function.append_basic_block(way.name.lower())
            choice.add_case(INT64(int(way)), block)
            builder.position_at_end(block)
            self._vectors(scaled, way)
            builder.branch(end)
        builder.position_at_end(scattered)
        self._scatter(scaled, builder.icmp_signed("==", mode, INT64(int(Mode.SCATTER_ADD))))
        builder.branch(end)
        builder.position_at_end(end)

    def _scaled(self, sums: list[ir.Value]) -> list[ir.Value]:
        """Emit the product with alpha, which is skipped where alpha is one, as it mostly is."""
        builder = self.builder
        before = builder.block
        with builder.if_then(builder.not_(self._plain())):
            alpha = self._factor("alpha")
            found: list[ir.Value] = []
            if self.parts == 1:
                found = [builder.fmul(x, alpha[0]) for x in sums]
            else:
                for real, imaginary in zip(sums[::2], sums[1::2], strict=True):
                    found += self._product(alpha, [real, imaginary])
            scaled = builder.block
        chosen = []
        for old, new in zip(sums, found, strict=True):
            phi = builder.phi(self.kind)
            phi.add_incoming(old, before)
            phi.add_incoming(new, scaled)
            chosen.append(phi)
        return chosen

    def _plain(self) -> ir.Value:
        """Return whether alpha is one."""
        builder = self.builder
        real, imaginary = (
            self.number(self.frame, 8 * FIELDS.index(name)) for name in ("alpha", "alpha_imaginary")
        )
        plain = builder.fcmp_ordered("==", real, ir.Constant(self.scalar, 1.0))
        if self.parts == 1:
            return plain
        zero = ir.Constant(self.scalar, 0.0)
        return builder.and_(plain, builder.fcmp_ordered("==", imaginary, zero))

    def _factor(self, name: str) -> list[ir.Value]:
        names = (name, f"{name}_imaginary")[: self.parts]
        return [
            vectors.broadcast(
                self.builder, self.number(self.frame, 8 * FIELDS.index(field)), self.kind
            )
            for field in names
        ]

    def _product(self, x: list[ir.Value], y: list[ir.Value]) -> list[ir.Value]:
        multiply = self.builder.fmul
        return [
            self.fms(x[1], y[1], multiply(x[0], y[0])),
            self.fma(x[1], y[0], multiply(x[0], y[1])),
        ]

    def _vectors(self, values: list[ir.Value], way: Mode) -> None:
        builder, shape = self.builder, self.shape
        c, rows_c, columns_c = self.field("c"), self.field("rows_c"), self.field("columns_c")
        beta = self._factor("beta") if way is Mode.ADD else []
        rows = [
            builder.add(c, self.integer(rows_c, 8 * shape.lanes * i)) for i in range(shape.vectors)
        ]
        aligned = shape.bits // 8 if way is Mode.STREAM else self.size
        for column in range(shape.columns):
            offset = self.integer(columns_c, 8 * column)
            for i in range(shape.vectors):
                at = (i * shape.columns + column) * self.parts
                value = values[at : at + self.parts]
                place = builder.add(rows[i], offset)
                if way is Mode.ADD:
                    value = self._sum(beta, self._unpacked(place, self.size), value)
                if self.parts == 2:
                    value = self._interleaved(value)
                for part, vector in enumerate(value):
                    vectors.store(
                        builder,
                        vector,
                        vectors.pointer(builder, place, part * shape.bits // 8),
                        aligned,
                        streaming=way is Mode.STREAM,
                    )

    def _sum(
        self, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
    ) -> list[ir.Value]:
        """Return ``beta * old + new``."""
        found = [self.fma(beta[0], x, y) for x, y in zip(old, new, strict=True)]
        if self.parts == 2:
            found[0] = self.fms(beta[1], old[1], found[0])
            found[1] = self.fma(beta[1], old[0], found[1])
        return found

    def _interleaved(self, parts: list[ir.Value]) -> list[ir.Value]:
        lanes = self.shape.lanes
        order = [lane + part * lanes for lane in range(lanes) for part in range(2)]
        return [
            vectors.shuffle(self.builder, parts[0], parts[1], order[:lanes]),
            vectors.shuffle(self.builder, parts[0], parts[1], order[lanes:]),
        ]

    def _scatter(self, values: list[ir.Value], adding: ir.Value) -> None:
        """Emit the way through a scratch tile, an element at a time."""
        builder, shape = self.builder, self.shape
        column_bytes = shape.rows * self.element
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(ir.IntType(8), column_bytes * shape.columns))
            room.align = 64
        scratch = builder.ptrtoint(room, INT64)
        for column in range(shape.columns):
            for i in range(shape.vectors):
                at = (i * shape.columns + column) * self.parts
                value = values[at : at + self.parts]
                if self.parts == 2:
                    value = self._interleaved(value)
                base = column * column_bytes + i * shape.lanes * self.element
                for part, vector in enumerate(value):
                    where = vectors.pointer(builder, scratch, base + part * shape.bits // 8)
                    vectors.store(builder, vector, where, self.size)
        c, rows_c, columns_c = self.field("c"), self.field("rows_c"), self.field("columns_c")
        rows = self.field("rows")
        beta = [
            self.number(self.frame, 8 * FIELDS.index(name))
            for name in ("beta", "beta_imaginary")[: self.parts]
        ]

        def element(row: ir.Value, column: ir.Value) -> None:
            spot = builder.add(
                builder.mul(column, INT64(column_bytes)), builder.mul(row, INT64(self.element))
            )
            new = [
                self.number(builder.add(scratch, spot), i * self.size) for i in range(self.parts)
            ]
            place = builder.add(
                builder.add(c, self.integer(rows_c, builder.mul(row, INT64(8)))),
                self.integer(columns_c, builder.mul(column, INT64(8))),
            )
            with builder.if_else(adding) as (then, otherwise):
                with then:
                    old = [self.number(place, i * self.size) for i in range(self.parts)]
                    self._put(self._scalar_sum(beta, old, new), place)
                with otherwise:
                    self._put(new, place)

        def in_column(column: ir.Value) -> None:
            vectors.each(builder, rows, lambda row: element(row, column))

        vectors.each(builder, INT64(shape.columns), in_column)

    def _scalar_sum(
        self, beta: list[ir.Value], old: list[ir.Value], new: list[ir.Value]
    ) -> list[ir.Value]:
        builder = self.builder
        found = [builder.fadd(builder.fmul(beta[0], x), y) for x, y in zip(old, new, strict=True)]
        if self.parts == 2:
            found[0] = builder.fsub(found[0], builder.fmul(beta[1], old[1]))
            found[1] = builder.fadd(found[1], builder.fmul(beta[1], old[0]))
        return found

    def _put(self, parts: list[ir.Value], place: ir.Value) -> None:
        for i, part in enumerate(parts):
            where = vectors.pointer(self.builder, place, i * self.size)
            self.builder.store(part, where, align=self.size)
