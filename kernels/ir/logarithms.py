"""Logarithms in LLVM IR, on numbers and on vectors, as arithmetic without branches.

They have the precision of their argument, and are off by two units in the last place at most.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from math import inf, log, nan, sqrt

from llvmlite import ir

from tilesolve.kernels.ir.doubled import split_constant
from tilesolve.kernels.ir.exponentials import Format, format_of
from tilesolve.kernels.ir.reals import Real
from tilesolve.kernels.ir.vectors import constant, multiply_add, retype

_LOG10_2 = Fraction("0.30102999566398119521373889472449302676818988146211")
_EXPONENT_BITS = {32: 8, 64: 11}
"""Bits of the exponents of formats, by those of their numbers."""


def logarithm(x: Real) -> Real:
    """Return the natural logarithm: of the mantissa, and as many of two as it has."""
    form = format_of(x.value.type)
    return _with_ends(x, lambda f, turns: _log_near_one(f, turns, form))


def log2(x: Real) -> Real:
    """Return the logarithm to the base two."""
    form = format_of(x.value.type)
    return _with_ends(x, lambda f, turns: turns + _log_near_one(f, f * 0, form) * (1 / log(2)))


def log10(x: Real) -> Real:
    """Return the logarithm to the base ten."""
    form = format_of(x.value.type)
    high, low = split_constant(_LOG10_2, (form.fraction - _EXPONENT_BITS[form.bits],))

    def emit(f: Real, turns: Real) -> Real:
        return turns * high + (turns * low + _log_near_one(f, f * 0, form) * (1 / log(10)))

    return _with_ends(x, emit)


def log1p(x: Real) -> Real:
    """Return the natural logarithm of one more than a number, also where that is close to one."""
    whole = 1 + x
    lost = x - (whole - 1)
    found = logarithm(whole) + lost / whole
    found = x.choose(x.equals(-1), -inf, x.choose(x.equals(inf), inf, found))
    return x.choose(x.equals(0), x, found)


def take_mantissa(x: Real) -> tuple[Real, Real]:
    """Return by how much a positive number's mantissa is above one, and its exponent.

    Mantissas run from the root of a half to that of two.
    """
    builder, kind, form = x.builder, x.value.type, format_of(x.value.type)
    whole = retype(kind, ir.IntType(form.bits))
    tiny = x < 2.0 ** (1 - form.bias)
    bits = builder.bitcast(x.choose(tiny, x * 2.0**form.fraction, x).value, whole)
    # What is added carries mantissas beyond the root of two to the next exponent.
    moved = builder.sub(bits, constant(whole, _fraction_bits(sqrt(0.5), form)))
    exponent = builder.ashr(moved, constant(whole, form.fraction))
    mantissa = builder.sub(bits, builder.shl(exponent, constant(whole, form.fraction)))
    turns = x.of(builder.sitofp(exponent, kind))
    turns = turns - x.choose(tiny, form.fraction, 0)
    return x.of(builder.bitcast(mantissa, kind)) - 1, turns


def _fraction_bits(value: float, form: Format) -> int:
    """Return the bits of a number below one, cut off, as an integer."""
    letters = ("f", "i") if form.bits == 32 else ("d", "q")
    found: int = struct.unpack(letters[1], struct.pack(letters[0], value))[0]
    return found


def _log_near_one(f: Real, turns: Real, form: Format) -> Real:
    """Return log(1 + f) and so many logarithms of two."""
    builder, kind = f.builder, f.value.type
    s = (f / (f + 2)).value
    square = builder.fmul(s, s)
    series = constant(kind, 2 / (2 * form.odds + 1))
    for odd in range(2 * form.odds - 1, 1, -2):
        series = multiply_add(builder, series, square, constant(kind, 2 / odd))
    series = builder.fmul(series, square)
    half = builder.fmul(builder.fmul(f.value, f.value), constant(kind, 0.5))
    inner = builder.fmul(s, builder.fadd(half, series))
    inner = multiply_add(builder, turns.value, constant(kind, form.log_low), inner)
    rest = builder.fsub(builder.fsub(half, inner), f.value)
    high = constant(kind, form.log_high)
    return f.of(multiply_add(builder, turns.value, high, builder.fneg(rest)))


def _with_ends(x: Real, emit: Callable[[Real, Real], Real]) -> Real:
    """Return a logarithm by mantissa and exponent, and what it is where there are none."""
    found = x.choose(x < inf, emit(*take_mantissa(x)), x)  # infinity and NaN
    return x.choose(x < 0, nan, x.choose(x.equals(0), -inf, found))
