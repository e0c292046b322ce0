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

from tilesolve.packing.sizes import (
    ALIGNMENT_BYTES,
    HUGE_PAGE_BYTES,
    MAX_IDLE_WORKSPACE_BYTES,
)

Bytes = NDArray[np.uint8]


def allocate(size: int, *, lasting: bool = False) -> Bytes:
    """Return `size` bytes, aligned to `ALIGNMENT_BYTES`, of unknown content.

    Lasting ones end in small pages: no memory is held behind them that nobody uses.

    Examples
    --------
    >>> allocate(1000).ctypes.data % ALIGNMENT_BYTES
    0
    """
    if size < HUGE_PAGE_BYTES:
        raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
        begin = -raw.ctypes.data % ALIGNMENT_BYTES
        return raw[begin : begin + size]
    found = _map(size + HUGE_PAGE_BYTES)
    block = np.frombuffer(found, np.uint8)
    begin = -block.ctypes.data % HUGE_PAGE_BYTES
    _ask_for_huge_pages(found, begin, size - size % HUGE_PAGE_BYTES if lasting else size)
    return block[begin : begin + size]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array in C order, of unknown content.

    Examples
    --------
    >>> empty((2, 3), np.dtype("float32")).shape
    (2, 3)
    """
    size = prod(shape) * dtype.itemsize
    if size < HUGE_PAGE_BYTES:
        return np.empty(shape, dtype)
    return allocate(size).view(dtype).reshape(shape)


def allocate_pages(size: int) -> Bytes:
    """Return `size` zero bytes of whole pages: huge ones where the system grants them.

    Examples
    --------
    >>> allocate_pages(4096).ctypes.data % 4096
    0
    """
    found = _map(size)
    _ask_for_huge_pages(found, 0, size)
    return np.frombuffer(found, dtype=np.uint8)


def _map(size: int) -> mmap.mmap:
    # Private: most systems have no huge pages for memory that forked processes share.
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"the system does not give {size} bytes: {error}") from error


def _ask_for_huge_pages(found: mmap.mmap, begin: int, size: int) -> None:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do
            found.madvise(mmap.MADV_HUGEPAGE, begin, size)


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """A buffer for packed copies, with its address and size for compiled code.

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
    >>> Workspace.of(100).address % ALIGNMENT_BYTES
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


class _Idle(threading.local):
    """The idle buffer of one thread."""

    def __init__(self) -> None:
        self.workspace = Workspace.of(0)


_idle = _Idle()


def workspace(size: int) -> Workspace:
    """Return the calling thread's buffer, of at least `size` bytes.

    The next call in this thread returns it again, so nothing in it outlives one run. A thread keeps
    the largest buffer that it has needed, up to `MAX_IDLE_WORKSPACE_BYTES`.

    Examples
    --------
    >>> workspace(200) is workspace(100)
    True
    """
    found = _idle.workspace
    if found.size < size:
        found = Workspace.of(size)
        if size <= MAX_IDLE_WORKSPACE_BYTES:
            _idle.workspace = found
    return found
