"""Traced functions: terms compute what Python does; all other functions are left alone."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_epilogues import evaluate_term
from turns import examples

from tilesolve.contractions.epilogue_terms import SUM
from tilesolve.contractions.tracing import trace

HALF = np.float32(0.5)
LEAST = 0.25
VALUES = [-np.inf, -3.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.25, np.inf, np.nan]

numbers = st.sampled_from(["x", "x", "LEAST", "HALF", "2", "0.75", "-1", "True"])
calls = [
    "({} + {})",
    "({} - {})",
    "({} * {})",
    "({} / (2 + abs({})))",
    "min({}, {})",
    "max({}, {})",
]
calls += ["np.minimum({}, {})", "np.maximum({}, {})", "square({} + {})"]
tests = ["{} if {} < {} else {}", "{} if 0 <= {} <= {} else {}", "np.where(x > {}, {} + {}, {})"]
texts = st.recursive(
    numbers,
    lambda inner: (
        st.tuples(st.sampled_from(calls), inner, inner).map(lambda it: it[0].format(*it[1:]))
        | st.tuples(st.sampled_from(tests), *[inner] * 4).map(
            lambda it: f"({it[0].format(*it[1:])})"
        )
    ),
    max_leaves=5,
)


def square(x):
    return x * x


@examples(80, 200)
@given(text=texts)
def test_terms_are_what_python_computes(text):
    """Each branch becomes a choice."""
    function = eval(f"lambda x: x * 1 + {text}")
    term = trace(function, SUM)
    if term is None:  # it branches too often, or chooses between numbers alone
        often = 2 * text.count("if") + text.count("min(") + text.count("max(") > 4
        assert often or ("np.where(" in text and "HALF" in text)
        return
    x = np.array(VALUES)
    with np.errstate(all="ignore"):
        found = evaluate_term(term, {SUM: x})
        np.testing.assert_array_equal(found, [function(one) for one in x])


def halves_until_one(x):
    while x > 1:
        x = x / 2
    return x


def branches_often(x):
    for bound in range(99):
        x = x + 1 if x > bound else x
    return x


def cubic(x):
    found = np.float32(0)
    for factor in (3, 2, 1):
        found = found * x + np.float32(factor)
    return found


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x / (1 + abs(x)), "sum[] / (int64(1) + abs(sum[]))"),
        (lambda x: x**3, "sum[] * sum[] * sum[]"),
        (lambda x: math.tanh(x) * HALF, "tanh(sum[]) * float32(0.5)"),
        (lambda x: x if x else 1, "where(sum[] != 0, sum[], int64(1))"),
        (lambda x: np.clip(x, 0, 1), "min(max(sum[], int64(0)), int64(1))"),
        (lambda x: math.sqrt(4.0) * x, "float64(2.0) * sum[]"),
        (lambda _: 2, "int64(2)"),
        (lambda x: (x > 0) - (x < 0), "int64(sum[] > int64(0)) - int64(sum[] < int64(0))"),
        (lambda x: (x > 0) * x, "(sum[] > int64(0)) * sum[]"),
    ],
)
def test_terms_have_the_dtypes_of_numbers(function, text):
    assert str(trace(function, SUM)) == text


def test_loops_and_other_functions_are_followed():
    term = trace(cubic, SUM)
    assert evaluate_term(term, {SUM: np.float32(2)}) == (3 * 2 + 2) * 2 + 1
    assert np.asarray(evaluate_term(term, {SUM: np.ones(3, "float32")})).dtype == "float32"


def doubles(x):
    for _ in range(99):
        x = x * x
    return x


def catches(x):
    try:
        return 1 if x > 0 else 2
    except:  # noqa: E722
        return 3


@pytest.mark.parametrize(
    "function",
    [
        doubles,
        catches,
        lambda x: ~(x > 0),
        halves_until_one,
        branches_often,
        lambda x: x * random.random(),
        lambda x: x * (np.random.random() > 0.5),
        lambda x: print(x),
        lambda x: math.log1p(x),
        lambda x: np.sinh(x),
        lambda x: x.nothing,
        lambda x: (x, x),
        lambda x: 1j * x,
        lambda x: x & 1,
        lambda x: x**0.5,
        lambda x: 2**70 * x,
        lambda x: x + np.random.default_rng().random(),
        lambda x: math.fsum([x]),
        lambda x: float(x),
        lambda x: None,
        lambda x: 0.25 / (2 + np.where(x > x, 0.5, np.float32(0.5))),
    ],
)
def test_other_functions_are_no_terms(function):
    """Chance above all: what one run of a function finds would be what all elements get."""
    assert trace(function, SUM) is None
