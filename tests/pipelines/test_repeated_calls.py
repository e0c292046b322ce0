"""Calls of traced functions like a recent one: they give what first calls give."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import TilesolveError

RANDOM = np.random.default_rng(7)


def draw(*shape, dtype="float64"):
    """Numbers that no other array has."""
    return RANDOM.standard_normal(shape).astype(dtype)


def test_all_kinds_of_calls_in_turns():
    """Shapes, dtypes, strides, outputs and names change from call to call."""

    def function(x, y):
        return x[1:] - 2 * y[:-1]

    made = tilesolve.pipeline(function)
    for _ in range(3):
        for size in (5, 8):
            for dtype in ("float32", "float64"):
                x, y = draw(size, 7, dtype=dtype), draw(size, 7, dtype=dtype)
                out = np.full((size - 1, 7), np.nan, dtype)
                expected = function(x, y)
                for _ in range(2):
                    assert np.allclose(made(x, y), expected)
                    assert made(x, y, out=out) is out
                    assert np.allclose(out, expected)
                    out[...] = np.nan
                assert np.allclose(made(x, y=y, out=None), expected)
                assert np.allclose(made(y, x), function(y, x))
                wide = np.repeat(x, 2, axis=1)
                assert np.allclose(made(wide[:, ::2], y), expected)
                with pytest.raises(TilesolveError):
                    made(x, y, out=x)
                with pytest.raises(TypeError):
                    made(x, y, x)
                assert np.allclose(made(x, y, steps=None), expected)


def test_what_is_not_read_may_change_the_function():
    """An array of which only the size is read, a number, and an array of outside."""
    outside = draw(6)

    def function(x, like, factor=2.0):
        return x * len(like) * factor + outside

    made, x = tilesolve.pipeline(function), draw(6)
    for length in (1, 2, 3, 2):
        like = draw(length)
        for _ in range(2):
            assert np.allclose(made(x, like), function(x, like))
            assert np.allclose(made(x, like, 3.0), function(x, like, 3.0))


def test_arrays_of_outside_are_inputs_at_any_place():
    """A repeated call has those that the first one had, whatever the order of its inputs."""
    outside = draw(6)

    def function(x, y):
        return outside * y - x

    made, out = tilesolve.pipeline(function), np.empty(6)
    for _ in range(4):
        x, y = draw(6), draw(6)
        assert np.allclose(made(x, y), function(x, y))
        assert made(x, y, out=out) is out
        assert np.allclose(out, function(x, y))


def test_results_that_are_several_numbers_or_arguments():
    """These are no calls that compiled code can take by itself."""

    def several(x):
        return x + 1, x * 2

    def number(x):
        return x.sum()

    def update(x, y):
        x[1:] = y[:-1]
        return x

    for _ in range(3):
        x, y = draw(6), draw(6)
        assert all(map(np.allclose, SEVERAL(x), several(x)))
        assert np.allclose(NUMBER(x), number(x))
        expected = update(x.copy(), y)
        assert UPDATE(x, y) is x
        assert np.allclose(x, expected)


SEVERAL = tilesolve.pipeline(lambda x: (x + 1, x * 2))
NUMBER = tilesolve.pipeline(lambda x: x.sum())


@tilesolve.pipeline
def UPDATE(x, y):  # noqa: N802 - as the others
    """Write to an argument, and return it."""
    x[1:] = y[:-1]
    return x
