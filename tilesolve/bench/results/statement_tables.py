"""A sweep of drawn statements as a report: statements with the worst first, and means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from tilesolve.bench.contenders import OURS
from tilesolve.bench.nests import StatementCase
from tilesolve.bench.results.report import (
    Report,
    fill_row,
    format_entry,
    format_figure,
    geometric_mean,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import Result, StatementSweep
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration, format_size

NEAR_FACTOR = 1.5
"""By how much a prediction that is near differs at most."""

STATEMENT_UNITS = (
    "times are of one of several runs in a row; GB/s: bytes of what is given and returned, each "
    "once; Gop/s: operations as written; to best peer: its time over ours; predicted, cold: over "
    "our time, cold with caches written over before; out: time with an array for the result, which "
    "begins 0, 16 and 40 bytes after a line, over that without"
)
"""What stands below the table of drawn statements."""


def report_statements(sweep: StatementSweep) -> Report:
    """Return what there is to show of a sweep of drawn statements."""
    made = sweep.conditions
    heading = f"{made.suite}, {format_count(made.threads, 'thread')}"
    table = Table("", list_statement_columns(sweep), list_statement_rows(sweep))
    means = list_statement_means(sweep)
    return Report.of_sweep(sweep, heading, STATEMENT_UNITS, means, table)


def list_statement_columns(sweep: StatementSweep) -> dict[str, str]:
    """Return the headers of the table, each with the side that its cells stand on."""
    words = ("statement", "sizes", "dtype", "class and route")
    figures = ("bytes", "GB/s", "Gop/s", "to best peer", "predicted", "cold", "out", "planning")
    return dict.fromkeys(words, "left") | dict.fromkeys(
        (*figures, *list_contenders(sweep)), "right"
    )


def list_statement_rows(sweep: StatementSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table, worst first."""
    names, columns = list_contenders(sweep), list_statement_columns(sweep)
    found = []
    for case in sort_cases(sweep):
        own = _statement_of(case)
        _, sizes, dtype = own.list_cells()
        if case.skipped:
            found.append(fill_row((case.name, sizes, dtype, "skipped"), columns))
            continue
        entry = case.entries.get(OURS)
        planning = entry.preparation if entry else None
        found.append(
            (
                *(case.name, sizes, dtype, case.plan.how or "-", format_size(own.volume)),
                format_figure(own.volume / case.ours / 1e9, "{:.3g}"),
                format_figure(own.work_count / case.ours / 1e9, "{:.3g}"),
                format_figure(case.ratio()),
                format_figure(case.plan.predicted / case.ours),
                format_figure(case.plan.cold / case.ours),
                " ".join(format_figure(one) for one in case.plan.outs) or "-",
                "-" if planning is None else format_duration(planning),
                *(format_entry(case, name, format_duration(case.seconds(name))) for name in names),
            )
        )
    return found


def _statement_of(case: Result) -> StatementCase:
    assert isinstance(case.case, StatementCase)
    return case.case


def list_statement_means(sweep: StatementSweep) -> dict[str, str]:
    """Return geometric means of all and of each family, and how near predictions are."""
    done = [case for case in sweep.cases if not case.skipped]
    families = sorted({_statement_of(case).family for case in done})
    groups = {"all": done} | {
        one: [case for case in done if _statement_of(case).family == one] for one in families
    }
    found = {}
    for what, cases in groups.items():
        found |= _describe(f"{what}, to best peer", {one.name: one.ratio() for one in cases})
        found |= _count_near(f"{what}, predicted", (one.plan.predicted / one.ours for one in cases))
    found |= _count_near(
        "all, predicted to cold", (one.plan.predicted / one.plan.cold for one in done)
    )
    outs = {one.name: 1 / max(one.plan.outs) for one in done if one.plan.outs}
    return found | _describe("all, without out to with it", outs)


def _describe(what: str, ratios: Mapping[str, float]) -> dict[str, str]:
    known = {name: ratio for name, ratio in ratios.items() if isfinite(ratio)}
    if not known:
        return {}
    worst = min(known, key=known.__getitem__)
    ahead = sum(value >= 1 for value in known.values())
    mean = geometric_mean([*known.values()])
    return {
        what: f"{mean:.2f}, ahead in {ahead} of {len(known)}, worst {known[worst]:.2f} ({worst})"
    }


def _count_near(what: str, ratios: Iterable[float]) -> dict[str, str]:
    known = [ratio for ratio in ratios if isfinite(ratio)]
    near = sum(1 / NEAR_FACTOR <= ratio <= NEAR_FACTOR for ratio in known)
    if not known:
        return {}
    return {
        what: f"{geometric_mean(known):.2f}, within {NEAR_FACTOR:g} × in {near} of {len(known)}"
    }
