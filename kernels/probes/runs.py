"""Runs of lines: what loads take that go on side by side for a while, and then elsewhere."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.probes.bandwidth import (
    BLOCK,
    Kernel,
    aligned_address,
    compile_probe,
    make_intrinsic,
    total_lanes,
)
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

_OFFSETS = types.Array(types.int64, 1, "C")


def shuffle_runs(size: int, lines: int, seed: int) -> NDArray[np.int64]:
    """Return in random order where in a block of so many bytes runs of so many lines begin.

    They fill the block, up to what is shorter than a run.

    Examples
    --------
    >>> sorted(shuffle_runs(4096, 16, 1).tolist())
    [0, 1024, 2048, 3072]
    """
    run = lines * LINE_BYTES
    return run * np.random.default_rng(seed).permutation(size // run)


@cache
def runs(bits: int, lines: int) -> Kernel:
    """Return a kernel that loads runs of so many lines: the sum of their 64-bit integers.

    Parameters
    ----------
    bits
        Vector width: 128, 256 or 512.
    lines
        Of a run.

    Returns
    -------
    Callable
        ``kernel(block, offsets, passes) -> int`` loads a run at each of the offsets, in their
        order, again and again. The block is one as of `read`, and runs lie within it.

    Examples
    --------
    >>> from tilesolve.kernels.probes.bandwidth import block_of_ones
    >>> block = block_of_ones(4096)
    >>> block.view(np.int64)[:] = 2
    >>> runs(256, 4)(block, shuffle_runs(4096, 4, 1), 3)
    3072
    """
    kind = vectors.vector_type("int64", bits)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> ir.Value:
        address, offsets, count, passes = args

        def load_run(number: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            entry = builder.add(offsets, builder.mul(number, vectors.INT64(WORD_BYTES)))
            where = vectors.to_pointer(builder, entry)
            begin = builder.add(address, builder.load(where, typ=vectors.INT64, align=WORD_BYTES))
            sums = list(sums)
            for at, offset in enumerate(range(0, lines * LINE_BYTES, bits // 8)):
                place = vectors.to_pointer(builder, begin, offset)
                x = vectors.load(builder, place, kind, bits // 8)
                sums[at % len(sums)] = builder.add(sums[at % len(sums)], x)
            return sums

        def walk(_: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            found = vectors.emit_loop(builder, count, sums, load_run)
            vectors.compiler_barrier(builder)
            return found

        zeros: list[Any] = [ir.Constant(kind, None)] * tuning.READ_ACCUMULATORS
        return total_lanes(builder, vectors.emit_loop(builder, passes, zeros, walk), builder.add)

    run = make_intrinsic(types.int64, (types.int64,) * 4, emit)

    def kernel(block, offsets, passes):
        return run((aligned_address(block), offsets.ctypes.data, offsets.size, passes))

    return compile_probe(kernel, types.int64(BLOCK, _OFFSETS, types.int64))
