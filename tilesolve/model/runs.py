"""Runs: pieces of lines side by side, whose first line is what hardware prefetching does not hide.

A level serves runs and lines: ``runs · start + lines · line`` seconds. With ρ = line / (start +
line), the share that a further line of a run costs of the first one, that is as much as ``runs ·
(1 - ρ) + lines · ρ`` first lines. ρ = 0 counts runs alone, as chapter 4 of the thesis on pipelines
does; ρ = 1 lines alone, as where nothing prefetches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesolve.constants.policy import LATER_LINE_SHARE
from tilesolve.machine.level import Level


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
