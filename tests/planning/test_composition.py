"""Composition: schemes of fast microkernels, against brute force on small specs."""

from itertools import permutations as orders
from math import prod

import numpy as np
import pytest
from running_cases import make_machine, make_shallow_machine
from strategies import draw_whole_numbers

from tilesolve import Plan, Problem, conv_layer, plan
from tilesolve.contractions.errors import PlanError, SolverError
from tilesolve.contractions.reference import reference
from tilesolve.contractions.roles import COLUMNS, ROWS, SUMS
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.packing.cover import Combination
from tilesolve.planning.composition import strategy
from tilesolve.planning.composition.classes import fast_classes
from tilesolve.planning.composition.completions import (
    ROTATIONS,
    Microkernel,
    Space,
    best_permutation,
    chains,
    permutations,
)
from tilesolve.planning.composition.strategy import Target, schemes
from tilesolve.planning.demand import Demand
from tilesolve.planning.solve import rank
from tilesolve.plans import tries

MACHINE = make_machine(256, 16)
LAYER = "hwk-[h+r][w+s]c-crsk"
LAYER_SIZES = "k=64 h=17 w=5 c=6 r=3 s=3"


def target(spec, sizes, threads=1):
    return Target(Problem.of(spec, sizes), MACHINE, threads, Demand())


def test_classes_are_the_fast_part_of_the_catalogue():
    """Those of 85 % of the best rate and more, whose vectors divide the rows."""
    tiles = [
        RegisterTile(high, wide, float(max(8, high * wide)), 0.0)
        for high in (1, 2, 3)
        for wide in range(1, 5)
    ]
    machine = MACHINE.replace(catalogues=(Catalogue("float64", 256, 16, tuple(tiles)),))
    found = {
        one.vectors: [tile.columns for tile in one.tiles]
        for one in fast_classes("float64", machine, rows=6)
    }
    assert found == {2: [4], 3: [3, 4]}
    assert [one.vectors for one in fast_classes("float64", machine, rows=4)] == [2]
    assert fast_classes("float64", machine, rows=4, share=0.0)[0].vectors == 1


@pytest.mark.parametrize("extent", [1, 12, 34, 46])
def test_chains_are_all_there(extent):
    """Against all tuples of sizes that divide each other; λ stands in each band."""
    kernel = Microkernel("j", 1, 4, "i", Combination(2, 11, 1, 12))
    sizes = range(1, extent + 1)
    expected = {
        (call, near, far, extent)
        for call in sizes
        if extent % call == 0
        for near in range(call, extent + 1, call)
        if extent % near == 0
        for far in range(near, extent + 1, near)
        if extent % far == 0
    }
    assert {chain.sides for chain in chains("k", extent, kernel, SUMS)} == expected
    assert {c.sides[1:] for c in chains("h", extent, kernel, COLUMNS)} == {
        sides[1:] for sides in expected
    }
    assert len(chains("i", 34, kernel, COLUMNS)) == 3
    doubled = Microkernel("j", 1, 4, "i", Combination(4, 11, 2, 12))
    assert len(chains("i", 68, doubled, COLUMNS)) == 3 * (1 + 3)


@pytest.mark.parametrize(("spec", "sizes"), [("ij-ik-kj", 24), (LAYER, LAYER_SIZES)])
def test_schemes_cover_the_problem_and_run(spec, sizes):
    """All that are kept are whole, and equal the reference, from JSON, too."""
    problem = Problem.of(spec, sizes)
    operands = draw_whole_numbers(problem)
    expected = reference(problem, *operands)
    found = rank(problem, MACHINE, 1, Demand(strategy="composition"))
    assert len(found) > 3
    assert len({one.origin.scheme for one in found}) == len(found)
    for solution in found[:4]:
        made = Plan(solution)
        assert made.scheme.covered(problem.sizes, 4) == dict(problem.sizes)
        assert np.array_equal(made(*operands), expected)
        assert Plan.from_json(made.to_json()) == made
        given = plan(problem, machine=MACHINE, scheme=made.scheme, cache=False)
        assert given.nest == made.nest
        assert given.seconds == made.seconds


def test_a_combination_covers_a_prime_extent():
    """17 rows are no cells of one fast microkernel, nor are 7 columns."""
    sizes = LAYER_SIZES.replace("w=5", "w=7")
    found = plan(LAYER, sizes, MACHINE, strategy="composition", cache=False)
    assert "λ" in str(found.scheme)
    assert "composition: best of" in str(found)
    assert min(cell for _, cells in found.nest.cells for cell in cells) >= 4


def test_the_best_permutation_is_the_best_of_all_orders():
    """What is innermost decides: other orders of the outer roles move as much, or more."""
    problem = Problem.of("ij-ik-kj", 64)
    one = strategy._shares(target("ij-ik-kj", 64))[0]
    kernel = strategy._microkernels(target("ij-ik-kj", 64), one)[0]
    place = strategy._place(target("ij-ik-kj", 64), one, kernel)
    space = Space.of(problem, one.roles, kernel, 100)
    best = float(space.scores(best_permutation(space, place), place).min())
    every = list(orders((ROWS, COLUMNS, SUMS)))
    for near in every:
        for far in every:
            assert float(space.scores((near, far, ROTATIONS[0]), place).min()) >= best * (1 - 1e-9)
    assert len(permutations()) == len(ROTATIONS) ** 3


def test_the_kept_schemes_are_near_the_best_of_all():
    """The metric against the price of each completion of a small product."""
    wanted = target("ij-ik-kj", "i=12 j=16 k=12")
    problem = wanted.problem
    one = strategy._shares(wanted)[0]
    kept = rank(problem, MACHINE, 1, Demand(strategy="composition"))[0].seconds
    seconds = []
    for kernel in strategy._microkernels(wanted, one):
        space = Space.of(problem, one.roles, kernel, 60)
        for number in range(len(space)):
            scheme = space.scheme(number, permutations()[0])
            assert prod(scheme.covered(problem.sizes, 4).values()) == 12 * 16 * 12
            demand = Demand(scheme=scheme)
            seconds.append(rank(problem, MACHINE, 1, demand)[0].seconds)
    assert kept <= 1.05 * min(seconds)


def test_threads_divide_a_letter_evenly():
    """Two threads share the work; what they cannot divide is an error, as are ragged vectors."""
    found = plan(LAYER, LAYER_SIZES, MACHINE, threads=2, strategy="composition", cache=False)
    operands = draw_whole_numbers(found.problem)
    assert found.split == "k"
    assert np.array_equal(found(*operands), reference(found.problem, *operands))
    for sizes, threads in (("i=9 j=9 k=9", 1), (64, 3)):
        with pytest.raises(SolverError, match="no scheme of whole vectors of 4 covers"):
            schemes(target("ij-ik-kj", sizes, threads))
    with pytest.raises(PlanError, match="nothing to find"):
        plan("ij-ik-kj", 8, MACHINE, strategy="composition", scheme="[Ri,Rj,Rk]", cache=False)


def test_the_fastest_of_several_tries_is_kept(monkeypatch):
    """Once measured, a plan comes from the cache; the number of tries is part of its key."""
    asked = []

    def measure(candidates):
        asked.append(len(candidates))
        return [1.0] * (len(candidates) - 1) + [0.5]

    monkeypatch.setattr(tries, "measure", measure)
    options = {"strategy": "composition", "machine": MACHINE}
    usual = plan("ij-ik-kj", 24, **options)
    best = [plan("ij-ik-kj", 24, tries=3, **options) for _ in range(2)]
    assert asked == [3]
    assert best[0] == best[1] != usual
    assert plan("ij-ik-kj", 24, **options) == usual
    with pytest.raises(PlanError, match="tries must be a positive integer, got 0"):
        plan("ij-ik-kj", 24, tries=0, **options)


@pytest.mark.parametrize("options", [{}, {"constant": "B"}, {"epilogue": "+j relu"}])
def test_candidates_are_timed(options):
    """Whatever operands a call takes."""
    found = plan("ij-ik-kj", 24, MACHINE, strategy="composition", tries=2, cache=False, **options)
    assert all(seconds > 0 for seconds in tries.measure([found.solution]))


@pytest.mark.parametrize("output", ["nwgk", "wngk", "nwkg"])
def test_vectors_lie_along_any_letter_of_c(output):
    """Schemes with vectors that are not along the last letter of C are run as they are made."""
    sizes, machine = {"n": 3, "w": 16, "g": 4, "c": 4, "k": 3}, make_shallow_machine(256, 16)
    options = {"dtype": "complex64", "machine": machine, "cache": False}
    found = plan(f"{output}-nwgc-gkc", sizes, strategy="composition", **options)
    again = plan(found.problem, scheme=found.scheme, machine=machine, cache=False)
    arrays = draw_whole_numbers(found.problem)
    for one in (found, again):
        np.testing.assert_array_equal(one(*arrays), reference(found.problem, *arrays))


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (1, 8, 2, 4)), ("NHWC", (1, 2, 4, 8))])
def test_a_layer_says_for_which_arrays_there_is_no_scheme(layout, shape):
    """Pixels of arrays in C order are one axis of whole vectors; each row of them is no vector."""
    filters = np.ones((3, 8, 1, 1), "float32")
    options = {"layout": layout, "machine": MACHINE, "strategy": "composition"}
    made, x = conv_layer(shape, filters, **options), np.ones(shape, "float32")
    np.testing.assert_array_equal(made(x), 8)
    apart = np.ones([n + 1 for n in shape], "float32")[tuple(map(slice, shape))]
    with pytest.raises(SolverError, match=r"no single axis in memory.*C order"):
        made(apart)
