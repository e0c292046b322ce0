"""The studies by name, and the one that prints what it simulates."""

from __future__ import annotations

from collections.abc import Mapping

from tilesolve.bench.cases import find_case_or_suite
from tilesolve.machine.model import Machine
from tilesolve.show.console_tables import console, progress_bar
from tilesolve.studies import misses, nest_tiles, plan_tiles, price_results, rankings, tries
from tilesolve.studies.method import Method
from tilesolve.system.tables import Table

METHODS: Mapping[str, Method] = {
    "tiles": plan_tiles.METHOD,
    "ranking": rankings.METHOD,
    "tilings": nest_tiles.METHOD,
    "tries": tries.METHOD,
    "price": price_results.METHOD,
}
"""The studies that are kept and written, by the name that the command has for them."""


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
    screen.print(Table(title, misses.MISS_COLUMNS, rows))
    screen.print(
        "Where a part was simulated, its first steps stand for the rest. The paper's figures "
        "are those of its own tiles, without packing."
    )
