"""Layers of small groups: statements with vectors along channels or pixels, whatever is asked."""

import numpy as np
import pytest
from convolution_cases import from_layout, slow_convolution, to_layout
from hypothesis import given
from hypothesis import strategies as st
from running_cases import make_shallow_machine
from turns import examples

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.convolutions import group_plans
from tilesolve.convolutions.group_plans import GroupPlan
from tilesolve.convolutions.layer_plans import LayerRequest
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.program import Loop
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan

MACHINE = make_shallow_machine(256, 16)
LANES = 8


@st.composite
def groups(draw):
    """A layer, and whether vectors lie along channels."""
    layout, last = draw(st.sampled_from([("NHWC", True), ("NCHW", True), ("NCHW", False)]))
    window = draw(st.sampled_from([(3, 3), (2, 3), (1, 4), (5, 1)]))
    stride, gap = draw(st.tuples(*[st.integers(1, 2)] * 2)), draw(st.integers(1, 2))
    ends = draw(st.tuples(*[st.integers(0, 2)] * 4))
    size = [gap * (n - 1) + draw(st.integers(1, LANES + 2)) for n in window]
    per, made, count = draw(
        st.sampled_from([(1, 1, LANES - 1), (1, 1, LANES + 1), (2, LANES, 2), (3, 5, 2)])
    )
    x = (draw(st.integers(1, 2)), per * count, *size)
    layer = Convolution.of(
        x if layout == "NCHW" else (x[0], *size, x[1]),
        (made * count, per, *window),
        stride=stride,
        padding=[ends[:2], ends[2:]],
        dilation=gap,
        groups=count,
        layout=layout,
    )
    return layer, last


@examples(3, 5)
@given(groups(), st.sampled_from(["", "R", "O"]), st.booleans(), st.integers(0, 99))
def test_statements_are_layers(drawn, residual, has_bias, seed):
    """In both orders, with a residual or in its place; zeros around images stay zeros."""
    layer, last = drawn
    chain = Epilogue.parse("relu6 silu")
    request = LayerRequest(layer, chain, has_bias, bool(residual), machine=MACHINE, threads=1)
    made = GroupPlan.of(request, last, residual)
    rng = np.random.default_rng(seed)
    bias = rng.standard_normal(layer.filters).astype(np.float32)
    w = rng.standard_normal(layer.w_shape).astype(np.float32)
    constants = made.constants(w, bias if has_bias else None)
    for _ in range(2):
        x = rng.standard_normal(layer.x_shape).astype(np.float32)
        added = rng.standard_normal(layer.out_shape).astype(np.float32)
        sums = slow_convolution(
            from_layout(x, layer.layout),
            w,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
        )
        sums += bias.reshape(-1, 1, 1) if has_bias else 0
        sums += from_layout(added, layer.layout) if residual else 0
        sums = np.clip(sums, 0, 6)
        out = added if residual == "O" else np.full(layer.out_shape, np.nan, np.float32)
        made.run(x, constants, added if residual else None, out)
        expected = to_layout(sums / (1 + np.exp(-sums)), layer.layout)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_pixels_with_weights_that_are_numbers_are_computed_in_blocks():
    """Channels first: vectors lie along a row's pixels, and rows of a window share loads."""
    layer = Convolution.of((1, 8, 30, 30), (8, 1, 3, 3), padding=1, groups=8)
    request = LayerRequest(layer, Epilogue(()), machine=Machine.load("i7-6700k"), threads=1)
    found = GroupPlan.of(request, False, "").nest.solutions[-1]
    assert found.vector_letter == "w"
    loops = [one for one in list_nodes(found.program.body) if isinstance(one, Loop)]
    assert {one.name for one in loops if one.kind == "unrolled"} == {"h"}


def test_the_order_of_least_price_runs(monkeypatch):
    """Of those for channels first; what has no terms is left to contractions."""
    asked = []

    def plan(*arguments, **options):
        asked.append(tilesolve.nest(*arguments, **options))
        return asked[-1]

    monkeypatch.setattr(group_plans, "nest", plan)
    w = np.ones((8, 1, 3, 3), np.float32)
    layer = tilesolve.conv_layer((1, 8, 9, 9), w, groups=8, machine=MACHINE)
    assert layer.plan is min(asked, key=lambda one: one.seconds)
    assert len(asked) == 2
    chain = tilesolve.elementwise(lambda x: float(int(x)))
    other = tilesolve.conv_layer((1, 8, 9, 9), w, groups=8, machine=MACHINE, epilogue=chain)
    assert not isinstance(other.plan, NestPlan)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_pointwise_groups_are_contractions(groups):
    """Whose windows share no pixels."""
    w = np.ones((8, 8 // groups, 1, 1), np.float32)
    layer = tilesolve.conv_layer((1, 8, 9, 9), w, groups=groups, machine=MACHINE)
    assert not isinstance(layer.plan, NestPlan)
