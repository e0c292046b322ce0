"""Functions of complex numbers in LLVM IR, written as formulas of their parts."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.kernels.ir import angles
from tilesolve.kernels.ir.complexes import join, split
from tilesolve.kernels.ir.exponentials import exp
from tilesolve.kernels.ir.reals import Real


def _parts(builder: ir.IRBuilder, value: ir.Value) -> tuple[Real, Real]:
    """Return the real and the imaginary part."""
    real, imaginary = split(builder, value)
    return Real(builder, real), Real(builder, imaginary)


def _join(real: Real, imaginary: Real) -> ir.Value:
    return join(real.builder, real.value, imaginary.value)


def _divide(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    """Return quotients as NumPy has them: parts are divided by the larger one of the divisor."""
    (a, b), (c, d) = (_parts(builder, one) for one in args)
    flat = abs(c) >= abs(d)
    large, small = c.choose(flat, c, d), c.choose(flat, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    kept, moved = a.choose(flat, a, b), a.choose(flat, b, a)
    apart = a.choose(flat, moved - kept * ratio, kept * ratio - moved)
    none = builder.and_(c.equals(0), d.equals(0))
    real = a.choose(none, a / abs(c), (kept + moved * ratio) * scale)
    return _join(real, a.choose(none, b / abs(c), apart * scale))


def _real(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    return split(builder, *args)[0]


def _imaginary(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    return split(builder, *args)[1]


def _absolute(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    return angles.hypotenuse(*_parts(builder, *args)).value


def _conjugate(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    real, imaginary = _parts(builder, *args)
    return _join(real, -imaginary)


def _is_no_number(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    return builder.fcmp_unordered("uno", *split(builder, *args))


def _exp(builder: ir.IRBuilder, _: str, args: Sequence[ir.Value]) -> ir.Value:
    """Return ``exp(x) * (cos(y) + 1j * sin(y))``, half of the exponent on either side.

    So what does not fit by itself may fit the result.
    """
    real, imaginary = _parts(builder, *args)
    half = exp(0.5 * real)
    none = imaginary.equals(0)
    sine = half * angles.sine(imaginary) * half
    return _join(half * angles.cosine(imaginary) * half, imaginary.choose(none, imaginary, sine))


COMPLEX_FUNCTIONS = {
    "true_divide": _divide,
    "absolute": _absolute,
    "conjugate": _conjugate,
    "real": _real,
    "imag": _imaginary,
    "isnan": _is_no_number,
    "exp": _exp,
}
"""What emits operations of complex numbers that are done otherwise than those of real ones."""
