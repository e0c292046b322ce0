"""Smooth functions of one number in LLVM IR, as arithmetic without branches.

Each works in the precision of its argument. A few units in the last place are lost at most, but
for `gelu` in single precision, and where `gelu_tanh` is nearly zero.
"""

from __future__ import annotations

from math import pi, sqrt

from llvmlite import ir

from tilesolve.kernels.ir.exponentials import growth, polynomial, scale, take_turns, times_exp
from tilesolve.kernels.ir.reals import Real

_TANH_END = 40.0
"""Where the hyperbolic tangent of half as much is one."""

_TAIL_PIVOT = 3.5
_TAIL = [
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
]
"""Chebyshev fit of ``exp(x * x / 2) * P(-x) / t`` as powers of ``2 * t - 1``.

P is the normal distribution, ``t = _TAIL_PIVOT / (_TAIL_PIVOT + x)``. The error is 2e-15 of it.
"""

_NORMAL_END = 5.2
_NORMAL = [
    0.1359499930422844,
    -0.0677436674770272,
    0.05002452134149469,
    -0.03992981951522672,
    0.03198995937639864,
    -0.024723630005610828,
    0.017954786476944873,
    -0.01250511941152176,
    0.00855996862780499,
    -0.00478904184222129,
    0.001800121838164587,
    -0.001221491229052848,
    0.0012685113279927826,
    -0.00048127793865775987,
]
"""Least-error fit of ``(P(x) - 1 / 2) / x`` as powers of ``2 * (x / _NORMAL_END)**2 - 1``.

P is the normal distribution. The error of ``x`` times it is 7e-8, up to `_NORMAL_END`.
"""

_TANH_SCALE, _CUBE = sqrt(2 / pi), 0.044715


def times_logistic(factor: Real, x: Real) -> Real:
    """Return a factor divided by ``1 + exp(-x)``."""
    below = 1 + times_exp(x.number(1), -abs(x))
    return x.choose(x >= 0, factor, times_exp(factor, -abs(x))) / below


def sigmoid(x: Real) -> Real:
    """Return the logistic function."""
    return times_logistic(x.number(1), x)


def silu(x: Real) -> Real:
    """Return x times the logistic function."""
    return times_logistic(x, x)


def tanh(x: Real) -> Real:
    """Return the hyperbolic tangent."""
    twice = x + x
    twice = x.choose(twice > _TANH_END, _TANH_END, twice)
    twice = x.choose(twice < -_TANH_END, -_TANH_END, twice)
    turned, rest = take_turns(twice)
    power = scale(x.number(1), turned)
    less_one = power * (rest * growth(rest)) + (power - 1)
    return x.choose(x.equals(0), x, less_one / (less_one + 2))


def gelu(x: Real) -> Real:
    """Return a number times the normal distribution at it.

    In single precision it is off by 2e-7 of the number at most, which is much of a result that is
    nearly zero; in double precision by a few units in the last place.
    """
    return _gelu_of_singles(x) if x.element == ir.FloatType() else _gelu_of_doubles(x)


def _gelu_of_singles(x: Real) -> Real:
    square = x * x
    square = x.choose(square > _NORMAL_END**2, _NORMAL_END**2, square)
    share = x * polynomial(_NORMAL, square * (2 / _NORMAL_END**2) - 1) + 0.5
    share = x.choose(x > _NORMAL_END, 1, x.choose(x < -_NORMAL_END, 0, share))
    return x * share


def _gelu_of_doubles(wide: Real) -> Real:
    size = abs(wide)
    share = _TAIL_PIVOT / (_TAIL_PIVOT + size)
    short = wide.cast(ir.FloatType()).cast(ir.DoubleType())  # its square is exact
    high, low = -0.5 * short * short, -0.5 * (wide - short) * (wide + short)
    found = share * polynomial(_TAIL, 2 * share - 1)
    tail = times_exp(wide.choose(wide < 0, wide * found, found), high, low)
    return wide.choose(wide >= 0, wide * (1 - tail), tail)


def gelu_tanh(x: Real) -> Real:
    """Return what is used for `gelu`: a hyperbolic tangent instead."""
    return times_logistic(x, 2 * _TANH_SCALE * (x + _CUBE * x * x * x))
