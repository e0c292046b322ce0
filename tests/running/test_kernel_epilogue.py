"""Steps of epilogues that microkernels do: bias and residual in first sums, bounds at last ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_epilogues import apply_epilogue
from running_cases import make_shallow_machine, varied
from turns import examples

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.runtime import state
from tilesolve.plans.plan import plan

pytestmark = pytest.mark.usefixtures("any_tiles")

WIDTHS = {128: 16, 256: 16, 512: 32}
CHAINS = {
    "+n relu": 0,
    "+n": 0,
    "+mn": 0,
    "clip(-0.5,0.75)": 0,
    "+n +mn relu6": 0,
    "+mn +n relu": 0,
    "+n +mn +mn": 1,
    "+n silu": 1,
    "+n relu *n": 1,
    "+mn relu gelu relu": 2,
}
"""Chains, and how many steps of them are left for a pass where rows of tiles run along n."""

SLOW = examples(8, 40, settings(suppress_health_check=list(HealthCheck)))


def draw_arrays(problem, epilogue, seed):
    rng = np.random.default_rng(seed)
    shapes = [*problem.shapes[1:], *epilogue.shapes(problem)]
    arrays = [rng.standard_normal(shape).astype(problem.dtype) for shape in shapes]
    return arrays[:2], arrays[2:]


def around(tile):
    """Extents around multiples of a tile."""
    return st.sampled_from([1, tile - 1, tile, tile + 1, 2 * tile + 1, 3 * tile])


@SLOW
@given(data=st.data())
def test_bias_residual_and_bounds(data):
    """Every width, tiles with and without rests, cut sums, prepared weights, factors, what is added
    to: what NumPy makes of it in float64."""
    bits = data.draw(st.sampled_from(list(WIDTHS)), "bits")
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    lanes = bits // (32 if dtype == "float32" else 64)
    sizes = {"m": data.draw(around(8)), "n": data.draw(around(lanes)), "k": data.draw(around(4))}
    problem = replace(Problem.of("mn-mk-kn", sizes, dtype), constant=(2,))
    chain = data.draw(st.sampled_from(list(CHAINS)))
    machine = make_shallow_machine(bits, WIDTHS[bits])
    found = plan(problem, machine=machine, epilogue=chain, cache=False)
    side = data.draw(st.integers(1, 13), "sums of a call")
    *bands, top = found.nest.bands
    bands = [
        replace(b, box=tuple((i, min(n, side) if i == "k" else n) for i, n in b.box)) for b in bands
    ]
    found = varied(found, nest=replace(found.nest, bands=(*bands, top)))
    (a, b), operands = draw_arrays(problem, found.epilogue, data.draw(st.integers(0, 9)))
    weights = found.prepare(b) if data.draw(st.booleans(), "prepared") else b
    alpha, beta = data.draw(st.sampled_from([(1.0, 0.0), (1.0, 1.0), (0.5, 0.0), (1.0, -0.5)]))
    out = np.full(problem.shape(0), np.nan, dtype)
    before = np.zeros(out.shape)
    if beta:
        out[...] = before = draw_arrays(problem, found.epilogue, 11)[0][0].sum() + np.ones(
            out.shape
        )
    found(a, weights, out=out, alpha=alpha, beta=beta, operands=operands)
    plain = alpha * (a.astype("float64") @ b.astype("float64")) + beta * before.astype(dtype)
    wide = [one.astype("float64") for one in operands]
    expected = apply_epilogue(found.epilogue, problem, plain, wide)
    bound = (
        200 * np.finfo(dtype).eps * (1 + np.abs(plain).max() + sum(np.abs(o).max() for o in wide))
    )
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound)


def tasks_of(found, out, arrays, operands):
    """Return the tasks that a call with such arrays runs."""
    found(*arrays, out=out, operands=operands)
    return [task for one in found.executor.layouts.values() for task in one.tasks]


@pytest.mark.parametrize(("chain", "left"), CHAINS.items())
def test_what_microkernels_do_is_no_pass(chain, left):
    problem = Problem.of("mn-mk-kn", "m=9 n=33 k=7", "float32")
    found = plan(problem, machine=make_shallow_machine(256, 16), epilogue=chain, cache=False)
    arrays, operands = draw_arrays(problem, found.epilogue, 0)
    out = np.empty((9, 33), "float32")
    (task,) = tasks_of(found, out, arrays, operands)
    own = task.epilogue.in_kernels
    assert len(found.epilogue.operations) - own.operations == left
    assert (task.state[state.LATER_PROGRAM] == 0) == (left == 0)
    # A bias of the columns lies along no vector.
    (task,) = tasks_of(found, np.empty((33, 9), "float32").T, arrays, operands)[1:]
    other = task.epilogue.in_kernels
    assert other is None or other.begins_with is None or task.schedule.roles.rows == ("n",)


def test_no_numbers_and_infinity_stay_what_they_are():
    values = np.array([[np.nan, np.inf, -np.inf, 0.0, 7.0, -7.0] * 6], "float32")
    ones = np.ones((1, 1), "float32")
    for chain in ("relu", "relu6", "clip(-1,6)"):
        found = plan(
            "mn-mk-kn",
            "m=1 n=36 k=1",
            make_shallow_machine(256, 16),
            dtype="float32",
            epilogue=chain,
            cache=False,
        )
        expected = apply_epilogue(Epilogue.parse(chain), found.problem, values, ())
        np.testing.assert_array_equal(found(ones, values), expected)


def test_residuals_that_lie_otherwise_are_a_pass():
    problem = Problem.of("mn-mk-kn", "m=9 n=33 k=7", "float32")
    found = plan(problem, machine=make_shallow_machine(256, 16), epilogue="+mn relu", cache=False)
    arrays, (residual,) = draw_arrays(problem, found.epilogue, 3)
    expected = np.maximum(arrays[0] @ arrays[1] + residual, 0)
    for given_one in (residual, np.asfortranarray(residual), np.repeat(residual, 2, 1)[:, ::2]):
        found_one = found(*arrays, operands=[given_one])
        np.testing.assert_allclose(found_one, expected, rtol=0, atol=1e-5)
