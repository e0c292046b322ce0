"""The kernel that reads memory as fast as a GPU can, to measure it."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tilesolve.kernels.gpu.targets import CHUNKS, I32, I64, Target
from tilesolve.kernels.gpu.writing import Writer

SWEEP = "sweep"
"""The name of the kernel."""

SWEEP_THREADS = 256
"""Of a block of it."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Its form, which has no choices."""


def write_sweep(target: Target, form: Sweep) -> ir.Module:
    """Write the kernel: all threads read an array some times, each keeps its exclusive or.

    It takes the array, an output of 32 bits for each thread, chunks of 16 bytes, times, and the
    number of threads.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> "xor" in str(write_sweep(Nvptx(80), Sweep()))
    True
    """
    del form
    arrays, numbers = ("source", "output"), ("chunks", "times", "threads")
    writer = Writer(target, SWEEP, SWEEP_THREADS, arrays, numbers)
    b, given, kind = writer.b, writer.given, CHUNKS[16]
    own = b.add(b.mul(target.block(b, 0), I32(SWEEP_THREADS)), writer.thread)
    before, loop, done = (b.block, *(b.append_basic_block(name) for name in ("loop", "done")))
    b.branch(loop)
    b.position_at_end(loop)
    at, time, found = b.phi(I32), b.phi(I32), b.phi(kind)
    inside = b.icmp_unsigned("<", at, given["chunks"])
    place = b.gep(given["source"], [b.zext(b.select(inside, at, I32(0)), I64)], source_etype=kind)
    read = b.select(inside, b.load(place, align=16, typ=kind), ir.Constant(kind, None))
    mixed, further = b.xor(found, read), b.add(at, given["threads"])
    over = b.icmp_unsigned(">=", further, given["chunks"])
    again = b.select(over, own, further), b.add(time, b.zext(over, I32)), mixed
    first = own, I32(0), ir.Constant(kind, None)
    for phi, begin, following in zip((at, time, found), first, again, strict=True):
        phi.add_incoming(begin, before)
        phi.add_incoming(following, loop)
    b.cbranch(b.icmp_unsigned("<", again[1], given["times"]), loop, done)
    b.position_at_end(done)
    parts = [b.extract_element(mixed, I32(lane)) for lane in range(4)]
    total = b.xor(b.xor(parts[0], parts[1]), b.xor(parts[2], parts[3]))
    b.store(total, b.gep(given["output"], [b.zext(own, I64)], source_etype=I32), align=4)
    b.ret_void()
    return target.module
