"""Tiles that are transposed on their way to C: equal to the reference, and nothing else touched."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from guessed_tiles import guess_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_cases import check_result, draw_operands, lay_out, make_shallow_machine
from turns import examples

from tilesolve.constants.tuning import MIN_TRANSPOSED_COLUMNS
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.reference import reference
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.machine.costs import Costs
from tilesolve.plans.plan import plan
from tilesolve.running.task import Task

MACHINES = {bits: make_shallow_machine(bits, 32 if bits == 512 else 16) for bits in (128, 256, 512)}
SPECS = ("ij-ik-kj", "hij-hik-kj", "ihj-ihk-kj", "ibj-bik-bkj", "ijl-ik-kjl")


@examples(10, 60, settings(suppress_health_check=list(HealthCheck)))
@given(data=st.data())
def test_any_order_of_c(data):
    """Sums may be cut, so that tiles are added to; around the sides of blocks and of any tiles."""
    spec, dtype = data.draw(st.sampled_from(SPECS)), data.draw(st.sampled_from(DTYPES))
    sides = st.sampled_from((1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 49))
    few = st.integers(1, 3)
    sizes = {i: data.draw(sides if i in "ij" else few, i) for i in dict.fromkeys(spec) if i != "-"}
    sizes["k"] = data.draw(st.sampled_from((1, 9, 700)), "k")
    problem = Problem.of(spec, sizes, dtype)
    machine = MACHINES[data.draw(st.sampled_from(sorted(MACHINES)))]
    threads, tiles = data.draw(st.sampled_from((1, 2))), data.draw(st.integers(0, 999))
    found = guess_plan(problem, tiles, machine=machine, threads=threads)
    operands = draw_operands(problem)
    order = data.draw(st.permutations(range(len(problem.shape(0)))))
    whole, out = lay_out(problem.shape(0), dtype, order, data.draw(st.integers(0, 5)))
    expected = reference(problem, *operands)
    found(*operands, out=out)
    check_result(problem, out, expected, operands)
    assert np.isnan(whole).sum() == whole.size - out.size
    found(*operands, out=out, alpha=3, beta=-1)
    check_result(problem, out, 2 * expected, operands, scale=4)
    assert np.isnan(whole).sum() == whole.size - out.size


@pytest.mark.parametrize("columns", [MIN_TRANSPOSED_COLUMNS - 1, MIN_TRANSPOSED_COLUMNS, 50])
def test_elements_are_written_by_themselves_only_where_few_lie_side_by_side(columns):
    problem = Problem.of("ij-ik-kj", {"i": columns, "j": 40, "k": 30}, "float32")
    machine = MACHINES[256].replace(costs=Costs(call_run_cycles=1e-9))  # no tile of what is left
    found = plan(problem, machine=machine, cache=False)
    out = np.full(problem.shape(0), np.nan, "float32", order="F")
    operands = draw_operands(problem)
    strides = [array.strides for array in (out, *operands)]
    task = Task.of(found.solution, problem, {}, strides)
    modes = {Mode(row[7]) for _, row in task.trace([out, *operands])}
    assert modes <= {Mode.STORE, Mode.PART} if columns >= MIN_TRANSPOSED_COLUMNS else {Mode.SCATTER}
    check_result(problem, out, reference(problem, *operands), operands)
    assert prod(out.shape) == 40 * columns
