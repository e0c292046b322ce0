"""Measured microkernels: what is measured and kept, and which register tile a shape gets."""

import itertools
import json
import tomllib
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
import tomli_w
from commands import invoke
from hypothesis import given
from hypothesis import strategies as st

import tilesolve
from tilesolve import Machine, Problem, plan
from tilesolve.calibration.microkernels import _speed, measure_catalogues
from tilesolve.constants.tuning import PROBE_LONG_STEPS, PROBE_SHORT_STEPS
from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import Family, build
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.codegen.store_output import interleaved_steps
from tilesolve.kernels.dtypes import lanes, panel_columns
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile, default_tile
from tilesolve.kernels.probes import microkernels
from tilesolve.kernels.probes.microkernels import tiles_of
from tilesolve.kernels.runtime import state as fields
from tilesolve.machine.costs import DEFAULT_COSTS, Costs
from tilesolve.machine.file import EARLIER_NAMES
from tilesolve.machine.level import Peak
from tilesolve.machine.microkernel import default_microkernel
from tilesolve.model.lines import bytes_at_ends, run_waste
from tilesolve.packing.buffers import empty
from tilesolve.planning.prefetch import third_cache_feeds
from tilesolve.planning.register_tile import _waste, choose_register_tile

BASE = Machine.load("i7-6700k")
FAMILY = Family.of("float64", BASE.vector_bits, BASE.vector_registers)


def measured(step=lambda vectors, columns: vectors * columns / 2, call=lambda v, c: 20.0):
    """The base machine with a made-up catalogue of all tiles of float64."""
    tiles = tuple(RegisterTile(v, c, step(v, c), call(v, c)) for v, c in FAMILY.tiles)
    return BASE.replace(catalogues=(Catalogue("float64", FAMILY.bits, FAMILY.registers, tiles),))


def sides(kernel):
    return kernel.rows // FAMILY.lanes, kernel.columns


@pytest.fixture(scope="module")
def here():
    """This computer, with the microkernels of one dtype measured."""
    return measure_catalogues(Machine.detect(), ["float32"])


def test_every_packed_kernel_is_measured(here):
    """A catalogue has every tile of the family once, with times that a CPU can have."""
    [found] = here.catalogues
    family = Family.of("float32", here.vector_bits, here.vector_registers)
    assert [(tile.vectors, tile.columns) for tile in found.tiles] == list(family.tiles)
    largest = max(found.tiles, key=lambda tile: tile.vectors * tile.columns)
    smallest = min(found.tiles, key=lambda tile: tile.vectors * tile.columns)
    assert largest.step > smallest.step  # 24 FMAs take longer than one
    assert 0 < found.share(smallest, 256) < found.share(largest, 256) <= 1


@given(st.integers(0, 2**32))
def test_no_tile_is_faster_than_the_units(seed):
    """A tile whose short calls were all disturbed is taken to be as fast as others at most."""
    draw = np.random.default_rng(seed)
    shapes = [shape for shape in FAMILY.shapes if shape.packed and not shape.halved]
    best = {
        (shape, sums): 20 + sums * shape.accumulators
        for shape in shapes
        for sums in (PROBE_SHORT_STEPS, PROBE_LONG_STEPS)
    }
    for number in draw.choice(len(shapes), 3, replace=False):
        best[shapes[number], PROBE_SHORT_STEPS] *= draw.uniform(1.0, 1.3)
    tiles = tiles_of(best, 1.0)
    rate = Catalogue("float64", FAMILY.bits, FAMILY.registers, tiles).rate
    assert rate == pytest.approx(1.0, rel=0.01)
    assert all(tile.step >= 0.99 * tile.vectors * tile.columns for tile in tiles)


def usual_seconds(call):
    """Seconds that a call of a kernel might take, the longer the more it does."""
    more = call.stores.pitch if call.stores else 0
    more += 50 * len(call.in_place.value if call.in_place else "")
    return (30 + call.steps * call.shape.accumulators + more) * 1e-9


@pytest.fixture
def at_once(monkeypatch):
    """Measuring waits for no kernel: its times are made up."""
    monkeypatch.setattr(microkernels, "_seconds", lambda _loaded, call, *_: usual_seconds(call))


@pytest.mark.parametrize("pace", [0.6, 1.2])
def test_another_clock_changes_no_figure(monkeypatch, pace):
    """Seconds count as of the speed that the frequency belongs to; a disturbed turn spoils none."""
    family = Family("float32", 128, 4, 4)
    loaded, now, asked = LoadedCode(build(family)), [1.0], itertools.count()

    def seconds(_loaded, call, *_):
        return usual_seconds(call) / now[0]

    monkeypatch.setattr(microkernels, "_seconds", seconds)
    steady = microkernels.measure(family, loaded, 1e9)
    now[0] = pace
    found = microkernels.measure(
        family, loaded, 1e9, speed=lambda: pace * (0.9 if next(asked) % 2 else 1.0)
    )
    assert found == steady
    assert found.in_place_columns_slowdown > found.in_place_rows_slowdown > 1


def test_the_speed_is_told_beside_the_measured_peak_of_the_same_vectors():
    """Where none was measured nothing is known, and all rounds count alike."""
    detected = Machine.detect()
    assert _speed(detected, "float64")() == 1
    real = Peak("float64", detected.vector_bits, 1.0)
    slow = detected.replace(peaks=(real,), sources=(("peak", "measured"),))
    assert _speed(slow, "complex128")() > 1e6
    other = replace(real, bits=2 * detected.vector_bits)
    assert _speed(slow.replace(peaks=(other,)), "float64")() == 1


def test_a_machine_file_keeps_catalogues(here, at_once):
    """What was measured survives the file, and other dtypes' figures the next measurement."""
    assert Machine.from_toml(here.to_toml()) == here
    both = measure_catalogues(here, ["complex64"])
    assert both.catalogue("float32") == here.catalogue("float32")
    assert both.catalogue("complex64") is not None


@pytest.mark.parametrize("name", EARLIER_NAMES)
def test_older_files_call_ratios_otherwise(name):
    """A ratio that was written under its earlier name is read as what it is."""
    data = tomllib.loads(measured().to_toml())
    data["kernels"][0][name] = 1.5
    [found] = Machine.from_toml(tomli_w.dumps(data)).catalogues
    assert getattr(found, EARLIER_NAMES[name]) == 1.5


@pytest.mark.parametrize(
    ("what", "value"),
    [
        *(("tiles", text) for text in ("0x8 24.0 1.0", "3x8 -1.0 1.0", "3x8 nan 1.0", "3x8 24.0")),
        *(("tiles", text) for text in ("3 8 24.0 1.0", "", 3)),
        *product(
            ("in_place_rows_slowdown", "aliased_store_slowdown", "crowded", "streams"),
            (0.5, float("nan"), -2.0, "1.5"),
        ),
        *product(("prefetch_gain_ratio",), (0.0, float("nan"), -1.0, "0.9")),
    ],
)
def test_a_damaged_catalogue_is_refused(what, value):
    """Impossible figures are an error that names the file: what is hindered is no faster."""
    data = tomllib.loads(measured().to_toml())
    data["kernels"][0][what] = value
    with pytest.raises(MachineError, match=r"mine\.toml"):
        Machine.from_toml(tomli_w.dumps(data), origin="mine.toml")


@pytest.mark.parametrize("what", ["dtype", "bits", "tiles", "placd"])
def test_keys_of_a_catalogue_are_checked(what):
    """A missing or unknown one is an error that says which, and where."""
    data = tomllib.loads(measured().to_toml())
    table = data["kernels"][0]
    if table.pop(what, None) is None:
        table[what] = 2.0
    with pytest.raises(
        MachineError, match=rf"'?{what}'? (is missing )?in \[\[kernels\]\] number 1$"
    ):
        Machine.from_toml(tomli_w.dumps(data), origin="mine.toml")


def test_rows_that_cost_more_in_place_are_packed(here):
    """What was measured of rows in place counts in plans; without it the usual cost does."""
    assert here.catalogue("float32").in_place_rows_slowdown >= 1
    problem = Problem.of("mn-mk-kn", "m=96 n=96 k=96")
    [usual] = measured().catalogues
    assert usual.in_place_rows_slowdown is None
    for placed, counts in (1.0, DEFAULT_COSTS.in_place_rows_slowdown), (9.0, 9.0):
        machine = BASE.replace(catalogues=(replace(usual, in_place_rows_slowdown=placed),))
        assert Machine.from_toml(machine.to_toml()) == machine
        assert choose_register_tile(problem, machine).in_place_rows_slowdown == counts
    found = plan(problem, machine=machine, threads=1, cache=False)
    assert found.nest.packed[1] is not None


def test_columns_that_cost_more_in_place_are_packed(here):
    """The same of columns: all in the second cache, they are worth it if it costs little."""
    assert here.catalogue("float32").in_place_columns_slowdown >= 1
    problem = Problem.of("mn-km-kn", "m=24 n=24 k=48")
    [usual] = measured().catalogues
    assert usual.in_place_columns_slowdown is None
    for streams, counts in (None, DEFAULT_COSTS.in_place_columns_slowdown), (1.0, 1.0), (9.0, 9.0):
        machine = BASE.replace(catalogues=(replace(usual, in_place_columns_slowdown=streams),))
        assert Machine.from_toml(machine.to_toml()) == machine
        assert choose_register_tile(problem, machine).in_place_columns_slowdown == counts
        found = plan(problem, machine=machine, threads=1, cache=False)
        assert streams is None or (found.nest.packed[0] is None) == (streams == 1)


def test_another_computer_is_not_measured_here():
    """Figures of this computer never become those of another machine."""
    with pytest.raises(MachineError, match="not this computer"):
        measure_catalogues(BASE.replace(fingerprint="another"))


def test_narrower_vectors_can_be_measured_and_wider_ones_not(monkeypatch):
    """A machine file may ask for less than the CPU has: kernels of that width are measured."""
    narrow = Machine.detect().replace(vector_bits=128, vector_registers=16)
    found = measure_catalogues(narrow, ["float32"])
    assert [(c.dtype, c.bits, c.registers) for c in found.catalogues] == [("float32", 128, 16)]
    monkeypatch.setattr(Machine, "detect", lambda: narrow)
    with pytest.raises(MachineError, match="256 bits, this computer of 128"):
        measure_catalogues(narrow.replace(vector_bits=256))


def test_the_default_holds_without_a_catalogue():
    """Nothing measured, or only of another dtype, leaves the documented default."""
    problem = Problem.of("mn-mk-kn", 500)
    assert choose_register_tile(problem, BASE) == default_microkernel(BASE, "float64")
    single = Problem.of("mn-mk-kn", 500, "float32")
    assert choose_register_tile(single, measured()) == default_microkernel(BASE, "float32")
    small = Problem.of("mn-mk-kn", 5)
    assert choose_register_tile(small, BASE) == default_microkernel(BASE, "float64").scale_reading(
        0.4
    )


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("registers", range(1, 41))
def test_the_default_is_a_tile_that_there_is(registers, dtype):
    """Of any number of registers: one that kernels are made of, or an error where there is none."""
    group = panel_columns(dtype, registers)
    tiles = Family(dtype, 256, min(registers, 32), group).tiles
    if not tiles:
        for make in (default_tile, Family.of):
            with pytest.raises(
                MachineError, match=f"{registers} vector registers hold no .* {dtype}"
            ):
                make(dtype, 256, registers)
        return
    assert Family.of(dtype, 256, registers).tiles == tiles
    found = default_tile(dtype, 256, registers)
    assert found in tiles
    assert prod(default_tile(dtype, 256, registers + 1)) >= prod(found)
    machine = BASE.replace(vector_registers=registers)
    kernel = default_microkernel(machine, dtype)
    assert (kernel.rows, kernel.columns) == (found[0] * lanes(dtype, 256), found[1])


def test_few_registers_keep_their_tile():
    """With eight registers C stays in them, as the usual tile would not."""
    few = BASE.replace(vector_registers=8)
    found = plan("mn-mk-kn", 500, few, cache=False)
    usual = plan("mn-mk-kn", 500, BASE, cache=False)
    assert found.price.level("L1").moved[0] <= 2 * usual.price.level("L1").moved[0]
    assert found.seconds <= 2 * usual.seconds


def test_the_default_tile_wins_ties():
    """Where all tiles are as fast and the shape cuts none of them, the square one is taken."""
    kernel = choose_register_tile(Problem.of("mn-mk-kn", 960), measured())
    usual = default_microkernel(BASE, "float64")
    assert (kernel.rows, kernel.columns) == (usual.rows, usual.columns)


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    k=st.integers(1, 40),
    call=st.sampled_from([0.0, 20.0, 300.0]),
)
def test_no_tile_is_better_than_the_chosen_one(m, n, k, call):
    """By counting every call of a matrix product, no other tile would be 3 % faster."""
    machine = measured(call=lambda v, c: call)
    problem = Problem.of("mn-mk-kn", {"m": m, "n": n, "k": k})
    [catalogue] = machine.catalogues
    tiles = {(tile.vectors, tile.columns): tile for tile in catalogue.tiles}

    def cycles(vectors, columns):
        tile = tiles[vectors, columns]
        rows = -(-n // (vectors * FAMILY.lanes))
        calls = rows * -(-m // columns)
        # Cells are near-equal: together they have the groups and columns there are.
        filled = -(-n // FAMILY.lanes) * m / (vectors * columns)
        cells = -(-m // columns)
        packed = cells * FAMILY.group * -(-m // (cells * FAMILY.group))
        return (
            calls * (tile.call + DEFAULT_COSTS.tile_cycles)
            + filled * k * tile.step
            + packed * k * DEFAULT_COSTS.pack_cycles
        )

    chosen = cycles(*sides(choose_register_tile(problem, machine)))
    assert all(chosen <= 1.03 * cycles(*tile) for tile in FAMILY.tiles)


@pytest.mark.parametrize("machine", [BASE, measured()])
def test_what_the_second_cache_holds_is_read_in_place_for_less(machine):
    """Up to its last byte; from there on operands come from farther away."""
    room = machine.level("L2").capacity
    sides = {"m": 64, "n": 64}
    inside = (room // 8 - 64 * 64) // 128
    near, far = (
        choose_register_tile(Problem.of("mn-mk-kn", sides | {"k": k}), machine)
        for k in (inside, inside + 1)
    )
    assert (near.pack_cycles, near.in_place_rows_cycles, near.in_place_columns_cycles) == (
        far.pack_cycles,
        0.4 * far.in_place_rows_cycles,
        0.4 * far.in_place_columns_cycles,
    )
    assert far.pack_cycles == DEFAULT_COSTS.pack_cycles
    assert near.in_place_columns_slowdown == far.in_place_columns_slowdown > 1


def test_calls_write_long_runs_where_c_goes_past_the_caches():
    """24 rows of runs of 16 are three lines far apart: 16 rows are written in runs of two."""
    tiles = RegisterTile(3, 8, 12.0, 20.0), RegisterTile(2, 8, 8.4, 20.0)
    near = [replace(level, bandwidth=8 * level.bandwidth) for level in BASE.levels[:2]]
    machine = BASE.replace(
        levels=(*near, *BASE.levels[2:]),  # which feed vectors of 512 bits
        vector_bits=512,
        vector_registers=32,
        catalogues=(Catalogue("float64", 512, 32, tiles),),
    )
    problem = Problem.of("acf-ak-kcf", "a=64 c=48 f=16 k=64")
    found = [
        choose_register_tile(problem, machine, non_temporal=streams).rows
        for streams in (False, True)
    ]
    assert found == [24, 16]


@pytest.mark.parametrize("pages", [64, 256, 1024])
@pytest.mark.parametrize("near", [True, False])
def test_register_tiles_have_lines_that_can_be_asked_for(pages, near):
    """A cell of fewer rows is taken where the second cache keeps its lines, and not a larger one's.

    The rows are pages apart, each 32 runs at one place in their pages.
    """
    tiles = RegisterTile(3, 8, step=24.0, call=20.0), RegisterTile(2, 8, step=16.0, call=20.0)
    first, second, third, memory = BASE.levels
    machine = BASE.replace(
        levels=(
            replace(first, bandwidth=1e12),  # caches feed vectors of 512 bits
            replace(second, capacity=4096 * pages, ways=None, bandwidth=1e12),
            replace(
                third, capacity=1 << 25, ways=None, bandwidth=1e12 if near else third.bandwidth
            ),
            replace(memory, bandwidth=third.bandwidth / 2),
        ),
        vector_bits=512,
        vector_registers=32,
        catalogues=(Catalogue("float64", 512, 32, tiles),),
    )
    problem = tilesolve.suite("tccg")["abcde-efcad-bf"]
    assert third_cache_feeds(machine) == near
    kept = [rows for rows in (16, 24) if 32 * rows <= 2 * pages]
    found = choose_register_tile(problem, machine, non_temporal=True)
    assert found.rows == (kept[-1] if near and kept else 24)
    assert choose_register_tile(problem, machine).rows == 24


@pytest.mark.parametrize("crowded", [None, 1.0, 2.0])
def test_crowded_lines_count_where_they_hinder(here, crowded):
    """Columns a page apart, or rows and half of the next line: what is worse depends on the CPU."""
    assert here.catalogue("float32").aliased_store_slowdown >= 1
    tiles = RegisterTile(2, 6, 6.0, 20.0), RegisterTile(3, 4, 6.0, 20.0)
    machine = BASE.replace(
        catalogues=(Catalogue("float64", 256, 16, tiles, aliased_store_slowdown=crowded),)
    )
    hinder = crowded == 2.0
    for columns, wasted in ({"m": 6}, 1.0 * hinder), ({"m": 1}, 0.0):
        problem = Problem.of("mn-mk-kn", "m=24 n=512 k=24")
        near = _waste(problem, {"n": 8} | columns, machine)
        assert near == wasted if hinder else near >= 1
    problem = Problem.of("mn-mk-kn", "m=24 n=560 k=24")
    assert _waste(problem, {"n": 8, "m": 6}, machine) == (0.0 if hinder else 1.5)
    part = _waste(problem, {"n": 12, "m": 4}, machine)
    assert part == pytest.approx(0.0 if hinder else (64 + 56) / 96)
    assert _waste(problem, {"n": 4, "m": 4}, machine) >= 1.0


@given(pitch=st.integers(8, 400), columns=st.integers(1, 24), rows=st.sampled_from([8, 16, 24]))
def test_single_lines_of_c_are_no_long_run(pitch, columns, rows):
    """Of numpy's arrays, which begin amid lines."""
    memory = replace(BASE.memory, stream=2e10)
    machine = BASE.replace(levels=(*BASE.levels[:-1], memory))
    problem, rows = Problem.of("mn-mk-kn", {"m": 64, "n": pitch, "k": 24}), min(rows, pitch)
    run = 8 * rows * (columns if rows == pitch else 1)
    found = _waste(problem, {"n": rows, "m": columns}, machine)
    assert found == pytest.approx((64 + (56 if run % 64 else 32)) / run)


@given(part=st.one_of(st.none(), st.floats(1e-10, 1e-7)), rows=st.integers(1, 400))
def test_runs_of_c_cost_what_their_ends_do(part, rows):
    """Boxes waste as many bytes as memory takes while a run waits at its ends, or more."""
    memory = replace(BASE.memory, stream=2e10, part=part)
    ends = bytes_at_ends(BASE.replace(levels=(*BASE.levels[:-1], memory)))
    assert ends == pytest.approx((DEFAULT_COSTS.part_line_seconds if part is None else part) * 2e10)
    usual = float(run_waste(8 * rows, 64, 8))
    assert float(run_waste(8 * rows, 64, 8, ends)) == pytest.approx(max(usual, ends / (8 * rows)))


@pytest.mark.parametrize(
    ("spec", "turned"),
    [
        ("abcd-dbea-ec", True),  # contiguous along rows that are far apart in C
        ("abcd-ebad-ce", False),  # along those of a vector
        ("abcd-abde-ce", False),  # along the sum
    ],
)
@pytest.mark.parametrize("cycles", [DEFAULT_COSTS.transposed_pack_cycles, 50.0])
def test_few_rows_are_transposed_at_once(spec, turned, cycles):
    """One vector by many columns is taken for rows that are transposed while they are packed.

    Its lines of C are single ones: where transposing is cheap, these cost more.
    """
    tiles = [RegisterTile(3, 8, step=24.0, call=0.0), RegisterTile(1, 24, step=24.0, call=0.0)]
    near = [replace(level, bandwidth=16 * level.bandwidth) for level in BASE.levels[:2]]
    machine = BASE.replace(
        levels=(*near, *BASE.levels[2:]),  # which feed vectors of 512 bits
        vector_bits=512,
        vector_registers=32,
        catalogues=(Catalogue("float64", 512, 32, tuple(tiles)),),
        costs=Costs(transposed_pack_cycles=cycles),
    )
    found = choose_register_tile(Problem.of(spec, 72), machine, non_temporal=True)
    dear = turned and cycles > DEFAULT_COSTS.transposed_pack_cycles
    assert (found.rows, found.columns) == ((8, 24) if dear else (24, 8))


@pytest.mark.parametrize("call", [0.0, 10.0, 200.0])
def test_tiles_that_add_to_c_cost_more(call):
    """Sums in one piece cost what was measured, sums in parts no less than adding takes."""
    machine = measured(call=lambda v, c: call)
    problem = Problem.of("mn-mk-kn", 1024)
    once, adding = (
        choose_register_tile(problem, machine, non_temporal=once).call_cycles
        for once in (True, False)
    )
    assert once == call + DEFAULT_COSTS.tile_cycles
    assert adding == max(call, DEFAULT_COSTS.accumulate_cycles) + DEFAULT_COSTS.tile_cycles


@pytest.mark.parametrize("asked", [None, 0.5, 1.0])
def test_tiles_ask_for_lines_where_that_gains(asked):
    """What was measured decides whether kernels ask before C goes past the caches, not results."""
    tiles = (RegisterTile(2, 8, step=16.0, call=20.0),)
    machine = BASE.replace(
        vector_bits=512,
        vector_registers=32,
        catalogues=(Catalogue("float64", 512, 32, tiles, prefetch_gain_ratio=asked),),
    )
    assert Machine.from_toml(machine.to_toml()) == machine
    problem = Problem.of("mn-mk-kn", "m=640 n=2048 k=24")
    found = plan(problem, machine=machine, cache=False)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((640, 24)), rng.standard_normal((24, 2048))
    assert found.output == "stream"
    out = empty((640, 2048), np.dtype("float64"))
    out[:] = np.nan
    assert np.allclose(found(a, b, out=out), a @ b)
    states = [task.state for layout in found.executor.layouts.values() for task in layout.tasks]
    assert [bool(state[fields.PREFETCHES_NEXT_TILE]) for state in states] == [asked != 1.0]


def test_asking_is_measured_where_kernels_can(here):
    """Narrow kernels never ask; of wide ones it is known what that takes."""
    for catalogue in here.catalogues:
        tile = Shape(catalogue.dtype, catalogue.bits, 3, 8, 8, packed=True)
        assert (catalogue.prefetch_gain_ratio is not None) == (interleaved_steps(tile) > 0)


@pytest.mark.parametrize("fast", [(1, 3), (2, 2), (4, 1), (3, 2)])
def test_any_tile_runs(fast):
    """A plan by any register tile computes the same, and says which tile it has."""
    machine = measured(step=lambda v, c: 0.01 if (v, c) == fast else 50.0 * v * c)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((29, 17)), rng.standard_normal((17, 31))
    found = plan("mn-mk-kn", "m=29 n=31 k=17", machine, cache=False)
    assert sides(found.microkernel) == fast
    assert np.allclose(found(a, b), a @ b)


def test_command(tmp_path, here, at_once):
    """`tilesolve kernels` adds to a machine file; without one, and for no dtype, it says so."""
    target, picture = tmp_path / "mine.toml", tmp_path / "kernels.svg"
    missing = invoke("kernels", "--output", target)
    assert missing.exit_code == 2
    assert "run 'tilesolve calibrate' first" in missing.output
    target.write_text(here.to_toml(), encoding="utf-8")
    wrong = invoke("kernels", "--output", target, "--dtype", "float16")
    assert wrong.exit_code == 2
    assert "'float16'" in wrong.output
    found = invoke("kernels", "--output", target, "--dtype", "f64", "--plot", picture, "--json")
    assert found.exit_code == 0
    printed = json.loads(found.stdout)
    assert [catalogue["dtype"] for catalogue in printed["catalogues"]] == ["float64"]
    assert {c.dtype for c in Machine.load(target).catalogues} == {"float32", "float64"}
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_a_higher_peak_makes_measured_tiles_faster():
    """What if the machine computed more: its catalogue counts on that, too."""
    machine = measured()
    for problem in (Problem.of("mn-mk-kn", 600), Problem.of("mn-mk-kn", "m=999 n=999 k=24")):
        found = plan(problem, machine=machine, cache=False)
        faster = found.whatif(compute=1.001)
        assert faster.price.compute < found.price.compute
        gained = (1 - faster.price.seconds / found.price.seconds) / 0.001
        assert gained == pytest.approx(found.sensitivity["compute"], abs=0.02)
