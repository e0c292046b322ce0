"""Sliced layers: both schedules equal the reference, whatever the slices are."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import from_layout, slow_convolution, to_layout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_cases import check_result, draw_operands, make_machine, varied
from turns import examples

import tilesolve
from tilesolve import Plan
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.reference import reference
from tilesolve.kernels.dtypes import lanes
from tilesolve.planning.demand import Demand
from tilesolve.planning.slicing.csa import Slices
from tilesolve.planning.slicing.nest import SlicedLayer
from tilesolve.planning.slicing.strategy import Slicing

QUICK = examples(6, 25, settings(suppress_health_check=list(HealthCheck)))
MACHINE = make_machine(256, 16)


def sliced(solution, slices):
    """Return a solution's plan with other slices."""
    nest, kernel = solution.nest, solution.microkernel
    made = SlicedLayer.of(solution.share).nest(
        slices,
        ["L1", "L2", "L3", "memory"],
        (kernel.rows, kernel.columns),
        lanes(solution.problem.dtype, solution.machine.vector_bits),
        nest.output,
        scattered=nest.scattered,
    )
    return varied(Plan(solution), nest=made)


@st.composite
def small_layers(draw):
    """A layer as a problem, with its weights constant or not."""
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    window, stride, dilation = pair(1, 3), pair(1, 2), pair(1, 2)
    zeros = pair(0, 2), pair(0, 2)
    size = [
        draw(st.integers(max(1, d * (n - 1) + 1 - sum(ends)), 20))
        for d, n, ends in zip(dilation, window, zeros, strict=True)
    ]
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 9))
    x_shape = (batch, *size, channels) if layout == "NHWC" else (batch, channels, *size)
    layer = Convolution.of(
        x_shape,
        (draw(st.integers(1, 20)), channels, *window),
        stride=stride,
        padding=zeros,
        dilation=dilation,
        layout=layout,
    )
    problem = layer.flat_problem if draw(st.booleans()) else layer.problem
    return problem if draw(st.booleans()) else replace(problem, constant=())


@QUICK
@given(small_layers(), st.integers(1, 2), st.data())
def test_both_schedules_equal_the_reference(problem, threads, data):
    """With the slices of the analysis, and with few of anything, so that all loops run."""
    operands = draw_operands(problem)
    expected = reference(problem, *operands)
    for solution in Slicing().solutions(problem, MACHINE, threads, Demand()):
        schedule = solution.origin.slices.partition(",")[0]
        few = Slices(schedule, *(data.draw(st.integers(1, 3)) for _ in range(3)))
        for found in (Plan(solution), sliced(solution, few)):
            weights = found.prepare(operands[1]) if problem.constant else operands[1]
            out = np.full(problem.shape(0), np.nan, problem.dtype)
            found(operands[0], weights, out=out)
            check_result(problem, out, expected, operands)
            found(operands[0], weights, out=out, alpha=0.5, beta=2.0)
            check_result(problem, out, 2.5 * expected, operands, 3.0)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("groups", [1, 4])
def test_layers_by_slicing(layout, threads, groups):
    """Bias and activation follow the last set of channels; pickles slice again."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((2, 32, 17, 15), np.float32)
    w = generator.standard_normal((40, 32 // groups, 3, 3), np.float32)
    bias = generator.standard_normal(40, np.float32)
    images = to_layout(x, layout)
    layer = tilesolve.conv_layer(
        images.shape,
        w,
        bias,
        stride=2,
        padding=1,
        groups=groups,
        layout=layout,
        epilogue="relu",
        machine=MACHINE,
        threads=threads,
        strategy="slicing",
    )
    rest = {"stride": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": groups}
    expected = np.maximum(slow_convolution(x, w, **rest) + bias[:, None, None], 0)
    for one in (layer, pickle.loads(pickle.dumps(layer))):
        assert one.plan.strategy == "slicing"
        np.testing.assert_allclose(from_layout(one(images), layout), expected, atol=1e-3)
