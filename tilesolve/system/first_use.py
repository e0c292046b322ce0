"""A word where compiling or planning takes long, so that nobody waits without a reason."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tilesolve.system.files import is_switched_on, read_setting
from tilesolve.system.locks import make_lock

PATIENCE_SECONDS = 1.0
"""Seconds of one kind of waiting after which a line tells of it."""


class _Wait:
    """One kind of waiting: what is said of it, once a process, and how long it took so far."""

    def __init__(self, line: str) -> None:
        self.line, self.spent, self.said = line, 0.0, False

    def say(self) -> None:
        """Tell of it, unless that was done."""
        with _lock:
            first, self.said = not self.said, True
        if first:
            _tell(self.line)


_lock = make_lock()
_thread = threading.local()
_compiling = _Wait("compiling kernels for this CPU, once")
_planning = _Wait("planning for this machine, once for each problem")


@contextmanager
def tell_of_compiling() -> Iterator[None]:
    """Tell of compiling, once a process has spent a second in such blocks.

    Where logging is set up, the logger ``tilesolve`` gets a record of level ``INFO``. Else a line
    is printed if standard error is a terminal, or a notebook shows it. ``TILESOLVE_PROGRESS``
    overrides both: the line is printed, or nothing is said. A block within another one is no wait
    of its own.

    Raises
    ------
    SettingError
        If ``TILESOLVE_PROGRESS`` says neither on nor off.
    """
    with _tell_of(_compiling):
        yield


@contextmanager
def tell_of_planning() -> Iterator[None]:
    """Tell of planning, as `tell_of_compiling` does."""
    with _tell_of(_planning):
        yield


@contextmanager
def _tell_of(wait: _Wait) -> Iterator[None]:
    if wait.said or getattr(_thread, "waits", False) or not _is_wanted():
        yield
        return
    start = time.monotonic()
    timer = threading.Timer(max(PATIENCE_SECONDS - wait.spent, 0.0), wait.say)
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be had
        timer.start()
    _thread.waits = True
    try:
        yield
    finally:
        _thread.waits = False
        timer.cancel()
        with _lock:
            wait.spent += time.monotonic() - start


def _is_wanted() -> bool:
    """Return whether anybody would hear."""
    if read_setting("TILESOLVE_PROGRESS") is None:
        return _heard_logger() is not None or _is_shown()
    return is_switched_on("TILESOLVE_PROGRESS")


def _tell(line: str) -> None:
    logger = None
    if read_setting("TILESOLVE_PROGRESS") is None:
        logger = _heard_logger()
    if logger is not None:
        logger.info(line)
    else:
        print(f"tilesolve: {line}", file=sys.stderr, flush=True)


def _heard_logger() -> Any:  # noqa: ANN401 - `logging` is imported by whoever sets it up
    """Return our logger if some handler gets its records of level ``INFO``."""
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    logger = logging.getLogger("tilesolve")
    return logger if logger.isEnabledFor(logging.INFO) and logger.hasHandlers() else None


def _is_shown() -> bool:
    """Return whether standard error is a terminal, or that of a notebook."""
    if sys.stderr is None:
        return False
    notebook = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return sys.stderr.isatty() or (notebook is not None and notebook() is not None)
