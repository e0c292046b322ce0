"""Variants: plans of one problem that differ in loops, tiles and the letter that threads divide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.strategy import alternatives, with_tiles
from tilesolve.planning.solution import Solution
from tilesolve.planning.solve import rank
from tilesolve.plans.plan import Plan
from tilesolve.ranking.grid import draw_tilings, make_grids, make_interleaved_grids
from tilesolve.ranking.polydl import vary_like_polydl
from tilesolve.ranking.polydl_convolutions import vary_convolution

SOLVER, RUNNER_UP, GRID, POLYDL = "solver", "runner-up", "grid", "polydl"
"""Where a variant comes from."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A plan among others of its problem.

    `kind` is ``solver``, ``runner-up``, ``grid`` or ``polydl``. `fits` says whether its tiles
    keep all limits: a plan that does not fit a cache is ranked, too.
    """

    kind: str
    plan: Plan
    fits: bool = True


def list_variants(
    problem: Problem,
    machine: Machine,
    threads: int = 1,
    *,
    count: int = 500,
    seed: int = 1,
    like: str | None = None,
) -> list[Variant]:
    """Return the solver's plan and other plans of a problem, no two with the same loops and tiles.

    Parameters
    ----------
    problem, machine, threads
        The problem, and the machine and the cores that compute it.
    count
        Variants at most. Runners-up are half of them at most; the others are drawn from the grid of
        tile sizes, loops and letters that threads divide, from all ranges of prices alike.
    seed
        Of that draw.
    like
        ``"polydl"``: the variants that PolyDL generates, in place of runners-up and the grid.

    Raises
    ------
    PlanError
        If there are none like that.

    Examples
    --------
    >>> problem, machine = Problem.of("ik-ij-jk", 64), Machine.load("i7-6700k")
    >>> found = list_variants(problem, machine, count=20)
    >>> len(found), found[0].kind
    (20, 'solver')
    """
    if like is not None and not (isinstance(like, str) and like == POLYDL):
        raise PlanError(f"there are no variants like {like!r}; there are those like {POLYDL!r}")
    best, *others = rank(problem, machine, threads, Demand())
    head = [Variant(SOLVER, Plan(best))]
    if like == POLYDL:
        plain = all(one.plain for tensor in problem.spec.tensors for one in tensor.subscripts)
        vary = vary_like_polydl if plain else vary_convolution
        drawn = vary(best, count - 1, seed)
        return _unlike(head, (Variant(POLYDL, Plan(one), fits) for one, fits in drawn), count)
    runners = (Variant(RUNNER_UP, Plan(one)) for one in (*others, *alternatives(best)))
    head = _unlike(head, runners, max(1, count // 2))
    return _unlike(head, _draw([best, *others], count, seed), count)


def _draw(solutions: Iterable[Solution], count: int, seed: int) -> Iterator[Variant]:
    """Yield variants of the grids of some solutions."""
    made = ((*make_grids(one), *make_interleaved_grids(one, seed)) for one in solutions)
    grids = [grid for some in made for grid in some]
    for tiled in draw_tilings(grids, count, seed):
        grid = tiled.grid
        found = with_tiles(grid.solution, grid.setting, grid.choice, tiled.chains)
        yield Variant(GRID, Plan(found), tiled.fits)


def _unlike(head: list[Variant], others: Iterable[Variant], count: int) -> list[Variant]:
    """Return some variants and as many others, of other nests, as make so many."""
    found = {(one.plan.split, one.plan.nest): one for one in head}
    for one in others:
        if len(found) >= count:
            break
        found.setdefault((one.plan.split, one.plan.nest), one)
    return list(found.values())
