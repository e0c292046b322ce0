"""A sweep beside an older one: who has become faster or slower, by more than rounds differ."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.report import geometric_mean
from tilesolve.bench.results.sweeps import Entry, Sweep
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration


@dataclass(frozen=True, slots=True)
class Change:
    """One contender on one case, then and now.

    Examples
    --------
    >>> Change("matmul", "numpy", Entry((2.0, 2.2)), Entry((1.0, 1.2))).verdict
    'faster'
    >>> Change("matmul", "numpy", Entry((2.0, 2.2)), Entry((1.9, 2.3))).verdict
    ''
    """

    case: str
    contender: str
    old: Entry
    new: Entry

    @property
    def ratio(self) -> float:
        """How many times faster it is now."""
        return self.old.median / self.new.median

    @property
    def verdict(self) -> str:
        """``faster`` or ``slower`` if every round of now is; empty otherwise."""
        if max(self.new.seconds) < min(self.old.seconds):
            return "faster"
        return "slower" if min(self.new.seconds) > max(self.old.seconds) else ""


def find_changes(old: Sweep, new: Sweep) -> list[Change]:
    """Return what both sweeps measured, tilesolve first, what has become slowest first."""
    before = {(case.name, case.problem): case for case in old.cases}
    found = [
        Change(case.name, name, then.entries[name], entry)
        for case in new.cases
        if (then := before.get((case.name, case.problem)))
        for name, entry in case.entries.items()
        if entry.seconds and name in then.entries and then.entries[name].seconds
    ]
    return sorted(found, key=lambda change: (change.contender != OURS, change.ratio))


def compare_sweeps(old: Sweep, new: Sweep, title: str = "") -> tuple[Table, list[str]]:
    """Return a table of changes and lines that sum them up."""
    every = find_changes(old, new)
    rows: list[tuple[str, ...]] = [
        (
            change.case,
            change.contender,
            format_duration(change.old.median),
            format_duration(change.new.median),
            f"{change.ratio:.2f}",
            change.verdict,
        )
        for change in every
    ]
    lines = [
        f"{what} differs: {then!r} then, {now!r} now"
        for what, then, now in (
            ("machine", old.conditions.machine, new.conditions.machine),
            ("threads", old.conditions.threads, new.conditions.threads),
            ("batch", old.conditions.batch, new.conditions.batch),
            ("offset", old.conditions.offset, new.conditions.offset),
        )
        if then != now
    ]
    for name in dict.fromkeys(change.contender for change in every):
        own = [change for change in every if change.contender == name]
        counts = [sum(c.verdict == verdict for c in own) for verdict in ("faster", "slower")]
        speed = geometric_mean([change.ratio for change in own])
        lines.append(
            f"{name}: {speed:.3f} times as fast as then over {format_count(len(own), 'case')}; "
            f"{counts[0]} faster, {counts[1]} slower in every round"
        )
    if not every:
        lines.append("The two sweeps have nothing in common.")
    return Table(title, COLUMNS, rows), lines


COLUMNS = {
    "case": "left",
    "contender": "left",
    "then": "right",
    "now": "right",
    "times as fast": "right",
    "every round": "left",
}
"""Headers of the rows, and the side on which cells stand."""
