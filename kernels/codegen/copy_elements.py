"""Elements that compiled functions copy one by one, where they lie apart."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.codegen.intrinsics import intrinsic
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64

SINGLE_BYTES = (2, 4, 8, 16)
"""Bytes of the elements that `copy_apart` copies."""


@intrinsic
def copy_apart(builder, size, source, target, count, steps):
    """Copy elements of `SINGLE_BYTES` one by one.

    Parameters
    ----------
    size
        Of an element; of another size none is copied.
    source, target
        Addresses of the first element.
    count
        How many there are.
    steps
        Bytes between neighbours in the source and in the target.
    """
    done = builder.append_basic_block("copied")
    choice = builder.switch(size, done)
    for single in SINGLE_BYTES:
        choice.add_case(INT64(single), builder.append_basic_block(f"elements{single}"))
        builder.position_at_end(choice.cases[-1][1])

        def copy_one(at: ir.Value, bits: int = 8 * single) -> None:
            read, written = (
                vectors.to_pointer(builder, place, builder.mul(at, step))
                for place, step in zip((source, target), steps, strict=True)
            )
            builder.store(builder.load(read, typ=ir.IntType(bits), align=1), written, align=1)

        vectors.repeat(builder, count, copy_one)
        builder.branch(done)
    builder.position_at_end(done)
