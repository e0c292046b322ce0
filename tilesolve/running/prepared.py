"""Prepared operands: packed once, and taken by calls in the operand's place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import array_dtype, summed_dtype
from tilesolve.contractions.roles import shared_lane
from tilesolve.packing.buffers import Bytes, allocate
from tilesolve.packing.memory_overlap import Array
from tilesolve.planning.solution import Solution
from tilesolve.running.task import Task
from tilesolve.system.checks import check_dtype


class Prepared:
    """An operand of a plan whose micro-panels are made before all calls.

    It keeps a copy of the array: what is done to the array later changes nothing. Copies and
    pickles have the array only, and pack it again. `drop_array` keeps the micro-panels alone, of
    which the array is made where it is needed again.

    Parameters
    ----------
    solution
        What runs.
    operand
        The operand's number, from 0 on.
    array
        Its elements, in C order.

    Attributes
    ----------
    layouts
        What an executor does for arrays that it is multiplied with: plans outlive weights.
    """

    __slots__ = ("_array", "_is_read", "_like", "_packed", "layouts", "operand", "solution")

    def __init__(self, solution: Solution, operand: int, array: Array) -> None:
        self.solution = solution
        self.operand = operand
        self._array: Array | None = _lay_out(solution, operand, array)
        self._like = as_strided(np.empty(1, array.dtype), array.shape, self._array.strides)
        self._is_read = False
        self._packed: dict[bytes, Panels] = {}
        self.layouts: dict[tuple[Any, ...], Any] = {}

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
    def array(self) -> Array:
        """The elements."""
        if self._array is None:
            self._array = unpack(self._like, self._packed.values())
        return self._array

    @property
    def like(self) -> Array:
        """What has the shape, the strides and the dtype of `array`: that itself if tasks read it.

        Else its elements are no memory.
        """
        return self.array if self._is_read else self._like

    def drop_array(self) -> None:
        """Keep the micro-panels alone, if there are any and all tasks read these.

        Those of complex numbers have real and imaginary parts apart: arrays of such stay.
        """
        if self._packed and not self._is_read and self._like.dtype.kind != "c":
            self._array = None

    @property
    def nbytes(self) -> int:
        """Bytes of the micro-panels."""
        return sum(one.packed.nbytes for one in self._packed.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the micro-panels, and of the array where that is kept."""
        return self.nbytes + (0 if self._array is None else self._array.nbytes)

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
            self._is_read = True  # calls read the array itself
            return
        key = task.prepared_key(side)
        if key not in self._packed:
            self._packed[key] = Panels.of(task, side, self.array)
        task.use_prepared(side, self._packed[key].packed)


@dataclass(frozen=True, slots=True, eq=False)
class Panels:
    """Micro-panels of an operand, and the task that made them, on one of its sides."""

    task: Task
    side: int
    packed: Bytes

    @classmethod
    def of(cls, task: Task, side: int, array: Array) -> Self:
        """Return those of an array; what lies between them is unknown."""
        packed = allocate(task.prepared_bytes[side], lasting=True)
        task.prepare(side, array.ctypes.data, packed)
        return cls(task, side, packed)

    def pack_again(self, array: Array) -> Bytes:
        """Return those of an array like that one, with zeros between them."""
        packed = allocate(self.packed.nbytes)
        packed.fill(0)
        self.task.prepare(self.side, array.ctypes.data, packed)
        return packed


def unpack(like: Array, given: Iterable[Panels]) -> Array:
    """Return the array of which micro-panels were made, in C order.

    Where each element lies in them is found by packing the elements' numbers, digit by digit: those
    of a digit are numbers that the dtype has exactly.

    Parameters
    ----------
    like
        Has its shape and its dtype.
    given
        Together these have all elements.
    """
    found, dtype = np.zeros(like.shape, like.dtype), like.dtype
    kind, base = summed_dtype(dtype.name), 1 << 4 * dtype.itemsize
    for one in given:
        places = np.zeros(one.packed.nbytes // np.dtype(kind).itemsize, np.int64)
        step = 1
        while step <= found.size:
            digits = (np.arange(1, 1 + found.size) // step % base).astype(dtype)
            places += step * one.pack_again(digits).view(kind).astype(np.int64)
            step *= base
        filled = places > 0
        found.reshape(-1)[places[filled] - 1] = one.packed.view(kind)[filled].astype(dtype)
    return found


def _lay_out(solution: Solution, operand: int, array: Array) -> Array:
    """Return an array in the order in which vectors that multiply vectors lie, if there are any."""
    lane = shared_lane(solution.share)
    if lane is None:
        return array
    subscripts = solution.problem.spec.operands[operand].subscripts
    axis = next(at for at, one in enumerate(subscripts) if one.letters == (lane,))
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, axis, -1)), -1, axis)
