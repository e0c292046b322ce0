"""A study of tries: the plan that several tries keep, beside the one that is not tried."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.fields import read_positive, read_text, read_times
from tilesolve.bench.results.performance_page import render_pairs, render_table
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.summary import geometric_mean, list_facts
from tilesolve.bench.run.sweep import (
    SPARE_BYTES,
    count_steps,
    describe_lack,
    share_progress,
)
from tilesolve.bench.run.timed_plans import time_plans
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.plans import cache
from tilesolve.plans.plan import plan
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.system.units import format_count, format_duration

TRIES = 5
"""Candidates that are tried, unless another number is asked for."""

TRIES_SECONDS = 2.0
"""Estimated seconds to plan with tries, beside runs."""

ANSWERS = 5
"""Times that the file of a plan is read; the median counts."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Plans of one problem without and with tries.

    Parameters
    ----------
    name, problem
        What was computed.
    alone, tried
        Seconds of each round of both plans, in turns; none where tries keep the plan that is made
        without them.
    answer
        Seconds that it takes to have the tried plan from its file; 0 where there is none.
    skipped
        Why nothing was run; empty otherwise.
    fault
        Which plan gave a wrong result, and what was wrong.

    Examples
    --------
    >>> Tried("x", Problem.of("ik-ij-jk", 8), (2.0, 2.0), (1.0, 1.5)).ratio
    0.625
    """

    name: str
    problem: Problem
    alone: tuple[float, ...] = ()
    tried: tuple[float, ...] = ()
    answer: float = 0.0
    skipped: str = ""
    fault: str = ""

    @property
    def ratio(self) -> float:
        """The time of the tried plan over that of the other one; 1 where it is the same."""
        if not self.tried:
            return 1.0
        return statistics.median(self.tried) / statistics.median(self.alone)


@dataclass(frozen=True, slots=True)
class AllTried(Record[Tried]):
    """All cases so far."""

    HOLDS = "a study of tries"
    COLUMNS = ("alone_s", "tried_s", "ratio", "answer_s", "reason")

    @property
    def done(self) -> list[Tried]:
        """The cases whose plans were run."""
        return [case for case in self.cases if not (case.skipped or case.fault)]

    @staticmethod
    def case_data(case: Tried) -> dict[str, Any]:
        """Return what is kept of a case beside its problem."""
        kept = asdict(case)
        return {what: kept[what] for what in ("alone", "tried", "answer", "fault")}

    @staticmethod
    def case_of(name: str, problem: Problem, data: dict[str, Any]) -> Tried:
        """Return the case that was kept as such data."""
        if data.get("skipped"):
            return Tried(name, problem, skipped=read_text(data, "skipped"))
        if data.get("fault"):
            return Tried(name, problem, fault=read_text(data, "fault"))
        alone, tried = (read_times(data, what) for what in ("alone", "tried"))
        if bool(alone) != bool(tried):
            raise BenchmarkError(f"the tries of {name} have times of one plan only")
        return Tried(name, problem, alone, tried, read_positive(data, "answer"))

    @staticmethod
    def case_rows(case: Tried) -> Iterator[tuple[object, ...]]:
        """Yield the line of a case."""
        if reason := case.skipped or case.fault:
            yield (*[""] * (len(AllTried.COLUMNS) - 1), reason)
            return
        medians = [statistics.median(some) if some else "" for some in (case.alone, case.tried)]
        yield (*medians, case.ratio, case.answer, "")


def study_tries(
    problems: Mapping[str, Problem],
    machine: Machine,
    procedure: Procedure,
    start: AllTried,
    keep: Callable[[AllTried], None],
    progress: Progress,
) -> AllTried:
    """Plan the problems that are not there yet with and without tries, and return all cases.

    Parameters
    ----------
    problems
        By name.
    machine, procedure
        What plans are made for, and how runs are timed.
    start
        What has been done before; its conditions say how many tries there are.
    keep
        Called with all cases after each one.
    progress
        Called often; an exception that it raises ends the study.

    Raises
    ------
    BenchmarkError
        If plans are not kept, so that no answer comes from a file.
    """
    if not cache.is_enabled():
        raise BenchmarkError("a study of tries reads plans that were kept: TILESOLVE_CACHE is off")
    count = start.conditions.plans or TRIES
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    found = start
    for name, tell in share_progress(progress, estimate_tries(waiting, machine, procedure)):
        found = found.with_case(study_case(name, waiting[name], machine, procedure, count, tell))
        keep(found)
    progress(1.0, "")
    return found


def study_case(
    name: str,
    problem: Problem,
    machine: Machine,
    procedure: Procedure,
    count: int,
    progress: Progress,
) -> Tried:
    """Plan one problem without and with tries, and run both; what cannot be run says why."""
    progress(0.0, "planning")
    if lack := describe_lack(sum(problem.bytes) + count_flush_bytes(machine) + SPARE_BYTES):
        return Tried(name, problem, skipped=lack)
    try:
        alone = plan(problem, machine=machine, threads=procedure.threads)
        tried = plan(problem, machine=machine, threads=procedure.threads, tries=count)
        answer = statistics.median(
            time_answer(problem, machine, procedure.threads, count) for _ in range(ANSWERS)
        )
        if tried == alone:
            return Tried(name, problem, answer=answer)
        step = count_steps(progress, 2 * (1 + procedure.estimate_rounds(problem, machine, 2)))
        times, _ = time_plans(problem, [alone, tried], procedure, step)
    except BenchmarkError as error:
        return Tried(name, problem, fault=str(error))
    except TilesolveError as error:
        return Tried(name, problem, skipped=str(error))
    return Tried(name, problem, tuple(times[0]), tuple(times[1]), answer)


def time_answer(problem: Problem, machine: Machine, threads: int, count: int) -> float:
    """Return the seconds to have a plan that was kept before from its file, not from memory."""
    cache.forget()
    begin = time.perf_counter()
    plan(problem, machine=machine, threads=threads, tries=count)
    return time.perf_counter() - begin


def estimate_tries(
    problems: Mapping[str, Problem], machine: Machine, procedure: Procedure
) -> dict[str, float]:
    """Estimate the seconds that each problem takes."""
    return {
        name: procedure.estimate_seconds(problem, machine, 2, TRIES_SECONDS)
        for name, problem in problems.items()
    }


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


def render_tries(found: AllTried) -> str:
    """Return a study's section of a page."""
    return "\n".join(_render(found))


def _render(found: AllTried) -> Iterator[str]:
    made = found.conditions
    yield f"## tries, {made.suite}, {format_count(made.threads, 'thread')}"
    units = (
        f"times of the plan without tries and of the one that {made.plans} tries keep, in turns, "
        "and how long that plan takes to be read from its file"
    )
    yield from render_pairs("measured", {**list_facts(found), "units": units})
    yield from render_pairs("all cases", summarize_tries(found))
    yield from render_table(TRIED_COLUMNS, list_tried_rows(found))
    if notes := list_notes(found):
        yield from render_table({"notes": "left"}, [(note,) for note in notes])


def list_notes(found: AllTried) -> list[str]:
    """Return a line for each case that was not run."""
    return [f"{c.name}: {c.skipped or c.fault}" for c in found.cases if c.skipped or c.fault]
