"""A sweep of whole networks as a report: the worst first, and means."""

from __future__ import annotations

from collections.abc import Callable

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.nest_tables import describe_ratios
from tilesolve.bench.results.report import (
    Report,
    fill_row,
    format_entry,
    format_figure,
    format_preparation,
    format_seconds,
    format_sizes,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import NetworkSweep, Result
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

NETWORK_UNITS = (
    "times of one of several runs in a row, the model's inputs given and its outputs returned; "
    "ratios are of others' time to ours; predicted: over our time; cold: with caches written over "
    "before, over our time; loading: with no plan kept, after imports; again: with plans kept, by "
    "a new process, imports included"
)
"""What stands below the table of networks."""


_CELLS: dict[str, Callable[[Result], str]] = {
    "network": lambda case: case.name,
    "inputs": format_sizes,
    "what runs": lambda case: case.plan.how or "-",
    "to best peer": lambda case: format_figure(case.ratio()),
    "predicted": lambda case: format_figure(case.plan.predicted / case.ours),
    "cold": lambda case: format_figure(case.plan.cold / case.ours),
    "loading": format_preparation,
    "again": lambda case: format_seconds(case.plan.again),
}
_LEFT = ("network", "inputs", "what runs")


def report_networks(sweep: NetworkSweep) -> Report:
    """Return what there is to show of a sweep of whole networks."""
    heading = f"whole networks, {format_count(sweep.conditions.threads, 'thread')}"
    names = (*_CELLS, *list_contenders(sweep))
    columns = {name: "left" if name in _LEFT else "right" for name in names}
    rows = [
        fill_row((case.name, "skipped"), columns)
        if case.skipped
        else tuple(
            _CELLS[name](case)
            if name in _CELLS
            else format_entry(case, name, format_duration(case.seconds(name)))
            for name in columns
        )
        for case in sort_cases(sweep)
    ]
    means: dict[str, str] = {}
    for name in ("", *list_contenders(sweep)):
        if name != OURS:
            means |= describe_ratios(list(sweep.cases), f"to {name or 'the best peer'}", name)
    return Report.of_sweep(sweep, heading, NETWORK_UNITS, means, Table("", columns, rows))
