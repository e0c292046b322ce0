"""Smooth functions of one number, as arithmetic without branches, which becomes vectors.

Each works in the precision of its argument, float32 or float64. What is compiled has only the
constants of that precision. A few units in the last place are lost at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, log, pi, sqrt
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilesolve.kernels.runtime.deferred import inlined

_intrinsic: Any = intrinsic  # numba's types do not describe it well

_PER_LOG_2 = 1 / log(2)
_LOG_2_HIGH = 0.693359375
"""The logarithm of two in so few bits that its products with exponents are exact."""

_LOG_2_LOW = -2.121944400546905827679e-4
"""What is missing of the logarithm of two."""

_ROUNDER_SINGLE, _ROUNDER_DOUBLE = 1.5 * 2.0**23, 1.5 * 2.0**52
"""What rounds a number to an integer, which its lowest bits then are, when it is added."""

_LEAST_SINGLE, _LEAST_DOUBLE = -110.0, -760.0
"""Where powers of e are zero, and remain so if a factor of that size is applied first."""

_TANH_END = 40.0
"""Where the hyperbolic tangent of half as much is one."""

_TAIL_PIVOT = 3.5
_TAIL = (
    0.21269030726741098,
    0.1615890903010782,
    0.0901214199679777,
    0.03315740820411583,
    0.004973666457968706,
    -0.0018503482648389424,
    -0.0009111717315511996,
    0.00012714658039170788,
    0.00013618777404627623,
    -1.9152513280814338e-05,
    -2.159578872634834e-05,
    5.368971133780703e-06,
    3.2882296541617315e-06,
    -1.6169181280852833e-06,
    -3.3433121888365953e-07,
    4.266809735735174e-07,
    -3.866996574834355e-08,
    -8.93514780671022e-08,
    3.325660136366413e-08,
    1.2901152033834054e-08,
    -9.21948609757693e-09,
    -9.341810537225736e-10,
    1.130351092384771e-09,
)
"""Chebyshev fit of ``exp(x * x / 2) * P(-x) / t`` as powers of ``2 * t - 1``.

P is the normal distribution, ``t = _TAIL_PIVOT / (_TAIL_PIVOT + x)``. The error is 2e-15 of it.
"""

_TANH_SCALE, _CUBE = sqrt(2 / pi), 0.044715


@_intrinsic
def single_or_double(_context, single, double, like):
    """Return the first of two doubles in the precision of a float32, or the second as it is."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.fptrunc(args[0], ir.FloatType()) if like == types.float32 else args[1]

    return like(single, double, like), generate


def _polynomial(singles: Sequence[float], doubles: Sequence[float]) -> Any:
    """Return a polynomial by its coefficients, lowest first, for each precision."""

    @_intrinsic
    def value(_context, x):
        chosen = singles if x == types.float32 else doubles

        def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
            (at,) = args
            first, *others = (ir.Constant(at.type, one) for one in reversed(chosen))
            found = first
            for one in others:
                product = builder.fmul(found, at, flags=("contract",))
                found = builder.fadd(product, one, flags=("contract",))
            return found

        return x(x), generate

    return value


def _inverse_factorials(count: int) -> list[float]:
    return [1 / factorial(number) for number in range(1, count + 1)]


_growth = _polynomial(_inverse_factorials(7), _inverse_factorials(13))
"""``(exp(r) - 1) / r`` for r of at most half the logarithm of two."""

_tail = _polynomial(_TAIL, _TAIL)


@_intrinsic
def _scaled(_context, value, turned):
    """Return a number times the power of two that a rounded number, see `_turn`, has as exponent.

    It is applied in two halves, so that results below the least normal number are right.
    """

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        number, rounded = args
        bits, mantissa, bias, rounder = 64, 52, 1023, _ROUNDER_DOUBLE
        if value == types.float32:
            bits, mantissa, bias, rounder = 32, 23, 127, _ROUNDER_SINGLE
        kind = ir.IntType(bits)
        zero = builder.bitcast(ir.Constant(number.type, rounder), kind)
        exponent = builder.sub(builder.bitcast(rounded, kind), zero)
        half = builder.ashr(exponent, kind(1))
        for part in (half, builder.sub(exponent, half)):
            power = builder.shl(builder.add(part, kind(bias)), kind(mantissa))
            number = builder.fmul(number, builder.bitcast(power, number.type))
        return number

    return value(value, turned), generate


@inlined
def _as(value, like):
    """Return a double in the precision of another number."""
    return single_or_double(value, value, like)


@inlined
def _turn(x):
    """Return x as powers of two, rounded: an integer in the lowest bits, and that integer."""
    rounder = single_or_double(_ROUNDER_SINGLE, _ROUNDER_DOUBLE, x)
    turned = x * _as(_PER_LOG_2, x) + rounder
    return turned, turned - rounder


@inlined
def _rest(x, power):
    """Return what remains of an exponent without a power of two."""
    return (x - power * _as(_LOG_2_HIGH, x)) - power * _as(_LOG_2_LOW, x)


@inlined
def _times_exp(factor, high, low):
    """Return a factor times e to the sum of a number of at most 0 and a small one."""
    turned, power = _turn(high)
    rest = _rest(high, power) + low
    found = _scaled(factor * (_as(1.0, high) + rest * _growth(rest)), turned)
    least = single_or_double(_LEAST_SINGLE, _LEAST_DOUBLE, high)
    return factor * _as(0.0, high) if high < least else found


@inlined
def _times_logistic(factor, x):
    """Return a factor divided by ``1 + exp(-x)``."""
    zero, one = _as(0.0, x), _as(1.0, x)
    below = one + _times_exp(one, -abs(x), zero)
    return (factor if x >= zero else _times_exp(factor, -abs(x), zero)) / below


@inlined
def sigmoid(x):
    """Return the logistic function."""
    return _times_logistic(_as(1.0, x), x)


@inlined
def silu(x):
    """Return x times the logistic function."""
    return _times_logistic(x, x)


@inlined
def tanh(x):
    """Return the hyperbolic tangent."""
    one, end = _as(1.0, x), _as(_TANH_END, x)
    twice = x + x
    twice = end if twice > end else twice
    twice = -end if twice < -end else twice
    turned, power = _turn(twice)
    rest = _rest(twice, power)
    scale = _scaled(one, turned)
    less_one = scale * (rest * _growth(rest)) + (scale - one)
    return x if x == _as(0.0, x) else less_one / (less_one + (one + one))


@inlined
def gelu(x):
    """Return a double times the normal distribution at it."""
    pivot, size = _TAIL_PIVOT, abs(x)
    share = pivot / (pivot + size)
    short = float(types.float32(x))  # its square is exact
    high, low = -0.5 * short * short, -0.5 * (x - short) * (x + short)
    found = share * _tail(2 * share - 1)
    tail = _times_exp(x * found if x < 0 else found, high, low)
    return x * (1 - tail) if x >= 0 else tail


@inlined
def gelu_tanh(x):
    """Return what is used for the `gelu` of a double: a hyperbolic tangent instead."""
    return _times_logistic(x, 2 * _TANH_SCALE * (x + _CUBE * x * x * x))
