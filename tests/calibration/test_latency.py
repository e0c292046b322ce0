"""Latencies: blocks that show each level, what is kept of the times, and contradictions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.calibration import latency as latency_module
from tilesolve.calibration.calibrate import Calibration
from tilesolve.calibration.latency import chase_sizes, measure_latencies
from tilesolve.machine.model import Machine
from tilesolve.show.calibration_tables import list_calibration_tables
from tilesolve.show.machine_tables import list_machine_tables
from tilesolve.system.pinned_threads import PinnedThreads


def measured(machine):
    """The machine as if its bandwidths had been measured."""
    sources = {f"{level.name}.bandwidth": "measured" for level in machine.levels}
    return machine.replace(sources=tuple((dict(machine.sources) | sources).items()))


MACHINE = measured(Machine.load("i7-6700k"))


def timed(monkeypatch, seconds, machine=MACHINE, limit=2**40):
    """What is kept of a machine whose loads take so long, by the size of their block."""
    monkeypatch.setattr(latency_module, "_time_loads", lambda _, size, whole: seconds(size, whole))
    return measure_latencies(machine, None, limit, lambda *_: None)


@given(
    st.lists(st.integers(13, 26), min_size=1, max_size=4, unique=True).map(sorted),
    st.floats(0.3, 1.0),
    st.integers(12, 32),
)
def test_a_block_fits_its_level_and_no_nearer_one(bits, effective, limit):
    """Within the part that serves; memory's is beyond all caches, or there is none."""
    caches = [
        replace(MACHINE.levels[0], name=f"L{n}", capacity=2**one, effective=effective)
        for n, one in enumerate(bits, start=1)
    ]
    machine = measured(MACHINE.replace(levels=(*caches, MACHINE.memory)))
    sizes = chase_sizes(machine, 2**limit)
    nearer = 0
    for level, size in zip(machine.levels, sizes, strict=True):
        assert size <= 2**limit
        assert level.usable is None or size <= level.usable
        assert size > nearer or size == 0
        nearer = max(nearer, level.capacity or 0)


def test_each_level_has_the_latency_of_its_block(monkeypatch):
    """Farther levels answer later, the file keeps it, and its source is the measurement."""
    machine, notes = timed(monkeypatch, lambda size, whole: size * 1e-12)
    waits = [level.latency for level in machine.levels]
    assert waits == [size * 1e-12 for size in chase_sizes(MACHINE, 2**40)]
    assert waits == sorted(waits)
    assert notes == ()
    assert {machine.source(f"{level.name}.latency") for level in machine.levels} == {"measured"}
    assert Machine.from_toml(machine.to_toml()) == machine


def test_what_was_not_reached_has_no_latency(monkeypatch):
    """As its bandwidth is assumed, too."""
    sources = dict(MACHINE.sources) | {"memory.bandwidth": "assumed"}
    machine = MACHINE.replace(sources=tuple(sources.items()))
    found, _ = timed(monkeypatch, lambda *_: 1e-9, machine)
    assert [level.latency for level in found.levels] == [1e-9, 1e-9, 1e-9, None]
    assert Machine.from_toml(found.to_toml()) == found


def test_latencies_out_of_order_are_not_kept(monkeypatch):
    """The note names both levels; noise is no contradiction."""
    found, notes = timed(monkeypatch, lambda size, whole: 1e-9 if whole else 0.9e-9)
    assert found == MACHINE
    assert notes == ("memory seems to answer sooner than the nearer L3: no latency is kept.",)
    found, notes = timed(monkeypatch, lambda size, whole: 1e-9 if whole else 0.97e-9)
    assert (found.memory.latency, notes) == (0.97e-9, ())


def test_this_computer_is_measured():
    """Each level that a small block shows waits for a while."""
    here = measured(Machine.detect())
    with PinnedThreads(1) as crew:
        found, _ = measure_latencies(here, crew, 2**17, lambda *_: None)
    waits = [level.latency for level in found.levels if level.latency is not None]
    assert all(0 < wait < 1e-3 for wait in waits)


@pytest.mark.parametrize("latency", [None, 2.5e-9])
def test_tables_show_latencies(monkeypatch, latency):
    """In seconds and cycles; of a machine without any there is no column of them."""
    machine, _ = timed(monkeypatch, lambda *_: latency) if latency else (MACHINE, ())
    rates = list_machine_tables(machine)[1]
    assert ("latency" in rates.columns) == (latency is not None)
    shown = list_calibration_tables(Calibration(machine, (), (), (), 0.0))[0]
    at = list(shown.columns).index("latency")
    assert [row[at] for row in shown.rows] == ["2.5 ns (10.5 cycles)" if latency else "-"] * 4


def test_files_without_latencies_are_read():
    """As they were written before."""
    text = MACHINE.to_toml()
    assert "latency = " not in text.replace("fma_latency", "")
    assert all(level.latency is None for level in Machine.from_toml(text).levels)
