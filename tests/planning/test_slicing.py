"""Slicing as a strategy: nests of five loops, their copies, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import pytest

import tilesolve
from tilesolve import Machine, Plan
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.layer_suites import layer_suite
from tilesolve.contractions.problem import Problem
from tilesolve.planning.demand import Demand
from tilesolve.planning.slicing.csa import Slices
from tilesolve.planning.slicing.nest import SlicedLayer
from tilesolve.planning.slicing.strategy import Slicing

MACHINE = Machine.load("i7-6700k")
LAYER = Problem.of("khw-c[h+r][w+s]-kcrs", "k=64 h=56 w=56 c=64 r=3 s=3", "float32", constant=(2,))


def solutions(problem, threads=1):
    return list(Slicing().solutions(problem, MACHINE, threads, Demand()))


def nest(slices, problem):
    """The nest of a layer with vectors of 8."""
    layer = SlicedLayer.of(problem)
    return layer.nest(slices, ["L1", "L2", "L3", "memory"], (16, 6), 8, "store", scattered=False)


def looping(found):
    """For each band the letters whose loops run, innermost first."""
    return [
        "".join(i for i in around.order if around[i] > tile[i])
        for tile, around in pairwise(found.bands)
    ]


@pytest.mark.parametrize(
    ("schedule", "loops", "packed"),
    [
        ("input stationary", ["", "k", "w", "kwnc"], ("L1", "L2")),
        ("weight stationary", ["", "w", "k", "wnkc"], ("L2", "L3")),
    ],
)
def test_loops_are_those_of_the_paper(schedule, loops, packed):
    """Channel sets, staying and passing sets, then staying and passing tiles; packed on demand."""
    problem = Problem.of("nkw-nc[w+r]-kcr", "n=2 k=96 w=128 c=64 r=3", "float32")
    found = nest(Slices(schedule, 16, 2, 3), problem)
    assert looping(found) == loops
    assert (found.packed, found.kinds) == (packed, ("micro-panels", "micro-panels"))
    call, *_, whole = found.bands
    assert dict(call.box) == {"n": 1, "k": 6, "w": 16, "c": 16, "r": 3}
    assert dict(whole.box) == dict(problem.sizes)
    constant = nest(Slices(schedule, 16, 2, 3), replace(problem, constant=(2,)))
    assert (constant.packed, constant.kinds) == ((packed[0], None), ("micro-panels", "prepared"))


def test_tiles_hold_as_many_as_the_analysis_says():
    """K2 and K3 tiles of the cell, whole lines of the output where these are short."""
    problem = Problem.of("khw-c[h+r][w+s]-kcrs", "k=48 h=12 w=8 c=64 r=3 s=3", "float32")
    found = nest(Slices("input stationary", 16, 4, 3), problem)
    assert [(band["h"], band["w"], band["k"]) for band in found.bands] == [
        *((1, 8, 6), (2, 8, 6), (2, 8, 24), (6, 8, 24), (12, 8, 48)),
    ]


def test_operands_may_stand_in_either_order():
    """The input is the one with windows, or the one that does not stay."""
    swapped = Problem.of("khw-kcrs-c[h+r][w+s]", LAYER.sizes, "float32", constant=(1,))
    one, other = solutions(LAYER)[0], solutions(swapped)[0]
    assert (other.nest.packed, other.nest.kinds) == (one.nest.packed[::-1], one.nest.kinds[::-1])
    assert other.seconds == pytest.approx(one.seconds)
    product = Problem.of("xk-ck-xc", 64, constant=(1,))
    assert SlicedLayer.of(product).windows == ("x",)


def test_both_schedules_are_priced():
    """The analysis' choice comes first."""
    found = solutions(LAYER)
    assert [one.origin.slices.partition(",")[0] for one in found] == [
        "weight stationary",
        "input stationary",
    ]
    assert all(one.nest.check(one.share) is None and one.seconds > 0 for one in found)


def test_every_layer_of_a_suite_has_nests():
    """They nest up to the layer, for two threads too."""
    for one in {one.convolution for one in layer_suite("sconv")}:
        for threads in (1, 2):
            for found in solutions(one.problem, threads):
                found.nest.check(found.share)


def test_a_plan_keeps_its_strategy():
    """In JSON, in the cache, and for another machine."""
    found = tilesolve.plan(LAYER, machine=MACHINE, strategy="slicing")
    assert found.strategy == "slicing"
    assert str(found).splitlines()[-1] == f"slicing: {found.solution.origin.slices}"
    assert found.solution.origin.slices.startswith("weight stationary, Nc ")
    assert Plan.from_json(found.to_json()) == found
    assert found.whatif(l1_capacity=0.5).strategy == "slicing"
    usual = tilesolve.plan(LAYER, machine=MACHINE)
    assert usual.strategy == "solver"
    assert tilesolve.plan(LAYER, machine=MACHINE, strategy="slicing") == found != usual


def test_there_is_no_nonlinear_program():
    found = tilesolve.plan(LAYER, machine=MACHINE, strategy="slicing")
    for ask in (lambda: found.search, lambda: found.program, found.certify):
        with pytest.raises(PlanError, match=r"made by .slicing., not by the solver"):
            ask()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ij-ik-kl-lj", "'ij-ik-kl-lj' has 3 operands, a plan has two"),
        ("ij-ik-kjl", "has 'l', which is summed, in one alone"),
        ("h-[h+r]-[h+r]r", "has windows in both"),
    ],
)
def test_what_is_no_layer_is_refused(spec, message):
    with pytest.raises(PlanError, match=message):
        tilesolve.plan(spec, 8, MACHINE, strategy="slicing")


def test_a_machine_of_two_caches_is_refused():
    shallow = replace(MACHINE, name="shallow", levels=(*MACHINE.levels[:2], MACHINE.levels[-1]))
    with pytest.raises(PlanError, match="three caches; machine 'shallow' has 2"):
        tilesolve.plan(LAYER, machine=shallow, strategy="slicing")
