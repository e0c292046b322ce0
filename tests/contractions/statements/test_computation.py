"""Extents, shapes and dtypes of computations, and their evaluation against Python's loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.points import Points
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages


def bound(text, sizes=4, dtype="float64", where=(), **others):
    """A computation from text."""
    return bind_stages(parse_stages(text, where), sizes, dtype, **others)


def test_arrays_are_as_large_as_what_is_touched_of_them():
    """Offsets, strides and quotients count; the output has the extents of its letters."""
    found = bound("o[y,x] = A[2*y+1,x//2] + B[x+2]", {"y": 3, "x": 5})
    shapes = {array.name: array.shape for array in found.arrays}
    assert shapes == {"A": (6, 3), "B": (7,), "o": (3, 5)}
    assert found.inputs == ("A", "B")


def test_empty_letters_leave_other_axes_as_they_are():
    """An array of no columns has its rows; positions that no iteration takes do not count."""
    found = bound("o[i,j] = D[i,j] + sum(A[i,k+1] * B[j-1,k], k)", {"i": 2, "j": 3, "k": 0})
    shapes = {array.name: array.shape for array in found.arrays}
    assert shapes == {"D": (2, 3), "A": (2, 0), "B": (2, 0), "o": (2, 3)}


def test_regions_make_arrays_smaller():
    """Elements that no iteration reads need not be there."""
    found = bound("o[i,j] += A[i-j+2,k]", {"i": 6, "j": 6, "k": 2}, where="0 <= i - j <= 2")
    assert found.array("A").shape == (5, 2)


def test_extents_follow_from_shapes():
    """Where a letter stands by itself."""
    found = bind_stages(
        parse_stages("C[i,j] += A[i,k] * B[k,j]"), {}, "float32", {"A": (3, 4), "B": (4, 5)}
    )
    assert dict(found.sizes) == {"i": 3, "j": 5, "k": 4}


def test_parts_have_the_shapes_that_their_extents_need():
    """And the dtypes of the whole."""
    part = bound("o[x] = A[x] + A[x+2]", 9, "int16").part({"x": 3})
    assert [(one.shape, one.dtype) for one in part.arrays] == [((5,), "int16"), ((3,), "int16")]


@pytest.mark.parametrize(
    ("text", "arguments", "error", "message"),
    [
        ("o[x] = A[x]", {"sizes": {}}, SizeError, "no size for 'x'"),
        ("o[x] = A[x]", {"sizes": {"x": 2, "y": 3}}, SizeError, "a size is given for 'y'"),
        ("o[x] = A[x]", {"sizes": {"x": -1}}, SizeError, "must not be negative, got -1"),
        ("o[x] = A[x]", {"sizes": {"x": 2**70}}, SizeError, r"must be below 2\*\*62"),
        ("o[x] = A[x] + 10**20", {}, DtypeError, "does not fit 64 bits"),
        ("o[x] = A[x] + 9**9**9", {}, DtypeError, "does not fit 64 bits"),
        ("o[x] = A[x] + 1" + 400 * "0" + " * 2", {}, DtypeError, "does not fit 64 bits"),
        ("o[x] = A[x]", {"sizes": {"x": 1.5}}, SizeError, "must be an integer, got 1.5"),
        ("o[x] = A[x]", {"sizes": {"x": True}}, SizeError, "must be an integer, got True"),
        ("o[x] = A[x]", {"shapes": {"A": (3,)}}, SizeError, "at position 3 .*extent 3"),
        ("o[x] = A[x]", {"shapes": {"B": (3,)}}, SizeError, "given for 'B'"),
        ("o[x] = A[x]", {"shapes": {"A": (3, 3)}}, SizeError, "2 axes; A\\[x\\] has 1"),
        ("o[x] = A[x-1]", {}, SizeError, "at position -1 of axis 0, with x=4"),
        ("o[x] = A[B[x]]", {"dtype": "int64"}, SizeError, "give the shape of A"),
        ("o[x] = A[x] + A[x,x]", {}, SpecError, "A has 1 axes as A\\[x\\], 2 as A\\[x,x\\]"),
        ("o[x] = A[x]; o[x] += B[x,y]", {}, SpecError, "o is computed twice"),
        ("o[x] = t[x]; t[x] = o[x]", {}, SpecError, "computes later"),
        ("o[x] = A[x]", {"dtype": "float16"}, DtypeError, "not in 'float16'"),
        ("o[x] = A[x] & 1", {"dtype": "float32"}, DtypeError, "bitwise_and is not made for"),
        ("o[x] = A[B[x]]", {"dtype": "float32", "shapes": {"A": (3,)}}, DtypeError, "no integer"),
        ("o[x] = A[x] * p", {"dtype": {"A": "float32"}}, DtypeError, "no dtype for p"),
        ("o[x] = A[x]", {"dtype": {"Z": "int8", "A": "int8"}}, DtypeError, "given for 'Z'"),
        ("o[x] = A * A[x]", {}, SpecError, "an array and a parameter"),
        ("o[x] = A[x] + 20000000000000000000", {"dtype": "int64"}, DtypeError, "fit 64 bits"),
        ("o[x,y,z] = A[x]", {"sizes": 2**30}, SizeError, "more than 2\\*\\*63-1 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(text, arguments, error, message):
    """With the letter or array, and both sizes."""
    with pytest.raises(error, match=message):
        bound(text, **arguments)


def test_shapes_that_disagree_are_refused_with_both():
    """A letter has one extent."""
    with pytest.raises(SizeError, match=r"of 'k' .* disagree: 4 on axis 1 of A, 5 on axis 0 of B"):
        bind_stages(
            parse_stages("C[i,j] += A[i,k] * B[k,j]"), {}, "float32", {"A": (3, 4), "B": (5, 5)}
        )


CASES = [
    ("C[i,j] += A[i,k] * B[k,j]", ""),
    ("C[i,j] += A[i,k] * B[k,j]", "j <= i"),
    ("C[i,j] += A[i,k] * B[k,j]", "k >= i + 1"),
    ("o[i,j] = A[j,i] - 3 * B[i]", "i < j"),
    ("o[i] = max(A[i,k])", ""),
    ("o[i] = min(A[i,k])", "k <= i"),
    ("o[i] *= A[i,k]", ""),
    ("o[i,j] = A[i+j//2] + i - j", ""),
    ("o[i,j] = A[2*i+j] if i < j else B[j]", ""),
    ("o[i] = A[i] // 3 + A[i+1] % 3", ""),
    ("t[i,k] = A[i,k] + A[i,k+1]; o[i] += t[i,k]", ""),
    ("o[i,j] = 2 * sum(A[i,k] * B[j,k], k) + D[i,j]", ""),
    ("h[A[i]] += B[i]", ""),
]


@pytest.mark.parametrize(("text", "where"), CASES)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_evaluation_is_that_of_python_s_loops(text, where, dtype, data):
    """Any small extents; whole numbers, so that no order of sums rounds."""
    if "h[" in text and dtype != "int64":
        return
    letters = sorted({x for stage in parse_stages(text) for x in stage.letters})
    sizes = {x: data.draw(st.integers(0, 4), label=x) for x in letters}
    shapes = {"h": (7,)} if "h[" in text else None
    computation = bound(text, sizes, dtype, where or (), shapes=shapes)
    rng = np.random.default_rng(1)
    arrays = {
        name: rng.integers(1, 7, computation.array(name).shape).astype(dtype)
        for name in computation.inputs
    }
    own = computation.output
    before = np.full(own.shape, 77, own.dtype)
    want = Points(computation, {own.name: before, **arrays}).run()
    assert np.array_equal(evaluate(computation, arrays, out=before), want)


def test_evaluation_refuses_positions_outside():
    """Those that are known at run time alone are looked at."""
    computation = bound("o[i] = A[B[i]]", 3, "int64", shapes={"A": (5,)})
    with pytest.raises(SizeError, match="is at position 5 of axis 0, which has 5"):
        evaluate(computation, {"A": np.arange(5), "B": np.array([0, 5, 1])})
    with pytest.raises(SizeError, match="has shape \\(2,\\), not \\(3,\\)"):
        evaluate(computation, {"A": np.arange(5), "B": np.zeros(2, int)})


def test_parameters_are_given_by_each_call():
    """Numbers by name, in their dtype."""
    computation = bound("o[i] = a * A[i] + b", 2)
    assert evaluate(computation, {"A": [1.0, 2.0]}, {"a": 3, "b": 0.5}).tolist() == [3.5, 6.5]


def test_integers_wrap_as_their_dtype_does():
    """200 + 100 is 44 of 256."""
    computation = bound("o[i] = A[i] + B[i]", 1, "uint8")
    arrays = {"A": np.array([200], "u1"), "B": np.array([100], "u1")}
    assert evaluate(computation, arrays).tolist() == [44]
