"""Locks that outlive a fork, and interrupts."""

from __future__ import annotations

import os
import threading


def make_lock() -> threading.Lock:
    """Return a lock that is free in a forked process, whoever held it in the parent.

    A fork copies the lock but not the thread that holds it, so that nothing would ever free it.
    It is Python's own: a context written in Python would stay held where an interrupt comes
    between taking the lock and the block.

    Examples
    --------
    >>> lock = make_lock()
    >>> with lock:
    ...     print("alone")
    alone
    """
    lock = threading.Lock()

    def free() -> None:
        if lock.locked():
            lock.release()

    os.register_at_fork(after_in_child=free)
    return lock
