"""A scheme that the caller gives, as a strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.composition.build import Target, solution_of
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.planning.demand import Demand
from tilesolve.planning.solution import Solution


@dataclass(frozen=True, slots=True)
class GivenScheme:
    """The one solution that a scheme stands for.

    Parameters
    ----------
    scheme
        Of the whole problem.
    """

    scheme: Scheme

    def solutions(
        self, problem: Problem, machine: Machine, threads: int, demand: Demand
    ) -> Iterator[Solution]:
        """Yield it; errors are those of `solution_of`."""
        target = Target(problem, machine, threads, demand)
        yield solution_of(self.scheme, target)
