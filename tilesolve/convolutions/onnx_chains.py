"""Convolutions of ONNX models that can be layers, with what follows them, and those that cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.convolutions.batch_norm import BatchNorm
from tilesolve.convolutions.layer import ConvLayer, conv_layer
from tilesolve.convolutions.onnx_files import attributes_of, inner_graphs, read_arguments
from tilesolve.convolutions.onnx_graph import names_read
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


@dataclass(frozen=True, slots=True)
class OtherConvolution:
    """A convolution of a model that is no layer: its weights are packed in each call.

    `name` is that of the node, or of its result where it has none; `operator` is ``"Conv"`` or
    ``"ConvTranspose"``; `reason` says why it is no layer.

    Examples
    --------
    >>> print(OtherConvolution("c1", "Conv", "its weights 'w' are an input"))
    Conv 'c1' is no layer: its weights 'w' are an input
    """

    name: str
    operator: str
    reason: str

    @classmethod
    def of(cls, node: NodeProto, reason: str) -> OtherConvolution:
        """Return what is said of a node."""
        return cls(node.name or node.output[0], node.op_type, reason)

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r} is no layer: {self.reason}"


@dataclass(slots=True)
class Chain:
    """A Conv, and what follows it until something else reads a result or its kind is not known.

    The Conv is the first of `nodes`; `residual` is the name of the array that is added;
    `activation` is as `conv_layer` takes it.
    """

    nodes: list[NodeProto]
    weights: Array
    bias: Array | None
    norm: BatchNorm | None = None
    residual: str | None = None
    activation: str = ""

    @property
    def result(self) -> str:
        """The name of what the chain gives."""
        return str(self.nodes[-1].output[0])

    def layer(self, shapes: Mapping[str, tuple[int, ...]], threads: int | None) -> ConvLayer:
        """Return the layer that computes the chain."""
        conv = self.nodes[0]
        x_shape = shapes[conv.input[0]]
        return conv_layer(
            x_shape,
            self.weights,
            self.bias,
            **read_arguments(attributes_of(conv), x_shape, self.weights.shape),
            batch_norm=self.norm,
            residual=self.residual is not None,
            epilogue=self.activation,
            threads=threads,
        )

    def take(
        self,
        node: NodeProto,
        constants: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> bool:
        """Add the node that reads the chain's result, if it can be part of the layer."""
        result, given = self.result, attributes_of(node)
        if node.op_type == "BatchNormalization":
            if self.residual or self.activation or self.norm or given.get("training_mode"):
                return False
            if result != node.input[0] or any(name not in constants for name in node.input[1:]):
                return False
            gamma, beta, mean, var = (constants[name] for name in node.input[1:])
            self.norm = (gamma, beta, mean, var, given.get("epsilon", 1e-5))
        elif node.op_type == "Add" and not (self.residual or self.activation):
            (other,) = [name for name in node.input if name != result] or (result,)
            if other == result or shapes.get(other) != shapes.get(result):
                return False
            self.residual = other
        elif not self.activation and (text := _activation(node, given, constants)):
            self.activation = text
        else:
            return False
        self.nodes.append(node)
        return True


def _activation(node: NodeProto, given: Mapping[str, Any], constants: Mapping[str, Array]) -> str:
    """Return a node as an activation of `conv_layer`; nothing if it is none."""
    if node.op_type in ("Relu", "Sigmoid", "Tanh"):
        return str(node.op_type.lower())
    if node.op_type == "LeakyRelu":
        return f"leaky({given.get('alpha', 0.01)!r})"
    if node.op_type != "Clip":
        return ""
    bounds = [given.get("min", -np.inf), given.get("max", np.inf)]
    for at, name in enumerate(node.input[1:]):
        if not name:
            continue
        if name not in constants:
            return ""
        bounds[at] = constants[name].item()
    return "clip({},{})".format(*(repr(float(bound)) for bound in bounds))


def find_chains(
    graph: GraphProto, constants: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[Chain], list[OtherConvolution]]:
    """Return the chains of a graph, whose weights are part of the model; and what is none."""
    uses = Counter(name for node in graph.node for name in names_read(node))
    uses.update(one.name for one in graph.output)
    readers = {name: node for node in graph.node for name in node.input}
    makers = {name: node.op_type for node in graph.node for name in node.output}
    taken: set[str] = set()
    found: list[Chain] = []
    others: list[OtherConvolution] = []
    for node in graph.node:
        others += _within(node)
        if node.op_type not in ("Conv", "ConvTranspose"):
            continue
        if reason := _reason(node, constants, shapes, makers):
            others.append(OtherConvolution.of(node, reason))
            continue
        bias = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else None
        chain = Chain([node], constants[node.input[1]], bias)
        while uses[chain.result] == 1 and chain.result in readers:
            reader = readers[chain.result]
            if reader.output[0] in taken or not chain.take(reader, constants, shapes):
                break
        taken.update(one.output[0] for one in chain.nodes)
        found.append(chain)
    return found, others


def _reason(
    node: NodeProto,
    constants: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    makers: Mapping[str, str],
) -> str:
    """Return why a convolution can be no layer; nothing if it can."""
    if node.op_type == "ConvTranspose":
        return "it is transposed, and runs as several convolutions"
    for what, name in zip(("weights", "bias"), node.input[1:], strict=False):
        if name and name not in constants:
            origin = f"the result of {makers[name]}" if name in makers else "an input"
            return f"its {what} {name!r} {'are' if what == 'weights' else 'is'} {origin}"
    if node.input[0] not in shapes:
        return f"the shape of {node.input[0]!r} is not known before it runs"
    return ""


def _within(node: NodeProto) -> Iterator[OtherConvolution]:
    """Yield the convolutions in the graphs that a node has."""
    for graph in inner_graphs(node):
        for one in graph.node:
            if one.op_type in ("Conv", "ConvTranspose"):
                where = f"it stands within {node.op_type} {node.name or node.output[0]!r}"
                yield OtherConvolution.of(one, where)
            yield from _within(one)
