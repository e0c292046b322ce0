"""Nodes that together are one operator, as exporters write it where ONNX had none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, sqrt
from typing import Any

import numpy as np

from tilesolve.networks.graph import Network, Node
from tilesolve.networks.shapes import split_blocks

ATTRIBUTE_SLACK = 1e-3
"""By which share of themselves numbers differ that exporters round."""


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """A network, and who makes and reads each of its arrays."""

    network: Network
    makers: Mapping[str, Node]
    uses: Mapping[str, int]
    readers: Mapping[str, Sequence[Node]]

    @classmethod
    def of(cls, network: Network) -> _Graph:
        """Look at all nodes once."""
        readers: dict[str, list[Node]] = {}
        for node in network.nodes:
            for name in dict.fromkeys(node.reads):
                readers.setdefault(name, []).append(node)
        return cls(network, network.makers, network.uses, readers)

    def number(self, name: str) -> float | None:
        """Return the only element of a constant; None if it has more, or is none."""
        return self.network.number(name)

    def only_read(self, *names: str) -> bool:
        """Return whether each of some arrays is read once."""
        return all(self.uses[name] == 1 for name in names)

    def reader(self, name: str, kind: str) -> Node | None:
        """Return the only reader of an array, if it is of a kind."""
        found = self.readers.get(name, ())
        return found[0] if len(found) == 1 and found[0].kind == kind else None


Found = Iterator[tuple[list[Node], Node]]
"""Nodes, and the one that is the same as all of them."""


def join_patterns(network: Network) -> None:
    """Put one node in the place of those that together are an activation."""
    for find in (_find_silu, _find_hard_swish, _find_gelu):
        taken: set[int] = set()
        several = []
        for gone, made in find(_Graph.of(network)):
            own = set(map(id, gone))
            if not own & taken:
                several.append((gone, made))
                taken |= own
        network.replace(several)
        network.remove_unread()


def split_moves(network: Network) -> None:
    """Put views and a copy in the place of what takes blocks of images apart."""
    nodes: list[Node] = []
    for node in network.nodes:
        shape = network.shapes.get(node.inputs[0]) if node.inputs else None
        if node.kind not in ("DepthToSpace", "SpaceToDepth") or not shape or len(shape) != 4:
            nodes.append(node)
            continue
        split, order, together = split_blocks(node, shape)
        dtype, name = network.dtypes[node.inputs[0]], node.outputs[0]
        turned = tuple(split[axis] for axis in order)
        names = [node.inputs[0], f"{name} split", f"{name} turned", name]
        steps: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
            ("Reshape", {}, split),
            ("Transpose", {"perm": order}, turned),
            ("Reshape", {}, together),
        ]
        for at, (kind, given, found) in enumerate(steps):
            inputs = [names[at]]
            if kind == "Reshape":
                inputs.append(network.add_constant(names[at + 1], np.array(found)))
            nodes.append(Node(kind, inputs, [names[at + 1]], given))
            network.shapes[names[at + 1]], network.dtypes[names[at + 1]] = found, dtype
    network.nodes = nodes


def _find_silu(graph: _Graph) -> Found:
    """Yield products of a number and its sigmoid, and the node that is the same."""
    for node in graph.network.nodes:
        for x, other in _pairs(node, "Mul"):
            gate = graph.makers.get(other)
            if gate is None or gate.inputs != [x] or graph.uses[other] != 1:
                continue
            if gate.kind in ("Sigmoid", "HardSigmoid"):
                if gate.kind == "HardSigmoid" and not _is_sixth(gate):
                    continue
                kind = "Silu" if gate.kind == "Sigmoid" else "HardSwish"
                yield [gate, node], Node(kind, [x], list(node.outputs))


def _is_sixth(gate: Node) -> bool:
    """Return whether a hard sigmoid is that of a hard swish."""
    alpha, beta = gate.given.get("alpha", 0.2), gate.given.get("beta", 0.5)
    return isclose(alpha, 1 / 6, rel_tol=ATTRIBUTE_SLACK) and isclose(
        beta, 0.5, rel_tol=ATTRIBUTE_SLACK
    )


def _find_hard_swish(graph: _Graph) -> Found:
    """Yield x * clip(x + 3, 0, 6) / 6, and the node that is the same."""
    for node in graph.network.nodes:
        if node.kind != "Div" or graph.number(node.inputs[1]) != 6:
            continue
        whole = graph.makers.get(node.inputs[0])
        if whole is None:
            continue
        for x, other in _pairs(whole, "Mul"):
            clip = graph.makers.get(other)
            if clip is None or clip.kind != "Clip" or _bounds(graph, clip) != (0, 6):
                continue
            shifted = graph.makers.get(clip.inputs[0])
            if shifted is None or all(
                pair != x or graph.number(three) != 3 for pair, three in _pairs(shifted, "Add")
            ):
                continue
            if graph.only_read(whole.outputs[0], clip.outputs[0], shifted.outputs[0]):
                yield [shifted, clip, whole, node], Node("HardSwish", [x], list(node.outputs))


def _bounds(graph: _Graph, clip: Node) -> tuple[float | None, ...]:
    """Return the ends of a Clip that are known."""
    names = [*clip.inputs[1:], "", ""][:2]
    told = (clip.given.get("min"), clip.given.get("max"))
    return tuple(
        given if given is not None else graph.number(name)
        for given, name in zip(told, names, strict=True)
    )


def _find_gelu(graph: _Graph) -> Found:
    """Yield the products of x, one half, and one plus the error function of x / sqrt(2)."""
    for erf in graph.network.nodes:
        if erf.kind != "Erf":
            continue
        scaled = graph.makers.get(erf.inputs[0])
        x = None if scaled is None else _scaled(graph, scaled)
        if scaled is None or x is None:
            continue
        plus = graph.reader(erf.outputs[0], "Add")
        if plus is None or all(graph.number(one) != 1 for _, one in _pairs(plus, "Add")):
            continue
        gone, result, factors = [scaled, erf, plus], plus.outputs[0], {x, "half"}
        while factors:
            times = graph.reader(result, "Mul")
            if times is None:
                break
            (other,) = [name for name in times.inputs if name != result] or [""]
            wanted = "half" if graph.number(other) == 0.5 else other
            if wanted not in factors:
                half = graph.makers.get(other)  # x * 0.5 stands apart
                if half is None or half.kind != "Mul" or factors != {x, "half"}:
                    break
                if not any(a == x and graph.number(b) == 0.5 for a, b in _pairs(half, "Mul")):
                    break
                gone.append(half)
                factors.clear()
            factors.discard(wanted)
            gone.append(times)
            result = times.outputs[0]
        inner = [one.outputs[0] for one in gone if one.outputs[0] != result]
        if not factors and graph.only_read(*inner):
            yield gone, Node("Gelu", [x], [result])


def _scaled(graph: _Graph, node: Node) -> str | None:
    """Return x of x / sqrt(2), or of x * sqrt(1/2)."""
    if node.kind == "Div":
        root = graph.number(node.inputs[1])
        return (
            node.inputs[0]
            if root is not None and isclose(root, sqrt(2), rel_tol=ATTRIBUTE_SLACK)
            else None
        )
    for x, other in _pairs(node, "Mul"):
        root = graph.number(other)
        if root is not None and isclose(root, sqrt(0.5), rel_tol=ATTRIBUTE_SLACK):
            return x
    return None


def _pairs(node: Node, kind: str) -> list[tuple[str, str]]:
    """Return both orders of a node's two inputs, if it is of a kind."""
    if node.kind != kind or len(node.inputs) != 2:
        return []
    a, b = node.inputs
    return [(a, b), (b, a)]
