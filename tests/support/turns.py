"""Long lists of cases: a quick run takes them in turn, a slow one takes all."""

from itertools import combinations

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


def choose_cover(cases):
    """Return some of the cases, tuples of names, that have each name of each place.

    Where there are more than two places, they have each pair of names of two places.
    """
    places = [at for at, names in enumerate(zip(*cases, strict=True)) if len(set(names)) > 1]
    size = 2 if len(places) > 2 else 1
    parts = {case: {*combinations([(at, case[at]) for at in places], size)} for case in cases}
    left, chosen = set().union(*parts.values()), []
    while left:
        chosen.append(max(cases, key=lambda case: len(parts[case] & left)))
        left -= parts[chosen[-1]]
    return chosen


def quick_pairs(first, second):
    """Return all pairs as parameters: quick runs have each member of both sides once, or so."""
    first, second = list(first), list(second)
    most = max(len(first), len(second))
    diagonal = {(at % len(first), at % len(second)) for at in range(most)}
    return [
        pytest.param(one, other, marks=[] if (i, j) in diagonal else [pytest.mark.slow])
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


def quick_each(cases, of=3):
    """Return cases as parameters: each third one is of a quick run, all others are slow."""
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if at % of else [])
        for at, case in enumerate(cases)
    ]
