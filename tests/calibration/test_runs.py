"""Starts of runs: the fit, what is kept of the times and what is not, and the table of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.calibration import runs as module
from tilesolve.calibration.calibrate import Calibration
from tilesolve.calibration.runs import (
    MOST_SPREAD,
    RUN_LINES,
    RunTimes,
    fit_run,
    keep_runs,
    measure_runs,
)
from tilesolve.machine.model import Machine
from tilesolve.show.calibration_tables import list_calibration_tables
from tilesolve.show.machine_tables import list_machine_tables
from tilesolve.system.pinned_threads import PinnedThreads

MACHINE = Machine.load("i7-6700k")


def times(starts, line=1e-9, level="L2"):
    """What a level's runs take, by the start of each repeat."""
    return RunTimes(
        level,
        tuple({lines: start + line * lines for lines in RUN_LINES} for start in starts),
    )


@given(st.floats(0, 1e-7), st.floats(1e-11, 1e-7))
def test_the_fit_finds_what_straight_times_were_made_of(start, line):
    """The start and the line, and no residual."""
    found = times([start], line)
    assert fit_run(found.runs[0]) == pytest.approx((start, line), rel=1e-6, abs=1e-6 * line)
    assert found.residual < 1e-6


def test_times_that_are_not_straight_have_a_residual():
    """By the share of the time that the fit misses most."""
    bent = RunTimes("memory", ({1: 55e-9, 16: 585e-9, 64: 855e-9},))
    start, line = fit_run(bent.runs[0])
    misses = [abs(start + line * lines - x) / x for lines, x in bent.runs[0].items()]
    assert bent.residual == max(misses) > 0.2


def test_a_start_is_kept():
    """As the median, with its source; the file has it."""
    machine, found, notes = keep_runs(MACHINE, [times([3e-9, 3.1e-9, 2.9e-9])])
    assert machine.level("L2").start == pytest.approx(3e-9)
    assert machine.source("L2.start") == "measured"
    assert machine.level("L1") == MACHINE.level("L1")
    assert notes == ()
    assert Machine.from_toml(machine.to_toml()) == machine
    assert found[0].to_dict()["start"] == machine.level("L2").start


@pytest.mark.parametrize("middle", [1.02, 0.98])
def test_a_start_that_spreads_is_not_kept(middle):
    """The limit is a share of what a first line takes; the note names the level and both ends."""
    apart = MOST_SPREAD * middle * 4e-9  # of 3 ns and a line of 1 ns
    one = times([3e-9 - apart / 2] * 2 + [3e-9] + [3e-9 + apart / 2] * 2)
    machine, _, notes = keep_runs(MACHINE, [one])
    assert one.spread == pytest.approx(MOST_SPREAD * middle)
    assert (machine.level("L2").start is None) == (middle > 1) == bool(notes)
    for note in notes:
        assert note.startswith("Starts of runs in L2 took 2.59 to 3.41 ns")


def test_one_disturbed_repeat_spoils_nothing():
    """The least and the largest start do not count for the spread."""
    machine, _, notes = keep_runs(MACHINE, [times([3e-9, 3e-9, 3e-9, 90e-9, -5e-9])])
    assert machine.level("L2").start == pytest.approx(3e-9)
    assert notes == ()


def test_a_start_below_zero_is_noise():
    """It is not kept."""
    machine, _, notes = keep_runs(MACHINE, [times([-1e-11] * 5)])
    assert machine.level("L2").start is None
    assert len(notes) == 1


def test_this_computer_is_measured(monkeypatch):
    """Each level that a small block shows has times of all runs."""
    here = Machine.detect()
    sources = {f"{level.name}.bandwidth": "measured" for level in here.levels}
    here = here.replace(sources=tuple((dict(here.sources) | sources).items()))
    monkeypatch.setattr(module, "REPEATS", 2)
    monkeypatch.setattr(module, "TIMED_LINES", 1 << 10)
    with PinnedThreads(1) as crew:
        _, found, _ = measure_runs(here, crew, 2**17, lambda *_: None)
    assert "L1" in [one.level for one in found]
    for one in found:
        for seconds in one.runs:
            assert all(0 < x < 1e-3 for x in seconds.values())
        assert len(one.runs) == 2


@pytest.mark.parametrize("start", [None, 2.5e-9])
def test_tables_show_starts(start):
    """In seconds and cycles; of a machine without any there is no column of them."""
    machine = MACHINE.replace(levels=tuple(replace(one, start=start) for one in MACHINE.levels))
    assert ("start of a run" in list_machine_tables(machine)[1].columns) == (start is not None)
    shown = list_calibration_tables(Calibration(machine, (), (), (), 0.0))[0]
    at = list(shown.columns).index("start of a run")
    assert [row[at] for row in shown.rows] == ["2.5 ns (10.5 cycles)" if start else "-"] * 4
