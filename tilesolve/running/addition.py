"""Partial outputs: threads that divide a sum have one each, and these are added to C in order.

The addition is an epilogue: it has a sum with each of them, and goes on with the plan's own chain.
Its steps go over C in blocks of runs, as they go over tiles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offsets import Integers
from tilesolve.planning.solution import Solution
from tilesolve.running.epilogue_code import code_address

_STEP = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7, *[ctypes.c_double] * 2)
"""How compiled steps are called, see `kernels.codegen.epilogue_steps`."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Indices of C: how many, and the bytes from one to the next in each array, C first."""

    extent: int
    steps: tuple[int, ...]

    def joins(self, inner: _Axis) -> bool:
        """Return whether it goes on where another one ends, in all arrays."""
        return self.steps == tuple(inner.extent * step for step in inner.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """How partial outputs are added, for arrays of given strides.

    Parameters
    ----------
    count
        Partial outputs: those of all threads but the first one, which writes C.
    steps
        Of the epilogue: the code of each, the number of the array that it reads or 0, and numbers.
    run, across
        The runs of a block, and how these lie.
    blocks
        Where each begins: bytes from the first element of each array.
    """

    count: int
    steps: Sequence[tuple[Callable[..., Any], int, tuple[float, float]]]
    run: _Axis
    across: _Axis
    blocks: Integers

    @classmethod
    def of(
        cls,
        solution: Solution,
        output: Sequence[int],
        partial: Sequence[int],
        operands: Sequence[Sequence[int]],
    ) -> Self:
        """Return the addition, given strides of C, of a partial output and of the operands."""
        problem, count = solution.problem, solution.partial_outputs
        letters = problem.spec.output.letters
        own = solution.epilogue.operations if solution.epilogue else ()
        chain = Epilogue((*(Operation("+", letters) for _ in range(count)), *own))
        named = [letters, *chain.operands], [output, *(partial for _ in range(count)), *operands]
        given = [dict(zip(*one, strict=True)) for one in zip(*named, strict=True)]
        axes = [
            _Axis(problem.sizes[x], tuple(of.get(x, 0) for of in given))
            for x in sorted(letters, key=lambda x: abs(given[0][x]))
        ]
        base, merged = _merge(axes, len(given))
        run = across = _Axis(1, (0,) * len(given))
        if merged and merged[0].steps[0] == np.dtype(problem.dtype).itemsize:
            run = merged.pop(0)
        if merged:
            across = merged.pop(merged.index(max(merged, key=lambda one: one.extent)))
        blocks = base[None]
        for axis in merged:
            steps = np.outer(np.arange(axis.extent), axis.steps)
            blocks = (blocks[:, None] + steps).reshape(-1, len(given))
        return cls(count, list(_steps(chain, problem.dtype)), run, across, blocks)

    def allocate(self, out: Array) -> list[Array]:
        """Return partial outputs of unknown content, with axes in the order of C's."""
        return [np.empty_like(out, subok=False) for _ in range(self.count)]

    def add(self, out: Array, partials: Sequence[Array], operands: Integers | None) -> None:
        """Add the partial outputs to C and apply the epilogue, given its operands' addresses."""
        run, across = self.run, self.across
        own = [one.ctypes.data for one in (out, *partials)]
        places = np.array([*own, *(() if operands is None else operands)], np.int64)
        for block in (self.blocks + places).tolist():
            for code, at, numbers in self.steps:
                operand = (block[at], run.steps[at], across.steps[at]) if at else (0, 0, 0)
                code(block[0], run.extent, across.extent, across.steps[0], *operand, *numbers)


def _merge(axes: Sequence[_Axis], arrays: int) -> tuple[Integers, list[_Axis]]:
    """Return axes that go forwards in C and join no other, and where the first indices are."""
    base, found = np.zeros(arrays, np.int64), list[_Axis]()
    for axis in axes:
        if axis.steps[0] < 0:
            base += (axis.extent - 1) * np.array(axis.steps)
            axis = _Axis(axis.extent, tuple(-step for step in axis.steps))
        if found and axis.joins(found[-1]):
            found[-1] = _Axis(axis.extent * found[-1].extent, found[-1].steps)
        elif axis.extent > 1:
            found.append(axis)
    return base, found


def _steps(
    chain: Epilogue, dtype: str
) -> Iterator[tuple[Callable[..., Any], int, tuple[float, float]]]:
    """Yield what `Addition.steps` are."""
    from tilesolve.contractions.epilogue_terms import list_steps  # most plans have no epilogue

    operand = 0
    for one in list_steps(chain):
        operand += one.takes_operand
        first, second = (*one.numbers, 0.0, 0.0)[:2]
        yield _STEP(code_address(one, dtype)), operand if one.takes_operand else 0, (first, second)
