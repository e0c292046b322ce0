"""Layers of small groups in networks: statements that read images with zeros around them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import make_model  # noqa: E402

from tilesolve.nests.plan import NestPlan  # noqa: E402
from tilesolve.networks.works import LayerWork  # noqa: E402

pytestmark = pytest.mark.usefixtures("planned_at_once")

LANES = 16
"""Numbers of float32 in the widest vectors."""


@st.composite
def layers(draw):
    """Nodes of a layer behind a Relu, its arrays by name, and the shape of images."""
    sides = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    window = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    gaps, strides = (draw(st.tuples(st.integers(1, 2), st.integers(1, 3))) for _ in range(2))
    ends = draw(st.tuples(*(st.integers(0, 2) for _ in range(4))))
    reach = [(side - 1) * gap + 1 for side, gap in zip(window, gaps, strict=True)]
    if any(n + ends[at] + ends[at + 2] < reach[at] for at, n in enumerate(sides)):
        ends = [side - 1 for side in reach] * 2
    per_group, groups = draw(st.sampled_from([(1, LANES - 1), (1, LANES), (1, LANES + 1), (4, 3)]))
    filters = per_group * groups if per_group > 1 or draw(st.booleans()) else groups
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    arrays = {"w": rng.standard_normal((filters, per_group, *window))}
    if draw(st.booleans()):
        arrays["b"] = rng.standard_normal(filters)
    given = {"pads": ends, "strides": strides, "dilations": gaps, "group": groups}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", *arrays], ["c"], **given),
    ]
    nodes.append(
        helper.make_node(draw(st.sampled_from(["Relu", "Sigmoid", "Identity"])), ["c"], ["y"])
    )
    return nodes, arrays, (draw(st.integers(1, 2)), per_group * groups, *sides)


@examples(3, 6)
@given(layers())
def test_layers_of_small_groups(layer):
    """With any window, stride, dilation and padding, after whatever else the arena held."""
    nodes, arrays, shape = layer
    window = arrays["w"].shape[2:]
    narrow = {name: one.astype(np.float32) for name, one in arrays.items()}
    loaded = tilesolve.onnx.load(make_model(nodes, {"x": shape}, narrow))
    (made,) = loaded.layers
    if window != (1, 1):
        assert isinstance(made.plan, NestPlan)
        assert not any(map(any, made.convolution.padding))
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wide = {name: one.astype(np.float64) for name, one in narrow.items()}
    model = make_model(nodes, {"x": shape}, wide)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x.astype(np.float64)})
    for _ in range(2):
        (found,) = loaded(x).values()
        assert abs(found - expected).max() <= 1e-5 * max(abs(expected).max(), 1)
        loaded._recent.bound.inputs["x"].base.fill(255)


@pytest.mark.parametrize("weights", [(4, 1, 11, 10), (6, 1, 3, 3), (6, 3, 3, 3)])
def test_other_groups_are_layers(weights):
    """Windows of many taps, and groups of two or three filters."""
    filters, channels, *_ = weights
    groups = 4 if filters == 4 else filters // 3 if channels == 1 else 2
    shape = (1, channels * groups, 4, 4)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[5] * 4, group=groups),
    ]
    loaded = tilesolve.onnx.load(
        make_model(nodes, {"x": shape}, {"w": np.ones(weights, np.float32)})
    )
    (made,) = loaded.layers
    assert not isinstance(made.plan, NestPlan)


def test_images_of_one_pixel():
    """Whose order in memory is any: there are zeros around them, too."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[1] * 4, strides=[2, 2], group=5),
    ]
    made = make_model(nodes, {"x": (1, 5, 1, 1)}, {"w": np.ones((5, 1, 2, 2), np.float32)})
    x = np.arange(5, dtype=np.float32).reshape(1, 5, 1, 1)
    (found,) = tilesolve.onnx.load(made)(x).values()
    np.testing.assert_array_equal(found, x)


def test_grouped_blocks_of_a_network():
    """Groups of four channels between products, with a residual, are right and written once."""
    rng, shape = np.random.default_rng(2), (1, 32, 6, 7)
    arrays = {
        **{"u": rng.standard_normal((32, 32, 1, 1)), "d": rng.standard_normal((32, 32, 1, 1))},
        **{"w": rng.standard_normal((32, 4, 3, 3)), "b": rng.standard_normal(32)},
    }
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["p"]),
        helper.make_node("Conv", ["p", "w", "b"], ["c"], pads=[1] * 4, group=8),
        helper.make_node("Add", ["c", "p"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["y"]),
    ]
    narrow = {name: one.astype(np.float32) for name, one in arrays.items()}
    made = make_model(nodes, {"x": shape}, narrow)
    loaded = tilesolve.onnx.load(made)
    works = [one for one in loaded.program.works if isinstance(one, LayerWork)]
    (work,) = [one for one in works if isinstance(one.layer.plan, NestPlan)]
    assert work.residual is not None
    assert str(work).endswith(", by a nest")
    x = rng.standard_normal(shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    for _ in range(2):
        (found,) = loaded(x).values()
        assert abs(found - expected).max() <= 1e-4 * abs(expected).max()


@pytest.mark.parametrize("ends_last", [False, True])
def test_products_write_between_zeros(ends_last):
    """A product's rows are pixels where windows by channel read them: nothing is copied."""
    rng, shape, arrays = np.random.default_rng(3), (2, LANES + 1, 5, 6), {}
    nodes = [helper.make_node("Relu", ["x"], ["r0"])]
    for at in range(3):
        arrays |= {f"w{at}": rng.standard_normal((LANES + 1, 1, 3, 3))}
        arrays |= {f"m{at}": rng.standard_normal((LANES + 1, LANES + 1))}
        nodes += [
            helper.make_node(
                "Conv", [f"r{at}", f"w{at}"], [f"c{at}"], pads=[1] * 4, group=LANES + 1
            ),
            helper.make_node("Transpose", [f"c{at}"], [f"t{at}"], perm=[0, 2, 3, 1]),
            helper.make_node("MatMul", [f"t{at}", f"m{at}"], [f"p{at}"]),
            helper.make_node("Transpose", [f"p{at}"], [f"q{at}"], perm=[0, 3, 1, 2]),
            helper.make_node("Add", [f"q{at}", f"r{at}"], [f"r{at + 1}"]),
        ]
    nodes.append(
        helper.make_node("Transpose", ["r3"], ["y"], perm=[0, 2, 3, 1])
        if ends_last
        else helper.make_node("Sigmoid", ["r3"], ["y"])
    )
    narrow = {name: (one / 4).astype(np.float32) for name, one in arrays.items()}
    made = make_model(nodes, {"x": shape}, narrow)
    loaded = tilesolve.onnx.load(made)
    assert not any(str(work) == "copy" for work in loaded.program.works)
    x = rng.standard_normal(shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    for _ in range(2):
        (found,) = loaded(x).values()
        assert abs(found - expected).max() <= 1e-5 * abs(expected).max()
        loaded._recent.bound.inputs["x"].base.fill(255)
