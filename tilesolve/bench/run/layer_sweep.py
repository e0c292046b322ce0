"""Measuring layers: contenders keep their processes for all layers, and take turns at each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tilesolve.bench.contenders import OURS
from tilesolve.bench.layer_contenders import LayerContender, parse_layer_contenders, split_name
from tilesolve.bench.layers import UsedLayer, find_layers
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.layer_sweeps import Figures, LayerCase, LayerSweep
from tilesolve.bench.results.layer_tables import render_layers
from tilesolve.bench.results.layers_printed import print_layers
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.performance_page import name_section, write_section
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.summary import NOT_INSTALLED
from tilesolve.bench.results.sweeps import Entry
from tilesolve.bench.run.layer_worker import LayerOrder, LayerReady
from tilesolve.bench.run.oracle import find_outliers
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

LAYER_SECONDS = 0.5
"""Estimated seconds to make a layer ready, beside its runs."""


def sweep_layers(job: Job, peers: str) -> bool:
    """Measure the layers of a suite beside peers, show them, and write what is asked for.

    Returns
    -------
    bool
        Whether plans gave a right result for every layer that was not skipped.
    """
    procedure, outputs = job.procedure, job.outputs
    layers = find_layers(job.suite, chosen=job.chosen, dtype=job.dtype)
    everyone = parse_layer_contenders(peers, procedure.threads)
    outputs.check()
    machine = Machine.load(job.machine)
    contenders = [one.contender for one in everyone]
    start = LayerSweep(
        collect_conditions(job.suite, job.dtype, contenders, machine, procedure),
        collect_provenance(machine, job.command),
        machine.to_toml(),
        (),
    )
    if outputs.json is not None:
        start = start.resume(outputs.json)
    waiting = {n: one for n, one in layers.items() if not start.has(n, one.convolution.problem)}
    estimate = _estimate(waiting, len(everyone), machine, procedure)
    print_estimate(estimate.values())
    with (
        keep_results(start, outputs.json) as keeper,
        progress_bar("measuring") as tell,
        keep_crew(everyone, procedure) as crew,
    ):
        for name, share in share_progress(tell, estimate):
            keeper.update(
                keeper.found.with_case(measure_layer(name, waiting[name], crew, machine, share))
            )
        tell(1.0, "")
    found = keeper.found
    if outputs.csv is not None:
        write_atomically(outputs.csv, found.to_csv())
    if outputs.page is not None:
        write_section(outputs.page, f"layers {name_section(found)}", render_layers(found))
    print_layers(found)
    return all(
        case.entries[one.name].seconds
        for case in found.cases
        for one in everyone
        if not case.skipped and split_name(one.name)[0] == OURS
    )


def _estimate(
    layers: Mapping[str, UsedLayer], many: int, machine: Machine, procedure: Procedure
) -> dict[str, float]:
    """Estimate the seconds that each layer takes."""
    return {
        name: procedure.estimate_seconds(one.convolution.problem, machine, many, LAYER_SECONDS)
        for name, one in layers.items()
    }


class Crew:
    """The processes of all contenders: started when they are first needed, kept for what follows.

    Parameters
    ----------
    contenders
        Who computes.
    procedure
        How runs are timed.
    """

    def __init__(self, contenders: Sequence[LayerContender], procedure: Procedure) -> None:
        self.contenders, self.procedure = tuple(contenders), procedure
        self.teams: dict[str, tuple[Team, ExitStack]] = {}

    @property
    def there(self) -> list[LayerContender]:
        """The contenders that are installed."""
        return [one for one in self.contenders if one.contender.installed]

    def prepare(self, who: LayerContender, order: LayerOrder) -> tuple[Team, LayerReady]:
        """Have a contender make ready; raise a `PeerError` if it fails, whose process ends."""
        if who.name not in self.teams:
            stack = ExitStack()
            started = start_team(
                who.contender, self.procedure.threads, self.procedure.batch, self.procedure.limit
            )
            self.teams[who.name] = stack.enter_context(started), stack
        team, _ = self.teams[who.name]
        try:
            found = team.prepare([order])
        except PeerError:
            self.dismiss(who.name)
            raise
        assert isinstance(found, LayerReady)
        return team, found

    def dismiss(self, name: str) -> None:
        """End a contender's process; another one starts if it is needed again."""
        if name in self.teams:
            _, stack = self.teams.pop(name)
            stack.close()


@contextmanager
def keep_crew(contenders: Sequence[LayerContender], procedure: Procedure) -> Iterator[Crew]:
    """Give a crew; its processes are gone afterwards."""
    crew = Crew(contenders, procedure)
    try:
        yield crew
    finally:
        for one in contenders:
            crew.dismiss(one.name)


def measure_layer(
    name: str, used: UsedLayer, crew: Crew, machine: Machine, tell: Progress
) -> LayerCase:
    """Measure one layer."""
    layer, procedure, many = used.convolution, crew.procedure, len(crew.there)
    flush = count_flush_bytes(machine)
    needed = many * (sum(layer.problem.bytes) + SPARE_BYTES + flush)
    if lack := describe_lack(needed):
        return LayerCase(name, layer, used.uses, skipped=lack)
    rounds = procedure.estimate_rounds(layer.problem, machine, many)
    step = count_steps(tell, many * (1 + rounds))
    entries = {one.name: Entry((), NOT_INSTALLED) for one in crew.contenders}
    teams: dict[str, Team] = {}
    checked: dict[str, LayerReady] = {}
    for who in crew.there:
        step(f"{who.name} makes ready")
        own = replace(layer, layout=who.layout)
        paced = split_name(who.name)[0] == OURS
        order = LayerOrder(own, machine, procedure.threads, who.contender.maker, flush, paced)
        try:
            teams[who.name], checked[who.name] = crew.prepare(who, order)
        except PeerError as error:
            entries[who.name] = Entry((), str(error))
    digests = [found.digest for found in checked.values()]
    for who_name, off in zip(checked, find_outliers(layer.problem, digests), strict=True):
        if off:
            del teams[who_name]
            entries[who_name] = Entry((), OTHER_RESULT)
    first = {who: procedure.first_rounds(checked[who].seconds) for who in teams}
    measured, peak = run_rounds(teams, first, procedure, step)
    for who_name, entry in measured.items():
        if entry.reason:
            crew.dismiss(who_name)
    entries |= {who: _complete(entry, checked[who]) for who, entry in measured.items()}
    return LayerCase(name, layer, used.uses, entries, _list_figures(checked), peak=peak)


def _complete(entry: Entry, found: LayerReady) -> Entry:
    """Return what rounds took together with what preparation did."""
    if not entry.seconds:
        return entry
    return replace(entry, preparation=found.preparation, memory=found.memory)


def _list_figures(checked: Mapping[str, LayerReady]) -> dict[str, Figures]:
    return {who: found.figures for who, found in checked.items() if found.figures is not None}
