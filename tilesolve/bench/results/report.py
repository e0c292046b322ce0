"""What a command found, as a value: its tables, means and notes, on a console or on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, isnan, log
from pathlib import Path
from typing import Any

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.sweeps import Result, SweepRecord
from tilesolve.show.console_tables import console
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

NOT_INSTALLED = "not installed"
"""The reason of a contender that could not take part; it gets no column."""


@dataclass(frozen=True, slots=True)
class Report:
    """The tables, means and notes of a command's results.

    Parameters
    ----------
    heading
        Of a section.
    facts
        Where and how it was measured, as names and values.
    units
        The meaning of the cells.
    means
        The means over all cases, as names and values.
    tables
        The cases.
    notes
        Lines that say which cases were not measured, and why.
    contenders
        The contenders, with versions and settings.
    summed
        The heading of the means.
    """

    heading: str
    facts: Mapping[str, str]
    units: str
    means: Mapping[str, str]
    tables: Sequence[Table]
    notes: Sequence[str]
    contenders: Sequence[str] = ()
    summed: str = "all cases"

    @classmethod
    def of_sweep(
        cls, sweep: SweepRecord, heading: str, units: str, means: Mapping[str, str], *tables: Table
    ) -> Report:
        """Return what there is to show of a sweep."""
        facts, notes = list_facts(sweep), list_notes(sweep)
        contenders = list(sweep.conditions.contenders.values())
        return cls(heading, facts, units, means, tables, notes, contenders, "geometric means")

    def render_section(self) -> str:
        """Return the section of a page."""
        return "\n".join(self._render())

    def _render(self) -> Iterator[str]:
        yield f"## {self.heading}"
        yield from Table.of_pairs("measured", {**self.facts, "units": self.units}).markdown()
        if self.contenders:
            labels = [tuple(label.split(": ", 1)) for label in self.contenders]
            columns = dict.fromkeys(("contender", "version and settings"), "left")
            yield from Table("", columns, labels).markdown()
        if self.means:
            yield from Table.of_pairs(self.summed, self.means).markdown()
        for table in self.tables:
            yield from table.markdown()
        if self.notes:
            notes = [(note,) for note in self.notes]
            yield from Table("", {"notes": "left"}, notes).markdown()

    def print_all(self) -> None:
        """Print it to the console."""
        screen = console()
        for what, value in self.facts.items():
            screen.print(f"{what}: {value}")
        for label in self.contenders:
            screen.print(f"- {label}")
        for table in self.tables:
            screen.print(table)
        if self.units:
            screen.print(self.units)
        if self.means:
            screen.print(Table.of_pairs(self.summed, self.means))
        for note in self.notes:
            screen.print(note)


def list_facts(record: Record[Any]) -> dict[str, str]:
    """Return what a reader has to know of results: where they were made, and how."""
    made = record.conditions
    batch = "" if made.batch == 1 else f", {made.batch} processes side by side"
    dtype = f", {made.dtype}" if made.dtype else ""
    placed = "" if made.offset is None else ", arrays as numpy allocates them"
    held = "hold what earlier runs left" if record.CASE.WARM else "flushed before each run"
    budget = f", fewer past {made.seconds:g} s a case" if made.seconds else ""
    return {
        **record.provenance,
        "settings": f"suite {made.suite}{dtype}, {format_count(made.threads, 'thread')}{batch}, "
        f"median of {made.repeat} rounds in turns{budget}, caches {held}{placed}",
    }


def describe_suite(sweep: SweepRecord) -> str:
    """Return the suite, dtypes and threads of a sweep, as its heading names them."""
    made = sweep.conditions
    dtypes = made.dtype or ", ".join(dict.fromkeys(case.case.dtype for case in sweep.cases))
    return f"{Path(made.suite).stem}, {dtypes}, {format_count(made.threads, 'thread')}"


def list_contenders(sweep: SweepRecord) -> list[str]:
    """Return the contenders that are installed, in the order in which they were named."""
    measured = [case.entries for case in sweep.cases if case.entries]
    return [
        name
        for name in sweep.conditions.contenders
        if not measured
        or any(name in entries and entries[name].reason != NOT_INSTALLED for entries in measured)
    ]


def sort_cases(sweep: SweepRecord) -> list[Result]:
    """Return the cases: without a result, then by the ratio to the best peer, skipped ones last.

    Where there is no peer, the share of the roofline counts.
    """

    def sort_key(case: Result) -> tuple[bool, float, float]:
        ratio, reached = case.ratio(), case.reached(case.mine)
        return (
            bool(case.skipped),
            ratio if isfinite(ratio) else -inf if isnan(case.ours) else inf,
            0.0 if isnan(reached) else reached,
        )

    return sorted(sweep.cases, key=sort_key)


def list_notes(sweep: SweepRecord) -> list[str]:
    """Return a line for each contender that is absent or failed, and for what was skipped."""
    there = list_contenders(sweep)
    found = [
        f"{name}: {NOT_INSTALLED}" for name in sweep.conditions.contenders if name not in there
    ]
    for case in sort_cases(sweep):
        if case.skipped:
            found.append(f"{case.name}: {case.skipped}")
        found += [
            f"{case.name}, {name}: {entry.reason}"
            for name, entry in case.entries.items()
            if entry.reason and name in there
        ]
    return found


def format_figure(value: float, form: str = "{:.2f}") -> str:
    """Return a figure as a cell; a dash where it is not known.

    Examples
    --------
    >>> format_figure(0.5, "{:.0%}"), format_figure(float("nan"))
    ('50%', '-')
    """
    return form.format(value) if isfinite(value) else "-"


def format_entry(case: Result, name: str, written: str) -> str:
    """Return the cell of a contender as it is written, or the first word of why it has no time."""
    entry = case.entries.get(name)
    if entry is None:
        return "-"
    return written if entry.seconds else entry.reason.split()[0].strip(":,")


def format_sizes(case: Result) -> str:
    """Return the sizes of what a case computes."""
    _, sizes, _ = case.case.list_cells()
    return sizes


def format_seconds(found: float | None) -> str:
    """Return a duration as a cell; a dash where there is none."""
    return "-" if found is None else format_duration(found)


def format_preparation(case: Result) -> str:
    """Return how long ours took to be ready."""
    entry = case.entries.get(OURS)
    return format_seconds(entry.preparation if entry else None)


def format_speed(case: Result, name: str) -> str:
    """Return a contender's GFLOP/s, or the first word of why there are none."""
    return format_entry(case, name, f"{case.speed(name) / 1e9:.3g}")


def fill_row(cells: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the first cells of a row with empty ones after them."""
    return (*cells, *[""] * (len(columns) - len(cells)))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))
