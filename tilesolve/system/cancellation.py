"""Deadlines: runs of plans that end before they are done, because they take too long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_WORD = np.zeros(1, np.int64)

CANCEL_ADDRESS: int = _WORD.ctypes.data
"""Where compiled code sees whether it is to end: not 0 if so."""

NEVER_SECONDS = threading.TIMEOUT_MAX
"""Seconds of a deadline that is never met."""


@contextmanager
def deadline(seconds: float) -> Iterator[Callable[[], bool]]:
    """End all runs of plans in this process that are under way after so many seconds.

    What they leave in the output is nothing to go by. Deadlines do not nest.

    Parameters
    ----------
    seconds
        From now on.

    Yields
    ------
    Callable
        Returns whether the deadline has been met.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found, a = plan("ik-ij-jk", 8, "i7-6700k", cache=False), np.ones((8, 8))
    >>> with deadline(60) as met:
    ...     _ = found(a, a)
    >>> met()
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
