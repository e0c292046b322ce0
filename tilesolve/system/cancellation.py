"""Deadlines of runs: compiled code ends early when a word in memory says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_WORD = np.zeros(1, np.int64)

CANCEL_ADDRESS: int = _WORD.ctypes.data
"""The address of the word that compiled code reads: it ends if that is not 0."""

NEVER_SECONDS = threading.TIMEOUT_MAX
"""Seconds of a deadline that never comes."""


@contextmanager
def deadline(seconds: float) -> Iterator[Callable[[], bool]]:
    """End all runs of plans in this process after so many seconds.

    The output of a run that ended early is undefined. Deadlines do not nest.

    Parameters
    ----------
    seconds
        From now on.

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
        _WORD[0] = 1

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield over.is_set
    finally:
        timer.cancel()
        timer.join()
        _WORD[0] = 0
