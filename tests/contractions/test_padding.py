"""Padding: zeros that no array holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve.contractions.canonical import canonicalize
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 9),
    window=st.integers(1, 4),
    step=st.integers(1, 3),
    dilation=st.integers(1, 3),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
)
def test_is_the_same_as_zeros_in_the_array(size, window, step, dilation, before, after):
    spec = f"h-[{step}h+{dilation}r]-r"
    reach = step * (size - 1) + dilation * (window - 1) + 1
    if before + after > reach:
        with pytest.raises(SizeError, match="more than its"):
            Problem.of(spec, {"h": size, "r": window}, padding=[Padding(1, 0, before, after)])
        return
    padded = Problem.of(spec, {"h": size, "r": window}, padding=[Padding(1, 0, before, after)])
    plain = Problem.of(spec, {"h": size, "r": window})
    assert padded.shape(1) == (reach - before - after,)
    rng = np.random.default_rng(7)
    image, filters = rng.random(padded.shape(1)), rng.random(window)
    whole = np.zeros(plain.shape(1))
    whole[before : reach - after] = image
    np.testing.assert_array_equal(
        reference(padded, image, filters), reference(plain, whole, filters)
    )


def test_goes_along_when_operands_are_swapped():
    padding = [Padding(2, 1, 1, 2)]
    problem = Problem.of("kh-kcr-c[h+r]", "k=3 h=5 c=2 r=3", padding=padding)
    form = canonicalize(problem)
    (kept,) = form.problem.padding
    assert form.operands[kept.tensor - 1] == 1
    assert form.problem.shape(kept.tensor) == problem.shape(2) == (2, 4)
    assert str(problem) != str(Problem.of(problem.spec, problem.sizes))


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ([Padding(0, 0, 1, 1)], "2 operands"),
        ([Padding(3, 0, 1, 1)], "2 operands"),
        ([Padding(1, 1, 1, 1)], "it has 1 axes"),
        ([Padding(1, 0, -1, 0)], "must not be negative, got -1 before and 0 after"),
        ([Padding(1, 0, 1, 0), Padding(1, 0, 0, 1)], "two paddings of axis 0 of operand A"),
        ([Padding(1, 0, 4, 3)], "4 before and 3 after are more than its 6 places"),
    ],
)
def test_says_what_cannot_be(padding, message):
    with pytest.raises(SizeError, match=message):
        Problem.of("h-[h+r]-r", "h=4 r=3", padding=padding)


def test_wrong_arrays_are_told_about_it():
    problem = Problem.of("h-[h+r]-r", "h=4 r=3", padding=[Padding(1, 0, 1, 1)])
    with pytest.raises(SizeError, match=r"has extent 6, .* and 2 zeros of padding needs 4"):
        problem.check_operands(np.zeros(6), np.zeros(3))
