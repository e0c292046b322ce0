"""A sweep of contractions as a report: its table, worst cases first, and its means."""

from __future__ import annotations

from math import isfinite

from tilesolve.bench.contenders import ALIGNED, OURS, OWN
from tilesolve.bench.results.report import (
    Report,
    describe_suite,
    fill_row,
    format_figure,
    format_speed,
    geometric_mean,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import Entry, Sweep
from tilesolve.machine.model import Machine
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration, format_volume

NEAR_ERROR = 0.1
"""Relative error up to which a prediction counts as near to the measured time."""

UNITS = (
    "speeds in GFLOP/s, memory beside the tensors; predicted over measured time; aligned: with "
    "arrays that begin with lines"
)
"""What stands below the table."""


def report_sweep(sweep: Sweep) -> Report:
    """Return what there is to show of a sweep."""
    alone = "" if {*sweep.conditions.contenders} - {*OWN} else ", without peers"
    table = Table("", list_columns(sweep), list_rows(sweep))
    return Report.of_sweep(sweep, describe_suite(sweep) + alone, UNITS, list_means(sweep), table)


def list_columns(sweep: Sweep) -> dict[str, str]:
    """Return the headers of a sweep's table, each with the side that its cells stand on."""
    figures = (
        *("roofline", OURS, ALIGNED, "to aligned", "of roofline", "to best peer", "spread"),
        *("rounds", "predicted", "bound by", "planning", "memory"),
        *list_others(sweep),
    )
    return {"case": "left"} | dict.fromkeys(figures, "right")


def list_others(sweep: Sweep) -> list[str]:
    """Return the peers that are installed."""
    return [name for name in list_contenders(sweep) if name not in OWN]


def list_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """Return the cells of a sweep's table, worst cases first."""
    peers = list_others(sweep)
    columns = list_columns(sweep)
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append(fill_row((case.name, "skipped"), columns))
            continue
        mine, plan = case.entries.get(OURS, Entry(())), case.plan
        found.append(
            (
                case.name,
                format_duration(plan.roofline) if isfinite(plan.roofline) else "-",
                *(format_speed(case, name) for name in (OURS, ALIGNED)),
                format_figure(case.ratio(ALIGNED)),
                format_figure(case.reached(OURS), "{:.0%}"),
                format_figure(case.ratio()),
                format_figure(mine.spread, "{:.0%}"),
                str(len(mine.seconds)),
                format_figure(plan.predicted / mine.median),
                plan.bottleneck or "-",
                "-" if mine.preparation is None else format_duration(mine.preparation),
                "-" if mine.memory is None else format_volume(mine.memory),
                *(format_speed(case, name) for name in peers),
            )
        )
    return found


def list_means(sweep: Sweep) -> dict[str, str]:
    """Return the geometric means of a sweep: what is meant, and its value."""
    reached = [case.reached(OURS) for case in sweep.cases if isfinite(case.reached(OURS))]
    found = {"cases with a result": f"{len(reached)} of {len(sweep.cases)}"}
    if not reached:
        return found
    found["share of the roofline"] = f"{100 * geometric_mean(reached):.0f} %"
    found |= _list_peaks(sweep)
    if beside := [(r, case.name) for case in sweep.cases if isfinite(r := case.ratio(ALIGNED))]:
        least, name = min(beside)
        mean = geometric_mean([ratio for ratio, _ in beside])
        found["times aligned"] = f"{mean:.2f}, least {least:.2f} ({name})"
    if ratios := [ratio for case in sweep.cases if isfinite(ratio := case.ratio())]:
        slower = sum(ratio < 1 for ratio in ratios)
        found["times the best peer"] = (
            f"{geometric_mean(ratios):.2f}, slower in {slower} of {len(ratios)}"
        )
    for name in list_others(sweep):
        times = [case.ratio(name) for case in sweep.cases]
        if known := [ratio for ratio in times if isfinite(ratio)]:
            count = format_count(len(known), "case")
            found[f"times {name}"] = f"{geometric_mean(known):.2f} over {count}"
    errors = [case.plan.predicted / case.ours for case in sweep.cases]
    errors = [error for error in errors if isfinite(error)]
    near = sum(abs(error - 1) <= NEAR_ERROR for error in errors)
    found["predicted over measured time"] = (
        f"{geometric_mean(errors):.2f}, within {100 * NEAR_ERROR:.0f} % in {near} of {len(errors)}"
    )
    return found


def _list_peaks(sweep: Sweep) -> dict[str, str]:
    """Return the arithmetic peak beside the runs, for each dtype where it was measured."""
    found = {}
    for dtype in dict.fromkeys(case.case.dtype for case in sweep.cases):
        if peak := sweep.peak(dtype):
            calibrated = Machine.from_toml(sweep.machine).peak(dtype, sweep.conditions.threads)
            found[f"peak of {dtype} beside the runs"] = (
                f"{peak / 1e9:.1f} GFLOP/s in the median, {peak / calibrated:.2f} of the machine's"
            )
    return found
