"""Long lists of cases: a quick run takes them in turn, a slow one takes all."""

import pytest
from hypothesis import settings

slow_runs = False
"""Whether slow tests run alone, as `make test-slow` has them; set before tests are collected."""


def examples(quick, whole, like=None):
    """Draw so many examples in a quick run, and more in a slow one, which has the test as well."""

    def decorate(test):
        test = settings(like, max_examples=whole if slow_runs else quick)(test)
        return pytest.mark.slow(test) if slow_runs else test

    return decorate


WHOLE = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
"""For tests of long lists: whether all of each counts."""


def in_turn(cases, number, whole=False, of=3):
    """Return all cases, or some of them: each third one, the first of which the number says."""
    cases = list(cases)
    return cases if whole else cases[number % of :: of]


def quick_each(cases, of=3):
    """Return cases as parameters: each third one is of a quick run, all others are slow."""
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if at % of else [])
        for at, case in enumerate(cases)
    ]
