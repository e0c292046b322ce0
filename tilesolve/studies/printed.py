"""Studies from end to end: problems are found, studied and shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tilesolve.bench.cases import find_case_or_suite
from tilesolve.bench.nests import find_nests
from tilesolve.bench.results.keeper import keep_results, print_estimate
from tilesolve.bench.results.outputs import Job, Outputs
from tilesolve.bench.results.performance_page import name_section, write_section
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.record import Record
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import console, progress_bar, text_table
from tilesolve.studies import misses, ranked, ranking, tiled, tiles, tilings, trials, tries
from tilesolve.system.files import write_atomically

Some = TypeVar("Some", bound=Record[Any])


def study_tiles(job: Job, plans: int | None) -> bool:
    """Study the tiles of a problem, or of each problem of a suite, and print what was found.

    Parameters
    ----------
    job
        The problems, how to measure, and what to write.
    plans
        Random plans of each problem; None for the usual number.

    Returns
    -------
    bool
        Whether every plan gave a right result.
    """
    procedure, outputs, plans = job.procedure, job.outputs, plans or tiles.RANDOM_PLANS
    problems = find_case_or_suite(job.suite, chosen=job.chosen, dtype=job.dtype)
    outputs.check()
    machine, screen = Machine.load(job.machine), console()
    start = _begin(trials.Studies, job, machine, plans)
    waiting = {name: p for name, p in problems.items() if not start.has(name, p)}
    print_estimate(tiles.estimate_studies(waiting, machine, procedure, plans).values())
    study = partial(tiles.study_problems, problems, machine, procedure, start)
    found = _carry_out(study, start, outputs, "studying")
    for case in found.cases:
        if case.trials:
            rows = trials.list_trial_rows(case)
            screen.print(text_table(str(case.problem), trials.TRIAL_COLUMNS, rows))
    screen.print(*trials.summarize_studies(found.cases), sep="\n")
    return not any(case.fault for case in found.cases)


def study_ranking(job: Job, plans: int | None) -> bool:
    """Rank and run the variants of a problem, or of each of a suite, and print what was found.

    Parameters
    ----------
    job
        The problems, how to measure, and what to write.
    plans
        Variants of each problem; None for the usual number.

    Returns
    -------
    bool
        Whether every variant gave a right result.
    """
    procedure, outputs, plans = job.procedure, job.outputs, plans or ranking.VARIANTS
    problems = find_case_or_suite(job.suite, chosen=job.chosen, dtype=job.dtype)
    outputs.check()
    machine, screen = Machine.load(job.machine), console()
    start = _begin(ranked.RankedCases, job, machine, plans)
    waiting = {name: p for name, p in problems.items() if not start.has(name, p)}
    print_estimate(ranking.estimate_rankings(waiting, machine, procedure, plans).values())
    study = partial(ranking.study_rankings, problems, machine, procedure, start)
    found = _carry_out(study, start, outputs, "ranking")
    if outputs.page is not None:
        write_section(outputs.page, f"ranking {name_section(found)}", ranked.render_rankings(found))
    rows, columns = ranked.list_rank_rows(found), ranked.list_rank_columns()
    screen.print(text_table("shares of the fastest variant's speed", columns, rows))
    for what, value in ranked.summarize_rankings(list(found.rankings.values())).items():
        screen.print(f"{what}: {value}")
    screen.print(*ranked.list_rank_notes(found), sep="\n")
    return not any(case.fault for case in found.cases)


def study_tilings(job: Job, plans: int | None) -> bool:
    """Price and run random tiles of the nests of a suite that sum, and print what was found.

    Parameters
    ----------
    job
        The nests, how to measure, and what to write.
    plans
        Tilings of each nest; None for the usual number.

    Returns
    -------
    bool
        Whether every tiling gave a right result.
    """
    procedure, outputs, plans = job.procedure, job.outputs, plans or tilings.RANDOM_TILINGS
    nests = tilings.find_temporal(find_nests(job.suite, chosen=job.chosen))
    outputs.check()
    machine, screen = Machine.load(job.machine), console()
    start = _begin(tiled.TiledNests, job, machine, plans)
    waiting = {name: one for name, one in nests.items() if not start.has(name, one)}
    print_estimate(tilings.estimate_tilings(waiting, plans).values())
    study = partial(tilings.study_nests, nests, machine, procedure, start)
    found = _carry_out(study, start, outputs, "studying")
    if outputs.page is not None:
        write_section(outputs.page, f"tilings {name_section(found)}", tiled.render_tilings(found))
    for what, value in tiled.list_tiling_facts(found).items():
        screen.print(f"{what}: {value}")
    rows, columns = tiled.list_tiling_rows(found), tiled.list_tiling_columns()
    screen.print(text_table("", columns, rows, tiled.TILING_UNITS))
    for what, value in tiled.summarize_tilings(found).items():
        screen.print(f"{what}: {value}")
    screen.print(*tiled.list_tiling_notes(found), sep="\n")
    return not any(case.fault for case in found.cases)


def study_tries(job: Job, count: int | None) -> bool:
    """Run plans with and without tries of a problem, or of each of a suite, and print them.

    Parameters
    ----------
    job
        The problems, how to measure, and what to write.
    count
        Tries; None for the usual number.

    Returns
    -------
    bool
        Whether every plan gave a right result.
    """
    procedure, outputs, count = job.procedure, job.outputs, count or tries.TRIES
    problems = find_case_or_suite(job.suite, chosen=job.chosen, dtype=job.dtype)
    outputs.check()
    machine, screen = Machine.load(job.machine), console()
    start = _begin(tries.AllTried, job, machine, count)
    waiting = {name: p for name, p in problems.items() if not start.has(name, p)}
    print_estimate(tries.estimate_tries(waiting, machine, procedure).values())
    study = partial(tries.study_tries, problems, machine, procedure, start)
    found = _carry_out(study, start, outputs, "trying")
    if outputs.page is not None:
        write_section(outputs.page, f"tries {name_section(found)}", tries.render_tries(found))
    rows = tries.list_tried_rows(found)
    screen.print(text_table("plans without and with tries", tries.TRIED_COLUMNS, rows))
    for what, value in tries.summarize_tries(found).items():
        screen.print(f"{what}: {value}")
    screen.print(*tries.list_notes(found), sep="\n")
    return not any(case.fault for case in found.cases)


def _carry_out(
    study: Callable[[Callable[[Some], None], Progress], Some],
    start: Some,
    outputs: Outputs,
    label: str,
) -> Some:
    """Return all cases of a study, kept as they come, and written as CSV."""
    with keep_results(start, outputs.json) as keeper, progress_bar(label) as tell:
        study(keeper.update, tell)
    if outputs.csv is not None:
        write_atomically(outputs.csv, keeper.found.to_csv())
    return keeper.found


def _begin(kind: type[Some], job: Job, machine: Machine, plans: int) -> Some:
    """Return what a study goes on with: nothing, or what its file has already."""
    start = kind(
        collect_conditions(job.suite, job.dtype, (), machine, job.procedure, plans),
        collect_provenance(machine, job.command),
        machine.to_toml(),
        (),
    )
    return start if job.outputs.json is None else start.resume(job.outputs.json)


def study_misses(name: str, machine: str | None) -> None:
    """Print predicted and simulated misses of a case, a suite, or the paper's four contractions."""
    problems = find_case_or_suite(name) if name else misses.list_paper_problems()
    found, screen = Machine.load(machine or misses.PAPER_MACHINE), console()
    rows: list[tuple[str, ...]] = []
    with progress_bar("simulating") as tell:
        for at, (key, problem) in enumerate(problems.items()):
            tell(at / len(problems), key)
            rows += misses.list_miss_rows(key, problem, found)
        tell(1.0, "")
    title = f"Lines that the caches of {found.name} miss, by the plan's nest"
    screen.print(text_table(title, misses.MISS_COLUMNS, rows))
    screen.print(
        "Where a part was simulated, its first steps stand for the rest. The paper's figures "
        "are those of its own tiles, without packing."
    )
