"""The kernel that adds up parts of sums, which blocks of threads computed each for itself."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tilesolve.kernels.gpu.forms import FRAGMENTS, Arithmetic
from tilesolve.kernels.gpu.store import store_number
from tilesolve.kernels.gpu.targets import CHUNKS, F32, F64, GLOBAL, I32, I64, Target

ADDITION = "add_parts"
"""The name of the kernel."""

THREADS = 256
"""Of a block of it."""

ADDITION_ARGUMENTS = (
    *("parts", "output", "tables"),
    *("rows", "columns", "count", "batches", "batch_places", "row_step", "column_step"),
)
"""What it takes: addresses, then 32-bit numbers."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The form of such a kernel.

    Parameters
    ----------
    arithmetic
        Of the product, which says what sums and results are.
    row_linear, column_linear
        As for a product's form.
    """

    arithmetic: Arithmetic
    row_linear: bool
    column_linear: bool


def write_addition(target: Target, form: Addition) -> ir.Module:
    """Write the kernel of a form: a thread for each element of C; return its module.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> "fadd" in str(write_addition(Nvptx(80), Addition("float16", True, True)))
    True
    """
    kinds = [GLOBAL] * 3 + [I32] * (len(ADDITION_ARGUMENTS) - 3)
    kernel = target.kernel(ADDITION, kinds, THREADS)
    given = dict(zip(ADDITION_ARGUMENTS, kernel.args, strict=True))
    b = ir.IRBuilder(kernel.append_basic_block("begin"))
    fragment = FRAGMENTS[form.arithmetic]
    kind = F64 if fragment.summed == 8 else F32
    batch, block = target.block(b, 2), target.block(b, 0)
    number = b.add(b.mul(block, I32(THREADS)), target.thread(b))
    size = b.mul(given["rows"], given["columns"])
    with b.if_then(b.icmp_unsigned("<", number, size)):
        before, loop = b.block, kernel.append_basic_block("loop")
        done = kernel.append_basic_block("done")
        first = b.add(b.mul(b.zext(batch, I64), b.zext(size, I64)), b.zext(number, I64))
        apart = b.mul(b.zext(given["batches"], I64), b.zext(size, I64))
        b.branch(loop)
        b.position_at_end(loop)
        at, place, total = b.phi(I32), b.phi(I64), b.phi(kind)
        part = b.load(b.gep(given["parts"], [place], source_etype=kind), typ=kind)
        more, following = b.fadd(total, part), b.add(at, I32(1))
        pairs = (at, I32(0), following), (place, first, b.add(place, apart))
        for phi, begin, again in (*pairs, (total, ir.Constant(kind, 0.0), more)):
            phi.add_incoming(begin, before)
            phi.add_incoming(again, loop)
        b.cbranch(b.icmp_unsigned("<", following, given["count"]), loop, done)
        b.position_at_end(done)
        places = [b.udiv(number, given["columns"]), b.urem(number, given["columns"])]
        for axis, linear in enumerate((form.row_linear, form.column_linear)):
            step = given[("row_step", "column_step")[axis]]
            if linear:
                places[axis] = b.mul(places[axis], step)
            else:
                table = b.gep(given["tables"], [b.add(step, places[axis])], source_etype=I32)
                places[axis] = b.load(table, align=4, typ=I32)
        own = b.add(b.add(given["batch_places"], b.mul(batch, I32(3))), I32(2))
        begin = b.load(b.gep(given["tables"], [own], source_etype=I32), align=4, typ=I32)
        output = b.gep(given["output"], [b.zext(begin, I64)], source_etype=CHUNKS[fragment.element])
        halves = form.arithmetic if fragment.element == 2 else ""
        store_number(b, output, b.add(*places), more, halves)
    b.ret_void()
    return target.module
