"""Nodes of loop trees as what JSON holds, and back: loops, rings, registers, calls and works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from tilesolve.kernels.programs.nodes import Kind
from tilesolve.model.access import Access
from tilesolve.model.loop_tree import Buffer, Call, Do, Layout, Loop, Node
from tilesolve.nests.loops import step_of


def write_node(node: Node) -> dict[str, Any]:
    """Return a node as what JSON holds; what buffers hold follows from the works.

    Examples
    --------
    >>> node = Loop("x", 8, (Do(0),))
    >>> write_node(node)
    {'loop': ['x', 8, 'serial'], 'body': [{'do': 0}]}
    >>> read_node(write_node(node)) == node
    True
    """
    match node:
        case Do(work=work):
            return {"do": work}
        case Loop():
            found: dict[str, Any] = {"loop": [node.letter, step_of(node), node.kind]}
        case Buffer():
            found = {"buffer": [node.holds.array, node.layout, node.level]}
        case Call():
            found = {"call": True}
    return {**found, "body": list(map(write_node, node.body))}


def read_node(data: Mapping[str, Any]) -> Node:
    """Return the node that was written."""
    if "do" in data:
        return Do(_number(data["do"], 0))
    body = tuple(map(read_node, data["body"]))
    if not body:
        raise ValueError("a node of a loop tree has nothing within it")
    if "loop" in data:
        letter, step, kind = data["loop"]
        return Loop(_text(letter), _number(step, 1), body, cast(Kind, _one_of(kind, Kind)))
    if "buffer" in data:
        array, layout, level = data["buffer"]
        holds = Access(_text(array), (), (), 1, "write")
        return Buffer(0, holds, cast(Layout, _one_of(layout, Layout)), _text(level), body)
    if data.get("call") is not True:
        raise ValueError(f"no node of a loop tree has {', '.join(data)}")
    return Call(body)


def _number(value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is no number from {least} on")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _one_of(value: object, kinds: Any) -> object:  # noqa: ANN401 - a Literal
    if value not in get_args(kinds):
        raise ValueError(f"{value!r} is none of {', '.join(get_args(kinds))}")
    return value
