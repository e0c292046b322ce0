"""Graphs of networks: nodes, what is part of the model, and what is known of each array."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.constants.nests import NETWORK_GROWTH_BYTES, NETWORK_MOST_EXTENTS
from tilesolve.contractions.errors import ModelError
from tilesolve.networks.files import (
    OWN_DOMAINS,
    attributes_of,
    dtypes_of,
    import_onnx,
    infer_shapes,
    inner_graphs,
    shapes_of,
)
from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Shape = tuple[int, ...]

DRAWN = frozenset(
    (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
"""Operators whose results differ from run to run."""

_EXACT = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
"""Operators by which shapes are computed, and leave 64 bits."""


@dataclass(slots=True, eq=False)
class Node:
    """An operator of a network, and the arrays that it reads and gives, by name.

    Parameters
    ----------
    kind
        The operator's name, of ONNX's own domain; those of others have theirs in front.
    inputs, outputs
        Names; an empty one is an argument that is left out.
    given
        The attributes.
    proto
        As it stands in the file. It keeps all of the file in memory: what runs has none.
    label
        The name that it has there.
    """

    kind: str
    inputs: list[str]
    outputs: list[str]
    given: Mapping[str, Any] = field(default_factory=dict)
    proto: NodeProto | None = None
    label: str = ""

    @classmethod
    def of(cls, proto: NodeProto) -> Node:
        """Return a node of a file."""
        own = proto.domain in OWN_DOMAINS
        kind = proto.op_type if own else f"{proto.domain}.{proto.op_type}"
        inputs, outputs = list(proto.input), list(proto.output)
        return cls(kind, inputs, outputs, attributes_of(proto), proto, proto.name)

    @property
    def name(self) -> str:
        """What to call it."""
        return self.label or self.outputs[0]

    @property
    def reads(self) -> list[str]:
        """The names of all that it reads, those in the graphs within it included."""
        within = [] if self.proto is None else list(_names_within(self.proto))
        return [name for name in (*self.inputs, *within) if name]

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(slots=True, eq=False)
class Network:
    """A model as passes change it.

    Parameters
    ----------
    nodes
        In an order in which each comes behind what it reads.
    inputs, outputs
        Names.
    constants
        Arrays that are part of the model, or computed of such alone.
    shapes, dtypes
        Of all arrays of which they are known before the model runs.
    opset
        The version of ONNX's own operators.
    """

    nodes: list[Node]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Array]
    shapes: dict[str, Shape]
    dtypes: dict[str, np.dtype[Any]]
    opset: int
    model: ModelProto

    @property
    def makers(self) -> dict[str, Node]:
        """The node that gives each array."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @property
    def uses(self) -> Counter[str]:
        """How often each array is read; an output of the model is read once more."""
        found = Counter(name for node in self.nodes for name in node.reads)
        found.update(self.outputs)
        return found

    def number(self, name: str) -> float | None:
        """Return the only element of a constant; None if it has more, or is none."""
        found = self.constants.get(name)
        return None if found is None or found.size != 1 else float(found.reshape(())[()])

    def add_constant(self, like: str, array: Array) -> str:
        """Add an array to the model; return its name."""
        name = f"{like}'"
        while name in self.constants:
            name += "'"
        self.constants[name] = array
        self.shapes[name], self.dtypes[name] = array.shape, array.dtype
        return name

    def replace(self, pairs: Iterable[tuple[Collection[Node], Node]]) -> None:
        """Put nodes where the last of some others was; each gives what that gives."""
        places = {id(node): at for at, node in enumerate(self.nodes)}
        nodes: list[Node | None] = list(self.nodes)
        for gone, made in pairs:
            several = [places[id(one)] for one in gone]
            for at in several:
                nodes[at] = None
            nodes[max(several)] = made
        self.nodes = [one for one in nodes if one is not None]

    def remove_unread(self) -> None:
        """Remove the nodes that no output needs."""
        read, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if read.intersection(node.outputs):
                kept.append(node)
                read.update(node.reads)
        self.nodes = kept[::-1]
        self.constants = {name: one for name, one in self.constants.items() if name in read}


def _names_within(node: NodeProto) -> Iterator[str]:
    """Yield the names that the graphs within a node read of what is around them."""
    for graph in inner_graphs(node):
        made = {name for one in graph.node for name in one.output}
        made |= {one.name for one in (*graph.initializer, *graph.input)}
        reads = [one.name for one in graph.output]
        reads += [name for one in graph.node for name in (*one.input, *_names_within(one))]
        yield from (name for name in reads if name and name not in made)


def read_network(model: ModelProto) -> Network:
    """Return a model's graph; all that depends on constants alone is computed.

    Raises
    ------
    ModelError
        If an operator of constants fails.
    """
    onnx = import_onnx()
    graph = model.graph
    opset = next(one.version for one in model.opset_import if one.domain in OWN_DOMAINS)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    inputs = tuple(one.name for one in graph.input if one.name not in constants)
    look_through_identities(graph)
    found = Network(
        nodes=[Node.of(one) for one in graph.node],
        inputs=inputs,
        outputs=tuple(one.name for one in graph.output),
        constants=constants,
        shapes=shapes_of(graph),
        dtypes=dtypes_of(graph),
        opset=opset,
        model=model,
    )
    while fold_constants(found):
        inferred = infer_shapes(_with_constants(model, found))
        found.shapes |= shapes_of(inferred.graph)
        found.dtypes |= dtypes_of(inferred.graph)
    found.shapes |= {name: one.shape for name, one in found.constants.items()}
    found.dtypes |= {name: one.dtype for name, one in found.constants.items()}
    found.remove_unread()
    return found


def _with_constants(model: ModelProto, network: Network) -> ModelProto:
    """Return a model whose shapes can be told further: small constants are part of it."""
    onnx = import_onnx()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    known = {one.name for one in graph.initializer}
    made = {x for x, one in network.constants.items() if x not in known and one.dtype != object}
    kept = [node for node in graph.node if not made.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(
        onnx.numpy_helper.from_array(network.constants[name], name) for name in made
    )
    return copy


def look_through_identities(graph: GraphProto) -> None:
    """Let nodes read what an Identity reads, in the place of its result.

    torch writes equal arrays once, and gives them their other names by Identity.
    """
    sources: dict[str, str] = {}
    for node in graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = sources.get(name, name)
        if node.op_type == "Identity" and node.domain in OWN_DOMAINS:
            sources[node.output[0]] = node.input[0]


def fold_constants(network: Network) -> bool:
    """Compute once what depends on constants alone, or on shapes; return whether there was any."""
    kept: list[Node] = []
    for node in network.nodes:
        found = _fold(node, network)
        if found is None:
            kept.append(node)
        else:
            network.constants.update(zip(node.outputs, found, strict=False))
    folded = len(kept) < len(network.nodes)
    network.nodes = kept
    return folded


def _fold(node: Node, network: Network) -> Sequence[Array] | None:
    """Return the results of a node that are known before the model runs, or None."""
    constants, shapes = network.constants, network.shapes
    if node.kind == "Shape" and node.inputs[0] in shapes:
        begin, end = node.given.get("start", 0), node.given.get("end")
        return [np.array(shapes[node.inputs[0]][begin:end], np.int64)]
    if node.kind == "Size" and node.inputs[0] in shapes:
        return [np.array(min(prod(shapes[node.inputs[0]]), sys.maxsize), np.int64)]
    if node.kind in DRAWN or node.proto is None or any(x not in constants for x in node.reads):
        return None
    read = sum(constants[name].nbytes for name in node.reads)
    sizes = [
        prod(shapes[x]) * network.dtypes[x].itemsize
        for x in node.outputs
        if x in shapes and x in network.dtypes and node.kind != "Constant"
    ]
    if sum(sizes) > read + NETWORK_GROWTH_BYTES:
        return None
    given = {x: constants[x] for x in node.reads}
    found = evaluate([node.proto], given, node.outputs, network)
    _check_overflow(node, given, found)
    return found if all(isinstance(one, np.ndarray) for one in found) else None


def _check_overflow(node: Node, given: Mapping[str, Array], found: Sequence[Array]) -> None:
    """Raise `ModelError` if extents that are computed do not fit in 64 bits."""
    arrays = [given[name] for name in node.reads]
    if node.kind not in _EXACT or any(one.dtype != np.int64 for one in arrays):
        return
    if all(one.size <= NETWORK_MOST_EXTENTS for one in arrays):
        right = _EXACT[node.kind](*(one.astype(object) for one in arrays))
        if np.any(right != found[0]):
            raise ModelError(f"the model is damaged: an overflow of 64 bits in {node}")


def evaluate(
    protos: Iterable[NodeProto],
    given: Mapping[str, Array],
    outputs: Sequence[str],
    network: Network,
) -> list[Array]:
    """Return what nodes give, by ONNX's own evaluator.

    Raises
    ------
    ModelError
        If an operator fails.
    """
    evaluator = Evaluator(protos, tuple(given), [x for x in outputs if x], network)
    return evaluator.run(given)


class Evaluator:
    """ONNX's own evaluator of some nodes of a network.

    Parameters
    ----------
    protos
        The nodes.
    inputs, outputs
        The names of what they read, and of what is wanted.
    """

    __slots__ = ("_evaluator", "_name", "outputs")

    def __init__(
        self,
        protos: Iterable[NodeProto],
        inputs: Sequence[str],
        outputs: Sequence[str],
        network: Network,
        operators: Sequence[type] = (),
    ) -> None:
        onnx = import_onnx()
        from onnx.reference import ReferenceEvaluator

        nodes = list(protos)
        value = onnx.helper.make_empty_tensor_value_info
        graph = onnx.helper.make_graph(
            nodes, "part", list(map(value, inputs)), list(map(value, outputs))
        )
        part = onnx.helper.make_model(
            graph, opset_imports=network.model.opset_import, ir_version=network.model.ir_version
        )
        self.outputs = tuple(outputs)
        self._name = ", ".join(f"{one.op_type} {one.name or one.output[0]!r}" for one in nodes)
        try:
            self._evaluator = ReferenceEvaluator(part, new_ops=list(operators))
        except Exception as error:  # the evaluator raises errors of many kinds
            raise ModelError(f"the model cannot be run: {self._name}: {error}") from error

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the outputs."""
        try:
            return list(self._evaluator.run(None, dict(given)))
        except Exception as error:  # operators raise whatever NumPy does
            raise ModelError(f"the model cannot be run: {self._name}: {error}") from error
