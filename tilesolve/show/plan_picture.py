"""A picture of a plan: what each level moves and how long that takes, beside the bounds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tilesolve.plans.plan import Plan
from tilesolve.plans.report import bounds
from tilesolve.show.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, check_picture, save
from tilesolve.system.units import format_duration, format_volume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TENSORS = (ORANGE, BLUE, GREEN, "#7a4fa3", "#9a7b1c", "#2a8c8c")
"""Colours of the output and the operands; more operands start over."""


def draw_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Draw bytes and time per level against their bounds.

    Parameters
    ----------
    plan
        What to draw.
    path
        The picture; the ending of its name says the format.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tilesolve.plans.plan import plan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_plan(plan("ik-ij-jk", 64, "i7-6700k", cache=False), Path(folder) / "plan.svg")
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
    for y, (level, least) in enumerate(zip(levels, bounds(plan), strict=True)):
        label = "no schedule moves less" if y == 0 else "_"  # matplotlib lists no name with _
        axes.vlines(least, y - 0.4, y + 0.4, color=RED, lw=2, label=label)
        axes.text(
            level.volume, y, f" {format_volume(level.volume)}", va="center", fontsize=9, color=INK
        )
    longest = max((level.volume for level in levels), default=0.0)
    axes.set_xlim(0, 1.22 * longest or 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: format_volume(value))
    axes.set_yticks(at, [f"from {level.level}\nto {level.holder}" for level in levels], fontsize=9)
    _frame(axes, "bytes moved")


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
    _frame(axes, "time, if nothing else held it up; the longest is the prediction")


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=GREY, alpha=0.25, lw=0.6)
    axes.tick_params(axis="x", labelsize=8)
