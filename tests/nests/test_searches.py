"""Where extreme values stand, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.statements.evaluate import evaluate

TEXTS = {
    "o[i] = argmax(A[i,k], k)": lambda A: A.argmax(axis=1),
    "o[k] = argmin(A[i,k], i)": lambda A: A.argmin(axis=0),
    "d = argmax(A[i,k], i, k)": lambda A: A.argmax(),
    "d = argmin(A[i,k], k, i)": lambda A: A.T.argmin(),
    "o[i] = 2 * argmin(A[i,k] * A[i,k], k) + i": lambda A: (
        2 * (A * A).argmin(axis=1) + np.arange(len(A))
    ),
    "o[i] = argmax(A[i,k], k) - argmin(A[i,k], k)": lambda A: A.argmax(axis=1) - A.argmin(axis=1),
}


@examples(6, 30)
@given(
    st.sampled_from(list(TEXTS)),
    st.sampled_from(["bool", "int8", "uint16", "int64", "float32", "float64"]),
    st.integers(1, 40),
    st.integers(1, 70),
    st.booleans(),
    st.integers(1, 2),
)
def test_the_first_one_is_found(text, dtype, rows, columns, holes, threads):
    """Among equal ones, and of those that are no numbers if there are some."""
    rng = np.random.default_rng([rows, columns])
    A = rng.integers(0, 9, (columns, rows)).astype(dtype).T
    if holes and dtype.startswith("float"):
        A[rng.random(A.shape) < 0.02] = np.nan
    plan = tilesolve.nest(text, {"A": A}, threads=threads)
    found, expected = plan(A), np.asarray(TEXTS[text](A))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(evaluate(plan.computation, {"A": A}), expected)
    np.testing.assert_array_equal(type(plan).from_json(plan.to_json())(A), expected)


@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_places_have_the_dtype_that_is_asked_for(dtype):
    A = np.random.rand(30, 20)
    plan = tilesolve.nest("o[i] = argmin(A[i,k], k)", {"A": A}, {"A": "float64", "o": dtype})
    np.testing.assert_array_equal(plan(A), A.argmin(axis=1).astype(dtype))


def test_a_region_leaves_some_out():
    """Of none the place is the largest number."""
    A = np.random.rand(30, 30)
    plan = tilesolve.nest("o[i] = argmax(A[i,k], k)", {"A": A}, where="k < i")
    expected = [row[:at].argmax() if at else 2**63 - 1 for at, row in enumerate(A)]
    np.testing.assert_array_equal(plan(A), expected)
    np.testing.assert_array_equal(evaluate(plan.computation, {"A": A}), expected)


def test_nearest_points():
    X, Y = np.random.rand(50, 3), np.random.rand(20, 3)
    text = "o[i] = argmin(d[i,j], j)"
    text = f"d[i,j] = sum((X[i,k] - Y[j,k]) ** 2, k); {text}"
    expected = ((X[:, None] - Y[None]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(tilesolve.nest(text, {"X": X, "Y": Y})(X, Y), expected)
