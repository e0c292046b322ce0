"""What ``tilesolve bench`` does with its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesolve.bench import tiles
from tilesolve.bench.cases import cases, found_anywhere
from tilesolve.bench.comparison import COLUMNS, comparison
from tilesolve.bench.contenders import OURS, contenders
from tilesolve.bench.results import Sweep, keep, read, resumed
from tilesolve.bench.summary import (
    columns,
    facts,
    markdown,
    means,
    notes,
    rows,
    write_between,
)
from tilesolve.bench.sweep import Effort, empty, sweep
from tilesolve.contractions.errors import FileAccessError
from tilesolve.files import write_atomically
from tilesolve.machine import Machine
from tilesolve.pictures import check_picture
from tilesolve.tables import console, progress_bar, table

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
        for path in (self.json, self.csv, self.html):
            if path is not None and path.is_dir():
                raise FileAccessError(f"cannot write {path}: it is a folder")
        if self.plot is not None:
            check_picture(self.plot)
        if self.html is not None:
            check_picture(self.html.with_suffix(".svg"))  # the page has its pictures inside
        if self.readme is not None:
            write_between(self.readme, MARKER, None)
        if self.compare is not None:
            read(self.compare)


def bench(
    suite: str,
    *,
    chosen: Sequence[str],
    peers: str,
    dtype: str | None,
    effort: Effort,
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
    problems = cases(suite, chosen=chosen, dtype=dtype)
    everyone = contenders(peers, effort.threads)
    outputs.check()
    found_machine = Machine.load(machine)
    start = empty(suite, dtype, everyone, found_machine, effort)
    if outputs.json is not None:
        start = resumed(outputs.json, start)
    kept = [start]

    def save(found: Sweep) -> None:
        kept[0] = found
        if outputs.json is not None:
            keep(outputs.json, found)

    try:
        with progress_bar("measuring") as report:
            sweep(problems, everyone, found_machine, effort, start, save, report)
    except KeyboardInterrupt:
        where = f"kept in {outputs.json}" if outputs.json else "lost, as --json names no file"
        print(
            f"interrupted: {len(kept[0].cases)} cases are {where}; "
            "with the same --json the command goes on from there",
            file=sys.stderr,
        )
        raise
    found = kept[0]
    show(found)
    write(found, outputs)
    return not any(OURS in c.entries and not c.entries[OURS].seconds for c in found.cases)


def study_tiles(
    name: str, *, dtype: str | None, effort: Effort, machine: str | None
) -> list[tiles.Study]:
    """Study the tiles of a problem, or of each problem of a suite, and print what was found.

    Examples
    --------
    $ tilesolve bench abc-bda-dc --study tiles --repeat 3
    """
    problems = found_anywhere(name, dtype=dtype)
    found_machine, screen = Machine.load(machine), console()
    found = []
    for key, problem in problems.items():
        with progress_bar("studying") as report:
            found.append(tiles.study(key, problem, found_machine, effort, report))
        screen.print(table(str(problem), tiles.COLUMNS, tiles.rows(found[-1])))
        screen.print(tiles.summary(found[-1]))
    if len(found) > 1:
        screen.print("", tiles.overall(found), sep="\n")
    return found


def study_misses(name: str, *, machine: str | None) -> None:
    """Print predicted and simulated misses of a case, a suite, or the paper's four contractions.

    Examples
    --------
    $ tilesolve bench --study misses
    """
    from tilesolve.bench import misses

    problems = found_anywhere(name) if name else misses.problems()
    found_machine, screen = Machine.load(machine or misses.MACHINE), console()
    rows: list[tuple[str, ...]] = []
    with progress_bar("simulating") as report:
        for at, (key, problem) in enumerate(problems.items()):
            report(at / len(problems), key)
            rows += misses.rows(key, problem, found_machine)
        report(1.0, "")
    title = f"Lines that the caches of {found_machine.name} miss, by the plan's nest"
    screen.print(table(title, misses.COLUMNS, rows))
    screen.print(
        "Where a part was simulated, its first steps stand for the rest. The paper's figures "
        "are those of its own tiles, without packing."
    )


def show(found: Sweep) -> None:
    """Print a sweep.

    Examples
    --------
    >>> from tilesolve.bench.results import Settings
    >>> settings = Settings("mine", None, 1, 1, 5, {}, "")
    >>> show(Sweep(settings, {"CPU": "fast"}, "", ()))  # doctest: +ELLIPSIS
    CPU: fast
    ...
    """
    screen = console()
    for what, value in facts(found).items():
        screen.print(f"{what}: {value}")
    for label in found.settings.contenders.values():
        screen.print(f"- {label}")
    caption = "speeds in GFLOP/s, memory beside the tensors; predicted over measured time"
    screen.print(table("", columns(found), rows(found), caption))
    screen.print(*means(found), *notes(found), sep="\n")


def write(found: Sweep, outputs: Outputs) -> None:
    """Write a sweep to the files that are asked for, and compare it.

    Examples
    --------
    >>> from tilesolve.bench.results import Settings
    >>> write(Sweep(Settings("mine", None, 1, 1, 5, {}, ""), {}, "", ()), Outputs())
    """
    screen = console()
    if outputs.csv is not None:
        write_atomically(outputs.csv, found.to_csv())
    if outputs.plot is not None:
        from tilesolve.bench.charts import draw

        draw(found, outputs.plot)
    if outputs.html is not None:
        from tilesolve.bench.page import page

        write_atomically(outputs.html, page(found))
    if outputs.readme is not None:
        write_between(outputs.readme, MARKER, markdown(found))
    if outputs.compare is not None:
        changed, lines = comparison(read(outputs.compare), found)
        screen.print(table(f"Beside {outputs.compare}", COLUMNS, changed))
        screen.print(*lines, sep="\n")
