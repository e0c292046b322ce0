"""Run a ResNet-18 with random weights: its convolutions are our layers.

The result is compared to ONNX Runtime's where that is installed, else to ONNX's own evaluator, and
the times stand beside each other. Needs the extra ``onnx``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilesolve

OPSET, IR = 17, 9


@dataclass
class Builder:
    """Collects the nodes and the random weights of a model."""

    generator: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return the name of its result."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values: np.ndarray[Any, Any]) -> str:
        """Add an array that is part of the model."""
        name = f"weights{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, channels: int, filters: int, window: int, stride: int = 1) -> str:
        """Add a convolution with a batch normalisation; results have the variance of images."""
        shape = (filters, channels, window, window)
        scale = np.sqrt(2 / (channels * window**2))
        w = self.constant(scale * self.generator.standard_normal(shape))
        pads, strides = [window // 2] * 4, [stride] * 2
        y = self.node("Conv", x, w, pads=pads, strides=strides, kernel_shape=[window] * 2)
        gamma, var = (self.generator.uniform(0.5, 1, filters) for _ in range(2))
        beta, mean = 0.1 * self.generator.standard_normal((2, filters))
        return self.node("BatchNormalization", y, *map(self.constant, (gamma, beta, mean, var)))

    def block(self, x: str, channels: int, filters: int, stride: int) -> str:
        """Add two convolutions and what goes past them."""
        y = self.node("Relu", self.conv(x, channels, filters, 3, stride))
        y = self.conv(y, filters, filters, 3)
        if stride > 1 or channels != filters:
            x = self.conv(x, channels, filters, 1, stride)
        return self.node("Relu", self.node("Add", y, x))


def resnet18(size: int, seed: int = 0) -> onnx.ModelProto:
    """Return a ResNet-18 for square images of some size."""
    build = Builder(np.random.default_rng(seed))
    x = build.node("Relu", build.conv("image", 3, 64, 7, 2))
    x = build.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters in (64, 128, 256, 512):
        for stride in (1 if filters == 64 else 2, 1):
            x = build.block(x, channels, filters, stride)
            channels = filters
    x = build.node("Flatten", build.node("GlobalAveragePool", x))
    last = build.constant(0.05 * build.generator.standard_normal((1000, 512)))
    bias = build.constant(np.zeros(1000))
    x = build.node("Gemm", x, last, bias, transB=1)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        build.nodes,
        "ResNet-18",
        [value("image", TensorProto.FLOAT, (1, 3, size, size))],
        [value(x, TensorProto.FLOAT, (1, 1000))],
        build.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def run_peer(model: onnx.ModelProto) -> tuple[str, Callable[[dict[str, Any]], Any]]:
    """Return another way to run a model, and its name."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
        return "onnx's evaluator", lambda given: evaluator.run(None, given)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return "ONNX Runtime", lambda given: session.run(None, given)


def best(call: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the fastest of some runs."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(arguments: Sequence[str] | None = None) -> float:
    """Compare and time; return how far results are apart, of the largest one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side of the image")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)

    model = resnet18(given.size)
    ours = tilesolve.onnx.load(model, threads=1)
    print(ours)
    shape = (1, 3, given.size, given.size)
    image = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (result,) = ours({"image": image}).values()
    name, peer = run_peer(model)
    (expected,) = peer({"image": image})
    error = float(abs(result - expected).max() / abs(expected).max())
    print(f"largest difference to {name}: {error:.1e} of the largest result")

    inputs = [np.empty(layer.convolution.x_shape, np.float32) for layer in ours.layers]
    for array in inputs:
        array.fill(0.5)
    added = [
        np.ones(layer.out_shape, np.float32) if layer.has_residual else None
        for layer in ours.layers
    ]

    def run_layers() -> None:
        for layer, x, residual in zip(ours.layers, inputs, added, strict=True):
            layer(x, residual=residual)

    whole = best(lambda: ours({"image": image}), given.rounds)
    convolutions, theirs = (
        best(run_layers, given.rounds),
        best(lambda: peer({"image": image}), given.rounds),
    )
    print(f"our {len(ours.layers)} layers alone: {1e3 * convolutions:.1f} ms")
    print(f"the whole model: {1e3 * whole:.1f} ms; {name}: {1e3 * theirs:.1f} ms")
    return error


if __name__ == "__main__":
    main()
