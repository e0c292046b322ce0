"""A study of how well rankers order the variants of a problem, all of which are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilesolve.bench.procedure import Procedure
from tilesolve.bench.run.sweep import share_progress
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.ranking.ranking import rank
from tilesolve.studies.ranked import RankedCase, RankedCases

VARIANTS = 60
"""Variants of a problem, unless another number is asked for."""

VARIANT_SECONDS = 0.2
"""Estimated seconds to make, score and check a variant."""


def study_rankings(
    problems: Mapping[str, Problem],
    machine: Machine,
    procedure: Procedure,
    start: RankedCases,
    keep: Callable[[RankedCases], None],
    progress: Progress,
) -> RankedCases:
    """Rank and run the variants of the problems that are not there yet, and return all rankings.

    Parameters
    ----------
    problems
        By name.
    machine, procedure
        What plans are made for, and how runs are timed.
    start
        What has been done before; its conditions say how many variants there are.
    keep
        Called with all rankings after each one.
    progress
        Called often; an exception that it raises ends the study.
    """
    count = start.conditions.plans or VARIANTS
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    found = start
    shares = estimate_rankings(waiting, machine, procedure, count)
    for name, tell in share_progress(progress, shares):
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
) -> RankedCase:
    """Rank and run the variants of one problem; what cannot be run says why."""
    progress(0.0, "ranking")
    try:
        ranked = rank(problem, machine=machine, threads=procedure.threads, variants=count)
        done = ranked.run(
            None, repeat=procedure.repeat, seconds=procedure.seconds, progress=progress
        )
    except BenchmarkError as error:
        return RankedCase(name, problem, fault=str(error))
    except TilesolveError as error:
        return RankedCase(name, problem, skipped=str(error))
    return RankedCase(name, problem, done)


def estimate_rankings(
    problems: Mapping[str, Problem], machine: Machine, procedure: Procedure, count: int
) -> dict[str, float]:
    """Estimate the seconds that each problem takes."""
    return {
        name: procedure.estimate_seconds(problem, machine, count, VARIANT_SECONDS)
        for name, problem in problems.items()
    }
