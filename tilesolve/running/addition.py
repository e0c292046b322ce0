"""Partial outputs: threads that divide a sum have one each, and these are added to C in order.

The addition is an epilogue: a pass over C that adds an operand for each, and goes on with the
plan's own chain.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, Self

import numpy as np

from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Tensor
from tilesolve.kernels.runtime import box_fields
from tilesolve.kernels.runtime import state as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.machine.kernel_cache import family_of
from tilesolve.model.nest import REGISTER, Nest
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offsets import Integers
from tilesolve.planning.layout_policy import policy_of
from tilesolve.planning.solution import Solution
from tilesolve.running.epilogue_tables import EpilogueTables
from tilesolve.running.schedule import Boxes, Schedule
from tilesolve.running.task import add_epilogue, tabulate_boxes


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """How partial outputs are added, for arrays of given strides.

    Parameters
    ----------
    count
        Partial outputs: those of all threads but the first one, which writes C.
    base
        Bytes from C's first element to where the boxes' offsets count from.
    boxes, tables
        The boxes of C, and what a pass reads of the operands: the rows have addresses of theirs.
    rows
        The boxes for compiled code, see `box_fields`.
    state
        Before a pass, see `kernels.runtime.state`.
    """

    count: int
    base: int
    boxes: Boxes
    tables: EpilogueTables
    rows: Integers
    state: Integers

    @classmethod
    def of(
        cls,
        solution: Solution,
        output: Sequence[int],
        partial: Sequence[int],
        operands: Sequence[Sequence[int]],
    ) -> Self:
        """Return the addition, given strides of C, of a partial output and of the operands."""
        letters = solution.problem.spec.output.letters
        count = solution.partial_outputs
        own = solution.epilogue.operations if solution.epilogue else ()
        chain = Epilogue((*(Operation("+", letters) for _ in range(count)), *own))
        axes = [dict(zip(letters, steps, strict=True)) for steps in (output, partial)]
        whole = _elementwise(solution, sorted(letters, key=lambda i: abs(axes[0][i])))
        given = [{i: axes[1][i] for i in one.letters} for one in whole.problem.spec.operands]
        policy = policy_of(whole, whole.problem, (axes[0], *given))
        family = family_of(whole.problem.dtype, whole.machine)
        schedule = Schedule(whole.problem, policy, family, policy.strides)
        boxes = schedule.boxes()
        steps = (*(partial for _ in range(count)), *operands)
        named = zip(chain.operands, steps, strict=True)
        strides = [dict(zip(*one, strict=True)) for one in named]
        tables = EpilogueTables.of(chain, schedule, boxes, {}, strides)
        state = np.zeros(fields.SIZE, np.int64)
        rows, _ = tabulate_boxes(schedule, boxes, [None, None])
        add_epilogue(state, rows, tables)
        base = sum(step * policy.last.get(letter, 0) for letter, step in axes[0].items())
        return cls(count, base, boxes, tables, rows.reshape(-1, box_fields.SIZE), state)

    def allocate(self, out: Array) -> list[Array]:
        """Return partial outputs of unknown content, with axes in the order of C's."""
        return [np.empty_like(out, subok=False) for _ in range(self.count)]

    def run(self, out: Array, partials: Sequence[Array], operands: Integers | None) -> None:
        """Add the partial outputs to C and apply the epilogue, given its operands' addresses."""
        places = [part.ctypes.data for part in partials]
        addresses = np.array([*places, *(() if operands is None else operands)], np.int64)
        state, pass_over = self.state.copy(), _pass_over()
        state[fields.OPERANDS] = addresses.ctypes.data
        for row in self.rows:
            state[fields.OUTPUT] = out.ctypes.data + self.base + row[box_fields.OFFSETS]
            state[fields.HAS_LAST_SUM] = row[box_fields.HAS_LAST_SUM]
            state[fields.SUM_COUNT] = row[box_fields.SUM_COUNT]
            state[fields.BOX_OPERANDS] = row[box_fields.OPERANDS]
            tables = row[box_fields.TABLES : box_fields.TABLES + 4].tolist()
            pass_over(state.ctypes.data, 0, 0, 0, 0, *tables)


def _elementwise(solution: Solution, order: Sequence[str]) -> Solution:
    """Return a solution whose problem has C's elements and no sums, with loops innermost first.

    Rows are the innermost letters that make up the square root of C's elements, or more, columns
    are the others: tables have an entry for each row and each column.
    """
    problem = solution.problem
    sizes = {i: problem.sizes[i] for i in order}
    products = accumulate(sizes.values(), mul, initial=1)
    rows = next(n for n, count in enumerate(products) if count**2 >= prod(sizes.values()))
    axes = {one.letters[0]: one for one in problem.spec.output.subscripts}
    whole, inner, outer = (
        Tensor(tuple(axes[i] for i in reversed(letters)))
        for letters in (order, order[:rows], order[rows:])
    )
    small = Problem.of(Spec(whole, (inner, outer)), sizes, problem.dtype)
    loops, last = "".join(order), solution.machine.memory.name
    nest = Nest.of(small, [(REGISTER, loops, sizes), (last, loops, sizes)])
    return replace(
        solution, problem=small, threads=1, split=None, vector=None, epilogue=None, nest=nest
    )


@cache
def _pass_over() -> Any:  # noqa: ANN401 - ctypes has no type for it
    """Return the compiled pass; it is loaded, or compiled, when that is asked."""
    from tilesolve.kernels.runtime.epilogues import pass_over

    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 9)(address(pass_over))
