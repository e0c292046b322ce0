"""Cumulative sums, and statements that read what they computed before, against NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support.points import Points
from tilesolve.contractions.errors import PlanError, SpecError
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.machine.model import Machine

SCANS = {
    "o[i,k] = cumsum(A[i,k], k)": lambda A: A.cumsum(axis=1),
    "o[i,k] = cumsum(A[i,k], i)": lambda A: A.cumsum(axis=0),
    "o[k,i] = cummax(A[i,k], k)": lambda A: np.maximum.accumulate(A, axis=1).T,
    "o[i,k] = cummin(A[i,k], i)": lambda A: np.minimum.accumulate(A, axis=0),
    "o[i,k] = cumprod(A[i,k] % 3, k)": lambda A: (A % 3).cumprod(axis=1),
    "o[k] = cumsum(A[0,k], k)": lambda A: A[0].cumsum(),
    "o[i,k] = A[i,k] - cumsum(A[i,k] > 2, i)": lambda A: A - (A > 2).cumsum(axis=0),
    "r[i,k] = cumsum(A[i,k], k); o[i,k] = cumsum(r[i,k], i)": lambda A: A.cumsum(axis=1).cumsum(
        axis=0
    ),
    "o[k] = cumsum(sum(A[i,k], i), k)": lambda A: A.sum(axis=0).cumsum(),
}

RATIOS = "s[i] = sum(A[i,k], k); o[i,k] = A[i,k] / s[i]"


@examples(8, 40)
@given(
    st.sampled_from(list(SCANS)),
    st.sampled_from(["int8", "uint16", "int64", "float32", "float64"]),
    st.sampled_from(["default", "plain", "thesis"]),
    st.sampled_from([128, 256, 512]),
    st.integers(1, 30),
    st.integers(1, 40),
)
def test_scans_are_numpys(text, dtype, mode, bits, rows, columns):
    """In their dtypes, at any extents and strides, on one and two threads."""
    rng = np.random.default_rng([rows, columns])
    A = rng.integers(0, 5, (rows, 2 * columns)).astype(dtype)[:, :: 1 + rows % 2]
    expected = SCANS[text](A)
    machine = replace(Machine.load("i7-6700k"), vector_bits=bits)
    plan = tilesolve.nest(text, {"A": A}, mode=mode, threads=1 + columns % 2, machine=machine)
    found = plan(A)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype[0] == "f" else 0)
    np.testing.assert_allclose(evaluate(plan.computation, {"A": A}), expected, rtol=1e-4)
    np.testing.assert_array_equal(type(plan).from_json(plan.to_json())(A), found)


@examples(8, 15)
@given(st.integers(1, 20), st.integers(1, 40), st.sampled_from(["k", "i"]))
def test_elements_follow_from_those_before(rows, columns, along):
    """Filters whose results feed back; what lies before the region is given."""
    A = np.random.rand(rows, columns)
    own = "s[i,k-2] + s[i,k-1]" if along == "k" else "s[i-1,k] + s[i-2,k]"
    text = f"s[i,k] = A[i,k]; s[i,k] = A[i,k] + 0.25 * ({own})"
    plan = tilesolve.nest(text, {"A": A, "s": A.shape}, "float64", where=f"{along} >= 2")
    expected = Points(plan.computation, {"A": A}).run()
    np.testing.assert_allclose(plan(A), expected, rtol=1e-12)
    np.testing.assert_allclose(evaluate(plan.computation, {"A": A}), expected, rtol=1e-12)
    step = tilesolve.nest(
        f"s[i,k] = A[i,k] + 0.25 * ({own})", {"A": A, "s": A}, where=f"{along} >= 2"
    )
    s = A.copy()
    step(A, s, out=s)
    np.testing.assert_allclose(s, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "s[i,k] = s[i,k+1] + A[i,k]",
        "s[i,k] = s[i-1,k-1] + A[i,k]",
        "s[i,k] = s[i-1,k] + s[i,k-1]",
        "s[i,k] = s[k,i] + A[i,k]",
        "s[i] = sum(s[i-k], k)",
    ],
)
def test_other_orders_are_refused(text):
    with pytest.raises(SpecError, match="depend on one another"):
        tilesolve.nest(text, 5, where="i >= 1")


def test_scans_have_their_own_axis():
    with pytest.raises(SpecError, match="runs along an axis of o"):
        tilesolve.nest("o[i] = sum(cumsum(A[i,k], k), k)", 5)
    with pytest.raises(SpecError, match="in no region"):
        tilesolve.nest("o[k] = cumsum(A[k], k)", 5, where="k > 2")
    with pytest.raises(PlanError, match="in the order of k"):
        tilesolve.nest("o[k] = o[k-1] + A[k]", 5, where="k >= 1", route="contraction")
    with pytest.raises(SpecError, match="begins anew"):
        tilesolve.nest("o[k] = o[k-1] + A[k]", 5, where="k > 2 or k == 1")


@pytest.mark.parametrize("text", [*SCANS, RATIOS])
def test_statements_of_no_elements(text):
    """Several statements run on arrays without elements, and give what NumPy gives."""
    for shape in ((2, 0), (0, 3), (0, 0)):
        if "A[0,k]" in text and not shape[0]:
            continue  # there is no first row
        A = np.zeros(shape)
        expected = SCANS.get(text, lambda A: A)(A)
        found = tilesolve.nest(text, {"A": shape}, "float64", cache=False)(A)
        np.testing.assert_array_equal(found, expected)


def test_places_in_no_elements():
    """The place of an extreme value of none is the largest whole number."""
    plan = tilesolve.nest("o[i] = argmin(A[i,k], k)", {"A": (3, 0)}, cache=False)
    np.testing.assert_array_equal(plan(np.zeros((3, 0))), np.full(3, np.iinfo(np.int64).max))
