"""Regions as boxes: each point of a region is in one box, and boxes inside have no others."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.cover import (
    cover_region,
    fills_shape,
    open_conditions,
    shift_condition,
)

factors = st.integers(-3, 3)


@st.composite
def regions(draw):
    """A box of two or three letters, and conditions on two of them each."""
    letters = "ijk"[: draw(st.integers(2, 3))]
    box = {x: (0, draw(st.integers(-1, 12))) for x in letters}
    conditions = [
        Condition(
            Affine.of(
                [(draw(factors), x) for x in draw(st.permutations(letters))[:2]],
                draw(st.integers(-15, 15)),
            )
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return conditions, box


def places(box):
    """The elements of an array of all points that are in a box."""
    return tuple(slice(low, high + 1) for low, high in box.values())


@settings(max_examples=150, deadline=None)
@given(regions(), st.integers(1, 5), st.integers(1, 64))
def test_each_point_of_a_region_is_in_one_box(region, panels, most):
    """Empty regions and whole ones too; boxes at the border have conditions that are open."""
    conditions, box = region
    found = cover_region(conditions, box, panels, most)
    grid = dict(zip(box, np.ix_(*(range(high + 1) for _, high in box.values())), strict=True))
    inside = np.ones([high + 1 for _, high in box.values()], bool)
    for one in conditions:
        inside = inside & one.holds(grid)
    times, whole = np.zeros(inside.shape, int), np.zeros(inside.shape, bool)
    for part in (*found.inside, *found.border):
        times[places(part)] += 1
    for part in found.inside:
        whole[places(part)] = True
    assert (times[inside] == 1).all()
    assert (times <= 1).all()
    assert inside[whole].all()
    assert all(open_conditions(conditions, part) for part in found.border)
    for part in found.border:
        local = {x: grid[x] - low for x, (low, _) in part.items()}
        for one in conditions:
            moved = shift_condition(one, part).holds(local)
            assert np.array_equal(moved, one.holds(grid))


def test_panels_begin_at_the_border_and_are_equal():
    """A strict triangle, shifted, has as few kinds of boxes as one at the diagonal."""
    i, k = Affine.letter("i"), Affine.letter("k")
    found = cover_region([Condition(k - i - 100)], {"i": (0, 899), "k": (0, 899)}, 8, 512)
    assert (len(found.inside), len(found.border)) == (28, 8)
    assert {high - low for box in found.inside for low, high in box.values()} == {99}
    assert all(box["k"][0] - box["i"][0] == 100 for box in found.border)


def test_many_coupled_letters_are_cut_into_fewer_panels():
    """So that there are not more boxes than are looked at."""
    letters = [Affine.letter(x) for x in "abcd"]
    conditions = [Condition(x - y) for x, y in pairwise(letters)]
    found = cover_region(conditions, dict.fromkeys("abcd", (0, 63)), 8, 100)
    assert 1 < len(found.inside) + len(found.border) <= 3**4


ENDS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted).map(tuple)


@given(st.lists(st.tuples(ENDS, ENDS), max_size=5), st.tuples(*[st.integers(1, 4)] * 2))
def test_parts_fill_a_shape_if_they_have_each_element(parts, shape):
    """As marking all elements of all parts finds."""
    marked = np.zeros((4, 4), bool)
    for (top, bottom), (left, right) in parts:
        marked[top : bottom + 1, left : right + 1] = True
    assert fills_shape(parts, shape) == marked[: shape[0], : shape[1]].all()
