"""Solving: the best of a strategy's solutions, without any cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.garbage import pause_collection
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.strategy import GeometricProgram, alternatives, may_stream
from tilesolve.planning.solution import Search, Solution
from tilesolve.planning.strategy import Strategy


def _compose() -> Strategy:
    from tilesolve.planning.composition.strategy import Composition

    return Composition()


def _slice() -> Strategy:
    from tilesolve.planning.slicing.strategy import Slicing

    return Slicing()


STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "solver": GeometricProgram,
    "composition": _compose,
    "slicing": _slice,
}
"""All strategies by their names; the first one is taken where none is asked for."""


def solve(problem: Problem, machine: Machine, threads: int, demand: Demand) -> Solution:
    """Return the solution of the least score, of the demanded strategy's.

    Of solutions that score alike it is the first one.

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
    tilesolve.contractions.errors.PlanError: there is no strategy 'guess'; there are solver, \
composition, slicing
    """
    return rank(problem, machine, threads, demand)[0]


def drop_alignment(problem: Problem, machine: Machine, threads: int, demand: Demand) -> Problem:
    """Return a problem that says where its output begins only if plans depend on that.

    They do where the output may go past the caches. Others are the same for both, and kept once.

    Examples
    --------
    >>> problem = replace(Problem.of("ik-ij-jk", 64), aligned_output=True)
    >>> drop_alignment(problem, Machine.load("i7-6700k"), 1, Demand()).aligned_output
    False
    """
    usual = demand.scheme is None and demand.strategy == next(iter(STRATEGIES))
    if not problem.aligned_output or (usual and may_stream(problem, machine, threads, demand)):
        return problem
    return replace(problem, aligned_output=False)


def list_tries(problem: Problem, machine: Machine, threads: int, demand: Demand) -> list[Solution]:
    """Return the solutions that are tried: the best one first, then others by their score.

    There are as many as are demanded, or fewer; of the solver also tilings that it dropped.

    Raises
    ------
    PlanError
        As `rank` does.

    Examples
    --------
    >>> from dataclasses import replace
    >>> problem, machine = Problem.of("ik-ij-jk", 512), Machine.load("e5-2680v4")
    >>> len(list_tries(problem, machine, 1, replace(Demand(), tries=3)))
    3
    """
    best, *others = rank(problem, machine, threads, demand)
    if demand.tries > 1 and isinstance(best.origin, Search):
        others = sorted((*others, *alternatives(best)), key=lambda one: one.score)
    return [best, *others][: demand.tries]


def rank(problem: Problem, machine: Machine, threads: int, demand: Demand) -> list[Solution]:
    """Return all solutions, those of the least score first.

    Raises
    ------
    PlanError
        If there is no such strategy, the problem is none for it, or no kernels run the scheme that
        is asked for.
    """
    if demand.scheme is not None and demand.strategy == next(iter(STRATEGIES)):
        from tilesolve.planning.composition.given import GivenScheme

        strategy: Strategy = GivenScheme(demand.scheme)
    elif demand.scheme is not None:
        raise PlanError(f"a scheme is given: strategy {demand.strategy!r} has nothing to find")
    elif demand.strategy in STRATEGIES:
        strategy = STRATEGIES[demand.strategy]()
    else:
        names = ", ".join(STRATEGIES)
        raise PlanError(f"there is no strategy {demand.strategy!r}; there are {names}")
    with pause_collection():  # hardly anything that a search makes is part of a cycle
        found = strategy.solutions(problem, machine, threads, demand)
        return sorted(found, key=lambda one: one.score)
