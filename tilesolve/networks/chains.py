"""Layers: convolutions and products with constant weights, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.contractions.convolution import Convolution
from tilesolve.convolutions.layer_plans import LayerRequest, read_activation
from tilesolve.convolutions.transposed import group_filters
from tilesolve.machine.model import Machine
from tilesolve.networks.files import inner_graphs, read_arguments, read_transposed_arguments
from tilesolve.networks.graph import Network, Node
from tilesolve.networks.phases import Phase, Split, Transposed, look_through_repeats
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import NodeProto

LAYER_DTYPES = ("float32", "float64", "float16", "bfloat16")

CONVOLUTIONS = ("Conv", "ConvTranspose")

ACTIVATIONS = {
    **{"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Silu": "silu", "Gelu": "gelu"},
}
"""Operators that are activations of layers."""


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

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r} is no layer: {self.reason}"


@dataclass(slots=True, eq=False)
class Chain:
    """A convolution or a product, and what follows until something else reads a result.

    Parameters
    ----------
    nodes
        The convolution first.
    weights, bias
        As `conv_layer` takes them; those of a product are of windows of one pixel.
    order
        The axes of the first node's result, in the order that the chain's result has them.
    residual, residual_order
        The name of the array that is added, and the order of its axes.
    activation
        As `conv_layer` takes it.
    split
        How the convolution is several, if it is.
    is_image
        Whether a product's rows are pixels along two axes or more: its result lies among others.
    """

    nodes: list[Node]
    weights: Array
    bias: Array | None
    order: tuple[int, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    residual: str | None = None
    residual_order: tuple[int, ...] = ()
    activation: str = ""
    split: Split | None = None
    is_image: bool = False

    @property
    def result(self) -> str:
        """The name of what the chain gives."""
        return self.nodes[-1].outputs[0]

    @property
    def axis(self) -> int:
        """The axis of the result along which its channels are."""
        return self.order.index(len(self.order) - 1 if self.is_product else 1)

    @property
    def is_product(self) -> bool:
        """Whether it is a product of matrices."""
        return self.nodes[0].kind not in CONVOLUTIONS

    def request(
        self, x_shape: tuple[int, ...], machine: Machine | str | None, threads: int | None
    ) -> LayerRequest:
        """Return the layer that computes the chain; its images have channels last."""
        shape: tuple[int, ...] = (x_shape[0], *x_shape[2:], x_shape[1])
        if self.is_product:
            shape = x_shape if self.is_image else (1, prod(x_shape[:-1]), x_shape[-1])
        return LayerRequest(
            Convolution.of(
                shape,
                self.weights.shape,
                **self.arguments,
                layout="NHWC",
                dtype=self.weights.dtype,
            ),
            read_activation(self.activation),
            has_bias=self.bias is not None,
            has_residual=self.residual is not None,
            machine=machine,
            threads=threads,
        )

    def see_image(self) -> bool:
        """Have a product's rows be pixels, if they have several axes; return whether they are."""
        if self.is_product and len(self.order) > 3:
            self.is_image, window = True, (1,) * (len(self.order) - 2)
            self.weights = self.weights.reshape(*self.weights.shape[:2], *window)
        return self.is_image

    def phases(self) -> Iterator[tuple[Chain, Phase | None]]:
        """Yield what computes the chain: itself, or one for each phase."""
        if self.split is None:
            yield self, None
            return
        for one in self.split.phases(self.weights):
            arguments = {"groups": self.arguments["groups"]} | one.arguments
            yield replace(self, weights=one.weights, arguments=arguments, split=None), one

    def scale(self, factor: Array) -> None:
        """Multiply the result by a number, or one for each channel."""
        shape = (-1, *(1,) * (self.weights.ndim - 1)) if factor.ndim else ()
        kind = self.weights.dtype
        wide = np.float64
        self.weights = (self.weights.astype(wide) * factor.astype(wide).reshape(shape)).astype(kind)
        if self.bias is not None:
            self.bias = (self.bias.astype(wide) * factor.astype(wide)).astype(kind)

    def shift(self, summand: Array) -> None:
        """Add a number, or one for each channel, to the result."""
        kind, filters = self.weights.dtype, len(self.weights)
        before = np.zeros(filters) if self.bias is None else self.bias.astype(np.float64)
        self.bias = (before + summand.astype(np.float64)).astype(kind)

    def take(self, node: Node, network: Network) -> bool:
        """Add the node that reads the chain's result, if it can be part of the layer."""
        if not self._take(node, network):
            return False
        self.nodes.append(node)
        return True

    def _take(self, node: Node, network: Network) -> bool:
        if node.kind == "BatchNormalization":
            return self._take_norm(node, network)
        if node.kind == "Transpose":
            turned = node.given.get("perm") or tuple(range(len(self.order)))[::-1]
            self.order = tuple(self.order[axis] for axis in turned)
            return True
        if not self.activation and (text := _activation(node, network)):
            self.activation = text
            return True
        if self.activation or self.residual or node.kind not in ("Add", "Mul", "Sub", "Div"):
            return False
        if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
            return False
        at = node.inputs.index(self.result)
        other = node.inputs[1 - at]
        if other in network.constants:
            return self._take_constant(node.kind, at, network.constants[other], network)
        if node.kind != "Add":
            return False
        shapes = network.shapes
        if other not in shapes or shapes.get(self.result) != shapes[other]:
            return False
        if network.dtypes.get(other) != self.weights.dtype:
            return False
        self.residual, self.residual_order = other, self.order
        return True

    def _take_norm(self, node: Node, network: Network) -> bool:
        if self.residual or self.activation or node.given.get("training_mode"):
            return False
        if self.axis != 1 or self.result != node.inputs[0]:
            return False
        if any(name not in network.constants for name in node.inputs[1:]):
            return False
        gamma, beta, mean, var = (
            network.constants[name].astype(np.float64) for name in node.inputs[1:]
        )
        factor = gamma / np.sqrt(var + node.given.get("epsilon", 1e-5))
        self.scale(factor)
        self.shift(beta - mean * factor)
        return True

    def _take_constant(self, kind: str, at: int, other: Array, network: Network) -> bool:
        """Let weights and bias have what is done to each channel."""
        values = self.by_channel(other, network)
        if values is None or (kind == "Div" and (at == 1 or not values.all())):
            return False
        if kind in ("Mul", "Div"):
            self.scale(values if kind == "Mul" else 1 / values.astype(np.float64))
        elif kind == "Add":
            self.shift(values)
        else:
            if at == 1:
                self.scale(np.array(-1.0))
            self.shift(values if at == 1 else -values)
        return True

    def by_channel(self, other: Array, network: Network) -> Array | None:
        """Return a constant as a number, or one for each channel; None if it is neither."""
        shape = network.shapes.get(self.result)
        if shape is None or other.ndim > len(shape) or other.dtype != self.weights.dtype:
            return None
        if other.size == 1:
            return other.reshape(())
        wide = (1,) * (len(shape) - other.ndim) + other.shape
        if any(n != 1 for at, n in enumerate(wide) if at != self.axis):
            return None
        return other.reshape(-1)


def _activation(node: Node, network: Network) -> str:
    """Return a node as an activation of `conv_layer`; nothing if it is none."""
    if node.kind == "Gelu" and node.given.get("approximate", "none") == "tanh":
        return "gelu-tanh"
    if node.kind in ACTIVATIONS:
        return ACTIVATIONS[node.kind]
    if node.kind == "LeakyRelu":
        return f"leaky({node.given.get('alpha', 0.01)!r})"
    if node.kind != "Clip":
        return ""
    bounds = [node.given.get("min", -np.inf), node.given.get("max", np.inf)]
    for at, name in enumerate(node.inputs[1:]):
        if not name:
            continue
        found = network.number(name)
        if found is None:
            return ""
        bounds[at] = found
    return "clip({},{})".format(*(repr(float(bound)) for bound in bounds))


def join_chains(network: Network) -> tuple[list[Chain], list[OtherConvolution]]:
    """Put a node ``Layer`` in the place of each chain; return these, and what is no layer."""
    others = [
        one for node in network.nodes if node.proto is not None for one in _within(node.proto)
    ]
    look_through_repeats(network)
    found: list[Chain] = []
    for node in list(network.nodes):
        if node.kind in CONVOLUTIONS and (reason := _reason(node, network)):
            others.append(OtherConvolution(node.name, node.kind, reason))
            continue
        chain = _begin(node, network)
        if chain is not None:
            found.append(chain)
    taken: set[int] = set()
    uses = network.uses
    readers = {name: one for one in network.nodes for name in one.inputs}
    for chain in reversed(found):  # of two sums' operands the later one takes the sum
        while uses[chain.result] == 1 and chain.result in readers:
            reader = readers[chain.result]
            if id(reader) in taken or not chain.take(reader, network):
                break
        taken.update(map(id, chain.nodes))
    network.replace((chain.nodes, _layer_node(chain)) for chain in found)
    network.remove_unread()
    return found, others


def _layer_node(chain: Chain) -> Node:
    """Return the node that stands for a chain."""
    inputs = [chain.nodes[0].inputs[0], *([chain.residual] if chain.residual else [])]
    return Node("Layer", inputs, [chain.result], {"chain": chain})


def _begin(node: Node, network: Network) -> Chain | None:
    """Return the chain that begins with a node, if it is a layer."""
    constants, shapes = network.constants, network.shapes
    if node.kind in CONVOLUTIONS:
        weights, shape = constants[node.inputs[1]], shapes[node.inputs[0]]
        bias = constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None
        order, split = tuple(range(weights.ndim)), node.given.get("split")
        if node.kind == "ConvTranspose":
            arguments = read_transposed_arguments(node.given, shape, weights.shape)
            split = Transposed.of(arguments, weights.shape[2:], shape[2:])
            weights = group_filters(weights, arguments["groups"])
        elif split is not None:
            arguments = {"groups": node.given["group"]}
        else:
            arguments = read_arguments(node.given, shape, weights.shape)
        return Chain([node], weights, bias, order, arguments, split=split)
    if node.kind not in ("MatMul", "Gemm") or node.inputs[0] in constants:
        return None
    found = constants.get(node.inputs[1])
    x_shape = shapes.get(node.inputs[0])
    if found is None or x_shape is None or found.ndim != 2 or len(x_shape) < 2 or not all(x_shape):
        return None
    if found.dtype.name not in LAYER_DTYPES or not found.size or node.given.get("transA"):
        return None
    weights = found if node.given.get("transB") else found.T
    order = tuple(range(len(x_shape)))
    chain = Chain([node], np.ascontiguousarray(weights)[..., None], None, order)
    if node.given.get("alpha", 1.0) != 1:
        chain.scale(np.array(node.given["alpha"]))
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = constants.get(node.inputs[2])
        values = None if bias is None else chain.by_channel(bias, network)
        if values is None:
            return None
        chain.shift(values * node.given.get("beta", 1.0))
    return chain


def _reason(node: Node, network: Network) -> str:
    """Return why a convolution can be no layer; nothing if it can."""
    makers = network.makers
    for what, name in zip(("weights", "bias"), node.inputs[1:], strict=False):
        if name and name not in network.constants:
            origin = f"the result of {makers[name].kind}" if name in makers else "an input"
            return f"its {what} {name!r} {'are' if what == 'weights' else 'is'} {origin}"
    if node.inputs[0] not in network.shapes:
        return f"the shape of {node.inputs[0]!r} is not known before it runs"
    if network.constants[node.inputs[1]].dtype.name not in LAYER_DTYPES:
        return f"it computes in {network.constants[node.inputs[1]].dtype}"
    if node.kind == "ConvTranspose":
        shape, window = network.shapes[node.inputs[0]], network.constants[node.inputs[1]].shape
        arguments = read_transposed_arguments(node.given, shape, window)
        if not Transposed.of(arguments, window[2:], shape[2:]).is_whole:
            return "it is transposed, and some pixels of its result see no pixel"
    return ""


def _within(node: NodeProto) -> Iterator[OtherConvolution]:
    """Yield the convolutions in the graphs that a node has."""
    for graph in inner_graphs(node):
        for one in graph.node:
            if one.op_type in CONVOLUTIONS:
                where = f"it stands within {node.op_type} {node.name or node.output[0]!r}"
                yield OtherConvolution(one.name or one.output[0], one.op_type, where)
            yield from _within(one)
