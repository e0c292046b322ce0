"""Interrupts that are not lost where code cannot let an exception through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heeded() -> Iterator[Callable[[], None]]:
    """Keep in mind that an interrupt came; give the function that raises it if so.

    Python raises `KeyboardInterrupt` wherever it happens to be. Where that is a function that a C
    library called, such as what LLVM tells of each compiled module, the exception is printed and
    dropped, and the work would go on to its end. The function given here is to be called every
    now and then, and is once more at the end.

    Where nobody would be interrupted, in other threads than the main one and where interrupts
    are ignored, nothing is changed.

    Examples
    --------
    >>> with heeded() as heed:
    ...     heed()
    """
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        usual(number, frame)

    def heed() -> None:
        if came:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield heed
        heed()
    finally:
        signal.signal(signal.SIGINT, usual)
