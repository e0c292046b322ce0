"""Sums that walk few rows at once, or one: their values, and when they are chosen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support import guard_pages
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.nests.loop_choice import price_loops, row_by_row_tree
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import followed_tree, lone_rows_tree
from tilesolve.nests.solutions import LoopSolution
from tilesolve.nests.solved import SolvedNest

MACHINE = Machine.load("i7-6700k")
ROWS = {
    "s[y] += A[y,x]": lambda A, x: A.sum(1),
    "s[y] = max(A[y,x], x)": lambda A, x: A.max(1),
    "s[y] += A[y,x] * b[x]": lambda A, x: A @ x,
}
COLUMNS = {
    "s[x] += A[y,x]": lambda A, x: A.sum(0),
    "s[x] = min(A[y,x], y)": lambda A, x: A.min(0),
}


def check(text, right, tree, shape, dtype, seed):
    """Whether loops of a tree compute what NumPy does in float64."""
    rng = np.random.default_rng(seed)
    given_arrays = {"A": rng.standard_normal(shape).astype(dtype)}
    if "b[" in text:
        given_arrays["b"] = rng.standard_normal(shape[1]).astype(dtype)
    computation = bind_stages(parse_stages(text), {"y": shape[0], "x": shape[1]}, dtype)
    request = NestRequest(computation, MACHINE)
    loops = tree(request)
    if loops is None:
        return
    solution = LoopSolution(request, "asked for", price_loops(request, loops), loops)
    plan = NestPlan(SolvedNest(request, (solution,)))
    wide = {name: one.astype("float64") for name, one in given_arrays.items()}
    expected = right(wide["A"], wide.get("b"))
    out = guard_pages.lay(np.full(expected.shape, np.nan, dtype), rng)
    found = plan(*(guard_pages.give(given_arrays[name], rng) for name in plan.inputs), out=out)
    tolerance = 4 * max(shape) * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@examples(10, 40)
@given(
    st.sampled_from(list(ROWS)),
    st.sampled_from(["float32", "float64"]),
    st.tuples(st.integers(1, 9), st.sampled_from([1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1000])),
    st.integers(0, 10**6),
)
def test_rows_that_are_added_up_one_by_one_are_numpys(text, dtype, shape, seed):
    check(text, ROWS[text], lone_rows_tree, shape, dtype, seed)


@examples(10, 40)
@given(
    st.sampled_from(list(COLUMNS)),
    st.sampled_from(["float32", "float64"]),
    st.tuples(st.integers(9, 40), st.sampled_from([8, 47, 48, 49, 95, 96, 97, 400])),
    st.sampled_from([1, 8]),
    st.integers(0, 10**6),
)
def test_columns_that_walk_few_rows_are_numpys(text, dtype, shape, rows, seed):
    check(text, COLUMNS[text], lambda request: followed_tree(request, rows), shape, dtype, seed)


@pytest.mark.parametrize("text", ["y[i] += A[i,k] * x[k]", "y[i] += A[k,i] * x[k]"])
def test_a_matrix_that_is_read_once_is_not_packed(text):
    """Where only one operand comes back, the price decides between a plan and loops."""
    found = nest(text, {"i": 3000, "k": 3000}, "float32", machine=MACHINE, cache=False)
    asked = [
        nest(text, {"i": 3000, "k": 3000}, "float32", machine=MACHINE, cache=False, route=route)
        for route in ("nest", "contraction")
    ]
    assert found.seconds == min(one.seconds for one in asked)


def test_rows_of_memory_are_added_up_one_after_another():
    """As they lie there: hardware does not follow several within a page."""
    found = nest("s[y] += A[y,x]", {"y": 90000, "x": 200}, "float32", machine=MACHINE, cache=False)
    (solution,) = found.solutions
    assert [(one.letter, one.step) for one in solution.loops.loops] == [("y", 1), ("x", 1)]


@examples(10, 40)
@given(
    st.sampled_from(["d[i,j] = sum(X[i,k] & Y[k,j], k)", "d[i,j] = max(X[i,k] + Y[j,k], k)"]),
    st.sampled_from(["int32", "uint8", "int64"]),
    st.tuples(st.integers(1, 30), st.sampled_from([1, 15, 16, 17, 64, 70, 130]), st.integers(1, 9)),
    st.integers(1, 2),
    st.sampled_from(["", "i >= 1"]),
)
def test_tiles_of_sums_that_follow_a_row(text, dtype, extents, threads, region):
    """Their values, wherever they end."""
    sizes = dict(zip("ijk", extents, strict=True))
    computation = bind_stages(parse_stages(text, region or ()), sizes, dtype)
    request = NestRequest(computation, MACHINE, threads)
    loops = row_by_row_tree(request)
    if loops is None:
        return
    solution = LoopSolution(request, "asked for", price_loops(request, loops), loops)
    rng = np.random.default_rng(extents)
    arrays = {x: rng.integers(0, 99, computation.array(x).shape).astype(dtype) for x in "XY"}
    found = NestPlan(SolvedNest(request, (solution,)))(**arrays)
    np.testing.assert_array_equal(found, evaluate(computation, arrays))


def test_tiles_of_short_sums_follow_a_row():
    """Lines that two tiles share wait for no other row."""
    sizes = {"i": 1800, "j": 768, "k": 4}
    plan = nest("d[i,j] = max(X[i,k] + Y[k,j], k)", sizes, "int64", machine=MACHINE)
    assert [one.letter for one in plan.solutions[0].loops.loops[:2]] == ["i", "j"]
