"""Long lists of cases: a quick run takes them in turn, a slow one takes all."""

import pytest

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
