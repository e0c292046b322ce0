"""Functions of tables, grids and layers of networks: the suite of pipelines has them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
"""An array of NumPy's, or one that is traced."""

ROUNDS = 4
"""How often total variation is lessened."""

STEP, WEIGHT = 0.25, 0.1
"""How far each round goes, and how smooth the result shall be."""


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


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Return for each query the mean of values, by how near their keys are: one head."""
    return softmax(queries @ keys.T * queries.shape[1] ** -0.5) @ values


def vdsr(image: Array, weights_in: Array, weights: Array, weights_out: Array) -> Array:
    """Return an image (channel, y, x) with the details that layers of convolutions find."""
    found = np.maximum(_convolve(image, weights_in), 0)
    for layer in range(weights.shape[0]):
        found = np.maximum(_convolve(found, weights[layer]), 0)
    return image + _convolve(found, weights_out)


def _convolve(image: Array, weights: Array) -> Array:
    """Return the products of an image's three by three windows with filters."""
    height, width = image.shape[1:]
    wide = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    return sum(
        np.tensordot(weights[:, :, y, x], wide[:, y : y + height, x : x + width], 1)
        for y in range(3)
        for x in range(3)
    )


def total_variation(image: Array) -> Array:
    """Return an image whose noise is gone and whose edges are not, by Chambolle's projections."""
    found = image
    down, right = np.zeros_like(image), np.zeros_like(image)
    for _ in range(ROUNDS):
        slope_y = np.pad(np.diff(found, axis=0), ((0, 1), (0, 0)))
        slope_x = np.pad(np.diff(found, axis=1), ((0, 0), (0, 1)))
        norm = 1 + STEP / WEIGHT * np.sqrt(slope_y * slope_y + slope_x * slope_x)
        down = (down - STEP * slope_y) / norm
        right = (right - STEP * slope_x) / norm
        above = np.pad(down[:-1], ((1, 0), (0, 0)))
        before = np.pad(right[:, :-1], ((0, 0), (1, 0)))
        found = image - down - right + above + before
    return found
