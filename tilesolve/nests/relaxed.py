"""Tiles of many letters: a geometric program for each choice of loops, and whole numbers near it.

Working sets and costs are posynomials of tiles. Limits of heights are none, so they are taken from
the tiles of the round before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from tilesolve.constants.nests import (
    NEST_CAP_ROUNDS,
    NEST_REPAIR_LINES,
    NEST_REPAIR_RATIO,
    NEST_REPAIR_TILES,
)
from tilesolve.constants.policy import SOLVER_TOLERANCE
from tilesolve.contractions.errors import SolverError
from tilesolve.nests.reuse import first_working_set, second_working_set
from tilesolve.nests.setting import Setting
from tilesolve.nests.temporal import (
    BoundaryLoops,
    TemporalTiles,
    cost_of,
    largest,
    list_boundary_loops,
    order_tiles,
)
from tilesolve.solver.interior import find_least
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial


@dataclass(frozen=True, slots=True)
class RelaxedTiles:
    """The continuous optimum for one choice of loops.

    Parameters
    ----------
    ends
        The choice.
    tiles
        Of each tiled letter.
    cost
        What their misses cost.
    bound
        What no tiles cost less than, whatever evicts what.
    """

    ends: BoundaryLoops
    tiles: Mapping[str, float]
    cost: float
    bound: float


def solve_tiles(setting: Setting) -> list[TemporalTiles]:
    """Return the best tiles of any number of letters, the cheapest first; none if nothing fits.

    There is one for each choice of loops whose relaxed optimum is no worse than whole tiles found
    before.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.nests.setting import make_setting
    >>> found = bind_stages(parse_stages("C[i,j] += A[i,k] * B[k,j]"), 64, "float32")
    >>> machine = Machine.load("i7-6700k")
    >>> solve_tiles(make_setting(found, found.stages[0], machine))[0].tiles
    {'i': 64, 'j': 64, 'k': 64}
    """
    found = []
    for ends in _worth_a_look(setting):
        if not setting.fits(setting.least, ends.outermost_point, ends.threads):
            continue
        relaxed = relax_tiles(setting, ends)
        if relaxed is not None:
            found.append(relaxed)
    repaired = []
    best = np.inf
    for one in sorted(found, key=lambda one: one.cost):
        if one.bound > best:
            continue
        tiles = repair_tiles(setting, one)
        price = float(cost_of(setting, one.ends, tiles))
        best = min(best, price)
        repaired.append((one.ends, tiles, price))
    return order_tiles(setting, repaired)


def _worth_a_look(setting: Setting) -> Iterable[BoundaryLoops]:
    """Return choices of loops: of those that differ in the threads' letter, the longest one."""
    best: dict[tuple[str, str], BoundaryLoops] = {}
    for ends in list_boundary_loops(setting):
        before = best.get((ends.outermost_point, ends.innermost_tile))
        if before is None or _extent(setting, ends) > _extent(setting, before):
            best[ends.outermost_point, ends.innermost_tile] = ends
    return best.values()


def _extent(setting: Setting, ends: BoundaryLoops) -> int:
    return setting.extents[ends.threads] if ends.threads else 0


def relax_tiles(
    setting: Setting, ends: BoundaryLoops, *, capped: bool = True
) -> RelaxedTiles | None:
    """Return the continuous optimum for one choice of loops; None if there is none.

    Parameters
    ----------
    setting, ends
        What is known, and the choice.
    capped
        Whether heights are limited, so that rows do not evict one another.
    """
    symbols: dict[str, Any] = {x: Signomial.constant(n) for x, n in setting.extents.items()}
    symbols |= {x: Signomial.symbol(x) for x in setting.tiled}
    program = _program(setting, ends, symbols)
    best = {x: float(setting.least[x]) for x in setting.tiled}
    bound = price = 0.0
    for number in range(NEST_CAP_ROUNDS if capped else 1):
        if number:
            heights = _height_limits(setting, ends, symbols, best)
            if heights is None:
                break
            program = replace(program, limits={**_sets(setting, ends, symbols), **heights})
        try:
            best = best | _solved(program, best)
        except SolverError:
            return None
        price = float(cost_of(setting, ends, {**setting.extents, **best}))
        bound = bound if number else price
    return RelaxedTiles(ends, best, price, bound)


def _program(setting: Setting, ends: BoundaryLoops, symbols: Mapping[str, Any]) -> Posynomials:
    """Return the program of tiles that keep both working sets in their caches."""
    cost: Any = cost_of(setting, ends, symbols)
    least = setting.least
    return Posynomials(
        variables={
            x: (float(least[x]), float(max(setting.most(x, ends.threads), least[x])))
            for x in setting.tiled
        },
        times={"misses": cost},
        limits=_sets(setting, ends, symbols),
        unit=cost.at(least),
        weight=None,
    )


def _sets(
    setting: Setting, ends: BoundaryLoops, symbols: Mapping[str, Any]
) -> dict[str, Signomial]:
    """Return both working sets over the room for them."""
    near = first_working_set(setting.references, symbols, ends.outermost_point, setting.lines[0])
    far = second_working_set(setting.references, symbols)
    sets = {"near": near, "far": far}
    return {
        name: one * (1 / capacity)
        for (name, one), capacity in zip(sets.items(), setting.capacities, strict=True)
    }


def _solved(program: Posynomials, start: Mapping[str, float]) -> dict[str, float]:
    """Return the tiles of an optimum, found from some others."""
    if (least := find_least(program, start=start)) is not None:
        return dict(least.sizes)
    arrays = program.arrays()
    places = {f"tile[{x}]": x for x in program.variables}
    point = {name: log(start[x]) for name, x in places.items() if name in arrays.variables}
    found = solve(arrays, starts=[point])
    return {places[name]: exp(value) for name, value in found.values.items()}


def _height_limits(
    setting: Setting, ends: BoundaryLoops, symbols: Mapping[str, Any], tiles: Mapping[str, float]
) -> dict[str, Signomial] | None:
    """Return heights over what the widths of tiles leave; None where no tile passes that."""
    found: dict[str, Signomial] = {}
    passed = False
    now = {**setting.extents, **tiles}
    for number, reference in enumerate(setting.references):
        if len(reference.axes) < 2 or reference.gathered:
            continue
        least = reference.reaches(setting.least)[-2]
        for level, one in enumerate((ends.outermost_point, None)):
            shape = {**now, one: 1} if one else now
            symbol = {**symbols, one: Signomial.constant(1)} if one else symbols
            *_, height, width = reference.reaches(shape)
            limit = max(int(setting.height_limits(number, level, width)), least)
            side = reference.reaches(symbol)[-2]
            if isinstance(side, Signomial) and side.symbols:
                passed = passed or height > limit * (1 + SOLVER_TOLERANCE)
                # A sum of letters is bounded from above; no limit may shut out the least tiles.
                bound = max(float(limit), side.at(setting.least))
                found[f"height_{number}_{level}"] = side * (1 / bound)
    return found if passed else None


def repair_tiles(setting: Setting, relaxed: RelaxedTiles) -> dict[str, int]:
    """Return whole tiles near the relaxed ones: the best of those around, repeatedly.

    First sides are exchanged for others in large steps, for the limits of heights come from the
    tiles of another round; then by a few elements. Tiles of the column letter are whole lines, or
    its extent.
    """
    ends = relaxed.ends
    tiles = dict(setting.least)
    steps = {x: setting.step if x == setting.column else 1 for x in setting.tiled}
    for letter in setting.tiled:
        rounded = int(relaxed.tiles[letter] // steps[letter] * steps[letter])
        tiles[letter] = max(rounded, setting.least[letter])
    while not setting.fits(tiles, ends.outermost_point, ends.threads):
        widest = max(setting.tiled, key=lambda x: tiles[x] / setting.least[x])
        half = tiles[widest] // 2 // steps[widest] * steps[widest]
        tiles[widest] = max(half, setting.least[widest])
    for move in (_exchanged, _shifted):
        better, best = tiles, np.inf
        while (price := float(cost_of(setting, ends, better))) < best:
            tiles, best = better, price
            better = move(setting, ends, tiles, steps)
    return tiles


def _exchanged(
    setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, int], steps: Mapping[str, int]
) -> dict[str, int]:
    """Return the cheapest tiles that fit, with all letters but one scaled, and that one's largest.

    Each letter in turn is that one, but for the column letter.
    """
    found = dict(tiles)
    for free in setting.tiled:
        others = [x for x in setting.tiled if x != free]
        if free == setting.column or not others:
            continue
        count = int(NEST_REPAIR_TILES ** (1 / len(others))) // 2 * 2 + 1
        ratios = np.geomspace(1 / NEST_REPAIR_RATIO, NEST_REPAIR_RATIO, count)
        moved = {x: (ratios * found[x]).astype(np.int64) for x in others}
        many = _grid(setting, ends, found, steps, moved)
        many[free] = np.ones_like(many[others[0]])
        good = setting.fits(many, ends.outermost_point, ends.threads)
        many = {x: one[good] if isinstance(one, np.ndarray) else one for x, one in many.items()}
        if good.any():
            many[free] = largest(setting, ends, many, free)
            found = _cheapest(setting, ends, found, many)
    return found


def _shifted(
    setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, int], steps: Mapping[str, int]
) -> dict[str, int]:
    """Return the cheapest tiles that fit, a few steps around given ones in each letter."""
    shifts = np.arange(-NEST_REPAIR_LINES, NEST_REPAIR_LINES + 1)
    moved = {x: tiles[x] + shifts * steps[x] for x in setting.tiled}
    many = _grid(setting, ends, tiles, steps, moved)
    good = setting.fits(many, ends.outermost_point, ends.threads)
    many = {x: one[good] if isinstance(one, np.ndarray) else one for x, one in many.items()}
    return _cheapest(setting, ends, tiles, many)


def _grid(
    setting: Setting,
    ends: BoundaryLoops,
    tiles: Mapping[str, int],
    steps: Mapping[str, int],
    moved: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all combinations of sizes of letters, as far as extents and threads allow them."""
    axes = []
    for letter, values in moved.items():
        most, least = setting.most(letter, ends.threads), setting.least[letter]
        values = values // steps[letter] * steps[letter]
        values = values[(values >= least) & (values <= most)]
        if letter == setting.column and (whole := setting.extents[letter]) <= most:
            values = np.append(values, whole)
        axes.append(np.unique(np.append(values, tiles[letter])))
    grid = [one.ravel() for one in np.meshgrid(*axes, indexing="ij")]
    return {**tiles, **dict(zip(moved, grid, strict=True))}


def _cheapest(
    setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, int], many: Mapping[str, Any]
) -> dict[str, int]:
    """Return the cheapest of many tiles, or those given if they are."""
    prices = cost_of(setting, ends, many)
    at = int(np.argmin(prices))
    if prices[at] >= cost_of(setting, ends, tiles):
        return dict(tiles)
    return {x: int(one[at]) if isinstance(one, np.ndarray) else int(one) for x, one in many.items()}
