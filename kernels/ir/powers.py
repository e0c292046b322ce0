"""Powers in LLVM IR: of real numbers by logarithms of twice the digits, of integers by squares."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

from llvmlite import ir

from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.doubled import (
    Doubled,
    exact_product,
    exact_sum,
    ordered_sum,
    split_constant,
)
from tilesolve.kernels.ir.exponentials import format_of, polynomial, times_exp
from tilesolve.kernels.ir.logarithms import logarithm, take_mantissa
from tilesolve.kernels.ir.reals import Real, Rounded
from tilesolve.kernels.ir.vectors import INT64, constant

_FAR = 2.0**65
"""Exponents beyond it, of any base but one, give what it gives: zero or infinity."""

_TERMS = 10
"""Terms of the series of the inverse hyperbolic tangent that are kept beside the first two."""


def power(x: Real, y: Real) -> Real:
    """Return a number to the power of another one, computed in double precision or more."""
    kind, base, exponent = x.element, x.cast(ir.DoubleType()), y.cast(ir.DoubleType())
    far = exponent.choose(exponent > _FAR, _FAR, exponent)
    far = exponent.choose(exponent < -_FAR, -_FAR, far)
    if kind == ir.FloatType():
        high, low = far * logarithm(abs(base)), exponent.number(0)
    else:
        wide = _logarithm(Rounded(x.builder, abs(base).value))
        found = Doubled(Rounded(x.builder, far.value), Rounded(x.builder, (far * 0).value)) * wide
        high, low = base.of(found.high.value), base.of(found.low.value)
    form = format_of(base.value.type)
    above = high > form.highest
    high, low = high.choose(above, form.highest, high), low.choose(above, 0, low)
    return _with_signs(base, exponent, times_exp(base.number(1), high, low)).cast(kind)


def _logarithm(x: Rounded) -> Doubled:
    """Return the natural logarithm of a positive number."""
    fused = Real(x.builder, x.value)
    f, turns = (Rounded(x.builder, one.value) for one in take_mantissa(fused))
    below = exact_sum(f.number(2), f)
    quotient = f / below.high
    done = exact_product(quotient, below.high)
    rest = ((f - done.high) - done.low - quotient * below.low) / below.high
    s = ordered_sum(quotient, rest)
    square = s * s
    z = Real(x.builder, square.high.value)
    series = z * polynomial([2 / (2 * at + 5) for at in range(_TERMS)], z)
    two_thirds = Doubled(*map(f.number, split_constant(Fraction(2, 3), (50,))))
    cube = (two_thirds + Rounded(x.builder, series.value)) * (s * square)
    form = format_of(x.value.type)
    total = exact_sum(turns * form.log_high, 2 * s.high)
    total = Doubled(total.high, total.low + (2 * s.low + turns * form.log_low + cube.low))
    return total + cube.high


def _with_signs(x: Real, y: Real, found: Real) -> Real:
    """Return a power of a number's size as that of the number, also where the size has none."""
    builder, size = x.builder, abs(x)
    ends = builder.or_(builder.or_(size.equals(0), size.equals(inf)), abs(y).equals(inf))
    grows = builder.icmp_unsigned("==", size > 1, y > 0)
    found = x.choose(ends, x.choose(grows, inf, 0), found)
    whole = y.call("floor").equals(y)
    half = y * 0.5
    odd = builder.and_(whole, builder.not_(half.call("floor").equals(half)))
    signed = x.choose(odd, found.call("copysign", x), found)
    part = builder.and_(builder.and_(x < 0, x > -inf), builder.not_(whole))
    found = x.choose(part, nan, signed)
    unknown = builder.fcmp_unordered("uno", x.value, y.value)
    found = x.choose(unknown, x + y, found)
    sure = builder.or_(x.equals(1), y.equals(0))
    sure = builder.or_(sure, builder.and_(x.equals(-1), abs(y).equals(inf)))
    return x.choose(sure, 1, found)


def integer_power(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return an integer to the power of one that is not negative; products wrap."""
    kind = x.type
    some = vectors.reduce(builder, "or", y) if isinstance(kind, ir.VectorType) else y
    width = some.type.width
    name, bit = f"llvm.ctlz.i{width}", ir.Constant(ir.IntType(1), 0)
    zeros = vectors.call_function(builder, name, some.type, [some, bit])
    trips = builder.zext(builder.sub(ir.Constant(some.type, width), zeros), INT64)
    if width == INT64.width:
        trips = builder.sub(ir.Constant(INT64, width), zeros)

    def trip(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        found, square, bits = values
        odd = builder.trunc(bits, vectors.retype(kind, ir.IntType(1)))
        found = builder.select(odd, builder.mul(found, square), found)
        return [found, builder.mul(square, square), builder.lshr(bits, constant(kind, 1))]

    return vectors.emit_loop(builder, trips, [constant(kind, 1), x, y], trip)[0]
