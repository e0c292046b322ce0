"""Address spaces in which new memory lies far from any other, as large libraries leave them.

For processes of a test's own.
"""

import ctypes
import mmap

APART = 3 << 30
"""Bytes between two holes: more than a jump or an access relative to the code reaches."""

_NO_RESERVE = 0x4000
"""`MAP_NORESERVE` of Linux."""

_c = ctypes.CDLL(None)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_c.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def take(size):
    """Map memory that nobody can touch where the system likes, and return its address."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    found = _c.mmap(None, size, 0, flags, -1, 0)
    assert found != ctypes.c_void_p(-1).value
    return found


def leave_distant_holes(count):
    """Take all that is free above the lowest mapping, and leave some pages far apart below it."""
    lowest, size = take(APART), APART
    while size >= mmap.PAGESIZE:
        while (found := take(size)) > lowest:
            pass
        _c.munmap(found, size)
        size //= 2
    for _ in range(count):
        _c.munmap(take(APART), mmap.PAGESIZE)
