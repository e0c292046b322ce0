"""Extremes of many numbers: any NaN among them is the result, whatever else there is."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.constants.nests import LONG_EXTREMES
from tilesolve.nests.plan import nest

MACHINE = "i7-6700k"
FUNCTIONS = {"max": np.maximum, "min": np.minimum}
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 3.0)


def _fill(draw, count, dtype):
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = rng.standard_normal(count).astype(dtype)
    for _ in range(draw(st.integers(0, 6))):
        found[draw(st.integers(0, count - 1))] = draw(st.sampled_from(SPECIAL))
    return found


@st.composite
def _draw_nested(draw, name, parts):
    """Draw a term of nested extremes, in any order."""
    parts = list(parts)
    while len(parts) > 1:
        at = draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [f"{name}({parts[at]}, {parts[at + 1]})"]
    return parts[0]


@pytest.mark.parametrize("count", [LONG_EXTREMES - 1, LONG_EXTREMES, LONG_EXTREMES + 1, 13])
@examples(3, 40)
@given(data=st.data())
def test_extremes_of_many_are_numpys(data, count):
    draw = data.draw
    name, size = draw(st.sampled_from(sorted(FUNCTIONS))), draw(st.sampled_from([1, 7, 40, 67]))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    parts = [f"A[i+{at}]" for at in range(count)]
    plan = nest(f"o[i] = {draw(_draw_nested(name, parts))}", size, dtype, machine=MACHINE)
    array = _fill(draw, size + count - 1, dtype)
    windows = [array[at : at + size] for at in range(count)]
    np.testing.assert_array_equal(plan(array), reduce(FUNCTIONS[name], windows))


@pytest.mark.parametrize("at", range(LONG_EXTREMES + 2))
def test_each_number_is_looked_at(at):
    names = "ABCDEFGH"[: LONG_EXTREMES + 2]
    term = reduce(lambda one, other: f"max({one}, {other})", [f"{x}[i]" for x in names])
    plan = nest(f"o[i] = {term}", 5, "float64", machine=MACHINE)
    arrays = [np.arange(5.0) for _ in names]
    arrays[at] = np.array([np.nan, 9, -np.inf, np.nan, np.inf])
    np.testing.assert_array_equal(plan(*arrays), reduce(np.maximum, arrays))


def test_constants_and_other_dtypes_among_them():
    text = (
        "o[i] = max(max(max(max(max(max(A[i], 2), A[i+1]), B[i]), min(A[i+2], 5)), C[i]), A[i+3])"
    )
    plan = nest(text, 50, {"A": "float32", "B": "float64", "C": "int32"}, machine=MACHINE)
    rng = np.random.default_rng(0)
    one, two = 4 * rng.standard_normal(53).astype("float32"), 4 * rng.standard_normal(50)
    three = rng.integers(-9, 9, 50).astype("int32")
    one[[3, 20]], two[40] = np.nan, np.nan
    parts = [one[:50], one[1:51], two, np.minimum(one[2:52], np.float32(5)), three, one[3:]]
    right = np.maximum(reduce(np.maximum, parts), 2)
    np.testing.assert_array_equal(plan(one, two, three), right)


def test_rows_that_share_what_they_look_at():
    reads = [f"A[y+{y},x+{x}]" for y in range(3) for x in range(3)]
    term = reduce(lambda one, other: f"max({one}, {other})", reads)
    plan = nest(f"o[y,x] = {term} + {reads[0]}", {"y": 21, "x": 45}, "float32", machine=MACHINE)
    array = np.random.default_rng(1).standard_normal((23, 47)).astype("float32")
    array[[2, 11, 22], [3, 30, 46]] = np.nan
    parts = [array[y : y + 21, x : x + 45] for y in range(3) for x in range(3)]
    np.testing.assert_array_equal(plan(array), reduce(np.maximum, parts) + parts[0])
