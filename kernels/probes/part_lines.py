"""Runs of stores that begin and end amid lines, as those of a C that numpy allocated."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from tilesolve.kernels.ir import vectors
from tilesolve.kernels.probes.bandwidth import (
    BLOCK,
    Kernel,
    aligned_address,
    compile_probe,
    make_intrinsic,
)
from tilesolve.packing.sizes import WORD_BYTES

NUMPY_BYTES = 16
"""Where an array that numpy allocates begins, behind a line."""

_OFFSETS = types.Array(types.int64, 1, "C")


def tile_order(size: int, run: int, pieces: int, columns: int) -> NDArray[np.int64]:
    """Return where runs begin in the order in which tiles of C are stored.

    The block is a matrix whose columns lie one after another, each of so many `pieces` of `run`
    bytes. Of as many `columns` as a box has, all first pieces are stored before the second ones, so
    the line that two pieces share is completed so many runs later.

    Examples
    --------
    >>> tile_order(512, 64, 2, 2).tolist()
    [0, 128, 64, 192, 256, 384, 320, 448]
    """
    boxes = size // (run * pieces * columns)
    places = np.arange(boxes * columns * pieces, dtype=np.int64).reshape(boxes, columns, pieces)
    return run * np.ascontiguousarray(places.transpose(0, 2, 1)).ravel()


@cache
def store_runs(bits: int, run: int) -> Kernel:
    """Return a kernel that stores runs of so many bytes through the caches.

    Returns
    -------
    Callable
        ``kernel(block, offsets, value)`` stores a float64 in all of a run at each of the offsets,
        each `NUMPY_BYTES` behind it, in their order. The block is one as of `read`, and the runs
        lie within it.

    Examples
    --------
    >>> from tilesolve.kernels.probes.bandwidth import block_of_ones
    >>> block = block_of_ones(4096)
    >>> store_runs(128, 64)(block, tile_order(2048, 64, 2, 2), 7.0)
    >>> int((block.view("float64") == 7.0).sum()) * 8
    2048
    """
    kind = vectors.vector_type("float64", bits)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        address, offsets, count, value = args
        values = vectors.broadcast(builder, value, kind)

        def fill(number: ir.Value) -> None:
            entry = builder.add(offsets, builder.mul(number, vectors.INT64(WORD_BYTES)))
            where = vectors.to_pointer(builder, entry)
            begin = builder.add(address, builder.load(where, typ=vectors.INT64, align=WORD_BYTES))
            for offset in range(0, run, bits // 8):
                place = vectors.to_pointer(builder, begin, NUMPY_BYTES + offset)
                vectors.store(builder, values, place, NUMPY_BYTES)

        vectors.repeat(builder, count, fill)
        vectors.compiler_barrier(builder)

    run_all: Any = make_intrinsic(types.void, (types.int64,) * 3 + (types.float64,), emit)

    def kernel(block, offsets, value):
        run_all((aligned_address(block), offsets.ctypes.data, offsets.size, value))

    return compile_probe(kernel, types.void(BLOCK, _OFFSETS, types.float64))
