"""Tries of the solver's plans: which are run, which is kept, and for whom."""

from dataclasses import replace

import numpy as np
import pytest

from tilesolve import plan
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.solve import list_tries, rank
from tilesolve.plans import cache as plan_cache
from tilesolve.plans import tries

MACHINE = "e5-2680v4"

SIZES = "i=96 j=64 k=512"


@pytest.fixture
def timed(monkeypatch):
    """How long candidates take, as the test says; and how often that was asked."""

    class Clock:
        seconds, asked = (), 0

        def __call__(self, candidates):
            self.asked += 1
            return [*self.seconds, *[9.0] * len(candidates)][: len(candidates)]

    clock = Clock()
    monkeypatch.setattr(tries, "measure", clock)
    return clock


def test_the_plan_without_tries_is_tried_first():
    """Then others, the best ones by the score first; no two are walked alike."""
    problem, machine = Problem.of("ij-ik-kj", SIZES), Machine.load(MACHINE)
    found = list_tries(problem, machine, 1, replace(Demand(), tries=5))
    assert found[0] == rank(problem, machine, 1, Demand())[0]
    assert len({one.nest for one in found}) == len(found) > 2
    scores = [one.score for one in found[1:]]
    assert scores == sorted(scores)


def test_one_try_runs_nothing(timed):
    """Which is the default."""
    plan("ij-ik-kj", SIZES, MACHINE)
    plan("ij-ik-kj", SIZES, MACHINE, tries=1, cache=False)
    assert timed.asked == 0


@pytest.mark.parametrize(
    ("seconds", "kept"), [((2.0, 1.0), 1), ((1.0, 2.0), 0), ((1.0, 0.99), 0), ((1.0, 1.0), 0)]
)
def test_the_fastest_is_kept_if_it_is_clearly_faster(timed, seconds, kept):
    """Than the plan that one try gives; else that one is kept."""
    timed.seconds = seconds
    problem, machine = Problem.of("ij-ik-kj", SIZES), Machine.load(MACHINE)
    found = plan(problem, machine=MACHINE, tries=4, cache=False)
    assert found.solution == list_tries(problem, machine, 1, replace(Demand(), tries=4))[kept]


def test_what_was_tried_is_kept_beside_what_was_not(timed, monkeypatch):
    """In memory and on disk, for this computer: another one tries again."""
    timed.seconds = (2.0, 1.0)
    usual = plan("ij-ik-kj", SIZES, MACHINE)
    best = plan("ij-ik-kj", SIZES, MACHINE, tries=3)
    assert best != usual
    plan_cache.forget()
    assert plan("ij-ik-kj", SIZES, MACHINE, tries=3) == best
    assert plan("ab-ac-cb", "a=96 b=64 c=512", MACHINE, tries=3).seconds == best.seconds
    assert plan("ij-ik-kj", SIZES, MACHINE) == usual
    assert timed.asked == 1
    plan_cache.forget()
    monkeypatch.setattr(plan_cache, "_name_computer", lambda: "another")
    plan("ij-ik-kj", SIZES, MACHINE, tries=3)
    assert timed.asked == 2
    assert plan("ij-ik-kj", SIZES, MACHINE) == usual


@pytest.mark.parametrize("options", [{}, {"accumulate": True}, {"epilogue": "+j relu"}])
def test_tried_plans_compute_the_same(options):
    """Run for good, whatever else is asked for."""
    found = plan("ij-ik-kj", "i=9 j=17 k=33", MACHINE, tries=3, cache=False, **options)
    rng = np.random.default_rng(1)
    first, second, row = rng.random((9, 33)), rng.random((33, 17)), rng.random(17)
    out = np.ones((9, 17))
    right = first @ second + (out if "accumulate" in options else 0)
    extra = {"operands": [row]} if "epilogue" in options else {}
    right = np.maximum(right + row, 0) if extra else right
    beta = float("accumulate" in options)
    assert np.allclose(found(first, second, out=out, beta=beta, **extra), right)


def test_more_than_the_last_cache_is_written_before_each_run():
    """What the candidate before has left there would favour some."""
    machine = Machine.load(MACHINE)
    caches = [replace(level, capacity=16384) for level in machine.caches]
    trash = np.zeros(tries.count_flush_bytes(machine.replace(levels=(*caches, machine.memory))))
    assert trash.size == 2 * 16384
    assert tries._seconds(lambda: np.testing.assert_array_equal(trash, 1), trash) > 0


def test_short_calls_are_timed_more_than_once(monkeypatch):
    """The least of all turns counts; a long turn is the only one."""
    found = [plan("ij-ik-kj", 8, MACHINE, cache=False).solution] * 2
    for each, turns in ((0.01, 26), (1.0, 1), (1e-9, 1 + tries.MOST_TURNS)):
        calls = []

        def take(call, trash, each=each, calls=calls):
            calls.append(call)
            return each

        monkeypatch.setattr(tries, "_seconds", take)
        assert tries.measure(found) == [each] * 2
        assert len(calls) == 2 * turns
