"""Networks as torch exports them, with few channels: equal arrays once, and Identity for others."""

from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tilesolve import onnx

KINDS = {"s": TensorProto.INT64, "go": TensorProto.BOOL}
"""Kinds of inputs by name; the others are float32."""


def make_model(nodes, inputs, arrays, outputs=None, opset=17, versions=(), **more):
    """A model of nodes, shapes of inputs, arrays that are part of it, and numbers of axes."""
    value = helper.make_tensor_value_info
    ends = (outputs or {"y": None}).items()
    graph = helper.make_graph(
        nodes,
        "graph",
        [value(name, KINDS.get(name, TensorProto.FLOAT), shape) for name, shape in inputs.items()],
        [value(name, TensorProto.FLOAT, None if n is None else [None] * n) for name, n in ends],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    versions = [helper.make_opsetid("", opset), *versions]
    return helper.make_model(graph, opset_imports=versions, ir_version=8, **more)


def check_loaded(made, given):
    """Load a model, and hold all of its outputs to those of ONNX's own evaluator.

    The second call makes those of compiled code one after another.
    """
    loaded = onnx.load(made)
    expected = ReferenceEvaluator(made).run(None, given)
    for found in (loaded(given), loaded(given)):
        for one, other in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return loaded


@dataclass
class Network:
    """Nodes and arrays of a model; its numbers are those of a dtype that may be narrower."""

    dtype: str
    narrow: str
    opset: int = 22
    images: int = 32
    shares: bool = True
    folds: bool = True
    nodes: list = field(default_factory=list)
    arrays: dict = field(default_factory=dict)
    shared: dict = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def add(self, kind, *inputs, **attributes):
        """Add a node; return the name of its result."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def array(self, values, share=False):
        """Add an array: one that was there already gets another name by Identity."""
        name = f"array_{len(self.arrays) + len(self.nodes)}"
        values = np.asarray(values).astype(self.narrow)
        if share and self.shares:
            first = self.shared.setdefault(values.tobytes(), name)
            if first != name:
                return self.add("Identity", first)
        self.arrays[name] = values
        return name

    def conv(self, x, channels, filters, window, stride=1, groups=1):
        """Add a convolution: with a bias of zeros, or a batch normalisation."""
        shape = (filters, channels // groups, window, window)
        weights = self.array(self.rng.standard_normal(shape) / np.sqrt(shape[1] * window**2))
        given = {
            **{"pads": [window // 2] * 4, "strides": [stride] * 2, "group": groups},
            **{"kernel_shape": [window] * 2, "dilations": [1, 1]},
        }
        if self.folds:
            return self.add("Conv", x, weights, self.array(np.zeros(filters), share=True), **given)
        y = self.add("Conv", x, weights, **given)
        parts = [np.ones(filters), np.zeros(filters), np.zeros(filters), np.ones(filters)]
        norm = [self.array(one, share=True) for one in parts]
        return self.add("BatchNormalization", y, *norm, epsilon=1e-5)

    def model(self, y, filters):
        """Return the model, with pooling and a classifier behind its convolutions."""
        y = self.add("Flatten", self.add("GlobalAveragePool", y))
        weights = self.array(self.rng.standard_normal((5, filters)))
        y = self.add("Gemm", y, weights, self.array(np.zeros(5), share=True), transB=1)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "network",
            [value("image", kind, (1, 3, self.images, self.images))],
            [value(y, kind, (1, 5))],
            [numpy_helper.from_array(a.astype(self.dtype), n) for n, a in self.arrays.items()],
        )
        versions = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=versions, ir_version=10)


def resnet18(network):
    """A ResNet-18 of 4 to 32 channels: 20 convolutions."""
    x = network.add("Relu", network.conv("image", 3, 4, 7, 2))
    x = network.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 4
    for filters in (4, 8, 16, 32):
        for stride in (1 if filters == 4 else 2, 1):
            y = network.add("Relu", network.conv(x, channels, filters, 3, stride))
            y = network.conv(y, filters, filters, 3)
            if stride > 1 or channels != filters:
                x = network.conv(x, channels, filters, 1, stride)
            x = network.add("Relu", network.add("Add", y, x))
            channels = filters
    return network.model(x, channels)


MOBILENET_STAGES = (
    *((1, 2, 1, 1), (6, 3, 2, 2), (6, 4, 3, 2), (6, 8, 4, 2), (6, 12, 3, 1)),
    *((6, 20, 3, 2), (6, 40, 1, 1)),
)
"""How many times as wide blocks are within, their filters, how many there are, and the stride."""


def mobilenet_v2(network):
    """A MobileNetV2 of 4 to 160 channels: 52 convolutions, 17 of them depthwise."""
    clip = lambda x: network.add(  # noqa: E731
        "Clip",
        x,
        network.array(np.array(0.0), share=True),
        network.array(np.array(6.0), share=True),
    )
    channels = 4
    x = clip(network.conv("image", 3, channels, 3, 2))
    for factor, filters, count, first in MOBILENET_STAGES:
        for stride in (first, *[1] * (count - 1)):
            wide, y = channels * factor, x
            if factor > 1:
                y = clip(network.conv(x, channels, wide, 1))
            y = clip(network.conv(y, wide, wide, 3, stride, groups=wide))
            y = network.conv(y, wide, filters, 1)
            x = network.add("Add", x, y) if stride == 1 and channels == filters else y
            channels = filters
    x = clip(network.conv(x, channels, 160, 1))
    return network.model(x, 160)
