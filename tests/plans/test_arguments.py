"""What `plan` is given: sizes, shapes or arrays, dtypes, threads."""

import warnings

import numpy as np
import pytest

from tilesolve import Problem, plan
from tilesolve.contractions.errors import (
    DtypeError,
    PlanError,
    SizeError,
    ThreadsWarning,
)
from tilesolve.contractions.spec import Spec

MACHINE = "i7-6700k"
A, B, C = (2, 3, 4, 5), (6, 5, 7, 3), (2, 4, 7, 6)
EXTENTS = "a=2 b=4 c=7 d=6 e=3 f=5"


def ones(shape, dtype="float64"):
    return np.ones(shape, dtype)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("aebf,dfce->abcd", (A, B)),
        ("aebf,dfce->abcd", [list(A), B]),
        ("aebf,dfce->abcd", (ones(A), ones(B))),
        ("aebf,dfce->abcd", (ones(A), B)),
        ("aebf,dfce->abcd", (A, B, C)),  # in the order of the spec's text
        ("abcd-aebf-dfce", (C, A, B)),
        ("abcd-aebf-dfce", (A, B)),
        (Spec.parse("abcd-aebf-dfce"), (C, ones(A), ones(B))),
    ],
)
def test_shapes_and_arrays_are_sizes(spec, sizes):
    """The same plan is found whether extents, shapes or arrays are given."""
    assert plan(spec, sizes, MACHINE) == plan("aebf,dfce->abcd", EXTENTS, MACHINE)


def test_letters_of_an_affine_subscript_are_solved_for():
    """So that an image, filters and the result may all be given by their shapes."""
    assert plan("h-[2h+r]-r", [(9,), (3,)], MACHINE).problem.sizes == {"h": 4, "r": 3}
    assert plan("h-[2h+r]-r", [(4,), (9,), (3,)], MACHINE).problem.sizes == {"h": 4, "r": 3}


def test_a_plan_has_the_dtype_of_its_arrays():
    """Unless another one is asked for; without arrays it is float64."""
    arrays = ones((2, 3), "float32"), ones((3, 4), "float32")
    assert plan("ij,jk->ik", arrays, MACHINE).problem.dtype == "float32"
    assert plan("ij,jk->ik", arrays, MACHINE, dtype="float64").problem.dtype == "float64"
    assert plan("ij,jk->ik", [(2, 3), (3, 4)], MACHINE).problem.dtype == "float64"
    with pytest.raises(DtypeError, match="A is float32, B is float64"):
        plan("ij,jk->ik", (arrays[0], ones((3, 4))), MACHINE)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((2, 3), (4, 5)), "'j' .* 3 on axis 1 of operand A, 4 on axis 0 of operand B"),
        (((2, 3), (3, 4), (2, 5)), "'k' .* 4 on axis 1 of operand B, 5 on axis 1 of the output"),
        (((2, 3), (3, 4, 5)), "operand B .* 2 dimensions, but its array has 3"),
        (((2, 3), (3, 4), (2,)), "the output .* 2 dimensions, but its array has 1"),
        ((2, 3), "2 for A of .* no shape and no array"),
        (((2, 3),), "sizes has 1 entries: .* 2 operands"),
        ([], "sizes has 0 entries"),
        (((2, -3), (3, 4)), "an extent of A .* at least 0, got -3"),
        (((2, 3.5), (3, 4)), "an extent of A .* must be an integer, got 3.5"),
        ([[[1, 2]], [[3], [4]]], "an extent of A"),
        (ones((2, 3)), "sizes is a single array"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(sizes, message):
    """The message names the letter, the tensors and both sizes."""
    with pytest.raises(SizeError, match=message):
        plan("ij,jk->ik", sizes, MACHINE)


def test_a_problem_says_all_itself():
    """Sizes or another dtype beside a `Problem` would be overlooked."""
    problem = Problem.of("ij,jk->ik", 4, "float32")
    assert plan(problem, machine=MACHINE, dtype="f4").problem == problem
    with pytest.raises(DtypeError, match="float32; got dtype float64"):
        plan(problem, machine=MACHINE, dtype="float64")
    with pytest.raises(SizeError, match="has its sizes already"):
        plan(problem, [(4, 4), (4, 4)], MACHINE)


@pytest.mark.parametrize("spec", ["abc", "ij->ji", "ij-ji", "ij,jk,kl->il", "il-ij-jk-kl"])
@pytest.mark.parametrize("cache", [True, False])
def test_plans_have_two_operands(spec, cache):
    """Other numbers are refused before anything is solved, with a word on what takes them."""
    sizes = dict.fromkeys(Spec.parse(spec).letters, 4)
    for given in (spec, Problem.of(spec, sizes)):
        with pytest.raises(PlanError, match=r"operands?, a plan has two.*tilesolve\.expression"):
            plan(given, sizes if given is spec else None, MACHINE, cache=cache)


@pytest.mark.parametrize("given", [None, 5, np.array(3.0), iter(())])
@pytest.mark.parametrize("epilogue", ["", "+n"])
def test_operands_of_an_epilogue_are_a_sequence(given, epilogue):
    """Whether there is an epilogue or not."""
    found = plan("mn-mk-kn", 4, MACHINE, epilogue=epilogue)
    with pytest.raises(SizeError, match="operands of 'mn-mk-kn' is a sequence of arrays, not"):
        found(ones((4, 4)), ones((4, 4)), operands=given)


@pytest.mark.parametrize("extent", [2**62, 2**63 - 1])
def test_extents_beyond_all_memory_are_planned(extent):
    """Bytes from one element to the next may be more than 64 bits hold."""
    assert plan("ij-ik-kj", extent, MACHINE, cache=False).problem.sizes["i"] == extent


def test_threads_beyond_the_cores_are_warned_of_once():
    """They take turns, which a user may not expect; what fits the machine is silent."""
    with pytest.warns(ThreadsWarning, match="5 threads take turns on the 4 cores"):
        plan("ij,jk->ik", 64, MACHINE, threads=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan("ij,jk->ik", 64, MACHINE, threads=5)
        plan("ij,jk->ik", 64, MACHINE, threads=4)
