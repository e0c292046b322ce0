"""Bytes of a table that stays in registers, picked for all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BYTE
from tilesolve.kernels.ir.vectors import constant

LANES = 64
"""Bytes of a register of AVX-512, whose VBMI picks them out of one or two others."""

FEATURE = "+avx512vbmi"
"""What LLVM calls it."""

_KIND = ir.VectorType(BYTE, LANES)


def pick_bytes(builder: ir.IRBuilder, table: Sequence[ir.Value], places: ir.Value) -> ir.Value:
    """Return the bytes of a table at some places.

    Parameters
    ----------
    builder
        Where to write.
    table
        One, two or four registers.
    places
        Unsigned bytes, all of them within the table.

    Examples
    --------
    >>> builder, _ = vectors.example_function()
    >>> register = constant(ir.VectorType(BYTE, LANES), 1)
    >>> print(pick_bytes(builder, [register] * 4, register).type)
    <64 x i8>
    """
    if len(table) == 1:
        name = "llvm.x86.avx512.permvar.qi.512"
        return vectors.call_function(builder, name, _KIND, [table[0], places])
    found = [
        vectors.call_function(
            builder, "llvm.x86.avx512.vpermi2var.qi.512", _KIND, [first, places, second]
        )
        for first, second in zip(table[::2], table[1::2], strict=True)
    ]
    if len(found) == 1:
        return found[0]
    low, high = found
    return builder.select(builder.icmp_signed("<", places, constant(_KIND, 0)), high, low)
