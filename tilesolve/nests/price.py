"""What a nest of loops costs: the price of its tree, and the arithmetic of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil, prod

import numpy as np

from tilesolve.constants.nests import NEST_REGION_POINTS
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access, Box
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.price import LevelPrice, Price, list_levels, price_levels, send_past_caches
from tilesolve.model.runs import charge_runs
from tilesolve.model.traffic import count_traffic
from tilesolve.nests.arithmetic import arithmetic_seconds
from tilesolve.nests.interference import CacheSets, conflict_share


def price_nest(computation: Computation, tree: LoopTree, machine: Machine) -> Price:
    """Return what the loops of a statement cost each of the threads."""
    (stage,) = computation.stages
    places, streamed = list_levels(machine, tree.threads), tree.output == "stream"
    if not computation.points(stage):
        none = (0.0,) * len(tree.works[0].accesses)
        nothing = (LevelPrice(one.server, one.name, none, none, none, 0.0) for one in places)
        return Price(tuple(nothing), 0.0, 0.0, ())
    found = count_traffic(tree, places, evicts=evicts_itself(machine))
    region = region_share(stage, computation.sizes)
    levels = charge_runs(price_levels(places, found, region), tree, places, machine)
    if stage.update is not None:
        filled = float(computation.output.bytes)
        levels = tuple(map(partial(_charge_output, 2 * filled, filled), levels, places))
    past_caches = 0.0
    if streamed:
        levels, past_caches = send_past_caches(levels, places)
    compute = region * arithmetic_seconds(computation, tree, machine)
    calls = region * float(found.calls)
    if streamed and not has_whole_lines(computation.output, machine.levels[0].line):
        compute += calls * machine.costs.shared_line_cycles / machine.frequency
    return Price(levels, compute, calls, (), past_caches)


def _charge_output(volume: float, moved: float, level: LevelPrice, place: LevelView) -> LevelPrice:
    """Return what a level serves with the output written once before: tables begin with zeros."""
    return replace(
        level,
        moved=(level.moved[0] + moved, *level.moved[1:]),
        volumes=(level.volumes[0] + volume, *level.volumes[1:]),
        seconds=level.seconds + float(place.seconds((volume,))),
    )


def has_whole_lines(array: ArrayInfo, line: int) -> bool:
    """Return whether rows of an array share no line, if it begins with one.

    Examples
    --------
    >>> [has_whole_lines(ArrayInfo("o", (8, n), "float32"), 64) for n in (118, 128)]
    [False, True]
    >>> has_whole_lines(ArrayInfo("o", (118,), "float32"), 64)
    True
    """
    row = array.shape[-1] * np.dtype(array.dtype).itemsize if array.shape else 0
    return row % line == 0 or prod(array.shape[:-1]) == 1


def region_share(stage: Stage, extents: Mapping[str, int]) -> float:
    """Return the share of the points of a box where a statement computes, by a coarse grid.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stage = parse_stages("C[i,j] = A[i,j]", "j <= i")[0]
    >>> round(region_share(stage, {"i": 1000, "j": 1000}), 1)
    0.5
    """
    letters = tuple(dict.fromkeys(x for one in stage.where for x in one.letters))
    if not letters:
        return 1.0
    side = max(NEST_REGION_POINTS // len(letters), 2)
    steps = [(np.arange(side) + 0.5) * extents[x] // side for x in letters]
    grid = dict(zip(letters, np.ix_(*steps), strict=True))
    found = np.ones([side] * len(letters), dtype=bool)
    for one in stage.where:
        found = found & one.holds(grid)
    return float(found.mean())


def evicts_itself(machine: Machine) -> Callable[[Access, Box, LevelView], float]:
    """Return what says how much of what a box touches of an array evicts itself from a cache.

    In which sets of the last cache lines lie, no address tells.
    """
    caches = {one.name: one for one in machine.caches[:-1]}

    def evicts(access: Access, box: Box, place: LevelView) -> float:
        if place.name not in caches or access.gathered or len(access.axes) < 2:
            return 0.0
        sides = tuple(max(ceil(side), 1) for side in access.reaches(box))
        sets = CacheSets.whole(caches[place.name], access.element)
        return conflict_share(sets, sides, access.pitches)

    return evicts
