"""Memory for packed copies: aligned, on huge pages where the system grants them, and reused."""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes that a buffer begins on a multiple of: a line, and the widest vector."""

GUARD = 64
"""Bytes beyond a copy that a buffer has."""

HUGE = 1 << 21
"""Bytes of a huge page; smaller buffers are not worth one."""

KEPT = 1 << 28
"""Bytes that a thread's idle buffers keep at most; a larger buffer is given back after its run."""

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


def pages(size: int) -> Bytes:
    """Return `size` zero bytes from the system: huge pages where it grants them, page-aligned.

    Examples
    --------
    >>> pages(4096).ctypes.data % 4096
    0
    """
    found = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do
            found.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(found, dtype=np.uint8)


class _Kept(threading.local):
    """The idle buffers of one thread."""

    def __init__(self) -> None:
        self.buffers: list[Bytes] = []


_kept = _Kept()


@contextlib.contextmanager
def borrowed(sizes: Sequence[int]) -> Iterator[list[Bytes]]:
    """Hand out one buffer of at least each size, and keep them for the next time.

    A thread keeps the largest buffers that it has needed, `KEPT` bytes at most.

    Examples
    --------
    >>> with borrowed([100, 200]) as (first, second):
    ...     len(first) >= 100, len(second) >= 200
    (True, True)
    """
    taken: list[Bytes] = []
    for size in sizes:
        fitting = [at for at, held in enumerate(_kept.buffers) if len(held) >= size]
        if fitting:
            least = min(fitting, key=lambda at: len(_kept.buffers[at]))
            taken.append(_kept.buffers.pop(least))
        else:
            taken.append(allocate(size))
    try:
        yield taken
    finally:
        kept = sorted([*_kept.buffers, *taken], key=len, reverse=True)[: len(sizes)]
        while kept and sum(map(len, kept)) > KEPT:
            kept.pop(0)
        _kept.buffers = kept
