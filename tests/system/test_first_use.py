"""What tells of compiling and planning: once, after a second, where somebody may see it."""

import io
import logging
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from patience import PATIENCE

import tilesolve
from tilesolve.system import first_use
from tilesolve.system.first_use import _Wait, tell_of_compiling, tell_of_planning

LINE = "tilesolve: compiling kernels for this CPU, once\n"


@pytest.fixture
def said(monkeypatch):
    """Standard error, of a process that has compiled nothing yet and is not patient."""
    stream = io.StringIO()
    modules = {"logging": logging}
    monkeypatch.setattr(first_use, "sys", SimpleNamespace(stderr=stream, modules=modules))
    for name in ("_compiling", "_planning"):
        monkeypatch.setattr(first_use, name, _Wait(getattr(first_use, name).line))
    monkeypatch.setattr(first_use, "PATIENCE_SECONDS", 0.1)
    return stream


def wait_for(said, tell=tell_of_compiling):
    """Compile until a line is there that was not."""
    before, end = said.getvalue(), time.monotonic() + PATIENCE
    with tell():
        while said.getvalue() == before and time.monotonic() < end:
            time.sleep(0.01)


def open_notebook(wanted=True):
    """Have first_use see a process that has imported IPython, perhaps as a notebook."""
    shell = object() if wanted else None
    first_use.sys.modules["IPython"] = SimpleNamespace(get_ipython=lambda: shell)


@pytest.fixture
def records(said, monkeypatch):
    """What a service's handler gets; the root logger has it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(logging.getLogger("tilesolve"), "level", logging.INFO)
    logging.getLogger("tilesolve").manager._clear_cache()
    yield stream
    monkeypatch.undo()
    logging.getLogger("tilesolve").manager._clear_cache()


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
    monkeypatch.setattr(first_use, "PATIENCE_SECONDS", 1.0)  # on busy cores, nothing takes a while
    monkeypatch.setenv("TILESOLVE_PROGRESS", "on")
    with tell_of_compiling():
        pass
    time.sleep(1.2)
    assert not said.getvalue()


def test_a_notebook_shows_the_line(said):
    """Its standard error is no terminal. A script that imports IPython is no notebook."""
    open_notebook(False)
    with tell_of_compiling():
        time.sleep(0.15)
    assert not said.getvalue()
    open_notebook()
    wait_for(said)
    assert said.getvalue() == LINE


def test_planning_has_a_line_of_its_own(said):
    """What is compiled within it, or planned, is no wait of its own."""
    open_notebook()
    with tell_of_planning(), tell_of_compiling(), tell_of_planning():
        end = time.monotonic() + PATIENCE
        while not said.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    planning = "tilesolve: planning for this machine, once for each problem\n"
    assert said.getvalue() == planning
    wait_for(said)
    assert said.getvalue() == planning + LINE


@pytest.mark.parametrize("terminal", [False, True])
def test_services_get_a_record(said, records, terminal):
    """And no line, so that nothing is there twice."""
    said.isatty = lambda: terminal
    wait_for(records)
    assert records.getvalue() == "tilesolve INFO compiling kernels for this CPU, once\n"
    with tell_of_compiling():
        time.sleep(0.15)
    assert records.getvalue().count("\n") == 1
    assert not said.getvalue()


@pytest.mark.parametrize("setting", ["on", "off"])
def test_the_setting_comes_before_logging(said, records, monkeypatch, setting):
    """It prints the line, or says nothing."""
    monkeypatch.setenv("TILESOLVE_PROGRESS", setting)
    with tell_of_compiling():
        time.sleep(0.3)
    assert not records.getvalue()
    assert said.getvalue() == (LINE if setting == "on" else "")


def test_warnings_alone_are_no_reason_for_a_record(said, records, monkeypatch):
    """Handlers that want no records of this level get none, and a terminal has the line."""
    monkeypatch.setattr(logging.getLogger("tilesolve"), "level", logging.WARNING)
    logging.getLogger("tilesolve").manager._clear_cache()
    said.isatty = lambda: True
    wait_for(said)
    assert said.getvalue() == LINE
    assert not records.getvalue()


def test_without_threads_nothing_is_said(said, monkeypatch):
    """Nothing breaks where no thread can be had."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(first_use.threading.Timer, "start", refuse)
    open_notebook()
    with tell_of_compiling():
        time.sleep(0.15)
    assert not said.getvalue()


def test_plans_and_nests_tell(said, monkeypatch):
    """With no patience at all, whatever is planned tells."""
    open_notebook()
    monkeypatch.setattr(first_use, "PATIENCE_SECONDS", 0.0)
    tilesolve.nest("out[i,j] = A[j,i] + 1", 100)
    assert "planning" in said.getvalue()
    monkeypatch.setattr(first_use, "_planning", _Wait("planning again"))
    tilesolve.plan("mn-mk-kn", "m=50 n=60 k=70", cache=False)
    assert "planning again" in said.getvalue()


def test_telling_imports_nothing():
    """Processes that never wait pay nothing for it."""
    code = "import sys, tilesolve.system.first_use; sys.exit('logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
