"""Pictures of networks: the graph of works, each in the colour of the time that it takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilesolve.networks.build import Program
from tilesolve.networks.places import Place
from tilesolve.networks.works import (
    BorderWork,
    CopyWork,
    EvaluatorWork,
    LayerWork,
    PipelineWork,
    WinogradWork,
    Work,
)
from tilesolve.show.pictures import GREY, INK, check_picture, save
from tilesolve.system.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN = 28
"""How many works stand below each other before the next ones are beside them."""

LETTERS = 44
"""How many letters are written of a work."""

WIDE, HIGH = 4.2, 0.42
"""Inches of a work, with what is around."""


def draw_program(
    program: Program, title: str, path: str | os.PathLike[str], measured: Sequence[float] | None
) -> None:
    """Draw the works of a program in their order, and an arrow from each to those that read it.

    Parameters
    ----------
    measured
        Seconds of each work, by which they are coloured; if None, what is predicted.

    Raises
    ------
    PictureError, FileAccessError
        As `check_picture` does.
    """
    check_picture(path)
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    works = program.works
    times = [one or 0.0 for one in program.predicted] if measured is None else measured
    columns = -(-len(works) // COLUMN)
    figure = Figure(figsize=(WIDE * columns, HIGH * (COLUMN + 2)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(COLUMN, -1)
    axes.axis("off")
    places = [(float(at // COLUMN), float(at % COLUMN)) for at in range(len(works))]
    colours, most = colormaps["YlOrRd"], max(times, default=0.0) or 1.0
    for place, work, seconds in zip(places, works, times, strict=True):
        told = f"{_shorten(str(work))}  {format_duration(seconds)}"
        border = {"boxstyle": "round", "fc": colours(0.8 * seconds / most), "ec": GREY}
        axes.text(*place, told, bbox=border, ha="center", va="center", fontsize=7, color=INK)
    for start, end in find_edges(works):
        _draw_arrow(axes, places[start], places[end])
    figure.suptitle(title, fontsize=10, color=INK)
    save(figure, path)


def find_edges(works: Sequence[Work]) -> list[tuple[int, int]]:
    """Return pairs of works by their numbers: one that writes, and one that reads it later."""
    writers: dict[int, list[int]] = {}
    found = []
    for at, work in enumerate(works):
        written = _written(work)
        blocks = dict.fromkeys(one.block for one in work.places if one not in written)
        found += [(maker, at) for block in blocks for maker in writers.get(block, ())]
        for place in written:
            writers.setdefault(place.block, []).append(at)
    return found


def _written(work: Work) -> list[Place]:
    """Return the places that a work writes."""
    match work:
        case LayerWork() | WinogradWork() | CopyWork():
            return [work.out]
        case BorderWork():
            return [work.place]
        case PipelineWork():
            return list(work.outputs)
        case EvaluatorWork():
            return [one for one in work.outputs.values() if one is not None]
    return []


def _shorten(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow, curved where it passes other works."""
    near = start[0] == end[0] and end[1] - start[1] <= 1
    style = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 8, "shrinkB": 8, "alpha": 0.7}
    style |= {} if near else {"connectionstyle": "arc3,rad=0.25"}
    axes.annotate("", end, start, arrowprops=style, zorder=0)
