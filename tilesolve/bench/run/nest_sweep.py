"""Measuring nests: contenders are prepared and checked one by one, and then take turns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite

from tilesolve.bench.contenders import OURS, Contender
from tilesolve.bench.nest_contenders import parse_nest_contenders
from tilesolve.bench.nests import NestCase, find_nests
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.nest_sweeps import NestFigures, NestResult, NestSweep
from tilesolve.bench.results.nest_tables import print_nests, render_nests
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.performance_page import name_section, write_section
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.summary import NOT_INSTALLED
from tilesolve.bench.results.sweeps import Entry
from tilesolve.bench.run.nest_oracle import find_nest_outliers
from tilesolve.bench.run.nest_worker import NestOrder, NestReady
from tilesolve.bench.run.sweep import (
    OTHER_RESULT,
    SPARE_BYTES,
    count_steps,
    describe_lack,
    run_rounds,
    share_progress,
)
from tilesolve.bench.run.team import PeerError, Team, start_team
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.show.console_tables import progress_bar
from tilesolve.system.files import write_atomically

NEST_SECONDS = 5.0
"""Estimated seconds to start and check a contender and to time it."""


def sweep_nests(job: Job, peers: str) -> bool:
    """Measure the nests of a suite beside peers, show them, and write what is asked for.

    Returns
    -------
    bool
        Whether plans gave a right result for every nest that was not skipped.
    """
    procedure, outputs = job.procedure, job.outputs
    nests = find_nests(job.suite, chosen=job.chosen)
    everyone = parse_nest_contenders(peers, procedure.threads)
    outputs.check()
    machine = Machine.load(job.machine)
    start = NestSweep(
        collect_conditions(job.suite, None, everyone, machine, procedure),
        collect_provenance(machine, job.command),
        machine.to_toml(),
        (),
    )
    if outputs.json is not None:
        start = start.resume(outputs.json)
    waiting = {name: one for name, one in nests.items() if not start.has(name, one)}
    estimate = dict.fromkeys(waiting, NEST_SECONDS * len(everyone))
    print_estimate(estimate.values())
    with keep_results(start, outputs.json) as keeper, progress_bar("measuring") as tell:
        for name, share in share_progress(tell, estimate):
            case = measure_nest(waiting[name], everyone, machine, procedure, share)
            keeper.update(keeper.found.with_case(case))
        tell(1.0, "")
    found = keeper.found
    if outputs.csv is not None:
        write_atomically(outputs.csv, found.to_csv())
    if outputs.page is not None:
        write_section(outputs.page, name_section(found), render_nests(found))
    print_nests(found)
    return all(case.skipped or case.entries[OURS].seconds for case in found.cases)


def measure_nest(
    nest: NestCase,
    contenders: tuple[Contender, ...],
    machine: Machine,
    procedure: Procedure,
    tell: Progress,
) -> NestResult:
    """Measure one nest."""
    there = [one for one in contenders if one.installed]
    flush = count_flush_bytes(machine)
    tensors = sum(array.bytes for array in nest.computation.arrays)
    if lack := describe_lack(len(there) * (2 * tensors + SPARE_BYTES + flush)):
        return NestResult(nest, skipped=lack)
    step = count_steps(tell, len(there) * (1 + procedure.repeat))
    entries = {one.name: Entry((), "" if one in there else NOT_INSTALLED) for one in contenders}
    with ExitStack() as stack:
        teams: dict[str, Team] = {}
        checked: dict[str, NestReady] = {}
        for who in there:
            step(f"{who.name} makes ready")
            team = stack.enter_context(
                start_team(who, procedure.threads, procedure.batch, procedure.limit)
            )
            order = NestOrder(nest, machine, procedure.threads, who.maker, flush)
            try:
                found = team.prepare([order] * procedure.batch)
            except PeerError as error:
                team.stop()
                entries[who.name] = Entry((), str(error))
                continue
            assert isinstance(found, NestReady)
            teams[who.name], checked[who.name] = team, found
        digests = [found.digest for found in checked.values()]
        for name, off in zip(checked, find_nest_outliers(nest.computation, digests), strict=True):
            if off:
                teams.pop(name).stop()
                entries[name] = Entry((), OTHER_RESULT)
        first = {name: _count_first(procedure, checked[name].seconds) for name in teams}
        measured, _ = run_rounds(teams, first, procedure, step)
    for name, entry in measured.items():
        ready = checked[name]
        entries[name] = entry
        if entry.seconds:
            entries[name] = replace(entry, preparation=ready.preparation, memory=ready.memory)
    return NestResult(nest, entries, _list_figures(checked))


def _count_first(procedure: Procedure, seconds: float) -> list[float]:
    """Return the rounds that a checked run counts as: one only if it fills all; it makes code."""
    return procedure.first_rounds(seconds) if seconds >= procedure.seconds else []


def _list_figures(checked: Mapping[str, NestReady]) -> dict[str, NestFigures]:
    return {
        name: NestFigures(found.predicted, found.how)
        for name, found in checked.items()
        if isfinite(found.predicted)
    }
