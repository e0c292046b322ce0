"""Locks: one thread at a time, and free in a forked process."""

import os
import threading

import pytest
from commands import run_python
from patience import PATIENCE

from tilesolve.system.locks import make_lock

FORKED = """
import os, threading
from tilesolve.{room} import {module}

inside, leave = threading.Event(), threading.Event()

def hold():
    with {module}.{lock}:
        inside.set()
        leave.wait()

thread = threading.Thread(target=hold)
thread.start()
inside.wait()
child = os.fork()
if not child:
    with {module}.{lock}:
        os._exit(7)
_, status = os.waitpid(child, 0)
leave.set()
thread.join()
with {module}.{lock}:
    print(os.waitstatus_to_exitcode(status))
"""


def test_one_thread_at_a_time():
    """Whoever comes second waits."""
    lock, order = make_lock(), []
    inside = threading.Event()

    def second():
        inside.set()
        with lock:
            order.append(2)

    thread = threading.Thread(target=second)
    with lock:
        thread.start()
        assert inside.wait(PATIENCE)
        order.append(1)
    thread.join(PATIENCE)
    assert order == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("room", "module", "lock"),
    [
        ("machine", "kernel_cache", "_lock"),
        ("plans", "cache", "_lock"),
        ("expressions", "blas", "_bound.lock"),
    ],
)
def test_a_forked_process_does_not_wait_for_its_parents_threads(room, module, lock):
    """What a thread of the parent held is free in the child, and still held in the parent."""
    done = run_python("-c", FORKED.format(room=room, module=module, lock=lock))
    assert done.stdout == "7\n", done.stderr


INTERRUPTED = """
import os, signal, threading, time
from tilesolve.system.locks import make_lock

lock, armed = make_lock(), False

def interrupt(*_):
    if armed:
        raise KeyboardInterrupt

def send():
    for _ in range(100):
        time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
sender = threading.Thread(target=send)
sender.start()
while sender.is_alive():
    try:
        armed = True
        for _ in range(1000):
            with lock:
                pass
        armed = False
    except KeyboardInterrupt:
        armed = False
        assert not lock.locked()
"""


def test_an_interrupt_leaves_it_free():
    """At whatever moment of taking, holding and freeing it."""
    done = run_python("-c", INTERRUPTED)
    assert (done.returncode, done.stderr) == (0, "")
