"""Division in LLVM IR: of integers, rounded down, and by constants; in lanes of vectors, too."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from tilesolve.kernels.ir.reciprocals import find_reciprocal
from tilesolve.kernels.ir.vectors import call_alike, constant, multiply_add


def divide_down(
    builder: ir.IRBuilder, x: ir.Value, y: ir.Value | int, *, signs: bool = True
) -> tuple[ir.Value, ir.Value]:
    """Return the quotient that is rounded down, and the remainder; both 0 where the divisor is.

    The least number divided by -1 stays as it is. CPUs trap for both.

    Examples
    --------
    >>> from tilesolve.kernels.ir.vectors import example_function
    >>> builder, count = example_function()
    >>> [one.opname for one in divide_down(builder, count, 8)]
    ['ashr', 'and']
    """
    kind = x.type
    divisor = constant(kind, y) if isinstance(y, int) else y
    power = _power_of_two(divisor, signs)
    if power is not None:
        shift = builder.ashr if signs else builder.lshr
        low = constant(kind, (1 << power) - 1)
        return shift(x, constant(kind, power)), builder.and_(x, low)
    zero, one = constant(kind, 0), constant(kind, 1)
    none = unsafe = builder.icmp_unsigned("==", divisor, zero)
    if signs:
        least = builder.icmp_signed("==", x, constant(kind, 1 << (_width(kind) - 1)))
        minus = builder.icmp_signed("==", divisor, constant(kind, -1))
        unsafe = builder.or_(none, builder.and_(least, minus))
    divisor = builder.select(unsafe, one, divisor)
    quotient = (builder.sdiv if signs else builder.udiv)(x, divisor)
    rest = builder.sub(x, builder.mul(quotient, divisor))
    if signs:  # the CPU rounds to zero
        apart = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        below = builder.and_(builder.icmp_unsigned("!=", rest, zero), apart)
        quotient = builder.select(below, builder.sub(quotient, one), quotient)
        rest = builder.select(below, builder.add(rest, divisor), rest)
    return builder.select(none, zero, quotient), builder.select(none, zero, rest)


def divide_by(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the quotient of real numbers; by a constant without a division, which takes longer.

    The product with the rounded reciprocal differs from the quotient by less than the last digit,
    for those divisors that are chosen; the remainder is then exact, and rounding what it adds gives
    the rounded quotient (Markstein, 1990). Where the remainder is no normal number, the product is
    taken as it is: it is right for zeros, infinities and NaN, and elsewhere the quotient is so near
    to zero that the last digit may differ.

    Examples
    --------
    >>> from tilesolve.kernels.ir.vectors import example_function
    >>> x = ir.Constant(ir.FloatType(), 7.0)
    >>> by = lambda y: divide_by(example_function()[0], x, ir.Constant(ir.FloatType(), y)).opname
    >>> by(3.0), by(7.0), by(0.1)
    ('select', 'fdiv', 'fdiv')
    """
    number = _same_in_lanes(y)
    found = None if number is None else find_reciprocal(number, _real_dtype(x.type))
    if found is None:
        return builder.fdiv(x, y)
    least = float(np.finfo(_real_dtype(x.type)).tiny)
    product = builder.fmul(x, constant(x.type, found))
    rest = multiply_add(builder, builder.fneg(y), product, x)
    exact = multiply_add(builder, rest, constant(x.type, found), product)
    normal = builder.fcmp_ordered(">=", call_alike(builder, "fabs", rest), constant(x.type, least))
    return builder.select(normal, exact, product)


def _real_dtype(kind: ir.Type) -> type[np.floating]:
    single = kind.element if isinstance(kind, ir.VectorType) else kind
    return np.float32 if isinstance(single, ir.FloatType) else np.float64


def _same_in_lanes(value: ir.Value) -> float | int | None:
    """Return the number that a constant is in each lane; None if it is no such one."""
    if not isinstance(value, ir.Constant):
        return None
    lanes = value.constant if isinstance(value.type, ir.VectorType) else [value]
    numbers = {lane.constant for lane in lanes}
    return numbers.pop() if len(numbers) == 1 else None


def _width(kind: ir.Type) -> int:
    """Return the bits of one integer of a type."""
    width: int = (kind.element if isinstance(kind, ir.VectorType) else kind).width
    return width


def _power_of_two(value: ir.Value, signs: bool) -> int | None:
    """Return which power of two a constant is in each lane; None if it is no such one."""
    number = _same_in_lanes(value)
    if not isinstance(number, int):
        return None
    is_power = 0 < number < 1 << (_width(value.type) - signs) and not number & (number - 1)
    return number.bit_length() - 1 if is_power else None
