"""Standings: variants, what each ranker says of them, and what they took."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import numpy as np

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans.plan import Plan
from tilesolve.ranking.order import (
    best_of_first,
    count_ties,
    halve_rounds,
    kendall,
    mean_ranks,
    spearman,
)
from tilesolve.ranking.variants import SOLVER, Variant
from tilesolve.system.version import __version__

MEASURED = "measured"
"""Name of the order that the clock gives."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where seconds were measured.

    `cpu` is the CPU's fingerprint, `version` that of the package.
    """

    cpu: str
    version: str

    @classmethod
    def here(cls) -> Self:
        """Return that of this computer and this code."""
        return cls(detect_cpu().fingerprint, __version__)


@dataclass(frozen=True, slots=True)
class Standings:
    """Variants in the order of a ranker, what each ranker says of them, and what they took.

    The fields are those of `Ranking`, which adds the runs.

    Examples
    --------
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.ranking.variants import list_variants
    >>> problem = Problem.of("ik-ij-jk", 64)
    >>> found = list_variants(problem, Machine.load("i7-6700k"), count=3)
    >>> scores, rounds = (("mine", (1.0, 2.0, 3.0)),), ((4.0, 4.0), (2.0, 2.0), (5.0,))
    >>> standings = Standings("mine", tuple(found), scores, rounds)
    >>> standings.excess, standings.regret(2)
    (1.0, 0.0)
    """

    by: str
    variants: tuple[Variant, ...]
    scores: tuple[tuple[str, tuple[float, ...]], ...]
    rounds: tuple[tuple[float, ...], ...]
    lacking: tuple[tuple[str, str], ...] = ()
    clock: Clock | None = None

    def __len__(self) -> int:
        return len(self.variants)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans, best first."""
        return tuple(variant.plan for variant in self.variants)

    @property
    def measured(self) -> tuple[float | None, ...]:
        """Median seconds of each variant; None for those that were not run."""
        return tuple(statistics.median(each) if each else None for each in self.rounds)

    @property
    def solver(self) -> Plan:
        """The plan that the solver prefers."""
        return self.plans[self._solver]

    @property
    def _solver(self) -> int:
        return next(at for at, one in enumerate(self.variants) if one.kind == SOLVER)

    @property
    def problem(self) -> Problem:
        """What all of them compute."""
        return self.plans[0].problem

    @property
    def rankers(self) -> tuple[str, ...]:
        """The names of all rankers."""
        return tuple(name for name, _ in self.scores)

    def scores_by(self, name: str) -> tuple[float, ...]:
        """Return a ranker's scores of the variants, in their order.

        Raises
        ------
        PlanError
            If there is no such ranker.
        """
        check_kind(name, str, "name", "the name of a ranker", PlanError)
        found = dict(self.scores)
        if name in (why := dict(self.lacking)):
            raise PlanError(f"nothing is ranked by {name!r}: {why[name]}")
        if name not in found:
            raise PlanError(f"nothing is ranked by {name!r}, but by {', '.join(found)}")
        return found[name]

    def ranks(self, name: str) -> list[float]:
        """Return the place of each variant by a ranker; tied ones share the mean of theirs."""
        return mean_ranks(self.scores_by(name))

    def ties(self, name: str) -> int:
        """Return how many variants a ranker gives the score of another one."""
        return count_ties(self.scores_by(name))

    def agreement(self, first: str, second: str) -> float:
        """Return Kendall's tau of the orders of two rankers, or of one and ``"measured"``.

        It is 1 for the same order, -1 for the reverse, and NaN where one tells nothing apart.
        """
        return kendall(*self._both(first, second))

    def correlation(self, by: str | None = None) -> float:
        """Return Spearman's correlation of a ranker's scores and the measured seconds."""
        self._timed(1)
        return spearman(*self._both(self.by if by is None else by, MEASURED))

    def _both(self, first: str, second: str) -> tuple[list[float], list[float]]:
        for what, name in (("first", first), ("second", second)):
            check_kind(name, str, what, "the name of a ranker", PlanError)
        wanted = list(range(len(self)))
        if MEASURED in (first, second):
            wanted = self._timed(1)
        found = [
            self._seconds(wanted) if name == MEASURED else _pick(self.scores_by(name), wanted)
            for name in (first, second)
        ]
        return found[0], found[1]

    def _timed(self, least: int) -> list[int]:
        """Return the numbers of the variants that were run."""
        found = [at for at, taken in enumerate(self.measured) if taken is not None]
        if len(found) < least:
            raise PlanError(
                f"{least} variants have to be measured, {len(found)} are: call run() of the ranking"
            )
        return found

    def _seconds(self, wanted: Sequence[int]) -> list[float]:
        return [taken for at in wanted if (taken := self.measured[at]) is not None]

    @property
    def fastest(self) -> float:
        """The least of the medians: a little luck is in it."""
        return min(self._seconds(self._timed(1)))

    @property
    def excess(self) -> float:
        """By which share the solver's plan is slower than the fastest variant measured.

        Half of the rounds say which one is fastest, the other half how fast it is, both ways.
        """
        wanted, solver = self._timed(1), self._solver
        if solver not in wanted:
            raise PlanError("the solver's plan was not measured: call run() of the ranking")
        at = wanted.index(solver)
        return self._lag(wanted, lambda _, judged: judged[at])

    @property
    def excess_over_least(self) -> float:
        """By which share the solver's plan is slower than the least of the medians.

        Of plans that are all equally fast one has the least median, by luck.
        """
        wanted = self._timed(1)
        return self._seconds([self._solver])[0] / min(self._seconds(wanted)) - 1

    def regret(self, count: int = 1, by: str | None = None) -> float:
        """Return by which share the best of the first few is slower than the fastest measured.

        Of the variants that were measured. Where a ranker ties variants it is the mean over all
        that may be among the first. Half of the rounds pick a variant, the others judge it.

        `count` variants are run in the hope that one is fast; the ranker `by` says which,
        that of the ranking if None.
        """
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise PlanError(f"count must be 1 or more first variants, got {count!r:.80}")
        wanted = self._timed(int(count))
        scores = _pick(self.scores_by(self.by if by is None else by), wanted)
        return self._lag(wanted, lambda by, judged: best_of_first(scores, by, int(count), judged))

    def _lag(
        self, wanted: Sequence[int], pick: Callable[[Sequence[float], Sequence[float]], float]
    ) -> float:
        """Return by which share what is picked by seconds is slower than the fastest by them.

        Both are judged by the other half of the rounds; it is the mean of both ways.
        """
        first, second = halve_rounds([self.rounds[at] for at in wanted])
        ways = [
            pick(by, judged) / judged[by.index(min(by))]
            for by, judged in ((first, second), (second, first))
        ]
        return sqrt(ways[0] * ways[1]) - 1

    def sorted_by(self, by: str) -> Self:
        """Return the same variants in the order of another ranker."""
        scores = self.scores_by(by)
        kinds = [variant.kind for variant in self.variants]
        order = sorted(range(len(self)), key=lambda at: (scores[at], kinds[at] != SOLVER, at))
        return replace(
            self,
            by=by,
            variants=tuple(self.variants[at] for at in order),
            scores=tuple((name, tuple(_pick(found, order))) for name, found in self.scores),
            rounds=tuple(self.rounds[at] for at in order),
        )


def _pick(values: Sequence[float], numbers: Sequence[int]) -> list[float]:
    return [values[at] for at in numbers]
