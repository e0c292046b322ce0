"""Prepared operands: packed once, and taken by calls in the operand's place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.roles import shared_lane
from tilesolve.packing.buffers import Bytes, allocate
from tilesolve.packing.memory_overlap import Array
from tilesolve.planning.solution import Solution
from tilesolve.running.task import Task
from tilesolve.system.checks import check_dtype


class Prepared:
    """An operand of a plan whose micro-panels are made before all calls.

    It keeps a copy of the array: what is done to the array later changes nothing. Copies and
    pickles have the array only, and pack it again.

    Parameters
    ----------
    solution
        What runs.
    operand
        The operand's number, from 0 on.
    array
        Its elements, in C order.
    """

    __slots__ = ("_packed", "array", "operand", "solution")

    def __init__(self, solution: Solution, operand: int, array: Array) -> None:
        self.solution = solution
        self.operand = operand
        self.array = _lay_out(solution, operand, array)
        self._packed: dict[bytes, Bytes] = {}

    @classmethod
    def of(cls, solution: Solution, operand: str, array: npt.ArrayLike) -> Prepared:
        """Return an operand, by its name in the spec, once its array was checked.

        Raises
        ------
        PlanError, SizeError, DtypeError
            If there is no such operand, or the array is not what the plan wants there.
        """
        problem = solution.problem
        names = problem.spec.names[1:]
        if not isinstance(operand, str) or operand not in names:
            raise PlanError(
                f"there is no operand {operand!r} in {str(problem.spec)!r}; "
                f"there are {', '.join(names)}"
            )
        at = names.index(operand)
        given = problem.check_operand(at, array)
        what = f"operand {operand} of {str(problem.spec)!r}"
        check_dtype(given, what, array_dtype(problem.dtype))
        return cls(solution, at, given.copy(order="C"))

    @property
    def nbytes(self) -> int:
        """Bytes of the micro-panels."""
        return sum(packed.nbytes for packed in self._packed.values())

    def __reduce__(self) -> tuple[type[Prepared], tuple[Solution, int, Array]]:
        return Prepared, (self.solution, self.operand, self.array)

    def __repr__(self) -> str:
        name = self.solution.problem.spec.names[1 + self.operand]
        return (
            f"<operand {name} of {str(self.solution.problem.spec)!r}, {self.nbytes} bytes packed>"
        )

    def use_in(self, task: Task) -> None:
        """Have a task read the micro-panels; tasks that read them in the same order share them."""
        side = int(self.operand != task.schedule.policy.rows_operand)
        if not task.schedule.policy.prepared[side]:
            return  # calls read the array itself
        key = task.prepared_key(side)
        if key not in self._packed:
            packed = allocate(task.prepared_bytes[side])
            task.prepare(side, self.array.ctypes.data, packed)
            self._packed[key] = packed
        task.use_prepared(side, self._packed[key])


def _lay_out(solution: Solution, operand: int, array: Array) -> Array:
    """Return an array in the order in which vectors that multiply vectors lie, if there are any."""
    lane = shared_lane(solution.share)
    if lane is None:
        return array
    subscripts = solution.problem.spec.operands[operand].subscripts
    axis = next(at for at, one in enumerate(subscripts) if one.letters == (lane,))
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, axis, -1)), -1, axis)
