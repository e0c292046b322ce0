"""Rankers: rules that put variants in an order, as values with one method."""

from __future__ import annotations

from collections.abc import Mapping
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
class PriceRanker:
    """By the score that the solver compares its candidates by: seconds of all levels, and waiting.

    Examples
    --------
    >>> PriceRanker().name
    'price'
    """

    @property
    def name(self) -> str:
        """What it is called."""
        return "price"

    def score(self, plan: Plan) -> float:
        """Return the seconds that a plan is compared by."""
        return plan.solution.score


@dataclass(frozen=True, slots=True)
class ReusesRanker:
    """By working sets, each as often as it is used again, and the arithmetic: `cost_of_reuses`.

    Examples
    --------
    >>> ReusesRanker().name
    'reuses'
    """

    @property
    def name(self) -> str:
        """What it is called."""
        return "reuses"

    def score(self, plan: Plan) -> float:
        """Return the seconds that working sets and the arithmetic take."""
        return cost_of_reuses(_reuses(plan.solution), plan.price, plan.machine, plan.threads)


@dataclass(frozen=True, slots=True)
class SetsRanker:
    """By the sizes of working sets alone, as the PolyDL paper has it: `cost_of_sets`.

    Examples
    --------
    >>> SetsRanker().name
    'sets'
    """

    @property
    def name(self) -> str:
        """What it is called."""
        return "sets"

    def score(self, plan: Plan) -> float:
        """Return the cost of the paper's first equation, which has no unit."""
        return cost_of_sets(_reuses(plan.solution), plan.machine, plan.threads)


@lru_cache(maxsize=4)
def _reuses(solution: Solution) -> tuple[Reuse, ...]:
    """Return the reuses of a solution, once for the rankers that ask one after the other."""
    return reuses_of(solution)


RANKERS: Mapping[str, Ranker] = {
    one.name: one for one in (PriceRanker(), ReusesRanker(), SetsRanker())
}
"""Those that come with the package."""


def find_ranker(by: str | Ranker) -> Ranker:
    """Return a ranker by its name, or the one that is given.

    Raises
    ------
    PlanError
        If there is none of that name.

    Examples
    --------
    >>> find_ranker("price").name
    'price'
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
