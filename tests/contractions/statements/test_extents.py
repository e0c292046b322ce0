"""Extents that follow from shapes, against the shapes that extents make."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages

TEXTS = (
    "d[i,j] += A[i,k] * A[j,k]",
    "o[i,j] = S[i,j] + S[j,i]",
    "o[i] += x[i+k] * w[k]",
    "o[i,j] += x[i+k,2*j+l+1] * w[k,l]",
    "o[i] = x[i] + x[i+1] - x[3*i]",
    "o[i] = x[i//3] * y[i]",
    "o[i] += x[2*i+3*k] * w[k]",
    "t[i] = x[i] * 2; o[j] = t[j+1] * y[j]",
    "m[i] = max(A[i,k], k); o[i,l] = B[l] - m[i]",
    "o[i,j] += x[i-k+4,j] * w[k] * v[i]",
    "h[p[i]] += w[i]",
    "o[i,k] += A[2*i+1,j] * B[k,j+1]",
)


def shapes_of(computation, names):
    """The shapes of some arrays."""
    return {name: computation.array(name).shape for name in names}


@settings(deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.fixed_dictionaries({x: st.integers(1, 9) for x in "ijkl"}),
    st.integers(0, 3),
)
def test_letters_take_all_the_values_that_arrays_have_room_for(text, sizes, more):
    """The extents that made shapes come back, or more where other positions leave room."""
    stages = parse_stages(text)
    letters = dict.fromkeys(x for stage in stages for x in stage.letters)
    sizes = {x: max(sizes[x] - 4, 1) if x == "k" else sizes[x] for x in letters}
    given = {"h": (5,)} if "h[" in text else {}
    dtype = {"p": "int64", "w": "float64"} if given else "float64"
    if "i-k" in text:
        sizes["k"] = min(sizes["k"], 5)
    try:
        whole = bind_stages(stages, sizes, dtype, given)
    except SizeError:  # t is too short
        return
    shapes = {**shapes_of(whole, whole.inputs), **given}
    first = next(iter(shapes))
    if "//" not in text and more:
        room = {**shapes, first: (*shapes[first][:-1], shapes[first][-1] + more)}
    else:
        room = shapes
    try:
        found = bind_stages(stages, {}, dtype, room)
    except SizeError:  # one array has more room than the others
        assert more
        return
    if room == shapes and "//" not in text:
        assert all(found.sizes[x] >= sizes[x] for x in letters)
    for letter in letters:
        with pytest.raises(SizeError):
            bind_stages(
                stages, {**found.sizes, letter: found.sizes[letter] + 1}, dtype, {**room, **given}
            )


@pytest.mark.parametrize(
    ("text", "where", "shapes", "sizes"),
    [
        (
            "n[y,x] = u[y,x] + u[y-1,x] + u[y,x+1]",
            "1 <= y and x < 39",
            {"u": (30, 40)},
            {"y": 30, "x": 40},
        ),
        ("o[i] = x[i] - x[i+2]", "", {"x": (50,)}, {"i": 48}),
        ("o[i] = x[i] - x[i+2]", "i < 40", {"x": (50,)}, {"i": 50}),
        ("o[i,j] = S[i,j]", "j < i", {"S": (50, 50)}, {"i": 50, "j": 50}),
        ("o[i] += L[i,j] * x[j]", "j < i", {"L": (50, 50)}, {"i": 50, "j": 50}),
        ("o[i] = x[9-i]", "", {"x": (20,)}, {"i": 10}),
        ("o[i] = T[v[i]] + v[i]", "", {"T": (7,), "v": (4,)}, {"i": 4}),
        ("o[i] = x[i+1]", "i < 9", {"x": (10,)}, {"i": 9}),
        ("o[i] = x[i+1]", "i < 5", {"x": (10,)}, {"i": 9}),
    ],
)
def test_extents_are_the_arrays_own_whatever_the_region(text, where, shapes, sizes):
    dtype = {"T": "float64", "v": "int64"} if "T" in shapes else "float64"
    assert dict(bind_stages(parse_stages(text, where), {}, dtype, shapes).sizes) == sizes


@given(
    st.sampled_from([-3, -2, -1, 1, 2]),
    st.integers(-2, 2),
    st.integers(-6, 12),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 4),
)
def test_positions_that_fall_or_begin_elsewhere_stay_inside(i, k, offset, divisor, extent, width):
    """Letters take all values up to the first outside; none is read from the end of an array."""
    text = f"o[i,k] = A[({i}*i+{k}*k+{offset})//{divisor}] * B[k]"
    shapes = {"A": (extent,), "B": (width,)}
    steps = (i * np.arange(99)[:, None] + k * np.arange(width) + offset) // divisor
    inside = ((steps >= 0) & (steps < extent)).all(axis=1)
    begins = inside[0] or (i > 0 and steps[0].min() >= 0)  # A may be too short, as of a slice
    if not begins:
        with pytest.raises(SizeError, match=rf"A\[.* i.*extent {extent}"):
            bind_stages(parse_stages(text), {}, "float64", shapes)
        return
    found = bind_stages(parse_stages(text), {}, "float64", shapes)
    assert found.sizes["i"] == int(np.argmin(inside))
    A, B = np.random.rand(extent), np.random.rand(width)
    wanted = A[steps[: found.sizes["i"]]] * B
    result = evaluate(found, {"A": A, "B": B})
    np.testing.assert_array_equal(result, wanted)


@given(
    st.sampled_from([-2, -1, 1, 2]),
    st.sampled_from([-2, -1, 1, 2]),
    st.integers(-4, 4),
    st.sampled_from(["i <= k", "i < k", "k <= i", "i + k <= 5", "k <= 2"]),
    st.integers(1, 12),
    st.integers(1, 6),
)
def test_positions_outside_of_a_region_need_no_room(i, k, offset, where, extent, width):
    """A letter has all values whose positions in the region are inside, up to the last in it."""
    stages = parse_stages(f"o[i,k] = A[{i}*i+{k}*k+{offset}] * B[k]", where)
    shapes = {"A": (extent,), "B": (width,)}
    rows, columns = np.ogrid[:40, :width]
    steps = i * rows + k * columns + offset
    region = np.broadcast_to(eval(where, {"i": rows, "k": columns}), steps.shape)
    outside = (steps < 0) | (steps >= extent)
    inside = ~(outside & region).any(axis=1)
    if not inside[0] or not region.any():
        return
    try:
        found = bind_stages(stages, {}, "float64", shapes).sizes["i"]
    except SizeError:  # bounds of a region are those of one condition
        return
    values = 40 - np.argmax(region.any(axis=1)[::-1])
    assert inside.all() or found <= np.argmin(inside)
    if (i, k) in {(1, -1), (-1, 1)} and where in {"i <= k", "k <= i"}:
        assert found >= (values if inside.all() else np.argmin(inside))


def test_no_array_has_the_first_position():
    A, B = np.random.rand(5, 3), np.random.rand(0)
    message = r"A\[-i-1,k\] at position -1 of axis 0 where i is 0: .* A has extent 5 there"
    with pytest.raises(SizeError, match=message):
        tilesolve.nest("o[i,k] = A[-1-i,k]", {"A": A})
    with pytest.raises(SizeError, match=r"position -2 .* i is 0, k=3: .* A has extent 5"):
        tilesolve.nest("o[i,k] = A[-i-k,0] * A[0,k]", {"A": A})
    assert tilesolve.nest("o[i] = B[-1-i]", {"B": B})(B).shape == (0,)


def test_what_does_not_follow_is_named():
    with pytest.raises(SizeError, match=r"no size for 'i' .*; sizes are given for x"):
        bind_stages(parse_stages("o[i] += x[i+k]"), {}, "float64", {"x": (9,)})
    with pytest.raises(SizeError, match="disagree: 3 on axis 0 of A, 4 on axis 1 of A"):
        bind_stages(parse_stages("o[i] = A[i,i]"), {}, "float64", {"A": (3, 4)})


def test_plans_take_arrays_alone():
    x, w, A = np.random.rand(50), np.random.rand(5), np.random.rand(20, 7)
    found = tilesolve.nest("o[i] += x[i+k] * w[k]", {"x": x, "w": w})(x, w)
    np.testing.assert_allclose(found, np.correlate(x, w), rtol=1e-13)
    found = tilesolve.nest("d[i,j] += A[i,k] * A[j,k]", {"A": A})(A)
    np.testing.assert_allclose(found, A @ A.T, rtol=1e-13)
