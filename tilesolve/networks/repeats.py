"""Convolutions of images whose pixels were repeated, as several of the images as they were.

Each element of a result reads pixels that are the same: their weights are added up before. Where
each pixel is repeated k times along an axis, every k-th element of the result has the same sums, so
that there are k convolutions with about k times fewer taps each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilesolve.networks.files import read_arguments
from tilesolve.networks.graph import Network, Node
from tilesolve.networks.shapes import read_repeats
from tilesolve.packing.memory_overlap import Array

Ends = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """The convolution that gives some of a result's elements.

    Parameters
    ----------
    weights, padding
        As layers take them.
    cut
        Which elements, along each axis of images.
    """

    weights: Array
    padding: tuple[Ends, ...]
    cut: tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """What a phase does along one axis: `sums` has a row of ones and zeros for each tap."""

    sums: Array
    padding: Ends
    cut: slice


def split_phases(
    weights: Array, padding: Sequence[Ends], repeats: Sequence[int], extents: Sequence[int]
) -> Iterator[Phase]:
    """Yield convolutions of images of some extents, whose pixels a layer reads several times.

    Examples
    --------
    >>> (one, other) = split_phases(np.array([[[1.0, 2.0, 4.0]]]), [(1, 1)], [2], [5])
    >>> one.weights.tolist(), one.padding, other.weights.tolist(), other.padding
    ([[[1.0, 6.0]]], ((1, 0),), [[[3.0, 4.0]]], ((0, 1),))
    """
    axes = [
        list(_split_axis(*given))
        for given in zip(weights.shape[2:], padding, repeats, extents, strict=True)
    ]
    for along in product(*axes):
        found = weights.astype(np.float64)
        for axis, one in enumerate(along, 2):
            found = np.moveaxis(np.tensordot(found, one.sums, (axis, 1)), -1, axis)
        yield Phase(
            found.astype(weights.dtype),
            tuple(one.padding for one in along),
            tuple(one.cut for one in along),
        )


def repeated_extents(
    taps: Sequence[int], padding: Sequence[Ends], repeats: Sequence[int], extents: Sequence[int]
) -> tuple[int, ...]:
    """Return the extents of the result of a layer whose images' pixels were repeated."""
    return tuple(
        times * extent + low + high - count + 1
        for count, (low, high), times, extent in zip(taps, padding, repeats, extents, strict=True)
    )


def _split_axis(taps: int, padding: Ends, times: int, extent: int) -> Iterator[_Along]:
    (count,) = repeated_extents([taps], [padding], [times], [extent])
    for first in range(min(times, count)):
        at = (first + np.arange(taps) - padding[0]) // times
        sums = np.equal.outer(np.arange(at[0], at[-1] + 1), at).astype(np.float64)
        last = (count - 1 - first) // times + int(at[-1])
        yield _Along(sums, (-int(at[0]), last - extent + 1), slice(first, None, times))


def look_through_repeats(network: Network) -> None:
    """Let convolutions, given `repeats`, read images whose pixels are not repeated yet."""
    uses, makers = network.uses, network.makers
    found = []
    for node in network.nodes:
        maker = makers.get(node.inputs[0]) if node.kind == "Conv" else None
        if maker is None or uses[node.inputs[0]] > 1 or maker.kind not in ("Resize", "Upsample"):
            continue
        given = _with_repeats(network, node, maker)
        if given is not None:
            made = Node("Conv", [maker.inputs[0], *node.inputs[1:]], list(node.outputs), given)
            found.append(([maker, node], made))
    network.replace(found)


def _with_repeats(network: Network, node: Node, maker: Node) -> dict[str, Any] | None:
    """Return the attributes of a convolution that has its Resize in it; None if it cannot."""
    constants, shape = network.constants, network.shapes.get(maker.inputs[0])
    if shape is None or any(
        x and x not in constants for x in (*node.inputs[1:], *maker.inputs[1:])
    ):
        return None
    values = [constants.get(name) for name in maker.inputs[1:]]
    try:
        times = read_repeats(maker, network.opset, shape, *values)
    except TypeError:  # what pipelines do not have either
        return None
    weights = constants[node.inputs[1]]
    found = read_arguments(node.given, network.shapes[node.inputs[0]], weights.shape)
    repeats = tuple(times.get(axis, 1) for axis in range(2, len(shape)))
    few = any(n > 1 and k > 1 for n, k in zip(weights.shape[2:], repeats, strict=True))
    if not few or min(times) < 2 or max(*found["stride"], *found["dilation"]) > 1:
        return None
    if found["groups"] == len(weights) > 1:
        return None
    for given in zip(weights.shape[2:], found["padding"], repeats, shape[2:], strict=True):
        if any(min(one.padding) < 0 for one in _split_axis(*given)):
            return None
    pads = [end for side in zip(*found["padding"], strict=True) for end in side]
    return {"pads": pads, "group": found["groups"], "repeats": repeats}
