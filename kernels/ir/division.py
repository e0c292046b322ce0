"""Division of integers in LLVM IR, rounded down: of numbers, and of vectors of them."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.ir.vectors import constant


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


def _width(kind: ir.Type) -> int:
    """Return the bits of one integer of a type."""
    width: int = (kind.element if isinstance(kind, ir.VectorType) else kind).width
    return width


def _power_of_two(value: ir.Value, signs: bool) -> int | None:
    """Return which power of two a constant is in each lane; None if it is no such one."""
    if not isinstance(value, ir.Constant):
        return None
    lanes = value.constant if isinstance(value.type, ir.VectorType) else [value]
    numbers = {lane.constant for lane in lanes}
    number = numbers.pop()
    is_power = 0 < number < 1 << (_width(value.type) - signs) and not number & (number - 1)
    return number.bit_length() - 1 if is_power and not numbers else None
