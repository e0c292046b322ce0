"""Strategies: ways of finding solutions; `tilesolve.planning.solve` has them by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.solution import Solution


class Strategy(Protocol):
    """What finds solutions; all of them are priced by the same model."""

    def solutions(
        self, problem: Problem, machine: Machine, threads: int, demand: Demand
    ) -> Iterable[Solution]:
        """Yield solutions, the ones preferred among equally fast ones first.

        Parameters
        ----------
        problem
            What is computed.
        machine
            Where.
        threads
            Cores that share the work.
        demand
            How C is wanted.

        Raises
        ------
        SolverError
            If the strategy has none.
        PlanError
            If the problem or the machine is none for the strategy.
        """
        ...
