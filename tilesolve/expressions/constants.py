"""Operands that are the same for all calls of an expression, and what is computed of them once."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.expressions.contraction_order import ExpressionStep
from tilesolve.expressions.planned import Planned
from tilesolve.expressions.step_kernels import Kernel, Preparation
from tilesolve.packing.memory_overlap import Array
from tilesolve.plans.plan import Plan, plan
from tilesolve.running.prepared import Prepared
from tilesolve.system.checks import as_array


def prepare(operand: Array, needs: Preparation | None) -> Array:
    """Return an operand as the steps take it."""
    array = np.asarray(operand)
    return array if needs is None else needs(array)


def constant_arrays(numbers: Any, given: Sequence[Any], text: str) -> dict[int, Array]:  # noqa: ANN401
    """Return copies of the operands that are constant, by their numbers.

    Examples
    --------
    >>> constant_arrays([1], [(2, 3), np.ones((3, 2))], "ij,jk").keys()
    dict_keys([1])
    >>> constant_arrays([1], [(2, 3), (3, 2)], "ij,jk")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: operand 1 of 'ij,jk' is constant: give its array, \
not (3, 2)
    """
    found = {}
    try:
        chosen = [operator.index(number) for number in numbers]
    except TypeError:
        raise SpecError(f"constants are numbers of operands, not {numbers!r}") from None
    for number in chosen:
        if not 0 <= number < len(given):
            raise SpecError(
                f"constants={numbers!r} has {number}; {text!r} has operands 0 to {len(given) - 1}"
            )
        value = given[number]
        if not hasattr(value, "shape"):
            raise SpecError(
                f"operand {number} of {text!r} is constant: give its array, not {value}"
            )
        found[number] = as_array(value, number).copy()
    return found


@dataclass(frozen=True, slots=True)
class PlannedWithConstant:
    """A planned contraction one of whose operands was prepared; it takes the other one.

    Examples
    --------
    >>> step = Planned("ik,kj->ij", plan("ik,kj->ij", 4, "i7-6700k"))
    >>> float(PlannedWithConstant.of(step, 1, 2 * np.eye(4))(np.eye(4)).sum())
    8.0
    """

    planned: Planned
    side: int
    prepared: Prepared
    array: Array = field(repr=False)
    amid: list[PlannedWithConstant] = field(default_factory=list, repr=False)
    route = "plan"

    @classmethod
    def of(cls, step: Planned, side: int, array: Array) -> PlannedWithConstant:
        """Return a step with one operand, 0 or 1, prepared for a plan to which that is constant."""
        return cls.of_plan(step, step.plan, side, array)

    @classmethod
    def of_plan(cls, step: Planned, found: Plan, side: int, array: Array) -> PlannedWithConstant:
        """Return the same by a plan of the step's problem."""
        name = found.problem.spec.names[1 + side]
        if 1 + side not in found.problem.constant:
            found = plan(found.problem, machine=found.machine, threads=found.threads, constant=name)
        planned = replace(step, plan=found, amid=[])
        return cls(planned, side, found.prepare(planned.lay_out(side, array), name), array)

    @property
    def text(self) -> str:
        """What is computed, as einsum writes it."""
        return self.planned.text

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it, into `out` if one is given."""
        (array,) = arrays
        found = self.planned.plan_for(self.planned.find_target(out))
        if found is not self.planned.plan:
            if not self.amid:
                self.amid.append(self.of_plan(self.planned, found, self.side, self.array))
            return self.amid[0](array, out=out)
        other = self.planned.lay_out(1 - self.side, array)
        pair = (self.prepared, other) if self.side == 0 else (other, self.prepared)
        return self.planned.product(pair, out)


@dataclass(frozen=True, slots=True)
class _Step:
    """What runs in a call: the arrays that it takes and makes, by number; operands come first."""

    kernel: Kernel
    takes: tuple[int, ...]
    makes: int


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """Operands that calls do not give.

    `arrays` are copies of the operands, by their numbers. `known` has all arrays that depend on
    nothing else, by number: operands come first, then results. `steps` are left to a call;
    `result` is the number of the expression's result.
    """

    arrays: Mapping[int, Array]
    known: Mapping[int, Array]
    steps: tuple[_Step, ...]
    result: int

    @classmethod
    def of(
        cls,
        needs: Sequence[Preparation | None],
        steps: Sequence[ExpressionStep],
        arrays: Mapping[int, Array],
    ) -> Constants:
        """Compute what depends on constants only, and pack what plans take of it."""
        known = {number: prepare(array, needs[number]) for number, array in arrays.items()}
        numbers = list(range(len(needs)))
        left: list[_Step] = []
        for makes, step in enumerate(steps, len(needs)):
            takes = tuple(numbers[position] for position in step.takes)
            numbers = [number for number in numbers if number not in takes] + [makes]
            if known.keys() >= set(takes):
                with np.errstate(all="ignore"):
                    known[makes] = step.kernel(*(known[number] for number in takes))
            else:
                left.append(_bind(_Step(step.kernel, takes, makes), known))
        return cls(arrays, known, tuple(left), numbers[0])

    def join(
        self, operands: Sequence[npt.ArrayLike], count: int, text: str
    ) -> tuple[npt.ArrayLike, ...]:
        """Return all operands of a call, the constant ones in their places.

        Raises
        ------
        SizeError
            If a call gives more or fewer than the others.
        """
        if len(operands) != count - len(self.arrays):
            raise SizeError(
                f"the expression {text!r} takes {count - len(self.arrays)} operands beside "
                f"{len(self.arrays)} constant ones, not {len(operands)}"
            )
        others = iter(operands)
        return tuple(
            self.arrays[number] if number in self.arrays else next(others)
            for number in range(count)
        )

    def run(
        self,
        operands: Sequence[Array],
        needs: Sequence[Preparation | None],
        target: Array | None,
    ) -> Array:
        """Compute what is left for all operands, into a target if one is given."""
        arrays = dict(self.known)
        for number, (operand, of) in enumerate(zip(operands, needs, strict=True)):
            if number not in arrays:
                arrays[number] = prepare(operand, of)
        for step in self.steps:
            out = target if step.makes == self.result else None
            arrays[step.makes] = step.kernel(
                *(arrays.pop(number) for number in step.takes), out=out
            )
        result = arrays[self.result]
        if self.result not in self.known:
            return result
        if target is None:
            return result.copy()
        target[...] = result
        return target

    def describe(self, steps: int) -> str:
        """Return what a report says of them, for so many steps in all."""
        operands = ", ".join(map(str, sorted(self.arrays)))
        packed = sum(isinstance(step.kernel, PlannedWithConstant) for step in self.steps)
        return (
            f"constant: {operands}; {steps - len(self.steps)} steps are computed once, "
            f"{packed} have a packed operand"
        )


def _bind(step: _Step, known: Mapping[int, Array]) -> _Step:
    """Return a step with its constant operand packed, if it is a plan that has one."""
    constant = [side for side, number in enumerate(step.takes) if number in known]
    if not constant or not isinstance(step.kernel, Planned):
        return step
    (side,) = constant
    kernel = PlannedWithConstant.of(step.kernel, side, known[step.takes[side]])
    return _Step(kernel, (step.takes[1 - side],), step.makes)
