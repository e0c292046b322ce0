"""Complex numbers in LLVM IR: real and imaginary parts alternate, in registers as in memory.

A type of its own tells such a vector from one of twice as many real numbers, so that what loads,
stores, holds and chooses numbers counts complex ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llvmlite import ir

_INT32 = ir.IntType(32)
_INT64 = ir.IntType(64)


class ComplexType(ir.Type):  # type: ignore[misc]
    """One complex number.

    Parameters
    ----------
    part
        The type of each of its parts.

    Examples
    --------
    >>> print(ComplexType(ir.FloatType()), vector_of(ComplexType(ir.FloatType()), 4))
    <2 x float> <8 x float>
    """

    def __init__(self, part: ir.Type) -> None:
        self.part = part

    def _to_string(self) -> str:
        return f"<2 x {self.part}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComplexType) and self.part == other.part

    def __hash__(self) -> int:
        return hash((ComplexType, self.part))

    def format_constant(self, value: complex) -> str:
        """Return a number as text."""
        return f"<{self.format_parts(value)}>"

    def format_parts(self, value: complex) -> str:
        """Return both parts of a number as text."""
        parts = (ir.Constant(self.part, float(one)) for one in (value.real, value.imag))
        return ", ".join(map(str, parts))


class ComplexVector(ir.VectorType):  # type: ignore[misc]
    """A vector of complex numbers: `count` is how many of them there are."""

    def _to_string(self) -> str:
        return str(self.plain)

    @property
    def plain(self) -> ir.VectorType:
        """The vector of their parts."""
        return ir.VectorType(self.element.part, 2 * self.count)

    def wrap_constant_value(self, values: object) -> object:
        """Return what a constant has: numbers for the lanes, or what stands for all of them."""
        return values

    def format_constant(self, value: Sequence[ir.Constant]) -> str:
        """Return numbers as text."""
        return f"<{', '.join(self.element.format_parts(one.constant) for one in value)}>"


def vector_of(element: ir.Type, count: int) -> ir.VectorType:
    """Return the type of a vector of real or complex numbers."""
    kind = ComplexVector if isinstance(element, ComplexType) else ir.VectorType
    return kind(element, count)


def plain_type(kind: ir.Type) -> ir.Type:
    """Return a type with the parts of complex numbers as its elements."""
    if isinstance(kind, ComplexType):
        return ir.VectorType(kind.part, 2)
    return kind.plain if isinstance(kind, ComplexVector) else kind


def to_plain(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return complex numbers as a vector of their parts; other values as they are."""
    return builder.bitcast(value, plain_type(value.type))


def to_complex(builder: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> ir.Value:
    """Return a vector of parts as complex numbers."""
    return builder.bitcast(value, kind)


def shuffle_parts(
    builder: ir.IRBuilder, x: ir.Value, y: ir.Value, order: Iterable[int]
) -> ir.Value:
    """Return chosen elements of two vectors of parts, or of other numbers."""
    chosen = [_INT32(one) for one in order]
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT32, len(chosen)), chosen))


def shuffle_complex(
    builder: ir.IRBuilder, x: ir.Value, y: ir.Value, order: Sequence[int]
) -> ir.Value:
    """Return chosen complex numbers of one or two: those of `x` count from 0, those of `y` follow.

    Examples
    --------
    >>> kind = vector_of(ComplexType(ir.FloatType()), 4)
    >>> builder, x = _example(kind)
    >>> print(shuffle_complex(builder, x, x, [2, 1]).type)
    <4 x float>
    """
    element = x.type if isinstance(x.type, ComplexType) else x.type.element
    both = [2 * one + part for one in order for part in (0, 1)]
    found = shuffle_parts(builder, to_plain(builder, x), to_plain(builder, y), both)
    return to_complex(builder, found, ComplexVector(element, len(order)))


def extract(builder: ir.IRBuilder, vector: ir.Value, lane: int) -> ir.Value:
    """Return a lane of a vector of real or complex numbers."""
    if not isinstance(vector.type, ComplexVector):
        return builder.extract_element(vector, _INT32(lane))
    one = shuffle_complex(builder, vector, vector, [lane])
    return to_complex(builder, to_plain(builder, one), vector.type.element)


def select(builder: ir.IRBuilder, test: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
    """Return one of two values; or in each lane, real or complex, that of one of two vectors."""
    if not (isinstance(test.type, ir.VectorType) and isinstance(yes.type, ComplexVector)):
        return builder.select(test, yes, no)
    found = builder.select(spread(builder, test), *(to_plain(builder, one) for one in (yes, no)))
    return to_complex(builder, found, yes.type)


def spread(builder: ir.IRBuilder, lanes: ir.Value) -> ir.Value:
    """Return a vector with each lane of another one twice: what holds of both parts."""
    return shuffle_parts(builder, lanes, lanes, [at // 2 for at in range(2 * lanes.type.count)])


def spread_places(builder: ir.IRBuilder, places: ir.Value, part: ir.Type) -> ir.Value:
    """Return pointers to both parts of complex numbers, given those to the numbers."""
    kind = ir.VectorType(_INT64, 2 * places.type.count)
    size = {ir.FloatType(): 4, ir.DoubleType(): 8}[part]
    begins = spread(builder, builder.ptrtoint(places, ir.VectorType(_INT64, places.type.count)))
    steps = ir.Constant(kind, [_INT64(at % 2 * size) for at in range(kind.count)])
    return builder.inttoptr(builder.add(begins, steps), ir.VectorType(ir.PointerType(), kind.count))


def split(builder: ir.IRBuilder, value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the real and the imaginary part of a complex number, or of each lane."""
    parts = to_plain(builder, value)
    if isinstance(value.type, ComplexType):
        return extract(builder, parts, 0), extract(builder, parts, 1)
    real, imaginary = (
        shuffle_parts(builder, parts, parts, range(at, parts.type.count, 2)) for at in (0, 1)
    )
    return real, imaginary


def join(builder: ir.IRBuilder, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    """Return complex numbers of their parts.

    Examples
    --------
    >>> builder, x = _example(ir.VectorType(ir.DoubleType(), 2))
    >>> print(join(builder, x, x).type, split(builder, join(builder, x, x))[1].type)
    <4 x double> <2 x double>
    """
    if not isinstance(real.type, ir.VectorType):
        found: ir.Value = ir.Constant(ir.VectorType(real.type, 2), ir.Undefined)
        for at, one in enumerate((real, imaginary)):
            found = builder.insert_element(found, one, _INT32(at))
        return to_complex(builder, found, ComplexType(real.type))
    count = real.type.count
    order = [lane + part for lane in range(count) for part in (0, count)]
    found = shuffle_parts(builder, real, imaginary, order)
    return to_complex(builder, found, ComplexVector(ComplexType(real.type.element), count))


def multiply(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return products of complex numbers by the plain formula, as NumPy has them.

    Products of parts are subtracted and added in turn, for which some CPUs have an instruction.
    """
    first, second = (to_plain(builder, one) for one in (x, y))
    lanes = range(first.type.count)
    real, imaginary = (
        shuffle_parts(builder, first, first, [at - at % 2 + part for at in lanes])
        for part in (0, 1)
    )
    turned = shuffle_parts(builder, second, second, [at ^ 1 for at in lanes])
    fused = ("contract",)
    straight = builder.fmul(real, second, flags=fused)
    across = builder.fmul(imaginary, turned, flags=fused)
    less = builder.fsub(straight, across, flags=fused)
    more = builder.fadd(straight, across, flags=fused)
    order = [at + at % 2 * len(lanes) for at in lanes]
    return to_complex(builder, shuffle_parts(builder, less, more, order), x.type)


def _example(kind: ir.Type) -> tuple[ir.IRBuilder, ir.Value]:
    """Return a builder in a function of a value, and that value."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (kind,)), "example")
    return ir.IRBuilder(function.append_basic_block()), function.args[0]
