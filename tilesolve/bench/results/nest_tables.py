"""A sweep of nests, or of drawn statements, as a report: the worst first, and means."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path

from tilesolve.bench.contenders import ALIGNED, BASELINE, OURS, OVERLAP, ROOT, THESIS
from tilesolve.bench.nests import NestCase
from tilesolve.bench.results.report import (
    Report,
    fill_row,
    format_entry,
    format_figure,
    format_preparation,
    format_sizes,
    geometric_mean,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import NestSweep, PipelineSweep, Result, StatementSweep
from tilesolve.contractions.statements.drawn_nests import count_work
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

NEST_UNITS = (
    "times of runs; GB/s: bytes of all arrays, each once, in our time; ratios are of others' time "
    "to ours; aligned: ours with arrays that begin with lines; baseline and thesis are of the same "
    "generator"
)
"""What stands below the table of nests."""


STATEMENT_UNITS = (
    "times are of one of several runs in a row; GB/s: bytes of what is given and returned, each "
    "once; Gop/s: operations, those like exp as several; to best peer: its time over ours; "
    "predicted, cold: over our time, cold with caches written over before; out: time with an array "
    "for the result that begins 0, 16 and 40 bytes after a line, over that without"
)
"""What stands below the table of drawn statements."""

PIPELINE_UNITS = (
    "times of runs; GB/s: bytes of what is given and returned, each once, in our time; ratios are "
    "of others' time to ours; aligned: ours with arrays that begin with lines; root: ours one "
    "stage after another; overlap: ours in tiles that overlap; predicted: over our time"
)
"""What stands below the table of pipelines."""

NEAR_FACTOR = 1.5
"""By how much a prediction that is near differs at most."""


def report_nests(sweep: NestSweep) -> Report:
    """Return what there is to show of a sweep of nests, or of drawn statements."""
    made = sweep.conditions
    units, _, describe = _find_kind(sweep)
    heading = f"{Path(made.suite).stem}, {format_count(made.threads, 'thread')}"
    table = Table("", list_nest_columns(sweep), list_nest_rows(sweep))
    return Report.of_sweep(sweep, heading, units, describe(sweep), table)


def list_nest_columns(sweep: NestSweep) -> dict[str, str]:
    """Return the headers of the table of nests, each with the side that its cells stand on."""
    names = (*_find_kind(sweep)[1], *list_contenders(sweep))
    return {name: "left" if name in _LEFT else "right" for name in names}


def _find_kind(
    sweep: NestSweep,
) -> tuple[str, list[str], Callable[[NestSweep], dict[str, str]]]:
    """Return what stands below the table of a sweep, its columns, and what gives its means."""
    if isinstance(sweep, PipelineSweep):
        return PIPELINE_UNITS, _OF_PIPELINES, list_pipeline_means
    if isinstance(sweep, StatementSweep):
        return STATEMENT_UNITS, _OF_STATEMENTS, list_statement_means
    return NEST_UNITS, _OF_NESTS, list_nest_means


def list_nest_rows(sweep: NestSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of nests, worst first."""
    columns = list_nest_columns(sweep)
    return [
        fill_row((case.name, "skipped"), columns)
        if case.skipped
        else tuple(_write_cell(case, name) for name in columns)
        for case in sort_cases(sweep)
    ]


def _write_cell(case: Result, column: str) -> str:
    if column not in _CELLS:  # a contender's
        return format_entry(case, column, format_duration(case.seconds(column)))
    return _CELLS[column](case)


def _write_speed(case: Result, count: float) -> str:
    return format_figure(count / case.ours / 1e9, "{:.3g}")


_LEFT = ("nest", "sizes", "dtype", "class and route")
_CELLS: dict[str, Callable[[Result], str]] = {
    "nest": lambda case: case.name,
    "sizes": format_sizes,
    "dtype": lambda case: _nest_of(case).work.dtype,
    "class and route": lambda case: case.plan.how or "-",
    "GB/s": lambda case: _write_speed(case, _nest_of(case).volume),
    "Gop/s": lambda case: _write_speed(case, count_work(_nest_of(case).work.computation)),
    "to best peer": lambda case: format_figure(case.ratio()),
    "to aligned": lambda case: format_figure(case.ratio(ALIGNED)),
    "to baseline": lambda case: format_figure(case.ratio(BASELINE)),
    "to thesis": lambda case: format_figure(case.ratio(THESIS)),
    "to root": lambda case: format_figure(case.ratio(ROOT)),
    "to overlap": lambda case: format_figure(case.ratio(OVERLAP)),
    "predicted": lambda case: format_figure(case.plan.predicted / case.ours),
    "cold": lambda case: format_figure(case.plan.cold / case.ours),
    "out": lambda case: " ".join(map(format_figure, case.plan.outs)) or "-",
    "planning": format_preparation,
}
_DRAWN = {"sizes", "dtype", "Gop/s", "cold", "out"}
_FUSED = {"to root", "to overlap"}
_BESIDE = {"to aligned", "to baseline", "to thesis"}
_OF_NESTS = [name for name in _CELLS if name not in _DRAWN | _FUSED]
_OF_STATEMENTS = [name for name in _CELLS if name not in _BESIDE | _FUSED]
_OF_PIPELINES = [
    name for name in _CELLS if name not in _DRAWN | {"class and route", "to baseline", "to thesis"}
]


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
        found |= describe_ratios(own, f"{what}, to the best peer", "")
        for name in names:
            found |= describe_ratios(own, f"{what}, to {name}", name)
            if name == BASELINE and THESIS in names:
                found |= describe_ratios(own, f"{what}, thesis to baseline", BASELINE, THESIS)
    return found


def list_pipeline_means(sweep: NestSweep) -> dict[str, str]:
    """Return means beside each contender, and how near predictions are."""
    cases = [case for case in sweep.cases if not case.skipped]
    found = describe_ratios(cases, "to the best peer", "")
    for name in list_contenders(sweep):
        if name != OURS:
            found |= describe_ratios(cases, f"to {name}", name)
    return found | _describe_near("predicted", [x.plan.predicted / x.ours for x in cases])


def list_statement_means(sweep: NestSweep) -> dict[str, str]:
    """Return means of all and of each family, and how near predictions are."""
    done = [case for case in sweep.cases if not case.skipped]
    families = sorted({case.name.split()[1] for case in done})
    found: dict[str, str] = {}
    for family in ("", *families):
        what, own = family or "all", [case for case in done if family in ("", case.name.split()[1])]
        found |= describe_ratios(own, f"{what}, to the best peer", "")
        found |= _describe_near(f"{what}, predicted", [x.plan.predicted / x.ours for x in own])
    found |= _describe_near(
        "all, cold, predicted", [x.plan.predicted_cold / x.plan.cold for x in done]
    )
    outs = [one for case in done for one in case.plan.outs]
    return found | _describe_near("all, with out to without", outs)


def _describe_near(what: str, ratios: list[float]) -> dict[str, str]:
    known = [ratio for ratio in ratios if isfinite(ratio)]
    if not known:
        return {}
    near = sum(1 / NEAR_FACTOR <= ratio <= NEAR_FACTOR for ratio in known)
    mean, most = geometric_mean(known), max(known)
    share = f"within {NEAR_FACTOR:g} × in {near} of {len(known)}"
    return {what: f"{mean:.2f}, {share}, from {min(known):.2f} to {most:.2f}"}


def describe_ratios(cases: list[Result], what: str, peer: str, mine: str = OURS) -> dict[str, str]:
    """Return the mean of others' times to ours, how often ours is ahead, and the worst case."""
    ratios = [(case.ratio(peer, mine=mine), case.name) for case in cases]
    known = [(ratio, name) for ratio, name in ratios if isfinite(ratio)]
    if not known:
        return {}
    worst, name = min(known)
    ahead = sum(value >= 1 for value, _ in known)
    mean = geometric_mean([value for value, _ in known])
    return {what: f"{mean:.2f}, ahead in {ahead} of {len(known)}, worst {worst:.2f} ({name})"}
