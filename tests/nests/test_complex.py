"""Complex numbers in statements and traced functions, against NumPy's in higher precision."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import DtypeError, PlanError, TraceError
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.plan import NestPlan

DTYPES = ("complex64", "complex128")
REALS = {"complex64": "float32", "complex128": "float64"}
SIDES = (0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 65)
"""Extents around vectors of either dtype."""

TERMS = {
    "x[i] + y[i]": lambda x, y, r: x + y,
    "x[i] - 2 * y[i]": lambda x, y, r: x - 2 * y,
    "x[i] * y[i] + x[i]": lambda x, y, r: x * y + x,
    "x[i] / y[i]": lambda x, y, r: x / y,
    "r[i] / x[i] - r[i] * y[i]": lambda x, y, r: r / x - r * y,
    "-conj(x[i]) * (2 - 3j)": lambda x, y, r: -np.conj(x) * (2 - 3j),
    "real(x[i]) - imag(y[i]) * 1j": lambda x, y, r: x.real - y.imag * 1j,
    "real(r[i]) + imag(r[i]) + conj(r[i])": lambda x, y, r: r + 0 + r,
    "abs(x[i]) + imag(x[i] * x[i])": lambda x, y, r: abs(x) + (x * x).imag,
    "exp(x[i]) ** 2": lambda x, y, r: np.exp(x) ** 2,
    "where(r[i] < 0, x[i], r[i])": lambda x, y, r: np.where(r < 0, x, r),
    "x[i] == y[i]": lambda x, y, r: x == y,
    "(x[i] != y[i]) & ~isnan(x[i])": lambda x, y, r: (x != y) & ~np.isnan(x),
    "x[i] * i": lambda x, y, r: x * np.arange(len(x)),
    "complex128(r[i]) + bool(x[i])": lambda x, y, r: r.astype(complex) + x.astype(bool),
}
"""Terms, and what NumPy makes of them."""


def draw(rng, shape, dtype):
    """Numbers of a dtype that are not small."""
    real, imaginary = rng.uniform(0.5, 2, (2, *shape)) * rng.choice([-1, 1], (2, *shape))
    found = real + 1j * imaginary if np.dtype(dtype).kind == "c" else real
    return found.astype(dtype)


def lay_out(rng, array):
    """The same values with other strides, at an odd address or at a guard page."""
    form = rng.choice(["guarded", "apart", "backwards", "odd", "parts"])
    if form == "guarded":
        return guard_pages.lay(array, rng)
    if form == "odd":
        found = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    elif form == "parts":  # each element between those of another array
        found = np.zeros((*array.shape, 2), array.dtype)[..., 1]
    else:
        step = 3 if form == "apart" else -1
        room = np.zeros([3 * n for n in array.shape], array.dtype)
        found = room[(*(slice(None, None, step) for _ in array.shape), ...)]
        found = found[(*map(slice, array.shape), ...)]
    np.copyto(found, array)
    return found


def check(found, expected, wide, arrays, units=64):
    """Values and dtype are NumPy's, as far as what is computed with has digits."""
    assert found.dtype == expected.dtype
    if found.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected)
        return
    eps = units * max(np.finfo(one.dtype).eps for one in arrays if one.dtype.kind in "fc")
    np.testing.assert_allclose(found, wide.astype(found.dtype), rtol=eps, atol=eps)


def widen(array):
    """The same numbers with more digits."""
    return array.astype("clongdouble" if array.dtype.kind == "c" else "longdouble")


@examples(25, 60)
@given(
    st.sampled_from(list(TERMS)),
    st.sampled_from(DTYPES),
    st.sampled_from(["same", "real", "int16", "other"]),
    st.sampled_from(SIDES),
    st.integers(0, 10**6),
)
def test_terms_have_the_values_and_dtypes_of_numpys(term, dtype, second, extent, seed):
    """Of any extent, strides and alignment; beside numbers of another dtype, too."""
    rng = np.random.default_rng(seed)
    other = {"same": dtype, "real": REALS[dtype], "other": DTYPES[dtype == DTYPES[0]]}
    x, y = draw(rng, (extent,), dtype), draw(rng, (extent,), other.get(second, second))
    y[: extent // 2] = x[: extent // 2].astype(y.dtype) if y.dtype.kind == "c" else 1
    y, r = np.where(y == 0, 1, y).astype(y.dtype), draw(rng, (extent,), REALS[dtype])
    expected, wide = TERMS[term](x, y, r), TERMS[term](*map(widen, (x, y, r)))
    given_ = {name: one for name, one in zip("xyr", (x, y, r), strict=True) if f"{name}[" in term}
    plan = tilesolve.nest(f"o[i] = {term}", given_)
    out = lay_out(rng, np.full(extent, 77, expected.dtype))
    plan(**{name: lay_out(rng, one) for name, one in given_.items()}, out=out)
    check(out, expected, wide, (x, y, r))
    assert NestPlan.from_json(plan.to_json()) == plan


REDUCTIONS = {
    "d[i] = sum(A[i,k], k)": lambda A, B: A.sum(1),
    "d[k] = sum(A[i,k], i)": lambda A, B: A.sum(0),
    "d[i] = sum(A[i,k] * conj(A[i,k]), k)": lambda A, B: (A * A.conj()).sum(1),
    "d[i] = prod(A[i,k], k)": lambda A, B: A.prod(1),
    "d[] = sum(A[i,k] / abs(A[i,k]), i, k)": lambda A, B: (A / abs(A)).sum(),
    "d[i,j] += A[i,k] * B[k,j]": lambda A, B: A @ B,
    "d[j,i] = (1 + 2j) * sum(A[i,k] * B[k,j], k)": lambda A, B: (1 + 2j) * (A @ B).T,
    "d[i,j] += conj(A[i,k]) * A[j,k]": lambda A, B: A.conj() @ A.T,
    "d[i,j] = A[i,0] + 3j * sum(A[i,k] * conj(B[k,j]), k)": lambda A, B: (
        A[:, :1] + 3j * (A @ B.conj())
    ),
    "d[i,j] += real(A[i,k]) * B[k,j]": lambda A, B: A.real @ B,
    "d[i,j] = sum((A[i,k] - B[k,j]) * A[i,k], k)": lambda A, B: (A * A).sum(1)[:, None] - A @ B,
    "d[i,k] = cumsum(A[i,k], k)": lambda A, B: A.cumsum(1),
    "d[k,i] = A[i,k]": lambda A, B: A.T,
    "d[k,i] = 2 * conj(A[i,k])": lambda A, B: 2 * A.conj().T,
}
"""Statements with letters that are summed or in another order."""


@examples(20, 40)
@given(
    st.sampled_from(list(REDUCTIONS)),
    st.sampled_from(DTYPES),
    st.tuples(*[st.sampled_from(SIDES[1:])] * 3),
    st.booleans(),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_reductions_and_moves(text, dtype, sides, real, threads, seed):
    """By loops, contractions and transposes; of one complex operand, too."""
    rng = np.random.default_rng(seed)
    i, j, k = sides
    A, B = draw(rng, (i, k), dtype), draw(rng, (k, j), REALS[dtype] if real else dtype)
    given_ = {name: one for name, one in (("A", A), ("B", B)) if f"{name}[" in text}
    plan = tilesolve.nest(text, given_, threads=threads)
    expected, wide = (np.asarray(REDUCTIONS[text](*ab)) for ab in ((A, B), (widen(A), widen(B))))
    out = lay_out(rng, np.full(expected.shape, 77, expected.dtype))
    plan(**{name: lay_out(rng, one) for name, one in given_.items()}, out=out)
    scale = np.maximum(abs(wide), k * 8)
    scale = scale.astype(out.real.dtype)
    check(out / scale, expected / scale, wide / scale, (A, B))


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", [one for one in REDUCTIONS if "B" in one])
def test_large_products_are_contractions(text, dtype):
    """What conjugates or converts operands runs before; factors are complex."""
    rng = np.random.default_rng(1)
    A, B = draw(rng, (150, 301), dtype), draw(rng, (301, 77), dtype)
    plan = tilesolve.nest(text, {"A": A, "B": B} if "B[" in text else {"A": A})
    routes = {one.route for one in plan.solutions}
    assert ("contraction" in routes) == ("(A[i,k] - B" not in text)
    expected = REDUCTIONS[text](widen(A), widen(B))
    for _ in range(2):
        found = plan(A, B)
        np.testing.assert_allclose(
            found, expected.astype(dtype), rtol=0, atol=3000 * np.finfo(dtype).eps
        )
    assert NestPlan.from_json(plan.to_json()) == plan


def test_regions_histograms_and_old_values():
    """Complex statements have what others have."""
    rng = np.random.default_rng(2)
    A, C = draw(rng, (90, 90), "complex64"), draw(rng, (90, 90), "complex64")
    text = "C[i,j] = 2j * sum(A[i,k] * A[j,k], k) + s * C[i,j]"
    for route in (None, "nest", "contraction"):
        plan = tilesolve.nest(text, {"A": A, "C": C}, {"s": "float32"}, where="j <= i", route=route)
        expected = np.where(np.tri(90, dtype=bool), 2j * (A @ A.T) + 3 * C, C)
        np.testing.assert_allclose(plan(A, C, s=3), expected, rtol=1e-4, atol=1e-3)
    v, w = rng.integers(0, 5, 70), draw(rng, (70,), "complex128")
    plan = tilesolve.nest("h[v[i]] += w[i]", {"v": v, "w": w, "h": (5,)})
    expected = np.bincount(v, w.real, 5) + 1j * np.bincount(v, w.imag, 5)
    np.testing.assert_allclose(plan(v, w), expected)
    gather = tilesolve.nest("o[i] = w[v[i]] * w[i]", {"v": v, "w": w})
    np.testing.assert_allclose(gather(v=v, w=w), w[v] * w)
    scaled = tilesolve.nest("y[i] = a[] * w[i]", {"w": w, "a": ()}, "complex128")
    np.testing.assert_allclose(scaled(w=w, a=np.array(2j)), 2j * w)


def test_results_past_the_caches():
    """Whole lines, and parts of lines that rows share."""
    plan = tilesolve.nest("o[y,x] = A[y,x] * B[y,x]", {"y": 3000, "x": 1001}, "complex64")
    assert plan.solutions[0].cost is not None
    rng = np.random.default_rng(3)
    A, B = draw(rng, (2, 3000, 1001), "complex64")
    for skipped in (0, 1, 5):
        out = np.full(A.size + skipped, 77, "complex64")[skipped:].reshape(A.shape)
        np.testing.assert_allclose(plan(A, B, out=out), A * B, rtol=1e-5)
    wide = tilesolve.nest("o[y,x] = A[y,x] * 2", {"y": 2500, "x": 1001}, "complex128")
    A = draw(rng, (2500, 1001), "complex128")
    np.testing.assert_array_equal(wide(A), 2 * A)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "term", ["x[i] + y[i]", "x[i] - y[i]", "x[i] * y[i]", "conj(x[i])", "x[i] == y[i]", "-x[i]"]
)
def test_what_is_no_number(term, dtype):
    """NaN, infinities and signs of zeros are NumPy's, part by part."""
    ends = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
    numbers = np.array([complex(a, b) for a in ends for b in ends])
    x, y = (one.ravel().astype(dtype) for one in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        expected = eval(term.replace("[i]", ""), {"x": x, "y": y, "conj": np.conj})
    found = tilesolve.nest(f"o[i] = {term}", {"x": x, "y": y} if "y" in term else {"x": x})
    found = found(x, y) if "y" in term else found(x)
    if found.dtype == bool:
        np.testing.assert_array_equal(found, expected)
        return
    for part in ("real", "imag"):
        one, other = getattr(found, part), getattr(expected, part)
        np.testing.assert_array_equal(one, other)
        if "*" not in term:
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


def test_quotients_and_functions_of_what_is_no_number():
    x = np.array([1 + 2j, 0, 3j, np.inf, complex(-np.inf, 1)])
    divide = tilesolve.nest("o[i] = x[i] / y[i]", {"x": x, "y": x})
    y = np.array([0, 0, complex(0, -0.0), 2, 1j])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(divide(x, y), x / y)
    np.testing.assert_array_equal(tilesolve.nest("o[i] = abs(x[i])", {"x": x})(x), abs(x))
    far = np.array([1e200 + 1e200j, 1e-200 - 1e-200j])
    np.testing.assert_allclose(tilesolve.nest("o[i] = abs(x[i])", {"x": far})(far), abs(far))
    large = np.array([709.9 + 1j, -800 + 3j, 5 + 0j, complex(-np.inf, 2)])
    with np.errstate(all="ignore"):
        expected = np.exp(large)
    np.testing.assert_allclose(tilesolve.nest("o[i] = exp(x[i])", {"x": large})(large), expected)


REFUSED = {
    "y[i] = a * x[i]": "given as arrays without axes; write a",
    "y[i] = x[i] < 2": "less is not made for",
    "y[i] = max(x[i], 1)": "max is not made for",
    "y[] = max(x[i], i)": "max is not made for",
    "y[] = argmax(x[i], i)": "max is not made for",
    "y[i] = float64(x[i])": "write real",
    "y[i] = sqrt(x[i])": "complex numbers do not have it",
    "y[i] = x[i] ** 0.5": "complex numbers have no other powers",
    "y[i] = x[i] // 2": "not made for",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_complex_numbers_do_not_have(text):
    with pytest.raises(DtypeError, match=REFUSED[text]):
        tilesolve.nest(text, 5, "complex128")
    with pytest.raises(DtypeError, match="write real"):
        tilesolve.nest("y[i] = x[i] + 1", 5, {"x": "complex64", "y": "float32"})


@pytest.mark.parametrize("text", ["o[i] = x[i] * 2j - (1-3j)", "o[i] = -1j + x[i] * (-0-2j)"])
def test_numbers_are_read_as_they_are_written(text):
    (stage,) = parse_stages(text)
    assert parse_stages(str(stage)) == (stage,)


FUNCTIONS = (
    lambda a, r: (a * a.conj()).real.sum(axis=1),
    lambda a, r: (a[1:] * r[:-1] - 2j * a[:-1]).T / (1 + a[1:].T),
    lambda a, r: np.exp(1j * np.angle(a.conj() @ r.T)),
    lambda a, r: (a.mean(axis=0), a.var(), np.abs(a).max(), a.imag.std()),
    lambda a, r: np.where(np.real(a) > 0, a, np.conj(a)) * np.isfinite(a) + (a == a),
    lambda a, r: np.einsum("ij,kj->ki", a, np.conjugate(a)) * np.complex64(1j),
    lambda a, r: np.pad(r * a[::-1], 1)[1:],
)


@examples(5, 20)
@given(
    st.sampled_from(FUNCTIONS),
    st.sampled_from(DTYPES),
    st.tuples(st.integers(2, 20), st.integers(2, 20)),
    st.integers(0, 10**6),
)
def test_traced_functions(function, dtype, shape, seed):
    rng = np.random.default_rng(seed)
    a, r = draw(rng, shape, dtype), draw(rng, shape, REALS[dtype])
    found, expected = tilesolve.pipeline(function)(a, r), function(a, r)
    wide = function(widen(a), widen(r))
    several = [one if isinstance(one, tuple) else (one,) for one in (found, expected, wide)]
    for one, other, more in zip(*several, strict=True):
        check(np.asarray(one), np.asarray(other), np.asarray(more), (a, r), 4000)


def test_arrays_that_a_function_fills():
    def fill(a):
        out = np.zeros(a.shape, complex)
        out[1:-1] = a[2:] - a[:-2]
        out[0] = 1j
        return out

    a = draw(np.random.default_rng(4), (60,), "complex128")
    found = tilesolve.pipeline(fill)
    np.testing.assert_array_equal(found(a), fill(a))
    with pytest.raises(PlanError, match="complex"):
        found.plan(a).to_halide()
    with pytest.raises(DtypeError, match="write real"):
        tilesolve.pipeline(lambda a: a.astype("float64"))(a)
    with pytest.raises(TraceError, match="no number"):
        tilesolve.pipeline(lambda a: a + complex(np.nan, 1))(a)
