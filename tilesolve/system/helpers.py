"""Helpers: copies of this process that do jobs ahead of it, where cores are free.

A copy has all in memory that this process has, and imports nothing again. What it finds comes back
by way of files.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

Job = Callable[[], object]


@contextmanager
def helped(jobs: Sequence[Job], most: int) -> Iterator[None]:
    """Have free cores do jobs, the last ones first, while the block does the first ones.

    There are at most so many helpers. None outlives the block, whatever it is doing then.

    Examples
    --------
    >>> with helped([], most=1):
    ...     pass
    """
    count = min(len(os.sched_getaffinity(0)) - 1, most, len(jobs) - 1)
    helpers: list[int] = []
    try:
        for at in range(count):
            with suppress(OSError):  # no process can be had
                helpers.append(_start(jobs[::-1][at::count]))
        yield
    finally:
        for one in helpers:
            with suppress(ProcessLookupError, ChildProcessError):  # somebody else waits for all
                os.kill(one, signal.SIGKILL)
                os.waitpid(one, 0)


def _start(jobs: Sequence[Job]) -> int:
    """Start a copy of this process that does jobs, and return its number."""
    with warnings.catch_warnings():
        # A lock that another thread holds now stays locked in the copy: then it helps no more.
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        for job in jobs:
            with suppress(Exception):  # this process finds it, too
                job()
    finally:
        os._exit(0)
