"""Workers: every job is done, by whichever thread there is."""

import os
import threading

import pytest
from commands import run_python

from tilesolve.system import workers
from tilesolve.system.cancellation import deadline
from tilesolve.system.workers import run_together, run_unheard

LATE = """
import atexit, threading, time
import numpy as np
import tilesolve

product = tilesolve.plan("ik-ij-jk", 40, "i7-6700k", threads=2)
first = np.ones((40, 40))
product(first, first)

def late():
    {wait}
    assert (product(first, first) == 40).all()
    print("done")

{start}
"""


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_job_is_done_once(count):
    """Whatever their number, and all of them though one fails."""
    done = []
    run_together([lambda at=at: done.append(at) for at in range(count)])
    assert sorted(done) == list(range(count))

    def fail():
        raise ZeroDivisionError

    done.clear()
    with pytest.raises(ZeroDivisionError):
        run_together([fail, *(lambda at=at: done.append(at) for at in range(count))])
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize(
    ("wait", "start"),
    [
        ("threading.main_thread().join()", "threading.Thread(target=late).start()"),
        ("", "atexit.register(late)"),
    ],
)
def test_work_is_done_while_python_shuts_down(wait, start):
    """A thread that outlives the main one, and what runs at exit, compute as before."""
    text = LATE.format(wait=wait, start=start)
    done = run_python("-c", text)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_unheard_jobs_give_results_and_errors():
    """Beside a thread that waits, and where the deadline of all work is over."""
    main = threading.get_ident()
    assert run_unheard(threading.get_ident) != main
    assert run_unheard(lambda: run_unheard(threading.get_ident)) != main
    with pytest.raises(ZeroDivisionError):
        run_unheard(lambda: 1 / 0)
    with deadline(0) as is_over:
        while not is_over():
            pass
        with pytest.raises(TimeoutError, match="deadline was over"):
            run_unheard(lambda: 1)
    assert run_unheard(lambda: 1) == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are not told apart here")
def test_threads_that_help_leave_the_core_of_the_caller(monkeypatch):
    """They may run on all others that the caller may, and where there is no other they stay."""
    monkeypatch.setattr(workers, "_HELPING", workers._Team())
    mine = os.sched_getaffinity(0)
    found = []

    def run():
        found.clear()
        run_together([lambda: None, lambda: found.append(os.sched_getaffinity(0))])
        return found[0]

    assert run() <= mine  # a thread that begins
    for core in (*sorted(mine)[:3], *sorted(mine)[:2]):
        monkeypatch.setattr(workers, "_find_core", lambda core=core: core)
        assert run() == (mine - {core} or mine)
        assert run() == (mine - {core} or mine)
    assert os.sched_getaffinity(0) == mine
    monkeypatch.setattr(workers, "_find_core", None)
    assert run() <= mine
