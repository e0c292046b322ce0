"""Positions and conditions: their arithmetic is that of integers."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import (
    Affine,
    Condition,
    greatest_value,
    least_value,
)

small = st.integers(-6, 6)
sums = st.builds(
    lambda pairs, offset: Affine.of(pairs, offset),
    st.lists(st.tuples(small, st.sampled_from("xyz")), max_size=4),
    small,
)
positions = st.builds(lambda one, divisor: one // divisor, sums, st.integers(1, 5))
points = st.fixed_dictionaries({x: st.integers(-9, 9) for x in "xyz"})


@given(positions, sums, st.integers(-4, 4), points)
def test_arithmetic_is_that_of_integers(one, other, number, point):
    """Sums, differences, multiples and quotients of positions."""
    assert (one + other).at(point) == one.at(point) + other.at(point)
    assert (one + number).at(point) == (number + one).at(point) == one.at(point) + number
    assert (other - number).at(point) == other.at(point) - number
    assert (number - other).at(point) == number - other.at(point)
    assert (number * other).at(point) == number * other.at(point)
    assert (one // 3).at(point) == one.at(point) // 3


@given(sums, sums)
def test_equal_sums_are_equal_values(one, other):
    """The order of terms does not count."""
    assert one + other == other + one
    assert (one + other) - other == one


@given(positions, st.fixed_dictionaries({x: st.tuples(small, st.integers(0, 4)) for x in "xyz"}))
def test_intervals_are_the_ends_of_all_values(one, sides):
    """Every position lies in the interval, and both ends are taken."""
    box = {x: (low, low + more) for x, (low, more) in sides.items()}
    ranges = [range(box[x][0], box[x][1] + 1) for x in "xyz"]
    values = [one.at(dict(zip("xyz", point, strict=True))) for point in product(*ranges)]
    assert one.interval(box) == (min(values), max(values))


@given(sums, sums, st.integers(1, 3))
def test_bounds_in_a_region_hold(one, side, divisor):
    """No point of the region passes them; without a condition they are exact."""
    position, box = one // divisor, dict.fromkeys("xyz", (0, 3))
    where = [Condition(side)]
    values = [
        position.at(point)
        for point in (dict(zip("xyz", p, strict=True)) for p in product(range(4), repeat=3))
        if where[0].holds(point)
    ]
    if values:
        assert least_value(position, box, where) <= min(values)
        assert greatest_value(position, box, where) >= max(values)
    assert (least_value(position, box), greatest_value(position, box)) == position.interval(box)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x // 0, "divided by a positive integer"),
        (lambda x: x // -2, "divided by a positive integer"),
        (lambda x: 2 * (x // 3), "multiplies a quotient"),
        (lambda x: -(x // 3), "multiplies a quotient"),
        (lambda x: x // 2 + x // 3, "adds two quotients"),
        (lambda x: Affine.of([(1, "x")], 0, 0), "not by 0"),
        (lambda x: Condition(x // 2), "compares sums of letters, not x//2"),
    ],
)
def test_what_is_no_position_is_refused(make, message):
    """Positions have one division, at the end."""
    with pytest.raises(SpecError, match=message):
        make(Affine.letter("x"))


def test_once_a_quotient_is_the_quotient():
    """A multiple by one has the same divisor."""
    x = Affine.letter("x")
    assert 1 * (x // 2) == (x // 2) * 1 == x // 2


def test_whole_quotients_are_sums_again():
    """(4x + 6) // 2 is 2x + 3."""
    assert (4 * Affine.letter("x") + 6) // 2 == 2 * Affine.letter("x") + 3


@given(positions)
def test_text_is_read_by_python_as_the_same(one):
    """What is printed is an expression of the same value."""
    point = {"x": 5, "y": -3, "z": 2}
    assert eval(str(one), {}, point) == one.at(point)
