"""The results of studies of tiles, as values, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan

from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.results.report import Report, list_facts
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.plans.plan import Plan
from tilesolve.ranking.order import spearman
from tilesolve.ranking.table import describe_around, describe_copies, describe_tiles
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

FAR_EXCESS = 0.2
"""Excess over the fastest plan's time from which on the solver's plan counts as far from it."""

SOLVER = "solver"
"""Kind of the plan that is studied."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One plan of a study.

    Parameters
    ----------
    kind
        ``solver``, ``runner-up``, ``nearby`` or ``random``.
    around, tiles, packed
        The loops around each tile, the tiles of each class, and the level that each operand's copy
        stays in.
    predicted
        Seconds.
    seconds
        Of each round.
    ended
        Whether its only run was ended, as it took far longer than the solver's plan.

    Examples
    --------
    >>> Trial("solver", "K N", "M:6,12", "-", 1.5, (1.0, 3.0)).median
    2.0
    """

    kind: str
    around: str
    tiles: str
    packed: str
    predicted: float
    seconds: tuple[float, ...]
    ended: bool = False

    @property
    def median(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)


def make_trial(kind: str, plan: Plan, seconds: Sequence[float], *, ended: bool = False) -> Trial:
    """Return the trial of a plan, given the seconds of its rounds, or of the run that was ended."""
    return Trial(
        kind,
        describe_around(plan),
        describe_tiles(plan),
        describe_copies(plan) or "-",
        plan.seconds,
        tuple(seconds),
        ended,
    )


@dataclass(frozen=True, slots=True)
class Study(Outcome):
    """What a study found.

    The solver's plan comes first.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> trials = [Trial("x", "K", "", "", 1.0, (seconds,)) for seconds in (1.1, 1.0)]
    >>> study = Study(ContractionCase("x", Problem.of("ik-ij-jk", 64)), tuple(trials))
    >>> study.rank, round(study.excess, 3)
    (2, 0.1)
    """

    trials: tuple[Trial, ...] = ()

    def check(self) -> None:
        """Refuse a study without trials, or with one that has no time."""
        if not self.trials or not all(trial.seconds for trial in self.trials):
            raise BenchmarkError(f"the study of {self.name} has a trial without a time, or none")

    @property
    def fastest(self) -> float:
        """The least median of all."""
        return min(trial.median for trial in self.trials)

    @property
    def rank(self) -> int:
        """The rank of the solver's plan by its median, 1 for the fastest."""
        return 1 + sum(trial.median < self.trials[0].median for trial in self.trials)

    @property
    def excess(self) -> float:
        """By which share the solver's plan is slower than the fastest."""
        return self.trials[0].median / self.fastest - 1

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured times; NaN for too few plans."""
        predicted = [trial.predicted for trial in self.trials]
        if len(set(predicted)) < 3:
            return nan
        return spearman(predicted, [trial.median for trial in self.trials])


class Studies(Record[Study]):
    """All studies of a suite so far."""

    HOLDS = "a study of tiles"
    CASE = ContractionCase
    OUTCOME = Study
    COLUMNS = (
        *("kind", "around", "tiles", "packed"),
        *("predicted_s", "median_s", "least_s", "most_s", "rounds", "reason"),
    )

    @classmethod
    def case_rows(cls, case: Study) -> Iterator[tuple[object, ...]]:
        """Yield a line for each trial."""
        for one in case.trials:
            times = one.seconds
            yield (
                *(one.kind, one.around, one.tiles, one.packed, one.predicted),
                *(one.median, min(times), max(times), len(times)),
                "ended" if one.ended else "",
            )


TRIAL_COLUMNS = {
    "rank": "right",
    **dict.fromkeys(("plan", "around the tiles", "tiles", "packed"), "left"),
    **dict.fromkeys(("predicted", "measured", "rounds", "of the fastest"), "right"),
}
"""Headers of a study's table, and the side on which cells stand."""


def list_trial_rows(found: Study) -> list[tuple[str, ...]]:
    """Return the cells of a study's table, the fastest plan first."""
    ranked = sorted(found.trials, key=lambda trial: trial.median)
    return [
        (
            str(at),
            trial.kind,
            trial.around,
            trial.tiles,
            trial.packed,
            format_duration(trial.predicted),
            f"{'> ' if trial.ended else ''}{format_duration(trial.median)}",
            str(len(trial.seconds)),
            f"{trial.median / found.fastest:.2f}",
        )
        for at, trial in enumerate(ranked, start=1)
    ]


def summarize_study(found: Study) -> str:
    """Return a study in a line.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> case = ContractionCase("x", Problem.of("ik-ij-jk", 8))
    >>> summarize_study(Study(case, skipped="too large"))
    'x: too large'
    """
    if reason := found.skipped or found.fault:
        return f"{found.name}: {reason}"
    return (
        f"{found.name}: the solver's plan is number {found.rank} of {len(found.trials)}, "
        f"{found.excess:.1%} slower than the fastest; rank correlation {found.correlation:.2f}"
    ).replace("%", " %")


def summarize_studies(studies: Sequence[Study]) -> list[str]:
    """Return many studies in lines: wrong ones, the others, the worst first, skipped ones, all."""
    run = sorted((found for found in studies if found.trials), key=lambda found: -found.excess)
    lines = [summarize_study(found) for found in studies if found.fault]
    lines += [summarize_study(found) for found in run]
    lines += [summarize_study(found) for found in studies if found.skipped]
    if not run:
        return lines
    excesses = [found.excess for found in run]
    known = [found.correlation for found in run if not isnan(found.correlation)]
    total = (
        f"{format_count(len(run), 'case')}: the solver's plan is "
        f"{statistics.median(excesses):.1%} slower than the fastest in the median, "
        f"{max(excesses):.1%} at worst, over {FAR_EXCESS:.0%} in "
        f"{sum(excess > FAR_EXCESS for excess in excesses)}; rank correlation "
        f"{statistics.median(known) if known else nan:.2f} in the median"
    )
    return [*lines, total.replace("%", " %")]


def report_studies(found: Studies) -> Report:
    """Return what there is to show of studies: a table of the plans of each case."""
    tables = [Table(str(case.problem), TRIAL_COLUMNS, list_trial_rows(case)) for case in found.done]
    lines = summarize_studies(found.cases)
    return Report("tiles", list_facts(found), "", {}, tables, lines)
