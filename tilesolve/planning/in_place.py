"""Reading in place: whether calls use whole lines that lie well in the nearest cache."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.lines import lines_of, run_of
from tilesolve.model.nest import Nest
from tilesolve.planning.register_tile import fits_second_cache


def is_cheap_in_place(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether what a call reads in place costs it little.

    It should use whole lines, and these should not share a few sets of the nearest cache: steps
    that are a multiple of a way apart all fall into one. Where the second cache holds all tensors,
    that costs less than a copy does. See ``docs/decisions/024-reading-in-place.md``.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 512)
    >>> nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 512)])
    >>> is_cheap_in_place(problem, nest, Machine.load("i7-6700k"))
    True
    """
    register_box, line = dict(nest.bands[0].box), machine.memory.line
    near = fits_second_cache(share, machine)
    for number, copy in enumerate(nest.packed, start=1):
        if copy is None and nest.kind(number - 1) == "in place":
            run = run_of(share, share.spec.tensors[number], register_box)
            if run < min(line, share.bytes[number]):
                return False
            sides = tuple((i, register_box[i]) for i in share.spec.tensors[number].letters)
            if not near and not _spreads(share, number, sides, line, machine.first_cache):
                return False
    return True


@lru_cache(maxsize=512)
def _spreads(
    share: Problem,
    number: int,
    sides: tuple[tuple[str, int], ...],
    line: int,
    nearest: Level | None,
) -> bool:
    """Return whether lines of a box have room in the nearest cache, or are in most of its sets."""
    if nearest is None or nearest.capacity is None or nearest.ways is None:
        return True
    lines = lines_of(share, number, dict(sides), line)
    sets = max(1, nearest.capacity // (nearest.line * nearest.ways))
    counts = np.bincount((lines % sets).astype(np.int64))
    spread = np.count_nonzero(counts) >= min(sets, len(lines)) / 2
    return bool(counts.max() <= nearest.ways or spread)
