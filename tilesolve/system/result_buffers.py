"""Memory of results: large ones take the pages of results that are gone, which need not be new.

The system fills each new page with zeros when it is first written, which takes as long as a result
of some MiB itself. Nothing here waits for a lock: Python may let go of an array anywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import SettingError
from tilesolve.packing.buffers import Bytes, allocate
from tilesolve.packing.sizes import ALIGNMENT_BYTES, HUGE_PAGE_BYTES
from tilesolve.system.files import read_setting
from tilesolve.system.units import parse_size

DEFAULT_KEPT_BYTES = 256 * 1024**2
"""Bytes of results that are gone that are kept unless ``TILESOLVE_RESULT_BUFFERS`` says otherwise.
"""


class _Block:
    """Pages for a result."""

    __slots__ = ("bytes", "size")

    def __init__(self, size: int) -> None:
        self.bytes: Bytes = allocate(size)
        self.size = size


class _Pool:
    """Blocks that no array refers to, the one that was let go of first in front."""

    def __init__(self) -> None:
        self.idle: list[_Block] = []
        self.limit = 0

    def take(self, size: int) -> _Block:
        """Return a block of so many bytes."""
        for block in reversed(self.idle.copy()):
            if block.size == size:
                with contextlib.suppress(ValueError):  # another thread has taken it
                    self.idle.remove(block)
                    return block
        return _Block(size)

    def give_back(self, block: _Block) -> None:
        """Keep a block for later, and forget others where they are too much.

        Arrays may live until the interpreter's end, when this module's names are gone.
        """
        self.idle.append(block)
        kept = self.idle.copy()
        total = sum(one.size for one in kept)
        for one in kept:
            if total <= self.limit:
                return
            total -= one.size
            try:  # noqa: SIM105 - see above
                self.idle.remove(one)
            except ValueError:  # another thread has taken it
                pass


class _Lent:
    """What the arrays of one result refer to: with the last of them, the block goes back."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: _Pool, block: _Block) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = block.bytes.__array_interface__

    def __del__(self) -> None:
        self._pool.give_back(self._block)


_pool = _Pool()


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array in C order, of unknown content.

    Examples
    --------
    >>> new_result((2, 3), np.dtype("float32")).shape
    (2, 3)
    """
    size = prod(shape) * dtype.itemsize
    return _take_pages(shape, dtype, size) if is_new_aligned(size) else np.empty(shape, dtype)


def result_maker(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, zeros: bool = False
) -> Callable[[], NDArray[Any]]:
    """Return a function that returns new arrays as `new_result` does, sooner, or such of zeros.

    Examples
    --------
    >>> result_maker((2, 3), np.dtype("float32"), zeros=True)().any()
    np.False_
    """
    size = prod(shape) * dtype.itemsize
    if is_new_aligned(size):
        return partial(_take_pages, shape, dtype, size, zeros=zeros)
    return partial(np.zeros if zeros else np.empty, shape, dtype)


def _take_pages(
    shape: tuple[int, ...], dtype: np.dtype[Any], size: int, *, zeros: bool = False
) -> NDArray[Any]:
    """Return a new array of a number of bytes in pages of a result that is gone, if there is one.

    Zeros are words, which are written in half the time of some elements.
    """
    _pool.limit = _limit(read_setting("TILESOLVE_RESULT_BUFFERS"))
    block = _pool.take(size + -size % HUGE_PAGE_BYTES)
    found = np.asarray(_Lent(_pool, block))[:size]
    if zeros:
        found.fill(0)
    return found.view(dtype).reshape(shape)


def is_new_aligned(size: int) -> bool:
    """Return whether a new result of so many bytes begins with a line, wherever it comes to lie."""
    return size >= HUGE_PAGE_BYTES


def begins_with_line(out: NDArray[Any]) -> bool:
    """Return whether an array lies as a large new result does: in C order, from a line on.

    Of small ones that is not looked at, which would take longer than it is worth.

    Examples
    --------
    >>> large = new_result((1 << 19,), np.dtype("float64"))
    >>> begins_with_line(large), begins_with_line(large[1:]), begins_with_line(large[:8])
    (True, False, False)
    """
    large = is_new_aligned(out.nbytes) and out.flags.c_contiguous
    return large and out.ctypes.data % ALIGNMENT_BYTES == 0


def forget_results() -> None:
    """Give the system back what waits for the next results."""
    _pool.idle.clear()


@lru_cache(maxsize=1)
def _limit(wanted: str | None) -> int:
    if wanted is None:
        return DEFAULT_KEPT_BYTES
    try:
        return parse_size(wanted)
    except ValueError as error:
        raise SettingError(f"TILESOLVE_RESULT_BUFFERS must be {error}") from None
