"""Blocks of a region as tasks: which follow one another, and how long threads take for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappushpop

Place = tuple[int, Mapping[str, int]]
"""The kind of a block, and the first value of each letter there."""


def group_places(places: Sequence[Place], output: Sequence[str]) -> list[list[Place]]:
    """Return blocks in groups that add to the same elements, given the output's letters.

    Boxes are cut from one grid: those of two blocks are the same along these letters, or apart.

    Examples
    --------
    >>> places = [(0, {"i": 0, "k": 0}), (1, {"i": 8, "k": 0}), (0, {"i": 0, "k": 4})]
    >>> [[kind for kind, _ in group] for group in group_places(places, "i")]
    [[0, 0], [1]]
    """
    found: dict[tuple[int, ...], list[Place]] = {}
    for place in places:
        found.setdefault(tuple(place[1][letter] for letter in output), []).append(place)
    return list(found.values())


def share_loads(loads: Sequence[float], threads: int) -> float:
    """Return when the last thread ends if each takes the next load once it has done its own.

    Examples
    --------
    >>> share_loads([5.0, 4.0, 3.0, 3.0], 2)
    8.0
    """
    ends = [0.0] * threads
    heapify(ends)
    for load in loads:
        heappushpop(ends, ends[0] + load)
    return max(ends)


def order_tasks(
    places: Sequence[Place], output: Sequence[str], loads: Sequence[float]
) -> list[tuple[float, list[Place]]]:
    """Return the tasks of a region, the longest first, with what they take.

    Parameters
    ----------
    places
        The blocks of the region.
    output
        The output's letters.
    loads
        What a block of each kind takes.
    """
    weighed = [
        (sum(loads[kind] for kind, _ in group), group) for group in group_places(places, output)
    ]
    return sorted(weighed, key=lambda one: one[0], reverse=True)
