"""A sweep of nests as a report: nests with the worst first, and means."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path

from tilesolve.bench.contenders import ALIGNED, BASELINE, OURS, THESIS
from tilesolve.bench.nests import NestCase
from tilesolve.bench.results.report import (
    Report,
    fill_row,
    format_entry,
    format_figure,
    geometric_mean,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import NestSweep, Result
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

NEST_UNITS = (
    "times of runs; GB/s: bytes of all arrays, each once, in our time; ratios are of others' time "
    "to ours; aligned: ours with arrays that begin with lines; baseline and thesis are of the same "
    "generator"
)
"""What stands below the table of nests."""


def report_nests(sweep: NestSweep) -> Report:
    """Return what there is to show of a sweep of nests."""
    made = sweep.conditions
    heading = f"{Path(made.suite).stem}, {format_count(made.threads, 'thread')}"
    table = Table("", list_nest_columns(sweep), list_nest_rows(sweep))
    return Report.of_sweep(sweep, heading, NEST_UNITS, list_nest_means(sweep), table)


def list_nest_columns(sweep: NestSweep) -> dict[str, str]:
    """Return the headers of the table of nests, each with the side that its cells stand on."""
    ratios = ("to best peer", "to aligned", "to baseline", "to thesis")
    figures = ("GB/s", *ratios, "predicted", "planning", *list_contenders(sweep))
    return {"nest": "left", "class and route": "left"} | dict.fromkeys(figures, "right")


def list_nest_rows(sweep: NestSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of nests, worst first."""
    names, columns = list_contenders(sweep), list_nest_columns(sweep)
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append(fill_row((case.name, "skipped"), columns))
            continue
        entry = case.entries.get(OURS)
        planning = entry.preparation if entry else None
        found.append(
            (
                case.name,
                case.plan.how or "-",
                format_figure(_nest_of(case).volume / case.ours / 1e9, "{:.3g}"),
                format_figure(case.ratio()),
                *(format_figure(case.ratio(name)) for name in (ALIGNED, BASELINE, THESIS)),
                format_figure(case.plan.predicted / case.ours),
                "-" if planning is None else format_duration(planning),
                *(format_entry(case, name, format_duration(case.seconds(name))) for name in names),
            )
        )
    return found


def _nest_of(case: Result) -> NestCase:
    assert isinstance(case.case, NestCase)
    return case.case


def list_nest_means(sweep: NestSweep) -> dict[str, str]:
    """Return geometric means by what is meant: of nests that sum, and of others."""
    found: dict[str, str] = {}
    kinds: list[tuple[str, Callable[[NestCase], bool]]] = [
        ("all", lambda _: True),
        ("temporal", lambda nest: nest.temporal),
        ("others", lambda nest: not nest.temporal),
    ]
    names = [name for name in list_contenders(sweep) if name != OURS]
    for what, of_kind in kinds:
        own = [case for case in sweep.cases if of_kind(_nest_of(case))]
        found |= _describe(own, f"{what}, to the best peer", "")
        for name in names:
            found |= _describe(own, f"{what}, to {name}", name)
            if name == BASELINE and THESIS in names:
                found |= _describe(own, f"{what}, thesis to baseline", BASELINE, THESIS)
    return found


def _describe(cases: list[Result], what: str, peer: str, mine: str = OURS) -> dict[str, str]:
    ratios = [(case.ratio(peer, mine=mine), case.name) for case in cases]
    known = [(ratio, name) for ratio, name in ratios if isfinite(ratio)]
    if not known:
        return {}
    worst, name = min(known)
    ahead = sum(value >= 1 for value, _ in known)
    mean = geometric_mean([value for value, _ in known])
    return {what: f"{mean:.2f}, ahead in {ahead} of {len(known)}, worst {worst:.2f} ({name})"}
