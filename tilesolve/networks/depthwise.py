"""Layers of small groups as pipelines, depthwise ones too, read from images with their padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import NETWORK_GROUP_FILTERS, NETWORK_GROUP_TAPS
from tilesolve.networks.chains import Chain
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.front import PipelineFunction

Ends = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class DepthwiseBody:
    """What a layer of small groups computes, as a function of padded images with channels last.

    Images and results of depthwise layers have one axis of channels, those of others one of groups
    and one of the channels of a group. So have their weights, with the window's axes before: by
    channel, or by group, channel of a group and filter of a group. Taps of one channel stand side
    by side, so that code keeps the weights of few of them.

    Parameters
    ----------
    counts
        How many pixels the result has along each axis.
    stride, dilation
        Between windows, and between their taps.
    activation
        Of each element.
    """

    counts: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    activation: Callable[[Any], Any]

    def __call__(self, x: Any, weights: Any, *added: Any) -> Any:
        """Return the result, given what is added: sums begin with a bias, which has no pixels."""
        biases = [one for one in added if one.ndim < x.ndim]
        found = biases[0] if biases else None
        window = weights.shape[: len(self.counts)]
        channels = [None] if weights.ndim == len(window) + 1 else range(weights.shape[-2])
        for channel, tap in product(channels, product(*map(range, window))):
            cuts = tuple(
                slice(gap * at, gap * at + step * (count - 1) + 1, step)
                for at, gap, step, count in zip(
                    tap, self.dilation, self.stride, self.counts, strict=True
                )
            )
            pixels, factor = x[(slice(None), *cuts)], weights[tap]
            if channel is not None:
                pixels, factor = pixels[..., channel, None], factor[:, channel]
            part = pixels * factor
            found = part if found is None else found + part
        for one in added:
            found = found + one if one.ndim == x.ndim else found
        return self.activation(found)


def has_small_groups(chain: Chain) -> bool:
    """Return whether few channels of a chain's images are convolved together."""
    if chain.is_product or chain.weights.dtype.name not in ("float32", "float64"):
        return False
    groups: int = chain.arguments["groups"]
    small = groups > 1 and prod(chain.weights.shape[1:]) <= NETWORK_GROUP_TAPS
    filters = len(chain.weights) // groups
    return small and (groups_of(chain) is None or filters >= NETWORK_GROUP_FILTERS)


def groups_of(chain: Chain) -> int | None:
    """Return how many groups of several channels a chain has; None if each is by itself."""
    groups: int = chain.arguments["groups"]
    return None if groups == len(chain.weights) and chain.weights.shape[1] == 1 else groups


def split_groups(array: Array, groups: int | None) -> Array:
    """Return an array with channels last as `DepthwiseBody` takes it, which is a view."""
    return array if groups is None else array.reshape(*array.shape[:-1], groups, -1)


def constants_of(chain: Chain) -> list[Array]:
    """Return the weights and the bias of a chain as `DepthwiseBody` takes them."""
    groups, weights = groups_of(chain), chain.weights
    if groups is None:
        found = [np.moveaxis(weights[:, 0], 0, -1)]
    else:
        parts = weights.reshape(groups, -1, *weights.shape[1:])
        found = [np.moveaxis(parts, (0, 2, 1), (-3, -2, -1))]
    if chain.bias is not None:
        found.append(split_groups(chain.bias, groups))
    return [np.ascontiguousarray(one) for one in found]


def predict_seconds(
    chain: Chain, shape: tuple[int, ...], out_shape: tuple[int, ...], function: PipelineFunction
) -> float:
    """Return how long a pipeline is predicted to take for a chain.

    Parameters
    ----------
    shape, out_shape
        Of the images, channels before pixels, and of the result, channels last.
    """
    groups, kind = groups_of(chain), chain.weights.dtype
    ends = zip(shape[2:], padding_of(chain), strict=True)
    wide = (shape[0], *(extent + low + high for extent, (low, high) in ends), shape[1])
    given = [split_groups(np.empty(wide, kind), groups), *constants_of(chain)]
    if chain.residual is not None:
        given.append(split_groups(np.empty(out_shape, kind), groups))
    return function.plan(*given).seconds


def padding_of(chain: Chain) -> Ends:
    """Return the zeros around a chain's images."""
    return tuple(tuple(one) for one in chain.arguments["padding"])
