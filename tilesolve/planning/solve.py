"""Solving: the best of all strategies' solutions, without any cache."""

from __future__ import annotations

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.strategy import GeometricProgram
from tilesolve.planning.solution import Solution
from tilesolve.planning.strategy import Strategy

STRATEGIES: tuple[Strategy, ...] = (GeometricProgram(),)
"""All strategies; of equally fast solutions the first one's is taken."""


def solve(problem: Problem, machine: Machine, threads: int, demand: Demand) -> Solution:
    """Return the solution that is predicted to take the least time.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
    >>> solve(problem, Machine.load("i7-6700k"), 2, Demand()).split
    'i'
    """
    found = [
        solution
        for strategy in STRATEGIES
        for solution in strategy.solutions(problem, machine, threads, demand)
    ]
    return min(found, key=lambda solution: solution.seconds)
