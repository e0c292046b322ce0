"""Tensor maps: what bulk copies fetch of operands, where their letters make boxes of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.gpu.product import Product
from tilesolve.kernels.gpu.forms import DIMENSIONS, Box, Form

BOX_SIDE = 256
"""Elements of a box along a dimension, at most."""

STRIDE_BYTES, MOST_STRIDE = 16, 2**40
"""What strides of dimensions but the innermost are multiples of, and less than."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor and boxes of it, as the driver encodes them: the innermost dimension first.

    Elements and strides are bytes, the swizzle those of a line in shared memory.
    """

    element: int
    swizzle: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def table(self) -> NDArray[np.int64]:
        """The map as numbers, as it is emulated: swizzle, elements of a box, and all dimensions."""
        filled = [
            (*numbers, *[fill] * (DIMENSIONS - len(numbers)))
            for numbers, fill in ((self.extents, 1), (self.strides, 0), (self.box, 1))
        ]
        return np.array([self.swizzle, prod(self.box), *np.ravel(filled)], np.int64)


def add_boxes(product: Product, form: Form) -> Form:
    """Return a form that fetches by bulk copies what it can, where groups of four warps multiply.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.gpu.strategy import make_tiling
    >>> product = Product.of(Problem.of("ij-ik-kj", "i=512 j=500 k=512", "float16"))
    >>> make_tiling(product, "float16", (64, 64, 64), (1, 1), 3, grouped=True).form.boxed
    (0,)
    """
    if not form.grouped:
        return form
    found = [find_box(product, form, at) for at in range(2)]
    first, second = (
        replace(own, box=one[0] if one else None)
        for own, one in zip(form.operands, found, strict=True)
    )
    return replace(form, first=first, second=second)


def find_box(product: Product, form: Form, at: int) -> tuple[Box, TensorMap] | None:
    """Return how an operand's tiles are boxes of its tensor; None if they are none.

    Elements lie side by side along a tile's lines, all else is multiples of 16 bytes apart, and
    each letter has whole tiles, or a tile has all of the letter.
    """
    letters = product.rows if at == 0 else product.columns
    groups = [product.fuse(one, at) for one in (letters, product.sums, product.batches)]
    free, sums, batches = groups
    along, across = (sums, free) if form.operands[at].along_sum else (free, sums)
    size, pitch = form.fragment.element, form.pitch(at)
    along, across = along or [(1, 1)], across or [(1, STRIDE_BYTES)]
    sides = (along, pitch // size), (across, form.tile(at)[0]), (batches, 1)
    boxes = [_cut([extent for extent, _ in own], side) for own, side in sides]
    if None in boxes or along[-1][1] != 1 or boxes[0][0] * size != pitch:  # type: ignore[index]
        return None
    dimensions = [pair for own, _ in sides for pair in reversed(own)]
    extents, strides = (tuple(numbers) for numbers in zip(*dimensions, strict=True))
    box = tuple(side for own in boxes if own for side in own)
    apart = tuple(size * stride for stride in strides)
    fits = all(one % STRIDE_BYTES == 0 and one < MOST_STRIDE for one in apart[1:])
    if len(box) > DIMENSIONS or max(box) > BOX_SIDE or not fits:
        return None
    inner = [tuple(extent for extent, _ in own[1:]) for own in groups]
    found = Box(inner[0], inner[1], inner[2] if batches else None)
    return found, TensorMap(size, pitch, extents, apart, box)


def _cut(extents: Sequence[int], side: int) -> list[int] | None:
    """Return the sides of a box of as many elements, the innermost first; None if there is none.

    Its elements follow each other in the letters' order, from any multiple of their number on.

    Examples
    --------
    >>> _cut([5, 4, 8], 64), _cut([5, 128], 64), _cut([3, 48], 64), _cut([100], 64)
    ([8, 4, 2], [64, 1], None, [64])
    """
    found = []
    for extent in reversed(extents[1:]):
        if side % extent and extent % side:
            return None
        found.append(min(side, extent))
        side //= found[-1]
    return [*found, side] if extents else []
