"""Ctrl-C at any moment of planning: in processes of their own, which a fault would end."""

import os

import pytest
from commands import run_python

START = """
import asyncio, os, random, signal, socket, statistics, threading, time
import tilesolve
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.relaxed import solve_tiles
from tilesolve.nests.setting import make_setting

MACHINE = tilesolve.Machine.load("i7-6700k")
STAGES = bind_stages(parse_stages("C[i,j] += A[i,k] * B[k,j]"), 64, "float32")

def contraction():
    return str(tilesolve.plan("i-ij-j", 300, MACHINE))

def tiles():
    return solve_tiles(make_setting(STAGES, STAGES.stages[0], MACHINE))[0].tiles

SMALL = tilesolve.plan("i-ij-j", 8, MACHINE)

def model():
    return list(map(str, SMALL.program.component_data_objects()))

def measure(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

armed = False

def raise_armed(error):
    "Return a handler that raises in calls under test alone."
    def handle(number, frame):
        if armed:
            raise error
    signal.signal(signal.SIGINT, handle)
    return handle

def interrupt(call, wait, times=1, error=KeyboardInterrupt):
    "Interrupt a call after so long; return the seconds until it ended, None if it was over."
    global armed
    sent, over = [], False  # when sending began and ended; `join` fails once it was interrupted
    def send():
        time.sleep(wait)
        sent.append(time.perf_counter())
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.0003)
        sent.append(time.perf_counter())
    try:
        armed = True
        threading.Thread(target=send).start()
        call()
        over = True
        while len(sent) < 2:
            time.sleep(0.001)
        raise SystemExit("nobody heard of the interrupt")
    except error:
        armed = False
        seconds = time.perf_counter() - sent[0]
    while len(sent) < 2:
        time.sleep(0.001)
    return None if over else seconds

def interrupt_amid(call, wait, error=KeyboardInterrupt):
    "Interrupt a call, and another one earlier where that came too late: cores may be busy."
    for _ in range(8):
        if interrupt(call, wait, error=error) is not None:
            return
        wait /= 2
    raise SystemExit("no interrupt came amid the call")
"""

MOMENTS = """
handler = raise_armed(KeyboardInterrupt)
rng = random.Random({seed})
calls = {{call: call() for call in (contraction, tiles, model)}}
spans = {{call: min(measure(call) for _ in range(2)) for call in calls}}
late, heard = [], 0
for number in range({count}):
    call = rng.choice(list(calls))
    found = interrupt(call, rng.random() * spans[call], rng.choice((1, 1, 2, 5, 30)))
    heard += found is not None
    late += [found] if found else []
    if number % {every} == 0:
        assert all(call() == right for call, right in calls.items())
assert all(call() == right for call, right in calls.items())
assert signal.getsignal(signal.SIGINT) is handler
assert heard > {count} / 3, heard
assert statistics.median(late) < 0.2, late
"""

HANDLERS = """
right, span = contraction(), measure(contraction)
usual = signal.getsignal(signal.SIGINT)

class Mine(BaseException):
    pass

for error in (Mine, KeyboardInterrupt):
    handler = raise_armed(error)
    interrupt_amid(contraction, span / 3, error)
    assert signal.getsignal(signal.SIGINT) is handler
    assert contraction() == right

# Whom nobody asks to end plans on: a handler that returns, a byte for a loop of events, no handler.
found, heard = [], []
near, far = socket.socketpair()
near.setblocking(False)
signal.set_wakeup_fd(near.fileno())
for handler in (lambda *_: heard.append(contraction()), signal.SIG_IGN):
    signal.signal(signal.SIGINT, handler)
    sender = threading.Timer(span / 3, os.kill, (os.getpid(), signal.SIGINT))
    sender.start()
    assert contraction() == right
    sender.join()
assert heard == [right]  # a plan amid another one
assert far.recv(9) == bytes([signal.SIGINT])
assert signal.set_wakeup_fd(-1) == near.fileno()

# The main thread is interrupted, another one plans on.
raise_armed(KeyboardInterrupt)
for _ in range(2):
    thread = threading.Thread(target=lambda: found.append(contraction()))
    thread.start()
    interrupt_amid(contraction, span / 3)
    thread.join()
assert found == [right] * 2

signal.signal(signal.SIGINT, usual)

async def work():
    sender = threading.Timer(span / 3, os.kill, (os.getpid(), signal.SIGINT))
    sender.start()
    assert contraction() == right  # asyncio cancels the task: whatever does not wait goes on
    sender.join()
    await asyncio.sleep(60)

try:
    asyncio.run(work())
    raise SystemExit("asyncio heard nothing")
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is usual
"""

DIES = """
signal.signal(signal.SIGINT, signal.SIG_DFL)
interrupt(contraction, measure(contraction) / 3)
"""


def run(text):
    """Run a text in a process that may be interrupted; return its status, and what it printed."""
    done = run_python("-c", START + text, env={**os.environ, "TILESOLVE_CACHE": "off"})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("seed", "count", "every"),
    [(1, 20, 5), *(pytest.param(seed, 100, 1, marks=pytest.mark.slow) for seed in range(5))],
)
def test_any_moment(seed, count, every):
    """It ends the call, once and at once, prints nothing, and the next call is right."""
    assert run(MOMENTS.format(seed=seed, count=count, every=every)) == (0, "")


def test_handlers_of_the_user():
    """They run as they do amid Python's own code, and stay."""
    assert run(HANDLERS) == (0, "")


def test_the_default_of_the_system():
    """Where a signal ends the process, it does."""
    assert run(DIES) == (-2, "")
