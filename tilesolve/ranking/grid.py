"""The grid of tile sizes and loop orders: register tiles doubled up to the extent, or the extent.

A grid does not ask whether tiles fit: it shows tiles that overflow a cache, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, zip_longest
from math import log, prod

import numpy as np

from tilesolve.contractions.roles import Roles
from tilesolve.model.score import score_times
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.strategy import setting_for
from tilesolve.planning.geometric.tilings import Chain, survey
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.solution import Solution

TILINGS_PER_VARIANT = 10
"""Tilings of a grid that are priced for each variant that is wanted."""

INTERLEAVED_PARTS = 2
"""Parts without a role that comes back, of orders with one: more parts are more bands to run."""

STRATA = 20
"""Ranges of prices, equal in logarithms, that variants are taken from in turns."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All tilings of the grid with the same loops.

    Parameters
    ----------
    solution
        The solver's, whose threads divide the same letter and that writes C in the same way.
    setting
        The setting that it was solved in.
    choice
        The loops around each tile.
    options
        For each class the tile sizes that there are, nearest cache first, as pairs.
    """

    solution: Solution
    setting: Setting
    choice: Choice
    options: tuple[tuple[str, tuple[Chain, ...]], ...]

    def __len__(self) -> int:
        return prod(len(chains) for _, chains in self.options)

    def tiling(self, number: int) -> dict[str, Chain]:
        """Return a tiling, given its number from 0 on."""
        found = {}
        for index, chains in self.options:
            number, at = divmod(number, len(chains))
            found[index] = chains[at]
        return found


@dataclass(frozen=True, slots=True)
class Tiled:
    """A tiling of a grid.

    `chains` are the tiles of each class. `seconds` is the price before tiles become boxes of
    letters. `fits` says whether the tiling keeps all limits.
    """

    grid: Grid
    chains: dict[str, Chain]
    seconds: float
    fits: bool


def make_grids(solution: Solution) -> list[Grid]:
    """Return the grids of all choices of loops, for the letter that a solution's threads divide.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found = make_grids(plan("ik-ij-jk", 64, "i7-6700k", cache=False).solution)
    >>> len(found), dict(found[0].options)["K"][:2]
    (48, ((1, 1, 1), (1, 1, 2)))
    """
    setting = setting_for(solution)
    return [
        Grid(
            solution,
            setting,
            choice,
            tuple((i, _chains(setting, choice, i)) for i in setting.fused.problem.spec.letters),
        )
        for choice in list_choices(setting)
    ]


def make_interleaved_grids(solution: Solution, seed: int) -> list[Grid]:
    """Return grids of loops in which a role comes back, as many as there are usual ones.

    There are none where each role has one class, as in a matrix product, whose loops cannot stand
    between each other. Of a convolution, filters may stand between the rows of the output and its
    columns.

    `seed` is that of the draw of orders.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found = plan("khw-c[h+r][w+s]-kcrs", 8, "i7-6700k", cache=False).solution
    >>> len(make_interleaved_grids(found, 1)) == len(make_grids(found))
    True
    >>> make_interleaved_grids(plan("ik-ij-jk", 8, "i7-6700k", cache=False).solution, 1)
    []
    """
    setting, draw = setting_for(solution), random.Random(seed)
    problem = setting.fused.problem
    roles = Roles.of_problem(problem)
    running = [i for i in problem.spec.letters if problem.sizes[i] > 1]
    several = [number for number in range(4) if len({*roles[number]} & {*running}) > 1]
    if not several or {roles.number(i) for i in running} == {*several[:1]}:
        return []

    def interleave() -> str:
        while True:
            order = draw.sample(problem.spec.letters, len(problem.spec.letters))
            if len(roles.split(i for i in order if i in running)) == INTERLEAVED_PARTS:
                return "".join(order)

    found = []
    for choice in list_choices(setting):
        orders = tuple(first and interleave() for first in choice)
        options = tuple((i, _chains(setting, orders, i)) for i in problem.spec.letters)
        found.append(Grid(solution, setting, orders, options))
    return found


def _chains(setting: Setting, choice: Choice, index: str) -> tuple[Chain, ...]:
    """Return the tile sizes of a class: the smallest doubled, or the extent, at each level."""
    extent = setting.fused.problem.sizes[index]
    side = setting.smallest(index, 1) if setting.levels else extent
    sides = []
    while side < extent:
        sides.append(side)
        side *= 2
    own = [level for level in range(setting.levels) if not level or choice[level - 1] is not None]
    place = [sum(one <= level for one in own) - 1 for level in range(setting.levels)]
    return tuple(
        tuple(chain[at] for at in place)
        for chain in combinations_with_replacement((*sides, extent), len(own))
    )


def draw_tilings(grids: Sequence[Grid], count: int, seed: int) -> Iterator[Tiled]:
    """Yield tilings of some grids, from all ranges of prices in turns, the fastest range first.

    Each grid gives as many tilings, where it has so many. A few more than `count` are yielded,
    as different tilings may be the same nest. The same seed draws the same tilings.
    """
    draw = random.Random(seed)
    each = max(1, TILINGS_PER_VARIANT * count // max(1, len(grids)))
    drawn: list[Tiled] = []
    for grid in grids:
        size = len(grid)
        numbers = sorted(draw.sample(range(size), each)) if size > each else range(size)
        tilings = [grid.tiling(number) for number in numbers]
        times, fits = survey(grid.setting, grid.choice, tilings)
        seconds = np.broadcast_to(score_times(times, grid.setting.overlap), len(tilings))
        drawn += [
            Tiled(grid, *found)
            for found in zip(tilings, seconds.tolist(), fits.tolist(), strict=True)
        ]
    strata = _stratify(drawn)
    for members in strata:
        draw.shuffle(members)
    for turn in zip_longest(*strata):
        yield from (one for one in turn if one is not None)


def _stratify(drawn: Sequence[Tiled]) -> list[list[Tiled]]:
    """Return tilings in ranges of prices, the fastest first."""
    found: list[list[Tiled]] = [[] for _ in range(STRATA)]
    logs = [log(one.seconds) for one in drawn]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    for one, value in zip(drawn, logs, strict=True):
        share = (value - low) / (high - low) if high > low else 0.0
        found[min(STRATA - 1, int(STRATA * share))].append(one)
    return found
