"""Nodes that one pipeline computes together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tilesolve.constants.nests import NETWORK_JOINED_NODES
from tilesolve.networks.files import import_onnx
from tilesolve.networks.graph import Network, Node
from tilesolve.networks.parts import VIEWS
from tilesolve.networks.places import Place, wide_dtype
from tilesolve.networks.windows import FUNCTIONS
from tilesolve.networks.works import Body
from tilesolve.packing.memory_overlap import Array

_ALONE = frozenset(("Concat", "Einsum", "Gemm", "MatMul"))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Nodes that one pipeline computes.

    Parameters
    ----------
    nodes
        In their order.
    inputs, outputs
        Names of what they read from elsewhere, and of what others read.
    constants
        What they read beside.
    dtypes
        Of the outputs.
    opset
        The version of the operators.
    """

    nodes: Sequence[Node]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    dtypes: tuple[np.dtype[Any], ...]
    opset: int

    @classmethod
    def of(cls, network: Network, nodes: Sequence[Node]) -> Self:
        """Return some nodes of a network as a group."""
        uses, made = network.uses, {name for node in nodes for name in node.outputs}
        reads = dict.fromkeys(x for node in nodes for x in node.inputs if x and x not in made)
        outputs = tuple(
            name
            for node in nodes
            for name in node.outputs
            if name and (uses[name] > sum(name in one.inputs for one in nodes))
        )
        return cls(
            nodes,
            tuple(name for name in reads if name not in network.constants),
            outputs,
            {name: network.constants[name] for name in reads if name in network.constants},
            tuple(network.dtypes[name] for name in outputs),
            network.opset,
        )

    def body(self, inputs: Sequence[Place], outputs: Sequence[Place]) -> Body:
        """Return what the nodes compute of arrays as they lie: halves in single precision."""
        return Body(
            [_widen(node) for node in self.nodes],
            {name: one.astype(wide_dtype(one.dtype)) for name, one in self.constants.items()},
            [(name, one.order) for name, one in zip(self.inputs, inputs, strict=True)],
            [
                (name, one.order, wide_dtype(kind))
                for name, one, kind in zip(self.outputs, outputs, self.dtypes, strict=True)
            ],
            self.opset,
        )


def _widen(node: Node) -> Node:
    """Return a node that casts to single precision in the place of one that casts to halves."""
    if node.kind != "Cast":
        return node
    helper = import_onnx().helper
    kind = wide_dtype(helper.tensor_dtype_to_np_dtype(node.given["to"]))
    return replace(node, given={"to": helper.np_dtype_to_tensor_dtype(kind)}, proto=None)


def join_nodes(network: Network, written: Collection[str]) -> list[list[Node]]:
    """Return the nodes, those that one pipeline computes together.

    A node joins those before it where it alone reads what they give.

    Parameters
    ----------
    written
        Arrays that are parts of others.
    """
    uses, groups = network.uses, list[list[Node]]()
    ends: dict[str, list[Node]] = {}
    for node in network.nodes:
        joins = _may_join(network, node, written)
        alone = [ends[name] for name in node.inputs if joins and name in ends and uses[name] == 1]
        if alone and len(alone[0]) < NETWORK_JOINED_NODES and node.inputs[0]:
            group = alone[0]
            groups.remove(group)
            del ends[group[-1].outputs[0]]
            group.append(node)
        else:
            group = [node]
        groups.append(group)
        if joins:
            ends[node.outputs[0]] = group
    return groups


def _may_join(network: Network, node: Node, written: Collection[str]) -> bool:
    """Return whether a node may be one of several in a pipeline."""
    return (
        node.kind in FUNCTIONS
        and node.kind not in VIEWS | _ALONE
        and len(node.outputs) == 1
        and node.outputs[0] not in written
        and all(x in network.shapes for x in (*node.reads, *node.outputs))
    )
