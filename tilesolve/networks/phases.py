"""Convolutions that run as several: every few pixels of a result are one's of their own.

Where Resize repeats pixels, each element of a result reads pixels that are the same: their weights
are added up before. Where each pixel is repeated k times along an axis, every k-th element of the
result has the same sums, so that there are k convolutions with about k times fewer taps each. A
transposed convolution is several as well, see `conv_transpose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, Self

import numpy as np

from tilesolve.convolutions.transposed import Axis, read_axes, split_transposed
from tilesolve.networks.files import read_arguments
from tilesolve.networks.graph import Network, Node
from tilesolve.networks.shapes import read_repeats
from tilesolve.packing.memory_overlap import Array

Ends = tuple[int, int]
Cut = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """The convolution that gives some of a result's elements.

    Parameters
    ----------
    weights, arguments
        As layers take them.
    pixels, results
        Which pixels of the images are read, and which of the result are written.
    """

    weights: Array
    arguments: dict[str, Any]
    pixels: Cut
    results: Cut


class Split(Protocol):
    """How a convolution is several."""

    @property
    def out_extents(self) -> tuple[int, ...]:
        """The extents of the result."""

    def phases(self, weights: Array) -> Iterator[Phase]:
        """Yield these."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """A transposed convolution; its weights have filters first."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, arguments: dict[str, Any], window: Sequence[int], extents: Sequence[int]) -> Self:
        """Return that of images of some extents, given arguments of `conv_transpose`."""
        names = ("stride", "padding", "output_padding", "dilation")
        given = [arguments[name] for name in names]
        return cls(tuple(read_axes(tuple(extents), tuple(window), *given)))

    @property
    def out_extents(self) -> tuple[int, ...]:
        """The extents of the result."""
        return tuple(one.out for one in self.axes)

    def phases(self, weights: Array) -> Iterator[Phase]:
        """Yield one for all pixels of the result between which strides lie."""
        for one in split_transposed(weights, self.axes):
            arguments = {"padding": one.padding, "dilation": one.dilation}
            yield Phase(one.weights, arguments, one.pixels, one.results)

    @property
    def is_whole(self) -> bool:
        """Whether each pixel of the result sees some pixel of the images through some tap."""
        seen = (
            (one.taps, range(axis.size)[one.pixels]) for axis in self.axes for one in axis.phases()
        )
        return all(taps and pixels for taps, pixels in seen)


@dataclass(frozen=True, slots=True)
class Repeats:
    """A convolution of images whose pixels were repeated.

    Parameters
    ----------
    taps, padding, times
        Of the window, around the repeated images, and how often each pixel stands there, for each
        axis.
    extents
        Of the images as they were.

    Examples
    --------
    >>> (one, other) = Repeats((3,), ((1, 1),), (2,), (5,)).phases(np.array([[[1.0, 2.0, 4.0]]]))
    >>> one.weights.tolist(), one.arguments, other.weights.tolist(), other.arguments
    ([[[1.0, 6.0]]], {'padding': ((1, 0),)}, [[[3.0, 4.0]]], {'padding': ((0, 1),)})
    """

    taps: tuple[int, ...]
    padding: tuple[Ends, ...]
    times: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def out_extents(self) -> tuple[int, ...]:
        """The extents of the result."""
        return tuple(
            times * extent + low + high - count + 1
            for count, (low, high), times, extent in self._axes
        )

    @property
    def _axes(self) -> Iterator[tuple[int, Ends, int, int]]:
        return zip(self.taps, self.padding, self.times, self.extents, strict=True)

    def phases(self, weights: Array) -> Iterator[Phase]:
        """Yield one for all pixels of the result between which as many lie as pixels repeat."""
        axes = [list(_split_axis(*given)) for given in self._axes]
        for along in product(*axes):
            found = weights.astype(np.float64)
            for axis, one in enumerate(along, 2):
                found = np.moveaxis(np.tensordot(found, one.sums, (axis, 1)), -1, axis)
            yield Phase(
                found.astype(weights.dtype),
                {"padding": tuple(one.padding for one in along)},
                (slice(None),) * len(along),
                tuple(one.cut for one in along),
            )

    @property
    def pays(self) -> bool:
        """Whether there are fewer products, and images are read as they were."""
        along = [one for given in self._axes for one in _split_axis(*given)]
        fewer = any(taps > 1 and times > 1 for taps, _, times, _ in self._axes)
        return fewer and all(min(one.padding) >= 0 for one in along)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """What a phase does along one axis: `sums` has a row of ones and zeros for each tap."""

    sums: Array
    padding: Ends
    cut: slice


def _split_axis(taps: int, padding: Ends, times: int, extent: int) -> Iterator[_Along]:
    count = times * extent + sum(padding) - taps + 1
    for first in range(min(times, count)):
        at = (first + np.arange(taps) - padding[0]) // times
        sums = np.equal.outer(np.arange(at[0], at[-1] + 1), at).astype(np.float64)
        last = (count - 1 - first) // times + int(at[-1])
        yield _Along(sums, (-int(at[0]), last - extent + 1), slice(first, None, times))


def look_through_repeats(network: Network) -> None:
    """Let convolutions, given a `split`, read images whose pixels are not repeated yet."""
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
    names = [*node.inputs[1:], *maker.inputs[1:]]
    if shape is None or any(name and name not in constants for name in names):
        return None
    try:
        values = [constants.get(name) for name in maker.inputs[1:]]
        times = read_repeats(maker, network.opset, shape, *values)
    except TypeError:  # what pipelines do not have either
        return None
    weights = constants[node.inputs[1]]
    found = read_arguments(node.given, network.shapes[node.inputs[0]], weights.shape)
    if min(times, default=0) < 2 or max(*found["stride"], *found["dilation"]) > 1:
        return None
    if found["groups"] == len(weights) > 1:
        return None
    repeats = tuple(times.get(axis, 1) for axis in range(2, len(shape)))
    split = Repeats(weights.shape[2:], found["padding"], repeats, shape[2:])
    return {"group": found["groups"], "split": split} if split.pays else None
