"""Sums that leave registers: rounded where C has halves, and only what lies within C."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Form
from tilesolve.kernels.gpu.targets import F16, F32, GLOBAL, I16, I32, I64, Values
from tilesolve.kernels.gpu.warps import Warp

Axis = Callable[[ir.Value], ir.Value]
"""From a row or a column of C to elements from its begin."""


def store_sums(
    b: ir.IRBuilder,
    form: Form,
    warp: Warp,
    sums: Values,
    output: ir.Value,
    begin: tuple[ir.Value, ir.Value],
    extents: tuple[ir.Value, ir.Value],
    axes: tuple[Axis, Axis],
) -> None:
    """Store a lane's sums in C.

    Parameters
    ----------
    b, form, warp
        What is written with, and whose sums they are.
    sums
        As `Warp.places` orders them.
    output
        Where C begins.
    begin
        Row and column of C at which the block's tile begins.
    extents
        Rows and columns of C.
    axes
        Where rows and columns of C are.
    """
    halves = "" if form.partial or form.fragment.element > 2 else form.arithmetic
    known: dict[tuple[int, int], tuple[ir.Value, ir.Value]] = {}
    for (row, column), one in zip(warp.places(), sums, strict=True):
        parts = []
        for axis, at in enumerate((row, column)):
            key = axis, id(at)
            if key not in known:
                place = b.add(begin[axis], at)
                inside = b.icmp_unsigned("<", place, extents[axis])
                known[key] = axes[axis](b.select(inside, place, I32(0))), inside
            parts.append(known[key])
        (down, one_in), (across, other_in) = parts
        with b.if_then(b.and_(one_in, other_in)):
            store_number(b, output, b.add(down, across), one, halves)


def store_number(
    b: ir.IRBuilder, output: ir.Value, at: ir.Value, one: ir.Value, halves: str
) -> None:
    """Store a number at an element; as a half of a dtype, if one is named."""
    if halves == "float16":
        one = b.fptrunc(one, F16)
    elif halves:
        one = round_to_bfloat16(b, one)
    place = b.gep(output, [b.zext(at, I64)], source_etype=one.type)
    b.store(one, b.bitcast(place, GLOBAL))


def round_to_bfloat16(b: ir.IRBuilder, one: ir.Value) -> ir.Value:
    """Return the bits of the bfloat16 next to a float32, the even one of two; NaN stays NaN."""
    bits = b.bitcast(one, I32)
    odd = b.and_(b.lshr(bits, I32(16)), I32(1))
    rounded = b.add(bits, b.add(odd, I32(0x7FFF)))
    nan = b.fcmp_unordered("uno", one, ir.Constant(F32, 0.0))
    return b.trunc(b.lshr(b.select(nan, b.or_(bits, I32(1 << 22)), rounded), I32(16)), I16)
