"""Vectors whose last half has nothing in it: left out where a CPU has one unit for whole ones."""

import numpy as np
import pytest

import tilesolve
from tilesolve import Machine, Peak, Problem
from tilesolve.constants.tuning import MAX_TILE_COLUMNS, MAX_TILE_VECTORS
from tilesolve.kernels.runtime import state
from tilesolve.running.execution import Layout
from tilesolve.running.task import _kernel_addresses

WIDE = Machine.load("i7-6700k").replace(vector_bits=512, vector_registers=32)


@pytest.mark.parametrize("rows", [7, 8, 9, 23, 24, 25, 39, 40, 41])
@pytest.mark.parametrize("saves", [True, False])
def test_halves_are_left_out_where_that_saves_time(saves, rows):
    """Both ways compute the same; more than half a vector is a whole one in any case."""
    problem = Problem.of("mn-mk-kn", {"m": 50, "n": rows, "k": 70}, "float32")
    whole = WIDE.peak("float32")
    peaks = Peak("float32", 512, whole), Peak("float32", 256, whole if saves else whole / 2)
    plan = tilesolve.plan(problem, machine=WIDE.replace(peaks=peaks), threads=1, cache=False)
    generator = np.random.default_rng(0)
    a, b = (generator.random(n, np.float32) for n in problem.shapes[1:])
    c = np.full(problem.shapes[0], np.nan, np.float32)
    plan(a, b, out=c)
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-5)
    task = Layout.of(plan.solution, a, b, c).tasks[0]
    found = _kernel_addresses(task.schedule.family, packed=True)
    count = state.KERNEL_KINDS * MAX_TILE_VECTORS * MAX_TILE_COLUMNS
    kernels = found[state.KERNELS :][:count].reshape(state.KERNEL_KINDS, -1)
    assert kernels[state.PACKED].any()
    assert np.array_equal(kernels[state.HALVED], kernels[state.PACKED]) != saves
