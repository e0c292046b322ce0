"""Decisions beside NVIDIA's, by its estimator."""

import importlib.util

import pytest

from tilesolve.bench.gpu_decisions import decide, draw_shapes, write_decisions
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.machine.device import Device

needs_estimator = pytest.mark.skipif(
    importlib.util.find_spec("nvMatmulHeuristics") is None, reason="gpu-test is missing"
)


@needs_estimator
def test_decisions_are_near_those_of_nvidia():
    """A coarse bound for few shapes; docs/decisions/095 has the figures of 200."""
    found = decide(Device.load("a100"), draw_shapes(12, 5), 5)
    ratios = [one.ratio for one in found]
    assert all(0 < ratio < 2 for ratio in ratios)
    assert sorted(ratios)[6] < 1.15
    assert any("geometric mean" in line for line in write_decisions(Device.load("a100"), found))


@needs_estimator
def test_decisions_by_groups_are_near_those_of_nvidia():
    device = Device.load("h100")
    found = decide(device, draw_shapes(8, 5), 5, grouped=True)
    assert all(one.tiling.form.grouped for one in found)
    ratios = [one.ratio for one in found]
    assert all(0 < ratio < 2 for ratio in ratios)
    assert sorted(ratios)[4] < 1.15
    assert "wgmma" in write_decisions(device, found, grouped=True)[0]


@needs_estimator
def test_devices_that_the_estimator_does_not_know_are_refused():
    with pytest.raises(BenchmarkError):
        decide(Device.load("xavier"), draw_shapes(2, 1), 1)
