"""Runs: what calls write of C side by side, and where tiles begin so that these are whole lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesolve.constants import tuning
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import COLUMNS, ROWS
from tilesolve.packing.offsets import RoleAxis
from tilesolve.planning.layout_policy import LayoutPolicy, letter_of_row_vectors


def find_lead(
    problem: Problem, policy: LayoutPolicy, output: Mapping[str, int], lanes: int, place: int
) -> int:
    """Return how many rows are before C's first whole vector, if tiles begin behind them; else 0.

    C leaves straight from registers then, past the caches, though it begins amid a line: all its
    columns have as many such rows. As that takes one more vector, and two more calls, runs have to
    be long. Rows that are read in place, or were packed before, begin where the array does.

    Parameters
    ----------
    problem, policy
        What one thread computes, and how.
    output
        Bytes from one index of a letter to the next one in C.
    lanes
        Elements of a vector.
    place
        Bytes from a line's beginning to where C begins.
    """
    lane, element = letter_of_row_vectors(problem, policy.roles, output), problem.itemsize
    packs = policy.packed[ROWS] and not policy.prepared[ROWS]
    if lane is None or not packs or not policy.non_temporal or lane in policy.nest.sequences:
        return 0
    others = [step for i, step in output.items() if i != lane and problem.sizes[i] > 1]
    before, rest = divmod(-place % (lanes * element), element)
    if rest or output.get(lane) != element or any(step % (lanes * element) for step in others):
        return 0
    size, sides = problem.sizes[lane], [band[lane] for band in policy.nest.bands[1:]]
    tiles = -(-size // min(sides))
    long = size >= tiles * tuning.MIN_VECTORS_BEHIND_LEAD * lanes
    return before if long and not any(side % lanes for side in (size, *sides)) else 0


def mean_run_bytes(axes: Sequence[RoleAxis], element: int) -> float:
    """Return the mean bytes of C that calls for the nearest tiles write side by side.

    A run goes along the rows of equal register tiles, and may go on from column to column.
    """

    def mean_run(axis: RoleAxis, distance: int) -> float:
        """Return how many indices of a call follow each other at a distance, in the mean."""
        tiles, is_end = axis.bounds[0], np.diff(axis.offsets[0]) != distance
        is_end[tiles[1:-1][np.diff(tiles, 2) != 0] - 1] = True
        if len(axis.bounds) > 1:
            is_end[tiles[axis.bounds[1][1:-1]] - 1] = True
        return axis.size / (1 + int(np.count_nonzero(is_end)))

    rows, columns = axes[ROWS], axes[COLUMNS]
    down, tile = int(mean_run(rows, element)), int(rows.bounds[0][1])
    whole = {min(down, tile), down if tile and down % tile == 0 else 1}
    return element * max(down, *(n * mean_run(columns, n * element) for n in whole))


def runs_of_tile(axes: Sequence[RoleAxis], element: int) -> int:
    """Return how many runs of C the first register tile is."""
    rows, columns = (axes[role].offsets[0][: axes[role].bounds[0][1]] for role in (ROWS, COLUMNS))
    places = np.sort(np.add.outer(rows, columns).ravel())
    return 1 + int(np.count_nonzero(np.diff(places) != element))
