"""Measuring: contenders are prepared and checked one by one, and then take turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count

from tilesolve.bench.contenders import OURS, Contender
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.sweeps import Case, Entry, Sweep
from tilesolve.bench.run.oracle import find_outliers
from tilesolve.bench.run.team import PeerError, Team, start_team
from tilesolve.bench.run.worker import Order, Ready
from tilesolve.contractions.errors import TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.plans.plan import plan
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.system.free_memory import free_memory
from tilesolve.system.units import format_size

SPARE_BYTES = 2**28
"""Bytes that a process needs beside the tensors."""

OTHER_RESULT = "the others found another result"
"""Why a contender drops out whose result is no other's."""

START_SECONDS = 3.0
"""Estimated seconds to start and check a contender, beside its runs."""


def begin_sweep(
    suite: str,
    dtype: str | None,
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    command: str = "",
) -> Sweep:
    """Return a sweep without cases yet: its conditions and where it is made."""
    return Sweep(
        collect_conditions(suite, dtype, contenders, machine, procedure),
        collect_provenance(machine, command),
        machine.to_toml(),
        (),
    )


def run_sweep(
    problems: Mapping[str, Problem],
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    start: Sweep,
    keep: Callable[[Sweep], None],
    progress: Progress,
) -> Sweep:
    """Measure the problems that a sweep does not have yet, and return it with them.

    Parameters
    ----------
    problems
        By name.
    contenders
        Who computes.
    machine, procedure
        What plans are made for, and how runs are timed.
    start
        What has been done before.
    keep
        Called with the sweep after each case.
    progress
        Called often; an exception that it raises ends the sweep.
    """
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    machine = divide_machine(machine, procedure.batch)
    many = len(contenders)
    weight = estimate_cases(waiting, contenders, machine, procedure)
    found = start
    for name, tell in share_progress(progress, weight):
        problem = waiting[name]
        step = count_steps(tell, many * (1 + procedure.estimate_rounds(problem, machine, many)))
        found = found.with_case(measure_case(name, problem, contenders, machine, procedure, step))
        keep(found)
    progress(1.0, "")
    return found


def estimate_cases(
    problems: Mapping[str, Problem],
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
) -> dict[str, float]:
    """Estimate the seconds that each problem takes."""
    many = len(contenders)
    return {
        name: many * START_SECONDS
        if describe_lack(count_sweep_bytes(problem, contenders, procedure))
        else procedure.estimate_seconds(problem, machine, many, START_SECONDS)
        for name, problem in problems.items()
    }


def count_sweep_bytes(
    problem: Problem, contenders: Sequence[Contender], procedure: Procedure
) -> int:
    """Return the bytes that contenders need: all hold tensors, a run may copy them."""
    there = sum(contender.installed for contender in contenders)
    return (there + 1) * procedure.batch * (sum(problem.bytes) + SPARE_BYTES)


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


def measure_case(
    name: str,
    problem: Problem,
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    step: Callable[[str], None],
) -> Case:
    """Measure one problem."""
    there = [contender for contender in contenders if contender.installed]
    if lack := describe_lack(count_sweep_bytes(problem, contenders, procedure)):
        return Case(name, problem, skipped=lack)
    entries = {c.name: Entry((), "" if c in there else "not installed") for c in contenders}
    expectation = None
    try:
        expectation = plan(problem, machine=machine, threads=procedure.threads)
    except TilesolveError as error:
        entries[OURS] = Entry((), f"unplanned: {error}")
        there = [contender for contender in there if contender.name != OURS]
    with ExitStack() as stack:
        teams: dict[str, Team] = {}
        checked: dict[str, Ready] = {}
        for contender in there:
            step(f"{contender.name} makes ready")
            started = start_team(contender, procedure.threads, procedure.batch, procedure.limit)
            group = stack.enter_context(started)
            try:
                found = group.prepare(list(_make_orders(problem, contender, machine, procedure)))
            except PeerError as error:
                group.stop()
                entries[contender.name] = Entry((), str(error))
                continue
            teams[contender.name], checked[contender.name] = group, found
        for who in _name_outliers(problem, checked):
            teams.pop(who).stop()
            entries[who] = Entry((), OTHER_RESULT)
        first = {who: procedure.first_rounds(checked[who].seconds) for who in teams}
        measured, peak = run_rounds(teams, first, procedure, step)
        entries |= measured
    for who, found in checked.items():
        entry = entries[who]
        if entry.seconds:
            entries[who] = replace(entry, preparation=found.preparation, memory=found.memory)
    if expectation is None:
        return Case(name, problem, entries=entries)
    return Case(
        name,
        problem,
        expectation.roofline if peak is None else expectation.roofline_at(peak),
        expectation.seconds,
        expectation.price.bottleneck,
        entries,
        peak=peak,
    )


def describe_lack(count: int) -> str:
    """Say that so many bytes are not free; nothing if they are."""
    if count <= (free := free_memory()):
        return ""
    return (
        f"does not fit into memory: {format_size(count)} are needed, {format_size(free)} are free"
    )


def _make_orders(
    problem: Problem, contender: Contender, machine: Machine, procedure: Procedure
) -> Iterator[Order]:
    flush = count_flush_bytes(machine)
    cores = sorted(os.sched_getaffinity(0))
    for at in range(procedure.batch):
        alone = procedure.batch > 1 and procedure.threads == 1
        core = cores[at] if alone else None
        paced = contender.name == OURS
        yield Order(problem, machine, procedure.threads, contender.maker, flush, core, paced)


def _name_outliers(problem: Problem, checked: Mapping[str, Ready]) -> list[str]:
    """Return the contenders whose result differs from that of most."""
    digests = [found.digest for found in checked.values()]
    return [who for who, off in zip(checked, find_outliers(problem, digests), strict=True) if off]


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
