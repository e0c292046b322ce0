"""The line that tells of compiling: once, after a second, where somebody may see it."""

import io
import time
from types import SimpleNamespace

import pytest

from tilesolve.system import first_use
from tilesolve.system.first_use import tell_of_compiling

LINE = "tilesolve: compiling kernels for this CPU, once\n"


@pytest.fixture
def said(monkeypatch):
    """Standard error, of a process that has compiled nothing yet and is not patient."""
    stream = io.StringIO()
    monkeypatch.setattr(first_use, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(first_use, "_spent", 0.0)
    monkeypatch.setattr(first_use, "_said", False)
    monkeypatch.setattr(first_use, "PATIENCE_SECONDS", 0.1)
    return stream


def wait_for(said):
    """Compile until the line is there."""
    end = time.monotonic() + 30
    with tell_of_compiling():
        while not said.getvalue() and time.monotonic() < end:
            time.sleep(0.01)


@pytest.mark.parametrize("setting", ["on", None])
def test_a_line_tells_of_long_compiling(said, monkeypatch, setting):
    """Where it is asked for, or standard error is a terminal; only once."""
    if setting:
        monkeypatch.setenv("TILESOLVE_PROGRESS", setting)
    else:
        said.isatty = lambda: True
    wait_for(said)
    assert said.getvalue() == LINE
    with tell_of_compiling():
        time.sleep(0.15)
    assert said.getvalue() == LINE


def test_many_short_steps_count_together(said, monkeypatch):
    """Functions are compiled one by one."""
    monkeypatch.setenv("TILESOLVE_PROGRESS", "on")
    for _ in range(100):
        with tell_of_compiling():
            time.sleep(0.005)
    assert said.getvalue() == LINE


@pytest.mark.parametrize(("setting", "terminal"), [(None, False), ("off", True)])
def test_nothing_is_said_to_nobody(said, monkeypatch, setting, terminal):
    """Into a file or a pipe, or where it is switched off."""
    said.isatty = lambda: terminal
    if setting:
        monkeypatch.setenv("TILESOLVE_PROGRESS", setting)
    with tell_of_compiling():
        time.sleep(0.15)
    assert not said.getvalue()


def test_short_compiling_is_not_worth_a_line(said, monkeypatch):
    """And nothing is printed later."""
    monkeypatch.setattr(first_use, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setenv("TILESOLVE_PROGRESS", "on")
    with tell_of_compiling():
        pass
    time.sleep(0.4)
    assert not said.getvalue()
