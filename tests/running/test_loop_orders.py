"""Loops in the planned order: also where letters of one role stand apart in a band."""

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from running_cases import WIDTHS, check_result, draw_operands, make_shallow_machine, varied
from strategies import unshrunk

from tilesolve import Problem, plan, reference
from tilesolve.model.nest import Band
from tilesolve.running.execution import trace_calls

SPECS = (
    "nkhw-nc[h+r][w+s]-kcrs",
    "nhwk-n[2h+r][w+s]c-rsck",
    "nKhwk-nC[h+r][2w+s]c-KCrsck",
    "hwk-[h+r][w+s]k-rsk",
    "abcd-aebf-dfce",
)

LEVELS = ("register", "L1", "L2", "L3", "memory")


@cache
def planned(spec, width):
    """Return a plan of some size, found once."""
    machine = make_shallow_machine(*width)
    return plan(Problem.of(spec, 2), machine=machine, cache=False)


@st.composite
def interleaved(draw):
    """Return a plan whose bands have any orders of any letters, and any copies."""
    spec, width = draw(st.sampled_from(SPECS)), draw(st.sampled_from(WIDTHS))
    letters = Problem.of(spec, 1).sizes
    sizes = {letter: draw(st.integers(1, 5)) for letter in letters}
    found = planned(spec, width)
    boxes = [{i: draw(st.integers(1, min(2, size))) for i, size in sizes.items()}]
    for _ in LEVELS[1:-1]:
        boxes.append({i: draw(st.integers(side, sizes[i])) for i, side in boxes[-1].items()})
    boxes.append(sizes)
    bands = [
        Band(level, tuple(draw(st.permutations(sorted(letters)))), tuple(box.items()))
        for level, box in zip(LEVELS, boxes, strict=True)
    ]
    copies = tuple(draw(st.sampled_from((None, *LEVELS[1:-1]))) for _ in range(2))
    nest = replace(found.nest, bands=tuple(bands), packed=copies, kinds=())
    return varied(found, problem=Problem.of(spec, sizes), nest=nest)


def moment(nest, begin):
    """Return when a call that begins somewhere is made: where all loops stand, outermost first."""
    found, left = [], dict(begin)
    for at in range(len(nest.bands) - 1, 0, -1):
        inner = nest.bands[at - 1]
        # What is called in the nearest tile is cut into near-equal parts.
        step = {i: inner[i] if at > 1 else 1 for i in left}
        found += [left[i] // step[i] for i in reversed(nest.bands[at].order)]
        left = {i: where % step[i] for i, where in left.items()}
    return tuple(found)


@settings(unshrunk, max_examples=150)
@given(interleaved())
def test_calls_are_made_in_the_order_of_the_plan_s_loops(found):
    """Each iteration is in one call, and the result is right, whatever order letters have."""
    problem = found.problem
    operands, out = draw_operands(problem), np.full(found.problem.shapes[0], np.nan)
    check_result(problem, found(*operands, out), reference(problem, *operands), operands)
    seen = np.zeros([*problem.sizes.values()], int)
    moments = []
    for covered, _ in trace_calls(found.solution):
        seen[np.ix_(*(covered[i] for i in problem.sizes))] += 1
        moments.append(moment(found.nest, {i: covered[i][0] for i in problem.sizes}))
    assert np.all(seen == 1)
    assert moments == sorted(moments)
