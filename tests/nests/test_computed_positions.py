"""Computed positions: at the ends, of any dtype and stride, and those outside, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.intervals import find_interval
from tilesolve.contractions.statements.parse import parse_stages

POSITIONS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
VALUES = ("bool", "uint8", "int16", "float32", "float64")
STATEMENTS = {
    "o[i] = T[v[i]]": lambda T, v, w: T[v],
    "o[i] = T[v[i]] * w[i]": lambda T, v, w: T[v] * w,
    "o[i] = max(T[v[i]], T[v[i+1]])": lambda T, v, w: np.maximum(T[v[:-1]], T[v[1:]]),
    "o[i] = T[v[v[i]]]": lambda T, v, w: T[v[v]],
    "o[i] = where(v[i] > 3, T[v[i]], T[0])": lambda T, v, w: np.where(v > 3, T[v], T[0]),
    "o[i] = T[v[i] >> 2]": lambda T, v, w: T[v >> 2],
    "o[i] = T[v[i] % 100] != w[i]": lambda T, v, w: T[v % 100] != w,
    "o[i] = min(T[v[i] & 127], T[v[i] // 2 + 60])": lambda T, v, w: np.minimum(
        T[v & 127], T[v // 2 + 60]
    ),
    "o[v[i]] += w[i]": lambda T, v, w: scatter(v, w, T),
    "o[v[i]] += 1": lambda T, v, w: np.bincount(v.astype(int), minlength=len(T)),
}


def scatter(v, w, T):
    """The sums of values at the same position."""
    found = np.zeros(len(T), w.dtype)
    np.add.at(found, v.astype(int), w)
    return found


def draw(text, position, value, size, extent, seed):
    """A plan, its arrays, positions at the ends among them, and what is right."""
    rng = np.random.default_rng(seed)
    extent = max(extent, 200) if "60" in text else extent
    most = min(extent, int(np.iinfo(position).max) + 1, size if "v[v[" in text else extent)
    most = min(most, 128) if "60" in text else most
    values = {
        "T": rng.integers(0, 2 if value == "bool" else 50, extent).astype(value),
        "v": rng.integers(0, most, size).astype(position),
        "w": rng.integers(0, 2 if value == "bool" else 50, size).astype(value),
    }
    values["v"][rng.integers(0, size, 2)] = 0, most - 1
    expected = STATEMENTS[text](**values)
    used = {name: one for name, one in values.items() if f"{name}[" in text}
    shapes = {name: one.shape for name, one in used.items()}
    shapes |= {"o": (extent,)} if "o[v" in text else {}
    dtypes = {name: one.dtype.name for name, one in used.items()}
    plan = tilesolve.nest(text, shapes, dtypes)
    return plan, {name: guard_pages.give(one, rng) for name, one in used.items()}, expected, rng


@examples(25, 200)
@given(
    st.sampled_from(list(STATEMENTS)),
    st.sampled_from(POSITIONS),
    st.sampled_from(VALUES),
    st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 200, 700]),
    st.sampled_from([1, 5, 255, 256, 257, 3000]),
    st.integers(0, 10**6),
)
def test_elements_at_computed_positions_are_those_of_numpy(
    text, position, value, size, extent, seed
):
    """Whatever holds the positions: an array whose dtype has no others is not checked."""
    if size == 1 and "+1" in text:
        size = 2
    plan, arrays, expected, rng = draw(text, position, value, size, extent, seed)
    dtype = plan.computation.output.dtype
    out = guard_pages.lay(np.ones(expected.shape, dtype), rng)
    np.testing.assert_array_equal(plan(**arrays, out=out), expected.astype(dtype))


@examples(10, 60)
@given(
    st.sampled_from([text for text in STATEMENTS if "v[i]]" in text and "v[v" not in text]),
    st.sampled_from(POSITIONS[1:]),
    st.sampled_from(VALUES),
    st.sampled_from([2, 16, 63, 64, 65, 200]),
    st.integers(0, 10**6),
)
def test_a_position_outside_is_told(text, position, value, size, seed):
    """Wherever it stands, behind the end or before the beginning; all others are as they are."""
    extent = 100
    plan, arrays, expected, rng = draw(text, position, value, size, extent, seed)
    at = int(rng.integers(0, size))
    low = bool(rng.integers(2)) and position[0] == "i"
    wrong = -int(rng.integers(1, 100)) if low else int(rng.integers(100, 128))
    positions = np.array(arrays["v"])
    positions[at] = wrong
    dtype = plan.computation.output.dtype
    room = np.ones(len(expected) + 64, dtype)
    out = room[32:-32]
    with pytest.raises(
        SizeError, match=rf"is at position {wrong} of axis 0 of [To], which has 100"
    ):
        plan(**{**arrays, "v": positions}, out=out)
    assert (room[:32] == 1).all()
    assert (room[-32:] == 1).all()
    np.testing.assert_array_equal(plan(**arrays, out=out), expected.astype(dtype))


@pytest.mark.parametrize("position", ["uint8", "uint16"])
def test_what_a_dtype_holds_is_checked_where_the_table_is_shorter(position):
    """The same statement has a check with a table of 255, and none with one of 256."""
    most = int(np.iinfo(position).max)
    v = np.full(90, most, position)
    for extent in (most, most + 1):
        T = np.arange(extent, dtype="int32")
        plan = tilesolve.nest(
            "o[i] = T[v[i]]", {"T": (extent,), "i": 90}, {"T": "int32", "v": position}
        )
        if extent == most:
            with pytest.raises(SizeError, match=f"position {most} of axis 0 of T"):
                plan(T, v)
        else:
            assert (plan(T, v) == most).all()


@settings(max_examples=200)
@given(
    st.sampled_from(
        [
            *("a[i]", "a[i] + b[i]", "a[i] - 3", "a[i] * b[i]", "a[i] >> 2", "a[i] // 7"),
            *("a[i] % 5", "a[i] & 15", "min(a[i], 9) + b[i]", "int16(a[i]) * 3 - b[i]", "~a[i]"),
            *("a[i] // b[i]", "uint8(b[i])", "max(a[i], b[i]) - i", "a[i] & b[i]", "a[i] << 1"),
            *("where(a[i] > b[i], a[i], 2)", "a[i] > 3", "a[i] >> b[i]", "-a[i]", "i % 4 + a[i]"),
        ]
    ),
    st.sampled_from(POSITIONS[:6]),
    st.sampled_from(POSITIONS[:6]),
    st.integers(0, 10**6),
)
@pytest.mark.filterwarnings("ignore")
def test_no_value_lies_outside_of_its_interval(term, one, other, seed):
    """Of terms of two arrays and a letter, whose values include the extreme ones."""
    rng = np.random.default_rng(seed)
    a, b = (
        np.concatenate(
            [[np.iinfo(x).min, np.iinfo(x).max, 0], rng.integers(-9, 9, 6).astype(x)]
        ).astype(x)[rng.permutation(9)]
        for x in (one, other)
    )
    (stage,) = parse_stages(f"o[i] = {term}")
    interval = find_interval(stage.term, {"a": one, "b": other}, {"i": (0, 8)})
    names = {"min": np.minimum, "max": np.maximum, "where": np.where, "i": np.arange(9)}
    names |= {"int16": np.int16, "uint8": np.uint8}
    text = term.replace("a[i]", "a").replace("b[i]", "b")
    text = text.replace("uint8(b)", "b.astype('u1')").replace("int16(a)", "a.astype('i2')")
    found = eval(text, {**names, "a": a, "b": b})
    assert interval is not None
    assert interval[0] <= int(found.min())
    assert int(found.max()) <= interval[1]


@examples(15, 40)
@given(
    st.sampled_from(["h[A[y,x]] += 1", "h[A[y,x] >> 4] += B[y,x]", "h[A[y,x] % 7] += 2"]),
    st.sampled_from(["uint8", "bool"]),
    st.tuples(st.integers(1, 90), st.integers(1, 300)),
    st.sampled_from(["constant", "drawn", "stripes"]),
    st.integers(0, 300),
    st.integers(0, 10**6),
)
def test_counts_of_few_values_are_numpys(text, dtype, shape, what, longer, seed):
    """Of images with areas of one value, too: updates go to several tables, which are added up."""
    rng = np.random.default_rng(seed)
    A = rng.integers(0, 256, shape) if what == "drawn" else np.full(shape, rng.integers(256))
    A[:, ::2] += what == "stripes"
    A = (A % 256).astype("uint8")
    B = rng.integers(-9, 9, shape).astype("int32")
    positions = {"h[A[y,x]]": A, "h[A[y,x] >> 4]": A >> 4}.get(text.partition(" +=")[0], A % 7)
    if dtype == "bool" and text.startswith("h[A[y,x]]"):
        text, positions = "h[uint8(A[y,x] > 9)] += 1", (A > 9).astype("uint8")
    weights = {"1": np.ones(shape, int), "2": np.full(shape, 2)}.get(text.split()[-1], B)
    expected = np.zeros(256 + longer, weights.dtype)
    np.add.at(expected, positions, weights)
    used = {"A": A, "B": B} if "B[" in text else {"A": A}
    shapes = {**dict.fromkeys(used, shape), "h": expected.shape}
    plan = tilesolve.nest(text, shapes, {name: one.dtype.name for name, one in used.items()})
    out = guard_pages.lay(np.ones(expected.shape, plan.computation.output.dtype), rng)
    given_arrays = {name: guard_pages.give(one, rng) for name, one in used.items()}
    np.testing.assert_array_equal(plan(**given_arrays, out=out), expected)


@examples(8, 30)
@given(
    st.sampled_from(["int64", "int32", "uint16", "uint64"]),
    st.sampled_from([1, 2, 5, 255, 256, 257]),
    st.integers(0, 9000),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_counts_into_short_arrays_are_numpys(position, extent, count, outside, seed):
    """Positions of any dtype: one outside is an error, wherever it stands."""
    rng = np.random.default_rng(seed)
    v = rng.integers(0, extent, count).astype(position)
    w = rng.integers(-9, 9, count).astype("int32")
    plan = tilesolve.nest(
        "h[v[i]] += w[i]",
        {"v": v.shape, "w": v.shape, "h": (extent,)},
        {"v": position, "w": "int32"},
    )
    out = guard_pages.lay(np.ones(extent, "int32"), rng)
    given_arrays = {"v": guard_pages.give(v, rng), "w": guard_pages.give(w, rng)}
    np.testing.assert_array_equal(plan(**given_arrays, out=out), scatter(v, w, out))
    if outside and count:
        v[rng.integers(count)] = extent
        with pytest.raises(SizeError, match=str(extent)):
            plan(v, w)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("o[j] = x[j] if j < 7 else a", lambda x, _: x),
        ("o[j] = a if j < 7 else x[j]", lambda x, a: np.full_like(x, a)),
        ("o[j] = x[j] if j > 7 else a * j", lambda x, a: a * np.arange(len(x))),
        ("o[j] = sum(x[k] if k < 9 else a * j, k)", lambda x, _: np.full_like(x, x.sum())),
    ],
)
def test_choices_may_leave_arguments_unread(text, expected):
    """All positions are of one choice; the other's array, or number, is an argument still."""
    x = np.random.default_rng(3).integers(0, 99, 5).astype(float)
    plan = tilesolve.nest(text, 5)
    np.testing.assert_array_equal(plan(x, a=3.0), expected(x, 3.0))
