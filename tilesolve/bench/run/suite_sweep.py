"""A sweep from end to end: cases are found, measured, written and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilesolve.bench.case import Case
from tilesolve.bench.cases import find_cases, name_cases
from tilesolve.bench.contenders import (
    LAYER_PEERS,
    NEST_PEERS,
    NETWORK_PEERS,
    PIPELINE_PEERS,
    PLANS,
    STATEMENT_PEERS,
    Contender,
    list_peers,
    parse_contenders,
    parse_layer_contenders,
    parse_nest_contenders,
    parse_network_contenders,
    parse_pipeline_contenders,
    parse_statement_contenders,
    split_name,
)
from tilesolve.bench.layers import find_layers
from tilesolve.bench.nests import find_nests, find_pipelines, find_statements
from tilesolve.bench.networks import find_networks
from tilesolve.bench.results.comparison import compare_sweeps
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.layer_tables import report_layers
from tilesolve.bench.results.nest_tables import report_nests
from tilesolve.bench.results.network_tables import report_networks
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.report import Report
from tilesolve.bench.results.summary import report_sweep
from tilesolve.bench.results.sweeps import (
    LayerSweep,
    NestSweep,
    NetworkSweep,
    PipelineSweep,
    StatementSweep,
    Sweep,
    SweepRecord,
)
from tilesolve.bench.run.sweep import begin, estimate_cases, run_sweep
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import console, progress_bar


@dataclass(frozen=True, slots=True)
class Kind:
    """What sweeps of a kind of cases differ in.

    Parameters
    ----------
    record
        Holds the results.
    find
        Returns the cases that a job names.
    peers
        Returns the names of the peers that there are.
    parse
        Returns the contenders that a list names, for a number of threads.
    report
        Returns the report of the results.
    prefix
        Before the name of the section of a page.
    """

    record: type[SweepRecord]
    find: Callable[[Job], Mapping[str, Case[Any]]]
    peers: Callable[[], Iterable[str]]
    parse: Callable[[str, int], tuple[Contender, ...]]
    report: Callable[[Any], Report]
    prefix: str = ""


CONTRACTIONS = Kind(
    Sweep,
    lambda job: name_cases(find_cases(job.suite, chosen=job.chosen, dtype=job.dtype)),
    list_peers,
    parse_contenders,
    report_sweep,
)
LAYERS = Kind(
    LayerSweep,
    lambda job: find_layers(job.suite, chosen=job.chosen, dtype=job.dtype),
    lambda: LAYER_PEERS,
    parse_layer_contenders,
    report_layers,
    "layers ",
)
NESTS = Kind(
    NestSweep,
    lambda job: find_nests(job.suite, chosen=job.chosen),
    lambda: NEST_PEERS,
    parse_nest_contenders,
    report_nests,
)
STATEMENTS = Kind(
    StatementSweep,
    lambda job: find_statements(job.suite, chosen=job.chosen),
    lambda: STATEMENT_PEERS,
    parse_statement_contenders,
    report_nests,
)
PIPELINES = Kind(
    PipelineSweep,
    lambda job: find_pipelines(job.suite, chosen=job.chosen),
    lambda: PIPELINE_PEERS,
    parse_pipeline_contenders,
    report_nests,
)
WHOLE = Kind(
    NetworkSweep,
    lambda job: find_networks(job.suite, chosen=job.chosen),
    lambda: NETWORK_PEERS,
    parse_network_contenders,
    report_networks,
)


def sweep_suite(kind: Kind, job: Job, peers: str | None) -> bool:
    """Measure a suite beside peers, all if None, show it, and write what is asked for.

    Returns
    -------
    bool
        Whether plans gave a right result on every case that was not skipped.
    """
    procedure, outputs = job.procedure, job.outputs
    cases = kind.find(job)
    everyone = kind.parse(",".join(kind.peers()) if peers is None else peers, procedure.threads)
    outputs.check()
    machine = Machine.load(job.machine)
    start = begin(kind.record, job, everyone, machine)
    print_estimate(estimate_cases(start.pick_waiting(cases), everyone, machine, procedure).values())
    with keep_results(start, outputs.json) as keeper, progress_bar("measuring") as tell:
        run_sweep(cases, everyone, machine, procedure, start, keeper.update, tell)
    found = keeper.found
    report = kind.report(found)
    outputs.write(found, report, kind.prefix)  # before it is shown: its reader may have gone
    report.print_all()
    if outputs.compare is not None and isinstance(found, Sweep):
        older = outputs.compare
        table, lines = compare_sweeps(Sweep.read(older), found, f"Beside {older}")
        console().print(table, *lines, sep="\n")
    return all(
        entry.seconds
        for case in found.cases
        for name, entry in case.entries.items()
        if split_name(name)[0] in PLANS
    )
