"""A study of tries: the plan that several tries keep, beside the one that is not tried."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilesolve.bench.case import Case
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.results.report import Report, geometric_mean, list_facts
from tilesolve.bench.run.sweep import count_steps
from tilesolve.bench.run.timed_plans import time_plans
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.plans import cache
from tilesolve.plans.plan import plan
from tilesolve.studies.method import Method, find_problems, list_reasons
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

TRIES = 5
"""Candidates that are tried, unless another number is asked for."""

TRIES_SECONDS = 2.0
"""Estimated seconds to plan with tries, beside runs."""

ANSWERS = 5
"""Times that the file of a plan is read; the median counts."""


@dataclass(frozen=True, slots=True)
class Tried(Outcome):
    """Plans of one problem without and with tries.

    Parameters
    ----------
    alone, tried
        Seconds of each round of both plans, in turns; none where tries keep the plan that is made
        without them.
    answer
        Seconds that it takes to have the tried plan from its file; 0 where there is none.

    Examples
    --------
    >>> case = ContractionCase("x", Problem.of("ik-ij-jk", 8))
    >>> Tried(case, (2.0, 2.0), (1.0, 1.5)).ratio
    0.625
    """

    alone: tuple[float, ...] = ()
    tried: tuple[float, ...] = ()
    answer: float = 0.0

    def check(self) -> None:
        """Refuse times of one plan alone."""
        if bool(self.alone) != bool(self.tried):
            raise BenchmarkError(f"the tries of {self.name} have times of one plan only")

    @property
    def ratio(self) -> float:
        """The time of the tried plan over that of the other one; 1 where it is the same."""
        if not self.tried:
            return 1.0
        return statistics.median(self.tried) / statistics.median(self.alone)


class AllTried(Record[Tried]):
    """All cases so far."""

    HOLDS = "a study of tries"
    CASE = ContractionCase
    OUTCOME = Tried
    COLUMNS = ("alone_s", "tried_s", "ratio", "answer_s", "reason")

    @classmethod
    def case_rows(cls, case: Tried) -> Iterator[tuple[object, ...]]:
        """Yield the line of a case."""
        medians = [statistics.median(some) if some else "" for some in (case.alone, case.tried)]
        yield (*medians, case.ratio, case.answer, "")


def find_kept(job: Job) -> Mapping[str, Case[Any]]:
    """Return the contractions that a job names, if plans are kept: answers come from files.

    Raises
    ------
    BenchmarkError
        If they are not.
    """
    if not cache.is_enabled():
        raise BenchmarkError("a study of tries reads plans that were kept: TILESOLVE_CACHE is off")
    return find_problems(job)


def study_tries(
    case: ContractionCase, machine: Machine, procedure: Procedure, count: int, tell: Progress
) -> Tried:
    """Plan one problem without and with tries, and run both."""
    problem, threads = case.work, procedure.threads
    alone = plan(problem, machine=machine, threads=threads)
    tried = plan(problem, machine=machine, threads=threads, tries=count)
    answer = statistics.median(
        time_answer(problem, machine, threads, count) for _ in range(ANSWERS)
    )
    if tried == alone:
        return Tried(case, answer=answer)
    step = count_steps(tell, 2 * (1 + procedure.estimate_rounds(problem, machine, 2)))
    times, _ = time_plans(problem, [alone, tried], procedure, step)
    return Tried(case, tuple(times[0]), tuple(times[1]), answer)


def time_answer(problem: Problem, machine: Machine, threads: int, count: int) -> float:
    """Return the seconds to have a plan that was kept before from its file, not from memory."""
    cache.forget()
    begin = time.perf_counter()
    plan(problem, machine=machine, threads=threads, tries=count)
    return time.perf_counter() - begin


TRIED_COLUMNS = {
    "case": "left",
    "without tries": "right",
    "with tries": "right",
    "with over without": "right",
    "kept plan again": "right",
}
"""Headers of the table of cases, and the side on which cells stand."""


def list_tried_rows(found: AllTried) -> list[tuple[str, ...]]:
    """Return the cells of the table of cases, those first that tries make slowest."""
    return [
        (
            case.name,
            *(
                format_duration(statistics.median(some)) if some else "the same plan"
                for some in (case.alone, case.tried)
            ),
            f"{case.ratio:.3f}",
            format_duration(case.answer),
        )
        for case in sorted(found.done, key=lambda case: -case.ratio)
    ]


def summarize_tries(found: AllTried) -> dict[str, str]:
    """Return what a study comes to."""
    if not found.done:
        return {}
    ratios = [case.ratio for case in found.done]
    return {
        "with over without": f"{geometric_mean(ratios):.3f} in the geometric mean, "
        f"{max(ratios):.3f} at worst; another plan in "
        f"{sum(bool(case.tried) for case in found.done)} of {format_count(len(ratios), 'case')}",
        "kept plan again": f"{format_duration(max(c.answer for c in found.done))} at most",
    }


def report_tries(found: AllTried) -> Report:
    """Return what there is to show of a study."""
    made = found.conditions
    return Report(
        f"tries, {made.suite}, {format_count(made.threads, 'thread')}",
        list_facts(found),
        f"times of the plan without tries and of the one that {made.plans} tries keep, in turns, "
        "and how long that plan takes to be read from its file",
        summarize_tries(found),
        [Table("plans without and with tries", TRIED_COLUMNS, list_tried_rows(found))],
        list_reasons(found),
    )


METHOD = Method(
    AllTried, study_tries, report_tries, TRIES, lambda _: 2, TRIES_SECONDS, "tries ", find_kept
)
