"""What ``tilesolve bench`` does with its options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilesolve.bench.cases import find_case_or_suite, find_cases
from tilesolve.bench.contenders import OURS, parse_contenders
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.comparison import COLUMNS, compare_sweeps
from tilesolve.bench.results.provenance import collect_conditions, collect_provenance
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.summary import (
    list_columns,
    list_facts,
    list_means,
    list_notes,
    list_rows,
    markdown,
    write_between,
)
from tilesolve.bench.results.sweeps import Sweep
from tilesolve.bench.run.sweep import begin_sweep, estimate_cases, run_sweep
from tilesolve.bench.studies import tiles, trials
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import console, progress_bar, text_table
from tilesolve.show.pictures import check_drawing, check_picture
from tilesolve.system.files import check_writable, write_atomically
from tilesolve.system.units import format_count

Some = TypeVar("Some", bound=Record[Any])

MARKER = "running"
"""Name of the markers between which a README's table stands."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that a sweep is written to, and the one that it is compared with.

    Parameters
    ----------
    json, csv, plot, html, readme
        Where to write; None for nowhere.
    compare
        An older sweep; None for none.

    Examples
    --------
    >>> Outputs(compare=Path("missing.json")).check()
    Traceback (most recent call last):
    tilesolve.contractions.errors.BenchmarkError: cannot read missing.json: No such file or \
directory
    """

    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    html: Path | None = None
    readme: Path | None = None
    compare: Path | None = None

    def check(self) -> None:
        """Refuse what could not be read or written, before anyone works for it."""
        written = [p for p in (self.json, self.csv, self.plot, self.html, self.readme) if p]
        for one, other in combinations(written, 2):
            if os.path.realpath(one) == os.path.realpath(other):
                raise BenchmarkError(f"two outputs have one file: {one} and {other}")
        for path in (self.json, self.csv, self.html):
            if path is not None:
                check_writable(path)
        if self.plot is not None:
            check_picture(self.plot)
        if self.html is not None:
            check_drawing(self.html)  # the page has its pictures inside
        if self.readme is not None:
            write_between(self.readme, MARKER, None)
        if self.compare is not None:
            Sweep.read(self.compare)


def bench(
    suite: str,
    *,
    chosen: Sequence[str],
    peers: str,
    dtype: str | None,
    procedure: Procedure,
    machine: str | None,
    outputs: Outputs,
) -> bool:
    """Measure a suite, show it, and write what is asked for.

    Returns
    -------
    bool
        Whether plans gave a right result on every case that was not skipped.

    Examples
    --------
    $ tilesolve bench gemm --case 'GNMT-*' --peers numpy --repeat 3 --json gemm.json
    """
    problems = find_cases(suite, chosen=chosen, dtype=dtype)
    everyone = parse_contenders(peers, procedure.threads)
    outputs.check()
    found_machine = Machine.load(machine)
    start = begin_sweep(suite, dtype, everyone, found_machine, procedure)
    if outputs.json is not None:
        start = start.resume(outputs.json)
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    tell_time(estimate_cases(waiting, everyone, found_machine, procedure).values())
    with keeping(start, outputs.json) as kept, progress_bar("measuring") as report:
        run_sweep(problems, everyone, found_machine, procedure, start, kept.update, report)
    found = kept.found
    write(found, outputs)  # before it is shown: who reads that may have gone
    show(found)
    if outputs.compare is not None:
        show_changes(found, outputs.compare)
    return not any(OURS in c.entries and not c.entries[OURS].seconds for c in found.cases)


class Keeper(Generic[Some]):
    """The latest of what is found, written to a file as it comes.

    Parameters
    ----------
    found
        What there is at first.
    path
        The file; None for none.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> nothing = Sweep(Settings("mine", None, 1, 1, 5, {}, ""), {}, "", ())
    >>> keeper = Keeper(nothing, None)
    >>> keeper.update(nothing)
    >>> keeper.found is nothing
    True
    """

    def __init__(self, found: Some, path: Path | None) -> None:
        self.found, self.path = found, path

    def update(self, found: Some) -> None:
        """Take what is found now in the place of what was before."""
        self.found = found
        if self.path is not None:
            found.save(self.path)


@contextmanager
def keeping(start: Some, path: Path | None) -> Iterator[Keeper[Some]]:
    """Give what keeps results; say what is kept if the work is interrupted.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> nothing = Sweep(Settings("mine", None, 1, 1, 5, {}, ""), {}, "", ())
    >>> with keeping(nothing, None) as kept:
    ...     kept.update(nothing)
    """
    keeper = Keeper(start, path)
    try:
        yield keeper
    except KeyboardInterrupt:
        where = f"kept in {path}" if path else "lost, as --json names no file"
        print(
            f"interrupted: {format_count(len(keeper.found.cases), 'case')} {where}; "
            "with the same --json the command goes on from there",
            file=sys.stderr,
        )
        raise


def tell_time(seconds: Iterable[float]) -> None:
    """Say on standard error how many cases are to be measured, and how long that takes, about.

    Examples
    --------
    >>> tell_time([60.0, 120.0])
    """
    each = list(seconds)
    print(f"{format_count(len(each), 'case')}, about {sum(each) / 60:.0f} min", file=sys.stderr)


def study_tiles(
    name: str,
    *,
    chosen: Sequence[str],
    dtype: str | None,
    procedure: Procedure,
    plans: int,
    machine: str | None,
    outputs: Outputs,
) -> trials.Studies:
    """Study the tiles of a problem, or of each problem of a suite, and print what was found.

    Examples
    --------
    $ tilesolve bench abc-bda-dc --study tiles --repeat 3
    $ tilesolve bench tccg --study tiles --case 'abcdef-*' --plans 4 --json tiles.json
    """
    problems = find_case_or_suite(name, chosen=chosen, dtype=dtype)
    outputs.check()
    found_machine, screen = Machine.load(machine), console()
    start = trials.Studies(
        collect_conditions(name, dtype, (), found_machine, procedure, plans),
        collect_provenance(found_machine),
        found_machine.to_toml(),
        (),
    )
    if outputs.json is not None:
        start = start.resume(outputs.json)
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    tell_time(tiles.estimate_studies(waiting, found_machine, procedure, plans).values())
    with keeping(start, outputs.json) as kept, progress_bar("studying") as report:
        tiles.study_problems(problems, found_machine, procedure, start, kept.update, report)
    found = kept.found
    if outputs.csv is not None:
        write_atomically(outputs.csv, found.to_csv())
    for case in found.cases:
        if case.trials:
            screen.print(
                text_table(str(case.problem), trials.TRIAL_COLUMNS, trials.list_trial_rows(case))
            )
    screen.print(*trials.summarize_studies(found.cases), sep="\n")
    return found


def study_misses(name: str, *, machine: str | None) -> None:
    """Print predicted and simulated misses of a case, a suite, or the paper's four contractions.

    Examples
    --------
    $ tilesolve bench --study misses
    """
    from tilesolve.bench.studies import misses

    problems = find_case_or_suite(name) if name else misses.list_paper_problems()
    found_machine, screen = Machine.load(machine or misses.PAPER_MACHINE), console()
    rows: list[tuple[str, ...]] = []
    with progress_bar("simulating") as report:
        for at, (key, problem) in enumerate(problems.items()):
            report(at / len(problems), key)
            rows += misses.list_miss_rows(key, problem, found_machine)
        report(1.0, "")
    title = f"Lines that the caches of {found_machine.name} miss, by the plan's nest"
    screen.print(text_table(title, misses.MISS_COLUMNS, rows))
    screen.print(
        "Where a part was simulated, its first steps stand for the rest. The paper's figures "
        "are those of its own tiles, without packing."
    )


def show(found: Sweep) -> None:
    """Print a sweep.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> settings = Settings("mine", None, 1, 1, 5, {}, "")
    >>> show(Sweep(settings, {"CPU": "fast"}, "", ()))  # doctest: +ELLIPSIS
    CPU: fast
    ...
    """
    screen = console()
    for what, value in list_facts(found).items():
        screen.print(f"{what}: {value}")
    for label in found.conditions.contenders.values():
        screen.print(f"- {label}")
    caption = "speeds in GFLOP/s, memory beside the tensors; predicted over measured time"
    screen.print(text_table("", list_columns(found), list_rows(found), caption))
    screen.print(*list_means(found), *list_notes(found), sep="\n")


def write(found: Sweep, outputs: Outputs) -> None:
    """Write a sweep to the files that are asked for.

    Examples
    --------
    >>> from tilesolve.bench.results.record import Settings
    >>> write(Sweep(Settings("mine", None, 1, 1, 5, {}, ""), {}, "", ()), Outputs())
    """
    if outputs.csv is not None:
        write_atomically(outputs.csv, found.to_csv())
    if outputs.plot is not None:
        from tilesolve.bench.results.charts import draw_sweep

        draw_sweep(found, outputs.plot)
    if outputs.html is not None:
        from tilesolve.bench.results.html_page import render_html

        write_atomically(outputs.html, render_html(found))
    if outputs.readme is not None:
        write_between(outputs.readme, MARKER, markdown(found))


def show_changes(found: Sweep, older: Path) -> None:
    """Print a sweep beside an older one.

    Examples
    --------
    >>> import tempfile
    >>> from tilesolve.bench.results.record import Settings
    >>> nothing = Sweep(Settings("mine", None, 1, 1, 5, {}, ""), {}, "", ())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nothing.keep(Path(folder) / "old.json")
    ...     show_changes(nothing, Path(folder) / "old.json")  # doctest: +ELLIPSIS
    Beside ...
    The two sweeps have nothing in common.
    """
    changed, lines = compare_sweeps(Sweep.read(older), found)
    screen = console()
    screen.print(text_table(f"Beside {older}", COLUMNS, changed))
    screen.print(*lines, sep="\n")
