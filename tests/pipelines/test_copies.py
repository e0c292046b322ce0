"""Stages that loops of Python's write again and again, at other places: one stage has all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.constants.nests import PIPELINE_COPIES


def match(down, across, order=sum):
    """A function that compares an image with itself, moved by so many rows and columns."""

    def function(image):
        height, width = image.shape[0] - down, image.shape[1] - across
        found = []
        for dy in range(down):
            for dx in range(across):
                there = image[dy : dy + height, dx : dx + width]
                apart = np.abs(image[:height, :width] - there)
                wide = apart[:-2, :-1] + apart[2:, 1:]
                found.append(np.sqrt(wide + 1) * there[1:-1, 1:])
        return order(found)

    return function


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 5), st.integers(2, 5), st.sampled_from(["float32", "float64", "int32"]))
def test_sums_of_copies_are_sums_over_axes(down, across, dtype):
    """Of few, and of many: there are as many stages for any number of these."""
    function = match(down, across)
    image = np.random.default_rng(3).integers(0, 9, (41, 50)).astype(dtype)
    planned = tilesolve.pipeline(function)
    if down * across >= PIPELINE_COPIES and dtype != "int32":
        assert len(planned.plan(image).computation.stages) <= 4
    np.testing.assert_allclose(planned(image), function(image), rtol=1e-5)


def test_copies_that_are_read_otherwise():
    """In another order, twice, or one by itself: each read says which one it means."""

    def backwards(found):
        return sum(found[::-1]) + found[4]

    function = match(3, 3, backwards)
    image = np.random.default_rng(4).random((30, 40))
    np.testing.assert_allclose(tilesolve.pipeline(function)(image), function(image), rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_all_of_a_search_is_one_group(threads):
    """What is needed of all copies at a row is kept for that row, and slides with it."""
    function = match(3, 4)
    image = np.random.default_rng(5).random((203, 204), "float32")
    plan = tilesolve.pipeline(function, threads=threads).plan(image)
    (solution,) = plan.solutions
    rooms = [one.room()[1] for one in solution.placed.values() if one.kept is not None]
    assert all(shape[-2] < 10 for shape in rooms)
    np.testing.assert_allclose(plan(image), function(image), rtol=1e-4)
