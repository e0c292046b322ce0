"""Arrays that lie within others: views, and the parts of what is put together."""

from __future__ import annotations

from tilesolve.networks.graph import Network

VIEWS = frozenset(
    ("Dropout", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze")
) | {"Transpose", "Unsqueeze"}
"""Operators whose results may be views of what they read."""

Part = tuple[str, tuple[slice, ...]]
"""The array that another one is part of, and which part."""


def find_parts(network: Network) -> dict[str, Part]:
    """Return the arrays that are written where Concat has them behind each other."""
    makers, shapes, dtypes = network.makers, network.shapes, network.dtypes
    found: dict[str, Part] = {}
    for node in network.nodes:
        names = node.inputs
        if node.kind != "Concat" or any(not shapes.get(x) for x in names):
            continue
        whole = node.outputs[0]
        if len(set(names)) < len(names) or dtypes.get(whole) != dtypes[names[0]]:
            continue
        if any(x not in makers or makers[x].kind in VIEWS or x in found for x in names):
            continue
        rank, begin = len(shapes[names[0]]), 0
        axis = node.given.get("axis", 1) % rank
        for name in names:
            cut = [slice(None)] * rank
            cut[axis] = slice(begin, begin + shapes[name][axis])
            begin += shapes[name][axis]
            found[name] = whole, tuple(cut)
    return found
