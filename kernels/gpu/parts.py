"""The kernel that adds up parts of sums, which blocks of threads computed each for itself."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.gpu.forms import FRAGMENTS, Ending
from tilesolve.kernels.gpu.targets import I32, I64, Target
from tilesolve.kernels.gpu.writing import TYPES, Results, Writer
from tilesolve.kernels.ir.vectors import emit_loop

ADDITION = "add_parts"
"""The name of the kernel."""

THREADS = 256
"""Of a block of it."""


def addition_arguments(ending: Ending) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of its arguments: addresses, then numbers.

    Examples
    --------
    >>> addition_arguments(Ending("float16"))[0]
    ('parts', 'tables', 'output')
    """
    numbers = "rows", "columns", "count", "batches"
    return ("parts", "tables", *ending.arrays), (*numbers, *ending.sides)


def write_addition(target: Target, ending: Ending) -> ir.Module:
    """Write the kernel of a product's ending: a thread for each element of C; return its module.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> "fadd" in str(write_addition(Nvptx(80), Ending("float16")))
    True
    """
    writer = Writer(target, ADDITION, THREADS, *addition_arguments(ending))
    b, given, kind = writer.b, writer.given, TYPES[FRAGMENTS[ending.arithmetic].dtypes[1]]
    number = b.add(b.mul(target.block(b, 0), I32(THREADS)), writer.thread)
    size = b.mul(given["rows"], given["columns"])
    with b.if_then(b.icmp_unsigned("<", number, size)):
        first = b.add(b.mul(b.zext(writer.batch, I64), b.zext(size, I64)), b.zext(number, I64))
        apart = b.mul(b.zext(given["batches"], I64), b.zext(size, I64))

        def add(_: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            place, total = carried
            part = b.load(b.gep(given["parts"], [place], source_etype=kind), typ=kind)
            return [b.add(place, apart), (b.add if kind == I32 else b.fadd)(total, part)]

        parts, zero = b.zext(given["count"], I64), ir.Constant(kind, None)
        _, total = emit_loop(b, parts, [first, zero], add)
        results = Results(writer, ending)
        row = results.find(0, b.udiv(number, given["columns"]))
        column = results.find(1, b.urem(number, given["columns"]))
        results.store(row, column, total)
    b.ret_void()
    return target.module
