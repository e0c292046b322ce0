"""Calibration: what a curve says, what is measured, and that nothing saved is ever lost."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from commands import invoke
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE
from turns import examples

from tilesolve.calibration import calibrate as calibrate_module
from tilesolve.calibration.calibrate import Calibration, calibrate, evaluate
from tilesolve.calibration.measure import (
    LEAST_ROUNDS,
    MeasuringTime,
    Probe,
    add_rounds,
    block_sizes,
)
from tilesolve.calibration.staircase import (
    BEYOND_RATIO,
    DISTINCT_RATIO,
    NOISE_RATIO,
    Plateau,
    Sample,
    capacity_of,
    find_plateaus,
    median_within,
    order_bandwidths,
)
from tilesolve.constants.tuning import SWEEP_BYTES
from tilesolve.contractions.errors import CalibrationError, FileAccessError
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.show import drawings, pictures
from tilesolve.system.files import hold_lock
from tilesolve.system.pinned_threads import PinnedThreads

DENSITY = 4
GRID = 2 ** (1 / DENSITY)

ONE_LEVEL = int(1.5 * capacity_of(Machine.detect().caches[0]))
"""Blocks up to here stay in L1, so that no noise can put two levels out of order."""


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Tables are not cut off."""
    monkeypatch.setenv("COLUMNS", "200")


@st.composite
def staircases(draw, steepest=1.25):
    """Caches, the edge of each, and each level's bandwidth; all of it lifelike."""
    size, rate = 2 ** draw(st.integers(13, 17)), 4e11
    caches, edges, rates = [], [], [rate]
    for number in range(1, draw(st.integers(1, 4)) + 1):
        caches.append(Level(f"L{number}", size, 1e9))
        edges.append(draw(st.floats(0.6, 1.0)) * size)
        rates.append(rates[-1] / draw(st.floats(steepest, 4.0)))
        size *= draw(st.integers(8, 32))
    return caches, edges, rates


def curve(caches, edges, rates, noise=None, top=4.0, growth=GRID):
    """The samples of a staircase, slowed down by up to 2 % at random."""
    size, found = 3 / 8 * capacity_of(caches[0]), []
    while size <= top * capacity_of(caches[-1]):
        level = sum(size > edge for edge in edges)
        slow = [1.0 - (noise.uniform(0, 0.02) if noise else 0.0) for _ in range(3)]
        found.append(Sample(int(size), tuple(rates[level] * factor for factor in slow)))
        size *= growth
    return found


class TestCurve:
    """What a curve says about the levels."""

    @given(staircases(), st.randoms(use_true_random=False))
    def test_finds_bandwidths_and_edges(self, staircase, noise):
        """Each level's bandwidth is found within noise, and its edge between two samples."""
        caches, edges, rates = staircase
        found = find_plateaus(curve(*staircase, noise), caches)
        for plateau, rate in zip(found, rates, strict=True):
            assert rate * 0.98 <= plateau.bandwidth <= rate
        for plateau, edge, cache in zip(found, edges, caches, strict=False):
            assert edge / GRID <= plateau.edge * 1.001
            assert plateau.edge <= min(edge * GRID, cache.capacity)
        assert found[-1].name == "memory"
        assert found[-1].edge is None

    @examples(40, 100)
    @given(staircases(steepest=1.5), st.randoms(use_true_random=False), st.data())
    def test_survives_disturbed_samples(self, staircase, noise, data):
        """Single samples that every round spoilt do not carry a level's bandwidth with them."""
        samples = curve(*staircase, noise, growth=GRID**0.5)
        hit = data.draw(st.integers(0, len(samples) - 1))
        slowed = replace(samples[hit], rates=tuple(r / 1.5 for r in samples[hit].rates))
        found = find_plateaus([*samples[:hit], slowed, *samples[hit + 1 :]], staircase[0])
        for plateau, rate in zip(found, staircase[2], strict=True):
            assert rate * 0.95 <= plateau.bandwidth <= rate

    @examples(50, 100)
    @given(staircases(), st.randoms(use_true_random=False), st.data())
    def test_no_edge_without_a_step(self, staircase, noise, data):
        """Two levels that are equally fast give no edge, and both that bandwidth."""
        caches, edges, rates = staircase
        same = data.draw(st.integers(0, len(caches) - 1))
        rates = [*rates[: same + 1], *rates[same:-1]]
        found = find_plateaus(curve(caches, edges, rates, noise), caches)
        assert found[same].edge is None
        assert found[same].samples[-1].block * GRID > caches[same].capacity
        for plateau, rate, value in zip(found, rates, order_bandwidths(found), strict=True):
            assert rate * 0.98 <= plateau.bandwidth <= rate
            assert rate * 0.98 <= value <= rate

    @given(staircases(), st.floats(0.4, 1.99))
    def test_levels_out_of_reach_have_no_samples(self, staircase, top):
        """Memory is not judged by blocks that the last cache could still serve in part."""
        found = find_plateaus(curve(*staircase, top=top), staircase[0])
        assert found[-1].samples == ()
        assert order_bandwidths(found)[-1] is None
        assert found[-2].edge is None
        assert all(plateau.samples for plateau in found[:-1])

    @given(staircases(steepest=1.5), st.sampled_from([0.2, 0.5, 3.0]), st.data())
    def test_a_guessed_capacity_is_corrected(self, staircase, factor, data):
        """The edge of a cache whose size nobody knows is found on either side of the guess."""
        caches, edges, _ = staircase
        n = data.draw(st.integers(0, len(caches) - 1))
        guess = replace(caches[n], capacity=int(caches[n].capacity * factor))
        samples = curve(*staircase, top=8.0)
        found = find_plateaus(samples, [*caches[:n], guess, *caches[n + 1 :]], {guess.name})
        assert edges[n] / GRID <= found[n].edge * 1.001
        assert found[n].edge <= edges[n] * GRID

    def test_a_slope_is_cut_at_the_geometric_mean(self):
        """Between two plateaus the edge is where the curve crosses their geometric mean."""
        sizes = [2 ** (n / 2) for n in range(24, 40)]
        rates = [min(8e9, max(2e9, 8e9 * (2**14 / size))) for size in sizes]
        samples = [Sample(int(size), (r,)) for size, r in zip(sizes, rates, strict=True)]
        near, _ = find_plateaus(samples, [Level("L1", 2**17, 1e9)])
        assert near.edge == pytest.approx(2**15, rel=0.01)

    def test_a_cache_never_serves_more_than_it_holds(self):
        """Where a curve falls behind a cache's capacity, the edge is the capacity."""
        samples = curve([Level("L1", 2**15, 1e9)], [1.4 * 2**15], [8e9, 2e9])
        near, far = find_plateaus(samples, [Level("L1", 2**15, 1e9)])
        assert (near.edge, near.bandwidth, far.bandwidth) == (2**15, 8e9, 2e9)

    def test_best_and_spread(self):
        """The best round counts; the spread is how far the median stays behind it."""
        sample = Sample(4096, (5.0, 10.0, 8.0, 7.0))
        assert sample.best == 10.0
        assert sample.spread == pytest.approx(0.25)
        assert Sample(4096, (4.0, 12.0)).usual == pytest.approx(6.0)

    @given(st.lists(st.lists(st.floats(1.0, 1.04), min_size=1, max_size=5), max_size=5))
    def test_order_within_noise(self, levels):
        """Levels out of order by noise are made equal; the result never grows outwards."""
        found = [
            Plateau(f"L{n}", tuple(Sample(512, (rate,)) for rate in rates), None)
            for n, rates in enumerate(levels)
        ]
        values = order_bandwidths(found)
        assert list(values) == sorted(values, reverse=True)
        rates = [rate for level in levels for rate in level]
        assert all(min(rates) <= value <= max(rates) for value in values)
        heights = [plateau.bandwidth for plateau in found]
        if heights == sorted(heights, reverse=True):
            assert list(values) == heights

    @given(st.floats(NOISE_RATIO * 1.001, 10), st.integers(0, 2), st.integers(1, 2))
    def test_order_beyond_noise(self, factor, near, gap):
        """A farther level that is faster than noise explains is an error that names both."""
        rates = [1.0] * 5
        rates[near + gap] = factor
        found = [Plateau(f"L{n}", (Sample(512, (rate,)),), None) for n, rate in enumerate(rates)]
        with pytest.raises(CalibrationError, match=rf"L{near + gap} seems faster.*L\d"):
            order_bandwidths(found)

    def test_within(self):
        """The median over a range of blocks takes both ends, and is nothing without blocks."""
        samples = [Sample(size, (float(size),)) for size in (1, 2, 3, 8, 9)]
        assert median_within(samples, 2, 8) == 3.0
        assert median_within(samples, 4, 7) is None
        twice = [Sample(2, (4.0, 12.0))]
        assert [median_within(twice, 2, 2, usual=one) for one in (False, True)] == [12.0, 6.0]


def simulated(base, rounds=3, slowdown=None):
    """Probes of a machine, and the rates that a computer just like it would give."""
    alone, together = block_sizes(base, 2**40, DENSITY)
    levels = base.levels
    edges = [capacity_of(cache) * 0.8 for cache in base.caches]
    rates = {}

    def add(kernel, cores, block, rate, dtype="float64", bits=base.vector_bits):
        rate *= (slowdown or {}).get((kernel, cores), 1.0)
        probe = Probe(kernel, cores, block, dtype, bits, 1.0, lambda *_: None)
        rates[probe] = [rate * (1 - 0.01 * n) for n in range(rounds)]

    for block in alone:
        level = levels[sum(block > edge for edge in edges)]
        add("sweep", 1, block, level.bandwidth)
        add("read", 1, block, level.bandwidth * 0.75)
        add("stream", 1, block, levels[-1].bandwidth / 2)
    for block in together:
        shared = [
            edge / min(cache.shared_by, base.cores)
            for edge, cache in zip(edges, base.caches, strict=True)
        ]
        level = levels[sum(block > edge for edge in shared)]
        add("sweep", base.cores, block, level.bandwidth * base.cores)
    add("cycles", 1, 0, base.frequency, "int64", 64)
    add("chain", 1, 0, base.vector_bits / 32 * base.frequency / base.fma_latency)
    for peak in base.peaks:
        for cores in {1, base.cores}:
            add("fma", cores, 0, peak.flops * cores, peak.dtype, peak.bits)
    return rates


class TestEvaluation:
    """The machine that measurements make."""

    @pytest.mark.parametrize("name", ["i7-6700k", "e5-2680v4"])
    @pytest.mark.parametrize("cores", [1, 4])
    def test_finds_the_machine_again(self, name, cores):
        """From what a known machine would measure, that machine comes out, figure by figure."""
        truth = Machine.load(name).replace(cores=cores)
        base = truth.replace(
            frequency=1e9,
            fma_latency=9,
            fma_rate=9.0,
            levels=tuple(replace(level, bandwidth=1e9) for level in truth.levels),
        )
        found, levels, notes = evaluate(base, simulated(truth))
        assert found.frequency == truth.frequency
        assert found.fma_latency == truth.fma_latency
        assert found.fma_rate == pytest.approx(truth.fma_rate, abs=0.01)
        assert [p.flops for p in found.peaks] == [p.flops for p in truth.peaks]
        assert [p.flops_all for p in found.peaks] == [p.flops * cores for p in truth.peaks]
        for level, right, plateau in zip(found.levels, truth.levels, levels, strict=True):
            assert level.bandwidth == pytest.approx(right.bandwidth)
            assert level.read == pytest.approx(right.bandwidth * 0.75)
            assert level.stream == pytest.approx(truth.memory.bandwidth / 2)
            assert level.bandwidth_all == pytest.approx(right.bandwidth * cores)
            assert found.source(f"{level.name}.bandwidth") == "measured"
            assert plateau.name == level.name
        for cache in found.caches:
            near, far = (truth.levels[n].bandwidth for n in _around(found, cache))
            if near > DISTINCT_RATIO * far:
                assert cache.effective == pytest.approx(0.8, rel=GRID - 1)
                assert found.source(f"{cache.name}.effective") == "measured"
            else:
                assert found.source(f"{cache.name}.effective") == "assumed"
                assert any(f"where {cache.name} ends" in note for note in notes)

    def test_the_read_sweep_helps_where_stores_hide_a_step(self):
        """Where two levels are equally fast but differ in loads, the loads show the edge."""
        truth = Machine.load("e5-2680v4").replace(cores=1)
        rates = simulated(truth)
        top = truth.levels[0].bandwidth
        for probe, found in rates.items():
            if probe.kernel == "sweep" and found[0] == truth.levels[1].bandwidth:
                found[:] = [top] * len(found)
        machine, _, notes = evaluate(truth, rates)
        assert machine.levels[0].bandwidth == machine.levels[1].bandwidth
        assert machine.levels[0].effective == pytest.approx(0.8, rel=GRID - 1)
        assert any("read-only" in note and "L1" in note for note in notes)

    def test_a_guessed_capacity_is_measured(self):
        """A capacity that was only assumed is replaced by the one that shows."""
        truth = Machine.load("i7-6700k").replace(cores=1)
        sources = (("L3.capacity", "assumed"),)
        wrong = replace(truth.levels[2], capacity=2**22)
        base = truth.replace(levels=(*truth.levels[:2], wrong, truth.levels[3]), sources=sources)
        machine, _, _ = evaluate(base, simulated(truth))
        assert machine.levels[2].capacity == pytest.approx(0.8 * 2**23, rel=GRID - 1)
        assert machine.levels[2].effective == 1.0
        assert machine.source("L3.capacity") == "measured"

    @pytest.mark.parametrize("reach", [2**15, 2**18, 2**22])
    def test_what_was_not_reached_is_assumed(self, reach):
        """A level without blocks keeps an assumed bandwidth, in order with the measured ones."""
        truth = Machine.load("i7-6700k").replace(cores=1)
        rates = {p: found for p, found in simulated(truth).items() if p.block <= reach}
        base = truth.replace(levels=tuple(replace(v, bandwidth=1e13) for v in truth.levels))
        machine, _, notes = evaluate(base, rates)
        assert machine.levels[0].bandwidth == pytest.approx(truth.levels[0].bandwidth)
        assert machine.source("memory.bandwidth") == "assumed"
        assert machine.memory.read is None
        assert machine.source("L1.bandwidth") == "measured"
        assert any("memory" in note for note in notes)

    @pytest.mark.parametrize(("factor", "possible"), [(0.9, True), (1.03, True), (1.2, False)])
    def test_all_cores_are_no_faster_than_one_by_one(self, factor, possible):
        """What a busy computer measured of one core or of all contradicts the other."""
        base = Machine.load("i7-6700k")
        machine, _, notes = evaluate(base, simulated(base, slowdown={("fma", 4): factor}))
        for peak in machine.peaks:
            expected = pytest.approx(factor * 4 * peak.flops) if possible else None
            assert peak.flops_all == expected
        assert any("faster together than one by one" in note for note in notes) != possible
        assert Machine.from_toml(machine.to_toml()) == machine

    def test_the_result_can_be_saved(self):
        """A machine that was measured reads back from its file as it was."""
        truth = Machine.load("e5-2680v4")
        machine, _, _ = evaluate(truth, simulated(truth))
        assert Machine.from_toml(machine.to_toml()) == machine


def _around(machine, cache):
    n = machine.levels.index(cache)
    return n, n + 1


@given(
    name=st.sampled_from(["i7-6700k", "e5-2680v4"]),
    cores=st.integers(1, 200),
    limit=st.integers(0, 2**30),
    density=st.integers(1, 8),
)
def test_blocks(name, cores, limit, density):
    """Blocks grow from under half of L1, keep to the limit, and reach beyond twice the caches."""
    machine = Machine.load(name).replace(cores=cores)
    nearest, last = capacity_of(machine.caches[0]), capacity_of(machine.caches[-1])
    if limit < 3 / 8 * nearest:
        with pytest.raises(CalibrationError, match="L1"):
            block_sizes(machine, limit, density)
        return
    alone, together = block_sizes(machine, limit, density)
    for sizes in (alone, together):
        assert sizes == sorted(set(sizes))
        assert all(size % SWEEP_BYTES == 0 for size in sizes)
    assert alone[0] < nearest / 2
    assert alone[-1] < limit + SWEEP_BYTES
    assert alone[-1] > limit - SWEEP_BYTES or alone[-1] >= BEYOND_RATIO * last
    assert cores * (together or [0])[-1] < limit + cores * SWEEP_BYTES
    assert together == [] or cores > 1


def test_the_first_round_does_not_count():
    """The round that warms up and finds out how long a timing takes leaves no rate."""
    turns = []

    class Slow:
        """A crew that needs ten times as long the first time."""

        def seconds(self, _call, passes, _members):
            turns.append(passes)
            return passes * (0.1 if len(turns) == 1 else 0.01)

    rates = {Probe("none", 1, 0, "", 0, 1.0, lambda *_: None): []}
    add_rounds(rates, Slow(), MeasuringTime(1e-9, 1e-3, 1), lambda *_: None)
    [found] = rates.values()
    assert found == [pytest.approx(100.0)] * LEAST_ROUNDS
    assert len(turns) == LEAST_ROUNDS + 1


class TestCrew:
    """Threads that work at the same time."""

    def test_every_member_works(self):
        """Each member does its own part, and only as many take part as are asked for."""
        with PinnedThreads(3) as crew:
            assert crew.each(lambda member: member, 3) == [0, 1, 2]
            calls = []
            assert crew.seconds(lambda *args: calls.append(args), 5, 2) >= 0
        assert sorted(calls) == [(0, 1), (0, 5), (1, 1), (1, 5)]

    def test_a_failure_stops_all(self):
        """If one member fails, the others do not wait for it, and its error comes through."""

        def call(member, _passes):
            if member == 1:
                raise ZeroDivisionError

        with PinnedThreads(3) as crew:
            with pytest.raises((ZeroDivisionError, RuntimeError)):
                crew.seconds(call, 1, 3)
            assert crew.each(lambda member: member, 3) == [0, 1, 2]

    @pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned")
    def test_members_are_pinned_and_the_caller_is_not(self):
        """Each member keeps to one CPU; the calling thread may use what it could before."""
        before = os.sched_getaffinity(0)
        with PinnedThreads(2) as crew:
            places = crew.each(lambda _: os.sched_getaffinity(0), 2)
        assert all(len(place) == 1 and place <= before for place in places)
        assert os.sched_getaffinity(0) == before


def tiny(**changes):
    """A calibration of this computer that takes a second, and stays within L1."""
    return calibrate(**{"quick": True, "seconds": 0.01, "max_bytes": ONE_LEVEL, **changes})


tiny_once = functools.cache(tiny)


def pretend(monkeypatch, rounds):
    """Let a known machine of one core be measured; rounds may change what was, and count it.

    Its latencies and costs stay what they are: measuring them takes seconds.
    """
    base = Machine.load("i7-6700k").replace(cores=1)

    def add_rounds(rates, *_):
        found = rounds(simulated(base))
        if not rates:
            rates.update(found)
        else:
            for known, values in zip(rates.values(), found.values(), strict=True):
                known.extend(values)

    monkeypatch.setattr(calibrate_module, "add_rounds", add_rounds)
    monkeypatch.setattr(calibrate_module, "make_probes", lambda *_: [])
    monkeypatch.setattr(calibrate_module, "measure_latencies", lambda machine, *_: (machine, ()))
    monkeypatch.setattr(
        calibrate_module, "measure_costs", lambda bench, *_: (bench.machine, (), ())
    )
    monkeypatch.setattr(Machine, "detect", lambda: base)
    return base


class TestCalibrate:
    """Measuring this very computer."""

    def test_measures_this_computer(self):
        """The machine is this one, with measured figures where blocks reached."""
        seen = []
        found = tiny(progress=lambda fraction, what: seen.append((fraction, what)))
        machine = found.machine
        assert machine.fingerprint == Machine.detect().fingerprint
        for figure in ("L1.bandwidth", "frequency", "fma_latency", "fma_rate", "peak"):
            assert machine.source(figure) == "measured"
        assert machine.source("memory.bandwidth") == "assumed"
        widths = [bits for bits in (128, 256, 512) if bits <= machine.vector_bits]
        assert {(p.dtype, p.bits) for p in machine.peaks} == {
            (dtype, bits) for dtype in ("float32", "float64") for bits in widths
        }
        assert Machine.from_toml(machine.to_toml()) == machine
        assert found.curve("sweep").samples[0].block < capacity_of(machine.caches[0]) / 2
        assert found.elapsed > 0
        fractions = [fraction for fraction, _ in seen]
        assert fractions[0] == 0
        assert fractions[-1] == 1
        assert all(0 <= fraction <= 1 and what for fraction, what in seen)

    def test_too_little_memory(self):
        """Without room for the smallest block there is an error that says how much it needs."""
        with pytest.raises(CalibrationError, match="L1 alone needs"):
            tiny(max_bytes=1024)

    @pytest.mark.parametrize("spoilt", [1, 99])
    def test_contradictions_are_measured_again(self, monkeypatch, spoilt):
        """Levels out of order are measured again; if they stay so, that is an error."""
        turns = []

        def spoil(found):
            turns.append(len(turns))
            return {
                probe: [rate / 4 for rate in rates]
                if probe.kernel == "sweep" and probe.block < 2**15 and len(turns) <= spoilt
                else rates
                for probe, rates in found.items()
            }

        base = pretend(monkeypatch, spoil)
        if spoilt == 1:
            found = calibrate(quick=True)
            assert len(turns) == 3  # after two, half of the rounds are spoilt: they spread
            assert found.machine.levels[0].bandwidth == pytest.approx(base.levels[0].bandwidth)
            assert any("3 measurements" in note for note in found.notes)
        else:
            with pytest.raises(CalibrationError, match=r"L2 seems faster.*L1.*repetitions"):
                calibrate(quick=True)
            assert len(turns) == 1 + calibrate_module.REPEATS

    @pytest.mark.parametrize("disturbed", [0, 99])
    def test_rounds_that_spread_are_measured_again(self, monkeypatch, disturbed):
        """The best round counts all the same; a note names the level."""
        turns = []

        def disturb(found):
            turns.append(len(turns))
            if not disturbed:
                return found
            return {
                probe: [rates[0], *[rate / 2 for rate in rates]] for probe, rates in found.items()
            }

        base = pretend(monkeypatch, disturb)
        found = calibrate(quick=True)
        assert len(turns) == (1 + calibrate_module.REPEATS if disturbed else 1)
        assert found.machine.levels[0].bandwidth == pytest.approx(base.levels[0].bandwidth)
        assert any("Rounds in L1 stay" in note for note in found.notes) == bool(disturbed)

    @pytest.mark.parametrize("spoilt", [1, 99])
    def test_impossible_peaks_are_measured_again(self, monkeypatch, spoilt):
        """As often as levels out of order; then they are left out."""
        turns, really = [], calibrate_module.evaluate
        pretend(monkeypatch, dict)

        def evaluated(*given):
            machine, *others = really(*given)
            turns.append(len(turns))
            peaks = tuple(
                replace(peak, flops_all=None if len(turns) <= spoilt else peak.flops)
                for peak in machine.peaks
            )
            return machine.replace(peaks=peaks), *others

        monkeypatch.setattr(calibrate_module, "evaluate", evaluated)
        found = calibrate(quick=True)
        assert len(turns) == min(spoilt, calibrate_module.REPEATS) + 1
        assert all(bool(peak.flops_all) == (spoilt == 1) for peak in found.machine.peaks)


def example(name="i7-6700k", cores=4, reach=2**40):
    """A calibration of a known machine."""
    base = Machine.load(name).replace(cores=cores)
    rates = {p: found for p, found in simulated(base).items() if p.block <= reach}
    machine, levels, notes = evaluate(base, rates)
    return Calibration(machine, levels, calibrate_module._curves(rates), notes, 1.0)


class TestPicture:
    """The curve, drawn."""

    @pytest.mark.parametrize(
        ("name", "cores", "reach"),
        [("p.png", 1, 2**40), ("p.svg", 64, 2**40), ("p.PDF", 4, 2**16)],
    )
    def test_is_drawn(self, tmp_path, name, cores, reach):
        """Pictures of few cores, many cores and few blocks come out in the format of the name."""
        drawings.draw_calibration(example(cores=cores, reach=reach), tmp_path / name)
        start = (tmp_path / name).read_bytes()[:5]
        assert start.startswith({"p.png": b"\x89PNG", "p.svg": b"<?xml", "p.PDF": b"%PDF"}[name])

    def test_says_what_it_shows(self, tmp_path):
        """Levels, capacities, bandwidths and curves are named in the picture."""
        pytest.importorskip("matplotlib").rcParams["svg.fonttype"] = "none"
        drawings.draw_calibration(example(), tmp_path / "p.svg")
        text = (tmp_path / "p.svg").read_text(encoding="utf-8")
        for words in (
            "i7-6700k",
            "L1, 32 KiB",
            "L3, 8 MiB",
            "81.31 GB/s",
            "19.4 B/cycle",
            "serves up to",
            "non-temporal stores",
            "loads only",
            "all 4 cores",
        ):
            assert words in text

    @pytest.mark.parametrize("name", ["p.docx", "p", "missing/p.png", ".png/p.png"])
    def test_what_cannot_be_drawn_is_refused(self, tmp_path, name):
        """An unknown format, no folder, or a file where a folder should be: refused at once."""
        (tmp_path / ".png").touch()
        with pytest.raises((pictures.PictureError, FileAccessError), match="cannot"):
            pictures.check_picture(tmp_path / name)

    def test_a_folder_is_no_picture(self, tmp_path):
        """A folder that has the picture's name stays."""
        (tmp_path / "p.png").mkdir()
        with pytest.raises(FileAccessError, match="folder"):
            pictures.check_picture(tmp_path / "p.png")


def run(*arguments):
    return invoke("calibrate", *arguments)


@pytest.fixture
def measured(monkeypatch):
    """Let the command have what was measured once; gives a list of its measurements."""
    calls = []

    def quickly(**arguments):
        calls.append(arguments)
        arguments["progress"](1.0, "measured")
        return tiny_once()

    monkeypatch.setattr(calibrate_module, "calibrate", quickly)
    return calls


def leftovers(folder):
    """Files in a folder that are neither machine files nor their locks."""
    return [
        p.name
        for p in Path(folder).rglob("*")
        if p.is_file() and p.suffix not in (".toml", ".lock")
    ]


class TestCommand:
    """``tilesolve calibrate``."""

    def test_saves_what_plans_load(self, home, measured):
        """The machine is saved where `Machine.load` looks, and shown with its units."""
        done = run("--quick", "--plot", home / "p.png")
        assert done.exit_code == 0, done.output
        machine = Machine.load()
        assert machine.source("L1.bandwidth") == "measured"
        assert machine_file().exists()
        assert (home / "p.png").read_bytes().startswith(b"\x89PNG")
        for words in ("GB/s", "B/cycle", "GFLOP/s", "L1", "memory", "spread", str(machine_file())):
            assert words in done.stdout
        assert measured[0]["quick"]
        assert leftovers(home / "config") == []

    def test_json(self, home, measured):
        """--json prints one document with the machine and all samples, and nothing else."""
        done = run("--json", "--output", home / "my.toml")
        found = json.loads(done.stdout)
        assert found["file"] == str(home / "my.toml")
        machine = Machine.load(home / "my.toml")
        assert found["machine"]["frequency"] == machine.frequency
        assert found["machine"]["levels"][0]["bandwidth"] == machine.levels[0].bandwidth
        kernels = {found["kernel"] for found in found["curves"]}
        assert kernels == {"sweep", "read", "stream"}
        for sample in found["curves"][0]["samples"]:
            assert sample["best"] >= sample["median"] > 0
        assert not machine_file().exists()
        assert not measured[0]["quick"]

    def test_interrupted(self, home, monkeypatch):
        """Ctrl-C at any report of progress leaves the old file as it was, and exits with 130."""
        old = home / "my.toml"
        old.write_bytes(b"old")

        for turns in (0, 1, 5):
            count = iter(range(1000))

            def stop(fraction, what, count=count, turns=turns):
                if next(count) == turns:
                    raise KeyboardInterrupt

            monkeypatch.setattr(
                calibrate_module, "calibrate", lambda stop=stop, **_: tiny(progress=stop)
            )
            done = run("--output", old)
            assert done.exit_code == 130
            assert "as it was" in done.stderr
            assert old.read_bytes() == b"old"
            assert leftovers(home) == []

    def test_contradiction_is_not_saved(self, home, monkeypatch):
        """Figures that contradict each other are reported, and the old file stays."""

        def contradict(**_):
            raise CalibrationError("L2 seems faster than the nearer L1")

        monkeypatch.setattr(calibrate_module, "calibrate", contradict)
        old = home / "my.toml"
        old.write_bytes(b"old")
        done = run("--output", old)
        assert done.exit_code == 2
        assert "L2 seems faster" in done.stderr
        assert old.read_bytes() == b"old"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--output", "file/new.toml"],
            ["--output", "folder"],
            ["--output", "pipe.png"],
            ["--plot", "p.docx"],
            ["--plot", "missing/p.png"],
            ["--plot", "folder"],
            ["--plot", "pipe.png"],
        ],
    )
    def test_unwritable_is_refused_before_measuring(self, home, monkeypatch, measured, arguments):
        """What cannot be written in the end is refused in the beginning."""
        monkeypatch.chdir(home)
        (home / "file").touch()
        (home / "folder").mkdir()
        os.mkfifo(home / "pipe.png")
        done = run(*arguments)
        assert done.exit_code == 2
        assert "error: cannot" in done.stderr
        assert (home / "pipe.png").is_fifo()
        assert measured == []

    def test_missing_matplotlib(self, home, monkeypatch, measured):
        """Without matplotlib --plot is refused at once, with the command that brings it."""
        find = pictures.importlib.util.find_spec
        monkeypatch.setattr(
            pictures.importlib.util,
            "find_spec",
            lambda name, *rest: None if name == "matplotlib" else find(name, *rest),
        )
        done = run("--plot", home / "p.png")
        assert done.exit_code == 2
        assert "pip install 'tilesolve[plot]'" in done.stderr
        assert measured == []

    def test_broken_matplotlib(self, home, monkeypatch, measured):
        """One that is installed but cannot be imported is refused at once, whatever it raises."""
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        done = run("--plot", home / "p.png")
        assert done.exit_code == 2
        assert "p.png: matplotlib cannot be imported: " in done.stderr
        assert done.stderr.count("\n") == 1
        assert measured == []

    def test_two_at_once(self, home, measured):
        """A second calibration into the same file is refused while the first one runs."""
        with hold_lock(machine_file()):
            done = run()
        assert done.exit_code == 2
        assert "another process is measuring" in done.stderr
        assert measured == []
        assert run().exit_code == 0

    @pytest.mark.parametrize(
        ("kill", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
    )
    def test_killed(self, home, kill, status):
        """A real calibration that is stopped or killed leaves the old file, and no lock held."""
        old = machine_file()
        old.parent.mkdir(parents=True)
        old.write_bytes(b"old")
        lock = old.with_name(f"{old.name}.lock")
        process = subprocess.Popen(
            [sys.executable, "-m", "tilesolve", "calibrate"], stderr=subprocess.PIPE, text=True
        )
        with process:
            give_up = time.monotonic() + PATIENCE
            # Whoever tries the lock has it for a moment: nobody does before it is there.
            while not lock.exists() and time.monotonic() < give_up:
                time.sleep(0.05)
            time.sleep(0.1)
            while not _is_locked(old) and time.monotonic() < give_up:
                time.sleep(0.05)
            process.send_signal(kill)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, said
        assert old.read_bytes() == b"old"
        assert leftovers(home / "config") == []
        with hold_lock(old):
            pass


def _is_locked(path):
    try:
        with hold_lock(path):
            return False
    except FileAccessError:
        return True
