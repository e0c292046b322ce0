"""Numbers in LLVM IR as a double and what it leaves out: about twice as many digits.

The sums and products of doubles here lose nothing: the second number is what the first one has
lost by rounding (Dekker 1971). No CPU needs a fused product for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor

from llvmlite import ir

from tilesolve.kernels.ir.reals import Rounded
from tilesolve.kernels.ir.vectors import constant, retype

_LOW_BITS = 27
"""Bits of a double's fraction that its short part lacks: the product of two of these is exact."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """The sum of a double and of one that is much smaller.

    Examples
    --------
    >>> kind = ir.DoubleType()
    >>> function = ir.Function(ir.Module(), ir.FunctionType(kind, (kind,)), "example")
    >>> x = Rounded(ir.IRBuilder(function.append_basic_block()), function.args[0])
    >>> (exact_product(x, x) + x).high.value.opname
    'fadd'
    """

    high: Rounded
    low: Rounded

    def __add__(self, other: Rounded) -> Doubled:
        total = exact_sum(self.high, other)
        return ordered_sum(total.high, total.low + self.low)

    def __mul__(self, other: Doubled) -> Doubled:
        product = exact_product(self.high, other.high)
        low = product.low + (self.high * other.low + self.low * other.high)
        return ordered_sum(product.high, low)


def exact_sum(x: Rounded, y: Rounded) -> Doubled:
    """Return the sum of two doubles."""
    total = x + y
    own = total - y
    return Doubled(total, (x - own) + (y - (total - own)))


def ordered_sum(x: Rounded, y: Rounded) -> Doubled:
    """Return the sum of two doubles, of which the second one is not the larger."""
    total = x + y
    return Doubled(total, y - (total - x))


def exact_product(x: Rounded, y: Rounded) -> Doubled:
    """Return the product of two doubles."""
    product, (first, last), (head, tail) = x * y, _split(x), _split(y)
    low = ((first * head - product) + first * tail + last * head) + last * tail
    return Doubled(product, low)


def split_constant(value: Fraction, digits: tuple[int, ...]) -> list[float]:
    """Return a number as several, each with so many bits behind the point, and what remains.

    Products of the first ones with integers are exact where these have few bits.

    Examples
    --------
    >>> split_constant(Fraction(1, 3), (2, 4))
    [0.25, 0.0625, 0.020833333333333332]
    """
    found = []
    for bits in digits:
        part = Fraction(floor(value * 2**bits), 2**bits)
        found.append(float(part))
        value -= part
    return [*found, float(value)]


def _split(x: Rounded) -> tuple[Rounded, Rounded]:
    """Return a double rounded to its first digits, and what remains."""
    builder, kind = x.builder, x.value.type
    whole = retype(kind, ir.IntType(64))
    half, mask = constant(whole, 1 << (_LOW_BITS - 1)), constant(whole, -(1 << _LOW_BITS))
    bits = builder.and_(builder.add(builder.bitcast(x.value, whole), half), mask)
    high = x.of(builder.bitcast(bits, kind))
    return high, x - high
