"""Waiting: the runs that a box touches, and stores past the caches, held to what is counted."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve import Machine, Problem, plan
from tilesolve.constants.tuning import MIN_STAGED_RUN_BYTES, MIN_STEPS_TO_PREFETCH_C
from tilesolve.contractions.roles import ROWS, SUMS
from tilesolve.kernels.runtime.state import KIND_COPY, KIND_TRANSPOSE_ROWS
from tilesolve.model.access import accesses_of
from tilesolve.model.lines import run_of, run_touched
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price, list_levels
from tilesolve.model.score import score_times
from tilesolve.packing import table_fields
from tilesolve.planning.waiting import (
    crossing_seconds,
    find_lead,
    is_staged,
    late_share,
    leaves_registers,
    lengthen_runs,
    mean_run,
    single_share,
    store_seconds,
)
from tilesolve.running.schedule import Box
from tilesolve.running.task import Task

MACHINE = Machine.load("i7-6700k")
ORDERS = tuple(map("".join, permutations("mnkb")))


@settings(max_examples=60)
@given(st.data())
def test_a_run_of_windows_is_what_lies_side_by_side(data):
    """The elements that a box touches of a padded image, marked one by one."""
    extent, window = st.integers(1, 5), st.integers(1, 3)
    sizes = {i: data.draw(extent) for i in "chwk"} | {i: data.draw(window) for i in "rs"}
    problem = Problem.of("khw-c[h+r][w+s]-kcrs", sizes)
    box = {i: data.draw(st.integers(1, size)) for i, size in sizes.items()}
    image = accesses_of(problem)[1]
    touched = np.zeros(image.shape, bool)
    touched[: box["c"], : box["h"] + box["r"] - 1, : box["w"] + box["s"] - 1] = True
    first_gap = np.append(touched.ravel(), False).argmin()
    assert run_touched(image, box) == image.element * first_gap


@given(st.data())
def test_a_run_of_plain_letters_is_that_of_the_tensor(data):
    sizes = {i: data.draw(st.integers(1, 6)) for i in "mnk"}
    problem = Problem.of("mn-mk-kn", sizes)
    box = {i: data.draw(st.integers(1, size)) for i, size in sizes.items()}
    for access, tensor in zip(accesses_of(problem), problem.spec.tensors, strict=True):
        assert run_touched(access, box) == run_of(problem, tensor, box)


@settings(max_examples=30)
@given(st.data())
def test_lines_of_the_first_page_of_each_run_are_late(data):
    """Of the lines that a box touches: nothing fetches these before the second page of a run."""
    line, page, second = 64, 4096, MACHINE.second_cache.capacity
    sides = {"b": data.draw(st.integers(1, 3)), "m": data.draw(st.integers(1, 6))}
    sides["k"] = 8 * data.draw(st.integers(1, 300))
    sizes = {i: side * data.draw(st.sampled_from((1, 2))) for i, side in sides.items()}
    sizes["b"] *= 1 + second // (8 * sizes["b"] * sizes["m"] * sizes["k"])
    problem = Problem.of("bmn-bmk-bkn", {**sizes, "n": 8})
    box = {**sides, "n": 8}
    bands = [("register", "kmnb", 1), ("L1", "kmnb", box), ("memory", "kmnb", 10**6)]
    nest = Nest.of(problem, bands, packed=("L1", None))
    touched = np.zeros(problem.shape(1), bool)
    touched[: sides["b"], : sides["m"], : sides["k"]] = True
    edges = np.flatnonzero(np.diff(touched.ravel(), prepend=False, append=False))
    runs = 8 * np.diff(edges)[::2]
    late = np.minimum(runs, page).sum() / line
    assert late_share(problem, 1, nest, MACHINE) == pytest.approx(late / (runs.sum() / line))


def count_runs(problem, nest):
    """Return how many runs calls store: one after another along the first loop around them."""
    call, around, whole = (dict(band.box) for band in nest.bands)
    first = next((i for i in nest.bands[1].order if around[i] > call[i]), None)
    joined = call | ({first: around[first]} if first else {})
    letters = problem.spec.output.letters
    places = np.arange(np.prod(problem.shape(0))).reshape(problem.shape(0))
    runs = 0
    for corner in product(*(range(0, whole[i], joined[i]) for i in letters)):
        part = tuple(slice(at, at + joined[i]) for at, i in zip(corner, letters, strict=True))
        runs += 1 + int(np.count_nonzero(np.diff(np.sort(places[part].ravel())) != 1))
    return runs


@settings(max_examples=60)
@given(st.data())
def test_stores_wait_once_for_each_run_that_is_stored(data):
    """The term grows by a run's cost for each of the runs, which are counted place by place.

    Long runs are put together in the staging buffer, so that their ends cost nothing.
    """
    call = {i: data.draw(st.integers(1, 3)) for i in "bmn"} | {"k": 4}
    tile = {i: side * data.draw(st.integers(1, 3)) for i, side in call.items() if i != "k"}
    sizes = {i: side * data.draw(st.integers(1, 2)) for i, side in tile.items()} | {"k": 4}
    problem = Problem.of("bmn-bmk-bkn", sizes)
    order = data.draw(st.sampled_from(ORDERS))
    bands = [("register", "kmnb", call), ("L1", order, tile | {"k": 4}), ("memory", "kmnb", sizes)]
    nest = Nest.of(problem, bands, output="stream")
    cost = compute_price(problem, nest, MACHINE)

    def waits(seconds):
        costs = replace(MACHINE.costs, part_line_seconds=seconds)
        return store_seconds(problem, nest, cost, replace(MACHINE, costs=costs))

    more = waits(3.0) - waits(1.0)
    short = mean_run(problem, nest) < MIN_STAGED_RUN_BYTES
    assert more == pytest.approx(2.0 * count_runs(problem, nest) * short)
    for other in ("store", "add"):
        assert store_seconds(problem, replace(nest, output=other), cost, MACHINE) == 0.0


def test_what_memory_measured_counts_before_the_default():
    """Stores take at least their bytes at the rate that streams, as far as memory does not."""
    problem = Problem.of("mn-mk-kn", {"m": 4096, "n": 4096, "k": 16})
    assert plan(problem, machine=MACHINE, cache=False).nest.output == "stream"
    call, tile = {"m": 4, "n": 3, "k": 16}, {"m": 8, "n": 90, "k": 16}
    bands = [("register", "kmn", call), ("L1", "kmn", tile), ("memory", "kmn", 4096)]
    nest = Nest.of(problem, bands, output="stream")
    *caches, memory = MACHINE.levels

    def waits(part, stream):
        levels = (*caches, replace(memory, part=part, stream=stream))
        machine = replace(MACHINE, levels=levels)
        return store_seconds(problem, nest, compute_price(problem, nest, machine), machine)

    rate = memory.bandwidth
    default = waits(None, rate)
    assert waits(MACHINE.costs.part_line_seconds, rate) == pytest.approx(default)
    assert waits(1e-12, rate) < default < waits(1e-6, rate)
    slower = waits(1e-12, rate / 2) - waits(1e-12, rate / 4)
    slowdown = MACHINE.costs.cached_store_slowdown
    assert slower == pytest.approx(-2 * slowdown * problem.bytes[0] / rate)


def test_stores_straight_from_registers_are_one_more_level():
    """Whole vectors and short sums: calls wait for none of them; longer sums are staged."""
    tile, costs = {"m": 4, "n": 256}, MACHINE.costs
    found = {}
    for steps, columns in product((16, 300), (8, 2)):
        problem = Problem.of("mn-mk-kn", {"m": 4096, "n": 4096, "k": steps})
        call = {"m": 4, "n": columns, "k": steps}
        boxes = [("register", "kmn", call), ("L1", "kmn", tile | {"k": steps})]
        nest = Nest.of(problem, [*boxes, ("memory", "kmn", 4096)], output="stream")
        cost, view = compute_price(problem, nest, MACHINE), list_levels(MACHINE)[-1]
        times = [level.seconds for level in cost.levels] + [cost.compute]
        taken = problem.bytes[0] / MACHINE.memory.bandwidth
        shown = 1.0 if cost.bottleneck == "memory" else costs.level_overlap
        counted = shown * view.seconds([problem.bytes[0]])
        beside = score_times([max(times), taken], costs.level_overlap) - max(times)
        straight = leaves_registers(problem, nest, MACHINE)
        found[steps, columns] = straight
        waited = beside if straight else taken
        wanted = pytest.approx(max(0, waited - counted), abs=1e-12)
        assert store_seconds(problem, nest, cost, MACHINE) == wanted
        aligned = replace(problem, aligned_output=True)
        assert leaves_registers(aligned, nest, MACHINE) == (columns == 8)
    assert found == {(16, 8): True, (16, 2): False, (300, 8): False, (300, 2): False}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("copies", [("L1", "L1"), ("L1", None), (None, "L1")])
@pytest.mark.parametrize("steps", [MIN_STEPS_TO_PREFETCH_C - 1, MIN_STEPS_TO_PREFETCH_C])
@pytest.mark.parametrize(("bits", "side"), [(256, 8), (512, 3), (512, 8)])
def test_calls_wait_for_short_runs_unless_they_prefetch_lines(bits, side, steps, copies, dtype):
    """Long sums do so, and short ones of wide kernels that read copies: rows are mostly copied."""
    sizes = {"m": 4096, "n": 4096, "k": steps}
    costs = replace(MACHINE.costs, part_line_seconds=1e-12)
    problem = Problem.of("mn-mk-kn", sizes, dtype)
    machine = replace(MACHINE, vector_bits=bits, costs=costs)
    call, tile = {"m": 4, "n": side, "k": steps}, {"m": 40, "n": 4 * side, "k": steps}
    bands = [("register", "kmn", call), ("L1", "kmn", tile), ("memory", "kmn", 4096)]
    nest = Nest.of(problem, bands, packed=copies, output="stream")
    cost, view = compute_price(problem, nest, MACHINE), list_levels(MACHINE)[-1]
    overlap = costs.level_overlap
    taken = costs.cached_store_slowdown * problem.bytes[0] / machine.memory.bandwidth
    early = steps >= MIN_STEPS_TO_PREFETCH_C
    copied = copies == ("L1", "L1") or (copies == ("L1", None) and side == 3)
    early = early or (bits == 512 and copied and dtype == "float64")
    waited = score_times([cost.seconds, taken], overlap) - cost.seconds if early else taken
    shown = 1.0 if cost.bottleneck == "memory" else overlap
    wanted = max(0.0, waited - shown * float(view.seconds([problem.bytes[0]])))
    assert store_seconds(problem, nest, cost, machine) == pytest.approx(wanted, abs=1e-9)
    assert early or wanted > 0


@settings(max_examples=60)
@given(st.data())
def test_nearest_tiles_take_more_of_the_last_letters_until_runs_are_long(data):
    """Up to the next tile; where even that is too short, or runs are long, they stay."""
    far = {i: data.draw(st.integers(1, 60)) for i in "bmn"} | {"k": 4}
    near = {i: data.draw(st.integers(1, side)) for i, side in far.items()}
    call = {i: data.draw(st.integers(1, side)) for i, side in near.items()}
    problem = Problem.of("bmn-bmk-bkn", {i: 2 * side for i, side in far.items()})
    bands = [("register", "kmnb", call), ("L1", "kmnb", near), ("L2", "kmnb", far)]
    nest = Nest.of(problem, [*bands, ("memory", "kmnb", 120)], output="stream")
    longer = lengthen_runs(problem, nest)
    if longer is None:
        whole = Nest.of(problem, [bands[0], ("L1", "kmnb", far), ("memory", "kmnb", 120)])
        runs = mean_run(problem, nest), mean_run(problem, whole)
        assert runs[0] >= MIN_STAGED_RUN_BYTES or runs[1] < MIN_STAGED_RUN_BYTES
        return
    assert mean_run(problem, nest) < MIN_STAGED_RUN_BYTES <= mean_run(problem, longer)
    assert all(near[i] <= longer.bands[1][i] <= far[i] for i in far)
    assert (longer.bands[0], *longer.bands[2:]) == (nest.bands[0], *nest.bands[2:])


@pytest.mark.parametrize(
    "sizes", ["a=32,b=48,c=16,d=512,e=24", "a=512,b=48,c=24,d=8,e=24", "a=512,b=48,c=24,d=8,e=80"]
)
@pytest.mark.parametrize("spec", ["abcd-ade-ebc", "abdc-ecb-ade", "cdab-cbe-eda"])
def test_what_leaves_registers_is_what_runs(spec, sizes):
    """All boxes of a plan leave so if the price says it, and none if not: in pieces, or in lines.

    C begins 16 bytes behind a line, as NumPy's arrays do.
    """
    solution = plan(spec, sizes, MACHINE, cache=False).solution
    assert solution.output == "stream"
    (part, start), *_ = solution.parts
    arrays = [np.empty(shape, np.int8).strides for shape in part.shapes]
    strides = [tuple(8 * step for step in steps) for steps in arrays]
    task = Task.of(solution, part, start, strides, place=16)
    boxes, lead = task.boxes, task.schedule.lead
    ran = [lead or boxes.tables[kind].leaves_in_pieces(stages=True) for kind in boxes.kinds]
    given = solution.share, solution.nest, MACHINE
    assert find_lead(*given) == lead
    assert {*map(bool, ran)} == {leaves_registers(*given)}


@pytest.mark.parametrize("rows", [8, 10])
@pytest.mark.parametrize("columns", [2, 6])
def test_tiles_of_many_runs_that_end_amid_vectors_are_not_staged(rows, columns):
    """The price says so, and what runs does so; runs are long enough in all."""
    sizes = {"m": 60, "n": 400, "k": 80}
    problem = Problem.of("mn-mk-kn", sizes)
    call = {"m": columns, "n": rows, "k": 80}
    bands = [("register", "kmn", call), ("L1", "kmn", {**call, "n": 400}), ("memory", "kmn", sizes)]
    nest = Nest.of(problem, bands, packed=("L1", "L1"), output="stream")
    assert is_staged(problem, nest, MACHINE) == (rows == 8 or columns == 2)
    tiles = Box((), (), (0, 0), (0, 0), (0, 0), 0, True, rows == 8, columns, False)
    assert tiles.is_staged(stages=True) == is_staged(problem, nest, MACHINE)


@pytest.mark.parametrize("more", [-1, 0])
@pytest.mark.parametrize("bits", [256, 512])
def test_short_sums_whose_lines_are_prefetched_are_not_staged(bits, more):
    """Wide kernels prefetch columns of C, the more so where these are long."""
    sizes = {"m": 60, "n": 400, "k": MIN_STEPS_TO_PREFETCH_C + more}
    problem = Problem.of("mn-mk-kn", sizes)
    call = {"m": 2, "n": 8, "k": sizes["k"]}
    bands = [("register", "kmn", call), ("L1", "kmn", sizes), ("memory", "kmn", sizes)]
    nest = Nest.of(problem, bands, packed=("L1", "L1"), output="stream")
    machine = replace(MACHINE, vector_bits=bits)
    assert is_staged(problem, nest, machine) == (bits == 256 or more == 0)
    slow = replace(nest, packed=("L1", None))
    assert is_staged(problem, slow, machine)


def count_single(task, side):
    """Return the elements that a task packs one by one of its rows or columns, and all of them."""
    kind, single, whole = task.schedule.pack_kinds[side], 0, 0
    for box in (task.boxes.tables[number] for number in task.boxes.kinds):
        table, sums = box.tables[side], box.tables[SUMS]
        rows, steps = (box.axes[role].size for role in (side, SUMS))
        counts = table[table[table_fields.GROUP_COUNTS] :][: box.panels[side]]
        if kind == KIND_COPY:
            contiguous = table[table[table_fields.GROUP_WHOLE] :][: box.panels[side]]
            single += steps * int(counts[contiguous == 0].sum())
        else:
            at = table_fields.BLOCKS + table_fields.BLOCK_WORDS * side + table_fields.REST_BOUNDS
            across = kind == KIND_TRANSPOSE_ROWS
            rest, entries = (table if across else sums)[[at, at + 1]]
            rest = (table if across else sums)[entries:][: (table if across else sums)[rest + 1]]
            single += steps * int(counts[rest].sum()) if across else rows * len(rest)
        whole += steps * rows
    return single, whole


@pytest.mark.parametrize("last", [3, 4, 5, 11, 12, 13])
@pytest.mark.parametrize("spec", ["mnr-mk-krn", "mnr-mk-nrk", "mnr-mk-rkn"])
def test_elements_that_are_packed_one_by_one_are_counted(spec, last):
    """By what packing is told of each block; the rows' operand has no whole vectors of rows."""
    sizes = {"m": 40, "n": 14, "r": last, "k": 60}
    solution = plan(spec, sizes, MACHINE, cache=False).solution
    (part, start), *_ = solution.parts
    strides = [tuple(np.empty(shape).strides) for shape in part.shapes]
    task = Task.of(solution, part, start, strides)
    assert solution.nest.packed[1] == "L3"
    single, whole = count_single(task, ROWS)
    assert single_share(solution.share, 2, solution.nest, MACHINE) == single / whole


@given(st.integers(2, 8), st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))
def test_arrays_that_change_cores_take_longer(threads, pixels, filters, channels):
    """All threads read an image whose filters they divide, and later ones what all have written."""
    sizes = {"x": pixels, "k": filters, "c": channels}
    layer = Problem.of("xk-xc-ck", sizes, dtype="float32", constant=(2,))
    assert crossing_seconds(layer, "x", threads, MACHINE) == 0
    assert crossing_seconds(replace(layer, constant=()), "k", threads, MACHINE) == 0
    read, written = 4 * pixels * channels, 4 * pixels * filters * (threads - 1) / threads
    lines = (read + written) / MACHINE.memory.line / threads
    found = crossing_seconds(layer, "k", threads, MACHINE)
    assert found == pytest.approx(lines * MACHINE.costs.read_line_seconds)


def test_threads_divide_the_pixels_of_layers_that_have_enough():
    """So that they read in later layers what they wrote."""
    sizes = {"x": 192, "k": 768, "c": 128}
    options = {"dtype": "float32", "threads": 2, "constant": "B"}
    layer = plan("xk-xc-ck", sizes, MACHINE, cache=False, **options)
    assert layer.solution.split == "x"
