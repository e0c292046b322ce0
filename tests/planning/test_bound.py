"""The bound on all tilings: below every one that fits, and near what the solver finds."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.model import Level, Machine
from tilesolve.planning.geometric.bound import find_bound
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.make_setting import make_setting
from tilesolve.planning.geometric.tilings import times_of
from tilesolve.planning.register_tile import choose_register_tile
from tilesolve.plans.plan import plan

SPECS = ("ab-ac-cb", "abc-adc-bd", "xab-xac-xbc", "ab-ac-bc", "ab-a-cb", "ab-cad-cbd")
CONVOLUTIONS = ("ab-c[a+d]-bcd", "kx-c[2x+r]-kcr")


def draw_machine(data):
    """Return a machine whose caches are a few KiB, so that small problems do not fit."""
    usual = Machine.load("i7-6700k")
    sizes = sorted(data.draw(st.lists(st.integers(1500, 20_000), min_size=1, max_size=2)))
    speeds = sorted((data.draw(st.sampled_from([2e9, 2e10, 2e11])) for _ in sizes), reverse=True)
    caches = [
        Level(f"L{at}", size, speed, line=64)
        for at, (size, speed) in enumerate(zip(sizes, speeds, strict=True), start=1)
    ]
    memory = Level("memory", None, data.draw(st.sampled_from([1e9, 2e9])), line=64)
    return usual.replace(levels=(*caches, memory))


def draw_chain(data, setting, index):
    """Return nested tiles of an index, each a multiple of the one before, or the whole extent."""
    extent, size, chain = setting.fused.problem.sizes[index], setting.smallest(index), []
    for level in range(1, setting.levels + 1):
        sizes = sorted({*range(size, extent, size), extent})
        least = setting.smallest(index, level)
        size = data.draw(st.sampled_from([one for one in sizes if one >= least] or [extent]))
        chain.append(size)
    return tuple(chain)


@pytest.mark.parametrize("specs", [SPECS, CONVOLUTIONS])
@examples(max_examples=25)
@given(data=st.data())
def test_no_tiling_is_below_the_bound(specs, data):
    """Tilings of any loops, priced exactly, with copies or in place, take no less."""
    spec = data.draw(st.sampled_from(specs))
    sizes = {i: data.draw(st.integers(1, 60)) for i in Problem.of(spec, 2).sizes}
    problem, machine = Problem.of(spec, sizes), draw_machine(data)
    output = data.draw(st.sampled_from(["accumulate", "store", "stream"]))
    kernel = choose_register_tile(problem, machine)
    setting = make_setting(problem, machine, 1, output, kernel)
    tilings = [
        {i: draw_chain(data, setting, i) for i in setting.fused.problem.sizes} for _ in range(20)
    ]
    least = min(times_of(setting, c, tilings).max(axis=0).min() for c in list_choices(setting))
    assume(np.isfinite(least))
    assert find_bound(setting) <= least * (1 + 1e-6)


def test_a_tensor_that_two_classes_leave_in_place_stays_over_both():
    """A stays over c and b, while C stays over c: each element moves once."""
    problem = Problem.of("ab-a-cb", {"a": 17, "b": 20, "c": 50})
    usual = Machine.load("i7-6700k")
    levels = (Level("L1", 2652, 2e10, line=64), Level("memory", None, 1e9, line=64))
    machine = usual.replace(levels=levels)
    kernel = choose_register_tile(problem, machine)
    setting = make_setting(problem, machine, 1, "accumulate", kernel)
    tiles = {"M": (17,), "N": (8,), "c": (2,)}
    times = times_of(setting, ("c",), [tiles])
    assert times.max() == pytest.approx((2 * 17 * 20 + 17 + 50 * 20) * 8 / 1e9)
    assert find_bound(setting) <= times.max() * (1 + 1e-6)


@pytest.mark.parametrize("name", list(suite("tccg"))[::9])
def test_plans_are_near_their_bound(name):
    """What the solver finds is within 15 % of what nothing goes below."""
    found = plan(suite("tccg")[name], machine="i7-6700k", cache=False)
    assert -1e-6 <= found.gap <= 0.15
