"""Sums of short integers and counts, which are computed in narrower dtypes than NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.constants.nests import NEST_NARROW_TERMS
from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.statements.bit_counts import BitCount
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.promotion import widest_bytes
from tilesolve.nests.narrow_sums import sum_narrowly
from tilesolve.nests.plan import NestPlan

COUNTS = (1, 63, 64, 65, 127, 128, 255, 256, 257, 300)
"""Extents around the shortest narrow sum, vectors of bytes, and what a byte holds."""

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64")

TERMS = {
    "A[i,k] == B[j,k]": lambda a, b: a == b,
    "A[i,k] < B[j,k]": lambda a, b: a < b,
    "A[i,k] ^ B[j,k]": lambda a, b: a ^ b,
    "A[i,k] * B[j,k]": lambda a, b: a * b,
    "A[i,k] | B[k,j]": lambda a, b: a | b,
    "popcount(A[i,k] ^ B[j,k])": lambda a, b: BitCount()(a ^ b),
}


@examples(8, 40)
@given(
    st.sampled_from(list(TERMS)),
    st.sampled_from(DTYPES),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from(COUNTS)),
    st.sampled_from(["", "k <= i + 70", "j <= i"]),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_sums_are_numpys(term, dtype, sizes, where, threads, seed):
    """Of the greatest and the least numbers, too, at any extent, and in regions."""
    rng = np.random.default_rng(seed)
    i, j, k = sizes
    ends = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    A, B = (rng.choice(ends, (n, k), p=[0.2, 0.8]).astype(dtype) for n in (i, j))
    given_ = {"A": A, "B": B.T.copy() if "B[k,j]" in term else B}
    plan = tilesolve.nest(f"d[i,j] = sum({term}, k)", given_, where=where, threads=threads)
    values, region = TERMS[term](A[:, None], B), np.ones((i, j, k), bool)
    at = dict(zip("ijk", np.ogrid[:i, :j, :k], strict=True))
    if where:
        region &= eval(where, at)
    expected = np.where(region, values, np.zeros(1, values.dtype)).sum(2)
    if where == "j <= i":
        expected = np.where(at["j"] <= at["i"], expected[..., None], 77)[..., 0]
    out = guard_pages.lay(np.full((i, j), 77, expected.dtype), rng)
    plan(**{name: guard_pages.give(one, rng) for name, one in given_.items()}, out=out)
    assert plan.computation.output.dtype == TERMS[term](A[:1], B[:1]).sum().dtype
    np.testing.assert_array_equal(out, expected)
    assert NestPlan.from_json(plan.to_json()) == plan


def narrow_dtype(text, count, dtype):
    """The dtype that a sum is computed in; None for that of its result."""
    found = sum_narrowly(bind_stages(parse_stages(text), {"i": 3, "j": 3, "k": count}, dtype))
    return None if found is None else found.stages[0].dtype


@pytest.mark.parametrize(
    ("text", "dtype", "counts"),
    [
        ("d[i,j] = sum(A[i,k] == B[j,k], k)", "uint8", {255: "uint8", 256: "uint16"}),
        ("d[i,j] = sum(A[i,k] == B[j,k], k)", "int32", {64: "uint32", 2**32: None}),
        ("d[i,j] = sum(A[i,k] == B[j,k], k)", "int64", {200: None}),
        ("d[i,j] = sum(A[i,k] & B[j,k], k)", "uint8", {257: "uint16", 258: "uint32"}),
        ("d[i,j] = sum(A[i,k] & B[j,k], k)", "int8", {255: "int16", 256: "int32"}),
        ("d[i,j] = sum(A[i,k] & B[j,k], k)", "int32", {64: None}),
        ("d[i,j] += A[i,k] & B[j,k]", "uint8", {100: None}),
        ("d[i,j] = max(A[i,k] & B[j,k], k)", "uint8", {100: None}),
    ],
)
def test_no_sum_is_too_narrow(text, dtype, counts):
    """Each dtype has all values that may occur, and short sums stay as they are."""
    assert {count: narrow_dtype(text, count, dtype) for count in counts} == counts
    assert narrow_dtype(text, NEST_NARROW_TERMS - 1, dtype) is None


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_bits_are_counted(dtype):
    """Those of magnitudes, as NumPy does, in statements and traced functions."""
    ends = np.iinfo(dtype)
    x = np.array([ends.min, ends.max, 0, 1, ends.max // 3, *range(90)], dtype)
    expected = [bin(abs(int(one))).count("1") for one in x]
    found = tilesolve.nest("o[i] = popcount(x[i])", {"x": x})(x)
    assert found.dtype == "uint8"
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(BitCount()(x), expected)
    with pytest.raises(DtypeError, match="bitwise_count"):
        tilesolve.nest("o[i] = popcount(x[i])", 4, "float32")
    if hasattr(np, "bitwise_count"):
        traced = tilesolve.pipeline(lambda a: np.bitwise_count(a ^ 1).sum())
        assert traced(x) == np.bitwise_count(x ^ 1).sum()


def test_vectors_are_of_what_is_added():
    """A sum that keeps its dtype fills vectors of that, as an extreme does."""
    for text in ("d[i] += A[i,k]", "d[i] = max(A[i,k], k)"):
        (stage,) = parse_stages(text)
        assert widest_bytes(stage, {"d": "int8", "A": "int8"}) == 1
    (stage,) = parse_stages("d[i] = sum(A[i,k], k)")
    assert widest_bytes(stage, {"d": "int64", "A": "int8"}) == 8
