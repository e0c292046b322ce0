"""Modules load whole, whatever interrupts the main thread meanwhile."""

import random

import pytest
from commands import run_python
from patience import PATIENCE

from tilesolve.system.loading import load_module

FIRST = """
import os, signal, sys, threading, time

def send(wait):
    time.sleep(wait)
    os.kill(os.getpid(), signal.SIGINT)

def work():
    import tilesolve
    ones = tilesolve.plan("ik-ij-jk", 8, "i7-6700k", cache=False)
    assert ones.seconds > 0
    stage = tilesolve.nest("C[i,j] = A[j,i] + B[i,j]", 8, machine="i7-6700k")
    assert stage.seconds > 0

import tilesolve  # loads nothing yet
start = time.perf_counter()
try:
    if len(sys.argv) > 1:
        threading.Thread(target=send, args=(float(sys.argv[1]),), daemon=True).start()
    work()
except KeyboardInterrupt:
    pass
print(time.perf_counter() - start)
work()
"""


def first_use(*arguments):
    """Return the seconds of a first plan, which may be interrupted; the next one has to work."""
    done = run_python("-c", FIRST, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), arguments
    return float(done.stdout)


SLOWLY_LOADED = """
import os, signal, time
time.sleep(0.1)
os.kill(os.getpid(), signal.SIGINT)
end = time.monotonic() + {patience}
while not os.path.exists({path!r}) and time.monotonic() < end:
    time.sleep(0.01)
whole = os.path.exists({path!r})
"""


def test_an_interrupt_ends_the_waiting_alone(tmp_path, monkeypatch):
    """The module goes on to load, once, and is whole for whoever asks again."""
    heard = tmp_path / "heard"
    text = SLOWLY_LOADED.format(patience=PATIENCE, path=str(heard))
    (tmp_path / "slowly_loaded.py").write_text(text)
    (tmp_path / "never_loaded.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        load_module("slowly_loaded")
    heard.touch()
    assert load_module("slowly_loaded").whole
    with pytest.raises(ZeroDivisionError):
        load_module("never_loaded")
    with pytest.raises(ModuleNotFoundError):
        load_module("nowhere_to_be_found")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_first_use_interrupted_at_any_moment(seed):
    """Planning works afterwards: no library is left loaded in part."""
    span = first_use()
    draw = random.Random(seed)
    for _ in range(15):
        first_use(draw.random() * span)
