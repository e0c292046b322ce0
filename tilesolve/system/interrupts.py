"""Interrupts: requests to end count as one, and none is lost where no exception gets through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def unwind_on_terminate() -> None:
    """Have a request to end, as `kill` and job runners make it, unwind as an interrupt does.

    Else a command would leave its temporary folders and processes behind. If such requests are
    ignored, they still are.

    Examples
    --------
    >>> usual = signal.getsignal(signal.SIGTERM)
    >>> unwind_on_terminate()
    >>> signal.signal(signal.SIGTERM, usual) is signal.default_int_handler
    True
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def ignore_late_ones() -> None:
    """Ignore interrupts from here on: the command's work is done, and its status stands.

    Python takes its handlers away before the process ends, and a signal would end it otherwise.

    Examples
    --------
    >>> usual = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    >>> ignore_late_ones()
    >>> signal.raise_signal(signal.SIGINT)
    >>> [signal.signal(*each) for each in zip((signal.SIGINT, signal.SIGTERM), usual)]
    [<Handlers.SIG_IGN: 1>, <Handlers.SIG_IGN: 1>]
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def keep_interrupts() -> Iterator[Callable[[], None]]:
    """Note interrupts, and give a function that raises one that came.

    Python raises `KeyboardInterrupt` wherever it happens to be. In a function that a C library
    called, such as LLVM's callback for a compiled module, the exception is printed and dropped, and
    the work goes on. So call the given function every now and then; it is called at the end, too.

    In other threads than the main one, and where interrupts are ignored, nothing changes.
    """
    handlers = {int(number): signal.getsignal(number) for number in _SIGNALS}
    usual = {number: handler for number, handler in handlers.items() if callable(handler)}
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        usual[number](number, frame)

    def heed() -> None:
        if came:
            raise KeyboardInterrupt

    for number in usual:
        signal.signal(number, note)
    try:
        yield heed
        heed()
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
