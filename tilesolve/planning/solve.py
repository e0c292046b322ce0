"""Solving: the best of a strategy's solutions, without any cache."""

from __future__ import annotations

from collections.abc import Mapping

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.strategy import GeometricProgram
from tilesolve.planning.slicing.strategy import Slicing
from tilesolve.planning.solution import Solution
from tilesolve.planning.strategy import Strategy

STRATEGIES: Mapping[str, Strategy] = {
    "solver": GeometricProgram(),
    "slicing": Slicing(),
}
"""All strategies by name; the first one is the default."""


def solve(problem: Problem, machine: Machine, threads: int, demand: Demand) -> Solution:
    """Return the solution that is predicted to take the least time, of the demanded strategy's.

    Of equally fast solutions it is the first one.

    Raises
    ------
    PlanError
        If there is no such strategy, or the problem is none for it.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
    >>> solve(problem, Machine.load("i7-6700k"), 2, Demand()).split
    'i'
    >>> solve(problem, Machine.load("i7-6700k"), 2, Demand(strategy="guess"))
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: there is no strategy 'guess'; there are solver, slicing
    """
    if demand.strategy not in STRATEGIES:
        raise PlanError(
            f"there is no strategy {demand.strategy!r}; there are {', '.join(STRATEGIES)}"
        )
    found = STRATEGIES[demand.strategy].solutions(problem, machine, threads, demand)
    return min(found, key=lambda solution: solution.seconds)
