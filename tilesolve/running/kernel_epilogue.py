"""First steps of an epilogue that microkernels do, while tiles of C are in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.roles import ROWS, shared_lane
from tilesolve.kernels.runtime import frames
from tilesolve.kernels.runtime import state as fields
from tilesolve.packing import table_fields
from tilesolve.packing.offset_tables import are_contiguous
from tilesolve.packing.offsets import Integers
from tilesolve.planning.layout_policy import Strides, contiguous_letter
from tilesolve.running.schedule import Boxes, Schedule


@dataclass(frozen=True, slots=True)
class KernelEpilogue:
    """What microkernels do of a chain: a sum with rows, one with an array like C, and bounds.

    A zero that bounds leave keeps its sign.

    Parameters
    ----------
    begins_with
        The number of the operand that sums begin with; None for zeros.
    adds
        The number of the operand that lies as C does, and is added to first sums; None for none.
    bounds
        The least number that is written in the end, and the largest one, if there is one.
    operations, operands
        How many operations of the chain that is, and how many operands these take.
    """

    begins_with: int | None
    adds: int | None
    bounds: tuple[float, ...]
    operations: int
    operands: int

    @classmethod
    def of(
        cls, epilogue: Epilogue | None, schedule: Schedule, boxes: Boxes, strides: Sequence[Strides]
    ) -> Self | None:
        """Return what microkernels do of a chain for operands of some strides; None if nothing."""
        problem = schedule.problem
        plain = not (problem.dtype.startswith("complex") or is_half(problem.dtype))
        if epilogue is None or not plain or problem.pairing or shared_lane(problem):
            return None
        begins_with = adds = None
        operand = 0
        for one in epilogue.operations:
            if one.name != "+":
                break
            if begins_with is None and _is_of_rows(schedule, boxes, strides[operand]):
                begins_with = operand
            elif adds is None and _lies_as_output(schedule, strides[operand]):
                adds = operand
            else:
                break
            operand += 1
        done, bounds = operand, tuple[float, ...]()
        if done < len(epilogue.operations):
            bounds = epilogue.operations[done].bounds
            done += bool(bounds)
        return cls(begins_with, adds, bounds, done, operand) if done else None

    def tell(self, state: Integers, later: Integers | None) -> None:
        """Tell runs of it, and of the program of what comes after it, if there is one."""
        state[fields.KERNELS_BEGIN] = 1
        state[fields.BEGINS_WITH] = 0 if self.begins_with is None else 1 + self.begins_with
        state[fields.ADDS] = 0 if self.adds is None else 1 + self.adds
        state[fields.BOUND_COUNT] = len(self.bounds)
        kind = np.float32 if state[fields.SINGLE] else np.float64
        for field, bound in zip((frames.LEAST, frames.LARGEST), self.bounds, strict=False):
            state[field : field + 1].view(kind)[0] = bound
        state[fields.LATER_PROGRAM] = 0 if later is None else later.ctypes.data


def _is_of_rows(schedule: Schedule, boxes: Boxes, of: Strides) -> bool:
    """Return whether an operand has a number for each row, side by side for those of a vector."""
    sizes, last = schedule.problem.sizes, schedule.policy.last
    if any(of.get(letter, 0) and sizes[letter] > 1 for letter in schedule.roles.columns):
        return False
    walked = {letter: -step if letter in last else step for letter, step in of.items()}
    for box, size in zip(boxes.tables, boxes.sizes, strict=True):
        table = box.tables[ROWS]
        begin, end = table[table_fields.GROUP_STARTS], table[table_fields.GROUP_COUNTS]
        starts, counts = table[begin:end], table[end : 2 * end - begin]
        offsets = schedule.offsets(ROWS, size, walked)
        if not are_contiguous(offsets, starts, counts, schedule.problem.itemsize).all():
            return False
    return True


def _lies_as_output(schedule: Schedule, of: Strides) -> bool:
    """Return whether an operand's elements are as far apart as those of C, which is not turned."""
    problem, last = schedule.problem, schedule.policy.last
    if contiguous_letter(problem, schedule.strides[0]) in schedule.roles.columns:
        return False
    return all(
        (-1 if letter in last else 1) * of.get(letter, 0) == schedule.strides[0][letter]
        for letter in problem.spec.output.letters
        if problem.sizes[letter] > 1
    )
