"""Squeeze and excitation: layers of single pixels have the scales of what they read."""

import numpy as np
import pytest

import tilesolve

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import make_model  # noqa: E402

from tilesolve.networks.scales import ScaledWork  # noqa: E402

RNG = np.random.default_rng(0)


def random(*shape):
    """Random numbers of a shape."""
    return RNG.standard_normal(shape).astype(np.float32)


def excited(channels, filters, side, *, batch=1, swap=False, reads=1, window=1, bare=False):
    """A layer behind images that are scaled by what their means give, and what follows it."""
    node = helper.make_node
    given = ["g", "h"] if swap else ["h", "g"]
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("GlobalAveragePool", ["h"], ["m"]),
        node("Conv", ["m", "v"], ["e"]),
        node("HardSigmoid", ["e"], ["g"]),
        node("Mul", given, ["s"]),
        node("Conv", ["s", "w", "b"], ["y" if bare else "c"], pads=[window // 2] * 4),
        *([] if bare else [node("Add", ["c", "r"], ["a"]), node("Relu", ["a"], ["y"])]),
        *(node("Neg", ["s"], ["z"]) for _ in range(reads - 1)),
    ]
    shapes = {"x": (batch, channels, side, side)}
    if not bare:
        shapes["r"] = (batch, filters, side, side)
    arrays = {
        "v": random(channels, channels, 1, 1),
        "w": random(filters, channels, window, window),
        "b": random(filters),
    }
    ends = {"y": 4} | ({"z": 4} if reads > 1 else {})
    return make_model(nodes, shapes, arrays, ends), {n: random(*s) for n, s in shapes.items()}


def check(made, given, threads=1):
    """Load a model that gives what ONNX's evaluator gives; return its scaled layers."""
    loaded = tilesolve.onnx.load(made, threads=threads)
    expected = ReferenceEvaluator(made).run(None, given)
    for found in (loaded(given), loaded(given)):
        for one, other in zip(found.values(), expected, strict=True):
            assert abs(one - other).max() <= 1e-5 * abs(other).max()
    return loaded, [one for one in loaded.program.works if isinstance(one, ScaledWork)]


@pytest.mark.parametrize(
    ("channels", "filters", "side", "threads", "more"),
    [
        (16, 7, 24, 1, {}),
        (33, 16, 25, 2, {"swap": True}),
        (5, 17, 24, 1, {"bare": True}),
    ],
)
def test_weights_are_scaled(channels, filters, side, threads, more):
    """Of large images, whichever operand the scales are; the report and the layer say so."""
    loaded, (work,) = check(*excited(channels, filters, side, **more), threads)
    assert "fused with 'g'" in str(loaded)
    assert not [one for one in loaded.program.works if str(one) == "Mul"]
    assert loaded.count == "2 of 2 convolutions are layers"
    assert work.layer._weights.shape == (filters, channels, 1, 1)


@pytest.mark.usefixtures("planned_at_once")
@pytest.mark.parametrize(
    ("side", "more"),
    [(3, {}), (24, {"batch": 2}), (24, {"reads": 2}), (24, {"window": 3})],
)
def test_images_are_scaled(side, more):
    """Of fewer pixels than filters, of several images, of what others read, and of windows."""
    assert check(*excited(4, 9, side, **more))[1] == []
