"""Depthwise layers as pipelines: each channel by itself, read from images with their padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from tilesolve.constants.policy import NETWORK_TRIAL_RUNS
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.networks.chains import Chain
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.front import PipelineFunction

Ends = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class DepthwiseBody:
    """What a depthwise layer computes, as a function of padded images with channels last.

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
        """Return the result, given what is added to each element behind the sum."""
        found = None
        for tap in product(*map(range, weights.shape[:-1])):
            cuts = tuple(
                slice(gap * at, gap * at + step * (count - 1) + 1, step)
                for at, gap, step, count in zip(
                    tap, self.dilation, self.stride, self.counts, strict=True
                )
            )
            part = x[(slice(None), *cuts)] * weights[tap]
            found = part if found is None else found + part
        for one in added:
            found = found + one
        return self.activation(found)


def depthwise_weights(chain: Chain) -> Array:
    """Return the weights of a depthwise chain with their channels last."""
    return np.ascontiguousarray(np.moveaxis(chain.weights[:, 0], 0, -1))


def compare_depthwise(
    chain: Chain, shape: tuple[int, ...], function: PipelineFunction, layer: ConvLayer
) -> tuple[float, float]:
    """Return the least seconds of calls of a pipeline and of a layer, on synthetic images.

    Parameters
    ----------
    shape
        Of the images, channels before pixels.
    """
    rng, kind, ends = np.random.default_rng(0), chain.weights.dtype, padding_of(chain)
    images = rng.random((shape[0], *shape[2:], shape[1])).astype(kind)
    padded = np.pad(images, [(0, 0), *ends, (0, 0)])
    out, added = np.empty(layer.out_shape, kind), [] if chain.bias is None else [chain.bias]
    residual = np.ones(layer.out_shape, kind) if chain.residual is not None else None
    if residual is not None:
        added.append(residual)
    arrays = (padded, depthwise_weights(chain), *added)
    calls = (lambda: function(*arrays, out=out), lambda: layer(images, out, residual))
    found = []
    for call in calls:
        call()
        seconds = []
        for _ in range(NETWORK_TRIAL_RUNS):
            begin = perf_counter()
            call()
            seconds.append(perf_counter() - begin)
        found.append(min(seconds))
    return found[0], found[1]


def is_depthwise(chain: Chain) -> bool:
    """Return whether each channel of a chain's images is convolved by itself."""
    if chain.is_product or chain.weights.dtype.name not in ("float32", "float64"):
        return False
    groups: int = chain.arguments["groups"]
    return groups == len(chain.weights) > 1 and chain.weights.shape[1] == 1


def padding_of(chain: Chain) -> Ends:
    """Return the zeros around a chain's images."""
    return tuple(tuple(one) for one in chain.arguments["padding"])
