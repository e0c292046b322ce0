"""How a study is done: cases are found, studied one by one, kept as they come, and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilesolve.bench.case import Case
from tilesolve.bench.cases import find_case_or_suite, name_cases
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.results.report import Report
from tilesolve.bench.run.sweep import SPARE_BYTES, begin, describe_lack, share_progress
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.show.console_tables import progress_bar


def find_problems(job: Job) -> Mapping[str, Case[Any]]:
    """Return the contractions that a job names: a single one, or a suite."""
    return name_cases(find_case_or_suite(job.suite, chosen=job.chosen, dtype=job.dtype))


@dataclass(frozen=True, slots=True)
class Method:
    """How one kind of study differs from others.

    Parameters
    ----------
    record
        Holds the results.
    study
        Studies a case for a machine, by a procedure, with so many plans. A `BenchmarkError` says
        that a result is wrong, any other one why the case cannot be studied.
    report
        Returns the report of the results.
    plans
        How many there are, unless another number is asked for.
    count_runs
        Returns how many run side by side, given that number.
    seconds
        Estimated, to make and check one of them.
    prefix
        Before the name of the section of a page.
    find
        Returns the cases that a job names.
    """

    record: type[Record[Any]]
    study: Callable[[Any, Machine, Procedure, int, Progress], Outcome]
    report: Callable[[Any], Report]
    plans: int
    count_runs: Callable[[int], int]
    seconds: float
    prefix: str
    find: Callable[[Job], Mapping[str, Case[Any]]] = find_problems


def carry_out(method: Method, job: Job, plans: int | None) -> bool:
    """Study the cases that a job names, show what was found, and write what is asked for.

    `plans` is how many run of each case; None is the method's usual number.

    Returns
    -------
    bool
        Whether every plan gave a right result.
    """
    procedure, outputs, count = job.procedure, job.outputs, plans or method.plans
    cases = method.find(job)
    outputs.check()
    machine = Machine.load(job.machine)
    start = begin(method.record, job, (), machine, count)
    waiting = start.pick_waiting(cases)
    weight = {name: _estimate(method, case, machine, job, count) for name, case in waiting.items()}
    print_estimate(weight.values())
    with keep_results(start, outputs.json) as keeper, progress_bar("studying") as tell:
        for name, share in share_progress(tell, weight):
            found = study_case(method, waiting[name], machine, procedure, count, share)
            keeper.update(keeper.found.with_case(found))
        tell(1.0, "")
    report = method.report(keeper.found)
    outputs.write(keeper.found, report, method.prefix)
    report.print_all()
    return not any(case.fault for case in keeper.found.cases)


def _estimate(method: Method, case: Case[Any], machine: Machine, job: Job, count: int) -> float:
    """Estimate the seconds that a case takes."""
    if describe_lack(_count_bytes(case, machine)):
        return method.seconds
    runs = method.count_runs(count)
    return job.procedure.estimate_seconds(case, machine, runs, method.seconds)


def _count_bytes(case: Case[Any], machine: Machine) -> int:
    return case.bytes + count_flush_bytes(machine) + SPARE_BYTES


def study_case(
    method: Method,
    case: Case[Any],
    machine: Machine,
    procedure: Procedure,
    count: int,
    tell: Progress,
) -> Outcome:
    """Study one case; one that cannot be studied says why."""
    made = method.record.OUTCOME
    found: Outcome
    if lack := describe_lack(_count_bytes(case, machine)):
        found = made(case, skipped=lack)
        return found
    tell(0.0, "planning")
    try:
        found = method.study(case, machine, procedure, count, tell)
    except BenchmarkError as error:
        found = made(case, fault=str(error))
    except TilesolveError as error:
        found = made(case, skipped=str(error))
    return found


def list_reasons(record: Record[Any]) -> list[str]:
    """Return a line for each case of which nothing was found."""
    return [f"{c.name}: {c.skipped or c.fault}" for c in record.cases if c.skipped or c.fault]
