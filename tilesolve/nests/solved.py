"""Solved nests: all solutions of a computation in order, and what they take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Self, TypeGuard, TypeVar

from tilesolve.constants.nests import NEST_SEVERAL_CALLS
from tilesolve.machine.model import Machine
from tilesolve.model.chain import Chain
from tilesolve.model.starts import Start, list_between
from tilesolve.nests.group_price import without_arrays
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import (
    BandSolution,
    BlockSolution,
    FusedSolution,
    LoopSolution,
    NestSolution,
)


@dataclass(frozen=True, slots=True)
class SolvedNest:
    """How a whole computation is run.

    Parameters
    ----------
    request
        What was asked for.
    solutions
        How each statement is run, in order.
    """

    request: NestRequest
    solutions: tuple[NestSolution, ...] = field(hash=False)

    @property
    def machine(self) -> Machine:
        """Where."""
        return self.request.machine

    @property
    def threads(self) -> int:
        """How many work at once."""
        return self.request.threads

    def starting(self, start: Start) -> Self:
        """Return the same with arrays that lie elsewhere when a call begins.

        What is decided stays, and is predicted for them.
        """
        request = replace(self.request, start=start)
        return replace(self, request=request, solutions=_started(self.solutions, start))

    @property
    def seconds(self) -> float:
        """Predicted seconds of a call: of all statements, and what it takes besides."""
        if self.threads == 1:
            return self.work_seconds
        costs, cold = self.machine.costs, self.request.start == "cold"
        called = costs.cold_threads_seconds if cold else costs.threads_seconds
        return called + self.computing_seconds

    @property
    def work_seconds(self) -> float:
        """The same of a work in a network's call, whose threads are awake."""
        costs, cold = self.machine.costs, self.request.start == "cold"
        called = costs.cold_statement_seconds if cold else costs.statement_seconds
        if not cold and len(self.request.computation.outputs) > 1:
            called *= NEST_SEVERAL_CALLS
        return called + self.computing_seconds

    @property
    def computing_seconds(self) -> float:
        """Those of all statements."""
        return add_seconds(self.solutions)

    def seconds_after(self, since: Mapping[str, float]) -> float:
        """Return those of all statements amid other works.

        Parameters
        ----------
        since
            How many bytes all threads touched since each array was; arrays without are in memory.
        """
        own = {name: size / self.threads for name, size in since.items()}
        return add_seconds(_started(self.solutions, "cold"), own)


def add_seconds(
    solutions: Sequence[NestSolution], since: Mapping[str, float] | None = None
) -> float:
    """Return what solutions take one after another: loops find in caches what others left there.

    `since` says how many bytes were touched since each array was, as `SolvedNest.seconds_after`.
    """
    if len(solutions) == 1 and since is None:
        return solutions[0].seconds
    touched = [_list_touched(one) for one in solutions]
    past = [next(iter(one.non_temporal), None) if _is_looped(one) else None for one in solutions]
    works = [_sum_touched(several) for several in touched]
    total = 0.0
    for one, several, between in zip(solutions, touched, list_between(works, past), strict=True):
        if _is_looped(one):
            known = {**(since or {}), **between}
            total += one.score_after([known.get(name, inf) for name, _ in several])
        else:
            total += one.seconds
    return total


def _is_looped(solution: NestSolution) -> TypeGuard[LoopSolution | FusedSolution]:
    return isinstance(solution, LoopSolution | FusedSolution)


def _list_touched(solution: NestSolution) -> list[tuple[str, float]]:
    """Return the arrays that a solution touches, as its price has them, and the bytes of each."""
    if not _is_looped(solution):
        return [(one.name, float(one.bytes)) for one in solution.computation.arrays]
    names = [one.array for one in Chain(without_arrays(solution.loops)).accesses]
    return list(zip(names, solution.cost.levels[-1].moved, strict=True))


def _sum_touched(several: Sequence[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, size in several:
        found[name] = found.get(name, 0.0) + size
    return found


_S = TypeVar("_S", bound=NestSolution)


def _started(solutions: tuple[_S, ...], start: Start) -> tuple[_S, ...]:
    """Return solutions with arrays that lie elsewhere at first."""
    found = []
    for one in solutions:
        match one:
            case BlockSolution():
                one = replace(one, kinds=tuple(_started(kind, start) for kind in one.kinds))
            case BandSolution():
                one = replace(one, kinds=tuple(_started(kind, start) for kind in one.kinds))
        found.append(replace(one, request=replace(one.request, start=start)))
    return tuple(found)
