"""Results of a single element, and sums of truth values, against NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine

TEXTS = {
    "d = sum(A[i,j], i, j)": lambda A: A.sum(),
    "d = sum(A[j,i], i, j)": lambda A: A.sum(),
    "d = max(A[i,j], i, j)": lambda A: A.max(),
    "d = min(A[i,j], j, i)": lambda A: A.min(),
    "d[] += A[i,j] * A[i,j]": lambda A: np.einsum("ij,ij", A, A),
    "d[] += A[i,0]": lambda A: np.einsum("i->", A[:, 0]),
    "d = any(A[i,j] == 3, i, j)": lambda A: (A == 3).any(),
    "d[] = all(A[i,j] < 7, i, j)": lambda A: (A < 7).all(),
    "o[i] = any(A[i,j], j)": lambda A: A.any(axis=1),
    "o[j] = all(A[i,j], i)": lambda A: A.all(axis=0),
    "s = sum(A[i,j], i, j); o[i] = max(A[i,j], j) - s": lambda A: A.max(axis=1) - A.sum(),
    "s = sum(A[i,j], i, j); d = sum((A[i,j] - s) ** 2, i, j)": lambda A: ((A - A.sum()) ** 2).sum(),
}


@examples(10, 60)
@given(
    st.sampled_from(list(TEXTS)),
    st.sampled_from(["int8", "uint16", "int64", "float32", "float64"]),
    st.sampled_from([128, 256, 512]),
    st.sampled_from(["default", "thesis", "untiled", "plain"]),
    st.integers(1, 70),
    st.integers(1, 40),
)
def test_single_elements_are_numpys(text, dtype, bits, mode, rows, columns):
    """At any extents, strides, vectors and number of threads."""
    rng = np.random.default_rng([rows, columns])
    A = rng.integers(0, 8, (rows, 2 * columns)).astype(dtype)[:, :: 1 + rows % 2]
    expected = np.asarray(TEXTS[text](A))
    machine = replace(Machine.load("i7-6700k"), vector_bits=bits)
    plan = tilesolve.nest(text, {"A": A}, machine=machine, mode=mode, threads=1 + columns % 2)
    found = plan(A)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 0)
    out = np.full(found.shape, 77, found.dtype)
    assert plan(A, out=out) is out
    np.testing.assert_array_equal(out, found)


def test_single_elements_in_a_region_and_in_place():
    A = np.random.rand(40, 40)
    found = tilesolve.nest("d[] += A[i,j]", {"A": A}, where="j < i")(A)
    np.testing.assert_allclose(found, np.tril(A, -1).sum(), rtol=1e-13)
    d = np.array(2.0)
    tilesolve.nest("d = 3 * d + sum(A[i,i], i)", {"A": A, "d": d})(d, A, out=d)
    np.testing.assert_allclose(d, 6 + np.trace(A), rtol=1e-13)


@pytest.mark.parametrize("text", ["d[] = sum(x[i], i)", "d[] = a * x[3]", "d[] += x[i]"])
def test_text_of_single_elements_is_read_again(text):
    (stage,) = parse_stages(text)
    assert parse_stages(str(stage)) == (stage,)


def test_rows_at_positions_within_limits():
    """Each element may come from another column, however many rows there are."""
    A = np.random.default_rng(0).integers(0, 2, (16, 45)).astype("uint32")
    plan = tilesolve.nest("o = any(A[k,min(max(k-2,0),44)], k)", {"k": 16, "A": A}, "uint32")
    assert plan(A) == A[np.arange(16), np.maximum(np.arange(16) - 2, 0)].any()
