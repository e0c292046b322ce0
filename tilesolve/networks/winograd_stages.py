"""Winograd's F(2x2, 3x3) as statements: tiles, filters and sums of their products.

With rows of 0, 1 and -1 along both axes, a tile of 4x4 pixels becomes 16 numbers, and sums of 16
products become 2x2 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from operator import add

import numpy as np

from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Choose, Read, Term, apply
from tilesolve.packing.memory_overlap import Array

OUT = 2
"""Pixels of a side of a tile of the result."""

_IMAGES = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_RESULTS = ((1, 1, 1, 0), (0, 1, -1, -1))
_FILTERS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
TILE = len(_IMAGES)
"""Pixels of a side of a tile of an image."""

_N, _Y, _X, _C = (Affine.letter(letter) for letter in "nyxc")


def transform_filters(weights: Array) -> Array:
    """Return filters as 16 matrices of channels and filters, summed in float64.

    Examples
    --------
    >>> transform_filters(np.ones((8, 4, 3, 3), "float32")).shape
    (16, 4, 8)
    """
    filters, channels, *_ = weights.shape
    taps: Array = np.empty((weights[0, 0].size, channels, filters))
    taps[...] = weights.reshape(filters, channels, -1).T
    found = np.kron(_FILTERS, _FILTERS) @ taps.reshape(len(taps), -1)
    return found.astype(weights.dtype).reshape(-1, channels, filters)


def restore_filters(matrices: Array) -> Array:
    """Return filters of which there are 16 matrices, but for the rounding of these.

    Examples
    --------
    >>> restore_filters(transform_filters(np.ones((8, 4, 3, 3), "float32"))).shape
    (8, 4, 3, 3)
    """
    factors = np.linalg.pinv(np.array(_FILTERS))
    tiles = matrices.reshape(TILE, TILE, *matrices.shape[1:]).astype(np.float64)
    found: Array = np.einsum("ri,sj,ijck->kcrs", factors, factors, tiles).astype(matrices.dtype)
    return found


def enter_tiles() -> list[Stage]:
    """Return what makes the numbers of tiles."""

    def read(i: int, j: int) -> Term:
        return Read("images", (_N, OUT * _Y + i, OUT * _X + j, _C))

    return [
        Stage(f"tile{at}", (_N, _Y, _X, _C), _combine(row, column, read))
        for at, (row, column) in enumerate(product(_IMAGES, _IMAGES))
    ]


def leave_tiles(
    pixels: tuple[int, int],
    activation: Epilogue,
    has_bias: bool,
    has_residual: bool,
) -> list[Stage]:
    """Return what makes pixels of sums."""
    stages = []
    for i, j in product(*map(range, pixels)):

        def read(row: int, column: int) -> Term:
            return Read("sums", (Affine.number(TILE * row + column), _N, _Y, _X, _C))

        found = _combine(_RESULTS[i], _RESULTS[j], read)
        if has_bias:
            found = found + Read("bias", (_C,))
        if has_residual:
            found = found + Read("residual", (_N, OUT * _Y + i, OUT * _X + j, _C))
        found = reduce(_activate, activation.operations, found)
        stages.append(Stage(f"pixel{i}{j}", (_N, _Y, _X, _C), found))
    return stages


def _combine(row: Sequence[int], column: Sequence[int], read: Callable[[int, int], Term]) -> Term:
    """Return elements added up with factors of 1 and -1 along both axes."""

    def added(factors: Sequence[int], part: Callable[[int], Term]) -> Term:
        plus = [part(at) for at, factor in enumerate(factors) if factor > 0]
        minus = (part(at) for at, factor in enumerate(factors) if factor < 0)
        return reduce(lambda found, one: found - one, minus, reduce(add, plus))

    return added(column, lambda j: added(row, lambda i: read(i, j)))


def _activate(term: Term, operation: Operation) -> Term:
    """Return a function of an epilogue as a term."""
    name, numbers = operation.name, operation.numbers
    if name == "leaky":
        return Choose(apply("less", term, 0), term * numbers[0], term)
    bounds = {"relu": (0.0, np.inf), "relu6": (0.0, 6.0), "clip": numbers}.get(name)
    if bounds is None:
        return apply(name.replace("-", "_"), term)
    low, high = bounds
    found = apply("maximum", term, low) if low > -np.inf else term
    return apply("minimum", found, high) if high < np.inf else found
