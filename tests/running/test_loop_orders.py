"""Loops in the planned order: also where letters of one role stand apart in a band."""

from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise, takewhile
from math import prod
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from running_cases import (
    check_result,
    check_run,
    draw_operands,
    make_shallow_machine,
    trace_once,
    varied,
)
from strategies import unshrunk
from turns import examples

from tilesolve import Machine, Problem, plan, reference
from tilesolve.constants import tuning
from tilesolve.contractions.errors import PlanError
from tilesolve.model.nest import Band
from tilesolve.model.price import compute_price
from tilesolve.planning.composition.build import copy_kinds
from tilesolve.planning.layout_policy import letter_of_row_vectors
from tilesolve.planning.runner import Runner, roles_of

SPECS = (
    "nkhw-nc[h+r][w+s]-kcrs",
    "nhwk-n[2h+r][w+s]c-rsck",
    "KhwkC-[h+r]wCc-KrCck",
    "hwk-[h+r][w+s]k-rsk",
    "abcd-aebf-dfce",
)

WIDTHS = ((128, 16), (512, 32))

LEVELS = ("register", "L1", "L2", "L3", "memory")

TOO_DEEP = "a copy's tile has .* bands of loops: at most 7 can be run"


@cache
def planned(width):
    """Return a plan of another problem, found once: its nest is replaced."""
    machine = make_shallow_machine(*width)
    return plan(Problem.of("mn-mk-kn", 2), machine=machine, cache=False)


@st.composite
def interleaved(draw):
    """Return a plan whose bands have any orders of any letters, and any copies.

    A call is of one batch: within a larger register tile no band says where batches are walked.
    """
    spec, width = draw(st.sampled_from(SPECS)), draw(st.sampled_from(WIDTHS))
    letters = Problem.of(spec, 1).spec.letters
    sizes = {letter: draw(st.integers(1, 3)) for letter in letters}
    problem, found = Problem.of(spec, sizes), planned(width)
    batches = roles_of(problem).batches
    most = {i: 1 if i in batches else min(2, size) for i, size in sizes.items()}
    boxes = [{i: draw(st.integers(1, side)) for i, side in most.items()}]
    for _ in LEVELS[1:-1]:
        boxes.append({i: draw(st.integers(side, sizes[i])) for i, side in boxes[-1].items()})
    orders = [tuple(draw(st.permutations(letters))) for _ in LEVELS]
    bands = (
        Band(level, order, tuple(box.items()))
        for level, order, box in zip(LEVELS, orders, [*boxes, sizes], strict=True)
    )
    vector = letter_of_row_vectors(problem, roles_of(problem), problem.strides(0))
    options = [copy_kinds(problem, roles_of(problem), vector, at, whole=False) for at in (1, 2)]
    kinds = tuple(draw(st.sampled_from(each)) for each in options)
    packed = tuple(
        None if kind == "in place" else draw(st.sampled_from(LEVELS[1:-1])) for kind in kinds
    )
    nest = replace(found.nest, bands=tuple(bands), packed=packed, kinds=kinds)
    return varied(found, problem=problem, nest=nest)


def moment(nest, begin):
    """Return when a call that begins somewhere is made: where each band's loops stand.

    The outermost band comes first, and its outermost loop.
    """
    found, left = [], dict(begin)
    for at in range(len(nest.bands) - 1, 0, -1):
        inner = nest.bands[at - 1]
        # What is called in the nearest tile is cut into near-equal parts.
        step = {i: inner[i] if at > 1 else 1 for i in left}
        found.append({i: left[i] // step[i] for i in reversed(nest.bands[at].order)})
        left = {i: where % step[i] for i, where in left.items()}
    return found


def places(moment):
    """Return where all loops stand, outermost first."""
    return [where for band in moment for where in band.values()]


def loops_in_turns(nest, roles):
    """Return the letters of a nearest tile's first and second loop, if these have turns."""
    register, near = nest.bands[:2]
    running = [i for i in near.order if near[i] > register[i]]
    first, second, *_ = [*map(list, map(itemgetter(1), groupby(running, roles.number))), [], []]
    rows_and_columns = {*roles.rows, *roles.columns}
    return (first, second) if rows_and_columns >= {*first, *second} else (first, [])


def count_equal(values):
    """Return how many of the first values are the same."""
    return len(list(takewhile(values[0].__eq__, values))) if values else 0


def walk_in_turns(calls):
    """Return a tile's calls as they may be: of the first loop, for few turns of the second at once.

    Each is told by where its second and its first loop stand. Tiles of the first loop that are
    alike take each turn together.
    """
    left, firsts = (sorted(set(found)) for found in zip(*calls, strict=True))
    wanted = []
    while left and len(wanted) < len(calls):
        turns = count_equal([first for _, first in calls[len(wanted) :]])
        if len(firsts) > 1:
            turns = min(turns, tuning.TURNS_OF_SINGLE_TILES)
        rest = firsts
        while rest and len(wanted) < len(calls):
            alike = count_equal([second for second, _ in calls[len(wanted) :]])
            wanted += [(second, first) for second in left[:turns] for first in rest[:alike]]
            rest = rest[alike:]
        left = left[turns:]
    return wanted


def check_order(found):
    """Check that calls are made in the order of the plan's loops, but for turns in near tiles."""
    roles = roles_of(found.problem)
    formed = Runner.of(found.share, found.machine, roles).form(found.nest)
    begins = [{i: covered[i][0] for i in found.problem.sizes} for covered in trace_once(found)]
    planned, run = (
        sorted(begins, key=lambda begin, nest=nest: places(moment(nest, begin)))
        for nest in (found.nest, formed)
    )
    assert planned == run
    first, second = loops_in_turns(formed, roles)
    tiles, calls = [], {}
    for begin in begins:
        *outer, near = moment(formed, begin)
        rest = {i: where for i, where in near.items() if i not in {*first, *second}}
        tiles.append(tuple(places([*outer, rest])))
        loops = (tuple(at for i, at in near.items() if i in loop) for loop in (second, first))
        calls.setdefault(tiles[-1], []).append(tuple(loops))
    assert tiles == sorted(tiles)
    assert all(walk_in_turns(own) == own for own in calls.values())


@examples(10, 20, unshrunk)
@given(interleaved())
def test_calls_are_made_in_the_order_of_the_plan_s_loops(found):
    """Each iteration is in one call, and the result is right, whatever order letters have."""
    try:
        check_run(found)
    except PlanError as error:
        assert "at most 7 can be run" in str(error)  # noqa: PT017 - others are as they should be
        reject()
    check_order(found)


@pytest.mark.parametrize("width", WIDTHS)
def test_single_tiles_of_rows_take_turns_of_columns(width):
    """Tiles of two and of one row are called for three columns each, one after another."""
    problem = Problem.of(SPECS[1], dict(zip("nhwkrsc", (3, 3, 3, 3, 1, 2, 2), strict=True)))
    boxes = [("register", "hskwncr", (1, 2, 2, 1)), ("L1", "shnrwkc", (3, 3, 3, 1))]
    boxes += [(level, "nhkrswc", (3, 3, 3, 3)) for level in LEVELS[2:]]
    bands = tuple(
        Band(level, tuple(order), tuple(zip("nhwkrsc", (*box, 1, 2, 2), strict=True)))
        for level, order, box in boxes
    )
    found = planned(width)
    nest = replace(found.nest, bands=bands, packed=(None, "L3"), kinds=("in place", "micro-panels"))
    found = varied(found, problem=problem, nest=nest)
    check_run(found)
    check_order(found)
    columns = [covered["k"][0] for covered in trace_once(found)]
    assert columns[:6] == [0, 1, 2, 0, 1, 2]


@examples(25, 60, unshrunk)
@given(interleaved(), st.sampled_from([8, tuning.MAX_TABLE_INDICES]))
def test_a_nest_has_one_form_and_costs_the_same_in_it(found, most):
    """No role comes back in a band; all loops stay, unless a tile is too large for tables."""
    machine, share = Machine.load("i7-6700k"), found.share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_TABLE_INDICES", most)
        runner = Runner.of(share, machine)
        formed = runner.form(found.nest)
        assert runner.form(formed) == formed
        formed.check(share)
    for inner, band in pairwise(formed.bands):
        running = [i for i in band.order if band[i] > inner[i]]
        assert len(runner.roles.split(running)) == 1
    if most >= prod(share.sizes.values()):
        costs = [compute_price(share, one, machine) for one in (found.nest, formed)]
        before, after = (
            [cost.compute, *(level.seconds for level in cost.levels)] for cost in costs
        )
        assert after == pytest.approx(before, rel=1e-9)


ROWS_APART = {"a": 4, "b": 4, "c": 4, "d": 4, "e": 4, "f": 4}


def nested(copy):
    """Return a plan whose bands have each letter between two of other roles, and a copy."""
    spec, order = "abcd-aebf-dfce", tuple("acebdf")
    problem, found = Problem.of(spec, ROWS_APART), planned(WIDTHS[0])
    bands = tuple(
        Band(level, order, tuple(dict.fromkeys("abcdef", min(4, 1 + at)).items()))
        for at, level in enumerate(LEVELS)
    )
    nest = replace(found.nest, bands=bands, packed=(copy, copy), kinds=())
    return varied(found, problem=problem, nest=nest)


@pytest.mark.parametrize("copy", [None, "L1", "L2", "L3"])
@pytest.mark.parametrize("threads", [1, 2])
def test_bands_in_which_each_role_comes_back_run(copy, threads):
    """By any number of threads, with whatever is packed, and added to what is there."""
    found = nested(copy)
    found = varied(found, threads=threads, split="a" if threads > 1 else None)
    operands, out = draw_operands(found.problem), np.ones(found.problem.shapes[0])
    found(*operands, out, alpha=2.0, beta=3.0)
    expected = 2 * reference(found.problem, *operands) + 3
    check_result(found.problem, out, expected, operands, scale=2)


def test_a_copy_with_too_many_bands_inside_is_refused():
    """The macrokernel has room for seven bands of loops in a box, and a copy is in one."""
    problem = Problem.of("KhwkC-[h+r]wCc-KrCck", 6)
    order = tuple("KhcwkrC")
    bands = tuple(
        Band(f"tile {at}" if at else "register", order, tuple((i, 1 + at) for i in problem.sizes))
        for at in range(6)
    )
    found = planned(WIDTHS[0])
    nest = replace(found.nest, bands=bands, packed=("tile 4", None), kinds=())
    with pytest.raises(PlanError, match=TOO_DEEP):
        varied(found, problem=problem, nest=nest)(*draw_operands(problem))
