"""Figures beyond the arithmetic peak are measured again or refused; files with them heal."""

import warnings
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warnings_told import forget_what_was_told

from tilesolve import Machine, Problem
from tilesolve.calibration import microkernels as calibration
from tilesolve.calibration.microkernels import measure_catalogues
from tilesolve.contractions.errors import TilesolveWarning
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.kernels.probes import microkernels as probe
from tilesolve.machine.file import impossible_kernels, save_machine
from tilesolve.machine.microkernel import default_microkernel
from tilesolve.machine.places import machine_file
from tilesolve.planning.register_tile import choose_register_tile
from tilesolve.show.doctor import diagnose

FAMILY = Family("float32", 128, 8, 4)
HERTZ, PRODUCT, CALL = 1e9, 0.5, 20.0
"""Of a made-up CPU: its clock, the cycles of a product of vectors, and those of a call."""


def measure(noise, speeds):
    """Measure that CPU, whose timings are longer by a factor each, and whose speed is misread."""

    def seconds(_loaded, call, _memory, _frequency):
        work = call.steps * call.shape.vectors * call.shape.columns * PRODUCT
        return noise() * (CALL + work) / HERTZ

    with patch.object(probe, "_seconds", seconds):
        return probe.measure(FAMILY, None, HERTZ, speed=speeds, product=PRODUCT)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    disturbed=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    misread=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    by=st.floats(0.001, 0.5),
)
def test_noise_makes_no_tile_faster_than_the_peak(seed, disturbed, misread, by):
    """However many timings are too long, and turns of readings of the speed too low."""
    draw = np.random.default_rng(seed)

    def noise():
        return 1 + by * draw.random() * (draw.random() < disturbed)

    def speed():
        turns = draw.random((calibration.TURNS, 2))
        return max(1 - by * low * (missed < misread) for low, missed in turns)

    found = measure(noise, speed)
    if found is None:
        assert misread > 0
        return
    assert found.tiles
    assert all(tile.is_possible(PRODUCT) for tile in found.tiles)
    assert found.rate >= 0.99 * PRODUCT
    if disturbed <= 0.1 and misread <= 0.1:
        assert len(found.tiles) == len(FAMILY.tiles)
        for tile in found.tiles:
            exact = tile.vectors * tile.columns * PRODUCT
            assert tile.step == pytest.approx(exact, rel=0.021, abs=0.01)


@given(st.floats(0.5, 1.0))
def test_two_low_readings_of_the_speed_cost_no_tile(low):
    """Too little for one round to be refused; what all tiles were timed at is no minimum then."""
    readings = iter((low, low))
    found = measure(lambda: 1.0, lambda: next(readings, 1.0))
    assert len(found.tiles) == len(FAMILY.tiles)
    for tile in found.tiles:
        exact = tile.vectors * tile.columns * PRODUCT
        assert tile.step == pytest.approx(exact, rel=0.011, abs=0.01)


def test_a_clock_that_is_always_misread_gives_no_figures():
    """Each round is measured once more at most."""
    calls = []
    assert measure(lambda: 1.0, lambda: calls.append(0) or 0.5) is None
    assert len(calls) == 1 + 2 * probe.tuning.PROBE_ROUNDS


def detected(*tiles, source="measured", dtype="float32"):
    """This computer, with a measured peak and measured tiles: steps are shares of the peak's."""
    here = Machine.detect()
    product = 2 * here.frequency / here.peak(dtype) * here.vector_bits / 8
    product /= np.dtype(dtype).itemsize
    listed = tuple(RegisterTile(v, c, share * v * c * product, 20.0) for v, c, share in tiles)
    peaks = tuple(peak for peak in here.peaks if peak.bits == here.vector_bits)
    made = Catalogue(dtype, here.vector_bits, here.vector_registers, listed)
    return here.replace(peaks=peaks, sources=(("peak", source),), catalogues=(made,))


def loaded(machine):
    """A machine as it comes from its file, and the warnings about that."""
    forget_what_was_told()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [Machine.from_toml(machine.to_toml(), origin="mine.toml") for _ in range(2)]
    assert found[0] == found[1]
    return found[0], [str(one.message) for one in caught if one.category is TilesolveWarning]


@given(st.floats(0.5, 1.5))
def test_files_with_impossible_figures_heal(share):
    """Their catalogue is not used, other dtypes' are, and it is said once; noise is no reason."""
    machine = detected((1, 1, 1.1), (1, 2, share), (1, 4, 1.2))
    both = machine.replace(
        catalogues=(*machine.catalogues, *detected((1, 1, 1.1), dtype="float64").catalogues)
    )
    found, told = loaded(both)
    if share >= 0.99:
        assert (found, told) == (both, [])
        return
    assert [one.dtype for one in found.catalogues] == ["float64"]
    problem = Problem.of("mn-mk-kn", 500, "float32")
    assert choose_register_tile(problem, found).rows == default_microkernel(found, "float32").rows
    (message,) = told
    assert message.startswith("mine.toml: kernels are not used that seem faster than the arithm")
    assert "float32, tile 1x2: " in message
    assert "measure again with 'tilesolve kernels'" in message


def test_a_peak_that_was_not_measured_rules_out_nothing():
    """Clocks beyond the assumed one make tiles faster than that."""
    machine = detected((1, 2, 0.5), source="assumed")
    assert loaded(machine) == (machine, [])


def test_the_doctor_names_the_tile(tmp_path, monkeypatch):
    """And says what to do; the report is healthy, as plans do without."""
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path))
    save_machine(machine_file(), detected((1, 7, 0.98), (2, 2, 0.97)).to_toml())
    assert len(impossible_kernels(machine_file().read_text("utf-8"))) == 1
    with pytest.warns(TilesolveWarning, match="faster than the arithmetic peak"):
        found = diagnose()
    (row,) = [one for part in found.sections for one in part.rows if one.what == "machine file"]
    assert "float32, tile 2x2: " in row.value
    assert ", and 1 more" in row.value
    assert (row.source, row.mend, row.bad) == (
        "impossible",
        "measure again: tilesolve kernels",
        False,
    )


def test_what_was_refused_is_said(monkeypatch):
    """Where nothing is left, what the machine had stays; else the tiles that are left out."""
    machine = detected((1, 1, 1.1))
    (before,) = machine.catalogues
    family = Family.of("float32", machine.vector_bits, machine.vector_registers)
    some = replace(
        before, tiles=tuple(RegisterTile(v, c, v * c * 9.0, 9.0) for v, c in family.tiles[1:])
    )
    v, c = family.tiles[0]
    monkeypatch.setattr(calibration, "LoadedCode", lambda _code: None)
    monkeypatch.setattr(calibration, "build", lambda *_: None)
    for found, kept, message in (
        (None, before, "float32: all register tiles seemed faster than the arithmetic peak"),
        (some, some, rf"float32: register tiles \({v}x{c}\) seemed faster .* no plan takes them"),
    ):
        forget_what_was_told()
        monkeypatch.setattr(calibration, "measure", lambda *_, found=found: found)
        with pytest.warns(TilesolveWarning, match=message):
            assert measure_catalogues(machine, ["float32"]).catalogues == (kept,)
