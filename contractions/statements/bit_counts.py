"""Counts of the bits of integers, which older numpys do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True, slots=True)
class BitCount:
    """How many bits the magnitude of an integer has that are one.

    Examples
    --------
    >>> BitCount()(np.array([7, -1, 2**40 + 1])).tolist()
    [3, 1, 2]
    """

    nin: ClassVar[int] = 1

    def __call__(self, x: Any) -> Any:  # noqa: ANN401, D102
        found = np.ascontiguousarray(abs(np.asarray(x)))
        bits = np.unpackbits(found[..., None].view(np.uint8), axis=-1)
        return bits.sum(axis=-1, dtype=np.uint8)

    def resolve_dtypes(self, dtypes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the dtypes of its argument and its result."""
        if dtypes[0].kind not in "biu":
            raise TypeError(f"{dtypes[0]} has no bits that are counted")
        found = np.dtype(np.uint8)
        return found if dtypes[0].kind == "b" else dtypes[0], found
