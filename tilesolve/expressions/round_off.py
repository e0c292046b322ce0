"""The last step of expressions of halves: sums become what operands are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesolve.packing.memory_overlap import Array


@dataclass(frozen=True, slots=True)
class RoundOff:
    """An array in another dtype, of fewer bits.

    Examples
    --------
    >>> RoundOff("ij", np.dtype("float16"))(np.ones(2, np.float32)).dtype
    dtype('float16')
    """

    text: str
    dtype: np.dtype[Any]
    route = "round"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Round it."""
        (array,) = arrays
        if out is None:
            return np.asarray(array).astype(self.dtype)
        np.copyto(out, array, casting="same_kind")
        return out
