import threading
import time

import numpy as np
import pytest
from patience import PATIENCE

import tilesolve
from tilesolve.contractions.errors import DtypeError, MachineError, PlanError, SizeError
from tilesolve.plans import plan as plan_module
from tilesolve.plans.plan import core_plan

MACHINE = "i7-6700k"
SIZES = {"a": 9, "b": 8, "c": 7, "d": 6, "e": 10}


@pytest.fixture(scope="module")
def planned():
    """A plan for two threads."""
    return tilesolve.plan("abd-aec-cebd", SIZES, MACHINE, threads=2, cache=False)


@pytest.fixture
def contraction(planned):
    """That plan, and operands of seven contractions."""
    rng = np.random.default_rng(0)
    return planned, *(rng.random((7, *shape)) for shape in planned.problem.shapes[1:])


@pytest.mark.parametrize("threads", [None, 1, 2, 5, 20])
def test_each_result_is_that_of_its_operands(contraction, threads):
    """Whatever the number of threads, contraction number n has operands number n."""
    found, firsts, seconds = contraction
    expected = np.einsum("xaec,xcebd->xabd", firsts, seconds)
    results = found.batch(firsts, seconds, threads=threads)
    np.testing.assert_allclose(results, expected, rtol=1e-12)
    outs = [np.full(found.problem.shapes[0], np.nan) for _ in firsts]
    assert found.batch(list(firsts), list(seconds), outs, threads=threads) is outs
    np.testing.assert_array_equal(outs, results)
    found.batch(firsts, seconds, outs, threads=threads, alpha=2, beta=-1)
    np.testing.assert_allclose(outs, expected, rtol=1e-12)


def test_an_empty_batch_is_empty(contraction):
    """No operands give no results."""
    found, firsts, seconds = contraction
    assert found.batch(firsts[:0], seconds[:0]).shape == (0, *found.problem.shapes[0])
    assert found.batch([], [], []) == []


def test_several_threads_take_part(contraction, monkeypatch):
    """Contractions are spread: with two threads, two run at the same time."""
    found, firsts, seconds = contraction
    both = threading.Barrier(2, timeout=PATIENCE)
    seen = set()

    def core_plan(plan, cores):
        def run(first, second, out, **factors):
            if len(seen) < 2:
                seen.add(threading.get_ident())
                both.wait()

        return run

    monkeypatch.setattr(plan_module, "core_plan", core_plan)
    found.batch(firsts[:2], seconds[:2], threads=2)
    assert len(seen) == 2


def test_the_plan_of_a_core_has_one_thread():
    """It is a plan for one thread, whose tiles fit the core's part of L3."""
    found = tilesolve.plan("ik-ij-jk", 900, MACHINE, threads=4)
    own = core_plan(found, 4)
    assert (own.threads, own.split, own.problem) == (1, None, found.problem)
    assert own.machine.level("L3").capacity == found.machine.level("L3").capacity // 4
    alone = tilesolve.plan("ik-ij-jk", 900, MACHINE)
    assert core_plan(alone, 1) is alone


def test_nothing_is_written_where_anything_is_wrong(contraction):
    """The message names the contraction; outs that come before it stay as they were."""
    found, firsts, seconds = contraction
    outs = np.full((7, *found.problem.shapes[0]), 7.0)
    wrong = [*firsts[:-1], firsts[-1][:, :-1]]
    mixed = [*firsts[:-1], firsts[-1].astype("f4")]
    frozen = [*outs[:-1], outs[-1].copy()]
    frozen[-1].flags.writeable = False
    for error, match, arguments in [
        (SizeError, "7 first and 6 second", (firsts, seconds[:-1], outs)),
        (SizeError, "7 contractions, but 6 outs", (firsts, seconds, outs[:-1])),
        (SizeError, "axis 1 of operand A .* 9, .* 10", (wrong, seconds, outs)),
        (DtypeError, "contraction 6 is float32", (mixed, seconds, outs)),
        (DtypeError, "contraction 0, is float32", (firsts, seconds, outs.astype("f4"))),
        (PlanError, "contraction 6.* read-only", (firsts, seconds, frozen)),
        (PlanError, "0 and 6 of a batch", (firsts, seconds, [*outs[:-1], outs[0]])),
    ]:
        with pytest.raises(error, match=match):
            found.batch(*arguments)
    with pytest.raises(MachineError, match="threads must be a positive integer, got 0"):
        found.batch(firsts, seconds, outs, threads=0)
    with pytest.raises(PlanError, match="beta"):
        found.batch(firsts, seconds, beta=1)
    assert (outs == 7).all()


def test_an_out_that_is_another_contractions_operand_is_refused():
    """Threads would read what others write."""
    found = tilesolve.plan("ik-ij-jk", 5, MACHINE)
    a, b = np.ones((3, 5, 5)), np.ones((3, 5, 5))
    with pytest.raises(PlanError, match="0 and 2 of a batch"):
        found.batch(a, b, [np.zeros((5, 5)), np.zeros((5, 5)), b[0]])
    same = found.batch([a[0]] * 3, [b[0]] * 3, a[:, ::-1].copy())
    assert (np.asarray(same) == 5).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_ends_the_batch(contraction, monkeypatch, error):
    """What is being computed is ended, nothing is begun any more, and then the error comes."""
    found, firsts, seconds = contraction
    begun, failed = [], threading.Event()

    def core_plan(_plan, _cores):
        def run(first, second, out, **factors):
            begun.append(threading.current_thread() is threading.main_thread())
            if begun[-1]:
                failed.set()
                raise error
            failed.wait(PATIENCE)

        return run

    monkeypatch.setattr(plan_module, "core_plan", core_plan)
    many = np.broadcast_to(firsts[0], (1000, *firsts[0].shape))
    others = np.broadcast_to(seconds[0], (1000, *seconds[0].shape))
    with pytest.raises(error):
        found.batch(many, others, threads=2)
    assert len(begun) < 1000
    count = len(begun)
    time.sleep(0.05)
    assert len(begun) == count


@pytest.mark.parametrize("wrong", [3, None, iter([]), "text"])
def test_a_batch_of_what_is_no_sequence(contraction, wrong):
    """Neither of the operands nor of the outputs."""
    found, firsts, seconds = contraction
    for arguments in ((wrong, seconds), (firsts, wrong), (firsts, seconds, wrong)):
        if arguments[-1] is None and len(arguments) == 3:
            continue
        with pytest.raises((SizeError, DtypeError)):
            found.batch(*arguments)
