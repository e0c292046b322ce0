"""What a command is asked for: the problems, how they are measured, and the files to write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.performance_page import (
    check_page,
    find_page,
    name_section,
    write_section,
)
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.report import Report
from tilesolve.bench.results.sweeps import Sweep
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.show.pictures import check_drawing, check_picture
from tilesolve.system.files import check_writable, write_atomically


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that a sweep is written to, and the one that it is compared with.

    Nothing is written to a path that is None. `page` is the page of this CPU, or the folder in
    which it lies; `compare` is an older sweep.
    """

    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    html: Path | None = None
    page: Path | None = None
    compare: Path | None = None

    def check(self) -> None:
        """Refuse what could not be read or written, before anyone works for it."""
        page = find_page(self.page) if self.page is not None else None
        written = [path for path in (self.json, self.csv, self.plot, self.html, page) if path]
        for one, other in combinations(written, 2):
            if os.path.realpath(one) == os.path.realpath(other):
                raise BenchmarkError(f"two outputs have one file: {one} and {other}")
        for path in (self.json, self.csv, self.html):
            if path is not None:
                check_writable(path)
        if self.plot is not None:
            check_picture(self.plot)
        if self.html is not None:
            check_drawing(self.html)  # it has pictures inside
        if page is not None:
            check_page(page)
        if self.compare is not None:
            Sweep.read(self.compare)

    def write(self, found: Record[Any], report: Report, prefix: str = "") -> None:
        """Write results to all files but the JSON, which is written as results come.

        `prefix` is put before the name of the section and names the kind of the results.
        """
        if self.csv is not None:
            write_atomically(self.csv, found.to_csv())
        if self.plot is not None and isinstance(found, Sweep):
            from tilesolve.bench.results.charts import draw_sweep

            draw_sweep(found, self.plot)
        if self.html is not None and isinstance(found, Sweep):
            from tilesolve.bench.results.html_page import render_html

            write_atomically(self.html, render_html(found))
        if self.page is not None:
            write_section(self.page, prefix + name_section(found), report.render_section())


@dataclass(frozen=True, slots=True)
class Job:
    """What a sweep or a study of tiles is asked for.

    The cases are named as `tilesolve.bench.cases.find_cases` takes them. A machine that is None
    is the machine in force. `command` is the command line, for readers of the results.
    """

    suite: str
    chosen: tuple[str, ...]
    dtype: str | None
    machine: str | None
    procedure: Procedure
    outputs: Outputs
    command: str = ""
