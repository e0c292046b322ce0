"""Random tiles and loops for statements that use elements again: what prices are held to."""

from __future__ import annotations

import random
from dataclasses import replace

from tilesolve.nests.classify import NestClass
from tilesolve.nests.loop_choice import price_loops
from tilesolve.nests.planning import plan_loops
from tilesolve.nests.request import NestRequest
from tilesolve.nests.setting import Setting, make_setting
from tilesolve.nests.shapes import tiled_tree
from tilesolve.nests.solutions import LoopSolution
from tilesolve.nests.temporal import TemporalTiles, cost_of, list_boundary_loops, order_loops

DRAWS_PER_TILING = 20
"""Tilings that are drawn for each that is wanted, at most: small extents have few that differ."""


def draw_tilings(
    request: NestRequest, *, count: int = 30, seed: int = 1
) -> list[tuple[LoopSolution, ...]]:
    """Return solutions with random tiles for each statement that sums, no two with the same loops.

    Tiles are drawn from all sizes alike on a logarithmic scale, whether they fit the caches or
    not; then the loops that decide, and the rest of the loops in their best order.

    Parameters
    ----------
    request
        For what.
    count
        How many are wanted; fewer come where there are no more.
    seed
        Of the draw: the same one gives the same tiles.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> found = bind_stages(parse_stages("C[i,j] += A[i,k] * B[k,j]"), 64, "float32")
    >>> drawn = draw_tilings(NestRequest(found, Machine.load("i7-6700k")), count=5)
    >>> len({one.loops for (one,) in drawn})
    5
    """
    planned = plan_loops(request)
    alone = replace(request, threads=1, mode="thesis")
    tiled = [bool(one.tiles) for one in plan_loops(alone)]
    rng = random.Random(seed)
    found: dict[object, tuple[LoopSolution, ...]] = {}
    for _ in range(DRAWS_PER_TILING * count):
        if len(found) == count:
            break
        drawn = tuple(
            _draw_loops(one, rng) if may and one.kind is NestClass.TEMPORAL else one
            for one, may in zip(planned, tiled, strict=True)
        )
        found.setdefault(tuple(one.loops for one in drawn), drawn)
    return list(found.values())


def _draw_loops(solution: LoopSolution, rng: random.Random) -> LoopSolution:
    """Return a solution with random tiles."""
    request = solution.request
    setting = make_setting(request.computation, request.statement, request.machine, request.threads)
    found = _draw_tiles(setting, rng)
    tree = tiled_tree(request, found)
    return replace(
        solution,
        why="its tiles are drawn",
        tiles=dict(found.tiles),
        loops=tree,
        capped_by="",
        cost=price_loops(request, tree),
    )


def _draw_tiles(setting: Setting, rng: random.Random) -> TemporalTiles:
    ends = rng.choice(list(list_boundary_loops(setting)))
    tiles = dict(setting.least)
    for letter in setting.tiled:
        least, most = setting.least[letter], setting.most(letter, ends.threads)
        drawn = round(least * (most / least) ** rng.random())
        if letter == setting.column and drawn < most:
            drawn = drawn // least * least
        tiles[letter] = min(max(drawn, 1), most)
    return TemporalTiles(
        ends, tiles, float(cost_of(setting, ends, tiles)), *order_loops(setting, ends, tiles)
    )
