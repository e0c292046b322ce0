"""No variant that keeps all limits is priced far below the solver's plan; nothing is run.

Its tiles are points of the programs whose optima the solver rounds. The predicted time is held, and
the score, which also counts what the slowest level hides, but for the problems that are listed.
"""

from dataclasses import replace
from itertools import islice

import pytest

from tilesolve.bench.cases import draw_problems
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.strategy import alternatives, with_tiles
from tilesolve.planning.solve import rank
from tilesolve.ranking.grid import draw_tilings, make_grids

LEAD = 0.04
"""Share that a variant may be priced below the solver's plan: ties within 2 % are given away."""


def small_machine():
    """A machine with caches so small that small problems have all loops."""
    found = Machine.load("i7-6700k")
    caches = (4096, 16384, 65536)
    levels = [
        replace(level, capacity=size) for level, size in zip(found.levels, caches, strict=False)
    ]
    return found.replace(name="small", levels=(*levels, found.levels[-1]))


MACHINE = small_machine()

DRAWN = {
    name: Problem.of(one.spec, {i: max(2, n // 6) for i, n in one.sizes.items()})
    for name, one in draw_problems(14, 7).items()
}


def shrink(problem, most):
    """The problem with extents of so many at most."""
    few = {letter: min(extent, most) for letter, extent in problem.sizes.items()}
    return Problem.of(problem.spec, few, problem.dtype)


SHRUNK = {
    name: shrink(problem, most)
    for kind, most in (("gemm-small", 96), ("tccg", 24))
    for name, problem in suite(kind).items()
}

CONVOLUTIONS = {
    name: shrink(problem, 14)
    for kind in ("resnet18", "resnet50")
    for name, problem in suite(kind).items()
}

PREDICTED_LOWER = {"ResNet18-12", "ResNet50-17"}
"""Convolutions with a faster variant: boxes of the solver's plan cut lines of memory in pieces,
which tiles of classes do not show."""

SCORED_LOWER = {
    *("7-10 bac-dea-edcb", "ab-acd-dbc", "abc-acd-db", "abcd-aebf-dfce"),
    *("abcd-aecf-bfde", "abcd-aefc-fbed", *PREDICTED_LOWER),
}
"""Problems with a variant whose score is lower: about as fast by the slowest level, it moves less
elsewhere. It is of an optimum that the solver does not round, or takes more room."""


def feasible_variants(problem, count):
    """The solver's plan, and variants of the grid and of other optima that keep all limits."""
    best, *others = rank(problem, MACHINE, 1, Demand())
    tilings = (one for one in draw_tilings(make_grids(best), 4 * count, 5) if one.fits)
    drawn = [
        with_tiles(one.grid.solution, one.grid.setting, one.grid.choice, one.chains)
        for one in islice(tilings, count)
    ]
    return best, [*others, *alternatives(best), *drawn]


def check(name, problem, count):
    best, variants = feasible_variants(problem, count)
    assert variants
    fastest = min(one.cost.seconds for one in variants)
    leads = best.cost.seconds <= fastest / (1 - LEAD)
    assert leads or name in PREDICTED_LOWER, (name, best.cost.seconds / fastest)
    lower = best.score * (1 - LEAD) > min(one.score for one in variants)
    assert not lower or name in SCORED_LOWER, name


@pytest.mark.parametrize("name", [name for at, name in enumerate(DRAWN) if at % 5 == 0])
def test_the_solver_leads_on_some_drawn_problems(name):
    """Of the grid, and of other optima."""
    check(name, DRAWN[name], 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_the_solver_leads_on_drawn_problems(name):
    """The same for all of them, and more variants."""
    check(name, DRAWN[name], 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHRUNK)
def test_the_solver_leads_on_shrunk_suites(name):
    """Contractions and products."""
    check(name, SHRUNK[name], 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_solver_leads_on_shrunk_convolutions(name):
    """For which there is no proof: the program is not convex."""
    check(name, CONVOLUTIONS[name], 12)
