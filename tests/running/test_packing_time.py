"""Timing of packing: what it counts, and that it leaves no trace."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tilesolve.convolutions.layer import conv_layer
from tilesolve.plans.plan import plan
from tilesolve.running.packing_time import time_packing


def states(executor):
    """The state of each task that the executor knows."""
    return [task.state for layout in executor.layouts.values() for task in layout.tasks]


@pytest.mark.parametrize("threads", [1, 2])
def test_packing_takes_a_part_of_a_run(threads):
    """It is more than nothing and at most the whole; runs before and after are as they were."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 16, 3, 3)).astype(np.float32)
    layer = conv_layer((2, 12, 12, 16), w, padding=1, layout="NHWC", threads=threads)
    x = rng.standard_normal((2, 12, 12, 16)).astype(np.float32)
    found, out = np.full(layer.out_shape, np.nan, "f4"), np.full(layer.out_shape, np.nan, "f4")
    layer(x, out=found)
    kept = [state.copy() for state in states(layer.plan.executor)]
    begin = time.perf_counter()
    packing = time_packing(layer.plan.executor, lambda: layer(x, out=out))
    assert 0 < packing < time.perf_counter() - begin
    assert np.array_equal(found, out)
    assert all(map(np.array_equal, states(layer.plan.executor), kept))


def test_what_is_read_in_place_takes_no_packing():
    """Weights that were packed before are no part of it either."""
    w = np.ones((8, 16, 1, 1), np.float32)
    layer = conv_layer((1, 4, 4, 16), w, layout="NHWC")
    x = np.ones((1, 4, 4, 16), np.float32)
    layer(x)
    assert not any(layer.plan.price.packed)
    assert time_packing(layer.plan.executor, lambda: layer(x)) == 0


def test_micro_panels_count():
    """Not only copies of windows, also in calls that compiled code knows again."""
    matmul = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    first, second = np.ones((2, 512, 512))
    out = matmul(first, second)
    assert any(matmul.price.packed)
    assert time_packing(matmul.executor, lambda: matmul(first, second, out)) > 0
    assert (out == 512).all()


def test_an_error_ends_the_timing():
    """Later runs call what packs, not what times it."""
    matmul = plan("ik-ij-jk", 8, cache=False)
    matmul(np.eye(8), np.eye(8))
    kept = [state.copy() for state in states(matmul.executor)]
    with pytest.raises(ZeroDivisionError):
        time_packing(matmul.executor, lambda: 1 / 0)
    assert all(map(np.array_equal, states(matmul.executor), kept))
