"""Calls of nests: their arguments by position and by name, and what is refused before a write."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    PlanError,
    SizeError,
    SpecError,
    TilesolveError,
)

V, W = np.array([1, 1, 2, 3, 3, 3]), np.array([5, 5, 5, 7, 7, 7])


@pytest.mark.parametrize(
    ("text", "order", "sizes"),
    [
        ("h[v[i]] += w[i]", "vw", {"h": (4,)}),
        ("h[v[t[i]]] += w[i] * u[i]", "vtwu", {"h": (4,), "v": (4,)}),
        ("o[i] = T[v[i]] - A[i]", "TvA", {"T": (4,)}),
        ("o[i] = A[i] if T[i] > 0 else B[i]", "ATB", {}),
        ("o[i] = where(T[i] > 0, A[i], B[i])", "TAB", {}),
        ("o[i] = A[i] + o[i]", "Ao", {}),
        ("o[i] += B[i,k] * A[k,i]", "BA", {"k": 4}),
        ("t[i] = B[i] + A[i]; h[v[i]] += t[i] + A[i] + C[i]", "BAvC", {"h": (4,)}),
    ],
)
def test_inputs_come_in_the_order_of_the_text(text, order, sizes):
    """Subscripts, those of the left side too, where they stand."""
    dtypes = {x: "int64" if x in "vt" else "float64" for x in order}
    plan = tilesolve.nest(text, {"i": 4, **sizes}, dtypes)
    assert plan.inputs == tuple(order)
    assert f"takes {', '.join(order)}" in str(plan)


def test_a_histogram_takes_positions_and_then_weights():
    """By position, by name, or both, as functions of Python do."""
    plan = tilesolve.nest("h[v[i]] += w[i]", {"i": 6, "h": (10,)}, "int64")
    right = np.bincount(V, W, 10)
    for found in (plan(V, W), plan(V, w=W), plan(w=W, v=V)):
        np.testing.assert_array_equal(found, right)


def test_names_may_be_those_of_python_too():
    """Arrays and parameters may be called as methods call their arguments."""
    plan = tilesolve.nest("o[i] = self * arrays[i] + named[i]", 3)
    assert plan(named=np.ones(3), arrays=np.ones(3), self=2).tolist() == [3, 3, 3]
    assert plan.params == ("self",)


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        (3, {}, "takes 2 arrays, v, w; got 3"),
        (1, {}, "takes 2 arrays, v, w; got 1, none for w"),
        (1, {"v": V}, "gets 'v' twice, by position and by name"),
        (2, {"q": V}, "no parameter 'q', nor such an array; it has v, w, a"),
        (2, {"h": V}, "computes 'h': the array for it is called out"),
        (2, {}, "no value is given for the parameter 'a'"),
        (2, {"a": np.ones(2)}, "'a' is a number, not an array of shape \\(2,\\)"),
    ],
)
def test_messages_name_the_argument(arrays, named, message):
    """What is too much, missing, given twice or unknown."""
    plan = tilesolve.nest("h[v[i]] += a * w[i]", {"i": 6, "h": (10,)}, "int64")
    with pytest.raises(SizeError, match=message):
        plan(*[V, W, W][:arrays], **named)


@pytest.mark.parametrize("route", ["nest", "contraction", "transpose"])
@pytest.mark.parametrize("bad", ["param", "unknown", "shape", "dtype", "missing", "overlap"])
def test_nothing_is_written_before_all_is_checked(bad, route):
    """Whatever computes the statement, and whatever does not fit."""
    text = {
        "nest": "C[i,j] = beta * C[i,j] + A[i,j]",
        "contraction": "C[i,j] = beta * C[i,j] + sum(A[i,k] * A[j,k], k)",
        "transpose": "C[i,j] = A[j,i]",
    }[route]
    plan = tilesolve.nest(text, 6, route=route)
    room = np.full((12, 6), 7.0)
    out, given = room[:6], {"A": np.ones((6, 6)), "C": np.ones((6, 6)), "beta": 2.0}
    given = {name: given[name] for name in (*plan.inputs, *plan.params)}
    given |= {
        "param": {"beta": "two"} if plan.params else {"beta": 1.0},
        "unknown": {"gamma": 1.0},
        "shape": {"A": np.ones((6, 5))},
        "dtype": {"A": np.ones((6, 6), ">f8")},
        "overlap": {"A": room[5:11]},
        "missing": {},
    }[bad]
    if bad == "missing":
        del given["A"]
    with pytest.raises(TilesolveError):
        plan(**given, out=out)
    assert (room == 7).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint16", "uint64", "int64"])
def test_parameters_take_numbers_that_fit(dtype):
    """Those of Python and of numpy; others are refused with the dtype."""
    plan = tilesolve.nest("o[i] = A[i] | a", 3, dtype)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in (low, high, True, np.dtype(dtype).type(1), np.int16(1), np.array(1)):
        A = np.zeros(3, dtype)
        np.testing.assert_array_equal(plan(A, a=value), A | np.array(value).astype(dtype))
    for value in (low - 1, high + 1, 0.5, 1j, "one", None):
        with pytest.raises(DtypeError, match=f"the parameter 'a' (is a number of {dtype}|)"):
            plan(np.zeros(3, dtype), a=value)


def test_numbers_for_floats_may_be_large():
    """As far as the dtype goes."""
    plan = tilesolve.nest("o[i] = A[i] * a", 1)
    assert plan(np.ones(1), a=2**70) == [2.0**70]
    with pytest.raises(DtypeError, match="'a' is a number of float64"):
        plan(np.ones(1), a=10**400)


def test_no_parameter_is_called_out():
    """Nor as an array: calls could not give it."""
    with pytest.raises(SpecError, match="no parameter is called 'out'"):
        tilesolve.nest("o[i] = A[i] * out", 3)
    with pytest.raises(SpecError, match="o is an array and a parameter"):
        tilesolve.nest("o[i] = A[i] * o", 3)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("o[i,j] = S[j,i]", "transpose"),
        ("o[i,j] = S[j,i] + 1", "nest"),
        ("o[i,j] = S[i,j]", "nest"),
        ("o[i,j] += S[i,k] * S[k,j]", "contraction"),
        ("o[i,j] += S[i,k] * S[k,j]", "nest"),
        ("o[i,j] = o[i,j] + sum(S[i,k] * S[k,j], k)", "contraction"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_larger_out_keeps_what_lies_beyond(text, route, named):
    """Whether `sizes` give its shape or not, and whatever computes the statement."""
    shape = (24, 21)
    sizes = {x: 20 for x in "ijk" if x in text}
    plan = tilesolve.nest(text, {"o": shape, **sizes} if named else sizes, route=route)
    rng = np.random.default_rng(5)
    given = {x: rng.standard_normal(plan.computation.array(x).shape) for x in plan.inputs}
    out = np.full(shape, 7.0)
    assert plan(**given, out=out) is out
    right = np.full(shape, 7.0) if "o" not in given or not named else given["o"].copy()
    right[:20, :20] = plan(**given)[:20, :20]
    np.testing.assert_array_equal(out, right)
    new = plan(**given)
    assert new.shape == (shape if named else (20, 20))
    if "o" not in given:
        assert not new[20:].any()
        assert not new[:, 20:].any()
    with pytest.raises(SizeError, match=r"shape \(19, 30\)"):
        plan(**given, out=np.zeros((19, 30)))


@pytest.mark.parametrize("where", ["l < l", "l < 0", "l + 1 <= l", "l == l + 1", "0 > 1", "9 < l"])
def test_a_region_that_is_never_true_resets_what_is_put_together(where):
    """In every spelling: sums of nothing are zero."""
    scatter = tilesolve.nest(
        "o[v[l]] += w[l]", {"l": 5, "o": (3,)}, {"v": "int64", "w": "float64"}, where=where
    )
    out = np.full(3, 7.0)
    scatter(np.zeros(5, int), np.ones(5), out=out)
    assert not out.any()
    if where != "0 > 1":  # which has no letter: all elements lie outside of it
        summed = tilesolve.nest("o[i] += A[i,l]", {"i": 3, "l": 5}, where=where)
        assert not summed(np.ones((3, 5)), out=np.full(3, 7.0)).any()
        large = tilesolve.nest(
            "o[i,j] += A[i,l] * B[l,j]",
            {"i": 200, "j": 200, "l": 5},
            where=where,
            route="contraction",
        )
        out = np.full((200, 200), 7.0)
        assert not large(np.ones((200, 5)), np.ones((5, 200)), out=out).any()


@pytest.mark.parametrize("where", ["i < i", "i < 0", "0 > 1"])
def test_elements_of_no_region_stay_as_they_are(where):
    """A condition on letters of the output says which elements are computed."""
    for text in ("o[i] = A[i]", "o[i] += A[i] * B[k]"):
        plan = tilesolve.nest(text, 5, where=where)
        given = {x: np.ones(5) for x in plan.inputs}
        assert (plan(**given, out=np.full(5, 7.0)) == 7).all()
        assert not plan(**given).any()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("o[i,j] = S[i,j]", "j < i"),
        ("o[i,j] = S[i,j]", "i < j and j < 10"),
        ("o[i] += S[i,j] * x[j]", "j < i"),
        ("o[i,j] += S[i,k] * S[k,j]", "k < j"),
    ],
)
@pytest.mark.parametrize("route", ["nest", "contraction"])
def test_arrays_have_the_extents_of_letters_whatever_the_region(text, where, route):
    """A strict triangle is stored in a square."""
    if route == "contraction" and "k" not in text:
        return
    plan = tilesolve.nest(text, 50, where=where, route=route)
    rng = np.random.default_rng(0)
    S, x = rng.standard_normal((50, 50)), rng.standard_normal(50)
    i, j = np.ogrid[:50, :50]
    if "k" in text:
        right = S @ np.where(i < j, S, 0)
    elif "x[" in text:
        right = np.where(j < i, S, 0) @ x
    else:
        right = np.where(j < i if where == "j < i" else (i < j) & (j < 10), S, 0)
    np.testing.assert_allclose(plan(*[S, x][: len(plan.inputs)]), right, atol=1e-12)


def test_updates_that_a_dtype_has_not_are_refused_when_planned():
    """With numpy's word for it."""
    dtypes = {"v": "int32", "B": "float64"}
    with pytest.raises(DtypeError, match=r"bitwise_or is not made for float64.*o\[v\[m\]\]"):
        tilesolve.nest("o[v[m]] |= B[m]", {"m": 4, "o": (3,)}, dtypes)
    with pytest.raises(DtypeError, match="bitwise_or is not made for float32"):
        tilesolve.nest("o[i] |= B[i,m]", 4, {"B": "int32", "o": "float32"})
    with pytest.raises(DtypeError, match=r"the number 300 of A.* does not fit uint8"):
        tilesolve.nest("o[i] = A[i] + 300", 4, "uint8")


def test_positions_beyond_signed_numbers_are_named():
    """2**64-1 is no -1."""
    plan = tilesolve.nest("o[i] = T[v[i]]", {"i": 9, "T": (4,)}, {"v": "uint64", "T": "float64"})
    v = np.zeros(9, np.uint64)
    for position in (4, 2**63 - 1, 2**63, 2**64 - 1):
        v[5] = position
        with pytest.raises(SizeError, match=rf"T\[v\[i\]\] is at position {position} of axis 0"):
            plan(np.ones(4), v)


def test_an_array_without_elements_is_not_read():
    """Which is known when the nest is planned."""
    with pytest.raises(SizeError, match=r"T\[v\[i\]\], but axis 0 of T has extent 0"):
        tilesolve.nest("o[i] = T[v[i]]", {"i": 3, "T": (0,)}, {"v": "int32", "T": "float32"})


def test_results_lie_between_elements_of_inputs():
    """For every route; they are refused where they share one."""
    for text, route in [
        ("o[i,j] = A[i,j] + 1", "nest"),
        ("o[i,j] = A[j,i]", "transpose"),
        ("o[i,j] += A[i,k] * A[k,j]", "contraction"),
        ("o[i,j] += A[i,k] * A[k,j]", "nest"),
    ]:
        plan = tilesolve.nest(text, 30, route=route)
        room = np.random.default_rng(1).standard_normal((30, 31, 2))
        A, before = room[:, :30, 0], room.copy()
        right = plan(A.copy())
        np.testing.assert_allclose(plan(A, out=room[:, :30, 1]), right, atol=1e-12)
        np.testing.assert_array_equal(A, before[:, :30, 0])
        with pytest.raises(PlanError, match="shares memory with A"):
            plan(A, out=room[:, 1:, 0])
