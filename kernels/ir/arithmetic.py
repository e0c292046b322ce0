"""Arithmetic in LLVM IR as numpy has it: on numbers and on vectors of them.

Booleans are single bits in registers and bytes in memory. Operations give what numpy's functions
of the same names give, also for division by zero, shifts beyond the width and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from tilesolve.contractions.statements.operations import is_complex
from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.ir import complexes
from tilesolve.kernels.ir.division import divide_by, divide_down
from tilesolve.kernels.ir.vectors import call_alike, constant, retype

BIT = ir.IntType(1)
BYTE = ir.IntType(8)
Emit = Callable[[ir.IRBuilder, str, Sequence[ir.Value]], ir.Value]


def number_type(dtype: str) -> ir.Type:
    """Return the type of one number in a register.

    Examples
    --------
    >>> print(number_type("uint16"), number_type("complex64"), number_type("bool"))
    i16 <2 x float> i1
    """
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return BIT
    if kind.kind == "c":
        return complexes.ComplexType(number_type(real_of(dtype)))
    if kind.kind == "f":
        return ir.FloatType() if kind.itemsize == 4 else ir.DoubleType()
    return ir.IntType(8 * kind.itemsize)


def memory_type(dtype: str) -> ir.Type:
    """Return the type of one number in memory.

    Examples
    --------
    >>> print(memory_type("bool"))
    i8
    """
    return BYTE if dtype == "bool" else number_type(dtype)


def signed(dtype: str) -> bool:
    """Return whether a dtype is of signed integers.

    Examples
    --------
    >>> signed("int8"), signed("uint8"), signed("bool")
    (True, False, False)
    """
    return np.dtype(dtype).kind == "i"


def real(dtype: str) -> bool:
    """Return whether a dtype is of floating-point numbers."""
    return np.dtype(dtype).kind == "f"


def floating(dtype: str) -> bool:
    """Return whether a dtype is of real or complex floating-point numbers."""
    return np.dtype(dtype).kind in "fc"


def cast(builder: ir.IRBuilder, value: ir.Value, source: str, target: str) -> ir.Value:
    """Return a value in another dtype, as numpy's `astype` does.

    A number with a fraction is cut off. One that the other dtype does not have gives what the CPU
    gives, as it does in numpy.
    """
    if source == target:
        return value
    wanted = retype(value.type, number_type(target))
    if target == "bool":
        return nonzero(builder, value, source)
    if is_complex(target):
        return _to_complex(builder, value, source, target)
    if source == "bool":
        return builder.uitofp(value, wanted) if real(target) else builder.zext(value, wanted)
    widths = np.dtype(source).itemsize, np.dtype(target).itemsize
    if real(source) and real(target):
        narrower = widths[1] < widths[0]
        return builder.fptrunc(value, wanted) if narrower else builder.fpext(value, wanted)
    if real(source):
        return _truncate(builder, value, target)
    if real(target):
        convert = builder.sitofp if signed(source) else builder.uitofp
        return convert(value, wanted)
    if widths[1] < widths[0]:
        return builder.trunc(value, wanted)
    if widths[1] == widths[0]:
        return value
    return builder.sext(value, wanted) if signed(source) else builder.zext(value, wanted)


def _to_complex(builder: ir.IRBuilder, value: ir.Value, source: str, target: str) -> ir.Value:
    """Return real or complex numbers as complex ones."""
    part = real_of(target)
    if not is_complex(source):
        real = cast(builder, value, source, part)
        return complexes.join(builder, real, constant(real.type, 0))
    parts = (cast(builder, one, real_of(source), part) for one in complexes.split(builder, value))
    return complexes.join(builder, *parts)


def _truncate(builder: ir.IRBuilder, value: ir.Value, target: str) -> ir.Value:
    """Return a floating-point number as an integer, through a wider one as compilers of C do."""
    width = 8 * np.dtype(target).itemsize
    if target == "uint64":
        return builder.fptoui(value, retype(value.type, ir.IntType(64)))
    wide = 32 if width < 32 or target == "int32" else 64
    found = builder.fptosi(value, retype(value.type, ir.IntType(wide)))
    return builder.trunc(found, retype(value.type, ir.IntType(width))) if width < wide else found


def nonzero(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Return whether a value is not zero; NaN is not."""
    if dtype == "bool":
        return value
    if is_complex(dtype):
        parts = complexes.split(builder, value)
        return builder.or_(*(nonzero(builder, one, real_of(dtype)) for one in parts))
    zero = constant(value.type, 0)
    if real(dtype):
        return builder.fcmp_unordered("!=", value, zero)
    return builder.icmp_unsigned("!=", value, zero)


def compare(
    builder: ir.IRBuilder, symbol: str, dtypes: Sequence[str], args: Sequence[ir.Value]
) -> ir.Value:
    """Return a comparison of values of two dtypes, which differ in signs alone if at all."""
    x, y = args
    if is_complex(dtypes[0]):
        kinds = [real_of(one) for one in dtypes]
        pairs = zip(*(complexes.split(builder, one) for one in args), strict=True)
        parts = [compare(builder, symbol, kinds, pair) for pair in pairs]
        return builder.or_(*parts) if symbol == "!=" else builder.and_(*parts)
    if real(dtypes[0]):
        if symbol == "!=":
            return builder.fcmp_unordered(symbol, x, y)
        return builder.fcmp_ordered(symbol, x, y)
    signs = [signed(dtype) for dtype in dtypes]
    if signs == [True, True]:
        return builder.icmp_signed(symbol, x, y)
    found = builder.icmp_unsigned(symbol, x, y)
    if signs[0] == signs[1]:
        return found
    # A negative number is less than any without a sign.
    negative = builder.icmp_signed("<", (x, y)[signs[1]], constant(x.type, 0))
    answer = symbol in ("<", "<=", "!=") if signs[0] else symbol in (">", ">=", "!=")
    return builder.select(negative, constant(negative.type, answer), found)


def _add(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if floating(dtype):
        return builder.fadd(*args, flags=("contract",))
    return builder.or_(*args) if dtype == "bool" else builder.add(*args)


def _subtract(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    return builder.fsub(*args, flags=("contract",)) if floating(dtype) else builder.sub(*args)


def _multiply(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if is_complex(dtype):
        return complexes.multiply(builder, *args)
    if real(dtype):
        return builder.fmul(*args, flags=("contract",))
    return builder.and_(*args) if dtype == "bool" else builder.mul(*args)


def _divide(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    return divide_by(builder, *args)


def _real_remainder(
    builder: ir.IRBuilder, args: Sequence[ir.Value]
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return numpy's remainder, what division by zero keeps of it, and what C's function gives."""
    x, y = args
    zero = constant(x.type, 0)
    c_rest = builder.frem(x, y)
    apart = builder.xor(builder.fcmp_ordered("<", y, zero), builder.fcmp_ordered("<", c_rest, zero))
    some = builder.fcmp_unordered("!=", c_rest, zero)
    moved = builder.select(apart, builder.fadd(c_rest, y), c_rest)
    rest = builder.select(some, moved, call_alike(builder, "copysign", zero, y))
    return rest, builder.and_(some, apart), c_rest


def _remainder(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if not real(dtype):
        return divide_down(builder, *args, signs=signed(dtype))[1]
    rest, _, c_rest = _real_remainder(builder, args)
    none = builder.fcmp_ordered("==", args[1], constant(args[1].type, 0))
    return builder.select(none, c_rest, rest)


def _floor_divide(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if not real(dtype):
        return divide_down(builder, *args, signs=signed(dtype))[0]
    x, y = args
    zero, half, one = (constant(x.type, value) for value in (0, 0.5, 1))
    _, below, c_rest = _real_remainder(builder, args)
    exact = builder.fdiv(builder.fsub(x, c_rest), y)
    exact = builder.select(below, builder.fsub(exact, one), exact)
    down = call_alike(builder, "floor", exact)
    far = builder.fcmp_ordered(">", builder.fsub(exact, down), half)
    down = builder.select(far, builder.fadd(down, one), down)
    plain = builder.fdiv(x, y)
    some = builder.fcmp_unordered("!=", exact, zero)
    found = builder.select(some, down, call_alike(builder, "copysign", zero, plain))
    return builder.select(builder.fcmp_ordered("==", y, zero), plain, found)


def _shift(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value], left: bool) -> ir.Value:
    x, y = args
    width = 8 * np.dtype(dtype).itemsize
    zero = constant(x.type, 0)
    within = builder.icmp_unsigned("<", y, constant(x.type, width))
    count = builder.select(within, y, zero)
    if left:
        return builder.select(within, builder.shl(x, count), zero)
    if not signed(dtype):
        return builder.select(within, builder.lshr(x, count), zero)
    last = constant(x.type, width - 1)
    return builder.ashr(x, builder.select(within, y, last))


def _least(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    return _extreme(builder, dtype, args, "<")


def _greatest(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    return _extreme(builder, dtype, args, ">")


def _extreme(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value], symbol: str) -> ir.Value:
    x, y = reversed(args) if isinstance(args[1], ir.Constant) else args
    if dtype == "bool":
        return builder.and_(x, y) if symbol == "<" else builder.or_(x, y)
    if real(dtype):  # the second one is chosen where it is NaN; a constant is not
        found = _choose_ordered(builder, symbol, x, y)
        return builder.select(builder.fcmp_ordered("ord", x, x), found, x)
    compares = builder.icmp_signed if signed(dtype) else builder.icmp_unsigned
    return builder.select(compares(symbol, x, y), x, y)


def _choose_ordered(builder: ir.IRBuilder, symbol: str, x: ir.Value, y: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(symbol, x, y), x, y)


def ordered_extreme(builder: ir.IRBuilder, name: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the "minimum" or the "maximum" of real numbers none of which is NaN."""
    return _choose_ordered(builder, "<" if name == "minimum" else ">", x, y)


def _negative(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if floating(dtype):
        return builder.fneg(*args)
    return builder.sub(constant(args[0].type, 0), *args)


def _absolute(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    (x,) = args
    if real(dtype):
        return call_alike(builder, "fabs", x)
    if not signed(dtype):
        return x
    negative = builder.icmp_signed("<", x, constant(x.type, 0))
    return builder.select(negative, builder.sub(constant(x.type, 0), x), x)


def _count_bits(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    """Return how many bits the magnitude of integers has that are one, in a byte."""
    found = call_alike(builder, "ctpop", _absolute(builder, dtype, args))
    return cast(builder, found, dtype, "uint8")


def _is_no_number(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    (x,) = args
    return builder.fcmp_unordered("uno", x, x) if real(dtype) else constant(retype(x.type, BIT), 0)


def _rounded(name: str) -> Emit:
    """Return what rounds floating-point numbers and leaves integers."""

    def emit(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
        return call_alike(builder, name, *args) if real(dtype) else args[0]

    return emit


EMITTERS: dict[str, Emit] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "true_divide": _divide,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "bitwise_and": lambda builder, _, args: builder.and_(*args),
    "bitwise_or": lambda builder, _, args: builder.or_(*args),
    "bitwise_xor": lambda builder, _, args: builder.xor(*args),
    "left_shift": lambda builder, dtype, args: _shift(builder, dtype, args, left=True),
    "right_shift": lambda builder, dtype, args: _shift(builder, dtype, args, left=False),
    "negative": _negative,
    "invert": lambda builder, _, args: builder.not_(*args),
    "minimum": _least,
    "maximum": _greatest,
    "absolute": _absolute,
    "sqrt": lambda builder, _, args: call_alike(builder, "sqrt", *args),
    "floor": _rounded("floor"),
    "ceil": _rounded("ceil"),
    "rint": _rounded("rint"),
    "isnan": _is_no_number,
    "bitwise_count": _count_bits,
}
"""What emits each operation on arguments of one dtype, but for comparisons and functions."""

COMPARISONS = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
"""How comparisons are written."""
