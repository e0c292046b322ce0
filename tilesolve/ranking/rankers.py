"""Rankers: rules that put variants in an order, as values with one method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tilesolve.contractions.errors import PlanError
from tilesolve.planning.geometric.score import score
from tilesolve.plans.plan import Plan

LEARNED = "learned"
"""Name of the ranker that is learned from measurements."""


@runtime_checkable
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
        return score(plan.solution)


RANKERS: Mapping[str, Ranker] = {one.name: one for one in (PriceRanker(),)}
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
        return by
    if by in RANKERS:
        return RANKERS[by]
    if by == LEARNED:
        raise PlanError("no ranker has been learned: rank by " + ", ".join(RANKERS))
    raise PlanError(f"there is no ranker {by!r}; there are {', '.join(RANKERS)}")
