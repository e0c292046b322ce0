"""Pipelines as NumPy functions, written from their descriptions, and the sizes of their arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.pipelines.stages import make_computation
from tilesolve.pipelines.tracing import trace_function

Array = Any
"""An array of NumPy's, or one that is traced."""

BLUR_WEIGHTS = np.array(
    [0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125], "float32"
)
"""Of seven neighbours, the middle one most."""

RADIUS = 26
"""How far the greatest value of a neighbourhood may lie."""

LEVELS = 4
"""Of pyramids of images."""


def blur(image: Array) -> Array:
    """Return the mean of three by three neighbours."""
    rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


def _gray(image: Array) -> Array:
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def unsharp(image: Array) -> Array:
    """Return an image (channel, y, x) whose edges are sharpened."""
    gray = _gray(image)
    padded = np.pad(gray, 3, "edge")
    height, width = gray.shape
    across = sum(BLUR_WEIGHTS[k] * padded[k : k + height] for k in range(7))
    smooth = sum(BLUR_WEIGHTS[k] * across[:, k : k + width] for k in range(7))
    ratio = (2 * gray - smooth) / gray
    return ratio * image


def _box(a: Array) -> Array:
    height, width = a.shape
    return sum(a[i : height - 2 + i, j : width - 2 + j] for i in range(3) for j in range(3))


def harris(image: Array) -> Array:
    """Return how much of a corner each pixel of an image (channel, y, x) is."""
    g = _gray(image)
    down = g[2:, :-2] + 2 * g[2:, 1:-1] + g[2:, 2:]
    iy = (down - g[:-2, :-2] - 2 * g[:-2, 1:-1] - g[:-2, 2:]) / 12
    right = g[:-2, 2:] + 2 * g[1:-1, 2:] + g[2:, 2:]
    ix = (right - g[:-2, :-2] - 2 * g[1:-1, :-2] - g[2:, :-2]) / 12
    xx, yy, xy = _box(ix * ix), _box(iy * iy), _box(ix * iy)
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * trace * trace


def maxfilter(image: Array) -> Array:
    """Return the greatest value in a disc around each pixel of an image (channel, y, x)."""
    height = image.shape[1]
    reach = 2 * RADIUS + 1
    padded = np.pad(image, ((0, 0), (RADIUS, RADIUS), (RADIUS, RADIUS)), "edge")
    spans, size = {1: padded}, 1
    while 2 * size <= reach:  # the greatest value of so many rows from each on
        span = spans[size]
        spans[2 * size] = np.maximum(span[:, :-size], span[:, size:])
        size *= 2
    width, found = image.shape[2], None
    for dx in range(-RADIUS, RADIUS + 1):
        half = int((RADIUS * RADIUS - dx * dx) ** 0.5)
        count = 2 * half + 1
        size = 1 << (count.bit_length() - 1)
        column = spans[size][:, :, RADIUS + dx : RADIUS + dx + width]
        first, last = RADIUS - half, RADIUS + half + 1 - size
        tall = np.maximum(column[:, first : first + height], column[:, last : last + height])
        found = tall if found is None else np.maximum(found, tall)
    return found


def _edges(image: Array, axis: int) -> Array:
    """Return an image with its border repeated once, along an axis."""
    return np.pad(
        image, [(1, 1) if x == axis % image.ndim else (0, 0) for x in range(image.ndim)], "edge"
    )


def _halve(image: Array) -> Array:
    """Return an image of half the size: means of four neighbours along both axes."""
    rows = _edges(image, -2)
    rows = (rows[..., :-2:2, :] + 2 * rows[..., 1:-1:2, :] + rows[..., 2::2, :]) / 4
    both = _edges(rows, -1)
    return (both[..., :-2:2] + 2 * both[..., 1:-1:2] + both[..., 2::2]) / 4


def _double(image: Array) -> Array:
    """Return an image of twice the size, by lines between pixels."""
    rows = _edges(np.repeat(image, 2, axis=-2), -2)
    rows = (rows[..., :-2, :] + 2 * rows[..., 1:-1, :] + rows[..., 2:, :]) / 4
    both = _edges(np.repeat(rows, 2, axis=-1), -1)
    return (both[..., :-2] + 2 * both[..., 1:-1] + both[..., 2:]) / 4


def interpolate(image: Array) -> Array:
    """Return an image whose pixels without weight, the last channel, are filled from around."""
    level = np.concatenate([image[:3] * image[3], image[3:]])
    levels = [level]
    for _ in range(LEVELS):
        levels.append(_halve(levels[-1]))
    found = levels[-1]
    for level in levels[-2::-1]:
        found = level + (1 - level[3]) * _double(found)
    return found[:3] / found[3]


def pyramid_blend(first: Array, second: Array, mask: Array) -> Array:
    """Return two images put together by a mask, at each scale of their details."""
    coarse: list[tuple[Array, ...]] = [(first, second, mask)]
    found = None
    for _ in range(LEVELS - 1):
        coarse.append(tuple(_halve(one) for one in coarse[-1]))
    for level, (one, other, weight) in reversed(list(enumerate(coarse))):
        if found is None:
            found = weight * one + (1 - weight) * other
            continue
        fine = one - _double(coarse[level + 1][0]), other - _double(coarse[level + 1][1])
        found = _double(found) + weight * fine[0] + (1 - weight) * fine[1]
    return found


def stencil_chain(image: Array, stages: int = 8) -> Array:
    """Return an image that is smoothed again and again, each time by five by five neighbours."""
    for _ in range(stages):
        height, width = image.shape[0] - 4, image.shape[1] - 4
        rows = sum((3 - abs(k - 2)) * image[k : k + height] for k in range(5))
        image = sum((3 - abs(k - 2)) * rows[:, k : k + width] for k in range(5)) // 81
    return image


def shallow_water(h: Array, u: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return height and flow of water after a step of time, walls around."""
    u, v = u.copy(), v.copy()
    u[:, 1:-1] -= 0.1 * (h[:, 1:] - h[:, :-1])
    v[1:-1] -= 0.1 * (h[1:] - h[:-1])
    h = h - 0.1 * (u[:, 1:] - u[:, :-1] + v[1:] - v[:-1])
    return h, u, v


def softmax(a: Array) -> Array:
    """Return shares of a whole, row by row."""
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(a: Array, scale: Array, shift: Array) -> Array:
    """Return rows with mean 0 and variance 1, scaled and shifted."""
    centred = a - a.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale + shift


FUNCTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(blur, unsharp, harris, maxfilter, interpolate, pyramid_blend, stencil_chain),
        *(shallow_water, softmax, layer_norm),
    )
}
"""Pipelines by name."""


@dataclass(frozen=True, slots=True)
class Pipeline(Nest):
    """A function whose statements are traced.

    `text` is its name; `shapes` has its arguments in order, all of one dtype. Of several results
    the first one counts.

    Examples
    --------
    >>> print(CASES["blur"].shrink(32).computation.stages[0])
    rows[y1,x1] = (image[y1,x1] + image[y1,x1+1] + image[y1,x1+2]) / 3
    """

    @property
    def function(self) -> Callable[..., Any]:
        """What NumPy runs."""
        return FUNCTIONS[self.text]

    @property
    def computation(self) -> Computation:
        """What it computes."""
        return _trace(self)

    def shrink(self, share: int) -> Pipeline:
        """Return the same of arrays whose axes are so many times shorter."""
        # What is longer than a multiple stays so much longer.
        shapes = tuple(
            (name, tuple(n // share // 16 * 16 + n % 16 if n > 16 else n for n in shape))
            for name, shape in self.shapes
        )
        return Pipeline(self.name, self.text, self.sizes, self.dtype, shapes=shapes)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays that are drawn, by name: bytes, or shares of 256; always the same."""
        rng = np.random.default_rng(0)
        scale = 1 if self.dtype.startswith("u") else 256
        return {
            name: (rng.integers(1, 256, shape) / scale).astype(self.dtype)
            for name, shape in self.shapes
        }


@cache
def _trace(pipeline: Pipeline) -> Computation:
    # Tracing looks at shapes and dtypes alone.
    arrays = [np.broadcast_to(np.zeros((), pipeline.dtype), shape) for _, shape in pipeline.shapes]
    function = pipeline.function
    found = trace_function(function, signature(function).bind(*arrays))
    return make_computation(found.graph, [found.results[0].name])


def _define(
    function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32"
) -> Pipeline:
    name = function.__name__
    named = tuple(zip(signature(function).parameters, shapes, strict=False))
    return Pipeline(name, name, (), dtype, shapes=named)


CASES = {
    one.name: one
    for one in (
        _define(blur, (4802, 6402)),
        _define(unsharp, (3, 1024, 1920)),
        _define(harris, (3, 1028, 1924)),
        _define(maxfilter, (3, 1024, 1920)),
        _define(interpolate, (4, 1536, 2560)),
        _define(pyramid_blend, (3, 1024, 1920), (3, 1024, 1920), (1024, 1920)),
        _define(stencil_chain, (1568, 2592), dtype="uint16"),
        _define(shallow_water, (1024, 1024), (1024, 1025), (1025, 1024), dtype="float64"),
        _define(softmax, (4096, 1024)),
        _define(layer_norm, (4096, 1024), (1024,), (1024,)),
    )
}
"""Pipelines with sizes, by name."""
