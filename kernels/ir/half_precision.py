"""Half precision in LLVM IR: halves to float32 and back, by integer arithmetic.

LLVM's own conversions become calls of a library where a CPU has no instruction for them, and what
is compiled here has no library. Integers convert on every CPU, a vector at once. Values are
vectors, or single numbers.
"""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.ir.vectors import constant, retype

HALF_BYTES = 2
"""Bytes of a half."""

_INT16, _INT32, _FLOAT = ir.IntType(16), ir.IntType(32), ir.FloatType()

_SIGN, _INFINITY = 0x80000000, 0x7F800000
_EXPONENT_SHIFT = (127 - 15) << 23
"""What the exponent of a float32 is more than that of a float16 of the same value."""

_LEAST_NORMAL = (127 - 14) << 23
"""The bits of 2^-14, the least normal float16."""

_BEYOND = (127 + 16) << 23
"""The bits of 2^16: all float16 are less."""

_HALF = 0x3F000000
"""The bits of 0.5, whose last bit is that of the subnormal float16."""


def load_kind(kind: ir.Type) -> ir.Type:
    """Return the type of as many halves as a type of float32 has numbers.

    Examples
    --------
    >>> print(load_kind(ir.VectorType(ir.FloatType(), 8)))
    <8 x i16>
    """
    return retype(kind, _INT16)


def widen(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Return halves, given as integers, as float32; each has its exact value.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (_INT16,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> print(widen(builder, function.args[0], "bfloat16").type)
    float
    """
    kind = retype(value.type, _INT32)

    def number(bits: int) -> ir.Constant:
        return constant(kind, bits)

    wide = builder.zext(value, kind)
    if dtype == "bfloat16":
        return builder.bitcast(builder.shl(wide, number(16)), retype(kind, _FLOAT))
    sign = builder.shl(builder.and_(wide, number(0x8000)), number(16))
    size = builder.shl(builder.and_(wide, number(0x7FFF)), number(13))
    normal = builder.add(size, number(_EXPONENT_SHIFT))
    # An infinity, or what is no number, gets the largest exponent.
    special = builder.icmp_unsigned(">=", size, number(31 << 23))
    normal = builder.select(special, builder.add(normal, number(_EXPONENT_SHIFT)), normal)
    least = constant(kind, _LEAST_NORMAL)
    few = builder.fsub(
        builder.bitcast(builder.or_(size, least), retype(kind, _FLOAT)),
        builder.bitcast(least, retype(kind, _FLOAT)),
    )
    subnormal = builder.icmp_unsigned("<", size, number(1 << 23))
    bits = builder.select(subnormal, builder.bitcast(few, kind), normal)
    return builder.bitcast(builder.or_(bits, sign), retype(kind, _FLOAT))


def round_to_half(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Return float32 rounded to halves, as integers: to the nearest, of two the even one.

    What is too large becomes infinite; what is no number stays so.

    Examples
    --------
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), (_FLOAT,)), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> print(round_to_half(builder, function.args[0], "float16").type)
    i16
    """
    kind = retype(value.type, _INT32)

    def number(bits: int) -> ir.Constant:
        return constant(kind, bits)

    def shifted(bits: ir.Value, distance: int) -> ir.Value:
        return builder.lshr(bits, number(distance))

    bits = builder.bitcast(value, kind)
    size = builder.and_(bits, number(_SIGN - 1))
    is_nan = builder.icmp_unsigned(">", size, number(_INFINITY))
    if dtype == "bfloat16":
        odd = builder.and_(shifted(bits, 16), number(1))
        rounded = shifted(builder.add(builder.add(bits, number(0x7FFF)), odd), 16)
        quiet = builder.or_(shifted(bits, 16), number(0x40))
        return builder.trunc(builder.select(is_nan, quiet, rounded), retype(kind, _INT16))
    odd = builder.and_(shifted(size, 13), number(1))
    rounded = builder.add(builder.sub(size, number(_EXPONENT_SHIFT)), number(0xFFF))
    rounded = shifted(builder.add(rounded, odd), 13)
    # The sum with 0.5 is rounded where the last bit of the subnormal numbers is.
    half = builder.bitcast(number(_HALF), retype(kind, _FLOAT))
    few = builder.fadd(builder.bitcast(size, retype(kind, _FLOAT)), half)
    few = builder.sub(builder.bitcast(few, kind), number(_HALF))
    rounded = builder.select(builder.icmp_unsigned("<", size, number(_LEAST_NORMAL)), few, rounded)
    rounded = builder.select(
        builder.icmp_unsigned(">=", size, number(_BEYOND)), number(0x7C00), rounded
    )
    quiet = builder.or_(builder.and_(shifted(size, 13), number(0x1FF)), number(0x7E00))
    rounded = builder.select(is_nan, quiet, rounded)
    sign = shifted(builder.and_(bits, number(_SIGN)), 16)
    return builder.trunc(builder.or_(rounded, sign), retype(kind, _INT16))
