"""ONNX models whose convolutions are layers of ours: what follows a Conv becomes part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, ModelError, SizeError, TilesolveError
from tilesolve.contractions.problem import DTYPES
from tilesolve.convolutions.batch_norm import BatchNorm
from tilesolve.convolutions.layer import ConvLayer, conv_layer
from tilesolve.convolutions.onnx_files import (
    attributes_of,
    check_inputs,
    constants_of,
    import_onnx,
    read_arguments,
    read_model,
    shapes_of,
)
from tilesolve.convolutions.onnx_operators import operators
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_threads

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

DOMAIN = "tilesolve"
"""Where the operator of our layers belongs."""


class Model:
    """A model that runs here; `load` makes one.

    ``model({name: array})`` gives the outputs by name.

    Parameters
    ----------
    evaluator
        ONNX's evaluator of the model with our layers in it.
    inputs
        The shape and the dtype of each input.
    layers
        Our layers, in the order in which they run.
    """

    __slots__ = ("_evaluator", "inputs", "layers")

    def __init__(
        self,
        evaluator: Any,  # noqa: ANN401 - onnx has no type for it
        inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        layers: tuple[ConvLayer, ...],
    ) -> None:
        self._evaluator = evaluator
        self.inputs = inputs
        self.layers = layers

    def __call__(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Run the model.

        Parameters
        ----------
        inputs
            An array for each input.

        Returns
        -------
        dict
            An array for each output.

        Raises
        ------
        ModelError
            If an input is missing or unknown, or an operator fails.
        SizeError, DtypeError
            If an input has another shape or dtype.
        """
        if set(inputs) != set(self.inputs):
            wanted, given = (", ".join(sorted(names)) for names in (self.inputs, inputs))
            raise ModelError(f"the model's inputs are {wanted}, got {given or 'none'}")
        arrays = {name: read_array(one, f"input {name!r}") for name, one in inputs.items()}
        for name, (shape, dtype) in self.inputs.items():
            if arrays[name].shape != shape:
                raise SizeError(
                    f"input {name!r} has the shape {arrays[name].shape}, the model has {shape}"
                )
            if arrays[name].dtype != dtype:
                raise DtypeError(f"input {name!r} is {arrays[name].dtype}, the model has {dtype}")
        try:
            found = self._evaluator.run(None, arrays)
        except TilesolveError:
            raise
        except Exception as error:  # operators raise whatever NumPy does
            raise ModelError(f"the model cannot be run: {error}") from error
        return dict(zip(self._evaluator.output_names, found, strict=True))

    def __str__(self) -> str:
        return "\n".join(str(layer).partition("\n")[0] for layer in self.layers)


def load(source: str | PathLike[str] | bytes | ModelProto, *, threads: int | None = None) -> Model:
    """Make a model whose convolutions are layers of ours, planned and packed once.

    A batch normalisation behind a Conv becomes part of its weights. An Add of an array of the same
    shape behind that becomes its residual, and Relu, Clip, LeakyRelu, Sigmoid or Tanh its
    activation, where nothing else reads what stands between. Other operators are ONNX's own
    reference, but for those of `operators`.

    Parameters
    ----------
    source
        A file, what stands in one, or the model itself.
    threads
        Of the layers, as in `plan`.

    Raises
    ------
    ModelError
        If the model cannot be read, is damaged, has dynamic shapes, or operators that nobody knows.
    """
    onnx = import_onnx()
    shared = None if threads is None else check_threads(threads)
    model = read_model(source)
    graph = model.graph
    check_inputs(graph)
    chains = _find_chains(graph)
    shapes = shapes_of(graph)
    layers = tuple(chain.layer(shapes, shared) for chain in chains)
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    _rewrite(rewritten.graph, chains)
    rewritten.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(rewritten, new_ops=[*operators(), _layer_operator(layers)])
    except Exception as error:  # the evaluator raises errors of many kinds
        raise ModelError(f"the model cannot be run: {error}") from error
    fixed = {one.name for one in graph.initializer}
    inputs = {
        one.name: (
            shapes[one.name],
            onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type),
        )
        for one in graph.input
        if one.name not in fixed
    }
    return Model(evaluator, inputs, layers)


def _layer_operator(layers: tuple[ConvLayer, ...]) -> type:
    """Return the operator that computes layers, each by its number."""
    from onnx.reference.op_run import OpRun

    class Layer(OpRun):  # type: ignore[misc]
        op_domain = DOMAIN

        def _run(
            self, x: Array, residual: Array | None = None, number: int | None = None
        ) -> tuple[Array]:
            return (layers[self.number if number is None else number](x, residual=residual),)

    return Layer


@dataclass(slots=True)
class _Chain:
    """A Conv, and what follows it until something else reads a result or its kind is not known.

    Parameters
    ----------
    nodes
        The Conv first.
    weights, bias
        Its own.
    norm
        A batch normalisation.
    residual
        The name of what is added.
    activation
        As `conv_layer` takes it.
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


def _find_chains(graph: GraphProto) -> list[_Chain]:
    """Return the chains of a graph whose weights are part of the model."""
    constants, shapes = constants_of(graph), shapes_of(graph)
    uses = Counter(name for node in graph.node for name in node.input)
    uses.update(one.name for one in graph.output)
    readers = {name: node for node in graph.node for name in node.input}
    taken: set[str] = set()
    found = []
    for node in graph.node:
        if node.op_type != "Conv" or node.input[0] not in shapes:
            continue
        if any(name not in constants for name in node.input[1:] if name):
            continue
        weights = constants[node.input[1]]
        if weights.dtype.name not in DTYPES:
            continue
        bias = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else None
        chain = _Chain([node], weights, bias)
        while uses[chain.result] == 1 and chain.result in readers:
            reader = readers[chain.result]
            if reader.output[0] in taken or not chain.take(reader, constants, shapes):
                break
        taken.update(one.output[0] for one in chain.nodes)
        found.append(chain)
    return found


def _rewrite(graph: GraphProto, chains: list[_Chain]) -> None:
    """Put our layers in the place of the last node of each chain."""
    onnx = import_onnx()
    made = {}
    for number, chain in enumerate(chains):
        inputs = [chain.nodes[0].input[0], *([chain.residual] if chain.residual else [])]
        made[chain.result] = onnx.helper.make_node(
            "Layer", inputs, [chain.result], domain=DOMAIN, number=number
        )
    gone = {node.output[0] for chain in chains for node in chain.nodes}
    nodes = [
        made.get(node.output[0] if node.output else "", node)
        for node in graph.node
        if not node.output or node.output[0] in made or node.output[0] not in gone
    ]
    del graph.node[:]
    graph.node.extend(nodes)
