"""Reading in place: whether calls use whole lines that lie well in the nearest cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.level_view import LevelView
from tilesolve.model.lines import lines_of, run_of
from tilesolve.model.nest import Nest
from tilesolve.model.price import Price, reading_seconds
from tilesolve.model.score import score_times
from tilesolve.planning.register_tile import fits_second_cache
from tilesolve.planning.setting import Setting


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


def score_without(
    setting: Setting,
    places: Sequence[LevelView],
    share: Problem,
    nest: Nest,
    cost: Price,
    packed: Sequence[str | None],
    late: Mapping[int, float],
) -> float:
    """Return what a nest would score if copies that others leave out saved all that they take.

    Operands without them cost what they do at least. It is no bound: other copies may lead to
    other boxes, but of 3,700 nests none gains more than 5 % beside it, and few gain at all.

    Parameters
    ----------
    setting, places, share
        The machine, all its levels, and what one thread computes.
    nest, cost
        With copies, and its price.
    packed
        The levels of the copies that are left.
    late
        By operand the seconds that packing waits for late lines.
    """
    kernel, waits = setting.microkernel, dict(late)
    times, compute = [level.seconds for level in cost.levels], cost.compute
    for number, (copy, left) in enumerate(zip(nest.packed, packed, strict=True), start=1):
        if copy is None or left is not None:
            continue
        waits.pop(number, None)
        each = kernel.window_cycles if nest.kind(number - 1) == "windows" else kernel.pack_cycles
        compute -= cost.packed[number - 1] * each / setting.frequency
        if share.spec.tensors[number].subscripts:
            once, rates = share.bytes[number] / share.itemsize, (setting.rate, setting.frequency)
            compute += reading_seconds(share, nest, kernel, number, once, *rates)
        for at, (place, level) in enumerate(zip(places, cost.levels, strict=True)):
            spared = [0.0] * len(level.packing)
            spared[number] = level.packing[number]
            times[at] -= float(place.seconds(spared))
    return float(score_times([compute, *times], setting.overlap)) + sum(waits.values())


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
