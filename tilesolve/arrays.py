"""Arrays: where their elements are, and whether two have some in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

OVERLAP_WORK = 10_000
"""Effort to prove that two arrays share no element before they count as overlapping."""

_HEAD = object.__basicsize__


def pointer(array: Array) -> int:
    """Return the address of the word that holds the address of an array's first element.

    It is right behind what every object has: NumPy's C interface promises that. `array.ctypes.data`
    says what stands there, and takes ten times as long.

    Examples
    --------
    >>> import ctypes
    >>> array = np.zeros(3)[1:]
    >>> ctypes.c_size_t.from_address(pointer(array)).value == array.ctypes.data
    True
    """
    return id(array) + _HEAD


def overlap(out: Array, array: Array) -> bool:
    """Return whether two arrays have elements in common, or may have: a proof can be too long.

    Examples
    --------
    >>> both = np.zeros(4)
    >>> overlap(both[::2], both[1::2]), overlap(both, both[1:])
    (False, True)
    """
    if not np.may_share_memory(out, array):
        return False
    try:
        return np.shares_memory(out, array, max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
