"""Runs of calls are as many as the macrokernel's loops make."""

from dataclasses import replace
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve import Machine, Problem, plan
from tilesolve.constants.tuning import TURNS_OF_SINGLE_TILES
from tilesolve.contractions.roles import COLUMNS, ROWS
from tilesolve.machine.level import Peak
from tilesolve.packing import table_fields
from tilesolve.planning.call_runs import count_runs
from tilesolve.planning.runner import Runner
from tilesolve.planning.waiting import find_lead, run_seconds
from tilesolve.running.execution import Layout

MACHINE = Machine.load("i7-6700k")
SPECS = ("ab-ac-cb", "abc-adc-bd", "abcd-aec-ebd", "abcd-ebfd-aefc", "abd-acd-acb", "ba-cbd-dac")


def walk(orders, segments, alike):
    """Return how many calls the loops of the nearest tiles make, one after the other.

    Orders are roles, innermost first. Segments are of each role the register tiles from one to
    another, alike of rows and columns how many follow each tile that are like it.
    """
    found, (first, second, third, fourth) = 0, orders
    for bounds in product(*segments):
        (begin, end), (other, last) = bounds[first], bounds[second]
        calls = 0
        while other < last:
            at, turns = begin, 1
            while at < end:
                count = min(alike[first][at], end - at) if first in (ROWS, COLUMNS) else 1
                whole = count == end - begin
                if at == begin and {first, second} == {ROWS, COLUMNS} and (whole or count == 1):
                    turns = min(alike[second][other], last - other)
                    turns = turns if whole else min(turns, TURNS_OF_SINGLE_TILES)
                calls, at = calls + 1, at + count
            other += turns
        found += calls * prod(high - low for low, high in (bounds[third], bounds[fourth]))
    return found


def count_calls(solution, place=0):
    """Return how many runs of calls a solution's tables make."""
    block = np.empty(solution.problem.bytes[0] + 128, np.int8)
    begin = -block.ctypes.data % 64 + place
    out = block[begin : begin + solution.problem.bytes[0]].view(solution.problem.dtype)
    operands = [np.empty(shape) for shape in solution.problem.shapes[1:]]
    (task,) = Layout.of(solution, *operands, out.reshape(solution.problem.shape(0))).tasks
    policy, found = task.schedule.policy, 0
    orders = policy.runner.order(policy.nest.bands[1].order)
    for kind in task.boxes.kinds:
        box = task.boxes.tables[kind]
        segments = [list(pairwise(axis.bounds[1])) for axis in box.axes]
        tables = (box.tables[role] for role in (ROWS, COLUMNS))
        found += walk(orders, segments, [t[t[table_fields.ALIKE] :] for t in tables])
    return task.schedule.lead, found


@st.composite
def draw_nests(draw, bits):
    """Draw a solution whose nearest tile, and whose orders, are any."""
    sizes = {i: draw(st.integers(1, 40)) for i in "abcdef"}
    spec = draw(st.sampled_from(SPECS))
    problem = Problem.of(spec, {i: sizes[i] for i in set(spec) - {"-"}})
    peaks = Peak("float64", bits, 5e10), Peak("float64", bits // 2, 5e10)
    machine = MACHINE.replace(vector_bits=bits, vector_registers=bits // 16, peaks=peaks)
    solution = plan(problem, machine=machine, cache=False).solution
    call, *_, whole = solution.nest.bands
    sides = {i: min(n, draw(st.integers(1, 4)) * call[i]) for i, n in whole.box}
    orders = [tuple(draw(st.permutations(sorted(problem.sizes)))) for _ in range(2)]
    near = replace(call, level="L1", order=orders[0], box=tuple((i, sides[i]) for i, _ in call.box))
    bands = call, near, replace(whole, order=orders[1])
    nest = replace(solution.nest, bands=bands, packed=("L1", "L1"), kinds=(), output="store")
    return replace(solution, nest=Runner.of(problem, machine).form(nest))


@pytest.mark.parametrize("bits", [256, 512])
@settings(max_examples=8)
@given(data=st.data())
def test_the_model_counts_what_the_loops_make(bits, data):
    """Of any nearest tile, in any order of loops, with halves of vectors where these gain."""
    solution = data.draw(draw_nests(bits))
    share, nest, machine = solution.share, solution.nest, solution.machine
    _, calls = count_calls(solution)
    each = machine.costs.call_run_cycles / machine.frequency
    assert run_seconds(share, nest, machine) == pytest.approx(calls * each)


@pytest.mark.parametrize("side", [4, 8, 32, 48])
@pytest.mark.parametrize("place", [0, 16])
def test_tiles_behind_a_lead_are_more_runs(side, place):
    """C leaves in lines though it begins amid one: a column has parts of lines at its ends."""
    solution = plan("cba-ad-cdb", "a=192,b=48,c=7,d=5", MACHINE, cache=False).solution
    call, *_, whole = solution.nest.bands
    near = tuple((i, {"a": 192, "b": side, "c": 1, "d": 5}[i]) for i, _ in call.box)
    tile = tuple((i, {"a": 12, "b": 4, "c": 1, "d": 5}[i]) for i, _ in call.box)
    bands = replace(call, box=tile), replace(call, level="L1", order=tuple("abcd"), box=near), whole
    nest = replace(solution.nest, bands=bands, packed=("L1", "L1"), kinds=(), output="stream")
    nest = Runner.of(solution.problem, MACHINE).form(nest)
    lead, calls = count_calls(replace(solution, nest=nest, output="stream"), place)
    said = find_lead(solution.share, nest, MACHINE)
    assert lead == (said if place else 0)
    assert said
    assert count_runs(solution.share, nest, 4, 1, lead) == calls
