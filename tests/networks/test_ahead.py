"""Plans of layers that other processes make: by way of the cache on disk."""

import pickle
import time

import pytest

from tilesolve.contractions.convolution import Convolution
from tilesolve.convolutions.layer_plans import LayerPlans, LayerRequest, read_activation
from tilesolve.networks.ahead import plan_ahead, plan_given
from tilesolve.plans import cache


def request(filters):
    """A small layer."""
    layer = Convolution.of((1, 6, 6, 4), (filters, 4, 1, 1), layout="NHWC")
    return LayerRequest(layer, read_activation("relu"), has_bias=True, machine="i7-6700k")


def kept():
    """How many plans are on disk."""
    return len(list(cache.plan_folder().glob("*.json")))


def test_plans_are_those_that_layers_look_for(monkeypatch):
    """What another process keeps, nobody solves again."""
    plan_given(pickle.dumps([(request(8), True)]))
    assert kept() == 1
    cache.forget()
    monkeypatch.setattr(cache, "pick_fastest_measured", pytest.fail)
    form, found = LayerPlans(request(8)).made(True)
    assert found.problem.shapes[0] == form.problem.shapes[0]


@pytest.mark.slow
def test_helpers_plan_and_end(monkeypatch):
    """They plan from the last layer on, and none outlives the block."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    started = []
    with plan_ahead([(request(8), True), (request(12), True)]) as _:
        end = time.monotonic() + 60
        while kept() < 2 and time.monotonic() < end:
            time.sleep(0.1)
        started.append(kept())
    assert started == [2]
    with plan_ahead([(request(16), True)]):
        pass
    assert kept() == 2
