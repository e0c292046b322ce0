"""Plans of layers that other processes make: by way of the cache on disk."""

import time
from functools import partial

import pytest
from patience import PATIENCE

from tilesolve.contractions.convolution import Convolution
from tilesolve.convolutions.layer_plans import LayerPlans, LayerRequest, read_activation
from tilesolve.plans import cache
from tilesolve.system.helpers import helped


def request(filters):
    """A small layer."""
    layer = Convolution.of((1, 6, 6, 4), (filters, 4, 1, 1), layout="NHWC")
    return LayerRequest(layer, read_activation("relu"), has_bias=True, machine="i7-6700k")


def plan(filters):
    """Plan a small layer, and keep the plan."""
    return LayerPlans(request(filters)).made(True)


def kept():
    """How many plans are on disk."""
    return len(list(cache.plan_folder().glob("*.json")))


def wait(count):
    """Wait until so many plans are on disk; return how many are."""
    end = time.monotonic() + PATIENCE
    while kept() < count and time.monotonic() < end:
        time.sleep(0.05)
    return kept()


def test_plans_are_those_that_layers_look_for(monkeypatch):
    """What another process keeps, nobody solves again."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    with helped([int, partial(plan, 8)], 1):
        assert wait(1) == 1
    cache.forget()
    monkeypatch.setattr(cache, "pick_fastest_measured", pytest.fail)
    form, found = plan(8)
    assert found.problem.shapes[0] == form.problem.shapes[0]


def test_helpers_plan_and_end(monkeypatch):
    """They plan from the last layer on, and none outlives the block."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    started = []
    with helped([partial(plan, 8), partial(plan, 12)], 1):
        started.append(wait(2))
    assert started == [2]
    with helped([partial(plan, 16)], 1):
        pass
    assert kept() == 2


def test_a_helper_that_fails_or_waits_harms_nothing(monkeypatch):
    """It does what comes behind an error, and is ended with the block, whatever it does."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    jobs = [partial(time.sleep, 600), partial(plan, 8), partial(int, "no number")]
    begin = time.monotonic()
    with helped(jobs, 1):
        assert wait(1) == 1
    assert time.monotonic() - begin < 300
