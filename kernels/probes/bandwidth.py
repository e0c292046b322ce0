"""Micro-benchmark kernels: what the calibration times (section 6.2 of the paper).

Each factory compiles one kernel for a dtype and a vector width and returns a function that runs
without the GIL. The machine code has exactly the accesses and the arithmetic that are written here:
explicit LLVM vectors, with a compiler barrier after each pass over the block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.packing.buffers import allocate_pages
from tilesolve.packing.sizes import ALIGNMENT_BYTES

Kernel = Callable[..., Any]
"""A compiled kernel: a numba dispatcher, whose ``inspect_asm`` shows its machine code."""


def block_of_ones(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return `size` bytes of page-aligned memory, on huge pages where the system grants them.

    The pages exist on return, and hold 1.0 in every float64, so that no sweep computes with
    subnormal numbers.

    Examples
    --------
    >>> block_of_ones(4096).view("float64")[0]
    np.float64(1.0)
    """
    block = allocate_pages(size)
    block[: size // 8 * 8].view(np.float64)[:] = 1.0
    return block


@cache
def sweep(dtype: str, bits: int) -> Kernel:
    """Return the paper's kernel: ``x = x * scale + shift`` over a block, loaded and stored.

    Parameters
    ----------
    dtype
        ``"float32"`` or ``"float64"``.
    bits
        Vector width: 128, 256 or 512.

    Returns
    -------
    Callable
        ``kernel(block, passes, scale, shift)``. The block is a writable uint8 array, aligned to
        `ALIGNMENT_BYTES` and a multiple of `tuning.SWEEP_BYTES`; each pass loads and stores it.

    Examples
    --------
    >>> block = block_of_ones(4096)
    >>> sweep("float64", 128)(block, 2, 0.5, 3.0)
    >>> block.view("float64")[0]
    np.float64(4.75)
    """
    kind = vectors.vector_type(dtype, bits)
    real = getattr(types, dtype)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        address, size, passes, scale, shift = args
        scales, shifts = (vectors.broadcast(builder, x, kind) for x in (scale, shift))

        def step(where: list[ir.Value], _: Any) -> list[ir.Value]:
            for place in where:
                x = vectors.load(builder, place, kind, bits // 8)
                y = vectors.multiply_add(builder, x, scales, shifts)
                vectors.store(builder, y, place, bits // 8)
            return []

        _passes(builder, (address, size, passes), bits, [], step)

    run = make_intrinsic(types.void, (types.int64,) * 3 + (real, real), emit)

    def kernel(block, passes, scale, shift):
        run((aligned_address(block), block.size, passes, scale, shift))

    return compile_probe(kernel, types.void(BLOCK, types.int64, real, real))


@cache
def read(bits: int) -> Kernel:
    """Return a kernel that only loads: the sum of a block's 64-bit integers, modulo 2^64.

    Integer additions take one cycle on every vector unit, so the loads are what is timed.

    Returns
    -------
    Callable
        ``kernel(block, passes) -> int``, `passes` times the sum, block as in `sweep`.

    Examples
    --------
    >>> import numpy as np
    >>> block = block_of_ones(4096)
    >>> block.view(np.int64)[:] = 2
    >>> read(256)(block, 3)
    3072
    """
    kind = vectors.vector_type("int64", bits)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> ir.Value:
        zero = ir.Constant(kind, None)

        def step(where: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
            sums = list(sums)
            for number, place in enumerate(where):
                x = vectors.load(builder, place, kind, bits // 8)
                sums[number % len(sums)] = builder.add(sums[number % len(sums)], x)
            return sums

        sums = _passes(builder, args, bits, [zero] * tuning.READ_ACCUMULATORS, step)
        return total_lanes(builder, sums, builder.add)

    run = make_intrinsic(types.int64, (types.int64,) * 3, emit)

    def kernel(block, passes):
        return run((aligned_address(block), block.size, passes))

    return compile_probe(kernel, types.int64(BLOCK, types.int64))


@cache
def stream(bits: int) -> Kernel:
    """Return a kernel that writes a block with non-temporal stores.

    Returns
    -------
    Callable
        ``kernel(block, passes, value)``, value a float64, block as in `sweep`; returns when the
        last store has reached memory.

    Examples
    --------
    >>> block = block_of_ones(4096)
    >>> stream(128)(block, 1, 7.0)
    >>> block.view("float64")[-1]
    np.float64(7.0)
    """
    kind = vectors.vector_type("float64", bits)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        *extent, value = args
        values = vectors.broadcast(builder, value, kind)

        def step(where: list[ir.Value], _: Any) -> list[ir.Value]:
            for place in where:
                vectors.store(builder, values, place, bits // 8, non_temporal=True)
            return []

        _passes(builder, tuple(extent), bits, [], step)
        vectors.store_fence(builder)

    run = make_intrinsic(types.void, (types.int64,) * 3 + (types.float64,), emit)

    def kernel(block, passes, value):
        run((aligned_address(block), block.size, passes, value))

    return compile_probe(kernel, types.void(BLOCK, types.int64, types.float64))


@cache
def multiply_adds(dtype: str, bits: int, accumulators: int) -> Kernel:
    """Return a kernel that keeps `accumulators` vectors in registers and only computes.

    With one accumulator each FMA waits for the one before: the time is the FMA's latency. With at
    least latency times rate of them, it is the peak.

    Returns
    -------
    Callable
        ``kernel(trips, scale, shift) -> float``. Each trip replaces every accumulator ``x`` by
        ``x * scale + shift``; they start at 0, 1, 2, …, and the sum over all lanes is returned.

    Examples
    --------
    >>> multiply_adds("float64", 128, 2)(1, 0.5, 3.0)
    13.0
    """
    kind = vectors.vector_type(dtype, bits)
    real = getattr(types, dtype)

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> ir.Value:
        trips, scale, shift = args
        scales, shifts = (vectors.broadcast(builder, x, kind) for x in (scale, shift))

        def step(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            return [vectors.multiply_add(builder, x, scales, shifts) for x in values]

        # Accumulators that start equal would stay equal, and be merged into one.
        starts = [
            vectors.broadcast(builder, ir.Constant(kind.element, float(number)), kind)
            for number in range(accumulators)
        ]
        values = vectors.emit_loop(builder, trips, starts, step)
        return total_lanes(builder, values, builder.fadd)

    run = make_intrinsic(real, (types.int64, real, real), emit)

    def kernel(trips, scale, shift):
        return run((trips, scale, shift))

    return compile_probe(kernel, real(types.int64, real, real))


@cache
def cycles() -> Kernel:
    """Return a kernel that takes a known number of clock cycles, which tells the frequency.

    Returns
    -------
    Callable
        ``kernel(trips, x, y, z) -> int`` runs ``trips * tuning.CHAIN_OPERATIONS`` integer
        operations, each of which waits for the one before; exclusive or and addition take one
        cycle on every CPU.

    Examples
    --------
    >>> cycles()(0, 5, 3, 1)
    5
    """

    def emit(builder: ir.IRBuilder, args: tuple[ir.Value, ...]) -> ir.Value:
        trips, start, y, z = args

        def step(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            (x,) = values
            for _pair in range(tuning.CHAIN_OPERATIONS // 2):
                x = builder.add(builder.xor(x, y), z)
            return [x]

        return vectors.emit_loop(builder, trips, [start], step)[0]

    run = make_intrinsic(types.int64, (types.int64,) * 4, emit)

    def kernel(trips, x, y, z):
        return run((trips, x, y, z))

    return compile_probe(kernel, types.int64(*(types.int64,) * 4))


def _passes(
    builder: ir.IRBuilder,
    extent: tuple[ir.Value, ...],
    bits: int,
    carried: list[ir.Value],
    step: Callable[[list[ir.Value], list[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    """Emit `passes` walks over a block; `step` gets the pointers to `tuning.SWEEP_BYTES` of it."""
    address, size, passes = extent
    steps = builder.sdiv(size, vectors.INT64(tuning.SWEEP_BYTES))

    def trip(index: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        base = builder.add(address, builder.mul(index, vectors.INT64(tuning.SWEEP_BYTES)))
        where = [
            vectors.to_pointer(builder, base, offset)
            for offset in range(0, tuning.SWEEP_BYTES, bits // 8)
        ]
        return step(where, values)

    def walk(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        results = vectors.emit_loop(builder, steps, values, trip)
        vectors.compiler_barrier(builder)
        return results

    return vectors.emit_loop(builder, passes, carried, walk)


def total_lanes(
    builder: ir.IRBuilder,
    values: list[ir.Value],
    add: Callable[[ir.Value, ir.Value], ir.Value],
) -> ir.Value:
    """Return the sum of all lanes of some vectors."""
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    lanes = [builder.extract_element(total, vectors.INT64(i)) for i in range(total.type.count)]
    result = lanes[0]
    for lane in lanes[1:]:
        result = add(result, lane)
    return result


def make_intrinsic(result: Any, parameters: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    """Return a numba function of one tuple, of the given types, whose body `emit` writes."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        values = cgutils.unpack_tuple(builder, args[0])
        value = emit(builder, tuple(values))
        return context.get_dummy_value() if value is None else value

    def typed(_context, _arguments):
        return result(types.Tuple(parameters)), generate

    return intrinsic(typed)


@njit
def aligned_address(block):
    """Return where a block begins that probes can go over.

    Examples
    --------
    >>> int(aligned_address(block_of_ones(4096))) % ALIGNMENT_BYTES
    0
    """
    address = block.ctypes.data
    if address % ALIGNMENT_BYTES or block.size % tuning.SWEEP_BYTES:
        raise ValueError("a block must be aligned to 64 bytes and a multiple of 512 bytes")
    return address


BLOCK = types.Array(types.uint8, 1, "C")


def compile_probe(kernel: Callable[..., Any], signature: Any) -> Kernel:
    """Compile at once, so that no measurement waits for the compiler."""
    return njit(signature, nogil=True)(kernel)
