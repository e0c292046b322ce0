"""Memory of results: used again once no array refers to it, never before, and bounded."""

import gc
import os
import threading

import numpy as np
import pytest
from commands import run_python

from tilesolve.contractions.errors import SettingError
from tilesolve.packing.sizes import HUGE_PAGE_BYTES
from tilesolve.system import result_buffers
from tilesolve.system.result_buffers import forget_results, new_result

BYTE = np.dtype(np.uint8)
LARGE = 2 * HUGE_PAGE_BYTES


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    monkeypatch.delenv("TILESOLVE_RESULT_BUFFERS", raising=False)
    forget_results()
    yield
    forget_results()


def idle():
    return sum(block.size for block in result_buffers._pool.idle)


@pytest.mark.parametrize("size", [0, 1, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, LARGE + 1])
def test_a_result_is_an_array_like_others(size):
    found = new_result((size,), BYTE)
    assert (found.shape, found.dtype) == ((size,), BYTE)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    found[...] = 7
    assert (found == 7).all()


@pytest.mark.parametrize(
    "refer",
    [
        lambda a: a[5:9],
        lambda a: a.reshape(2, -1).T[3:, 1],
        lambda a: a.view("f8")[::7],
        memoryview,
        lambda a: np.frombuffer(memoryview(a)[8:64]),
        lambda a: np.asarray(a, copy=None),
    ],
)
def test_memory_is_not_used_again_while_anything_refers_to_it(refer):
    """Whatever view lives on: no later result has its memory, and it does not change."""
    result = new_result((LARGE,), BYTE)
    result[...] = 1
    view = refer(result)
    before = np.array(view)
    del result
    gc.collect()
    assert idle() == 0
    others = [new_result((LARGE,), BYTE) for _ in range(3)]
    for other in others:
        other[...] = 2
    assert np.array_equal(np.array(view), before)
    del view
    gc.collect()
    assert idle() == LARGE


def test_memory_is_used_again_once_it_is_free():
    first = new_result((LARGE,), BYTE)
    address = first.ctypes.data
    del first
    assert new_result((LARGE // 8 - 1,), np.dtype(float)).ctypes.data == address


def test_memory_that_is_kept_is_bounded(monkeypatch):
    """What was let go of first goes; 0 keeps nothing."""
    monkeypatch.setenv("TILESOLVE_RESULT_BUFFERS", str(3 * HUGE_PAGE_BYTES))
    results = [new_result((HUGE_PAGE_BYTES * count,), BYTE) for count in (1, 2, 2)]
    places = [one.ctypes.data for one in results]
    while results:
        del results[0]
    assert idle() == 2 * HUGE_PAGE_BYTES
    assert new_result((2 * HUGE_PAGE_BYTES,), BYTE).ctypes.data == places[2]
    monkeypatch.setenv("TILESOLVE_RESULT_BUFFERS", "0")
    del places
    new_result((HUGE_PAGE_BYTES,), BYTE)
    assert idle() == 0
    monkeypatch.setenv("TILESOLVE_RESULT_BUFFERS", "much")
    with pytest.raises(SettingError, match="TILESOLVE_RESULT_BUFFERS must be a size"):
        new_result((HUGE_PAGE_BYTES,), BYTE)


def test_threads_never_share_a_result():
    wrong = []

    def work(mine):
        for _ in range(60):
            one, two = (new_result((HUGE_PAGE_BYTES,), BYTE) for _ in range(2))
            one[::4096], two[::4096] = mine, mine + 100
            if (one[::4096] != mine).any() or (two[::4096] != mine + 100).any():
                wrong.append(mine)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert idle() <= 16 * HUGE_PAGE_BYTES  # a thread has four while it goes on to its next two


def test_a_forked_process_has_memory_of_its_own():
    result = new_result((LARGE,), BYTE)
    result[...] = 1
    del result
    child = os.fork()
    if child == 0:
        mine = new_result((LARGE,), BYTE)
        mine[...] = 2
        os._exit(int((mine != 2).any()))
    again = new_result((LARGE,), BYTE)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert (again == 1).all()


LATE = """
import os
import numpy as np
from tilesolve.system import result_buffers
os.kept = [result_buffers.new_result((3000, 3000), np.dtype(float)) for _ in range(3)]
os.library = result_buffers
"""


@pytest.mark.parametrize("kept", ["0", "100 MiB", "1 GiB"])
def test_results_may_outlive_the_library(kept):
    """At the interpreter's end its modules are taken down before what holds on to results."""
    done = run_python("-c", LATE, env=os.environ | {"TILESOLVE_RESULT_BUFFERS": kept})
    assert (done.returncode, done.stderr) == (0, "")
