"""A picture of what rankers pick, as in Figs 10 and 19 of the PolyDL paper."""

from __future__ import annotations

import os

from tilesolve.contractions.errors import PlanError
from tilesolve.ranking.order import best_of_first
from tilesolve.ranking.standings import Standings
from tilesolve.ranking.variants import GRID, POLYDL
from tilesolve.show.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, check_picture, save


def draw_ranking(found: Standings, path: str | os.PathLike[str]) -> None:
    """Draw the speed of picks as shares of the fastest variant measured.

    The bars are the slowest variant, the median of the untuned ones, each ranker's first one, the
    solver's plan, and the fastest.

    Parameters
    ----------
    found
        With times of its variants.
    path
        The picture; the ending of its name says the format.

    Raises
    ------
    PictureError, FileAccessError
        As `check_picture` does.
    PlanError
        If nothing was measured.
    """
    check_picture(path)
    bars = list_bars(found)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 1.1 * len(bars), 4.2), layout="constrained")
    axes = figure.add_subplot()
    colours = {"slowest": GREY, "untuned": ORANGE, "solver": RED, "fastest": GREEN}
    for at, (name, share) in enumerate(bars.items()):
        axes.bar(at, share, color=colours.get(name, BLUE), alpha=0.85, width=0.65)
        axes.text(at, share, f"{share:.2f}", ha="center", va="bottom", fontsize=9, color=INK)
    axes.set_xticks(range(len(bars)), list(bars), fontsize=9)
    axes.set_ylim(0, 1.12)
    axes.set_ylabel("speed as a share of the fastest variant's")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    count = sum(taken is not None for taken in found.measured)
    axes.set_title(
        f"{found.problem} on {found.solver.machine.name}, {count} variants",
        loc="left",
        fontsize=10,
        color=INK,
    )
    save(figure, path)


def list_bars(found: Standings) -> dict[str, float]:
    """Return the speed of each pick as a share of the fastest variant's.

    Raises
    ------
    PlanError
        If nothing was measured.
    """
    timed = [
        (variant.kind, taken, [values[at] for _, values in found.scores])
        for at, (variant, taken) in enumerate(zip(found.variants, found.measured, strict=True))
        if taken is not None
    ]
    if not timed:
        raise PlanError("a picture of a ranking shows what was measured: nothing was")
    seconds = [taken for _, taken, _ in timed]
    fastest = min(seconds)
    untuned = sorted(taken for kind, taken, _ in timed if kind in (GRID, POLYDL))
    bars = {"slowest": max(seconds)}
    if untuned:
        bars["untuned"] = untuned[len(untuned) // 2]
    for number, name in enumerate(found.rankers):
        bars[name] = best_of_first([scores[number] for _, _, scores in timed], seconds, 1)
    bars |= {"solver": (1 + found.excess_over_least) * fastest, "fastest": fastest}
    return {name: fastest / taken for name, taken in bars.items()}
