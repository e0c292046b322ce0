"""Loops over letters: boxes that follow each other lie side by side in memory."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.problem import Problem
from tilesolve.machine.costs import DEFAULT_COSTS
from tilesolve.model.fused import fuse
from tilesolve.model.loop_order import order_loops
from tilesolve.model.nest import Nest
from tilesolve.model.pages import pages_of, runs_of
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.planning.letter_boxes import box_letters

LINE = 64


def places_of(strides, sides):
    """Return where the elements of a box are, in order."""
    places = np.zeros(1, np.int64)
    for letter, stride in strides.items():
        places = (places[:, None] + stride * np.arange(sides[letter])).ravel()
    return np.sort(places)


def pages_on_average(strides, sides):
    """Return how many pages a box touches, over beginnings on each eighth byte of a page."""
    pages = (places_of(strides, sides) + np.arange(0, PAGE_BYTES, 8)[:, None]) // PAGE_BYTES
    return 1 + np.mean(np.count_nonzero(np.diff(pages, axis=1), axis=1))


@st.composite
def dense(draw):
    """Draw the strides of a dense tensor, a box's sides and how many boxes each letter has."""
    letters = draw(st.permutations("abc"))
    sides = {i: draw(st.sampled_from([1, 2, 3, 8])) for i in letters}
    trips = {i: draw(st.sampled_from([1, 2, 5, 9])) for i in letters}
    strides, element = {}, 8
    for letter in letters:
        strides[letter], element = element, element * sides[letter] * trips[letter]
    return strides, sides, trips


@given(dense())
def test_pages_of_a_box_are_those_it_touches_on_average(drawn):
    strides, sides, _ = drawn
    assert pages_of(strides, sides) == pytest.approx(pages_on_average(strides, sides), rel=0.01)


@given(dense(), st.sampled_from([1, 64, 512]))
def test_runs_of_a_box_end_where_the_next_element_is_too_far(drawn, gap):
    strides, sides, _ = drawn
    apart = np.diff(places_of(strides, sides)) > gap
    assert runs_of(strides, sides, gap) == 1 + np.count_nonzero(apart)


@examples(40, 100)
@given(dense())
def test_boxes_along_the_innermost_letter_lie_in_the_fewest_pages(drawn):
    """Rows of boxes along another letter touch as many pages or more, counted one by one."""
    strides, sides, trips = drawn
    outer = {i: sides[i] * trips[i] for i in sides}
    free = [i for i in "abc" if trips[i] > 1]
    order = order_loops(["abc"], sides, outer, [{}, strides], LINE)
    assert sorted(order) == ["a", "b", "c"]
    assert order[: 3 - len(free)] == [i for i in "abc" if i not in free]

    def visits(letter):
        return pages_on_average(strides, sides | {letter: outer[letter]}) / trips[letter]

    assert pages_of(strides, sides) <= DEFAULT_COSTS.tlb_pages
    for letter in free:
        assert visits(order[3 - len(free)]) <= visits(letter) * 1.07


def test_longer_runs_count_where_pages_are_not_at_hand():
    """Boxes of a tensor of very many pages go on where their runs do, not where C's pages are."""
    outer = {"a": 64, "b": 512, "c": 512}
    inner = {"a": 8, "b": 64, "c": 512}
    tensor = {"a": 8, "b": 512, "c": 512 * 512}
    output = {"b": 8, "a": 8 * 512}
    assert pages_of(tensor, inner) > DEFAULT_COSTS.tlb_pages
    assert order_loops(["ba", "c"], inner, outer, [output, tensor], LINE)[0] == "a"


def test_tensors_that_stay_do_not_decide():
    """However many pages B has, A's boxes go on along its last letter."""
    inner, outer = {"a": 8, "b": 8, "n": 4096}, {"a": 512, "b": 512, "n": 4096}
    tensors = [{}, {"a": 8, "b": 4096}, {"n": 4096}]
    for classes in permutations(["ba", "n"]):
        order = order_loops(classes, inner, outer, tensors, LINE)
        assert order.index("a") < order.index("b")


def test_loops_follow_operands_only_outside_their_copies():
    """A's last letter is C's first: the next box lies there in A, and farthest away in C."""
    problem = Problem.of("abcd-deca-be", "a=72,b=72,c=24,d=72,e=72")
    fused = fuse(problem)
    tiles = [
        ("L1", "M", {"M": 24, "N": 8, "K": 72}),
        ("L2", "M", {"M": 1152, "N": 72, "K": 72}),
        ("memory", "M", dict(fused.problem.sizes)),
    ]
    bands = Nest.of(fused.problem, tiles).bands
    for copies, before in (((None, None), True), (("L2", "L2"), False)):
        found = box_letters(problem, fused, Nest(bands, copies, "store"), LINE)
        found.check(problem)
        order = found.bands[1].order
        assert (order.index("a") < order.index("d")) is before
        assert found.bands[2].order[0] == "a"
