"""Updates that are spread over several tables, which are added up in the end.

Elements that follow one another often fall into the same place, above all in images: each update
would wait for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BIT, BYTE, memory_type
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.accesses import Target
from tilesolve.kernels.programs.bounds import range_of
from tilesolve.kernels.programs.computing import emit_compute
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.program import Compute, Loop
from tilesolve.kernels.programs.scope import Place, Scope, emit_extreme, emit_position


@contextmanager
def spread_updates(emitter: Emitter, number: int, scope: Scope) -> Iterator[Sequence[Target]]:
    """Write updates of a stage for some tables, which are added up behind them.

    The stage's own array is the first table.
    """
    builder, own = emitter.builder, emitter.targets[emitter.stage(number).name]
    most, kind = dict(emitter.skeleton.spread)[number], memory_type(own.dtype)
    extent = emit_position(builder, emitter.skeleton.shape(own.name)[0], scope).value(builder)
    count = vectors.extreme(builder, "<", extent, INT64(most))
    with builder.goto_entry_block():
        others = [builder.alloca(kind, most) for _ in range(tuning.UPDATE_TABLES - 1)]
    size = builder.mul(count, INT64(own.itemsize))
    for one in others:
        arguments = [one, BYTE(0), size, BIT(0)]
        vectors.call_function(builder, "llvm.memset.p0.i64", ir.VoidType(), arguments)
    yield [own, *(replace(own, base=one, strides=(own.itemsize,), unit=0) for one in others)]

    def add(index: ir.Value) -> None:
        found = builder.gep(own.base, [builder.mul(index, own.step(0))], source_etype=BYTE)
        total = builder.load(found, typ=kind, align=1)
        for one in others:
            where = builder.gep(one, [index], source_etype=kind)
            total = builder.add(total, builder.load(where, typ=kind, align=own.itemsize))
        builder.store(total, found, align=1)

    vectors.repeat(builder, count, add)


def update_in_turns(
    emitter: Emitter, loop: Loop, scope: Scope, tables: Sequence[Target]
) -> tuple[Place, tuple[ir.Value, ir.Value]]:
    """Emit trips of a loop whose updates go to some tables in turn.

    Returns
    -------
    tuple
        Where the loop begins, and the trips that are left: from which number on, and how many.
    """
    builder, (node,) = emitter.builder, loop.body
    assert isinstance(node, Compute)
    low = emit_extreme(builder, loop.low, scope, ">")
    high = emit_extreme(builder, loop.high, scope, "<")
    count = builder.sub(high.value(builder), low.value(builder))
    count = vectors.extreme(builder, ">", count, INT64(0))
    rounds = builder.udiv(count, INT64(len(tables)))

    def trip(index: ir.Value) -> None:
        begin = builder.add(low.value(builder), builder.mul(index, INT64(len(tables))))
        with emitter.inside():
            for number, table in enumerate(tables):
                emitter.targets[table.name] = table
                inner = scope.at(loop.name, Place(begin, number), range_of(loop, scope.ranges))
                emit_compute(emitter, node.stage, inner, non_temporal=False)

    vectors.repeat(builder, rounds, trip)
    emitter.targets[tables[0].name] = tables[0]
    done = builder.mul(rounds, INT64(len(tables)))
    return low, (done, builder.sub(count, done))
