"""Measuring: contenders are prepared and checked one by one, and then take turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from tilesolve.bench.case import Array, Case, find_outliers
from tilesolve.bench.contenders import ALIGNED, OURS, PLANS, Contender, split_name
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.report import NOT_INSTALLED
from tilesolve.bench.results.sweeps import Entry, Figures, Result
from tilesolve.bench.run.team import Crew, PeerError, Team, keep_crew
from tilesolve.bench.run.worker import Order, Ready
from tilesolve.contractions.errors import TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.plans.plan import Plan, plan
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.system.free_memory import read_free_memory
from tilesolve.system.units import format_size

SPARE_BYTES = 2**28
"""Bytes that a process needs beside the tensors."""

OTHER_RESULT = "the others found another result"
"""Why a contender drops out whose result is no other's."""

Some = TypeVar("Some", bound=Record[Any])


def begin(
    kind: type[Some],
    job: Job,
    contenders: Sequence[Contender],
    machine: Machine,
    plans: int | None = None,
) -> Some:
    """Return what a job has found before, or a sweep or study of so many plans without cases.

    Raises
    ------
    BenchmarkError
        If the file of the job has results that were made in another way.
    """
    made = collect_conditions(job.suite, job.dtype, contenders, machine, job.procedure, plans)
    start = kind(made, collect_provenance(machine, job.command), machine.to_toml(), ())
    return start if job.outputs.json is None else start.resume(job.outputs.json)


def run_sweep(
    cases: Mapping[str, Case[Any]],
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    start: Some,
    keep: Callable[[Some], None],
    progress: Progress,
) -> Some:
    """Measure the cases that a sweep does not have yet, and return it with them.

    `start` is an earlier sweep, whose cases are not measured again. `keep` is called with the
    sweep after each case, `progress` often; an exception that it raises ends the sweep.
    """
    waiting = start.pick_waiting(cases)
    machine = divide_machine(machine, procedure.batch)
    found = start
    with keep_crew(contenders, procedure) as crew:
        weight = estimate_cases(waiting, contenders, machine, procedure)
        for name, tell in share_progress(progress, weight):
            case = waiting[name]
            found = found.with_case(measure_case(case, crew, machine, tell))
            if not case.KEEPS_PROCESSES:
                crew.dismiss_all()
            keep(found)
    progress(1.0, "")
    return found


def estimate_cases(
    cases: Mapping[str, Case[Any]],
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
) -> dict[str, float]:
    """Estimate the seconds that each case takes."""
    many = len(contenders)
    return {
        name: many * case.START_SECONDS
        if describe_lack(count_sweep_bytes(case, contenders, machine, procedure))
        else procedure.estimate_seconds(case, machine, many, case.START_SECONDS)
        for name, case in cases.items()
    }


def count_sweep_bytes(
    case: Case[Any], contenders: Sequence[Contender], machine: Machine, procedure: Procedure
) -> int:
    """Return the bytes that contenders need: all hold tensors, a run may copy them."""
    there = sum(contender.installed for contender in contenders)
    each = case.bytes + SPARE_BYTES + count_flush_bytes(machine)
    return (there + 1) * procedure.batch * each


def share_progress(
    progress: Progress, weight: Mapping[str, float]
) -> Iterator[tuple[str, Progress]]:
    """Yield each case with a function that takes the progress within that case.

    Examples
    --------
    >>> for _, tell in share_progress(print, {"small": 1.0, "large": 3.0}):
    ...     tell(0.5, "half")
    0.125 small: half
    0.625 large: half
    """
    total, passed = sum(weight.values()), 0.0

    for name, own in weight.items():
        yield name, partial(_tell_share, progress, name, passed / total, own / total)
        passed += own


def _tell_share(
    progress: Progress, name: str, start: float, share: float, part: float, what: str
) -> None:
    progress(start + share * part, f"{name}: {what}")


def count_steps(tell: Progress, expected: int) -> Callable[[str], None]:
    """Return a function to call at each step of a case, which has about so many.

    Examples
    --------
    >>> step = count_steps(print, 2)
    >>> step("first"), step("second"), step("third"), step("fourth")
    0.0 first
    0.5 second
    1.0 third
    1.0 fourth
    (None, None, None, None)
    """
    taken = count()
    return lambda what: tell(min(1.0, next(taken) / expected), what)


def measure_case(case: Case[Any], crew: Crew, machine: Machine, tell: Progress) -> Result:
    """Measure one case."""
    procedure, there = crew.procedure, crew.there
    if lack := describe_lack(count_sweep_bytes(case, crew.contenders, machine, procedure)):
        return Result(case, skipped=lack)
    entries = {
        one.name: Entry((), "" if one in there else NOT_INSTALLED) for one in crew.contenders
    }
    expected = _plan(case, machine, procedure.threads)
    if isinstance(expected, str):
        entries |= {one.name: Entry((), expected) for one in there if one.name in PLANS}
        there = [contender for contender in there if contender.name not in PLANS]
    many = len(crew.contenders)
    step = count_steps(tell, many * (1 + procedure.estimate_rounds(case, machine, many)))
    teams: dict[str, Team] = {}
    checked: dict[str, Ready] = {}
    for contender in there:
        step(f"{contender.name} makes ready")
        orders = list(_make_orders(case, contender, machine, procedure))
        try:
            teams[contender.name], checked[contender.name] = crew.prepare(contender, orders)
        except PeerError as error:
            entries[contender.name] = Entry((), str(error))
    for who in find_others(case, {who: ready.digest for who, ready in checked.items()}):
        del teams[who]
        entries[who] = Entry((), OTHER_RESULT)
    first = {who: _count_first(case, procedure, checked[who].seconds) for who in teams}
    measured, peak = run_rounds(teams, first, procedure, step)
    for who, entry in measured.items():
        ready, entries[who] = checked[who], entry
        if entry.seconds:
            entries[who] = replace(entry, preparation=ready.preparation, memory=ready.memory)
        else:
            crew.dismiss(who)
    figures = {who: ready.figures for who, ready in checked.items() if ready.figures is not None}
    if isinstance(expected, Plan):
        roofline = expected.roofline if peak is None else expected.roofline_at(peak)
        figures[OURS] = Figures(roofline, expected.seconds, expected.price.bottleneck)
    return Result(case, entries, figures, peak=peak)


def find_others(case: Case[Any], digests: Mapping[str, Array]) -> set[str]:
    """Return whose results differ from what most found.

    Ours with aligned arrays has no voice of its own: its result has to be the one of ours.

    Examples
    --------
    >>> import numpy as np
    >>> from tilesolve.bench.cases import ContractionCase
    >>> case, right = ContractionCase("x", Problem.of("ik-ij-jk", 2)), np.ones(4)
    >>> sorted(find_others(case, {OURS: right, ALIGNED: right, "numpy": 2 * right}))
    ['aligned', 'numpy', 'tilesolve']
    """
    heard = {who: one for who, one in digests.items() if split_name(who)[0] != ALIGNED}
    outliers = find_outliers(case, [*heard.values()])
    found = {who for who, off in zip(heard, outliers, strict=True) if off}
    for who in digests.keys() - heard.keys():
        mine = who.replace(ALIGNED, OURS)
        pair = [digests[who], heard.get(mine, digests[who])]
        if mine in found or any(find_outliers(case, pair)):
            found.add(who)
    return found


def _plan(case: Case[Any], machine: Machine, threads: int) -> Plan | str | None:
    """Return the plan of a contraction, or why there is none; None for other kinds of cases."""
    if not isinstance(case.work, Problem):
        return None
    try:
        return plan(case.work, machine=machine, threads=threads)
    except TilesolveError as error:
        return f"unplanned: {error}"


def _count_first(case: Case[Any], procedure: Procedure, seconds: float) -> list[float]:
    """Return the rounds that a checked run counts as: of warm ones, only if it fills all."""
    counts = not case.WARM or seconds >= procedure.seconds
    return procedure.first_rounds(seconds) if counts else []


def describe_lack(count: int) -> str:
    """Say that so many bytes are not free; nothing if they are."""
    if count <= (free := read_free_memory()):
        return ""
    return (
        f"does not fit into memory: {format_size(count)} are needed, {format_size(free)} are free"
    )


def _make_orders(
    case: Case[Any], contender: Contender, machine: Machine, procedure: Procedure
) -> Iterator[Order]:
    flush = count_flush_bytes(machine)
    cores = sorted(os.sched_getaffinity(0))
    own = case.laid_out(contender.layout)
    paced = case.PACED and contender.library == OURS
    for at in range(procedure.batch):
        alone = procedure.batch > 1 and procedure.threads == 1
        core = cores[at] if alone else None
        fixed = (own, machine, procedure.threads, contender.maker, flush)
        yield Order(*fixed, core, paced, contender.offset)


def run_rounds(
    teams: Mapping[str, Team],
    first: Mapping[str, list[float]],
    procedure: Procedure,
    step: Callable[[str], None],
) -> tuple[dict[str, Entry], float | None]:
    """Return the times of all teams, which take turns, and the median peak beside them, if known.

    A team that fails drops out. `first` has the rounds that were run before.
    """
    times, failed = {who: list(first[who]) for who in teams}, dict[str, str]()
    peaks: list[float] = []
    while waiting := procedure.pick_due(times):
        for who in waiting:
            step(f"round {len(times[who]) + 1}, {who}")
            try:
                turn = teams[who].run()
            except PeerError as error:
                teams[who].stop()
                del times[who]
                failed[who] = str(error)
                continue
            times[who].append(turn.seconds)
            if turn.peak is not None:
                peaks.append(turn.peak)
    entries = {
        who: Entry((), failed[who]) if who in failed else Entry(tuple(times[who])) for who in teams
    }
    return entries, statistics.median(peaks) if peaks else None
