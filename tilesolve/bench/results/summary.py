"""A sweep as a table, worst cases first, with its means, notes and facts."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, isfinite, isnan, log
from typing import Any

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.record import Record
from tilesolve.bench.results.sweeps import Case, Entry, Sweep
from tilesolve.machine.model import Machine
from tilesolve.system.units import format_count, format_duration, format_volume

NEAR_ERROR = 0.1
"""Relative error up to which a prediction counts as near to the measured time."""

UNITS = "speeds in GFLOP/s, memory beside the tensors; predicted over measured time"
"""What stands below the table."""

NOT_INSTALLED = "not installed"
"""The reason of a contender that could not take part; it gets no column."""


def sort_cases(sweep: Sweep) -> list[Case]:
    """Return the cases: without a result, then by the ratio to the best peer, skipped ones last.

    Where there is no peer, the share of the roofline counts.
    """

    def sort_key(case: Case) -> tuple[bool, float, float]:
        ratio, reached = case.ratio, case.reached(OURS)
        return (
            bool(case.skipped),
            ratio if isfinite(ratio) else -inf if isnan(reached) else inf,
            0.0 if isnan(reached) else reached,
        )

    return sorted(sweep.cases, key=sort_key)


def list_contenders(sweep: Sweep) -> list[str]:
    """Return the contenders that are installed, in the order in which they were named."""
    absent = {
        name
        for name in sweep.conditions.contenders
        if any(name in case.entries for case in sweep.cases)
        and all(case.entries[name].reason == NOT_INSTALLED for case in sweep.cases if case.entries)
    }
    return [name for name in sweep.conditions.contenders if name not in absent]


def list_columns(sweep: Sweep) -> dict[str, str]:
    """Return the headers of a sweep's table, each with the side that its cells stand on."""
    figures = (
        *("roofline", OURS, "of roofline", "to best peer", "spread", "rounds", "predicted"),
        *("bound by", "planning", "memory"),
        *(name for name in list_contenders(sweep) if name != OURS),
    )
    return {"case": "left"} | dict.fromkeys(figures, "right")


def list_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """Return the cells of a sweep's table, worst cases first."""
    peers = [name for name in list_contenders(sweep) if name != OURS]
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append((case.name, "skipped", *[""] * (len(list_columns(sweep)) - 2)))
            continue
        mine = case.entries.get(OURS, Entry(()))
        found.append(
            (
                case.name,
                format_duration(case.roofline) if isfinite(case.roofline) else "-",
                _format_speed(case, OURS),
                _format_figure(case.reached(OURS), "{:.0%}"),
                _format_figure(case.ratio, "{:.2f}"),
                _format_figure(mine.spread, "{:.0%}"),
                str(len(mine.seconds)),
                _format_figure(case.predicted / mine.median, "{:.2f}"),
                case.bottleneck or "-",
                "-" if mine.preparation is None else format_duration(mine.preparation),
                "-" if mine.memory is None else format_volume(mine.memory),
                *(_format_speed(case, name) for name in peers),
            )
        )
    return found


def _format_figure(value: float, form: str) -> str:
    return form.format(value) if isfinite(value) else "-"


def _format_speed(case: Case, name: str) -> str:
    """Return a contender's GFLOP/s, or the first word of why there are none."""
    entry = case.entries.get(name)
    if entry is None:
        return "-"
    return f"{case.speed(name) / 1e9:.3g}" if entry.seconds else entry.reason.split()[0].strip(":,")


def list_notes(sweep: Sweep) -> list[str]:
    """Return a line for each contender without a result, and each case that was skipped."""
    there = list_contenders(sweep)
    found = []
    for case in sort_cases(sweep):
        if case.skipped:
            found.append(f"{case.name}: {case.skipped}")
        found += [
            f"{case.name}, {name}: {entry.reason}"
            for name, entry in case.entries.items()
            if entry.reason and name in there
        ]
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean.

    Examples
    --------
    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return exp(sum(map(log, values)) / len(values))


def list_means(sweep: Sweep) -> dict[str, str]:
    """Return the geometric means of a sweep: what is meant, and its value."""
    reached = [case.reached(OURS) for case in sweep.cases if isfinite(case.reached(OURS))]
    found = {"cases with a result": f"{len(reached)} of {len(sweep.cases)}"}
    if not reached:
        return found
    found["share of the roofline"] = f"{100 * geometric_mean(reached):.0f} %"
    found |= _list_peaks(sweep)
    if ratios := [case.ratio for case in sweep.cases if isfinite(case.ratio)]:
        slower = sum(ratio < 1 for ratio in ratios)
        found["times the best peer"] = (
            f"{geometric_mean(ratios):.2f}, slower in {slower} of {len(ratios)}"
        )
    for name in list_contenders(sweep):
        times = [case.seconds(name) / case.ours for case in sweep.cases if name != OURS]
        if known := [ratio for ratio in times if isfinite(ratio)]:
            count = format_count(len(known), "case")
            found[f"times {name}"] = f"{geometric_mean(known):.2f} over {count}"
    errors = [c.predicted / c.ours for c in sweep.cases if isfinite(c.predicted / c.ours)]
    near = sum(abs(error - 1) <= NEAR_ERROR for error in errors)
    found["predicted over measured time"] = (
        f"{geometric_mean(errors):.2f}, within {100 * NEAR_ERROR:.0f} % in {near} of {len(errors)}"
    )
    return found


def _list_peaks(sweep: Sweep) -> dict[str, str]:
    """Return the arithmetic peak beside the runs, for each dtype where it was measured."""
    found = {}
    for dtype in dict.fromkeys(case.problem.dtype for case in sweep.cases):
        if peak := sweep.peak(dtype):
            calibrated = Machine.from_toml(sweep.machine).peak(dtype, sweep.conditions.threads)
            found[f"peak of {dtype} beside the runs"] = (
                f"{peak / 1e9:.1f} GFLOP/s in the median, {peak / calibrated:.2f} of the machine's"
            )
    return found


def list_facts(sweep: Record[Any]) -> dict[str, str]:
    """Return what a reader has to know of a sweep: where it was made, and how."""
    made = sweep.conditions
    batch = "" if made.batch == 1 else f", {made.batch} processes side by side"
    dtype = f", {made.dtype}" if made.dtype else ""
    budget = f", fewer past {made.seconds:g} s a case" if made.seconds else ""
    return {
        **sweep.provenance,
        "settings": f"suite {made.suite}{dtype}, {format_count(made.threads, 'thread')}{batch}, "
        f"median of {made.repeat} rounds in turns{budget}, caches flushed before each run",
    }
