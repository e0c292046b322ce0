"""Memory for packed copies: aligned, on huge pages where the system grants them, and reused."""

from __future__ import annotations

import contextlib
import mmap
import threading
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes that a buffer begins on a multiple of: a line, and the widest vector."""

GUARD = 64
"""Bytes beyond a copy that a buffer has."""

SPACE = 64
"""Bytes that may be between two strips of a copy: a line, so that they begin in different sets of
a cache."""

HUGE = 1 << 21
"""Bytes of a huge page; smaller buffers are not worth one."""

KEPT = 1 << 28
"""Bytes of a thread's idle buffer at most; a larger one is given back after its run."""

Bytes = NDArray[np.uint8]


def allocate(size: int) -> Bytes:
    """Return `size` bytes, aligned to `ALIGNMENT`, of unknown content.

    Examples
    --------
    >>> allocate(1000).ctypes.data % ALIGNMENT
    0
    """
    if size < HUGE:
        raw = np.empty(size + ALIGNMENT, np.uint8)
        begin = -raw.ctypes.data % ALIGNMENT
        return raw[begin : begin + size]
    block = pages(size + HUGE)
    begin = -block.ctypes.data % HUGE
    return block[begin : begin + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array in C order, of unknown content.

    Examples
    --------
    >>> empty((2, 3), np.dtype("float32")).shape
    (2, 3)
    """
    size = prod(shape) * dtype.itemsize
    if size < HUGE:
        return np.empty(shape, dtype)
    return allocate(size).view(dtype).reshape(shape)


def pages(size: int) -> Bytes:
    """Return `size` zero bytes from the system: huge pages where it grants them, page-aligned.

    Examples
    --------
    >>> pages(4096).ctypes.data % 4096
    0
    """
    # Private: what is shared with forked processes has no huge pages on most systems.
    try:
        found = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"the system does not give {size} bytes: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do
            found.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(found, dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A buffer and what compiled code needs to know of it.

    Parameters
    ----------
    bytes
        The memory.
    address
        Where it begins.
    size
        Its bytes.

    Examples
    --------
    >>> Room.of(100).address % ALIGNMENT
    0
    """

    bytes: Bytes
    address: int
    size: int

    @classmethod
    def of(cls, size: int) -> Self:
        """Allocate a buffer."""
        found = allocate(size)
        return cls(found, found.ctypes.data, size)


class _Kept(threading.local):
    """The idle buffer of one thread."""

    def __init__(self) -> None:
        self.room = Room.of(0)


_kept = _Kept()


def room(size: int) -> Room:
    """Return the calling thread's buffer, of at least `size` bytes.

    Whoever asks next in this thread gets it too, so it is for what has been used up by then. A
    thread keeps the largest buffer that it has needed, if that is not beyond `KEPT`.

    Examples
    --------
    >>> room(200) is room(100)
    True
    """
    found = _kept.room
    if found.size < size:
        found = Room.of(size)
        if size <= KEPT:
            _kept.room = found
    return found
