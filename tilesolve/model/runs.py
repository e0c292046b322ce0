"""Runs: pieces of lines side by side, whose first line is what hardware prefetching does not hide.

A level serves runs and lines: ``runs · start + lines · line`` seconds. With ρ = line / (start +
line), the share that a further line of a run costs of the first one, that is as much as ``runs ·
(1 - ρ) + lines · ρ`` first lines. ρ = 0 counts runs alone, as chapter 4 of the thesis on pipelines
does; ρ = 1 lines alone, as where nothing prefetches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesolve.constants.policy import LATER_LINE_SHARE
from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level
from tilesolve.model.footprints import Sizes
from tilesolve.model.tiling import LoopPath, Tiling
from tilesolve.model.traffic import Residency, Store, copies_of, lines_seen
from tilesolve.model.walk import Rule, walk


def count_runs(
    problem: Problem, tiling: Tiling, places: Sequence[Store], rule: Rule = "distance"
) -> tuple[tuple[Sizes, ...], ...]:
    """Return the runs of each tensor that each cache takes in: those of the walk of `traffic`.

    The tiles of the first cache cut runs: the next tile has others in between. A packed operand is
    one run each time that its copy comes in; packing itself does not count.

    Parameters
    ----------
    problem, tiling, rule
        As of `traffic`.
    places
        The register file and the caches, nearest first.

    Examples
    --------
    A cache that holds all takes in the rows of each tile of C and B, and A as a whole:

    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> boxes = ({"m": 8, "n": 16, "k": 64}, dict.fromkeys("mnk", 64))
    >>> bands = (("register", ("m", "n", "k")), ("memory", ("m", "n", "k")))
    >>> places = [Store("register", 2048.0, 1, "L1", 1e10), Store("L1", 2.0**20, 64, "L2", 1e10)]
    >>> count_runs(problem, Tiling(bands, boxes, (None, None), "store"), places)
    ((256.0, 1.0, 256.0),)
    """
    path = LoopPath(problem, tiling)
    names = [place.name for place in places]
    copies, _, lines, widths = copies_of(problem, tiling, names)
    tile = path.through.get(names[1], path.call) if len(names) > 1 else path.call
    found = []
    for at, place in enumerate(places[1:], start=1):
        residency = Residency(path, place, at, copies, lines, names, widths)
        _, own = lines_seen(place, lines, [at < c or not c for c in copies])
        whole: list[Sizes] = [1.0] * (len(path.loops) + 1)
        tables = [
            whole if copied else path.runs_taken(t, place.line, tile)
            for t, copied in enumerate(own)
        ]
        stays = residency.stays if rule == "distance" else residency.fits
        found.append(tuple(walk(path.tensors, path.loops, tables, stays, path.runs)))
    return tuple(found)


def first_lines(runs: Any, lines: Any, share: float) -> Any:  # noqa: ANN401 - numbers or arrays
    """Return how many first lines of runs cost as much as so many runs and lines.

    Examples
    --------
    >>> [first_lines(10, 40, share) for share in (0.0, 0.5, 1.0)]
    [10.0, 25.0, 40.0]
    """
    return runs * (1 - share) + lines * share


def later_share(level: Level, line_seconds: float) -> float:
    """Return the share ρ of a run's first line that each further one costs at a level.

    Where the level's start is not known, the share is a default.

    Examples
    --------
    >>> later_share(Level("L2", 2**18, 6.4e10, start=3e-9), 1e-9)
    0.25
    """
    if level.start is None:
        return LATER_LINE_SHARE
    return line_seconds / (level.start + line_seconds)


def start_seconds(level: Level, line_seconds: float, stride: float | None = None) -> float:
    """Return what a run's first line takes beyond the others.

    Parameters
    ----------
    level
        The level that serves.
    line_seconds
        What a line takes.
    stride
        Lines from each run to the next one, where runs follow one another like that; then the level
        may prefetch their first lines, too. Strides in between those measured have shares in
        between; longer ones take as long as the longest.

    Examples
    --------
    >>> level = Level("L2", 2**18, 6.4e10, start=3e-9, strided=((1, 0.25), (64, 1.0)))
    >>> [round(start_seconds(level, 1e-9, stride) * 1e9, 2) for stride in (None, 1, 8, 64, 512)]
    [3.0, 0.0, 1.5, 3.0, 3.0]
    """
    first = line_seconds / later_share(level, line_seconds)
    if stride is not None and level.strided:
        strides, shares = zip(*level.strided, strict=True)
        first = first * float(np.interp(np.log(max(stride, 1.0)), np.log(strides), shares))
    return max(first - line_seconds, 0.0)
