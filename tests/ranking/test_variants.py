"""Variants of a problem: which there are, that they differ, and that they compute the same."""

from collections import Counter

import numpy as np
import pytest
from array_cases import tiny_machine
from guessed_tiles import guessed_tiles
from running_cases import make_shallow_machine

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.contractions.suites import suite
from tilesolve.planning.demand import Demand
from tilesolve.planning.solve import rank
from tilesolve.ranking.polydl import polydl_tiles
from tilesolve.ranking.variants import list_variants

MACHINE = make_shallow_machine(256, 16)

PRODUCT = Problem.of("mn-mk-kn", "m=96 n=64 k=128", "float32")


def test_polydl_s_variants_are_as_many_as_the_paper_counts():
    """Its products of Table 1: 4, 1228, and 491 in the mean, for 32 threads."""
    counts = [len(polydl_tiles(problem, 32)) for problem in suite("gemm").values()]
    assert counts == [170, 70, 155, 4, 1228, 468, 918, 918]
    assert round(sum(counts) / len(counts), 1) == 491.4


def test_polydl_s_tiles_divide_each_other():
    """Threads divide a loop of a multiple of their number of trips; one thread divides none."""
    problem = suite("gemm")["GNMT-320x3072x4096"]
    for tiles in polydl_tiles(problem, 32):
        extents = tuple(problem.sizes[letter] for letter in "mnk")
        assert all(n % outer == 0 for n, outer in zip(extents, tiles.outer, strict=True))
        assert all(outer % tiles.inner == 0 for outer in tiles.outer)
        at = "mnk".index(tiles.divided)
        assert extents[at] // tiles.outer[at] % 32 == 0
    assert {tiles.divided for tiles in polydl_tiles(problem)} == {None}


def test_the_same_seed_draws_the_same_variants():
    """Another seed draws others; the solver's plan is the first of all."""
    first, again, other = (list_variants(PRODUCT, MACHINE, count=30, seed=s) for s in (1, 1, 2))
    assert first == again != other
    best = rank(PRODUCT, MACHINE, 1, Demand())[0]
    assert {found[0].plan.solution for found in (first, other)} == {best}


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_there_are_as_many_variants_as_are_wanted(count):
    """No two are walked alike, and only one is the solver's."""
    found = list_variants(PRODUCT, MACHINE, count=count)
    assert len(found) == count
    assert Counter(one.kind for one in found)["solver"] == 1
    assert len({(one.plan.split, one.plan.nest) for one in found}) == count


def test_tiles_that_overflow_are_variants_too():
    """They say so: what a cache does not hold is to be seen."""
    problem = Problem.of("mn-mk-kn", 1024, "float32")
    found = list_variants(problem, MACHINE, count=60)
    assert {one.fits for one in found if one.kind == "grid"} == {True, False}
    assert all(one.fits for one in found if one.kind != "grid")


def test_each_letter_that_threads_may_divide_is_divided():
    """Two threads may divide rows or columns of a product."""
    found = list_variants(PRODUCT, MACHINE, 2, count=60)
    assert {one.plan.split for one in found} == {"m", "n"}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("spec", "sizes", "like"),
    [
        ("mn-mk-kn", "m=50 n=41 k=37", None),
        ("mn-mk-kn", "m=64 n=128 k=48", "polydl"),
        ("abcd-ebad-ce", "a=12 b=6 c=10 d=9 e=14", None),
        ("nkhw-nc[2h+r][w+s]-kcrs", "n=2 k=5 c=3 h=6 w=7 r=3 s=2", None),
    ],
)
@guessed_tiles(3)  # of the solver's plan, which is the first one
def test_variants_compute_the_same(spec, sizes, like, threads):
    """Whether their tiles fit or not."""
    problem = Problem.of(spec, sizes)
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(shape) for shape in problem.shapes[1:]]
    right = reference(problem, *operands)
    found = list_variants(problem, tiny_machine(), threads, count=12, like=like)
    assert len(found) > 5
    assert {one.fits for one in found} == {True, False}
    for one in found:
        out = np.full(problem.shapes[0], np.nan)
        assert np.allclose(one.plan(*operands, out=out), right, rtol=1e-10, atol=1e-10), one


@pytest.mark.parametrize("sizes", ["m=0 n=3 k=2", "m=1 n=1 k=1", "m=2 n=3 k=0"])
def test_problems_of_nothing_and_of_one_have_variants(sizes):
    """At least the solver's plan."""
    found = list_variants(Problem.of("mn-mk-kn", sizes), MACHINE, count=5)
    assert found[0].kind == "solver"


def test_what_has_no_such_variants_is_refused():
    """Problems that are no product of matrices, other names, and machines with one tile."""
    with pytest.raises(PlanError, match=r"products of two matrices.*got 'ab-acd-dbc'"):
        list_variants(Problem.of("ab-acd-dbc", 16), MACHINE, like="polydl")
    with pytest.raises(PlanError, match="no variants like 'tvm'"):
        list_variants(PRODUCT, MACHINE, like="tvm")
    one = MACHINE.replace(levels=(MACHINE.levels[0], MACHINE.memory))
    with pytest.raises(PlanError, match="have two tiles"):
        list_variants(PRODUCT, one, like="polydl")
