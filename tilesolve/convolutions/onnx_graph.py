"""Graphs of ONNX: who reads an array, what is part of the model, and what nothing needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.contractions.errors import ModelError
from tilesolve.convolutions.onnx_files import import_onnx, inner_graphs
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

FOLDED = frozenset(
    ("Cast", "Constant", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
)
"""Operators that are computed once where all they read is part of the model.

Their results are no larger than their inputs, and are exact.
"""


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, those in the graphs within it included."""
    yield from node.input
    for graph in inner_graphs(node):
        for one in graph.node:
            yield from names_read(one)
        yield from (one.name for one in graph.output)


def look_through_identities(graph: GraphProto) -> None:
    """Let nodes read what an Identity reads, in the place of its result.

    torch writes equal arrays once, and gives them their other names by Identity.
    """
    sources: dict[str, str] = {}
    for node in graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = sources.get(name, name)
        if node.op_type == "Identity":
            sources[node.output[0]] = node.input[0]


def constants_of(model: ModelProto) -> dict[str, Array]:
    """Return the arrays that are part of a model, or computed of such alone, by name.

    Raises
    ------
    ModelError
        If an operator of constants fails.
    """
    onnx = import_onnx()
    found = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in FOLDED and all(name in found for name in node.input if name):
            value = _compute(node, found, model)
            if isinstance(value, np.ndarray):  # sparse ones are none
                found[node.output[0]] = value
    return found


def _compute(node: NodeProto, constants: Mapping[str, Array], model: ModelProto) -> Any:  # noqa: ANN401
    """Return the result of a node that reads constants alone, by ONNX's own evaluator."""
    onnx = import_onnx()
    from onnx.reference import ReferenceEvaluator

    value = onnx.helper.make_empty_tensor_value_info
    given = {name: constants[name] for name in node.input if name}
    graph = onnx.helper.make_graph(
        [node], "constant", list(map(value, given)), [value(node.output[0])]
    )
    alone = onnx.helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version
    )
    try:
        (found,) = ReferenceEvaluator(alone).run(None, given)
    except Exception as error:  # the evaluator raises errors of many kinds
        what = f"{node.op_type} {node.name or node.output[0]!r}"
        raise ModelError(f"the model cannot be run: {what} of constants: {error}") from error
    return found


def remove_unread(graph: GraphProto, constants: Mapping[str, Array]) -> None:
    """Remove what no output needs from a graph, and put constants where they are computed."""
    read = {one.name for one in graph.output}
    nodes: list[NodeProto] = []
    for node in reversed(graph.node):
        if not read.intersection(node.output):
            continue
        if node.output[0] in constants and node.op_type != "Constant":
            name = node.output[0]
            graph.initializer.append(import_onnx().numpy_helper.from_array(constants[name], name))
            continue
        nodes.insert(0, node)
        read.update(names_read(node))
    unread = {one.name for one in graph.initializer} - read
    _keep(graph.node, nodes)
    _keep(graph.input, [one for one in graph.input if one.name not in unread])
    _keep(graph.initializer, [one for one in graph.initializer if one.name not in unread])


def _keep(field: Any, values: list[Any]) -> None:  # noqa: ANN401 - a repeated field of protobuf
    """Leave some of the values of a field."""
    del field[:]
    field.extend(values)
