"""The pointer chase: how long a load waits for a line of whatever level holds a block."""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.probes.bandwidth import Kernel, compile_probe, make_intrinsic
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES


def link_lines(block: NDArray[np.uint8], seed: int) -> int:
    """Make a block's lines one cycle in random order: each begins with the address of the next.

    Parameters
    ----------
    block
        Whole lines, aligned to one.
    seed
        Of the order.

    Returns
    -------
    int
        The address of one of them.

    Examples
    --------
    >>> from tilesolve.kernels.probes.bandwidth import block_of_ones
    >>> block = block_of_ones(4096)
    >>> link_lines(block, 1) in block.view(np.int64)[::8]
    True
    """
    begin = block.ctypes.data
    if begin % LINE_BYTES or block.size % LINE_BYTES or not block.size:
        raise ValueError(f"a block must be whole lines of {LINE_BYTES} bytes")
    order = np.random.default_rng(seed).permutation(block.size // LINE_BYTES)
    block.view(np.int64)[order * (LINE_BYTES // WORD_BYTES)] = begin + LINE_BYTES * np.roll(
        order, -1
    )
    return begin + LINE_BYTES * int(order[0])


@cache
def chase() -> Kernel:
    """Return a kernel that follows addresses: each load waits for the one before.

    Returns
    -------
    Callable
        ``kernel(address, trips) -> int`` loads ``trips * tuning.CHASE_LOADS`` times, each time from
        the address that was loaded before, and returns the last one. `link_lines` makes such
        addresses; their block must be kept meanwhile.

    Examples
    --------
    A block of a single line leads to itself:

    >>> from tilesolve.kernels.probes.bandwidth import block_of_ones
    >>> block = block_of_ones(4096)[:64]
    >>> start = link_lines(block, 1)
    >>> chase()(start, 3) == start
    True
    """

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> ir.Value:
        start, trips = args

        def step(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            (place,) = values
            for _load in range(tuning.CHASE_LOADS):
                where = vectors.to_pointer(builder, place)
                place = builder.load(where, typ=vectors.INT64, align=WORD_BYTES)
            return [place]

        return vectors.emit_loop(builder, trips, [start], step)[0]

    run = make_intrinsic(types.int64, (types.int64,) * 2, emit)

    def kernel(address, trips):
        return run((address, trips))

    return compile_probe(kernel, types.int64(types.int64, types.int64))
