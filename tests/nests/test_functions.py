"""Functions, powers and comparisons in statements, against NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.statements.parse import parse_stages

TERMS = {
    "x[i] ** 2": lambda x, y: x**2,
    "x[i] ** 7": lambda x, y: x**7,
    "x[i] ** 11": lambda x, y: x**11,
    "x[i] ** 0.5": lambda x, y: x**0.5,
    "abs(x[i]) ** -1.5": lambda x, y: abs(x) ** -1.5,
    "abs(x[i]) ** y[i]": lambda x, y: abs(x) ** y,
    "2 ** y[i]": lambda x, y: 2**y,
    "0 < x[i] <= y[i] != 3": lambda x, y: (x > 0) & (x <= y) & (y != 3),
    "isnan(x[i])": lambda x, y: np.isnan(x),
    "hypot(x[i], y[i])": lambda x, y: np.hypot(x, y),
    "arctan2(x[i], y[i])": lambda x, y: np.arctan2(x, y),
    "exp2(x[i]) + log1p(abs(y[i]))": lambda x, y: np.exp2(x) + np.log1p(abs(y)),
    "log2(x[i]) - log10(y[i])": lambda x, y: np.log2(x) - np.log10(y),
    "sin(x[i]) * cos(y[i]) / tan(x[i])": lambda x, y: np.sin(x) * np.cos(y) / np.tan(x),
}
FUNCTIONS = ("hypot", "arctan2", "exp2", "log1p", "log2", "log10", "sin", "cos", "tan", "isnan")
INTEGERS = ("int8", "uint8", "int16", "uint32", "int32", "int64")


def halves(term, arrays):
    """The dtypes of the functions in a term."""
    kinds = [one.dtype for one in arrays.values()]
    used = [getattr(np, name) for name in FUNCTIONS if f"{name}(" in term]
    return {str(one.resolve_dtypes((*[kinds[0]] * one.nin, None))[0]) for one in used}


@examples(10, 60)
@given(
    st.sampled_from(list(TERMS)),
    st.sampled_from(["float32", "float64", *INTEGERS]),
    st.integers(0, 70),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_terms_have_the_values_and_dtypes_of_numpys(term, dtype, extent, step, seed):
    """At any extent and stride; or they are refused where NumPy's result is a half."""
    rng, integers = np.random.default_rng(seed), dtype in INTEGERS
    ends = (0 if "2 **" in term or "** y" in term or dtype[0] == "u" else -4, 6)
    x, y = (rng.uniform(*ends, (step * extent,)) * (1 if integers else 1.5) for _ in "xy")
    x, y = (one.astype(dtype)[::step] for one in (x, y))
    if "-1.5" in term or "log" in term:
        x = x + np.asarray(x == 0, dtype)
    with np.errstate(all="ignore"):
        expected = TERMS[term](x, y)
        wide = TERMS[term](x.astype("longdouble"), y.astype("longdouble"))
    arrays = {name: one for name, one in {"x": x, "y": y}.items() if f"{name}[" in term}
    if "float16" in halves(term, arrays):
        with pytest.raises(DtypeError, match="float16"):
            tilesolve.nest(f"o[i] = {term}", arrays)
        return
    found = tilesolve.nest(f"o[i] = {term}", arrays)(**arrays)
    assert found.dtype == expected.dtype
    if found.dtype.kind == "f":
        units = 16 * np.finfo(found.dtype).eps
        np.testing.assert_allclose(found, wide.astype(found.dtype), rtol=units, atol=units)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("term", ["x[i] ** 2", "x[i] ** x[i]"])
def test_powers_of_bits_are_integers(term):
    x = np.array([True, False, True])
    found = tilesolve.nest(f"o[i] = {term}", {"x": x})(x)
    expected = np.power(x, 2 if "2" in term else x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_large_powers_of_integers_wrap():
    x, n = np.array([3, -5, 2, 0, 1, -1]), np.array([40, 27, 63, 0, 2**62, 2**62 + 1])
    np.testing.assert_array_equal(tilesolve.nest("o[i] = x[i] ** n[i]", 6, "int64")(x, n), x**n)


def test_squares_of_sums_are_contractions():
    """As the products that they are."""
    A = np.random.rand(300, 300)
    plan = tilesolve.nest("s[i] = sum(A[i,k] ** 2, k)", {"A": A}, route="contraction")
    np.testing.assert_allclose(plan(A), (A * A).sum(axis=1), rtol=1e-12)


def test_negative_powers_of_integers_are_refused():
    with pytest.raises(DtypeError, match="negative power of an integer"):
        tilesolve.nest("o[i] = x[i] ** -1", 4, "int64")


@pytest.mark.parametrize(
    "text",
    [
        "(-2) ** x[i] ** 2",
        "(x[i] ** 2) ** y[i]",
        "-x[i] ** -y[i]",
        "(-x[i]) ** 2",
        "2 ** (x[i] + 1)",
    ],
)
def test_powers_are_written_as_python_reads_them(text):
    (stage,) = parse_stages(f"o[i] = {text}")
    assert parse_stages(str(stage)) == (stage,)
    values = {"x": 3.0, "y": 2.0}
    python = str(stage.term).replace("[i]", "")
    assert eval(python, {}, values) == eval(text.replace("[i]", ""), {}, values)


STEPS = {
    "exp(min({}, 2.0))": lambda x, y: np.exp(np.minimum(x, 2)),
    "log(abs({}) + 1.0)": lambda x, y: np.log(abs(x) + 1),
    "tanh({})": lambda x, y: np.tanh(x),
    "sqrt(abs({}))": lambda x, y: np.sqrt(abs(x)),
    "({} * y[i,j] + 0.5)": lambda x, y: x * y + 0.5,
}
EPS = {one: float(np.finfo(one).eps) for one in ("float32", "float64")}


@examples(8, 40)
@given(
    st.lists(st.sampled_from(list(STEPS)), min_size=2, max_size=4),
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 3),
    st.one_of(st.integers(1, 150), st.sampled_from((16, 31, 32, 33, 64, 96, 127, 128))),
    st.sampled_from(["", "j >= 3", "j <= i"]),
    st.integers(0, 7),
)
def test_functions_of_functions_are_numpys(steps, dtype, rows, columns, region, shift):
    """Several vectors at once: no lane is written beyond rows or a region, wherever they begin."""
    rng = np.random.default_rng([rows, columns])
    x, y = rng.uniform(-4, 4, (2, rows, columns)).astype(dtype)
    text, right = "x[i,j]", x.astype("longdouble")
    for step in steps:
        text, right = step.format(text), STEPS[step](right, y.astype("longdouble"))
    arrays = {"x": x} | ({"y": y} if "y[" in text else {})
    plan = tilesolve.nest(f"o[i,j] = {text}", arrays, dtype, where=region)
    i, j = np.indices(x.shape)
    inside = {"": j >= 0, "j >= 3": j >= 3, "j <= i": j <= i}[region]
    room = np.full(x.size + 16, 77, dtype)
    out = room[shift : shift + x.size].reshape(x.shape)
    for _ in range(2):
        out[...] = 77
        plan(**arrays, out=out)
        size = 200 * EPS[dtype]
        np.testing.assert_allclose(out[inside], right[inside].astype(dtype), rtol=size, atol=size)
        assert (out[~inside] == 77).all()
        assert (room[:shift] == 77).all()
        assert (room[shift + x.size :] == 77).all()
