"""Ctrl-C ends what runs for long, and leaves all usable: in a process of its own."""

import os

import pytest
from commands import run_python
from turns import WHOLE, in_turn

START = """
import os, signal, threading, time
import numpy as np
import tilesolve
from tilesolve.constants import policy

usual = signal.getsignal(signal.SIGINT)
machine = tilesolve.Machine.load("i7-6700k")
shallow = machine.replace(levels=(*machine.levels[:2], machine.memory))  # planned for much faster

def interrupted(call, error=KeyboardInterrupt):
    "Interrupt a call a moment after it has begun; return the seconds until it ends, if it had not."
    sent, over = [], False  # `join` fails once it was interrupted
    def send():
        time.sleep(0.005)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
        sent.append(time.perf_counter())
    def wait():
        while len(sent) < 2:
            time.sleep(0.001)
    try:
        threading.Thread(target=send).start()
        call()
        over = True
        wait()
        time.sleep(1)  # another thread may take the signal, and is slow to run where all are busy
        raise SystemExit("nobody heard of the interrupt")
    except error:
        end = time.perf_counter()
    wait()
    return None if over else end - sent[0]

def check(call, out, expected, error=KeyboardInterrupt):
    "Be interrupted until a call ends amid its work, and at once: others may need the cores."
    for _ in range(20):
        out.fill(np.nan)
        seconds = interrupted(call, error)
        amid = not np.abs(out - expected).max() < 1e-9  # a loop of its own may have set all to zero
        if seconds is not None and seconds < 0.2 and amid:
            break
    else:
        raise SystemExit("no interrupt ended the call at once")
    call()
    assert np.abs(out - expected).max() < 1e-9

n = 1400
first, second = np.random.default_rng(0).random((2, n, n))
right, out = first @ second, np.empty((n, n))
def product(threads):
    found = tilesolve.plan("ik-ij-jk", n, "i7-6700k", threads=threads)
    assert found.seconds > policy.LONG_SECONDS
    found(first, second, out)
    return found
"""

CASES = {
    "a plan": """
found = product({threads})
check(lambda: found(first, second, out), out, right)
assert signal.getsignal(signal.SIGINT) is usual
""",
    "a batch": """
small = np.random.default_rng(0).random((300, 160, 160))
found, outs = tilesolve.plan("ik-ij-jk", 160, "i7-6700k", threads={threads}), np.empty(small.shape)
check(lambda: found.batch(small, small, outs), outs, small @ small)
""",
    "a transpose": """
source = np.zeros((64, 64, 64, 64), np.float64)
target = np.empty(source.shape)
check(lambda: tilesolve.transpose(source, out=target, threads={threads}), target, 0)
""",
    "a layer": """
images = np.random.default_rng(0).random((2, 192, 64, 64), np.float32)
weights = np.zeros((192, 192, 3, 3), np.float32)
layer = tilesolve.conv_layer(images.shape, weights, machine=shallow, threads={threads})
results = np.empty(layer.out_shape, np.float32)
check(lambda: layer(images, out=results), results, 0)
""",
    "an einsum": """
check(
    lambda: tilesolve.einsum("ij,jk->ki", first, second, out=out, threads={threads}),
    out, right.T,
)
""",
    "a nest": """
found = tilesolve.nest("C[i,j] += A[i,k] * B[k,j]", n, machine="i7-6700k", threads={threads},
                       route="nest")
assert found.seconds > policy.LONG_SECONDS
check(lambda: found(first, second, out=out), out, right)
""",
    "blocks of a nest": """
found = tilesolve.nest("C[i,j] += A[i,k] * B[k,j]", n, machine="i7-6700k", threads={threads},
                       route="contraction", where="k <= i")
assert found.seconds > policy.LONG_SECONDS
check(lambda: found(first, second, out=out), out, np.tril(first) @ second)
""",
    "another thread": """
found = product({threads})
for _ in range(2):
    others = np.empty((n, n))  # a thread that began too late to be waited for has an earlier one
    def work(others=others):
        others.fill(np.nan)
        found(first, second, others)
    thread = threading.Thread(target=work)
    def both():
        thread.start()
        found(first, second, out)
    interrupted(both)
    if thread.ident is not None:  # it began before the interrupt
        thread.join()
        assert np.allclose(others, right)
""",
    "a handler of the user's": """
found, heard = product({threads}), []
signal.signal(signal.SIGINT, lambda *_: heard.append(True))
found(first, second, out)
interrupted(lambda: [found(first, second, out), 1 / 0], ZeroDivisionError)
assert heard and np.allclose(out, right)
class Mine(Exception):
    pass
def raise_mine(*_):
    raise Mine
signal.signal(signal.SIGINT, raise_mine)
check(lambda: found(first, second, out), out, right, Mine)
assert signal.getsignal(signal.SIGINT) is raise_mine
""",
}


@WHOLE
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_it_and_leaves_all_usable(threads, whole):
    """Its output is not yet right; the next call is right, and the handler what it was."""
    chosen = in_turn(CASES.items(), threads, whole, of=2)
    cases = (f"print({name!r}){text.format(threads=threads)}" for name, text in chosen)
    done = run_python(
        "-c", "\n".join([START, *cases]), env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
