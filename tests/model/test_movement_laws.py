"""Laws that prices obey for any nest, drawn at random, on one to five cache levels."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_cases import make_machine
from strategies import problems, specs
from turns import examples

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price, list_levels

HUGE = 2**50


def each_letter_once(spec: Spec) -> bool:
    """Return whether no tensor has a letter in two subscripts.

    For one that does the footprint of a box is only an upper bound.
    """
    return all(
        sum(len(subscript.terms) for subscript in tensor.subscripts) == len(tensor.letters)
        for tensor in spec.tensors
    )


@st.composite
def nests(draw: st.DrawFn, diagonals: bool = False) -> tuple[Problem, Nest]:
    """Draw a problem and a nest of one to five cache levels, nothing packed."""
    drawn = specs(max_order=3)
    problem = draw(problems(drawn if diagonals else drawn.filter(each_letter_once), 1))
    letters = problem.spec.letters
    box, bands = dict.fromkeys(letters, 1), []
    for name in ["register", *(f"L{at}" for at in range(1, draw(st.integers(1, 5)) + 1))]:
        box = {i: draw(st.integers(box[i], problem.sizes[i])) for i in letters}
        bands.append((name, "".join(draw(st.permutations(letters))), box))
    bands.append(("memory", "".join(draw(st.permutations(letters))), dict(problem.sizes)))
    output = draw(st.sampled_from(["accumulate", "store", "stream"]))
    return problem, Nest.of(problem, bands, output=output)


def toy_for(nest: Nest, capacities: list[int]) -> Machine:
    """Return a machine with a cache for each of the nest's bands but the first and the last."""
    return make_machine(tuple(capacities[: len(nest.bands) - 2]), line=1)


capacity_lists = st.lists(st.integers(8, 2000), min_size=5, max_size=5).map(sorted)


@examples(40, 100)
@given(nests(diagonals=True))
def test_endless_caches_move_each_tensor_once(drawn):
    """With room for everything each level's misses are the tensors' footprints."""
    problem, nest = drawn
    cost = compute_price(problem, nest, toy_for(nest, [HUGE] * 5))
    whole = {i: float(n) for i, n in problem.sizes.items()}
    once = list(touched_bytes(problem, whole))
    assert len(cost.levels) == len(nest.bands) - 1
    for level in cost.levels[1:]:
        assert level.moved == pytest.approx(once)


@examples(40, 100)
@given(nests(diagonals=True))
def test_without_caches_every_access_moves(drawn):
    """With room for less than an element each iteration moves one of every tensor."""
    problem, nest = drawn
    cost = compute_price(problem, nest, toy_for(nest, [1] * 5))
    accesses = prod(problem.sizes.values()) * problem.itemsize
    for level in cost.levels[1:]:
        assert level.moved == pytest.approx([accesses] * len(problem.spec.tensors))


@examples(40, 100)
@given(nests(), capacity_lists, st.data())
def test_more_capacity_never_costs_more(drawn, capacities, data):
    """Every tensor's misses fall or stay as a level grows."""
    problem, nest = drawn
    more = [room + data.draw(st.integers(0, 2000)) for room in capacities]
    small, large = (
        compute_price(problem, nest, toy_for(nest, rooms)) for rooms in (capacities, more)
    )
    for before, after in zip(small.levels, large.levels, strict=True):
        for was, now in zip(before.moved, after.moved, strict=True):
            assert now <= was * (1 + 1e-12)


@examples(40, 100)
@given(nests(), capacity_lists)
def test_misses_lie_between_footprint_and_accesses(drawn, capacities):
    """No level misses less than a tensor's footprint or more than its accesses."""
    problem, nest = drawn
    whole = {i: float(n) for i, n in problem.sizes.items()}
    accesses = prod(problem.sizes.values()) * problem.itemsize
    for level in compute_price(problem, nest, toy_for(nest, capacities)).levels:
        for once, size in zip(touched_bytes(problem, whole), level.moved, strict=True):
            assert once * (1 - 1e-9) <= size <= accesses * (1 + 1e-9)


@examples(40, 100)
@given(nests(), capacity_lists)
def test_farther_levels_move_no_more(drawn, capacities):
    """Where capacities grow outwards, each level misses at most what the nearer one does."""
    problem, nest = drawn
    caches = compute_price(problem, nest, toy_for(nest, capacities)).levels[1:]
    for near, far in pairwise(caches):
        for close, distant in zip(near.moved, far.moved, strict=True):
            assert distant <= close * (1 + 1e-12)


@examples(40, 100)
@given(nests(), capacity_lists, st.data())
def test_a_victim_cache_is_priced_by_the_sum_of_capacities(drawn, capacities, data):
    """Section 5.5: an exclusive level prices as an inclusive one that holds both."""
    problem, nest = drawn
    rooms = capacities[: len(nest.bands) - 2]
    kept = [True, *(data.draw(st.booleans()) for _ in rooms[1:])]
    summed: list[int] = []
    for room, inclusive in zip(rooms, kept, strict=True):
        summed.append(room if inclusive else room + summed[-1])
    exclusive = make_machine(tuple(rooms), line=1, inclusive=tuple(kept))
    inclusive = make_machine(tuple(summed), line=1)
    assert compute_price(problem, nest, exclusive) == compute_price(problem, nest, inclusive)
    assert [place.capacity for place in list_levels(exclusive)[1:]] == summed
