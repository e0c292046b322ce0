"""How many threads numpy's BLAS takes, while a user's `threads` bounds them and afterwards."""

import threading
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE
from threadpoolctl import threadpool_info, threadpool_limits
from turns import WHOLE

import tilesolve
from tilesolve.contractions.errors import MachineError
from tilesolve.expressions import step_kernels
from tilesolve.expressions.blas import limit_blas_threads

A, B = np.ones((70, 80)), np.ones((80, 90))


def taken():
    """Return the threads that the BLAS within numpy's wheel takes; solvers bring others along."""
    return {
        found["num_threads"]
        for found in threadpool_info()
        if found["user_api"] == "blas" and Path(found["filepath"]).parent.name == "numpy.libs"
    }


@pytest.fixture(autouse=True)
def three():
    """Let BLAS take three threads, whatever the machine has."""
    with threadpool_limits(3, user_api="blas"):
        if taken() != {3}:
            pytest.skip("numpy has no BLAS of its own that can be told how many threads to take")
        yield


@pytest.fixture
def seen(monkeypatch):
    """Note how many threads BLAS takes whenever a product is computed by it."""
    found, product = [], np.matmul

    def watched(*arrays, **options):
        found.append(taken())
        return product(*arrays, **options)

    monkeypatch.setattr(step_kernels.np, "matmul", watched)
    return found


@pytest.mark.grid
@pytest.mark.parametrize(
    "call",
    [
        lambda **named: tilesolve.einsum("ij,jk->ik", A, B, **named),
        lambda **named: tilesolve.einsum("ij,jk->ik", A, B, out=np.empty((70, 90)), **named),
        lambda **named: tilesolve.einsum("ij,jk,kl->il", A, B, np.ones((90, 60)), **named),
        lambda **named: tilesolve.einsum("ij,ij->", np.ones((99, 99)), np.ones((99, 99)), **named),
        lambda **named: tilesolve.tensordot(A, B, 1, **named),
        lambda **named: tilesolve.expression("ij,jk->ik", A, B, **named)(A, B),
    ],
)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_bound_blas_while_it_computes(seen, call, threads):
    """A product takes the threads asked for at most, never more than usual, and as usual after."""
    call(threads=threads)
    assert seen
    assert set().union(*seen) == {min(threads, 3)}
    assert taken() == {3}
    seen.clear()
    call()
    assert set().union(*seen) == {3}


def test_the_report_says_how_many():
    """An expression that was made for some threads says so of the steps that BLAS does."""
    assert "BLAS takes 2 threads at most" in str(tilesolve.expression("ij,jk", A, B, threads=2))
    assert "BLAS takes 1 thread at most" in str(tilesolve.expression("ij,jk", A, B, threads=1))
    assert "BLAS takes" not in str(tilesolve.expression("ij,jk", A, B))


@pytest.mark.parametrize(("text", "way"), [("bij,bij->", "matmul"), ("bij,bij->b", "loops")])
def test_sums_without_free_letters_say_who_computes_them(text, way):
    """Where no letter is one operand's only, numpy computes, and the report says it and why."""
    shown = str(tilesolve.expression(text, (5, 90, 90), (5, 90, 90)))
    assert f"step 1: {way}, no letter" in shown
    assert "plans have vectors along one" in shown


def test_bounds_that_overlap_leave_no_trace():
    """While one thread of the user's holds a bound, another's changes nothing for good."""
    inside, leave = threading.Barrier(2, timeout=PATIENCE), threading.Event()

    def other():
        with limit_blas_threads(1):
            inside.wait()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=other)
    with limit_blas_threads(2):
        assert taken() == {2}
        thread.start()
        inside.wait()
        assert taken() == {2}
    leave.set()
    thread.join(PATIENCE)
    assert taken() == {3}


@WHOLE
@pytest.mark.parametrize("threads", [1, 2])
def test_bounds_of_many_threads_leave_no_trace(threads, whole):
    """Whoever comes first and leaves last: a bound holds for all, and none is left."""
    product = tilesolve.expression("ij,jk", A, B, threads=threads)
    seen, begin = set(), threading.Barrier(5, timeout=PATIENCE)
    with limit_blas_threads(
        1
    ):  # after which the fixture's thread is not the only one that OpenBLAS heeds
        pass

    def calls():
        begin.wait()
        for _ in range(200 if whole else 60):
            product(A, B)
            with limit_blas_threads(threads):
                seen.update(taken())

    others = [threading.Thread(target=calls) for _ in range(4)]
    for other in others:
        other.start()
    begin.wait()
    for other in others:
        other.join(PATIENCE)
    assert seen == {threads}
    assert taken() == {3}
    with limit_blas_threads(1):
        assert taken() == {1}
    assert taken() == {3}


def test_an_error_ends_a_bound():
    """What a product raises leaves BLAS with its usual threads."""
    with pytest.raises(ZeroDivisionError), limit_blas_threads(1):
        raise ZeroDivisionError
    assert taken() == {3}


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two", True])
def test_threads_that_are_no_number(threads):
    """Whichever way a contraction goes, it takes one thread or more."""
    with pytest.raises(MachineError, match="positive integer"):
        tilesolve.einsum("ij,jk->ik", A[:2, :2], B[:2, :2], threads=threads)
    with pytest.raises(MachineError, match="positive integer"):
        tilesolve.expression("ij,jk->ik", A, B, threads=threads)
