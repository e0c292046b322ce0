"""Ends of runs: compiled code ends early when a word in memory says so."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WORD = ctypes.c_int64()

CANCEL_ADDRESS: int = ctypes.addressof(_WORD)
"""The address of the word that compiled code reads where it is given no other."""

NEVER_SECONDS = threading.TIMEOUT_MAX
"""Seconds of a deadline that never comes."""

_LOOK_SECONDS = 0.001
"""Seconds between two looks whether jobs have ended."""


class _Here(threading.local):
    """What ends the runs of one thread: none but a deadline, unless it works for another one."""

    stop: Stop | None = None


_here = _Here()
_stops: dict[int, Stop] = {}
"""Those of jobs that are under way."""


class Stop:
    """What ends jobs early that other threads run.

    As a context it hears deadlines, and the word that ends the calling thread's own runs; none of
    its jobs outlives the block.

    Examples
    --------
    >>> with Stop() as stop:
    ...     stop.run(is_stopped)
    ...     stop.end()
    ...     stop.run(is_stopped)
    False
    """

    __slots__ = ("_begun", "_ended", "_parent", "word")

    def __init__(self) -> None:
        self.word = ctypes.c_int64()
        self._parent = _here.stop
        self._begun: list[None] = []
        self._ended: list[None] = []

    def __enter__(self) -> Stop:
        _stops[id(self)] = self
        self.word.value = is_stopped()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.end()  # again: one more signal may have come before the block's own word to
        del _stops[id(self)]

    def run(self, job: Callable[[], object]) -> object:
        """Run a job in the calling thread, unless it has been ended before."""
        before, _here.stop = _here.stop, self
        self._begun.append(None)  # before the look: `end` waits for threads that missed the word
        try:
            return None if self.word.value else job()
        finally:
            self._ended.append(None)
            _here.stop = before

    def end(self) -> None:
        """End all jobs and wait until they have; whatever handlers raise does not end that."""
        while True:
            try:
                self._tell()
                while len(self._ended) < len(self._begun):
                    time.sleep(_LOOK_SECONDS)
                return
            except BaseException:  # of one more signal: the first one's is under way
                continue

    def _tell(self) -> None:
        self.word.value = 1
        for other in list(_stops.values()):
            if other._parent is self:
                other._tell()


def stop_address() -> int:
    """Return the address of the word that ends runs of the calling thread once it is not 0."""
    stop = _here.stop
    return CANCEL_ADDRESS if stop is None else ctypes.addressof(stop.word)


def is_stopped() -> bool:
    """Return whether the calling thread is to end what it does."""
    stop = _here.stop
    return bool(_WORD.value if stop is None else stop.word.value)


@contextmanager
def deadline(seconds: float) -> Iterator[Callable[[], bool]]:
    """End all runs of plans in this process after so many seconds.

    The output of a run that ended early is undefined. Deadlines do not nest.

    Yields
    ------
    Callable
        Returns whether the time is over.

    Examples
    --------
    >>> with deadline(60) as is_over:
    ...     is_over()
    False
    """
    over = threading.Event()

    def end() -> None:
        over.set()
        _WORD.value = 1
        for stop in list(_stops.values()):
            stop.word.value = 1

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield over.is_set
    finally:
        timer.cancel()
        timer.join()
        _WORD.value = 0
