"""Powers of e and natural logarithms in LLVM IR, on numbers and on vectors.

Arithmetic without branches in the precision of the argument. Neither is off by more than two units
in the last place.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import factorial, log, sqrt

from llvmlite import ir

from tilesolve.kernels.ir.vectors import call_alike, constant, like, multiply_add


@dataclass(frozen=True, slots=True)
class _Format:
    """A floating-point format, and how many terms of series it takes.

    Parameters
    ----------
    bits, fraction
        Bits of a number, and of them those of its fraction.
    lowest, highest
        Where powers of e are zero, and infinite.
    high
        The logarithm of two in so few bits that its products with exponents are exact.
    powers, odds
        Terms of the series of e^x, and of the inverse hyperbolic tangent.
    """

    bits: int
    fraction: int
    lowest: float
    highest: float
    high: float
    powers: int
    odds: int

    @property
    def bias(self) -> int:
        """What is added to an exponent where it is kept."""
        return (1 << (self.bits - 2 - self.fraction)) - 1


_SINGLE = _Format(32, 23, -110.0, 90.0, 0.693359375, 8, 5)
_DOUBLE = _Format(64, 52, -760.0, 720.0, float.fromhex("0x1.62e42fee00000p-1"), 14, 10)
_SINGLE_LOW = -2.12194440054690583e-4
_DOUBLE_LOW = 1.90821492927058770002e-10


def _format_of(value: ir.Value) -> tuple[_Format, float]:
    double = like(value.type, ir.DoubleType()) == value.type
    return (_DOUBLE, _DOUBLE_LOW) if double else (_SINGLE, _SINGLE_LOW)


def emit_exp(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return e to the power of each lane: 2^n times that of what is left of it."""
    form, low = _format_of(x)
    kind = x.type
    clipped = _clip(builder, x, form)
    turns = call_alike(builder, "rint", builder.fmul(clipped, constant(kind, 1 / log(2))))
    rest = multiply_add(builder, turns, constant(kind, -form.high), clipped)
    rest = multiply_add(builder, turns, constant(kind, -low), rest)
    found = constant(kind, 1 / factorial(form.powers - 1))
    for power in range(form.powers - 2, -1, -1):
        found = multiply_add(builder, found, rest, constant(kind, 1 / factorial(power)))
    whole = like(x.type, ir.IntType(form.bits))
    counted = builder.select(builder.fcmp_ordered("==", x, x), turns, constant(kind, 0))
    number = builder.fptosi(counted, whole)
    half = builder.ashr(number, constant(whole, 1))
    for exponent in (half, builder.sub(number, half)):  # the result may be denormal
        found = builder.fmul(found, _power_of_two(builder, exponent, form, kind))
    return found


def _clip(builder: ir.IRBuilder, x: ir.Value, form: _Format) -> ir.Value:
    """Return a number within the bounds; NaN stays NaN."""
    lowest, highest = constant(x.type, form.lowest), constant(x.type, form.highest)
    found = builder.select(builder.fcmp_ordered("<", x, lowest), lowest, x)
    return builder.select(builder.fcmp_ordered(">", found, highest), highest, found)


def _power_of_two(
    builder: ir.IRBuilder, exponent: ir.Value, form: _Format, kind: ir.Type
) -> ir.Value:
    whole = exponent.type
    bits = builder.shl(
        builder.add(exponent, constant(whole, form.bias)), constant(whole, form.fraction)
    )
    return builder.bitcast(bits, kind)


def emit_log(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the natural logarithm of each lane: of its mantissa, and as many of two as it has."""
    form, low = _format_of(x)
    kind, whole = x.type, like(x.type, ir.IntType(form.bits))
    normal = 2.0 ** (1 - form.bias)
    tiny = builder.fcmp_ordered("<", x, constant(kind, normal))
    scaled = builder.select(tiny, builder.fmul(x, constant(kind, 2.0**form.fraction)), x)
    bits = builder.bitcast(scaled, whole)
    # Mantissas run from the root of a half on: what is added carries others to the next exponent.
    root = _fraction_bits(sqrt(0.5), form)
    moved = builder.sub(bits, constant(whole, root))
    exponent = builder.ashr(moved, constant(whole, form.fraction))
    mantissa = builder.sub(bits, builder.shl(exponent, constant(whole, form.fraction)))
    turns = builder.sitofp(exponent, kind)
    shift = builder.select(tiny, constant(kind, form.fraction), constant(kind, 0))
    turns = builder.fsub(turns, shift)
    f = builder.fsub(builder.bitcast(mantissa, kind), constant(kind, 1))
    result = _log_near_one(builder, f, turns, form, low)
    return _special_logarithms(builder, x, result)


def _fraction_bits(value: float, form: _Format) -> int:
    """Return the bits of a number below one, cut off, as an integer."""
    letters = ("f", "i") if form.bits == 32 else ("d", "q")
    found: int = struct.unpack(letters[1], struct.pack(letters[0], value))[0]
    return found


def _log_near_one(
    builder: ir.IRBuilder, f: ir.Value, turns: ir.Value, form: _Format, low: float
) -> ir.Value:
    """Return log(1 + f) and so many logarithms of two."""
    kind = f.type
    s = builder.fdiv(f, builder.fadd(f, constant(kind, 2)))
    square = builder.fmul(s, s)
    series = constant(kind, 2 / (2 * form.odds + 1))
    for odd in range(2 * form.odds - 1, 1, -2):
        series = multiply_add(builder, series, square, constant(kind, 2 / odd))
    series = builder.fmul(series, square)
    half = builder.fmul(builder.fmul(f, f), constant(kind, 0.5))
    inner = builder.fmul(s, builder.fadd(half, series))
    inner = multiply_add(builder, turns, constant(kind, low), inner)
    rest = builder.fsub(builder.fsub(half, inner), f)
    return multiply_add(builder, turns, constant(kind, form.high), builder.fneg(rest))


def _special_logarithms(builder: ir.IRBuilder, x: ir.Value, result: ir.Value) -> ir.Value:
    kind = x.type
    zero = constant(kind, 0)
    infinity = constant(kind, float("inf"))
    usual = builder.fcmp_ordered("<", x, infinity)
    found = builder.select(usual, result, x)  # infinity and NaN
    none = builder.fcmp_ordered("==", x, zero)
    found = builder.select(none, constant(kind, float("-inf")), found)
    negative = builder.fcmp_ordered("<", x, zero)
    return builder.select(negative, constant(kind, float("nan")), found)
