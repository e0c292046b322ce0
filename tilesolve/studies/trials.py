"""The results of studies of tiles, as values, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any

from tilesolve.bench.results.fields import read_positive, read_text, read_times, read_value
from tilesolve.bench.results.record import Record
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.plans.plan import Plan
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
        " ".join(first or "-" for first in plan.choice),
        " ".join(f"{i}:{','.join(map(str, chain))}" for i, chain in plan.classes),
        " ".join(level or "-" for level in plan.nest.packed) or "-",
        plan.seconds,
        tuple(seconds),
        ended,
    )


@dataclass(frozen=True, slots=True)
class Study:
    """What a study found.

    Parameters
    ----------
    name, problem
        What was computed.
    trials
        The solver's plan first.
    skipped
        Why there are none; empty otherwise.
    fault
        Which plan gave a wrong result, and what was wrong; there are no trials then.

    Examples
    --------
    >>> trials = [Trial("x", "K", "", "", 1.0, (seconds,)) for seconds in (1.1, 1.0)]
    >>> study = Study("x", Problem.of("ik-ij-jk", 64), tuple(trials))
    >>> study.rank, round(study.excess, 3)
    (2, 0.1)
    """

    name: str
    problem: Problem
    trials: tuple[Trial, ...] = ()
    skipped: str = ""
    fault: str = ""

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
        from scipy.stats import spearmanr

        predicted = [trial.predicted for trial in self.trials]
        if len(set(predicted)) < 3:
            return nan
        return float(spearmanr(predicted, [trial.median for trial in self.trials]).statistic)


@dataclass(frozen=True, slots=True)
class Studies(Record[Study]):
    """All studies of a suite so far."""

    HOLDS = "a study of tiles"
    COLUMNS = (
        *("kind", "around", "tiles", "packed"),
        *("predicted_s", "median_s", "least_s", "most_s", "rounds", "reason"),
    )

    @staticmethod
    def case_data(case: Study) -> dict[str, Any]:
        """Return what is kept of a study beside its problem."""
        return (
            {"fault": case.fault}
            if case.fault
            else {"trials": [asdict(trial) for trial in case.trials]}
        )

    @staticmethod
    def case_of(name: str, problem: Problem, data: dict[str, Any]) -> Study:
        """Return the study that was kept as such data."""
        if data.get("skipped"):
            return Study(name, problem, skipped=read_text(data, "skipped"))
        if data.get("fault"):
            return Study(name, problem, fault=read_text(data, "fault"))
        trials = [
            Trial(
                read_text(one, "kind"),
                read_text(one, "around"),
                read_text(one, "tiles"),
                read_text(one, "packed"),
                read_positive(one, "predicted"),
                read_times(one, "seconds"),
                bool(one.get("ended")),
            )
            for one in read_value(data, "trials")
        ]
        if not trials or not all(trial.seconds for trial in trials):
            raise BenchmarkError(f"the study of {name} has a trial without a time, or none")
        return Study(name, problem, tuple(trials))

    @staticmethod
    def case_rows(case: Study) -> Iterator[tuple[object, ...]]:
        """Yield a line for each trial."""
        if reason := case.skipped or case.fault:
            yield (*[""] * (len(Studies.COLUMNS) - 1), reason)
        for one in case.trials:
            times = one.seconds
            yield (
                *(one.kind, one.around, one.tiles, one.packed, one.predicted),
                *(one.median, min(times), max(times), len(times)),
                "ended" if one.ended else "",
            )


TRIAL_COLUMNS = {
    "rank": "right",
    "plan": "left",
    "around the tiles": "left",
    "tiles": "left",
    "packed": "left",
    "predicted": "right",
    "measured": "right",
    "rounds": "right",
    "of the fastest": "right",
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
    >>> summarize_study(Study("x", Problem.of("ik-ij-jk", 8), skipped="too large"))
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
