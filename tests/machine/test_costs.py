"""Costs of a machine: what each field says of itself, their place in a file, their source."""

import json
import tomllib
from dataclasses import fields

import pytest
import tomli_w
from commands import invoke
from hypothesis import given
from hypothesis import strategies as st
from machine_strategies import SOURCES, machines
from turns import examples

from tilesolve.calibration.calibrate import keep_others
from tilesolve.calibration.cost_probes import COST_PROBES
from tilesolve.constants import policy
from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.machine.costs import (
    COST_NAMES,
    DEFAULT_COSTS,
    MEASURED_RATIOS,
    Costs,
    changed_costs,
    describe_costs,
    measured_costs,
)
from tilesolve.machine.file import EARLIER_COSTS
from tilesolve.machine.level import Peak
from tilesolve.machine.microkernel import uses_half_vectors
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine, scale_figures
from tilesolve.show.doctor import diagnose
from tilesolve.show.machine_tables import cost_table, machine_dict

UNITS = ("cycles/", "s/", "bytes", "pages", "ratio", "share", "times")
"""How units begin."""

TILES = (
    RegisterTile(2, 6, 6.0, 20.0),
    RegisterTile(1, 6, 4.0, 40.0),
    RegisterTile(1, 1, 3.0, 30.0),
)


def sample():
    return Machine.load("i7-6700k")


def measured(dtype="float64", **found):
    return Catalogue(dtype, 256, 16, TILES, **found)


def given_in_file(**costs):
    """The shipped machine's text with costs in it."""
    return sample().to_toml() + "\n" + tomli_w.dumps({"costs": costs})


@pytest.mark.parametrize("known", fields(Costs), ids=lambda known: known.name)
def test_each_field_says_what_it_is(known):
    """A cost has a unit, a meaning, a positive default within its bounds, and a known probe."""
    assert type(known.default) is float
    assert known.default > 0
    assert known.metadata["least"] <= known.default <= known.metadata["most"]
    assert known.metadata["unit"].startswith(UNITS)
    assert len(known.metadata["meaning"].split()) > 2
    assert known.metadata["probe"] in ("", "kernels", "calibrate")
    assert (known.metadata["probe"] == "kernels") == (known.name in MEASURED_RATIOS)
    assert (known.metadata["probe"] == "calibrate") == (f"costs.{known.name}" in COST_PROBES)


def test_descriptions_are_of_all_fields():
    """Each is described once, in order, with its value."""
    found = describe_costs(Costs(pack_cycles=3.0))
    assert tuple(one.name for one in found) == COST_NAMES
    assert {one.name: one.value for one in found}["pack_cycles"] == 3.0
    assert len({one.meaning for one in found}) == len(found)


@pytest.mark.parametrize("name", COST_NAMES)
def test_an_impossible_cost_is_refused(name):
    """The error names the cost."""
    for value in (0.0, -1.0, float("nan"), float("inf"), 10**400, True, "1", None):
        with pytest.raises(MachineError, match=rf"costs: {name} must be positive"):
            Costs(**{name: value})


@pytest.mark.parametrize("known", fields(Costs), ids=lambda known: known.name)
def test_bounds_hold(known):
    """A share is at most one, a slowdown at least one."""
    least, most = known.metadata["least"], known.metadata["most"]
    Costs(**{known.name: min(most, 1e30)})
    if least:
        with pytest.raises(MachineError, match=rf"{known.name} must be at least {least:g}"):
            Costs(**{known.name: least / 2})
    if most < float("inf"):
        with pytest.raises(MachineError, match=rf"{known.name} must be at most {most:g}"):
            Costs(**{known.name: most * 2})


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        ({"pack_cycle": 2.0}, r"unknown entries: pack_cycle in \[costs\]"),
        ({"pack_cycles": "2"}, "costs: pack_cycles must be positive, got '2'"),
        ({"pack_cycles": True}, "costs: pack_cycles must be positive, got True"),
        ({"pack_cycles": -2}, "costs: pack_cycles must be positive, got -2"),
        ({"private_share": 1.5}, "costs: private_share must be at most 1, got 1.5"),
        ({"in_place_rows_slowdown": 0.5}, "in_place_rows_slowdown must be at least 1, got 0.5"),
        ({"pack_cycles": {"value": 2.0}}, "costs: pack_cycles must be positive"),
    ],
)
def test_errors_in_a_file_name_it(tmp_path, costs, reason):
    """What is wrong with a cost is said with its name and the file's path."""
    path = tmp_path / "mine.toml"
    path.write_text(given_in_file(**costs))
    with pytest.raises(MachineError, match=rf"mine\.toml: .*{reason}"):
        Machine.load(path)


@pytest.mark.parametrize("table", ["costs = 3\n", "[[costs]]\npack_cycles = 2.0\n"])
def test_costs_are_one_table(table):
    """Other values are refused."""
    text = sample().to_toml()
    first, rest = text.split("\n", 1)
    text = f"{first}\n{table}{rest}" if "[[" not in table else text + table
    with pytest.raises(MachineError, match=r"mine: \[costs\] must be one table"):
        Machine.from_toml(text, origin="mine")


def test_a_cost_of_a_file_reaches_the_machine(tmp_path):
    """It has the value of the file; the others have their default."""
    path = tmp_path / "mine.toml"
    path.write_text(given_in_file(pack_cycles=3, tlb_pages=1024.0))
    found = Machine.load(path)
    assert found.costs == Costs(pack_cycles=3.0, tlb_pages=1024.0)
    assert changed_costs(found.costs) == {"pack_cycles": 3.0, "tlb_pages": 1024.0}


def test_sources():
    """A cost is the default, given by a file even if it is the same, or of the source it names."""
    text = given_in_file(pack_cycles=2.5, tlb_pages=1024.0, call_cycles=50.0)
    text = text.replace("[sources]\n", '[sources]\n"costs.call_cycles" = "published"\n')
    found = Machine.from_toml(text)
    names = ("pack_cycles", "tlb_pages", "call_cycles", "tile_cycles")
    sources = [found.source(f"costs.{name}") for name in names]
    assert sources == ["given", "given", "published", "assumed"]
    assert sample().replace(costs=Costs(pack_cycles=3.0)).source("costs.pack_cycles") == "given"
    assert {sample().source(f"costs.{name}") for name in COST_NAMES} == {"assumed"}
    assert Machine.from_toml(found.to_toml()) == found


def test_what_is_measured_is_said_so():
    """A cost that catalogues have is measured, whatever a file says."""
    machine = sample().replace(
        catalogues=(measured(in_place_rows_slowdown=1.5), measured("float32"))
    )
    assert machine.source("costs.in_place_rows_slowdown") == "measured"
    assert machine.source("costs.in_place_columns_slowdown") == "assumed"
    assert machine.source("costs.call_cycles") == "assumed"  # those of each tile are in catalogues
    assert measured_costs(machine.catalogues, "pack_cycles") == {}
    assert machine.cost("in_place_rows_slowdown", "float64") == 1.5
    assert machine.cost("in_place_rows_slowdown", "float32") == 1.3


def test_measured_calls_decide_how_c_is_written():
    """Aliased stores and prefetched rows count by what was measured, against limits of policy."""
    slow = sample().replace(
        catalogues=(measured(aliased_store_slowdown=1.5, prefetch_gain_ratio=0.99),)
    )
    assert slow.avoids_aliased_stores("float64")
    assert not slow.prefetches_next_rows("float64")
    assert not slow.avoids_aliased_stores("float32")
    assert slow.prefetches_next_rows("float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "ALIASED_STORE_LIMIT", 1.6)
        patch.setattr(policy, "PREFETCH_GAIN_LIMIT", 1.0)
        assert not slow.avoids_aliased_stores("float64")
        assert slow.prefetches_next_rows("float64")
    told = sample().replace(costs=Costs(aliased_store_slowdown=2.0, prefetch_gain_ratio=1.0))
    assert told.avoids_aliased_stores("float64")
    assert not told.prefetches_next_rows("float64")


@pytest.mark.parametrize(
    ("fmas", "half", "change", "uses"),
    [
        (1, 1.0, 0.5, True),  # whole vectors are two halves, one after the other (Zen 4)
        (1, 0.9, 0.5, True),
        (2, 0.5, 0.5, False),  # as many halves as whole ones (Granite Rapids)
        (2, 0.6, 0.5, False),  # at a higher clock
        (1, 1.0, 2.0, False),  # changes cost what halves save
        (1, None, 0.5, False),  # not measured
    ],
)
def test_half_vectors_are_used_where_they_take_less_time(fmas, half, change, uses):
    """By whole vectors' FMAs a cycle, the share of their peak that halves have, and changes."""
    whole = fmas * 2 * 16 * sample().frequency
    peaks = [Peak("float32", 512, whole)]
    if half is not None:
        peaks.append(Peak("float32", 256, half * whole))
    machine = sample().replace(
        vector_bits=512,
        vector_registers=32,
        peaks=tuple(peaks),
        costs=Costs(halved_change_cycles=change),
    )
    assert uses_half_vectors(machine, "float32") == uses
    assert uses_half_vectors(machine, "float16") == uses  # summed in float32
    assert not uses_half_vectors(machine, "complex64")
    assert not uses_half_vectors(machine.replace(vector_bits=256), "float32")


def test_a_cost_bounds_the_last_cache():
    """The machine reads its limit from it."""
    small = sample().replace(costs=Costs(last_cache_bytes_per_core=2.0**20))
    assert (sample().last_cache_bytes, small.last_cache_bytes) == (2**23, 2**22)


def costs_of():
    """Draw costs, some of them changed."""
    drawn = {
        known.name: st.just(known.default)
        | st.floats(max(known.metadata["least"], 1e-9), min(known.metadata["most"], 1e12))
        for known in fields(Costs)
    }
    return st.builds(Costs, **drawn)


@examples(30, 100)
@given(
    machines(), costs_of(), st.dictionaries(st.sampled_from(COST_NAMES), st.sampled_from(SOURCES))
)
def test_round_trip(machine, costs, sources):
    """A file gives back costs and sources; what is a default stays one."""
    told = tuple((f"costs.{name}", source) for name, source in sources.items())
    machine = machine.replace(costs=costs, sources=(*machine.sources, *told))
    text = machine.to_toml()
    again = Machine.from_toml(text)
    assert again == machine
    assert hash(again) == hash(machine)
    for name in COST_NAMES:
        assert again.source(f"costs.{name}") == machine.source(f"costs.{name}")
    assert tomllib.loads(text).get("costs", {}).keys() == changed_costs(costs).keys() | sources


def test_a_file_without_costs_says_nothing_of_them():
    """Defaults are not written; all machines with them share one value."""
    assert "costs" not in sample().to_toml()
    assert sample().costs is Machine.load("e5-2680v4").costs is DEFAULT_COSTS


def test_other_machines_keep_costs():
    """A machine with other figures, and one core's share of one, cost the same."""
    machine = sample().replace(costs=Costs(pack_cycles=3.0))
    assert scale_figures(machine, {"l2_capacity": 2.0}).costs == machine.costs
    assert divide_machine(machine, 4).costs == machine.costs
    assert Machine.detect().costs is DEFAULT_COSTS


def test_costs_tell_machines_apart():
    """Plans are kept by machine: another cost makes another one, with the same hash or not."""
    one, other = (sample().replace(costs=Costs(tlb_pages=pages)) for pages in (512.0, 1024.0))
    assert one != other
    assert one == sample().replace(costs=Costs(tlb_pages=512.0))
    assert hash(one) == hash(sample().replace(costs=Costs(tlb_pages=512.0)))


def test_calibrating_keeps_costs_of_the_file(tmp_path):
    """What a person wrote into the file, or `tilesolve kernels` did, survives a calibration."""
    path = tmp_path / "m.toml"
    old = sample().replace(
        fingerprint="feed", costs=Costs(pack_cycles=3.0), catalogues=(measured(),), cores=1
    )
    old = old.replace(sources=(*old.sources, ("costs.tlb_pages", "published")))
    path.write_text(old.to_toml())
    new = sample().replace(fingerprint="feed")
    found = keep_others(new, path)
    assert (found.costs, found.catalogues) == (old.costs, old.catalogues)
    assert found.source("costs.tlb_pages") == "published"
    assert found.cores == new.cores
    assert keep_others(sample().replace(fingerprint="beef"), path).costs == DEFAULT_COSTS
    path.write_text("format =")
    assert keep_others(new, path) is new
    assert keep_others(new, tmp_path / "none.toml") is new


class TestCommand:
    def run(self, *arguments):
        return invoke("machine", *arguments)

    def test_table(self):
        """Every cost stands in it with value, unit, source, probe and meaning."""
        machine = sample().replace(
            costs=Costs(pack_cycles=3.0),
            catalogues=(
                measured(in_place_rows_slowdown=1.5),
                measured("float32", in_place_rows_slowdown=2.0),
            ),
        )
        shown = cost_table(machine)
        assert next(iter(shown.columns)) == "cost"
        rows = {row[0]: row[1:] for row in shown.rows}
        assert list(rows) == list(COST_NAMES)
        meaning = "packing an element that is near, or comes in time"
        probe = "tilesolve calibrate"
        assert rows["pack_cycles"] == ("3", "cycles/element", "given", probe, meaning)
        assert rows["in_place_rows_slowdown"][:4] == (
            "1.5 to 2",
            "times",
            "measured",
            "tilesolve kernels",
        )

    def test_shows_levels_peaks_and_costs(self):
        """All parts of a machine are there."""
        text = self.run("i7-6700k").stdout
        for part in ("L3", "memory", "vector bits", "peak float64", *COST_NAMES):
            assert part in text

    def test_json(self, tmp_path):
        """It has each cost with what is known of it, and what was measured by dtype."""
        path = tmp_path / "m.toml"
        path.write_text(
            sample().replace(catalogues=(measured(in_place_rows_slowdown=1.5),)).to_toml()
        )
        found = json.loads(self.run(path, "--json").stdout)
        assert found == json.loads(json.dumps(machine_dict(Machine.load(path))))
        assert list(found["costs"]) == list(COST_NAMES)
        cost = found["costs"]["in_place_rows_slowdown"]
        assert (cost["value"], cost["source"], cost["probe"]) == (1.3, "measured", "kernels")
        assert cost["measured"] == {"float64": 1.5}
        assert found["levels"][0]["name"] == "L1"
        assert found["sources"]["L1.bandwidth"] == "published"

    def test_one_form_at_a_time(self):
        """TOML and JSON together are an error."""
        assert self.run("i7-6700k", "--toml", "--json").exit_code == 2


def test_doctor_counts_costs(tmp_path, monkeypatch):
    """It tells how many are defaults, and shows the others with their source."""
    path = tmp_path / "m.toml"
    path.write_text(given_in_file(pack_cycles=3.0))
    monkeypatch.setenv("TILESOLVE_MACHINE", str(path))
    found = {row.what: row for section in diagnose().sections for row in section.rows}
    count = len(COST_NAMES)
    assert found["costs"].value == f"{count - 1} of {count} assumed"
    assert (found["pack cycles"].value, found["pack cycles"].source) == (
        "3 cycles/element",
        "given",
    )
    assert "call cycles" not in found


def test_what_is_no_cost_any_more_is_left_out_with_one_note():
    """Files that earlier versions wrote are read; the note names the entries."""
    text = given_in_file(pack_cycles=3.0, einsum_plan_flops=1e6, transpose_run_bytes=64.0)
    text += '\n[sources]\n"costs.einsum_plan_flops" = "given"\n' if "[sources]" not in text else ""
    with pytest.warns(UserWarning, match="einsum_plan_flops, transpose_run_bytes") as told:
        machine = Machine.from_toml(text, origin="older.toml")
    assert len(told) == 1
    assert machine.costs == Costs(pack_cycles=3.0)
    assert Machine.from_toml(machine.to_toml()) == machine
    assert not EARLIER_COSTS & set(COST_NAMES)
    unused = {"scattered_store_slowdown", "scattered_line_share", "aliased_store_lines"}
    unused |= {"near_l3_l2_ratio", "near_l3_memory_ratio", "whole_vector_fmas", "kernel_overlap"}
    for name in EARLIER_COSTS:
        assert (name.upper() in vars(policy)) == (name not in unused)
