"""Whole networks as ONNX models, with random weights: built from their descriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.networks.files import import_onnx
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET, IR_VERSION = 17, 8


@dataclass(slots=True)
class NetworkWriter:
    """Writes the nodes and the arrays of a model.

    Parameters
    ----------
    shares
        Whether equal arrays are written once, and named again by Identity, as torch's exporter
        does.
    """

    shares: bool = False
    nodes: list[NodeProto] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    _first: dict[bytes, str] = field(default_factory=dict)
    _draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or the names."""
        at = len(self.nodes)
        names = [
            f"{kind.lower()}_{at}" + (f"_{one}" if outputs > 1 else "") for one in range(outputs)
        ]
        node = import_onnx().helper.make_node(kind, inputs, names, name=names[0], **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def array(self, values: Any, dtype: str = "float32") -> str:
        """Add an array; return its name."""
        array = np.asarray(values).astype(dtype)
        name = f"array_{len(self.arrays) + len(self.nodes)}"
        if self.shares:
            first = self._first.setdefault(array.tobytes(), name)
            if first != name:
                return str(self.add("Identity", first))
        self.arrays[name] = array
        return name

    def weights(self, *shape: int, reads: int) -> str:
        """Add weights that keep the variance of what they are applied to."""
        return self.array(self._draw.standard_normal(shape) * sqrt(2 / reads))

    def bias(self, count: int) -> str:
        """Add a number for each channel."""
        scale = 0.0 if self.shares else 0.1
        return self.array(scale * self._draw.standard_normal(count))

    def conv(
        self,
        x: str,
        channels: int,
        filters: int,
        window: int,
        stride: int = 1,
        groups: int = 1,
        pad: int | None = None,
    ) -> str:
        """Add a convolution with a bias."""
        pad = window // 2 if pad is None else pad
        reads = channels // groups * window**2
        w = self.weights(filters, channels // groups, window, window, reads=reads)
        given: dict[str, Any] = {"pads": [pad] * 4, "strides": [stride] * 2, "group": groups}
        return str(self.add("Conv", x, w, self.bias(filters), kernel_shape=[window] * 2, **given))

    def linear(self, x: str, channels: int, filters: int) -> str:
        """Add a product with constant weights, and a bias."""
        w = self.weights(channels, filters, reads=2 * channels)
        return str(self.add("Add", self.add("MatMul", x, w), self.bias(filters)))

    def silu(self, x: str) -> str:
        """Add x times its sigmoid."""
        return str(self.add("Mul", x, self.add("Sigmoid", x)))

    def gelu(self, x: str) -> str:
        """Add a GELU as exporters write it where ONNX had none."""
        erf = self.add("Erf", self.add("Div", x, self.array(sqrt(2))))
        product = self.add("Mul", x, self.add("Add", erf, self.array(1.0)))
        return str(self.add("Mul", product, self.array(0.5)))

    def norm(self, x: str, channels: int) -> str:
        """Add a normalisation of the last axis."""
        scale = self.array(1 + 0.1 * self._draw.standard_normal(channels))
        return str(
            self.add("LayerNormalization", x, scale, self.bias(channels), axis=-1, epsilon=1e-6)
        )

    def classify(self, x: str, channels: int) -> str:
        """Add the mean of each channel, and a product with a thousand results."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        w = self.weights(1000, channels, reads=2 * channels)
        return str(self.add("Gemm", flat, w, self.bias(1000), transB=1))

    def model(self, name: str, image: tuple[int, ...], result: str) -> ModelProto:
        """Return the model."""
        onnx = import_onnx()
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            self.nodes,
            name,
            [value("image", kind, image)],
            [value(result, kind, None)],
            [onnx.numpy_helper.from_array(one, x) for x, one in self.arrays.items()],
        )
        return onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )


def _resnet(write: NetworkWriter, size: int, blocks: tuple[int, ...], *, wide: bool) -> ModelProto:
    x = write.add("Relu", write.conv("image", 3, 64, 7, 2))
    x = write.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, count in enumerate(blocks):
        inner = 64 * 2**stage
        filters = 4 * inner if wide else inner
        for at in range(count):
            stride = 2 if stage and not at else 1
            if wide:
                y = write.add("Relu", write.conv(x, channels, inner, 1))
                y = write.add("Relu", write.conv(y, inner, inner, 3, stride))
                y = write.conv(y, inner, filters, 1)
            else:
                y = write.add("Relu", write.conv(x, channels, filters, 3, stride))
                y = write.conv(y, filters, filters, 3)
            if stride > 1 or channels != filters:
                x = write.conv(x, channels, filters, 1, stride)
            x, channels = write.add("Relu", write.add("Add", y, x)), filters
    return write.model("resnet", (1, 3, size, size), write.classify(x, channels))


def resnet18(write: NetworkWriter, size: int) -> ModelProto:
    """Return ResNet-18."""
    return _resnet(write, size, (2, 2, 2, 2), wide=False)


def resnet50(write: NetworkWriter, size: int) -> ModelProto:
    """Return ResNet-50."""
    return _resnet(write, size, (3, 4, 6, 3), wide=True)


def mobilenet_v2(write: NetworkWriter, size: int) -> ModelProto:
    """Return MobileNetV2."""

    def clip(x: str) -> str:
        return str(write.add("Clip", x, write.array(0.0), write.array(6.0)))

    x, channels = clip(write.conv("image", 3, 32, 3, 2)), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for factor, filters, count, first in (*table, (6, 160, 3, 2), (6, 320, 1, 1)):
        for at in range(count):
            stride, inner = first if not at else 1, channels * factor
            y = clip(write.conv(x, channels, inner, 1)) if factor > 1 else x
            y = clip(write.conv(y, inner, inner, 3, stride, groups=inner))
            y = write.conv(y, inner, filters, 1)
            x = write.add("Add", x, y) if stride == 1 and channels == filters else y
            channels = filters
    x = clip(write.conv(x, channels, 1280, 1))
    return write.model("mobilenet", (1, 3, size, size), write.classify(x, 1280))


def squeezenet(write: NetworkWriter, size: int) -> ModelProto:
    """Return SqueezeNet 1.1."""

    def pool(x: str) -> str:
        return str(write.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))

    def fire(x: str, channels: int, squeeze: int, expand: int) -> str:
        x = write.add("Relu", write.conv(x, channels, squeeze, 1))
        parts = [write.add("Relu", write.conv(x, squeeze, expand, n)) for n in (1, 3)]
        return str(write.add("Concat", *parts, axis=1))

    x = pool(write.add("Relu", write.conv("image", 3, 64, 3, 2, pad=0)))
    x = pool(fire(fire(x, 64, 16, 64), 128, 16, 64))
    x = pool(fire(fire(x, 128, 32, 128), 256, 32, 128))
    for channels, squeeze, expand in (
        (256, 48, 192),
        (384, 48, 192),
        (384, 64, 256),
        (512, 64, 256),
    ):
        x = fire(x, channels, squeeze, expand)
    x = write.add("Relu", write.conv(x, 512, 1000, 1))
    x = write.add("Flatten", write.add("GlobalAveragePool", x))
    return write.model("squeezenet", (1, 3, size, size), x)


def efficientnet_b0(write: NetworkWriter, size: int) -> ModelProto:
    """Return EfficientNet-B0: SiLU, and squeeze and excitation."""
    x, channels = write.silu(write.conv("image", 3, 32, 3, 2)), 32
    table = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
    for factor, filters, count, first, window in (
        *table,
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for at in range(count):
            stride, inner = first if not at else 1, channels * factor
            y = write.silu(write.conv(x, channels, inner, 1)) if factor > 1 else x
            y = write.silu(write.conv(y, inner, inner, window, stride, groups=inner))
            few = max(1, channels // 4)
            gate = write.silu(write.conv(write.add("GlobalAveragePool", y), inner, few, 1))
            gate = write.add("Sigmoid", write.conv(gate, few, inner, 1))
            y = write.conv(write.add("Mul", y, gate), inner, filters, 1)
            x = write.add("Add", y, x) if stride == 1 and channels == filters else y
            channels = filters
    x = write.silu(write.conv(x, channels, 1280, 1))
    return write.model("efficientnet", (1, 3, size, size), write.classify(x, 1280))


def convnext_t(write: NetworkWriter, size: int) -> ModelProto:
    """Return ConvNeXt-T: windows of 7 x 7 by channel, GELU and layer normalisation."""
    order = ([0, 2, 3, 1], [0, 3, 1, 2])

    def normed(x: str, channels: int) -> str:
        last = write.norm(write.add("Transpose", x, perm=order[0]), channels)
        return str(write.add("Transpose", last, perm=order[1]))

    x = normed(write.conv("image", 3, 96, 4, 4, pad=0), 96)
    for stage, count in enumerate((3, 3, 9, 3)):
        channels = 96 * 2**stage
        if stage:
            x = write.conv(normed(x, channels // 2), channels // 2, channels, 2, 2, pad=0)
        for _ in range(count):
            y = write.conv(x, channels, channels, 7, groups=channels)
            y = write.norm(write.add("Transpose", y, perm=order[0]), channels)
            y = write.gelu(write.linear(y, channels, 4 * channels))
            y = write.add("Transpose", write.linear(y, 4 * channels, channels), perm=order[1])
            scale = write.array(np.full((channels, 1, 1), 0.5))
            x = write.add("Add", write.add("Mul", y, scale), x)
    x = write.add("GlobalAveragePool", x)
    x = write.norm(write.add("Flatten", x), 768)
    return write.model("convnext", (1, 3, size, size), write.linear(x, 768, 1000))


def transformer(write: NetworkWriter, size: int) -> ModelProto:
    """Return a small encoder of patches of images: 6 layers of 192 channels with 3 heads."""
    count, width, heads = (size // 16) ** 2, 192, 3
    x = write.conv("image", 3, width, 16, 16, pad=0)
    shape = write.array([1, width, count], "int64")
    x = write.add("Transpose", write.add("Reshape", x, shape), perm=[0, 2, 1])
    x = write.add("Add", x, write.array(0.1 * np.ones((1, count, width))))
    split = write.array([1, count, heads, width // heads], "int64")
    whole = write.array([1, count, width], "int64")
    for _ in range(6):
        y = write.norm(x, width)
        parts = []
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            part = write.add("Reshape", write.linear(y, width, width), split)
            parts.append(write.add("Transpose", part, perm=order))
        q, k, v = parts
        scores = write.add("Mul", write.add("MatMul", q, k), write.array(1 / sqrt(width // heads)))
        y = write.add("MatMul", write.add("Softmax", scores, axis=-1), v)
        y = write.add("Reshape", write.add("Transpose", y, perm=[0, 2, 1, 3]), whole)
        x = write.add("Add", write.linear(y, width, width), x)
        y = write.gelu(write.linear(write.norm(x, width), width, 4 * width))
        x = write.add("Add", write.linear(y, 4 * width, width), x)
    x = write.add("ReduceMean", write.norm(x, width), axes=[1], keepdims=0)
    return write.model("transformer", (1, 3, size, size), write.linear(x, width, 1000))


def u_net(write: NetworkWriter, size: int) -> ModelProto:
    """Return a U-Net of four levels, whose images grow by their nearest neighbours."""

    def twice(x: str, channels: int, filters: int) -> str:
        x = write.add("Relu", write.conv(x, channels, filters, 3))
        return str(write.add("Relu", write.conv(x, filters, filters, 3)))

    widths, kept = (16, 32, 64, 128), []
    x, channels = "image", 3
    for at, width in enumerate(widths):
        x, channels = twice(x, channels, width), width
        if at < len(widths) - 1:
            kept.append(x)
            x = write.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    scales = write.array([1.0, 1.0, 2.0, 2.0])
    for width, skip in zip(widths[-2::-1], kept[::-1], strict=True):
        x = write.add(
            "Resize",
            x,
            "",
            scales,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
        x = write.add("Concat", skip, write.conv(x, channels, width, 3), axis=1)
        x, channels = twice(x, 2 * width, width), width
    return write.model("u-net", (1, 3, size, size), write.conv(x, channels, 2, 1))


NETWORKS: dict[str, Callable[[NetworkWriter, int], ModelProto]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenetv2": mobilenet_v2,
    "squeezenet": squeezenet,
    "efficientnet-b0": efficientnet_b0,
    "convnext-t": convnext_t,
    "transformer": transformer,
    "u-net": u_net,
}
"""What writes each network, given the side of its images."""


def write_network(name: str, size: int = 224, *, shares: bool = False) -> ModelProto:
    """Return a network as a model.

    Parameters
    ----------
    name
        One of `NETWORKS`.
    size
        Pixels of a side of an image.
    shares
        Whether equal arrays are written once.
    """
    return NETWORKS[name](NetworkWriter(shares=shares), size)
