"""Statements that pair elements by other operations than products, as register tiles run them."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.canonical import canonicalize
from tilesolve.contractions.errors import DtypeError, PlanError, SpecError
from tilesolve.contractions.pairing import FIRST, SECOND, Pairing
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.terms import Apply, Param
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.plans.plan import Plan, plan

TERMS = (
    "abs(A[i,k] - B[j,k])",
    "(A[i,k] - B[j,k]) * (A[i,k] - B[j,k])",
    "max(A[i,k] + B[j,k], 0)",
    "where(A[i,k] < B[j,k], A[i,k], B[j,k])",
)
"""Terms that a reduction runs over."""

TESTS = ("A[i,k] == B[j,k]", "A[i,k] < B[j,k]", "A[i,k] != 2 * B[j,k]")
"""Terms that are counted, or asked whether any or all are."""

SIDES = (1, 7, 8, 9, 23, 24, 25, 47, 48, 49, 97)
"""Extents around vectors and register tiles."""


def spread(rng, values):
    """The same values in an array of other strides."""
    order = rng.permutation(values.ndim)
    steps = rng.integers(1, 3, values.ndim)
    room = np.zeros(np.take(values.shape, order) * steps, values.dtype)
    found = room[tuple(slice(None, None, step) for step in steps)].transpose(np.argsort(order))
    found[...] = values
    return found


def draw_numbers(rng, shape, dtype):
    """Numbers whose sums are exact."""
    return (rng.integers(-8, 9, shape) / 4).astype(dtype)


def check(text, sizes, dtype, rng, **options):
    """A plan by register tiles gives what the statement says, exactly, for any strides."""
    made = nest(text, sizes, dtype, route="contraction", **options)
    whole = bind_stages(parse_stages(text, options.get("where", ())), sizes, dtype)
    assert made.solutions[0].route == "contraction"
    arrays = {name: draw_numbers(rng, whole.array(name).shape, dtype) for name in whole.inputs}
    info = whole.output
    before = arrays.get(info.name, np.full(info.shape, 7, info.dtype))
    out = spread(rng, before)
    found = made(**{name: spread(rng, one) for name, one in arrays.items()}, out=out)
    expected = evaluate(whole, arrays, out=before)
    np.testing.assert_array_equal(found, expected.astype(info.dtype))
    return made


@examples(5, 25)
@given(
    st.sampled_from(TERMS),
    st.sampled_from(["sum", "min", "max"]),
    st.sampled_from(["float32", "float64"]),
    st.tuples(*[st.sampled_from(SIDES)] * 3),
    st.sampled_from([(), "j <= i", "0 <= i - j < 9"]),
    st.integers(1, 2),
    st.integers(0, 2**32 - 1),
)
def test_reductions_of_pairs(term, run, dtype, sides, where, threads, seed):
    """Of any extents, strides, regions and numbers of threads."""
    sizes = dict(zip("ijk", sides, strict=True))
    text = f"d[i,j] = {run}({term}, k)"
    check(text, sizes, dtype, np.random.default_rng(seed), where=where, threads=threads)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("term", TESTS)
@pytest.mark.parametrize(("run", "result"), [("sum", "int64"), ("max", "bool"), ("min", "bool")])
def test_comparisons_are_counted(term, run, result, dtype):
    """In the operands' dtype, and cast to numpy's in the end."""
    rng = np.random.default_rng(5)
    made = check(f"d[i,j] = {run}({term}, k)", {"i": 25, "j": 17, "k": 65}, dtype, rng)
    assert made.computation.output.dtype == result
    assert [one.route for one in made.solutions] == ["contraction", "nest"]


def test_counts_that_a_dtype_lacks_are_left_to_loops():
    """A float32 has not all whole numbers beyond 2**24."""
    text, sizes = "d[i,j] = sum(A[i,k] == B[j,k], k)", {"i": 64, "j": 64}
    routes = [
        nest(text, {**sizes, "k": count}, "float32").solutions[0].route
        for count in (2**23 - 1, 2**23)
    ]
    assert routes == ["contraction", "nest"]


@pytest.mark.parametrize("run", ["sum", "min", "max"])
def test_long_reductions_are_cut_into_blocks(run):
    """What later blocks find is put together with what lies in the output."""
    rng = np.random.default_rng(3)
    text = f"d[i,j] = {run}(abs(A[i,k] - B[k,j]), k)"
    for count in (4095, 4096, 4097, 20001):
        made = check(text, {"i": 17, "j": 9, "k": count}, "float32", rng)
    (plan_,) = made.solutions[0].plans
    assert any(1 < band["k"] < 20001 for band in plan_.nest.bands)


@pytest.mark.grid
@pytest.mark.parametrize("run", ["sum", "max"])
@pytest.mark.parametrize(
    "text",
    [
        "d[i,j,b] = {}(abs(A[i,k,b] - B[j,k,b]), k)",
        "d[b,i,j] = {}(abs(A[b,i,k] - B[b,k,j]), k)",
        "d[i,j] = {}(abs(A[i+k] - B[j,k]), k)",
        "d[x,y,j] = {}(max(A[y+r,2*x+s], B[r,j,s]), r, s)",
        "d[j,i] = {}(abs(A[i,k,i] - 2 * B[j,k]), k)",
    ],
)
def test_batches_and_windows(text, run):
    """Along vectors and outside, sums of letters, and diagonals."""
    sizes = dict(zip("ijkbxyrs", (21, 19, 17, 9, 13, 11, 3, 5), strict=True))
    text = text.format(run)
    letters = parse_stages(text)[0].letters
    check(text, {x: sizes[x] for x in letters}, "float32", np.random.default_rng(4))


@pytest.mark.grid
@pytest.mark.parametrize("run", ["min", "max"])
@pytest.mark.parametrize("term", ["A[i,k] + B[k,j]", "abs(A[i,k] - B[k,j])", "max(A[i,k], B[k,j])"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_keep_nan(term, run, dtype):
    """As numpy's do, of either sign, and also those that infinities make."""
    rng = np.random.default_rng(1)
    made = nest(f"d[i,j] = {run}({term}, k)", 50, dtype, route="contraction")
    a, b = rng.standard_normal((2, 50, 50)).astype(dtype)
    a[3, 7], b[9, 20], a[11, 0], b[49, 30] = np.nan, -np.nan, np.inf, -np.inf
    a[5, 49], b[49, 5], a[20], b[:, 21] = np.inf, -np.inf, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        terms = {
            "A[i,k] + B[k,j]": a[:, :, None] + b,
            "abs(A[i,k] - B[k,j])": abs(a[:, :, None] - b),
            "max(A[i,k], B[k,j])": np.maximum(a[:, :, None], b),
        }
        expected = getattr(np, run)(terms[term], 1)
    np.testing.assert_array_equal(made(a, b), expected)
    assert 0 < np.isnan(expected).sum() < expected.size


def test_factors_and_old_values():
    """Sums are scaled and added to; other reductions are statements of their own then."""
    rng = np.random.default_rng(2)
    check("d[i,j] = 0.5 * sum(abs(A[i,k] - B[j,k]), k) - 2 * d[i,j]", 33, "float32", rng)
    text = "d[i,j] = 3 - 2 * max(A[i,k] + B[j,k], k)"
    made = nest(text, {"i": 200, "j": 200, "k": 64})
    assert [one.route for one in made.solutions] == ["contraction", "nest"]
    a, b = rng.standard_normal((2, 200, 64))
    np.testing.assert_array_equal(made(a, b), 3 - 2 * (a[:, None] + b).max(2))


def test_negative_zeros_and_nothing():
    """Zeros keep their signs, and nothing to reduce gives what a reduction begins with."""
    made = nest("d[i,j] = prod(A[i,k] + B[j,k], k)", {"i": 9, "j": 9, "k": 3}, route="contraction")
    zeros = np.full((9, 3), -0.0)
    assert np.signbit(made(zeros, zeros)).all()
    for run, begin in {"sum": 0, "max": -np.inf, "min": np.inf, "prod": 1}.items():
        text = f"d[i,j] = {run}(abs(A[i,k] - B[j,k]), k)"
        made = nest(text, {"i": 9, "j": 9, "k": 0}, route="contraction")
        assert (made(np.zeros((9, 0)), np.zeros((9, 0))) == begin).all()


def _problem(spec, pairing=None, dtype="float64"):
    """A problem of pairs."""
    whole = Problem.of(spec, 70)
    return Problem(whole.spec, whole.extents, dtype, pairing=pairing)


def test_plans_know_their_pairs():
    """In reports, JSON, pickles, caches, and whatever order operands are in."""
    made = nest("d[i,j] = max(A[i,k] - B[j,k], k)", 300)
    assert "of maximum(a - b)" in str(made)
    assert NestPlan.from_json(made.to_json()) == made == pickle.loads(pickle.dumps(made))
    first = _problem("ij-ik-jk", Pairing("maximum", FIRST - SECOND))
    other = _problem("ij-jk-ik", Pairing("maximum", SECOND - FIRST))
    product = _problem("ij-ik-jk")
    assert canonicalize(first).problem == canonicalize(other).problem
    assert canonicalize(first).problem != canonicalize(product).problem
    a, b = np.random.default_rng(0).standard_normal((2, 70, 70))
    for problem, arrays in ((first, (a, b)), (other, (b, a)), (first.part(first.sizes), (a, b))):
        kept = plan(problem)
        assert Plan.from_json(kept.to_json()) == kept
        np.testing.assert_array_equal(kept(*arrays), (a[:, None] - b).max(2))
    np.testing.assert_allclose(plan(product)(a, b), a @ b.T)


def test_pairs_that_are_none():
    """Are refused where they are made, and where a problem takes them."""
    with pytest.raises(SpecError, match="is nothing that register tiles compute"):
        Pairing("add", Apply("exp", (FIRST,)))
    with pytest.raises(SpecError, match="x is nothing that register tiles compute"):
        Pairing("add", FIRST * Param("x"))
    with pytest.raises(SpecError, match="does not run over letters"):
        Pairing("subtract", FIRST)
    with pytest.raises(SpecError, match="more than 6 operations"):
        Pairing.parse("add(a - b - 1 - a * b - 2 * a - 3 * b)")
    with pytest.raises(DtypeError, match="is computed in float32, float64"):
        _problem("ij-ik-jk", Pairing("add", FIRST + SECOND), "complex64")
    with pytest.raises(PlanError, match="both have letters of their own"):
        nest("d[i] = max(A[i,k] + x[k], k)", 8, route="contraction")
