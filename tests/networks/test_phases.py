"""Convolutions that run as several: of images whose pixels were repeated, and transposed ones."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from turns import examples

import tilesolve

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import check_loaded, make_model  # noqa: E402

pytestmark = pytest.mark.usefixtures("planned_at_once")

RNG = np.random.default_rng(0)


def drawn(*shape):
    """Numbers as models have them."""
    return RNG.standard_normal(shape).astype(np.float32)


@st.composite
def repeated(draw):
    """A Resize of pixels by whole factors, a convolution, and what follows it."""
    axes = draw(st.integers(1, 2))
    times, taps, extents = (
        [draw(st.integers(low, high)) for _ in range(axes)]
        for low, high in ((1, 3), (1, 5), (3, 6))
    )
    ends = [draw(st.integers(0, n)) for n in (*taps, *taps)]
    groups = draw(st.sampled_from([1, 2]))
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest",
                         nearest_mode=draw(st.sampled_from(["floor", "round_prefer_floor"])),
                         coordinate_transformation_mode="asymmetric"),
        helper.make_node("Conv", ["r", "w", "b"], ["c"], pads=ends, group=groups),
        helper.make_node("Add", ["c", "other"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]  # fmt: skip
    lows, highs = ends[:axes], ends[axes:]
    out = [
        t * n + low + high - k + 1
        for t, n, low, high, k in zip(times, extents, lows, highs, taps, strict=True)
    ]
    assume(min(out) > 0)
    arrays = {"scales": np.float32([1, 1, *times]), "w": drawn(6, 4 // groups, *taps)}
    inputs = {"x": (2, 4, *extents), "other": (2, 6, *out)}
    return make_model(nodes, inputs, arrays | {"b": drawn(6)}, {"y": 2 + axes}, 17), inputs


@given(made=repeated())
@examples(10, 25)
def test_repeated_pixels(made):
    """Results are those of ONNX's evaluator; it stays one convolution, and one layer."""
    model, inputs = made
    loaded = check_loaded(model, {name: drawn(*shape) for name, shape in inputs.items()})
    assert loaded.count == "1 of 1 convolutions are layers"


@pytest.mark.parametrize("taps", [3, 4])
def test_fewer_products(taps):
    """Windows of three pixels that stand there twice read two along each axis, and so on."""
    nodes = [
        helper.make_node("Upsample", ["x", "s"], ["r"], mode="nearest"),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[1] * 4),
    ]
    arrays = {"s": np.float32([1, 1, 2, 2]), "w": drawn(8, 8, taps, taps)}
    loaded = check_loaded(make_model(nodes, {"x": (1, 8, 6, 6)}, arrays, {"y": 4}, 9),
                          {"x": drawn(1, 8, 6, 6)})  # fmt: skip
    assert len(loaded.program.works) == 4
    side = 12 - taps + 3
    assert sum(layer.flops for layer in loaded.layers) < 0.7 * 2 * (8 * taps * side) ** 2


@st.composite
def transposed(draw):
    """A transposed convolution, and what follows it."""
    axes = draw(st.integers(1, 2))
    strides, taps, extents, gaps, cuts = (
        [draw(st.integers(low, high)) for _ in range(axes)]
        for low, high in ((1, 3), (1, 5), (3, 5), (1, 2), (0, 2))
    )
    more = [draw(st.integers(0, step - 1)) for step in strides]
    axis_ends = zip(strides, taps, extents, gaps, cuts, more, strict=True)
    out = [s * (n - 1) + gap * (k - 1) + 1 + m - 2 * cut for s, k, n, gap, cut, m in axis_ends]
    assume(min(out) > 0)
    groups = draw(st.sampled_from([1, 2, 4]))
    given_numbers = {"strides": strides, "dilations": gaps, "pads": cuts * 2, "group": groups}
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], output_padding=more,
                         **given_numbers),
        helper.make_node("Mul", ["c", "scale"], ["m"]),
        helper.make_node("Add", ["m", "other"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]  # fmt: skip
    arrays = {"w": drawn(4, 3, *taps), "b": drawn(3 * groups)}
    arrays["scale"] = drawn(3 * groups, *[1] * axes)
    inputs = {"x": (2, 4, *extents), "other": (2, 3 * groups, *out)}
    return make_model(nodes, inputs, arrays, {"y": 2 + axes}, 17), inputs


@given(made=transposed())
@examples(10, 25)
def test_transposed_convolutions(made):
    """Results are those of `conv_transpose`, and it is one layer, or tells why it is none."""
    model, inputs = made
    loaded = tilesolve.onnx.load(model)
    # ONNX's own operator has no groups.
    evaluator = ReferenceEvaluator(model, new_ops=tilesolve.onnx.operators())
    given_arrays = {name: drawn(*shape) for name, shape in inputs.items()}
    (expected,) = evaluator.run(None, given_arrays)
    for _ in range(2):
        np.testing.assert_allclose(loaded(given_arrays)["y"], expected, rtol=1e-4, atol=1e-5)
    if loaded.others:
        assert "some pixels of its result see no pixel" in loaded.others[0].reason
    else:
        assert loaded.count == "1 of 1 convolutions are layers"
        assert all(layer.has_residual for layer in loaded.layers)
