"""Convolutions as copies of windows and products by numpy's BLAS, as well as that can be done.

A copy has a row of sums for each tap, taken from the images by one strided copy a tap. Where
windows reach over padding it holds zeros from the start, which no copy touches. A pointwise layer
multiplies the images as they lie. Bias and ReLU are one further pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numba
import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.convolution import Convolution
from tilesolve.packing.buffers import empty

Index = tuple[slice | int, ...]
"""Some of an array."""


def make_im2col(
    layer: Convolution, x: Array, w: Array, bias: Array, out: Array
) -> Callable[[], None]:
    """Return a function that computes a layer with bias and ReLU into an array.

    Arrays are in the layer's layout, the filters `w` in torch's order.
    """
    last = layer.layout == "NHWC"
    parts = (layer.groups, layer.channels // layer.groups)
    made = (layer.groups, layer.filters // layer.groups)
    pixels, shift = prod(layer.out_size), bias if last else bias[:, None]
    flat = out.reshape(layer.batch, *((pixels, layer.filters) if last else (layer.filters, pixels)))
    if last:
        weights = np.ascontiguousarray(np.moveaxis(w.reshape(*made, parts[1], -1), 1, -1))
        weights = weights.swapaxes(1, 2).reshape(layer.groups, -1, made[1])
        results = out.reshape(layer.batch, pixels, *made).swapaxes(1, 2)
    else:
        weights = w.reshape(*made, -1)
        results = out.reshape(layer.batch, *made, pixels)
    copy, columns = _make_copy(layer, x, parts)
    first, second = (columns, weights) if last else (weights, columns)
    finish = _pass_over(layer.dtype)

    def run() -> None:
        copy()
        np.matmul(first, second, out=results)
        finish(flat, shift, flat)

    return run


def _make_copy(
    layer: Convolution, x: Array, parts: tuple[int, int]
) -> tuple[Callable[[], None], Array]:
    """Return what copies all windows, and the copy as matrices of each image and group."""
    last, pixels, taps = layer.layout == "NHWC", prod(layer.out_size), prod(layer.window)
    if layer.pointwise:
        if last:
            return _copy_nothing, x.reshape(layer.batch, pixels, *parts).swapaxes(1, 2)
        return _copy_nothing, x.reshape(layer.batch, *parts, pixels)
    if last:
        shape = (layer.batch, layer.groups, *layer.out_size, *layer.window, parts[1])
        images = np.moveaxis(x.reshape(layer.batch, *layer.size, *parts), -2, 1)
    else:
        shape = (layer.batch, *parts, *layer.window, *layer.out_size)
        images = x.reshape(layer.batch, *parts, *layer.size)
    copied = empty(shape, x.dtype)
    copied.fill(0)
    head: Index = (slice(None),) * (2 if last else 3)
    pairs = []
    for tap, to, read in _list_taps(layer):
        where: Index = (*head, *to, *tap) if last else (*head, *tap, *to)
        pairs.append((copied[where], images[(*head, *read)]))

    def copy() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    rows = parts[1] * taps
    sides = (pixels, rows) if last else (rows, pixels)
    return copy, copied.reshape(layer.batch, layer.groups, *sides)


def _copy_nothing() -> None:
    pass


def _list_taps(layer: Convolution) -> Iterator[tuple[Index, Index, Index]]:
    """Yield each tap that reaches images, with the results that it is for, and what it reads."""
    for tap in product(*map(range, layer.window)):
        places = [_reach(layer, axis, at) for axis, at in enumerate(tap)]
        if all(place is not None for place in places):
            yield (
                tap,
                tuple(place[0] for place in places if place),
                tuple(place[1] for place in places if place),
            )


def _reach(layer: Convolution, axis: int, tap: int) -> tuple[slice, slice] | None:
    """Return for which results of a dimension a tap is inside the images, and where it is then.

    Examples
    --------
    >>> layer = Convolution.of((1, 1, 4, 4), (1, 1, 3, 3), padding=1)
    >>> _reach(layer, 0, 0)
    (slice(1, 4, None), slice(0, 3, 1))
    """
    step = layer.stride[axis]
    begin = layer.dilation[axis] * tap - layer.padding[axis][0]
    first = max(0, -(begin // step))
    stop = min(layer.out_size[axis], -((begin - layer.size[axis]) // step))
    if first >= stop:
        return None
    return slice(first, stop), slice(begin + step * first, begin + step * (stop - 1) + 1, step)


def _pass_over(dtype: str) -> Any:  # noqa: ANN401 - a ufunc
    """Return a ufunc that adds, and takes zero where less is left, in one pass."""
    kind = np.dtype(dtype)
    zero, name = kind.type(0), numba.from_dtype(kind)

    @numba.vectorize([name(name, name)])  # type: ignore[no-untyped-call]
    def add_and_clip(value, shift):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        found = value + shift
        return zero if found < zero else found

    return add_and_clip
