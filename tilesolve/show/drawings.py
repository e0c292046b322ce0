"""What is drawn: bandwidth curves of a calibration, measured register tiles, and plans."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from tilesolve.calibration.calibrate import Calibration
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.plans.plan import Plan
from tilesolve.plans.report import least_volumes
from tilesolve.show.calibration_tables import SUMS
from tilesolve.show.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, check_picture, save
from tilesolve.system.units import format_duration, format_size, format_volume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE_RANGE = 12.0
"""Rates that differ by more than this factor are drawn on a logarithmic axis."""

TENSORS = (ORANGE, BLUE, GREEN, "#7a4fa3", "#9a7b1c", "#2a8c8c")
"""Colours of the output and the operands; more operands start over."""


def draw_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Draw bandwidth against block size, with the levels and their measured bandwidths.

    Parameters
    ----------
    calibration
        What to draw.
    path
        The picture; the ending of its name says the format.

    Raises
    ------
    PictureError, FileAccessError
        As `check_picture` does.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 6.3), layout="constrained")
    axes = figure.add_subplot()
    _calibration_frame(axes, calibration)
    _levels(axes, calibration)
    _curves(axes, calibration)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    save(figure, path)


def _calibration_frame(axes: Axes, calibration: Calibration) -> None:
    """Draw the axes, whose ranges show every sample, and say what the picture is of."""
    from matplotlib.ticker import LogLocator, NullLocator

    machine = calibration.machine
    samples = [sample for curve in calibration.curves for sample in curve.samples]
    blocks, rates = [s.block for s in samples], [s.best / 1e9 for s in samples]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(blocks) / 1.1, max(blocks) * 1.1)
    ticks = [2**n for n in range(min(blocks).bit_length(), max(blocks).bit_length())]
    ticks = ticks[:: 1 + len(ticks) // 16]
    axes.set_xticks(ticks, [format_size(tick) for tick in ticks], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("block that each core sweeps again and again")
    axes.set_ylabel("GB/s, bytes loaded and stored together")
    if max(rates) > WIDE_RANGE * min(rates):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(min(rates) / 1.5, max(rates) * 4.5)
    else:
        axes.set_ylim(0, max(rates) * 1.45)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    peaks = ", ".join(
        f"{dtype} {machine.peak(dtype) / 1e9:.4g} GFLOP/s" for dtype in ("float64", "float32")
    )
    axes.set_title(
        f"Memory bandwidth of {machine.name}", loc="left", fontsize=14, color=INK, pad=24
    )
    axes.text(
        0,
        1.02,
        f"{machine.cores} cores at {machine.frequency / 1e9:.3g} GHz, {machine.vector_bits}-bit "
        f"vectors; one core's peak: {peaks}",
        transform=axes.transAxes,
        fontsize=9,
        color=GREY,
    )


def _curves(axes: Axes, calibration: Calibration) -> None:
    """Draw every curve by its best rounds, and how far the median round of one stays behind."""
    cores = calibration.machine.cores
    sweep = "load, FMA, store"
    lines: list[tuple[str, int, str, dict[str, Any]]] = [
        ("sweep", 1, f"{sweep}: one core", {"color": BLUE, "marker": "o", "lw": 2.2}),
        ("read", 1, "loads only: one core", {"color": GREEN, "marker": "s", "lw": 1.3}),
        ("stream", 1, "non-temporal stores: one core", {"color": ORANGE, "marker": "v", "lw": 1.3}),
    ]
    if cores > 1:
        style: dict[str, Any] = {"color": BLUE, "marker": "o", "lw": 1.2, "ls": ":", "mfc": "white"}
        lines.insert(0, ("sweep", cores, f"{sweep}: all {cores} cores together", style))
    for kernel, count, label, look in lines:
        curve = calibration.curve(kernel, count)
        if curve is None:
            continue
        blocks = [sample.block for sample in curve.samples]
        best = [sample.best / 1e9 for sample in curve.samples]
        axes.plot(blocks, best, label=label, ms=3.5, zorder=3, **look)
        if (kernel, count) == ("sweep", 1):
            usual = [sample.best * (1 - sample.spread) / 1e9 for sample in curve.samples]
            label = "its median to its best round"
            axes.fill_between(blocks, usual, best, label=label, color=BLUE, alpha=0.25, lw=0)
    axes.plot([], [], color=INK, lw=1.4, ls="--", label="bandwidth taken for the level")
    axes.plot([], [], color=RED, lw=1.2, ls=(0, (4, 3)), label="where the level stops serving")


def _levels(axes: Axes, calibration: Calibration) -> None:
    """Mark each level: its stretch, where it ends, where it stops serving, its bandwidth."""
    machine = calibration.machine
    start, right = axes.get_xlim()
    top = axes.get_xaxis_transform()  # blocks across, fractions of the axes upwards
    head: dict[str, Any] = {"ha": "center", "va": "top", "transform": top}
    for number, level in enumerate(machine.levels):
        end = min(level.capacity or right, right)
        if end <= start:
            continue
        if number % 2 == 0:
            axes.axvspan(start, end, color=GREY, alpha=0.12, lw=0, zorder=0)
        middle = math.sqrt(start * end)
        name = (
            level.name if level.capacity is None else f"{level.name}, {format_size(level.capacity)}"
        )
        axes.text(middle, 0.985, name, fontsize=11, weight="bold", color=INK, **head)
        note = (
            f"{level.bandwidth / 1e9:.4g} GB/s\n{level.bandwidth / machine.frequency:.3g} B/cycle"
        )
        note += " (assumed)" if _assumed(machine, level, "bandwidth") else ""
        axes.text(middle, 0.935, note, fontsize=9, color=INK, **head)
        axes.hlines(level.bandwidth / 1e9, start, end, color=INK, lw=1.4, ls="--", zorder=4)
        if level.usable is not None and level.usable < right:
            note = f"serves up to\n{format_size(level.usable)} ({level.effective:.0%})"
            note += " (assumed)" if _assumed(machine, level, "effective") else ""
            axes.axvline(level.usable, color=RED, lw=1.2, ls=(0, (4, 3)), zorder=1)
            axes.text(middle, 0.82, note, fontsize=8.5, color=RED, **head)
        start = end


def _assumed(machine: Machine, level: Level, figure: str) -> bool:
    return machine.source(f"{level.name}.{figure}") == "assumed"


def draw_catalogues(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Draw the speed of all register tiles as heat maps, one for each dtype."""
    check_picture(path)
    from matplotlib.figure import Figure

    count = max(1, len(machine.catalogues))
    figure = Figure(figsize=(10.5, 1.2 + 2.2 * count), layout="constrained")
    for number, catalogue in enumerate(machine.catalogues, 1):
        axes = figure.add_subplot(count, 1, number)
        high = max(tile.vectors for tile in catalogue.tiles)
        wide = max(tile.columns for tile in catalogue.tiles)
        shares = [[float("nan")] * wide for _ in range(high)]
        for tile in catalogue.tiles:
            share = 100 * catalogue.share(tile, SUMS[-1])
            shares[tile.vectors - 1][tile.columns - 1] = share
            place = (tile.columns, tile.vectors)
            axes.annotate(f"{share:.0f}", place, ha="center", va="center", fontsize=7)
        edges = (0.5, wide + 0.5, 0.5, high + 0.5)
        axes.imshow(
            shares, origin="lower", extent=edges, aspect="auto", cmap="YlGn", vmin=0, vmax=110
        )
        axes.set_xticks(range(1, wide + 1))
        axes.set_yticks(range(1, high + 1))
        axes.set_xlabel("columns")
        axes.set_ylabel("vectors of rows")
        axes.set_title(
            f"{machine.name}, {catalogue.dtype} at {catalogue.bits} bits: percent of the fastest "
            f"rate, summing {SUMS[-1]} products",
            fontsize=10,
        )
    save(figure, path)


def draw_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Draw bytes and time per level against their bounds.

    Parameters
    ----------
    plan
        What to draw.
    path
        The picture; the ending of its name says the format.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _bytes(left, plan)
    _times(right, plan)
    figure.suptitle(
        f"{plan.problem} on {plan.machine.name}: {format_duration(plan.seconds)}, "
        f"{plan.flops / 1e9:.4g} GFLOP/s predicted, bound by {plan.price.bottleneck}",
        fontsize=11,
        color=INK,
    )
    figure.legend(loc="outside lower center", ncols=8, fontsize=9, frameon=False)
    save(figure, path)


def _bytes(axes: Axes, plan: Plan) -> None:
    """Draw the bytes of each tensor as bars one after the other, and the bound as a line."""
    levels, names = plan.price.levels, plan.problem.spec.names
    at = range(len(levels))
    start = [0.0] * len(levels)
    for tensor, name in enumerate(names):
        sizes = [level.volumes[tensor] - level.packing[tensor] for level in levels]
        colour = TENSORS[tensor % len(TENSORS)]
        axes.barh(at, sizes, left=start, color=colour, alpha=0.85, height=0.6, label=name)
        start = [a + b for a, b in zip(start, sizes, strict=True)]
    packing = [sum(level.packing) for level in levels]
    if any(packing):
        axes.barh(at, packing, left=start, color=GREY, alpha=0.6, height=0.6, label="packing")
    for y, (level, least) in enumerate(zip(levels, least_volumes(plan.solution), strict=True)):
        label = "no schedule moves less" if y == 0 else "_"  # matplotlib lists no name with _
        axes.vlines(least, y - 0.4, y + 0.4, color=RED, lw=2, label=label)
        axes.text(
            level.volume, y, f" {format_volume(level.volume)}", va="center", fontsize=9, color=INK
        )
    longest = max((level.volume for level in levels), default=0.0)
    axes.set_xlim(0, 1.22 * longest or 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: format_volume(value))
    axes.set_yticks(at, [f"from {level.level}\nto {level.holder}" for level in levels], fontsize=9)
    _plan_frame(axes, "bytes moved")


def _times(axes: Axes, plan: Plan) -> None:
    """Draw the time of each level and of the arithmetic, the longest one marked."""
    rows = [(level.level, level.seconds) for level in plan.price.levels]
    rows.append(("compute", plan.price.compute))
    for y, (name, seconds) in enumerate(rows):
        binding = name == plan.price.bottleneck
        axes.barh(y, seconds, color=RED if binding else BLUE, alpha=0.8, height=0.6)
        axes.text(seconds, y, f" {format_duration(seconds)}", va="center", fontsize=9, color=INK)
    axes.axvline(plan.roofline, color=INK, ls="--", lw=1.2, label="roofline")
    axes.set_xlim(0, 1.2 * max(plan.seconds, plan.roofline) or 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: format_duration(value))
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
    _plan_frame(axes, "time, if nothing else held it up; the longest is the prediction")


def _plan_frame(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=GREY, alpha=0.25, lw=0.6)
    axes.tick_params(axis="x", labelsize=8)
