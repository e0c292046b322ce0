"""A sweep on the console."""

from __future__ import annotations

from pathlib import Path

from tilesolve.bench.results.comparison import COLUMNS, compare_sweeps
from tilesolve.bench.results.summary import (
    UNITS,
    list_columns,
    list_facts,
    list_means,
    list_notes,
    list_rows,
)
from tilesolve.bench.results.sweeps import Sweep
from tilesolve.show.console_tables import console, text_table


def print_sweep(sweep: Sweep) -> None:
    """Print where a sweep comes from, its table, means and notes."""
    screen = console()
    for what, value in list_facts(sweep).items():
        screen.print(f"{what}: {value}")
    for label in sweep.conditions.contenders.values():
        screen.print(f"- {label}")
    screen.print(text_table("", list_columns(sweep), list_rows(sweep), UNITS))
    means = list_means(sweep).items()
    screen.print(text_table("", {"geometric means": "left", "": "left"}, means))
    for note in list_notes(sweep):
        screen.print(note)


def print_changes(sweep: Sweep, older: Path) -> None:
    """Print a sweep beside an older one."""
    rows, lines = compare_sweeps(Sweep.read(older), sweep)
    screen = console()
    screen.print(text_table(f"Beside {older}", COLUMNS, rows))
    screen.print(*lines, sep="\n")
