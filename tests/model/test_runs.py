"""Runs of the walk against simulated caches and the thesis's figures; shares of later lines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from run_counts import LINE, count_missed, tiled_nests

from tilesolve.constants.policy import LATER_LINE_SHARE
from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Nest
from tilesolve.model.price import stores, tiling
from tilesolve.model.runs import count_runs, first_lines, later_share, start_seconds
from tilesolve.model.traffic import Store, traffic

LEVEL = Level("L2", 2**18, 6.4e10)


def tiles_of_one_line():
    """An output that is one line, which several tiles share."""
    problem = Problem.of("ab-acd-dbc", "a=4 b=2 c=4 d=8")
    bands = [("register", "abcd", 1), ("L1", "abcd", 2), ("memory", "bcda", 8)]
    return problem, Nest.of(problem, bands, output="accumulate"), 1024


@settings(max_examples=60, deadline=None)
@given(tiled_nests())
@example(tiles_of_one_line())
def test_where_lines_are_those_of_simulated_caches_runs_are_too(drawn):
    """For each tensor and both caches, as large as some tiles and as all of them.

    Exactly, but for a tensor that is one run as a whole: tiles may cut that.
    """
    problem, nest, capacity = drawn
    places = [
        Store("register", 8.0, 1, "L1", 1e10),
        Store("L1", float(capacity), LINE, "L2", 1e10),
        Store("L2", 2.0**20, LINE, "memory", 1e9),
    ]
    runs = np.array(count_runs(problem, tiling(nest, problem), places))
    lines = np.array(traffic(problem, tiling(nest, problem), places).moved[1:]) / LINE
    missed_runs, missed_lines = count_missed(problem, nest, (capacity, 2**20))
    exact = np.isclose(lines, missed_lines)
    assert exact[1].all() or "+" in str(problem.spec)
    cut = (missed_runs == 1) & (runs <= lines)
    assert (np.isclose(runs, missed_runs) | cut)[exact].all()


def test_runs_of_the_matrix_product_of_the_thesis():
    """Tiles of 32, 128 and 16 at 2048 on its caches: (4.5) and (4.10), without any line."""
    problem = Problem.of("ij-ik-kj", 2048, "float32")
    tile = {"i": 32, "j": 128, "k": 16}
    call = {"i": 1, "j": 16, "k": 16}
    bands = [("register", "jki", call), ("L1", "kji", tile), ("memory", "jki", 2048)]
    nest = Nest.of(problem, bands)
    places = stores(Machine.load("i7-5930k"))
    near, far, _ = count_runs(problem, tiling(nest, problem), places)
    lines = sum(traffic(problem, tiling(nest, problem), places).moved[1]) / 64
    assert (first_lines(sum(near), lines, 0.0), sum(far)) == (10485760, 6553600)
    assert first_lines(sum(near), lines, 1.0) == lines > sum(near)


def test_a_copy_is_one_run_where_it_is_read():
    """Its source has the runs of the array, in the caches beyond the copy's."""
    problem = Problem.of("mn-mk-kn", 64)
    tiles = ("register", "kmn", 8), ("L1", "kmn", 16), ("L2", "kmn", 32), ("memory", "kmn", 64)
    nest = Nest.of(problem, list(tiles), packed=("L2", None))
    places = [
        Store("register", 512.0, 1, "L1", 1e10),
        Store("L1", 2.0**20, 64, "L2", 1e10),
        Store("L2", 2.0**21, 64, "memory", 1e9),
    ]
    near, far = count_runs(problem, tiling(nest, problem), places)
    plain, _ = count_runs(problem, tiling(replace(nest, packed=()), problem), places)
    assert near[1] == 1
    assert far[1] == plain[1] > 1


@given(st.floats(1e-12, 1e-6), st.floats(1e-12, 1e-6))
def test_start_and_share_say_the_same(start, line):
    """The first line takes start and line, each later one the share of it."""
    level = replace(LEVEL, start=start)
    share = later_share(level, line)
    assert 0 < share < 1
    assert start_seconds(level, line) == pytest.approx(start, rel=1e-6, abs=1e-9 * line)
    assert share * (start + line) == pytest.approx(line)


def test_a_level_without_a_start_has_the_default_share():
    """Whatever its latency."""
    timed = replace(LEVEL, latency=1e-7)
    assert later_share(LEVEL, 1e-9) == later_share(timed, 1e-9) == LATER_LINE_SHARE
    assert start_seconds(LEVEL, 1e-9) == pytest.approx(3e-9)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=7), st.floats(0.5, 5000.0))
def test_strides_take_their_share_of_a_first_line(shares, stride):
    """Between those of neighbouring strides, never less than a line by itself."""
    level = replace(LEVEL, start=3e-9, strided=tuple((2**n, x) for n, x in enumerate(shares)))
    found = start_seconds(level, 1e-9, stride) + 1e-9
    assert max(1e-9, 4e-9 * min(shares)) <= found * (1 + 1e-9)
    assert found <= max(1e-9, 4e-9 * max(shares)) * (1 + 1e-9)
    for at, share in level.strided:
        assert start_seconds(level, 1e-9, at) == pytest.approx(max(4e-9 * share - 1e-9, 0))
