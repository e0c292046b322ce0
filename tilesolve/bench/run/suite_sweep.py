"""A sweep from end to end: problems are found, measured, written and shown."""

from __future__ import annotations

from tilesolve.bench.cases import find_cases
from tilesolve.bench.contenders import OURS, parse_contenders
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.printed import print_changes, print_sweep
from tilesolve.bench.run.sweep import begin_sweep, estimate_cases, run_sweep
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import progress_bar


def sweep_suite(job: Job, peers: str) -> bool:
    """Measure a suite beside peers, show it, and write what is asked for.

    Returns
    -------
    bool
        Whether plans gave a right result on every case that was not skipped.
    """
    procedure, outputs = job.procedure, job.outputs
    problems = find_cases(job.suite, chosen=job.chosen, dtype=job.dtype)
    everyone = parse_contenders(peers, procedure.threads)
    outputs.check()
    machine = Machine.load(job.machine)
    start = begin_sweep(job.suite, job.dtype, everyone, machine, procedure, job.command)
    if outputs.json is not None:
        start = start.resume(outputs.json)
    waiting = {name: p for name, p in problems.items() if not start.has(name, p)}
    print_estimate(estimate_cases(waiting, everyone, machine, procedure).values())
    with keep_results(start, outputs.json) as keeper, progress_bar("measuring") as tell:
        run_sweep(problems, everyone, machine, procedure, start, keeper.update, tell)
    found = keeper.found
    outputs.write(found)  # before it is shown: its reader may have gone
    print_sweep(found)
    if outputs.compare is not None:
        print_changes(found, outputs.compare)
    return not any(OURS in c.entries and not c.entries[OURS].seconds for c in found.cases)
