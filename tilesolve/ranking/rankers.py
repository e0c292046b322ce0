"""Rankers: rules that put variants in an order, as values with one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from tilesolve.contractions.errors import PlanError
from tilesolve.model.set_costs import cost_of_reuses, cost_of_sets
from tilesolve.model.working_sets import Reuse
from tilesolve.planning.reuses import reuses_of
from tilesolve.planning.solution import Solution
from tilesolve.plans.plan import Plan


class Ranker(Protocol):
    """What puts variants in an order."""

    @property
    def name(self) -> str:
        """What it is called."""

    def score(self, plan: Plan) -> float:
        """Return a number for a plan: the less, the sooner it is run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A ranker that is a function of a plan."""

    name: str
    cost: Callable[[Plan], float]

    def score(self, plan: Plan) -> float:
        """Return a number for a plan: the less, the sooner it is run."""
        return self.cost(plan)


def count_score(plan: Plan) -> float:
    """Return the seconds that the solver compares candidates by: of all levels, and waiting."""
    return plan.solution.score


def count_reuses(plan: Plan) -> float:
    """Return the seconds of working sets, each as often as it is used again, and arithmetic."""
    return cost_of_reuses(_reuses(plan.solution), plan.price, plan.machine, plan.threads)


def count_sets(plan: Plan) -> float:
    """Return the sizes of working sets alone, by the PolyDL paper's first equation: no seconds."""
    return cost_of_sets(_reuses(plan.solution), plan.machine, plan.threads)


@lru_cache(maxsize=4)
def _reuses(solution: Solution) -> tuple[Reuse, ...]:
    """Return the reuses of a solution, once for the rankers that ask one after the other."""
    return reuses_of(solution)


SETS = "sets"
"""The ranker that needs latencies."""

RANKERS: Mapping[str, Ranker] = {
    name: Rule(name, cost)
    for name, cost in (("price", count_score), ("reuses", count_reuses), (SETS, count_sets))
}
"""Those that come with the package."""


def find_ranker(by: str | Ranker) -> Ranker:
    """Return a ranker by its name, or the one that is given.

    Raises
    ------
    PlanError
        If there is none of that name.
    """
    if not isinstance(by, str):
        if not isinstance(getattr(by, "name", None), str) or not callable(getattr(by, "score", 0)):
            raise PlanError(
                f"by must be the name of a ranker, or have a name and score(plan), got {by!r:.80}"
            )
        return by
    if by in RANKERS:
        return RANKERS[by]
    raise PlanError(f"there is no ranker {by!r}; there are {', '.join(RANKERS)}")
