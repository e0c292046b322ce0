"""Readings of costs: what counts, what is refused and measured again, and what is kept of them."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.calibration import readings
from tilesolve.calibration.calibrate import Calibration, keep_others
from tilesolve.calibration.cost_probes import COST_PROBES, Bench, measure_costs
from tilesolve.calibration.part_lines import make_part_probe
from tilesolve.calibration.readings import (
    LEAST_VALUES,
    MOST_SPREAD,
    QUIET_SHARE,
    RETRIES,
    Reading,
    keep_readings,
    take_readings,
)
from tilesolve.machine.costs import (
    COST_NAMES,
    DEFAULT_COSTS,
    MEASURED_RATIOS,
    Costs,
    describe_costs,
)
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.show.calibration_tables import list_calibration_tables
from tilesolve.show.doctor import diagnose
from tilesolve.system.pinned_threads import PinnedThreads

MACHINE = Machine.load("i7-6700k")
PACK = "costs.pack_cycles"


def silent(_share, _what):
    """No progress."""


@given(st.floats(1e-9, 1e9), st.integers(1, 8), st.lists(st.floats(1, 100), max_size=16))
def test_disturbances_of_others_do_not_count(true, quiet, slower):
    """As long as half of the repeats, and three, were quiet; one that is too low does neither."""
    quiet = max(LEAST_VALUES, quiet, (len(slower) + 1) // 2)
    values = [true * x for x in slower] + [true] * quiet
    found = Reading(PACK, tuple(values))
    assert (found.value, found.spread, found.fault) == (true, 0, "")
    if len(values) >= 8:
        assert Reading(PACK, (true / 3, *values)).value == true


@given(st.lists(st.floats(0.1, 0.99 * QUIET_SHARE), max_size=9), st.integers(0, 5))
def test_what_was_measured_beside_others_does_not_count(slow, quiet):
    """Where the core was slower before or after; too few quiet repeats are no measurement."""
    paces = iter([1.0, *slow, *[1.0] * 99])
    values = iter([9.0] * (len(slow) + bool(slow)) + [2.0] * 99)
    counted = []

    def probe():
        counted.append(next(values))
        return counted[-1]

    wanted = len(slow) + bool(slow) + quiet
    if not wanted:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings, "RETRIES", 0)
        [found] = take_readings({PACK: probe}, wanted, lambda: next(paces), silent)
    assert len(counted) == wanted
    assert found.values == (2.0,) * quiet
    assert bool(found.fault) == (quiet < LEAST_VALUES)


@pytest.mark.parametrize("value", [0.0, -1.0, inf, nan])
def test_what_is_no_number_above_zero_is_refused(value):
    """Even if all repeats agree; the default stays, and the machine says so."""
    reading = Reading(PACK, (value,) * 5)
    assert reading.fault
    machine, notes = keep_readings(MACHINE, [reading])
    assert machine.costs == DEFAULT_COSTS
    assert machine.source(PACK) == "refused"
    assert notes == (f"pack cycles {reading.fault}: it is not kept.",)
    assert Machine.from_toml(machine.to_toml()) == machine


@pytest.mark.parametrize(
    ("name", "value"), [("lanewise_slowdown", 0.9), ("near_share", 1.1), ("tlb_pages", 0.5)]
)
def test_what_a_cost_cannot_be_is_refused(name, value):
    """A loop over vectors does not beat the peak."""
    assert "cannot be" in Reading(f"costs.{name}", (value,) * 5).fault


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_the_limit_of_the_spread(factor):
    """It is a share of the value."""
    half = MOST_SPREAD * factor / 2
    reading = Reading(PACK, (1 - half, 1.0, 1.0, 1.0, 1 + half))
    assert bool(reading.fault) == (factor > 1)
    machine, notes = keep_readings(MACHINE, [reading])
    assert machine.source(PACK) == ("refused" if factor > 1 else "measured")
    assert bool(notes) == (factor > 1)


def test_a_bad_reading_is_taken_again():
    """With all repeats there are, and no other probe with it."""
    calls = {"good": 0, "bad": 0, "late": 0}

    def probe(name, values):
        def take():
            calls[name] += 1
            return values(calls[name])

        return take

    probes = {
        PACK: probe("good", lambda _: 2.0),
        "costs.near_share": probe("bad", lambda count: 2.0**count),
        "memory.part": probe("late", lambda count: 9e-9 if count > 5 else 9e-9 * 3.0**count),
    }
    good, bad, late = take_readings(probes, 5, lambda: 1.0, silent)
    assert (good.fault, late.fault) == ("", "")
    assert late.value == 9e-9
    assert bad.fault
    assert calls == {"good": 5, "bad": 5 * (1 + RETRIES), "late": 10}


def test_time_ends_repeats():
    """After the fewest that can agree, and without retries."""
    calls = []
    probes = {PACK: lambda: calls.append(1) or 2.0 ** -len(calls)}
    [found] = take_readings(probes, 50, lambda: 1.0, silent, 0.0)
    assert len(calls) == len(found.values) == LEAST_VALUES
    assert found.fault


def test_what_is_measured_is_kept():
    """Of costs and of levels, with its source; a file has it."""
    found = [Reading(PACK, (2.0, 2.0, 2.1, 2.2, 2.2)), Reading("memory.part", (9e-9,) * 5)]
    machine, notes = keep_readings(MACHINE, found)
    assert (machine.costs, machine.memory.part) == (Costs(pack_cycles=2.1), 9e-9)
    assert [machine.source(one.figure) for one in found] == ["measured"] * 2
    assert notes == ()
    again = Machine.from_toml(machine.to_toml())
    assert (again.costs, again.memory.part) == (machine.costs, 9e-9)


def test_every_probe_is_of_a_figure():
    """Of a level or of [costs]."""
    for figure in COST_PROBES:
        owner, _, name = figure.partition(".")
        assert name in (COST_NAMES if owner == "costs" else Level.__dataclass_fields__)


def test_every_cost_has_the_probe_that_it_names():
    """A cost without one is shown as assumed."""
    named = {cost.name: cost.probe for cost in describe_costs(DEFAULT_COSTS)}
    probed = dict.fromkeys(MEASURED_RATIOS, "kernels")
    owners = (figure.partition(".") for figure in COST_PROBES)
    probed |= {name: "calibrate" for owner, _, name in owners if owner == "costs"}
    assert {name: probe for name, probe in named.items() if probe} == probed
    assert all(MACHINE.source(f"costs.{name}") == "assumed" for name in named)


def test_another_calibration_replaces_what_was_measured(tmp_path):
    """But not what somebody gave, nor what it does not measure."""
    path = tmp_path / "m.toml"
    before = keep_readings(MACHINE, [Reading(PACK, (2.0,) * 5)])[0]
    given_costs = {"pack_cycles": 2.0, "tile_cycles": 7.0, "near_share": 0.3}
    before = before.replace(costs=Costs(**given_costs))
    path.write_text(before.to_toml())
    taken = [Reading(PACK, (3.0,) * 5), Reading("costs.tile_cycles", (4.0,) * 5)]
    found = keep_others(keep_readings(MACHINE, taken)[0], path)
    assert found.costs == Costs(pack_cycles=3.0, tile_cycles=7.0, near_share=0.3)
    names = ("pack_cycles", "tile_cycles", "near_share")
    assert [found.source(f"costs.{name}") for name in names] == ["measured", "given", "given"]
    refused = keep_others(keep_readings(MACHINE, [Reading(PACK, (0.0,))])[0], path)
    assert refused.costs.pack_cycles == DEFAULT_COSTS.pack_cycles
    assert refused.source(PACK) == "refused"


def test_doctor_names_what_was_refused(tmp_path, monkeypatch):
    """With the command that mends it."""
    path = tmp_path / "m.toml"
    path.write_text(keep_readings(MACHINE, [Reading(PACK, (0.0,))])[0].to_toml())
    monkeypatch.setenv("TILESOLVE_MACHINE", str(path))
    rows = {row.what: row for section in diagnose().sections for row in section.rows}
    assert rows["no measurements"].value == "costs.pack_cycles: defaults hold"
    assert "tilesolve calibrate" in rows["no measurements"].mend
    assert "pack cycles" not in rows


def test_this_computer_is_measured(monkeypatch):
    """Without memory for blocks beyond the caches, the rest is; each reading is told."""
    monkeypatch.setattr(readings, "RETRIES", 0)
    here = Machine.detect()
    with PinnedThreads(1) as crew:
        assert make_part_probe(here, crew, 1 << 20) is None
        machine, found, notes = measure_costs(Bench.of(here, crew, 1 << 20), 2, 9.0, silent)
    figures = {one.figure for one in found}
    far = {"memory.part", "costs.cached_store_slowdown"}
    far |= {"costs.late_line_cycles", "costs.near_share"}
    assert figures <= set(COST_PROBES) - far
    assert {"costs.call_cycles", "costs.epilogue_cycles"} <= figures
    assert machine.source("memory.part") == "given"
    assert machine.memory.part is None
    assert len(notes) == len([one for one in found if one.fault])
    for one in found:
        assert machine.source(one.figure) == ("refused" if one.fault else "measured")


def test_the_summary_shows_costs():
    """What was measured with its spread, what was refused and why, and how many are assumed."""
    found = (Reading(PACK, (2.0, 2.0, 2.0, 2.0, 2.1)), Reading("costs.near_share", (0.0,) * 5))
    machine, _ = keep_readings(MACHINE, found)
    shown = list_calibration_tables(Calibration(machine, (), (), (), 0.0, costs=found))[-1]
    assert shown.rows == [
        ("pack_cycles", "2", "5.0%", "measured"),
        ("near_share", "0", "0.0%", "refused: was 0"),
    ]
    assert f"{len(COST_NAMES) - 2} of {len(COST_NAMES)} costs are assumed" in shown.caption
