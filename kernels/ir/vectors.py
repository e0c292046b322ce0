"""LLVM vectors: the instructions from which kernels are put together.

A vector has exactly the width that is written; LLVM splits vectors that the CPU lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.ir import complexes
from tilesolve.kernels.ir.short_constants import undefined, zeros

INT64 = ir.IntType(64)
_INT32 = ir.IntType(32)
_SCALARS = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int64": INT64,
    "half": ir.IntType(16),
}
_VECTOR_REGISTER = {"x86_64": "v", "aarch64": "w", "arm64": "w"}
"""What LLVM calls any vector register in the constraint of a piece of assembly."""


def vector_type(dtype: str, bits: int) -> ir.VectorType:
    """Return the LLVM type of a vector.

    Examples
    --------
    >>> print(vector_type("float64", 256))
    <4 x double>
    """
    return ir.VectorType(_SCALARS[dtype], lanes(dtype, bits))


def to_pointer(builder: ir.IRBuilder, address: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
    """Return a pointer to ``address + offset``, both in bytes.

    Examples
    --------
    >>> builder, address = example_function()
    >>> print(to_pointer(builder, address, 64).type)
    ptr
    """
    if isinstance(offset, int):
        address = builder.add(address, INT64(offset)) if offset else address
    else:
        address = builder.add(address, offset)
    return builder.inttoptr(address, ir.PointerType())


def load(builder: ir.IRBuilder, where: ir.Value, kind: ir.VectorType, align: int) -> ir.Value:
    """Load a vector from an address that is a multiple of `align` bytes.

    Examples
    --------
    >>> builder, address = example_function()
    >>> print(load(builder, to_pointer(builder, address), vector_type("float64", 256), 32))
    %".5" = load <4 x double>, ptr %".4", align 32
    """
    return builder.load(where, typ=kind, align=align)


def store(
    builder: ir.IRBuilder,
    value: ir.Value,
    where: ir.Value,
    align: int,
    *,
    non_temporal: bool = False,
) -> None:
    """Store a vector; a non-temporal store bypasses the caches and needs full alignment.

    Examples
    --------
    >>> builder, address = example_function()
    >>> store(builder, address, to_pointer(builder, address), 32, non_temporal=True)
    >>> print(builder.block.instructions[-1])
    store i64 %".1", ptr %".4", align 32, !nontemporal !0
    """
    instruction = builder.store(value, where, align=align)
    if non_temporal:
        instruction.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


def type_suffix(kind: ir.Type) -> str:
    """Return what the names of LLVM's functions have for a type.

    Examples
    --------
    >>> type_suffix(vector_type("float32", 128)), type_suffix(INT64), type_suffix(ir.PointerType())
    ('v4f32', 'i64', 'p0')
    """
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ir.PointerType):
        return "p0"
    return {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(kind) or str(kind)


def call_function(
    builder: ir.IRBuilder, name: str, returns: ir.Type, arguments: Sequence[ir.Value]
) -> ir.Value:
    """Call a function of LLVM, or of C, by its whole name.

    Examples
    --------
    >>> builder, count = example_function()
    >>> print(call_function(builder, "llvm.smax.i64", INT64, [count, count]))
    %".4" = call i64 @"llvm.smax.i64"(i64 %".1", i64 %".1")
    """
    signature = ir.FunctionType(returns, [value.type for value in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    return builder.call(function, arguments)


def call_alike(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Call a function of LLVM that returns what its arguments are, by its short name.

    Examples
    --------
    >>> builder, count = example_function()
    >>> call_alike(builder, "smax", count, count).callee.name
    'llvm.smax.i64'
    """
    kind = arguments[0].type
    return call_function(builder, f"llvm.{name}.{type_suffix(kind)}", kind, arguments)


def extreme(builder: ir.IRBuilder, symbol: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the less of two signed integers by ``<``, the greater one by ``>``.

    Examples
    --------
    >>> builder, count = example_function()
    >>> print(extreme(builder, ">", count, INT64(0)))
    %".5" = select  i1 %".4", i64 %".1", i64 0
    """
    return builder.select(builder.icmp_signed(symbol, x, y), x, y)


def reduce(builder: ir.IRBuilder, name: str, vector: ir.Value) -> ir.Value:
    """Return the lanes of a vector put together by a reduction of LLVM.

    Examples
    --------
    >>> builder, count = example_function()
    >>> vector = broadcast(builder, count, vector_type("int64", 256))
    >>> reduce(builder, "smin", vector).callee.name
    'llvm.vector.reduce.smin.v4i64'
    """
    kind = vector.type
    name = f"llvm.vector.reduce.{name}.{type_suffix(kind)}"
    return call_function(builder, name, kind.element, [vector])


def retype(kind: ir.Type, element: ir.Type) -> ir.Type:
    """Return a type of other elements with as many lanes as a type has.

    Examples
    --------
    >>> print(retype(vector_type("float64", 256), INT64), retype(ir.DoubleType(), INT64))
    <4 x i64> i64
    """
    return complexes.vector_of(element, kind.count) if isinstance(kind, ir.VectorType) else element


def constant(kind: ir.Type, value: complex) -> ir.Constant:
    """Return a number, in each lane of a vector.

    Examples
    --------
    >>> print(constant(ir.VectorType(ir.IntType(8), 2), 3))
    <2 x i8> <i8 3, i8 3>
    """
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [constant(kind.element, value)] * kind.count)
    if isinstance(kind, ir.IntType):
        return ir.Constant(kind, int(value.real) & ((1 << kind.width) - 1))
    return ir.Constant(kind, value if isinstance(value, complex) else float(value))


def broadcast(builder: ir.IRBuilder, scalar: ir.Value, kind: ir.VectorType) -> ir.Value:
    """Return a vector with one scalar in every lane.

    Examples
    --------
    >>> builder, address = example_function()
    >>> print(broadcast(builder, address, vector_type("int64", 512)).type)
    <8 x i64>
    """
    if isinstance(kind, complexes.ComplexVector):
        return complexes.shuffle_complex(builder, scalar, scalar, [0] * kind.count)
    single = builder.insert_element(undefined(kind), scalar, _INT32(0))
    return builder.shuffle_vector(single, undefined(kind), zeros(ir.VectorType(_INT32, kind.count)))


def multiply_add(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """Return ``x * y + z``, fused where the CPU has an FMA.

    `llvm.fma` would call a library for each lane of a CPU without one.

    Examples
    --------
    >>> builder, address = example_function()
    >>> x = load(builder, to_pointer(builder, address), vector_type("float32", 128), 16)
    >>> multiply_add(builder, x, x, x).callee.name
    'llvm.fmuladd.v4f32'
    """
    return call_alike(builder, "fmuladd", x, y, z)


def shuffle(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, order: Iterable[int]) -> ir.Value:
    """Return a vector of chosen lanes: those of `x` count from 0, those of `y` follow them.

    Examples
    --------
    >>> builder, address = example_function()
    >>> x = load(builder, to_pointer(builder, address), vector_type("float64", 256), 8)
    >>> print(shuffle(builder, x, x, [0, 4]).type)
    <2 x double>
    """
    chosen = list(order)
    if isinstance(x.type, complexes.ComplexVector):
        return complexes.shuffle_complex(builder, x, y, chosen)
    mask = ir.Constant(ir.VectorType(_INT32, len(chosen)), [_INT32(lane) for lane in chosen])
    return builder.shuffle_vector(x, y, mask)


def transpose_vectors(
    builder: ir.IRBuilder, rows: Sequence[ir.Value], parts: int = 1
) -> list[ir.Value]:
    """Return the columns of at least as many vectors as each has elements, both powers of two.

    Halves, quarters, … of vectors are swapped, so every step is a shuffle of two vectors. An
    element may have several parts.

    Examples
    --------
    >>> builder, address = example_function()
    >>> x = load(builder, to_pointer(builder, address), vector_type("float64", 256), 8)
    >>> [str(column.type) for column in transpose_vectors(builder, [x] * 4, parts=2)]
    ['<8 x double>', '<8 x double>']
    """
    count = rows[0].type.count // parts
    # Each vector has pieces of every count-th row: transposing pieces brings rows in order.
    found = [concatenate(builder, rows[at::count]) for at in range(count)]
    elements = len(rows)
    distance = count // 2
    while distance:
        first = [i if not i & distance else elements + i - distance for i in range(elements)]
        second = [i + distance if not i & distance else elements + i for i in range(elements)]
        orders = [
            [parts * i + part for i in order for part in range(parts)] for order in (first, second)
        ]
        for at in range(count):
            if not at & distance:
                x, y = found[at], found[at + distance]
                found[at] = shuffle(builder, x, y, orders[0])
                found[at + distance] = shuffle(builder, x, y, orders[1])
        distance //= 2
    return found


def concatenate(builder: ir.IRBuilder, pieces: Sequence[ir.Value]) -> ir.Value:
    """Return a vector of the elements of all pieces, whose number is a power of two.

    Examples
    --------
    >>> builder, _ = example_function()
    >>> print(concatenate(builder, [ir.Constant(vector_type("int64", 128), None)] * 4).type)
    <8 x i64>
    """
    found = list(pieces)
    while len(found) > 1:
        order = range(2 * found[0].type.count)
        found = [
            shuffle(builder, x, y, order) for x, y in zip(found[::2], found[1::2], strict=True)
        ]
    return found[0]


def prefetch(
    builder: ir.IRBuilder, where: ir.Value, *, write: bool = False, near: bool = True
) -> None:
    """Prefetch a line to the first cache, or to the second one unless it is near in time.

    An address that cannot be read does no harm.

    Examples
    --------
    >>> builder, address = example_function()
    >>> prefetch(builder, to_pointer(builder, address))
    >>> print(builder.block.instructions[-1].callee.name)
    llvm.prefetch.p0
    """
    choice = (_INT32(int(write)), _INT32(3 if near else 2), _INT32(1))
    call_function(builder, "llvm.prefetch.p0", ir.VoidType(), (where, *choice))


def order_after(builder: ir.IRBuilder, values: Sequence[ir.Value]) -> None:
    """Keep memory accesses that follow behind the computation of these vectors.

    An empty piece of assembly takes them in registers and claims to touch memory, on architectures
    whose letter for vector registers is known.

    Examples
    --------
    >>> builder, address = example_function()
    >>> x = load(builder, to_pointer(builder, address), vector_type("float64", 128), 8)
    >>> builder.module.triple = "x86_64-unknown-linux-gnu"
    >>> order_after(builder, [x])
    >>> print(builder.block.instructions[-1])
    call void asm sideeffect "", "v,~{memory}"(<2 x double> %".5")
    """
    register = _VECTOR_REGISTER.get(builder.module.triple.split("-")[0])
    if register is not None:
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        constraint = ",".join([register] * len(values))
        builder.asm(kind, "", f"{constraint},~{{memory}}", values, True)


def hide_origin(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return an integer whose origin the compiler does not know.

    It takes no instruction: an empty piece of assembly returns the register that it is given.

    Examples
    --------
    >>> builder, count = example_function()
    >>> print(hide_origin(builder, count))
    %".4" = call i64 asm  "", "=r,0"(i64 %".1")
    """
    kind = ir.FunctionType(value.type, [value.type])
    return builder.asm(kind, "", "=r,0", [value], False)


def repeat(builder: ir.IRBuilder, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
    """Emit ``for i in range(count)`` without values that are carried from trip to trip.

    Examples
    --------
    >>> builder, count = example_function()
    >>> repeat(builder, count, lambda i: compiler_barrier(builder))
    >>> builder.block.name
    'after'
    """

    def trip(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        body(index)
        return []

    emit_loop(builder, count, [], trip)


def emit_loop(
    builder: ir.IRBuilder,
    count: ir.Value,
    carried: Sequence[ir.Value],
    body: Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """Emit ``for i in range(count)`` and leave the builder behind it.

    Parameters
    ----------
    builder
        Where to emit.
    count
        Trips, an `INT64`; none if it is not positive.
    carried
        Values that one trip hands to the next, on entry: accumulators in registers, for example.
    body
        Called once with the trip's index and the carried values; emits the body and returns the
        values for the next trip.

    Returns
    -------
    list
        The carried values after the last trip.

    Examples
    --------
    >>> builder, count = example_function()
    >>> [total] = emit_loop(builder, count, [INT64(0)], lambda i, sums: [builder.add(sums[0], i)])
    >>> print(total.type, builder.block.name)
    i64 after
    """
    before = builder.block
    head = builder.append_basic_block("loop")
    inside = builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(head)

    builder.position_at_end(head)
    index = builder.phi(INT64)
    index.add_incoming(INT64(0), before)
    values = [builder.phi(value.type) for value in carried]
    for value, entry in zip(values, carried, strict=True):
        value.add_incoming(entry, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)

    builder.position_at_end(inside)
    results = body(index, values)
    following = builder.add(index, INT64(1))
    index.add_incoming(following, builder.block)
    for value, result in zip(values, results, strict=True):
        value.add_incoming(result, builder.block)
    builder.branch(head)

    builder.position_at_end(after)
    return values


def compiler_barrier(builder: ir.IRBuilder) -> None:
    """Keep the compiler from moving, merging or dropping memory accesses across this point.

    It takes no instruction: an empty piece of assembly claims to touch all memory.

    Examples
    --------
    >>> builder, _ = example_function()
    >>> compiler_barrier(builder)
    >>> print(builder.block.instructions[-1])
    call void asm sideeffect "", "~{memory}"()
    """
    nothing = ir.FunctionType(ir.VoidType(), ())
    builder.asm(nothing, "", "~{memory}", (), True)


def store_fence(builder: ir.IRBuilder) -> None:
    """Wait until every store, non-temporal ones included, has reached memory.

    Examples
    --------
    >>> builder, _ = example_function()
    >>> store_fence(builder)
    >>> print(builder.block.instructions[-1])
    fence seq_cst
    """
    builder.fence("seq_cst")


def example_function() -> tuple[ir.IRBuilder, ir.Value]:
    """Return a builder in an empty function of an integer, and that integer: for the examples."""
    kind = ir.FunctionType(ir.VoidType(), (INT64,))
    function = ir.Function(ir.Module(), kind, "example")
    return ir.IRBuilder(function.append_basic_block()), function.args[0]
