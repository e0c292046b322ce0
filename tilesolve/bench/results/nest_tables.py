"""A sweep of nests as tables: nests with the worst first, and means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isfinite
from pathlib import Path

from tilesolve.bench.contenders import OURS
from tilesolve.bench.nest_contenders import BASELINE, THESIS
from tilesolve.bench.results.nest_sweeps import NestResult, NestSweep
from tilesolve.bench.results.performance_page import render_pairs, render_table
from tilesolve.bench.results.summary import NOT_INSTALLED, geometric_mean, list_facts
from tilesolve.show.console_tables import console, text_table
from tilesolve.system.units import format_count, format_duration

NEST_UNITS = (
    "times of runs; GB/s: bytes of all arrays, each once, in our time; ratios are of others' time "
    "to ours; baseline and thesis are of the same generator"
)
"""What stands below the table of nests."""


def list_nest_contenders(sweep: NestSweep) -> list[str]:
    """Return the contenders that are installed, ours first."""
    absent = {
        who
        for case in sweep.cases
        for who, entry in case.entries.items()
        if entry.reason == NOT_INSTALLED
    }
    return [name for name in sweep.conditions.contenders if name not in absent]


def list_nest_columns(sweep: NestSweep) -> dict[str, str]:
    """Return the headers of the table of nests, each with the side that its cells stand on."""
    ratios = ("to best peer", "to baseline", "to thesis")
    names = list_nest_contenders(sweep)
    figures = ("GB/s", *ratios, "predicted", "planning", *names)
    return {"nest": "left", "class and route": "left"} | dict.fromkeys(figures, "right")


def list_nest_rows(sweep: NestSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of nests, worst first."""
    names, width = list_nest_contenders(sweep), len(list_nest_columns(sweep))
    found = []
    for case in _sort(sweep):
        if case.skipped:
            found.append((case.name, "skipped", *[""] * (width - 2)))
            continue
        figures, entry = case.figures.get(OURS), case.entries.get(OURS)
        planning = entry.preparation if entry else None
        mine = case.seconds(OURS)
        found.append(
            (
                case.name,
                figures.how if figures else "-",
                _format(case.volume / mine / 1e9, "{:.3g}"),
                _format(case.ratio(case.best_peer)),
                *(_format(case.ratio(name)) for name in (BASELINE, THESIS)),
                _format(figures.predicted / mine) if figures else "-",
                "-" if planning is None else format_duration(planning),
                *(_format_time(case, name) for name in names),
            )
        )
    return found


def _sort(sweep: NestSweep) -> list[NestResult]:
    def sort_key(case: NestResult) -> float:
        ratio = case.ratio(case.best_peer)
        return ratio if isfinite(ratio) else inf

    return sorted(sweep.cases, key=sort_key)


def _format(value: float, form: str = "{:.2f}") -> str:
    return form.format(value) if isfinite(value) else "-"


def _format_time(case: NestResult, name: str) -> str:
    entry = case.entries.get(name)
    if entry is None:
        return "-"
    return format_duration(entry.median) if entry.seconds else entry.reason.split()[0].strip(":,")


def list_nest_means(sweep: NestSweep) -> dict[str, str]:
    """Return geometric means by what is meant: of nests that sum, and of others."""
    found: dict[str, str] = {}
    kinds: list[tuple[str, Callable[[NestResult], bool]]] = [
        ("all", lambda _: True),
        ("temporal", lambda case: case.temporal),
        ("others", lambda case: not case.temporal),
    ]
    names = [name for name in list_nest_contenders(sweep) if name != OURS]
    for what, of_kind in kinds:
        own = [case for case in sweep.cases if of_kind(case)]
        found |= _describe(
            own, f"{what}, to the best peer", lambda case: case.ratio(case.best_peer)
        )
        for name in names:
            found |= _describe(own, f"{what}, to {name}", _ratio_to(name))
            if name == BASELINE and THESIS in names:
                found |= _describe(own, f"{what}, thesis to baseline", _thesis_to_baseline)
    return found


def _ratio_to(name: str) -> Callable[[NestResult], float]:
    return lambda case: case.ratio(name)


def _thesis_to_baseline(case: NestResult) -> float:
    return case.ratio(BASELINE, THESIS)


def _describe(
    cases: list[NestResult], what: str, ratio: Callable[[NestResult], float]
) -> dict[str, str]:
    known = [(ratio(case), case.name) for case in cases if isfinite(ratio(case))]
    if not known:
        return {}
    worst, name = min(known)
    ahead = sum(value >= 1 for value, _ in known)
    mean = geometric_mean([value for value, _ in known])
    return {what: f"{mean:.2f}, ahead in {ahead} of {len(known)}, worst {worst:.2f} ({name})"}


def list_nest_notes(sweep: NestSweep) -> list[str]:
    """Return a line for each contender that is not installed, or without a result for a nest."""
    there = list_nest_contenders(sweep)
    found = [
        f"{name}: {NOT_INSTALLED}" for name in sweep.conditions.contenders if name not in there
    ]
    for case in sweep.cases:
        if case.skipped:
            found.append(f"{case.name}: {case.skipped}")
        found += [
            f"{case.name}, {name}: {entry.reason}"
            for name, entry in case.entries.items()
            if entry.reason and name in there
        ]
    return found


def render_nests(sweep: NestSweep) -> str:
    """Return the section of a sweep of nests on the page of a CPU."""
    return "\n".join(_render(sweep))


def _render(sweep: NestSweep) -> Iterator[str]:
    made = sweep.conditions
    yield f"## {Path(made.suite).stem}, {format_count(made.threads, 'thread')}"
    yield from render_pairs("measured", {**list_facts(sweep), "units": NEST_UNITS})
    yield from render_table(
        {"contender": "left", "version and settings": "left"},
        [tuple(label.split(": ", 1)) for label in made.contenders.values()],
    )
    yield from render_pairs("geometric means", list_nest_means(sweep))
    yield from render_table(list_nest_columns(sweep), list_nest_rows(sweep))
    if found := list_nest_notes(sweep):
        yield from render_table({"notes": "left"}, [(note,) for note in found])


def print_nests(sweep: NestSweep) -> None:
    """Print where a sweep comes from, its nests, means and notes."""
    screen = console()
    for what, value in list_facts(sweep).items():
        screen.print(f"{what}: {value}")
    for label in sweep.conditions.contenders.values():
        screen.print(f"- {label}")
    screen.print(text_table("", list_nest_columns(sweep), list_nest_rows(sweep), NEST_UNITS))
    means = list_nest_means(sweep).items()
    screen.print(text_table("", {"geometric means": "left", "": "left"}, means))
    for note in list_nest_notes(sweep):
        screen.print(note)
