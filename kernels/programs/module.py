"""Modules: the functions of a program in LLVM IR, one for each part between barriers.

Each function takes the number of its part of the work, of how many, and a pointer to words: the
address of the word that ends runs, that of the words for a check that fails, that of the thread's
buffers; then for each array its address and its strides in bytes; then the parameters and the
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BIT, number_type
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.accesses import Target
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.lowering import Lowering
from tilesolve.kernels.programs.phases import (
    BUFFERS,
    FAILURE,
    FIRST_ARRAY,
    STOP,
    external_arrays,
    has_threads,
    place_buffers,
    split_phases,
)
from tilesolve.kernels.programs.program import Node
from tilesolve.kernels.programs.scope import Place, Scope
from tilesolve.kernels.programs.skeleton import ArrayForm, Skeleton
from tilesolve.kernels.programs.thread_safety import check_threads
from tilesolve.packing.sizes import WORD_BYTES


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program in LLVM IR.

    Parameters
    ----------
    module
        With a function for each part.
    names
        Of these functions, in order.
    """

    module: ir.Module
    names: tuple[str, ...]


def lower(skeleton: Skeleton, layout: Layout, bits: int, *, picks_bytes: bool = False) -> Lowered:
    """Return a program in LLVM IR, for vectors of so many bits.

    `picks_bytes` says whether the CPU picks bytes out of registers, see `pick_bytes`.
    """
    check_threads(skeleton)
    module = ir.Module(name="tilesolve")
    buffers = place_buffers(skeleton)
    names = []
    for number, body in enumerate(split_phases(skeleton.body)):
        names.append(f"phase{number}")
        _Function(module, skeleton, layout, bits, buffers, picks_bytes).emit(names[-1], body)
    return Lowered(module, tuple(names))


@dataclass(frozen=True, slots=True)
class _Function:
    """A function that is being made: an entry that reads words, and what it calls.

    Arrays are arguments of the latter, which tells LLVM that no two of them overlap.
    """

    module: ir.Module
    skeleton: Skeleton
    layout: Layout
    bits: int
    buffers: Mapping[int, tuple[int, int]]
    picks_bytes: bool

    def emit(self, name: str, body: Sequence[Node]) -> None:
        """Emit the code of some parts under a name."""
        arrays, skeleton = external_arrays(self.skeleton), self.skeleton
        pointer = ir.PointerType()
        kinds: list[ir.Type] = [INT64, INT64, pointer, pointer, *[pointer] * len(self.buffers)]
        for array in arrays:
            kinds += [pointer, *[INT64] * array.axes]
        kinds += [number_type(dtype) for _, dtype in skeleton.params]
        kinds += [INT64] * len(skeleton.sizes)
        inner = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), f"{name}_body")
        inner.linkage = "internal"
        inner.attributes.add("noinline")
        for argument in inner.args[3:]:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        self._emit_entry(name, inner)
        self._emit_inner(inner, arrays, body)

    def _emit_entry(self, name: str, inner: ir.Function) -> None:
        """Emit the function that reads the words and calls the other one."""
        kind = ir.FunctionType(ir.VoidType(), (INT64, INT64, ir.PointerType()))
        entry = ir.Function(self.module, kind, name)
        builder = ir.IRBuilder(entry.append_basic_block())
        part, parts, words = entry.args

        def word(at: int, kind: ir.Type) -> ir.Value:
            where = builder.gep(words, [INT64(at)], source_etype=INT64)
            return builder.load(where, typ=kind, align=WORD_BYTES)

        pointer = ir.PointerType()
        arena = word(BUFFERS, pointer)
        given = [part, parts, word(STOP, pointer), word(FAILURE, pointer)]
        given += [
            builder.gep(arena, [INT64(begin)], source_etype=ir.IntType(8))
            for begin, _ in self.buffers.values()
        ]
        at = FIRST_ARRAY
        for argument in inner.args[len(given) :]:
            kind = ir.IntType(8) if argument.type == BIT else argument.type
            value = word(at, kind)
            given.append(builder.trunc(value, BIT) if argument.type == BIT else value)
            at += 1
        builder.call(inner, given)
        builder.ret_void()

    def _emit_inner(
        self, inner: ir.Function, arrays: Sequence[ArrayForm], body: Sequence[Node]
    ) -> None:
        """Emit what runs: all threads run what has loops of threads, the first one the rest."""
        builder = ir.IRBuilder(inner.append_basic_block())
        part, parts, stop, failure, *others = inner.args
        buffers = dict(zip(self.buffers, others, strict=False))
        rest = iter(others[len(self.buffers) :])
        targets = {array.name: self._target(array, rest) for array in arrays}
        params = {name: next(rest) for name, _ in self.skeleton.params}
        sizes = {name: Place(next(rest)) for name, _ in self.skeleton.sizes}
        scope = Scope(sizes, self.skeleton.ranges)
        emitter = Emitter(builder, self.skeleton, self.bits, targets, params, failure, stop)
        emitter.passed = frozenset(self.skeleton.needless)
        emitter.picks_bytes = self.picks_bytes
        lowering = Lowering(emitter, buffers, (part, parts))
        for node in body:
            if has_threads((node,)):
                lowering.emit((node,), scope)
                continue
            first = builder.icmp_signed("==", part, INT64(0))
            with builder.if_then(first), emitter.inside():
                lowering.emit((node,), scope)
        for part in emitter.waiting.values():
            part.write(builder)
        if self.skeleton.non_temporal:
            vectors.store_fence(builder)
        builder.ret_void()

    def _target(self, array: ArrayForm, arguments: Iterator[ir.Value]) -> Target:
        base = next(arguments)
        unit, steps = self.layout.unit(array.name), self.layout.steps(array.name)
        size = np.dtype(array.dtype).itemsize
        given = [next(arguments) for _ in range(array.axes)]
        strides = tuple(
            steps[axis] * size if axis in steps else one for axis, one in enumerate(given)
        )
        pixels = self.layout.pixels_of(array.name)
        return Target(array.name, array.dtype, base, strides, unit, pixels=pixels)
