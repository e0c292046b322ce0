"""Views: the axes of an array as a problem wants them, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class View:
    """How an array is seen: elements are picked, axes split or merged, and put in another order.

    Parameters
    ----------
    index
        The index of each axis: all of it, a part, or one element, and the axis is gone.
    shape
        The extents after that; None leaves the axes as they are.
    order
        The axes in their final order; None leaves it.
    merged
        The first and the last of the picked axes that become one.

    Examples
    --------
    >>> import numpy as np
    >>> pixels = View((0,), (3, 20), merged=(1, 2))
    >>> array = np.zeros((1, 3, 4, 5))
    >>> pixels.fits(array), pixels(array).shape
    (True, (3, 20))
    >>> pixels.fits(array[:, :, :, :4])
    False
    """

    index: tuple[Any, ...] = ()
    shape: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    merged: tuple[int, int] | None = None

    def __call__(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the view of an array that it fits."""
        if self.index:
            array = array[self.index]
        if self.shape is not None:
            array = array.reshape(self.shape)
        return array if self.order is None else array.transpose(self.order)

    def fits(self, array: npt.NDArray[Any]) -> bool:
        """Return whether the axes that become one are one in memory."""
        if self.merged is None or array.flags.c_contiguous:
            return True
        if self.index:
            array = array[self.index]
        first, last = self.merged
        axes = [
            (array.shape[at], array.strides[at])
            for at in range(first, last + 1)
            if array.shape[at] > 1
        ]
        return all(step == inner * inner_step for (_, step), (inner, inner_step) in pairwise(axes))
