"""Choices: pieces of code in LLVM IR, of which a number tells the one that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from tilesolve.kernels.ir.vectors import INT64


def choose(
    builder: ir.IRBuilder,
    number: ir.Value,
    ways: Mapping[int, Callable[[], None]],
    otherwise: Callable[[], None] = lambda: None,
) -> None:
    """Emit pieces of code, of which that of a number runs, and another one for other numbers.

    Examples
    --------
    >>> from tilesolve.kernels.ir.vectors import compiler_barrier, example_function
    >>> builder, number = example_function()
    >>> choose(builder, number, {1: lambda: compiler_barrier(builder)})
    >>> builder.block.name
    'done'
    """
    done, rest = (builder.append_basic_block(name) for name in ("done", "otherwise"))
    choice = builder.switch(number, rest)
    for at, emit in ways.items():
        choice.add_case(INT64(at), builder.append_basic_block())
        builder.position_at_end(choice.cases[-1][1])
        emit()
        builder.branch(done)
    builder.position_at_end(rest)
    otherwise()
    builder.branch(done)
    builder.position_at_end(done)
