"""Machines that are like another one: every figure that is to change does, and no other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilesolve
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine, scale_figures
from tilesolve.model.price import list_levels

MACHINE = Machine.load("i7-6700k")


@pytest.mark.parametrize("read", [None, 0.5, 2.0])
@pytest.mark.parametrize("name", ["i7-6700k", "e5-2680v4"])
@pytest.mark.parametrize("cores", [1, 2, 4, 100])
def test_a_core_has_its_part_of_the_shared_levels(name, cores, read):
    """The machine that a core plans for is what the model gives a core among so many."""
    machine = Machine.load(name)
    if read is not None:
        faster = (replace(level, read=read * level.bandwidth) for level in machine.levels)
        machine = machine.replace(levels=tuple(faster))
    assert [
        store.capacity for store in list_levels(divide_machine(machine, cores))
    ] == pytest.approx([store.capacity for store in list_levels(machine, cores)], rel=1e-6)
    assert [
        store.bandwidth for store in list_levels(divide_machine(machine, cores))
    ] == pytest.approx([store.bandwidth for store in list_levels(machine, cores)])
    assert [store.read for store in list_levels(divide_machine(machine, cores))] == (
        [store.read and pytest.approx(store.read) for store in list_levels(machine, cores)]
    )


@pytest.mark.parametrize("cores", [2, 4, 100])
def test_what_all_compute_together_is_that_of_the_cores(cores):
    """A core's part of the peak, where there are fewer cores than parts, is less than a core."""
    own = divide_machine(MACHINE, cores)
    assert cores * own.peak("float64") == pytest.approx(MACHINE.peak("float64", cores))
    assert own.peak("float64") / own.frequency == pytest.approx(
        MACHINE.peak("float64") / MACHINE.frequency
    )


def test_a_part_of_what_is_shared():
    """The paper's model of a batch: a part of the shared cache and of the bandwidth each."""
    level = divide_machine(MACHINE, 2).level("L3")
    assert level.capacity == MACHINE.level("L3").capacity // 2
    assert divide_machine(MACHINE, 1) is MACHINE
    near, far = MACHINE.level("L2"), MACHINE.level("L3")
    noisy = [
        replace(near, bandwidth=1e9, bandwidth_all=3e9),
        replace(far, bandwidth=1e9, bandwidth_all=4e9),
    ]
    memory = replace(MACHINE.memory, bandwidth=1e9, bandwidth_all=4e9)
    levels = (MACHINE.levels[0], *noisy, memory)
    assert divide_machine(MACHINE.replace(levels=levels), 4).level("L3").bandwidth == 3e9 / 4


rates = st.floats(1e8, 1e12)


@given(st.lists(st.tuples(rates, *[st.none() | rates] * 3), min_size=4, max_size=4), st.data())
def test_any_measurement_can_be_divided(figures, data):
    """However noisy: no level is faster than a nearer one or than it was; its rates fall alike."""
    bandwidths = sorted((figure[0] for figure in figures), reverse=True)
    levels = tuple(
        replace(level, bandwidth=bandwidth, bandwidth_all=both, read=read, stream=stream)
        for level, bandwidth, (_, both, read, stream) in zip(
            MACHINE.levels, bandwidths, figures, strict=True
        )
    )
    own = divide_machine(MACHINE.replace(levels=levels), data.draw(st.integers(1, 64)))
    for level, part in zip(levels, own.levels, strict=True):
        assert part.bandwidth <= level.bandwidth
        factor = part.bandwidth / level.bandwidth
        assert part.read == (level.read and pytest.approx(level.read * factor))
        assert part.stream == (level.stream and pytest.approx(level.stream * factor))


def test_a_third_of_three_times_a_rate_is_no_more_than_it():
    """Rounding had made it 733007751850.9476."""
    rate = 733007751850.9475
    machine = MACHINE.replace(
        levels=(replace(MACHINE.levels[0], bandwidth=rate), *MACHINE.levels[1:])
    )
    assert divide_machine(machine, 3).levels[0].bandwidth == rate


def test_a_batch_of_a_machine_with_one_level_measured_by_all_cores():
    """Only the last cache is known to be slower when shared: memory is no faster then."""
    levels = tuple(
        replace(level, bandwidth_all=level.bandwidth / 100) if level.name == "L3" else level
        for level in MACHINE.levels
    )
    found = tilesolve.plan("ik-ij-jk", 8, MACHINE.replace(levels=levels), threads=2)
    ones = [[1.0] * 8] * 8
    assert [out.tolist() for out in found.batch([ones] * 2, [ones] * 2)] == [[[8.0] * 8] * 8] * 2


@pytest.mark.parametrize("name", ["L1", "L2", "L3", "memory"])
def test_a_level_of_another_speed_has_all_of_it(name):
    """Loads alone, streaming stores and parts of lines gain as the bandwidth; others nothing."""
    levels = tuple(
        replace(
            level, bandwidth=rate, bandwidth_all=3 * rate, read=2 * rate, stream=rate / 2, part=3e-9
        )
        for level, rate in zip(MACHINE.levels, (8e10, 4e10, 2e10, 1e10), strict=True)
    )
    slower = scale_figures(MACHINE.replace(levels=levels), {f"{name.lower()}_bandwidth": 0.75})
    for before, after in zip(levels, slower.levels, strict=True):
        if after.name != name:
            assert after == before
        else:
            found = after.bandwidth, after.bandwidth_all, after.read, after.stream
            rate = 0.75 * before.bandwidth
            assert found == (rate, 3 * rate, 2 * rate, rate / 2)
            assert after.part == pytest.approx(3e-9 / 0.75)
            alike = dict.fromkeys(("bandwidth", "bandwidth_all", "read", "stream", "part"), 1)
            assert replace(after, **alike) == replace(before, **alike)
