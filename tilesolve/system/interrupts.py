"""Interrupts: what else counts as one, and that none is lost where no exception gets through."""

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

    Else a command would leave the temporary folders and processes that it has started. Who asked
    for such requests to be ignored gets that.

    Examples
    --------
    >>> usual = signal.getsignal(signal.SIGTERM)
    >>> unwind_on_terminate()
    >>> signal.signal(signal.SIGTERM, usual) is signal.default_int_handler
    True
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def keep_interrupts() -> Iterator[Callable[[], None]]:
    """Keep in mind that an interrupt came; give the function that raises it if so.

    Python raises `KeyboardInterrupt` wherever it happens to be. Where that is a function that a C
    library called, such as what LLVM tells of each compiled module, the exception is printed and
    dropped, and the work would go on to its end. The function given here is to be called every
    now and then, and is once more at the end.

    Where nobody would be interrupted, in other threads than the main one and where interrupts
    are ignored, nothing is changed.

    Examples
    --------
    >>> with keep_interrupts() as heed:
    ...     heed()
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
