"""Arrays in memory: where their elements are, and whether they share some."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.packing.sizes import MAX_OVERLAP_PROOF_STEPS

Array = npt.NDArray[Any]


OBJECT_HEADER_BYTES = object.__basicsize__
"""Bytes of what every Python object begins with; the fields of its own type follow."""


def data_pointer_address(array: Array) -> int:
    """Return the address of the word that holds the address of an array's first element.

    It is the first field of an array object, which NumPy's C interface promises. Compiled code
    reads it from there: `array.ctypes.data` takes ten times as long.

    Examples
    --------
    >>> import ctypes
    >>> array = np.zeros(3)[1:]
    >>> ctypes.c_size_t.from_address(data_pointer_address(array)).value == array.ctypes.data
    True
    """
    return id(array) + OBJECT_HEADER_BYTES


def address_range(array: Array) -> tuple[int, int]:
    """Return the addresses of an array's first byte and of the one past its last.

    Examples
    --------
    >>> array = np.zeros(4)[::-1]
    >>> low, high = address_range(array)
    >>> high - low, array.ctypes.data - low
    (32, 24)
    """
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    begin: int = array.ctypes.data
    return begin + sum(x for x in reach if x < 0), (
        begin + sum(x for x in reach if x > 0) + array.itemsize
    )


def same_elements(one: Array, other: Array) -> bool:
    """Return whether two arrays of a dtype have the same elements at the same indices.

    Examples
    --------
    >>> both = np.zeros((2, 2))
    >>> same_elements(both, both[:]), same_elements(both, both.T)
    (True, False)
    """
    placed = (one.ctypes.data, one.shape, one.strides)
    return placed == (other.ctypes.data, other.shape, other.strides)


def overlaps_itself(array: Array) -> bool:
    """Return whether elements of an array share memory, or may, where a proof would be too long.

    Examples
    --------
    >>> from numpy.lib.stride_tricks import as_strided
    >>> memory = np.zeros(8)
    >>> overlaps_itself(as_strided(memory, (3, 3), (16, 8)))
    True
    >>> overlaps_itself(as_strided(memory, (2, 3), (24, 16)))
    False
    """
    if array.flags.forc or not array.size:
        return False
    axes = [axis for axis, extent in enumerate(array.shape) if extent > 1]
    reach = array.itemsize
    for step, extent in sorted((abs(array.strides[axis]), array.shape[axis]) for axis in axes):
        if step < reach:
            break
        reach += (extent - 1) * step
    else:  # each step is longer than all that shorter steps reach
        return False
    # Two elements that share memory have a first axis along which they differ. Shifted along it
    # until one of them is the first, they still share memory.
    for axis in axes:
        begin = (slice(None),) * axis
        first, others = array[(*begin, slice(0, 1))], array[(*begin, slice(1, None))]
        if overlap(first, others):
            return True
        array = first
    return False


def overlap(out: Array, array: Array) -> bool:
    """Return whether two arrays share elements, or may, where a proof would be too long.

    Examples
    --------
    >>> both = np.zeros(4)
    >>> overlap(both[::2], both[1::2]), overlap(both, both[1:])
    (False, True)
    """
    if not np.may_share_memory(out, array):
        return False
    try:
        return np.shares_memory(out, array, max_work=MAX_OVERLAP_PROOF_STEPS)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
