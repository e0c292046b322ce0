"""Pipelines as OpenCV has them: its functions of whole images, one after another."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.image_functions import BLUR_WEIGHTS, RADIUS


def _library() -> Any:  # noqa: ANN401 - a module
    return importlib.import_module("cv2")


def blur(image: Array) -> Array:
    """Return the mean of three by three neighbours."""
    found: Array = _library().blur(image, (3, 3))
    return found[1:-1, 1:-1]


def _gray(image: Array) -> Array:
    both = _library().addWeighted(image[0], 0.299, image[1], 0.587, 0)
    found: Array = _library().scaleAdd(image[2], 0.114, both)
    return found


def unsharp(image: Array) -> Array:
    """Return an image (channel, y, x) whose edges are sharpened."""
    gray = _gray(image)
    smooth = _library().sepFilter2D(
        gray, -1, BLUR_WEIGHTS, BLUR_WEIGHTS, borderType=_library().BORDER_REPLICATE
    )
    ratio = _library().divide(_library().addWeighted(gray, 2, smooth, -1, 0), gray)
    return np.stack([_library().multiply(ratio, one) for one in image])


def harris(image: Array) -> Array:
    """Return how much of a corner each pixel of an image (channel, y, x) is."""
    found: Array = _library().cornerHarris(_gray(image), 3, 3, 0.04)
    return found[2:-2, 2:-2]


def maxfilter(image: Array) -> Array:
    """Return the greatest value in a disc around each pixel of an image (channel, y, x)."""
    reach = np.arange(-RADIUS, RADIUS + 1) ** 2
    disc = (reach[:, None] + reach <= RADIUS * RADIUS).astype("uint8")
    return np.stack([_library().dilate(one, disc) for one in image])


PIPELINES: dict[str, Callable[..., Array]] = {
    one.__name__: one for one in (blur, unsharp, harris, maxfilter)
}
"""Pipelines by name."""
