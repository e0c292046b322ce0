"""PolyDL's variants of convolutions: how many, in which orders, and that they compute the same."""

import numpy as np
import pytest
from guessed_tiles import guessed_tiles

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.contractions.suites import suite
from tilesolve.machine.model import Machine
from tilesolve.model.iterations import loops_of
from tilesolve.planning.demand import Demand
from tilesolve.planning.solve import rank
from tilesolve.ranking.grid import draw_tilings, make_interleaved_grids
from tilesolve.ranking.polydl_convolutions import polydl_loops
from tilesolve.ranking.variants import list_variants

MACHINE = Machine.load("i7-6700k")

PLAIN = "nkhw-nc[h+r][w+s]-kcrs"

BLOCKED = "nKhwk-nC[2h+r][w+s]c-KCrsck"


def test_there_are_as_many_as_the_paper_counts():
    """From 5 to 21 for the layers of Mask R-CNN, those of one row and of 256 among them."""
    counts = {len(polydl_loops(problem)) for problem in suite("maskrcnn").values()}
    assert (min(counts), max(counts)) == (5, 21)


def test_loops_are_those_of_the_paper():
    """The four orders of all loops, and two with tiles of rows; those of one row are alike."""
    problem = Problem.of(PLAIN, "n=2 k=32 c=48 h=4 w=5 r=3 s=2", "float32")
    found = list_variants(problem, MACHINE, like="polydl")
    untiled = ["nkchrs", "nhrskc", "nkrsch", "ncrshk"]
    tiled = ["nhkchrs", "nhkcrs", "nhkcrs", "nhhkcrs"]
    for one, around in zip(found[1:], [*untiled, *tiled], strict=True):
        loops = "".join(loop.letter for loop in loops_of(problem, one.plan.nest))
        assert loops.startswith(around)
    assert len(polydl_loops(problem)) == len(found)


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (PLAIN, "n=2 k=32 c=48 h=6 w=7 r=3 s=2"),
        (BLOCKED, "n=4 K=3 k=8 C=2 c=5 h=4 w=9 r=3 s=3"),
    ],
)
def test_variants_compute_the_same(spec, sizes, threads):
    """Also those in which filters or channels stand between rows of the output and columns."""
    problem = Problem.of(spec, sizes, "float32")
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(shape).astype("float32") for shape in problem.shapes[1:]]
    right = reference(problem, *(array.astype("float64") for array in operands))
    with guessed_tiles(3):  # of the solver's plan, which is the first one
        found = list_variants(problem, MACHINE, threads, like="polydl")
    assert {one.plan.split for one in found[1:]} == {"n" if threads > 1 else None}
    for one in found:
        out = np.full(problem.shapes[0], np.nan, "float32")
        assert np.allclose(one.plan(*operands, out=out), right, rtol=0, atol=1e-3), one


def test_the_grid_of_a_convolution_has_orders_in_which_roles_come_back():
    """Of a product there are none: each of its roles is one loop."""
    problem = Problem.of(PLAIN, "n=2 k=5 c=3 h=6 w=7 r=3 s=2")
    found = list_variants(problem, MACHINE, count=40)
    parts = [one for one in found if any(not band.level for band in one.plan.nest.bands)]
    assert {one.kind for one in parts} == {"grid"}
    product = rank(Problem.of("mn-mk-kn", 64), MACHINE, 1, Demand())[0]
    assert list(draw_tilings(make_interleaved_grids(product, 1), 10, 1)) == []


@pytest.mark.parametrize(
    ("spec", "sizes", "words"),
    [
        (PLAIN, "n=2 k=40 c=64 h=4 w=4 r=3 s=3", "64, 32 or 16, none divides k=40 and c=64"),
        ("kw-c[w+s]-kcs", "k=16 c=16 w=4 s=3", "two dimensions without groups.*'kw-c"),
        ("khwg-cg[h+r][w+s]-kcrsg", "k=16 c=16 h=4 w=4 r=3 s=3 g=2", "without groups"),
    ],
)
def test_what_the_rule_says_nothing_of_is_refused(spec, sizes, words):
    """Channels that no block divides, and other convolutions."""
    with pytest.raises(PlanError, match=words):
        polydl_loops(Problem.of(spec, sizes))


@pytest.mark.parametrize(
    ("spec", "sizes", "words"),
    [
        (PLAIN, "n=3 k=16 c=16 h=2 w=2 r=1 s=1", "2 do not divide n=3"),
        (
            "khw-c[h+r][w+s]-kcrs",
            "k=16 c=16 h=2 w=2 r=1 s=1",
            "no letter is one of images: got 2 threads",
        ),
    ],
)
def test_threads_that_do_not_divide_images_are_refused(spec, sizes, words):
    """The paper has as many images as cores."""
    with pytest.raises(PlanError, match=words):
        list_variants(Problem.of(spec, sizes), MACHINE, 2, like="polydl")


def test_machines_with_fewer_caches_are_refused():
    """A variant has a microkernel's tile, one of rows, and one of an image."""
    machine = MACHINE.replace(levels=(*MACHINE.levels[:2], MACHINE.memory))
    problem = Problem.of(PLAIN, "n=1 k=16 c=16 h=4 w=4 r=3 s=3")
    with pytest.raises(PlanError, match="have 3 tiles, the machine has 2"):
        list_variants(problem, machine, like="polydl")
