"""Pictures of a sweep: bars per case as in Fig. 3 of the paper, and a roofline."""

from __future__ import annotations

import os
from math import isfinite
from typing import TYPE_CHECKING

from tilesolve.bench.contenders import OURS
from tilesolve.bench.results.report import list_contenders
from tilesolve.bench.results.sweeps import Result, Sweep
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.show.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, check_picture, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (RED, BLUE, ORANGE, GREEN, "#7a4fa3", "#9a7b1c", "#2a8c8c", "#d98fb0")
"""Colours of the contenders, tilesolve first; more contenders start over."""

MARKERS = "Dos^vP*X"
"""Their marks in the roofline."""


def draw_sweep(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Draw bars and roofline into one picture."""
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_figure_width(sweep), 10.5), layout="constrained")
    above, below = figure.subplots(2, 1)
    _add_bars(above, sweep)
    _add_roofline(below, sweep)
    save(figure, path)


def draw_bars(sweep: Sweep) -> Figure:
    """Return the speeds of all contenders, case by case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_figure_width(sweep), 5.2), layout="constrained")
    _add_bars(figure.add_subplot(), sweep)
    return figure


def draw_roofline(sweep: Sweep) -> Figure:
    """Return the speeds against intensity, below the lines that nothing gets above."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    _add_roofline(figure.add_subplot(), sweep)
    return figure


def _figure_width(sweep: Sweep) -> float:
    return max(10.5, 0.5 * len(_measured_cases(sweep)))


def _measured_cases(sweep: Sweep) -> list[Result]:
    return [case for case in sweep.cases if not case.skipped]


def _add_bars(axes: Axes, sweep: Sweep) -> None:
    cases, names = _measured_cases(sweep), list_contenders(sweep)
    wide = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        speeds = [case.speed(name) / 1e9 for case in cases]
        at = [place + (number - (len(names) - 1) / 2) * wide for place in range(len(cases))]
        heights = [speed if isfinite(speed) else 0.0 for speed in speeds]
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(at, heights, wide, color=colour, alpha=0.85, label=name)
        for x, speed, case in zip(at, speeds, cases, strict=True):
            if not isfinite(speed) and name in case.entries:
                axes.text(x, 0, "×", ha="center", va="bottom", fontsize=8, color=colour)
    for place, case in enumerate(cases):
        top = (
            case.problem.flops / case.plan.roofline / 1e9
        )  # NaN, where there is no plan, draws nothing
        label = "roofline" if place == 0 else "_"  # matplotlib lists no name with _
        axes.hlines(top, place - 0.45, place + 0.45, color=INK, lw=1.3, label=label)
    axes.set_xticks(range(len(cases)), [case.name for case in cases], rotation=60, ha="right")
    axes.set_ylabel("GFLOP/s")
    _set_frame(axes, f"{sweep.conditions.suite} on {sweep.conditions.machine.split()[0]}")
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    if cases:
        axes.legend(ncols=8, fontsize=9, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))


def _add_roofline(axes: Axes, sweep: Sweep) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    cases, names = _measured_cases(sweep), list_contenders(sweep)
    machine = divide_machine(Machine.from_toml(sweep.machine), sweep.conditions.batch)
    threads = sweep.conditions.threads
    bandwidth = machine.bandwidth(machine.memory, threads)
    axes.set_xscale("log")
    axes.set_yscale("log")
    dtypes = dict.fromkeys(case.problem.dtype for case in cases)
    for dtype in dtypes or {"float64": None}:
        peak = sweep.peak(dtype) or machine.peak(dtype, threads)
        ridge = peak / bandwidth
        reach = [case.problem.intensity for case in cases if case.problem.dtype == dtype]
        low, high = min([*reach, ridge]) / 2, max([*reach, ridge]) * 2
        line = [low * bandwidth / 1e9, peak / 1e9, peak / 1e9]
        axes.plot([low, ridge, high], line, color=INK, lw=1.6)
        note = f"{dtype}: {peak / 1e9:.4g} GFLOP/s"
        axes.text(high, peak / 1e9, note, ha="right", va="bottom", fontsize=9)
        note = f"memory: {bandwidth / 1e9:.4g} GB/s"
        axes.text(1.08 * low, low * bandwidth / 1e9, note, va="center", fontsize=9)
    for number, name in reversed(list(enumerate(names))):
        dots = [(c.problem.intensity, c.speed(name) / 1e9) for c in cases]
        axes.plot(
            [x for x, y in dots if isfinite(y)],
            [y for _, y in dots if isfinite(y)],
            MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            ms=6 if name == OURS else 4,
            alpha=0.9,
            label=name,
        )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("flop per byte, each tensor moved once")
    axes.set_ylabel("GFLOP/s")
    _set_frame(axes, "Roofline")
    axes.grid(color=GREY, alpha=0.25, lw=0.6)
    axes.legend(fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _set_frame(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
