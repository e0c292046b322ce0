"""Pipelines as text and as stages."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.parse import parse_stages

BLUR = """bx[y,x] = (I[y,x] + I[y,x+1] + I[y,x+2]) / 3
          by[y,x] = (bx[y,x] + bx[y+1,x] + bx[y+2,x]) / 3"""


def blur(image):
    """The same in NumPy."""
    rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


def test_each_statement_has_as_much_as_there_is_room_for():
    """From the shapes of what is read; the same from the shape of the result, or its letters."""
    image = np.random.default_rng(0).random((12, 16))
    plans = [
        tilesolve.pipeline(BLUR, I=image),
        tilesolve.pipeline(BLUR, I=(12, 16)),
        tilesolve.pipeline(parse_stages(BLUR), by=(10, 14)),
        tilesolve.pipeline(BLUR, y=10, x=14),
    ]
    for plan in plans:
        assert np.allclose(plan(image), blur(image))
    assert len(set(plans)) == 1


def test_text_and_function_are_the_same_value():
    """What a function is traced to is what the text of its stages says."""
    image = np.ones((12, 16))
    text = BLUR.replace("bx[", "rows[").replace("by[", "blur[").replace("I[", "image[")
    traced = tilesolve.pipeline(blur).plan(image)
    assert tilesolve.pipeline(text, image=image).computation == traced.computation


def test_sums_regions_and_dtypes():
    """Letters that are summed and regions go with their statement."""
    text = "s[i] += A[i,k]; out[i,j] = A[i,j] / s[i]"
    plan = tilesolve.pipeline(text, A=(5, 7), dtype="float32", where="j <= i")
    A = np.random.default_rng(0).random((5, 7)).astype("float32")
    assert np.allclose(plan(A), np.tril(A / A.sum(axis=1, keepdims=True)))
    assert plan.computation.output.dtype == "float32"


def test_several_statements_compute_parts_of_an_array():
    """They are all of it together, in any order; what is read later is what was written last."""
    stages = [
        *parse_stages("p[x] = A[x+1]", "x >= 2"),
        *parse_stages("p[y] = A[0]", "y < 2"),
        *parse_stages("p[z] = p[z] * 2", "z >= 4"),
        *parse_stages("out[i] = p[i] + p[i+1]"),
    ]
    sizes = {"x": 6, "y": 6, "z": 6, "i": 5}
    A = np.arange(7.0) + 1
    p = np.concatenate([[A[0], A[0]], A[3:7]])
    p[4:] *= 2
    assert np.array_equal(tilesolve.nest(stages, sizes)(A), p[:-1] + p[1:])
    assert np.array_equal(tilesolve.nest(stages[:3], {"x": 6, "y": 6, "z": 6})(A), p)
    p[2:] = 0
    assert np.array_equal(
        tilesolve.nest(stages[1:], {"y": 6, "z": 6, "i": 5})(A[:1]), p[:-1] + p[1:]
    )


def test_sizes_that_are_missing():
    """The message says what to give."""
    with pytest.raises(SizeError, match="give the shapes of all arrays"):
        tilesolve.pipeline(BLUR)
    with pytest.raises(SizeError, match="at position 12 of axis 0"):
        tilesolve.pipeline("b[x] = A[x+3]; c[x] = b[x+9]", A=(5,), c=(4,))
