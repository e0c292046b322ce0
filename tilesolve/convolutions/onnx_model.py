"""ONNX models whose convolutions are layers of ours: what follows a Conv becomes part of it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, ModelError, SizeError, TilesolveError
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.convolutions.onnx_chains import Chain, OtherConvolution, find_chains
from tilesolve.convolutions.onnx_files import (
    check_inputs,
    import_onnx,
    read_model,
    shapes_of,
)
from tilesolve.convolutions.onnx_graph import (
    constants_of,
    look_through_identities,
    remove_unread,
)
from tilesolve.convolutions.onnx_operators import operators
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_threads
from tilesolve.system.html_report import write_html_report

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

DOMAIN = "tilesolve"
"""Where the operator of our layers belongs."""


class Model:
    """A model that runs here; `load` makes one.

    ``model({name: array})`` gives the outputs by name; a model of one input takes its array, too.
    ``print(model)`` says how many of its convolutions are layers, which are not, and why.

    Parameters
    ----------
    evaluator
        ONNX's evaluator of the model with our layers in it.
    inputs
        The shape and the dtype of each input.
    layers
        Our layers, in the order in which they run.
    others
        The convolutions that are no layers.
    """

    __slots__ = ("_evaluator", "inputs", "layers", "others")

    def __init__(
        self,
        evaluator: Any,  # noqa: ANN401 - onnx has no type for it
        inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        layers: tuple[ConvLayer, ...],
        others: tuple[OtherConvolution, ...] = (),
    ) -> None:
        self._evaluator = evaluator
        self.inputs = inputs
        self.layers = layers
        self.others = others

    def __call__(self, inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike) -> dict[str, Array]:
        """Run the model.

        Parameters
        ----------
        inputs
            An array for each input, by name; or the array of the only input.

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
        arrays = self._read_inputs(inputs)
        try:
            found = self._evaluator.run(None, arrays)
        except TilesolveError:
            raise
        except Exception as error:  # operators raise whatever NumPy does
            raise ModelError(f"the model cannot be run: {error}") from error
        return dict(zip(self._evaluator.output_names, found, strict=True))

    def _read_inputs(self, given: Mapping[str, npt.ArrayLike] | npt.ArrayLike) -> dict[str, Array]:
        """Return the array of each input, if its shape and its dtype are the model's."""
        if not isinstance(given, Mapping):
            if len(self.inputs) != 1:
                raise ModelError(
                    f"the model has {len(self.inputs)} inputs: give an array for each by its name, "
                    f"{{{', '.join(f'{name!r}: ...' for name in self.inputs)}}}"
                )
            given = dict.fromkeys(self.inputs, given)
        if set(given) != set(self.inputs):
            wanted, got = (", ".join(sorted(map(str, names))) for names in (self.inputs, given))
            raise ModelError(f"the model's inputs are {wanted or 'none'}, got {got or 'none'}")
        arrays = {name: read_array(one, f"input {name!r}") for name, one in given.items()}
        for name, (shape, dtype) in self.inputs.items():
            if arrays[name].shape != shape:
                raise SizeError(
                    f"input {name!r} has the shape {arrays[name].shape}, the model has {shape}"
                )
            if arrays[name].dtype != dtype:
                raise DtypeError(f"input {name!r} is {arrays[name].dtype}, the model has {dtype}")
        return arrays

    def __repr__(self) -> str:
        return f"<Model of {', '.join(self.inputs) or 'no input'}: {self._count()}>"

    def __str__(self) -> str:
        layers = [str(layer).partition("\n")[0] for layer in self.layers]
        return "\n".join([self._count(), *layers, *map(str, self.others)])

    def _repr_html_(self) -> str:
        return write_html_report(str(self))

    def _count(self) -> str:
        count = len(self.layers) + len(self.others)
        if not count:
            return "no convolutions"
        return f"{len(self.layers)} of {count} convolutions are layers"


def load(source: str | PathLike[str] | bytes | ModelProto, *, threads: int | None = None) -> Model:
    """Make a model whose convolutions are layers of ours, planned and packed once.

    A batch normalisation behind a Conv becomes part of its weights. An Add of an array of the same
    shape behind that becomes its residual, and Relu, Clip, LeakyRelu, Sigmoid or Tanh its
    activation, where nothing else reads the results in between. Nodes that depend on constants
    alone are computed once. Other operators are ONNX's own reference, but for those of `operators`.

    ``print(model)`` says which convolutions are no layers, and why.

    Parameters
    ----------
    source
        A file, the content of one, or the model itself.
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
    shapes = shapes_of(graph)
    look_through_identities(graph)
    constants = constants_of(model)
    remove_unread(graph, constants)
    fixed = {one.name for one in graph.initializer}
    inputs = {
        one.name: (
            shapes[one.name],
            onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type),
        )
        for one in graph.input
        if one.name not in fixed
    }
    chains, others = find_chains(graph, constants, shapes)
    layers = tuple(chain.layer(shapes, shared) for chain in chains)
    _put_layers(graph, chains)
    remove_unread(graph, constants)
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return Model(_evaluator(model, layers), inputs, layers, tuple(others))


def _evaluator(model: ModelProto, layers: tuple[ConvLayer, ...]) -> Any:  # noqa: ANN401
    """Return ONNX's evaluator of a copy of a model: arrays that were removed take no memory."""
    from onnx.reference import ReferenceEvaluator

    copy = import_onnx().ModelProto()
    copy.CopyFrom(model)
    try:
        return ReferenceEvaluator(copy, new_ops=[*operators(), _layer_operator(layers)])
    except Exception as error:  # the evaluator raises errors of many kinds
        raise ModelError(f"the model cannot be run: {error}") from error


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


def _put_layers(graph: GraphProto, chains: list[Chain]) -> None:
    """Put our layers in the place of the last node of each chain; nothing reads the others then."""
    onnx = import_onnx()
    made = {}
    for number, chain in enumerate(chains):
        inputs = [chain.nodes[0].input[0], *([chain.residual] if chain.residual else [])]
        made[chain.result] = onnx.helper.make_node(
            "Layer", inputs, [chain.result], domain=DOMAIN, number=number
        )
    nodes = [made.get(node.output[0] if node.output else "", node) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
