"""Interrupts: one that a callback swallowed comes again, and nothing else is changed."""

import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path

import pytest
from commands import run_python
from patience import PATIENCE

from tilesolve.show.console_tables import progress_bar
from tilesolve.system.interrupts import keep_interrupts, unwind_on_terminate


def swallow():
    """Be interrupted where nobody hears of it."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def work(*steps, reached=None):
    """Take steps where interrupts are heeded; each is a function, or "heed"."""
    with keep_interrupts() as heed:
        for step in steps:
            heed() if step == "heed" else step()
            if reached is not None:
                reached.append(step)


def be_interrupted():
    signal.raise_signal(signal.SIGINT)


class TestHeeded:
    @pytest.mark.parametrize(
        ("steps", "done"),
        [
            pytest.param([be_interrupted, "heed"], 0, id="at once"),
            pytest.param([swallow, "heed", "heed"], 1, id="when asked"),
            pytest.param([swallow], 1, id="at the end"),
        ],
    )
    def test_comes(self, steps, done):
        reached = []
        with pytest.raises(KeyboardInterrupt):
            work(*steps, reached=reached)
        assert reached == steps[:done]

    def test_a_request_to_end_comes_alike(self):
        usual = signal.getsignal(signal.SIGTERM)

        def be_ended():
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)

        try:
            unwind_on_terminate()
            with pytest.raises(KeyboardInterrupt):
                work(be_ended)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            unwind_on_terminate()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGTERM, usual)

    def test_another_exception_goes_first(self):
        with pytest.raises(ZeroDivisionError):
            work(swallow, lambda: 1 / 0)

    def test_none_is_invented(self):
        usual = signal.getsignal(signal.SIGINT)
        with keep_interrupts() as heed:
            heed()
        assert signal.getsignal(signal.SIGINT) is usual

    def test_handler_is_put_back(self):
        usual = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            work(swallow)
        assert signal.getsignal(signal.SIGINT) is usual

    def test_ignored_stays_ignored(self):
        usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with keep_interrupts() as heed:
                signal.raise_signal(signal.SIGINT)
                heed()
        finally:
            signal.signal(signal.SIGINT, usual)

    def test_other_threads_are_left_alone(self):
        seen = []

        def elsewhere():
            before = signal.getsignal(signal.SIGINT)
            with keep_interrupts() as heed:
                heed()
                seen.append(signal.getsignal(signal.SIGINT) is before)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(PATIENCE)
        assert seen == [True]


def test_progress_bar_tells():
    reached = []

    def measure():
        with progress_bar("working") as report:
            report(0.1, "before")
            swallow()
            reached.append("swallowed")
            report(0.2, "after")
            reached.append("went on")

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert reached == ["swallowed"]


def interrupted_inside_c():
    """Work on as a C library does that lets no exception of its callbacks through."""

    @ctypes.CFUNCTYPE(None)
    def callback():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    with progress_bar("working") as report:
        callback()
        report(0.5, "on and on")
        print("lost")


def test_callbacks_of_c_libraries():
    support = str(Path(__file__).parent.parent / "support")
    found = run_python(__file__, env={**os.environ, "PYTHONPATH": support})
    assert "Exception ignored" in found.stderr
    assert "lost" not in found.stdout
    assert found.returncode == -signal.SIGINT


if __name__ == "__main__":
    interrupted_inside_c()
