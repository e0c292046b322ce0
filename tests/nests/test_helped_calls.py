"""Calls by several threads that are like ones before: others help if they come in time."""

import threading
from functools import partial

import numpy as np
import pytest

from tilesolve.contractions.errors import SizeError
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.task_list import run_stages
from tilesolve.nests import stage_team
from tilesolve.nests.plan import nest
from tilesolve.nests.task_writer import TaskStage
from tilesolve.system import workers

MACHINE = "i7-6700k"
SIZES = {"y": 37, "x": 41}
THREADS = 3


def _draw(rng):
    return rng.random((38, 42)), rng.random(37)


def _right(first, second):
    sums = first[:-1] + first[1:]
    return sums[:, :-1] * second[:, None] + sums[:, 1:]


def _plan():
    text = "o[y,x] = (A[y,x] + A[y+1,x]) * B[y] + A[y,x+1] + A[y+1,x+1]"
    plan = nest(text, SIZES, machine=MACHINE, threads=THREADS)
    plan(*_draw(np.random.default_rng(0)))  # from then on it knows such calls
    return plan


def _offer_never(job, threads):
    """Nobody comes."""


def _offer_first(job, threads):
    """Others are there before the call has begun; it begins meanwhile."""
    begun = threading.Barrier(threads + 1)

    def run():
        begun.wait()
        job()

    for _ in range(threads):
        threading.Thread(target=run).start()
    begun.wait()


@pytest.mark.parametrize("offer", [workers.offer, _offer_never, _offer_first])
def test_results_do_not_depend_on_who_helps(monkeypatch, offer):
    plan, rng = _plan(), np.random.default_rng(1)
    monkeypatch.setattr(stage_team, "offer", offer)
    for _ in range(40):
        given, out = _draw(rng), np.full((37, 41), np.nan)
        assert plan(*given, out=out) is out
        np.testing.assert_allclose(out, _right(*given), rtol=1e-13)


@pytest.mark.parametrize("own", [0, 2, 3, 9, 20])
def test_more_threads_than_a_call_has_parts(own):
    """As other arrays may have more parts: each looks at all tasks of this call, and no others."""
    marks, slots = np.ones(64, np.int64), np.zeros(fields.GIVEN, np.int64)
    goes_on = np.zeros(1, np.int64)
    team = stage_team.StageTeam.of([TaskStage(0, 3)], 0)
    marks[-1] = 3  # all are taken, and done
    team.table[0, fields.STAGE_TAKEN] = marks.ctypes.data
    team.table[0, fields.STAGE_DONE] = marks[-1:].ctypes.data
    team.words[fields.TEAM_SIZE], slots[fields.STOP] = 3, goes_on.ctypes.data
    addresses = [one.ctypes.data for one in (team.table, team.words, slots)]
    assert run_stages(addresses[0], 1, own, *addresses[1:]) == 0
    assert marks.tolist() == [2, 2, 2, *[1] * 60, 3]


def test_who_comes_late_does_nothing(monkeypatch):
    plan, rng, late = _plan(), np.random.default_rng(2), []
    monkeypatch.setattr(stage_team, "offer", lambda job, threads: late.extend([job] * threads))
    given = _draw(rng)
    found = plan(*given)
    kept = found.copy()
    assert len(late) == THREADS - 1
    given[0][:] = np.nan
    for job in late:
        job()
    np.testing.assert_array_equal(found, kept)
    np.testing.assert_allclose(plan(*_draw(np.random.default_rng(2))), kept, rtol=1e-13)


def test_a_call_that_is_not_like_one_before_asks_nobody_in(monkeypatch):
    plan, rng, asked = _plan(), np.random.default_rng(3), []
    monkeypatch.setattr(stage_team, "offer", lambda job, threads: asked.append(job))
    first, second = _draw(rng)
    wide = np.asfortranarray(first)
    np.testing.assert_allclose(plan(wide, second), _right(first, second), rtol=1e-13)
    with pytest.raises(SizeError):
        plan(first[1:], second)
    for job in asked:
        job()  # the gate is closed, or it would wait for a call that never begins


def test_positions_outside_are_found_whoever_finds_them():
    plan = nest(
        "o[i] = A[v[i]] * 2",
        {"i": 5000, "A": (9,)},
        {"A": "float64", "v": "int64"},
        machine=MACHINE,
        threads=2,
    )
    rng = np.random.default_rng(4)
    table, places = rng.random(9), rng.integers(0, 9, 5000)
    known = {"A": table, "v": places}
    np.testing.assert_array_equal(plan(**known), table[places] * 2)
    for at in (0, 4999):
        wrong = places.copy()
        wrong[at] = 9
        with pytest.raises(SizeError, match="position 9"):
            plan(A=table, v=wrong)
        np.testing.assert_array_equal(plan(**known), table[places] * 2)


def test_calls_of_several_threads_at_once():
    plan, errors = _plan(), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            given = _draw(rng)
            if not np.allclose(plan(*given), _right(*given), rtol=1e-13):
                errors.append(seed)

    callers = [threading.Thread(target=partial(work, seed)) for seed in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert not errors


def test_what_an_offered_job_raises_ends_no_thread():
    done = threading.Event()
    for _ in range(20):
        workers.offer(lambda: 1 / 0, 1)
    workers.offer(done.set, 1)
    assert done.wait(60)
