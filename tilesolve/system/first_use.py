"""A word on standard error where compiling takes long, so that nobody waits without a reason."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tilesolve.system.files import is_switched_on, read_setting
from tilesolve.system.locks import Lock

PATIENCE_SECONDS = 1.0
"""Seconds of compiling after which the line is printed."""

_lock = Lock()
_spent = 0.0
_said = False


@contextmanager
def tell_of_compiling() -> Iterator[None]:
    """Print one line a process, once it has spent a second in such blocks.

    It is printed if standard error is a terminal; ``TILESOLVE_PROGRESS`` overrides that.

    Raises
    ------
    SettingError
        If ``TILESOLVE_PROGRESS`` says neither on nor off.

    Examples
    --------
    >>> with tell_of_compiling():
    ...     print("compiled")
    compiled
    """
    global _spent
    if _said or not _is_wanted():
        yield
        return
    start = time.monotonic()
    timer = threading.Timer(max(PATIENCE_SECONDS - _spent, 0.0), _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with _lock:
            _spent += time.monotonic() - start


def _is_wanted() -> bool:
    if read_setting("TILESOLVE_PROGRESS") is None:
        return sys.stderr is not None and sys.stderr.isatty()
    return is_switched_on("TILESOLVE_PROGRESS")


def _say() -> None:
    global _said
    with _lock:
        if not _said:
            _said = True
            print("tilesolve: compiling kernels for this CPU, once", file=sys.stderr, flush=True)
