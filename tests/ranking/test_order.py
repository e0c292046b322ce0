"""Orders with ties: what the first few are worth is a mean over all ways to break them."""

from itertools import combinations
from math import isnan
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.ranking.order import (
    best_of_first,
    count_ties,
    halve_rounds,
    kendall,
    mean_ranks,
    spearman,
)


@given(st.data())
def test_the_best_of_the_first_few_is_a_mean_over_ties(data):
    """As if all that may be among the first were listed."""
    size = data.draw(st.integers(1, 7))
    scores = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    seconds = data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    count = data.draw(st.integers(1, size))
    border = sorted(scores)[count - 1]
    sure = [at for at in range(size) if scores[at] < border]
    tied = [at for at in range(size) if scores[at] == border]
    ways = [
        min(seconds[at] for at in (*sure, *others))
        for others in combinations(tied, count - len(sure))
    ]
    assert best_of_first(scores, seconds, count) == pytest.approx(mean(ways))


def test_a_ranker_that_tells_nothing_apart_is_worth_the_mean():
    """Not the best, which is what it would be if ties counted as the best of the tied."""
    assert best_of_first([7.0] * 4, [1.0, 2.0, 3.0, 6.0], 1) == 3.0


def test_ties_share_the_mean_of_their_places():
    """And are counted."""
    assert mean_ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]
    assert count_ties([3.0, 1.0, 3.0, 2.0]) == 2
    assert count_ties([1.0, 2.0]) == 0


def test_orders_agree_as_far_as_they_tell_things_apart():
    """Both measures are 1 for the same order, -1 for the reverse, and NaN for none."""
    for measure in (kendall, spearman):
        assert measure([1.0, 2.0, 3.0], [4.0, 5.0, 9.0]) == 1.0
        assert measure([1.0, 2.0, 3.0], [9.0, 5.0, 4.0]) == -1.0
        assert isnan(measure([1.0, 1.0, 1.0], [9.0, 5.0, 4.0]))


@given(st.lists(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9), min_size=1))
def test_each_round_is_in_one_half(rounds):
    """A half that has none of a plan's rounds takes all of them; single rounds are no halves."""
    first, second = halve_rounds(rounds)
    for each, one, other in zip(rounds, first, second, strict=True):
        assert min(each) <= min(one, other) <= max(one, other) <= max(each)
        if len(each) == 1:
            assert one == other == each[0]
        if len(each) == 2:
            assert [one, other] == each


def test_halves_are_early_and_late_alike():
    """What slows down all that runs late in a round slows both halves."""
    forth, back = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    rounds = list(zip(forth, back, forth, back, strict=True))
    assert halve_rounds(rounds) == ([2.0] * 3, [2.0] * 3)
