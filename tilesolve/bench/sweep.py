"""Measuring: contenders make ready one by one, are checked, and then take turns."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count

from tilesolve.bench.contenders import Contender
from tilesolve.bench.oracle import differing
from tilesolve.bench.results import Case, Entry, Settings, Sweep
from tilesolve.bench.team import PeerError, Team, team
from tilesolve.bench.worker import Order, Ready
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.free_memory import free_memory
from tilesolve.machine import Level, Machine
from tilesolve.planning import plan
from tilesolve.tables import size

FLUSHED = 2
"""Times the last cache that is written between runs, as TCCG does."""

SPARE = 2**28
"""Bytes that the processes take beside tensors."""

STARTING = 1.5
"""Seconds that a contender takes to start, about: what the time left is reckoned with."""

Progress = Callable[[float, str], None]
"""Told the fraction that is done, and what is being done."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How a sweep measures.

    Parameters
    ----------
    threads
        Of each process.
    batch
        Processes of each contender that compute side by side, each the whole problem on data of
        its own.
    repeat
        Rounds.
    limit
        Seconds that making ready, or a run, may take.

    Examples
    --------
    >>> Effort(repeat=3).limit
    120.0
    """

    threads: int = 1
    batch: int = 1
    repeat: int = 5
    limit: float = 120.0

    def __post_init__(self) -> None:
        for what in ("threads", "batch", "repeat"):
            if getattr(self, what) < 1:
                raise BenchmarkError(f"{what} must be 1 or more, got {getattr(self, what)}")
        if not self.limit > 0:
            raise BenchmarkError(f"the limit must be more than 0 seconds, got {self.limit}")
        cores = len(os.sched_getaffinity(0))
        if self.batch * self.threads > cores:
            raise BenchmarkError(
                f"a batch of {self.batch} processes with {self.threads} threads each needs more "
                f"than the {cores} cores that this process may use"
            )


def empty(
    suite: str,
    dtype: str | None,
    contenders: Sequence[Contender],
    machine: Machine,
    effort: Effort,
) -> Sweep:
    """Return a sweep without cases yet: its settings and where it is made.

    Examples
    --------
    >>> from tilesolve.bench.contenders import contenders
    >>> found = empty("tccg", None, contenders("none"), Machine.load("i7-6700k"), Effort())
    >>> found.settings.suite, "CPU" in found.provenance
    ('tccg', True)
    """
    from tilesolve.detect import cpu

    text = machine.to_toml()
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    labels = {contender.name: contender.label for contender in contenders}
    peak = machine.source("peak")
    return Sweep(
        Settings(
            suite,
            dtype,
            effort.threads,
            effort.batch,
            effort.repeat,
            labels,
            f"{machine.name} {digest}",
        ),
        {
            "CPU": f"{cpu().name}, {cpu().cores} cores",
            "machine": f"{machine.name} ({digest}), {peak} peak, "
            f"{machine.source('memory.bandwidth')} memory bandwidth",
            "system": f"{platform.system()} {platform.release()}",
            "versions": f"Python {platform.python_version()}, "
            + ", ".join(f"{p} {version(p)}" for p in ("tilesolve", "numpy", "numba")),
            "begun": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        text,
        (),
    )


def divided(machine: Machine, batch: int) -> Machine:
    """Return a machine as each process of a batch sees it: shared levels in equal parts.

    The paper models its batched contractions like that (section 6).

    Examples
    --------
    >>> machine = divided(Machine.load("i7-6700k"), 4)
    >>> [level.capacity for level in machine.caches]
    [32768, 262144, 2097152]
    """
    if batch == 1:
        return machine
    levels: list[Level] = []
    for level in machine.levels:
        among = min(batch, level.shared_by)
        capacity = level.capacity and max(level.line, level.capacity // among)
        both = level.bandwidth_all
        bandwidth = level.bandwidth
        if both is not None:
            bandwidth = min(bandwidth, both / min(batch, machine.cores))
        if levels:  # a farther level is no faster, whatever the noise of its measurement
            bandwidth = min(bandwidth, levels[-1].bandwidth)
        levels.append(
            replace(level, capacity=capacity, shared_by=1, bandwidth=bandwidth, bandwidth_all=None)
        )
    return machine.replace(levels=tuple(levels), cores=1)


def sweep(
    problems: Mapping[str, Problem],
    contenders: Sequence[Contender],
    machine: Machine,
    effort: Effort,
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
    machine, effort
        What plans are made for, and how is measured.
    start
        What has been done before.
    keep
        Called with the sweep after each case.
    progress
        Called often; an exception that it raises ends the sweep.

    Examples
    --------
    >>> from tilesolve.bench.contenders import contenders
    >>> machine, effort = Machine.load("i7-6700k"), Effort(repeat=2)
    >>> everyone = contenders("numpy")
    >>> start = empty("mine", None, everyone, machine, effort)
    >>> found = sweep({"tiny": Problem.of("ik-ij-jk", 20)}, everyone, machine, effort, start,
    ...               lambda _: None, lambda *_: None)
    >>> len(found.cases[0].entries["numpy"].seconds)
    2
    """
    waiting = {n: p for n, p in problems.items() if not start.done(n, p)}
    machine = divided(machine, effort.batch)
    peak = machine.peak
    steps = len(contenders) * (1 + effort.repeat)
    weight = {
        name: len(contenders) * STARTING
        + 2 * steps * problem.flops / (peak(problem.dtype) * effort.threads)
        for name, problem in waiting.items()
    }
    total, passed = sum(weight.values()), 0.0
    found = start
    for name, problem in waiting.items():
        step = _steps(progress, name, passed / total, weight[name] / total / steps)
        found = found.added(measure(name, problem, contenders, machine, effort, step))
        keep(found)
        passed += weight[name]
    progress(1.0, "")
    return found


def _steps(progress: Progress, name: str, start: float, share: float) -> Callable[[str], None]:
    """Return what is called with each step of a case, which is a share of the whole sweep."""
    taken = count()
    return lambda what: progress(start + share * next(taken), f"{name}: {what}")


def measure(
    name: str,
    problem: Problem,
    contenders: Sequence[Contender],
    machine: Machine,
    effort: Effort,
    step: Callable[[str], None],
) -> Case:
    """Measure one problem.

    Examples
    --------
    >>> from tilesolve.bench.contenders import contenders
    >>> machine = Machine.load("i7-6700k")
    >>> found = measure("huge", Problem.of("ik-ij-jk", 10**6), contenders("none"), machine,
    ...                 Effort(), print)
    >>> found.skipped.startswith("does not fit into memory: ")
    True
    """
    there = [contender for contender in contenders if contender.installed]
    # Everybody has the tensors; whoever runs may copy them.
    needed = (len(there) + 1) * effort.batch * (sum(problem.bytes) + SPARE)
    if needed > (free := free_memory()):
        return Case(
            name,
            problem,
            skipped=f"does not fit into memory: {size(needed)} are needed, {size(free)} are free",
        )
    try:
        expectation = plan(problem, machine=machine, threads=effort.threads)
    except TilesolveError as error:
        return Case(name, problem, skipped=f"no plan: {error}")
    entries = {c.name: Entry((), "" if c in there else "not installed") for c in contenders}
    with ExitStack() as stack:
        teams: dict[str, Team] = {}
        checked: dict[str, Ready] = {}
        for contender in there:
            step(f"{contender.name} makes ready")
            started = team(contender, effort.threads, effort.batch, effort.limit)
            group = stack.enter_context(started)
            try:
                found = group.prepare(list(_orders(problem, contender, machine, effort)))
            except PeerError as error:
                group.stop()
                entries[contender.name] = Entry((), str(error))
                continue
            teams[contender.name], checked[contender.name] = group, found
        for who in _different(problem, checked):
            teams.pop(who).stop()
            entries[who] = Entry((), "the others found another result")
        entries |= _rounds(teams, effort, step)
    for who, found in checked.items():
        entry = entries[who]
        if entry.seconds:
            entries[who] = replace(entry, preparation=found.preparation, memory=found.memory)
    return Case(
        name,
        problem,
        expectation.roofline,
        expectation.seconds,
        expectation.price.bottleneck,
        entries,
    )


def flushed(machine: Machine) -> int:
    """Return the bytes that are written between runs, so that no cache helps the next one.

    Examples
    --------
    >>> flushed(Machine.load("i7-6700k"))
    16777216
    """
    return FLUSHED * max(level.capacity or 0 for level in machine.levels)


def _orders(
    problem: Problem, contender: Contender, machine: Machine, effort: Effort
) -> Iterator[Order]:
    flush = flushed(machine)
    cores = sorted(os.sched_getaffinity(0))
    for at in range(effort.batch):
        alone = effort.batch > 1 and effort.threads == 1
        core = cores[at] if alone else None
        yield Order(problem, machine, effort.threads, contender.maker, flush, core)


def _different(problem: Problem, checked: Mapping[str, Ready]) -> list[str]:
    """Return whose result is another than that of most."""
    digests = [found.digest for found in checked.values()]
    return [who for who, off in zip(checked, differing(problem, digests), strict=True) if off]


def _rounds(
    teams: Mapping[str, Team], effort: Effort, step: Callable[[str], None]
) -> dict[str, Entry]:
    """Return the times of all teams, which take turns; one that fails stays out."""
    times: dict[str, list[float]] = {who: [] for who in teams}
    failed: dict[str, str] = {}
    for turn in range(effort.repeat):
        for who, group in teams.items():
            if who in failed:
                continue
            step(f"round {turn + 1}, {who}")
            try:
                times[who].append(group.run())
            except PeerError as error:
                group.stop()
                failed[who] = str(error)
    return {
        who: Entry((), failed[who]) if who in failed else Entry(tuple(seconds))
        for who, seconds in times.items()
    }
