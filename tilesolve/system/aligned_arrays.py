"""Arrays for users that begin with a line, as plans read and write fastest."""

from __future__ import annotations

import sys
from math import prod
from operator import index
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.dtype_names import find_dtype
from tilesolve.contractions.errors import DtypeError, MemoryLimitError, SizeError
from tilesolve.packing.buffers import allocate
from tilesolve.packing.sizes import HUGE_PAGE_BYTES
from tilesolve.system.result_buffers import new_result


def empty(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = "float64",
    order: Literal["C", "F"] = "C",
) -> npt.NDArray[Any]:
    """Return a new array of unknown content that begins with a line of the caches.

    A large one lies on huge pages, and may have those of a result that is gone. numpy's own large
    arrays begin 16 bytes after a line, so that their vectors cross lines: some contractions are
    slower for that.

    Parameters
    ----------
    shape
        As of `numpy.empty`.
    dtype
        Any that has no objects of Python.
    order
        ``"C"`` if the last axis is to lie closest, ``"F"`` for the first one.

    Raises
    ------
    SizeError
        If the shape is none.
    DtypeError
        If the dtype is none, or one of objects.
    MemoryLimitError
        If the system does not give that much.

    Examples
    --------
    >>> found = empty((2, 3), "float32", order="F")
    >>> found.ctypes.data % 64, found.strides
    (0, (4, 8))
    """
    extents = _read_shape(shape)
    if not isinstance(order, str) or order not in ("C", "F"):
        raise SizeError(f"order must be 'C' or 'F', got {order!r:.80}")
    try:
        kind = find_dtype(dtype)
    except TypeError as error:
        raise DtypeError(f"{dtype!r:.80} is not a dtype") from error
    if kind.hasobject or not kind.itemsize:
        raise DtypeError(f"a dtype of numbers is needed, not {kind}")
    size = prod(extents) * kind.itemsize
    if size > sys.maxsize:
        raise MemoryLimitError(f"a shape of {size:.3g} bytes is more than the system addresses")
    try:
        room = (
            new_result((size,), np.dtype(np.uint8)) if size >= HUGE_PAGE_BYTES else allocate(size)
        )
        return room.view(kind).reshape(extents, order=order)
    except MemoryError as error:
        raise MemoryLimitError(f"the shape {extents} does not fit: {error}") from error
    except ValueError as error:
        raise SizeError(f"shape: {error}") from error


def _read_shape(shape: object) -> tuple[int, ...]:
    """Return the extents of a shape that is given as a number or as several ones."""
    several: Any = shape if isinstance(shape, tuple | list) else (shape,)
    try:
        found = tuple(map(index, several))
    except TypeError:
        raise SizeError(f"shape must be integers, got {shape!r:.80}") from None
    if any(extent < 0 for extent in found):
        raise SizeError(f"shape must have no negative extent, got {found}")
    return found
