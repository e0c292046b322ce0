"""Put the tables that a program prints on the page of this CPU.

    python -m tilesolve.bench.results.record_tables NAME docs/performance examples/planning_speed.py

runs the program, shows what it prints, and writes the tables in it as a section of the page; other
lines become notes.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tilesolve.bench.results.performance_page import check_page, write_section
from tilesolve.bench.results.provenance import collect_provenance
from tilesolve.machine.model import Machine
from tilesolve.system.tables import Table


def render_tables(name: str, lines: Sequence[str], provenance: Mapping[str, str]) -> str:
    """Return a section with the tables among some lines, where they come from, and other lines.

    Examples
    --------
    >>> lines = ["| a |", "| --- |", "| 1 |", "", "took 2 s"]
    >>> print(render_tables("times", lines, {"CPU": "fast"}))
    ## times
    <BLANKLINE>
    | measured |  |
    | --- | --- |
    | CPU | fast |
    <BLANKLINE>
    | a |
    | --- |
    | 1 |
    <BLANKLINE>
    | notes |
    | --- |
    | took 2 s |
    """
    return "\n".join(_render(name, lines, provenance))


def _render(name: str, lines: Sequence[str], provenance: Mapping[str, str]) -> Iterator[str]:
    yield f"## {name}"
    yield from Table.of_pairs("measured", provenance).markdown()
    for is_table, block in groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            yield ""
            yield from block
    notes = [(line,) for line in lines if line.strip() and not line.startswith("|")]
    if notes:
        yield from Table("", {"notes": "left"}, notes).markdown()


def main() -> None:
    """Run the program and write the section, unless the program fails."""
    parser = argparse.ArgumentParser(description="Put tables that a program prints on a page.")
    parser.add_argument("name", help="of the section; it takes the place of the one before")
    parser.add_argument("page", type=Path, help="a file, or a folder of pages")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a script and its arguments")
    given = parser.parse_args()
    check_page(given.page)
    provenance = collect_provenance(Machine.load(), shlex.join(["python", *given.program]))
    lines = []
    command = [sys.executable, *given.program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if child.returncode:
        sys.exit(child.returncode)
    write_section(given.page, given.name, render_tables(given.name, lines, provenance))


if __name__ == "__main__":
    main()
