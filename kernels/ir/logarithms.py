"""Natural logarithms in LLVM IR, on numbers and on vectors, as arithmetic without branches.

They have the precision of their argument, and are off by two units in the last place at most.
"""

from __future__ import annotations

import struct
from math import sqrt

from llvmlite import ir

from tilesolve.kernels.ir.exponentials import Format, format_of
from tilesolve.kernels.ir.vectors import constant, multiply_add, retype


def emit_log(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the natural logarithm of each lane: of its mantissa, and as many of two as it has."""
    form = format_of(x.type)
    kind, whole = x.type, retype(x.type, ir.IntType(form.bits))
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
    result = _log_near_one(builder, f, turns, form)
    return _special_logarithms(builder, x, result)


def _fraction_bits(value: float, form: Format) -> int:
    """Return the bits of a number below one, cut off, as an integer."""
    letters = ("f", "i") if form.bits == 32 else ("d", "q")
    found: int = struct.unpack(letters[1], struct.pack(letters[0], value))[0]
    return found


def _log_near_one(builder: ir.IRBuilder, f: ir.Value, turns: ir.Value, form: Format) -> ir.Value:
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
    inner = multiply_add(builder, turns, constant(kind, form.log_low), inner)
    rest = builder.fsub(builder.fsub(half, inner), f)
    return multiply_add(builder, turns, constant(kind, form.log_high), builder.fneg(rest))


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
