"""Locks that outlive a fork."""

from __future__ import annotations

import os
import threading


class Lock:
    """A lock that is free in a forked process, whoever held it in the parent.

    A fork copies the lock but not the thread that holds it, so that nothing would ever free it.

    Examples
    --------
    >>> lock = Lock()
    >>> with lock:
    ...     print("alone")
    alone
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
