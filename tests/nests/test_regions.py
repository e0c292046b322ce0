"""Regions in pieces and periodic positions, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_region

REGIONS = {
    "i != j": lambda i, j: i != j,
    "i < 3 or j > 5": lambda i, j: (i < 3) | (j > 5),
    "i < 3 or i < 5 and j != 2": lambda i, j: (i < 3) | ((i < 5) & (j != 2)),
    "(i < j or j < i - 4) and (i != 2 or j == 1)": lambda i, j: (
        ((i < j) | (j < i - 4)) & ((i != 2) | (j == 1))
    ),
    "i != j != 3": lambda i, j: (i != j) & (j != 3),
    "i == j or i == 4 or j == 4 or i + j == 7": lambda i, j: (
        (i == j) | (i == 4) | (j == 4) | (i + j == 7)
    ),
    "i < 2 and i > 5": lambda i, j: i < -1,
    "i < 3 or i < 3": lambda i, j: i < 3,
}
SIZES = st.integers(1, 21)


@pytest.mark.parametrize("where", REGIONS)
def test_pieces_have_each_point_once(where):
    i, j = np.mgrid[:12, :11]
    pieces = parse_region(where)
    counts = sum(np.logical_and.reduce([c.holds({"i": i, "j": j}) for c in p]) * 1 for p in pieces)
    np.testing.assert_array_equal(np.broadcast_to(counts, i.shape), REGIONS[where](i, j) * 1)


@examples(4, 12)
@given(
    st.sampled_from(list(REGIONS)), SIZES, SIZES, st.sampled_from(["default", "plain", "thesis"])
)
def test_elements_outside_of_a_region_stay(where, rows, columns, mode):
    A = np.random.rand(rows, columns)
    i, j = np.mgrid[:rows, :columns]
    inside = np.broadcast_to(REGIONS[where](i, j), A.shape)
    out = np.full(A.shape, 7.0)
    plan = tilesolve.nest("o[i,j] = 2 * A[i,j]", {"A": A}, where=where, mode=mode)
    plan(A, out=out)
    np.testing.assert_array_equal(out, np.where(inside, 2 * A, 7))
    np.testing.assert_array_equal(plan(A), np.where(inside, 2 * A, 0))
    np.testing.assert_array_equal(evaluate(plan.computation, {"A": A}, out=out), out)
    before, own = out.copy(), out
    tilesolve.nest("o[i,j] = o[i,j] + A[i,j]", {"A": A, "o": out}, where=where)(out, A, out=own)
    np.testing.assert_array_equal(own, before + np.where(inside, A, 0))


@examples(4, 12)
@given(
    st.sampled_from(["k != i", "k < i or k > i + 2", "k < 2 or k > 4", "i != 3", "i < 2 or k > 4"]),
    st.sampled_from(["+=", "*=", "max", "min"]),
    SIZES,
    SIZES,
)
def test_summands_outside_of_a_region_are_left_out(where, run, rows, columns):
    A = np.random.default_rng(rows).integers(1, 3, (rows, columns)).astype(float)
    i, k = np.mgrid[:rows, :columns]
    inside = np.vectorize(lambda i, k: eval(where))(i, k)
    name, first = {
        "+=": ("add", 0),
        "*=": ("multiply", 1),
        "max": ("maximum", -np.inf),
        "min": ("minimum", np.inf),
    }[run]
    text = f"o[i] {run} A[i,k]" if run[1] == "=" else f"o[i] = {run}(A[i,k], k)"
    found = tilesolve.nest(text, {"A": A}, where=where)(A)
    expected = getattr(np, name).reduce(np.where(inside, A, first), axis=1)
    if where == "i != 3":
        expected = np.where(np.arange(rows) == 3, 0, expected)
    np.testing.assert_array_equal(found, expected)


def test_what_would_begin_anew_is_refused():
    with pytest.raises(SpecError, match="begins anew in each piece"):
        tilesolve.nest("h[v[i]] += 1", {"i": 9, "h": (5,)}, "int64", where="i != 3")
    with pytest.raises(SpecError, match="is no sum as a whole"):
        tilesolve.nest("o[i] = 2 * sum(A[i,k], k)", 9, where="k != 3")


PERIODIC = {
    "o[i] = x[(i+1) % n] - x[(i-1) % n]": lambda x, w: np.roll(x, -1) - np.roll(x, 1),
    "o[i] = x[(2*i+3) % n]": lambda x, w: x[(2 * np.arange(x.size) + 3) % x.size],
    "o[i] = x[(-i) % n] * i": lambda x, w: x[-np.arange(x.size) % x.size] * np.arange(x.size),
    "o[i] += x[(i-k) % n] * w[k]": lambda x, w: sum(
        np.roll(x, at) * one for at, one in enumerate(w)
    ),
    "o[i] = max(x[(i+k) % n], k)": lambda x, w: np.max(
        [np.roll(x, -at) for at in range(w.size)], axis=0
    ),
    "o[i] = x[i] / sum(x[(i+k) % n] * w[k], k)": lambda x, w: (
        x / sum(np.roll(x, -at) * one for at, one in enumerate(w))
    ),
}


@examples(6, 12)
@given(st.sampled_from(list(PERIODIC)), st.integers(1, 40), st.integers(1, 9))
def test_positions_turn_around(text, extent, taps):
    """As `np.roll` does; the period is the extent of the axis, or a size by name."""
    x, w = np.random.rand(extent) + 0.5, np.random.rand(taps) + 0.5
    sizes = {"x": x, "w": w} if "w[" in text else {"x": x}
    sizes = {**sizes, "i": extent, **({"k": taps} if "k" in text else {})}
    plan = tilesolve.nest(text, sizes)
    arrays = {name: one for name, one in {"x": x, "w": w}.items() if f"{name}[" in text}
    expected = PERIODIC[text](x, w)
    np.testing.assert_allclose(plan(**arrays), expected, rtol=1e-12)
    np.testing.assert_allclose(evaluate(plan.computation, arrays), expected, rtol=1e-12)
    letters = {"i": extent, "n": extent, **({"k": taps} if "k" in text else {})}
    np.testing.assert_allclose(tilesolve.nest(text, letters)(**arrays), expected, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (30, 41)])
def test_a_stencil_on_a_torus(shape, threads):
    u = np.random.rand(*shape)
    text = "o[y,x] = u[(y-1)%h,x] + u[(y+1)%h,x] + u[y,(x-1)%w] + u[y,(x+1)%w] - 4*u[y,x]"
    plan = tilesolve.nest(text, {"u": u}, threads=threads)
    expected = sum(np.roll(u, by, axis) for by in (1, -1) for axis in (0, 1)) - 4 * u
    np.testing.assert_allclose(plan(u), expected, rtol=1e-12, atol=1e-13)
    assert len(plan.solutions) == (9 if shape == (30, 41) else len(plan.solutions))
    np.testing.assert_allclose(type(plan).from_json(plan.to_json())(u), plan(u))


def test_names_of_sizes_are_numbers():
    x = np.random.rand(20)
    np.testing.assert_allclose(tilesolve.nest("o[i] = x[i] / n", {"i": 20, "n": 4})(x), x / 4)
    with pytest.raises(SizeError, match="no size for n, the period of x"):
        tilesolve.nest("o[i] = x[(i+1) % n]", {"i": 20})
    with pytest.raises(SizeError, match=r"at position 8 of axis 0, but x has extent 5"):
        tilesolve.nest("o[i] = x[(i+1) % 9]", {"i": 20, "x": (5,)})


def test_turns_in_a_piece_without_points():
    """The second piece of the region lies outside of the letters' values."""
    x = np.random.rand(45)
    where = "0 <= i-j < 4 and (i+j < 27 or i >= j)"
    found = tilesolve.nest("o[j,i] = x[(i+3) % 45]", {"i": 9, "j": 1, "x": x}, where=where)(x)
    np.testing.assert_array_equal(found[0], np.where(np.arange(9) < 4, x[3:12], 0))


def test_numbers_are_pythons_and_extremes_are_of_several():
    x = np.random.rand(6)
    found = tilesolve.nest("o[i] = max(min(x[i], x[5-i], 10**-1), 2**-8, 0 * 2**40)", 6)(x)
    np.testing.assert_array_equal(found, np.maximum(np.minimum(np.minimum(x, x[::-1]), 0.1), 2**-8))


def test_many_turns_are_gathered():
    x = np.random.rand(3)
    found = tilesolve.nest("o[i] = x[(i+1) % 3]", {"i": 500, "x": x})(x)
    np.testing.assert_array_equal(found, x[(np.arange(500) + 1) % 3])


BANDS = {
    "j <= i": lambda i, j: j <= i,
    "j > i": lambda i, j: j > i,
    "i - 20 <= j <= i": lambda i, j: (i - 20 <= j) & (j <= i),
}


@pytest.mark.parametrize("where", BANDS)
@pytest.mark.parametrize("size", [31, 48])
def test_blocks_that_are_read_across_end_with_their_region(where, size):
    """Rows of a block begin and end apart; each leaves what lies outside."""
    A = np.random.rand(size, size)
    inside = BANDS[where](*np.ogrid[:size, :size])
    out = np.full(A.shape, 7.0)
    plan = tilesolve.nest("o[i,j] = A[i,j] + A[j,i]", {"A": A}, where=where)
    plan(A, out=out)
    np.testing.assert_array_equal(out, np.where(inside, A + A.T, 7))
