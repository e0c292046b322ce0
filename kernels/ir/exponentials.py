"""Powers of e in LLVM IR, on numbers and on vectors, as arithmetic without branches.

A number is so many logarithms of two and a rest; the power of the rest is a series. It works in the
precision of its argument, and is off by two units in the last place at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial, log

from llvmlite import ir

from tilesolve.kernels.ir.reals import Real
from tilesolve.kernels.ir.vectors import constant, retype


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format, and how many terms of series it takes.

    Parameters
    ----------
    bits, fraction
        Bits of a number, and of them those of its fraction.
    lowest, highest
        Where powers of e are zero, also times any factor of that size, and where they are infinite.
    log_high, log_low
        The logarithm of two in so few bits that its products with exponents are exact, and what is
        missing of it.
    powers, odds
        Terms of the series of e^x, and of the inverse hyperbolic tangent.
    """

    bits: int
    fraction: int
    lowest: float
    highest: float
    log_high: float
    log_low: float
    powers: int
    odds: int

    @property
    def bias(self) -> int:
        """What is added to an exponent where it is kept."""
        return (1 << (self.bits - 2 - self.fraction)) - 1

    @property
    def rounder(self) -> float:
        """What rounds a number to an integer, which its lowest bits then are, when it is added."""
        return 1.5 * 2.0**self.fraction


_SINGLE = Format(32, 23, -110.0, 90.0, 0.693359375, -2.12194440054690583e-4, 8, 5)
_DOUBLE = Format(
    64, 52, -760.0, 720.0, float.fromhex("0x1.62e42fee00000p-1"), 1.90821492927058770002e-10, 14, 10
)


def format_of(kind: ir.Type) -> Format:
    """Return the format of a type's numbers."""
    return _DOUBLE if retype(kind, ir.DoubleType()) == kind else _SINGLE


def exp(x: Real) -> Real:
    """Return e to the power of a number."""
    highest = format_of(x.value.type).highest
    return times_exp(x.number(1), x.choose(x > highest, highest, x))


def exp2(x: Real) -> Real:
    """Return two to the power of a number."""
    form = format_of(x.value.type)
    x = x.choose(x > form.highest / log(2), form.highest / log(2), x)
    turned = x + form.rounder
    rest = (x - (turned - form.rounder)) * log(2)
    found = scale(1 + rest * growth(rest), turned)
    return found.choose(x < form.lowest / log(2), 0, found)


def times_exp(factor: Real, x: Real, small: Real | None = None) -> Real:
    """Return a factor times e to the sum of a number, at most `Format.highest`, and a small one."""
    turned, rest = take_turns(x)
    if small is not None:
        rest = rest + small
    found = scale(factor * (1 + rest * growth(rest)), turned)
    return found.choose(x < format_of(x.value.type).lowest, factor * 0, found)


def take_turns(x: Real) -> tuple[Real, Real]:
    """Return the logarithms of two in a number as `scale` takes them, and what remains of it."""
    form = format_of(x.value.type)
    turned = x * (1 / log(2)) + form.rounder
    turns = turned - form.rounder
    return turned, (x - turns * form.log_high) - turns * form.log_low


def growth(rest: Real) -> Real:
    """Return ``(exp(r) - 1) / r`` for r of at most half the logarithm of two."""
    powers = format_of(rest.value.type).powers
    return polynomial([1 / factorial(power) for power in range(1, powers)], rest)


def polynomial(coefficients: list[float], x: Real) -> Real:
    """Return a polynomial by its coefficients, lowest first."""
    *others, last = coefficients
    found = x.number(last)
    for one in reversed(others):
        found = found * x + one
    return found


def scale(value: Real, turned: Real) -> Real:
    """Return a number times two to the power that `take_turns` found.

    It is applied in two halves, so that results below the least normal number are right.
    """
    form, builder, kind = format_of(value.value.type), value.builder, value.value.type
    whole = retype(kind, ir.IntType(form.bits))
    zero = builder.bitcast(constant(kind, form.rounder), whole)
    exponent = builder.sub(builder.bitcast(turned.value, whole), zero)
    half = builder.ashr(exponent, constant(whole, 1))
    for part in (half, builder.sub(exponent, half)):
        biased = builder.add(part, constant(whole, form.bias))
        power = builder.shl(biased, constant(whole, form.fraction))
        value = value * value.of(builder.bitcast(power, kind))
    return value
