"""Arrays of a layer, and some elements of its result as sums written out."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from tilesolve.bench.run.oracle import ROUNDING_ERRORS, Array, pick_places
from tilesolve.contractions.convolution import Convolution
from tilesolve.packing.buffers import empty


def draw_layer(layer: Convolution, seed: int = 7) -> tuple[Array, Array, Array]:
    """Return images in the layer's layout, filters and a bias; the same for each layout."""
    rng = np.random.default_rng(seed)
    first = (layer.batch, layer.channels, *layer.size)
    x, w, bias = (
        empty(shape, np.dtype(layer.dtype)) for shape in (first, layer.w_shape, (layer.filters,))
    )
    for array in (x, w, bias):
        rng.standard_normal(out=array, dtype=array.dtype.type)
    if layer.layout == "NHWC":
        last = empty(layer.x_shape, x.dtype)
        last[...] = np.moveaxis(x, 1, -1)
        x = last
    return x, w, bias


def channels_first(layer: Convolution, array: Array) -> Array:
    """Return a view of images or results with channels before pixels."""
    return np.moveaxis(array, -1, 1) if layer.layout == "NHWC" else array


def pick_results(layer: Convolution) -> Array:
    """Return places of a result with channels first that are checked."""
    return pick_places((layer.batch, layer.filters, *layer.out_size))


def compute_results(
    layer: Convolution, x: Array, w: Array, bias: Array, at: Array
) -> tuple[Array, Array]:
    """Return some elements of the layer's result, after ReLU, and how far each may be off.

    Examples
    --------
    >>> layer = Convolution.of((1, 1, 2, 2), (1, 1, 3, 3), padding=1)
    >>> x, w = np.ones((1, 1, 2, 2)), np.full((1, 1, 3, 3), 2.0)
    >>> compute_results(layer, x, w, np.array([-1.0]), np.array([[0, 0, 1, 1]]))[0].tolist()
    [7.0]
    """
    images = channels_first(layer, x)
    own, made = layer.channels // layer.groups, layer.filters // layer.groups
    values, slack = np.zeros(len(at)), np.zeros(len(at))
    epsilon = float(np.finfo(layer.dtype).eps)
    for row, (image, filter_, *pixel) in enumerate(at.tolist()):
        first = filter_ // made * own
        taps, pixels = [], []
        for axis, place in enumerate(pixel):
            steps = layer.dilation[axis] * np.arange(layer.window[axis])
            reached = place * layer.stride[axis] - layer.padding[axis][0] + steps
            inside = (reached >= 0) & (reached < layer.size[axis])
            taps.append(np.flatnonzero(inside))
            pixels.append(reached[inside])
        channels = np.arange(own)
        seen: Any = images[image][np.ix_(first + channels, *pixels)].astype(np.float64)
        product = seen * w[filter_][np.ix_(channels, *taps)]
        shift = float(bias[filter_])
        values[row] = max(0.0, float(product.sum()) + shift)
        size = sqrt(float((product**2).sum()) + shift**2)
        slack[row] = ROUNDING_ERRORS * epsilon * sqrt(product.size + 1) * size
    return values, slack
