"""Plans that run: right for every layout, exact about their tiles, clear about bad input."""

import copy
import itertools
import pickle
import threading
import tracemalloc
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod

import numpy as np
import pytest
from commands import run_python
from guessed_tiles import guess_plan, guessed_tiles
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st
from running_cases import (
    LAYOUTS,
    MANY_REGISTERS,
    WIDTHS,
    check_result,
    check_run,
    draw_operands,
    make_machine,
    make_shallow_machine,
    poisoned,
    relaid,
    trace_once,
    varied,
)
from strategies import problems, specs, unshrunk
from turns import WHOLE, examples, in_turn, quick_each

from tilesolve import Machine, Plan, Problem, plan, reference
from tilesolve.constants import tuning
from tilesolve.contractions.errors import DtypeError, MachineError, PlanError, SizeError
from tilesolve.contractions.problem import DTYPES
from tilesolve.contractions.roles import ROWS, SUMS
from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.runtime import compiled
from tilesolve.kernels.runtime.state import KIND_GATHER, KIND_TRANSPOSE_ROWS
from tilesolve.machine import kernel_cache
from tilesolve.model.nest import Band
from tilesolve.packing.sizes import ALIGNMENT_BYTES, GUARD_BYTES
from tilesolve.planning.demand import Demand
from tilesolve.planning.register_tile import choose_register_tile
from tilesolve.planning.runner import Runner
from tilesolve.planning.solve import solve
from tilesolve.plans.copy_sizes import copy_bytes
from tilesolve.running import execution
from tilesolve.running.execution import Layout
from tilesolve.running.task import Task
from tilesolve.system.cancellation import deadline


@pytest.mark.parametrize(
    ("dtype", "least"), [("float32", 3), ("float64", 3), ("complex64", 6), ("complex128", 6)]
)
@guessed_tiles(0)
def test_few_registers_have_small_tiles_or_none(dtype, least):
    """The register tile of a plan may be larger than any kernel; where there is none, that is said.

    One register is for what is broadcast, one for rows, one for sums; complex ones are two each.
    """
    problem = Problem.of("mn-mk-kn", "m=20 n=13 k=9", dtype)
    for registers in (least, least + 1):
        check_run(plan(problem, machine=make_shallow_machine(128, registers), cache=False))
    with pytest.raises(MachineError, match=f"^{least - 1} vector registers hold no .* {dtype}$"):
        check_run(plan(problem, machine=make_shallow_machine(128, least - 1), cache=False))


@examples(15, 25, unshrunk)
@given(
    problems(specs(operands=2, diagonal=False), least=0, most=9),
    st.sampled_from(WIDTHS),
    st.tuples(*[st.sampled_from(LAYOUTS)] * 3),
    st.sampled_from([(1, 0), (2.5, 0), (1, 1), (-0.5, 3), (0, 2)]),
)
def test_any_problem_in_any_layout(problem, width, layouts, factors):
    """Every dtype, width, layout and factor gives the reference's result, inputs untouched."""
    operands = [relaid(a, how) for a, how in zip(draw_operands(problem), layouts, strict=False)]
    before = [array.copy() for array in operands]
    for array in operands:
        array.flags.writeable = False
    alpha, beta = factors
    start = np.ones(problem.shapes[0], problem.dtype) if beta else poisoned(problem)
    out = relaid(start, layouts[2])
    found = plan(problem, machine=make_shallow_machine(*width), cache=False)
    assert found(*operands, out, alpha=alpha, beta=beta) is out
    expected = alpha * reference(problem, *operands) + (beta if beta else 0)
    check_result(problem, out, expected, operands, scale=4)
    assert all(np.array_equal(a, b) for a, b in zip(operands, before, strict=True))


@examples(6, 20, unshrunk)
@given(
    problems(specs(operands=2, diagonal=False), most=40),
    st.sampled_from(WIDTHS),
    st.sampled_from((make_shallow_machine, make_machine)),
    st.integers(0, 999),
)
def test_copies_take_no_more_than_said(problem, width, depth, tiles):
    """The bytes that a report names are enough for all packed tiles, their padding included."""
    found = guess_plan(problem, tiles, machine=depth(*width))
    strides = [  # of arrays that may be too large to be had
        tuple(problem.itemsize * prod(shape[at + 1 :]) for at in range(len(shape)))
        for shape in problem.shapes
    ]
    task = Task.of(found.solution, problem, {}, strides)
    planned = sum(found.nest.kind(at) == "micro-panels" for at in range(2))
    assume(sum(map(bool, task.schedule.packed)) == planned)  # no strides forbid reading in place
    nothing = 2 * (GUARD_BYTES + ALIGNMENT_BYTES)
    assert task.workspace_bytes <= sum(copy_bytes(found.solution)) + nothing


@examples(20, 40, unshrunk)
@given(
    problems(specs(operands=2, diagonal=False), least=1, most=4),
    st.sampled_from(WIDTHS),
    st.sampled_from((1, 2, 5, 24, 300)),
    st.lists(st.none() | st.integers(1, 2), min_size=2, max_size=2),
    st.integers(0, 999),
)
def test_no_more_is_tabulated_at_once_than_said(problem, width, most, copies, tiles):
    """What has more indices is walked in boxes, each once, whatever tiles and copies a plan has."""
    found = guess_plan(problem, tiles, machine=make_shallow_machine(*width))
    bands = found.nest.bands
    packed = tuple(at and bands[min(at, len(bands) - 1)].level for at in copies)
    found = varied(found, nest=replace(found.nest, packed=packed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_TABLE_INDICES", most)
        [task] = Layout.of(found.solution, *check_run(found)).tasks
        trace_once(found)
    assert all(axis.size <= most for box in task.boxes.tables for axis in box.axes)


def test_a_cache_that_holds_many_indices_needs_no_room_for_tables_of_all():
    """Elements that many indices share are few; a table of these indices took gigabytes."""
    problem = Problem.of("--ij[b+é+K]K", 33)
    found = plan(problem, machine=make_shallow_machine(512, 32), cache=False)
    operands = draw_operands(problem)
    tracemalloc.start()
    try:
        task = Task.of(found.solution, problem, {}, [(), *(array.strides for array in operands)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 28
    assert sum(box.axes[SUMS].size for box in task.boxes.tables) <= 4 * tuning.MAX_TABLE_INDICES


def test_sums_that_whole_ways_have_no_room_for_are_cut():
    """The nearest cache has room for all sums as real numbers, not as integers."""
    sizes = {"j": 9, "é": 37, "b": 4, "i": 35, "a": 3}
    problem = Problem.of("jé-bjé[3i+a+b]-", sizes, "complex128")
    found = plan(problem, machine=make_shallow_machine(256, 16), cache=False)
    assert found.output == "store"
    check_run(found)


@pytest.mark.parametrize(
    ("spec", "empty"),
    [
        *(("bija-ibja-ab", letters) for letters in ("a", "b", "i", "ij", "ija", "bija")),
        *(("mn-mk-kn", letter) for letter in "mnk"),
    ],
)
@guessed_tiles(0)
def test_any_letters_of_extent_zero(spec, empty):
    """Letters of extent 0, the output's unit-stride one among them, leave nothing or zeros."""
    problem = Problem.of(spec, {i: 0 if i in empty else 2 for i in {*spec} - {"-"}})
    *_, out = check_run(plan(problem, machine=make_machine(128, 16), cache=False))
    assert not out.any()


IN_BLOCKS = {
    **dict.fromkeys(
        ("float32", "float64"), ("mn-mk-kn", "mn-km-nk", "nm-mk-nk", "mnb-bmk-knb", "abc-bda-dc")
    ),
    **dict.fromkeys(("complex64", "complex128"), ("mn-mk-kn", "mnb-bmk-knb")),
}
"""For each dtype the specs that are tried around block sizes."""


@WHOLE
@pytest.mark.parametrize(
    ("dtype", "spec"), [(dtype, spec) for dtype, specs in IN_BLOCKS.items() for spec in specs]
)
@pytest.mark.parametrize("width", WIDTHS)
@guessed_tiles(0)
def test_around_block_sizes(spec, dtype, width, whole):
    """One less, exactly, and one more than every block of the register tile.

    Not the whole: each dtype and width has each extent with one of the specs, which take turns.
    """
    lanes = width[0] // (64 if dtype in ("float64", "complex128") else 32)
    extents = sorted({side + d for side in (1, lanes, 3 * lanes) for d in (-1, 0, 1)} - {0})
    specs = IN_BLOCKS[dtype]
    turn = specs.index(spec) + WIDTHS.index(width)
    for n in in_turn(extents, turn, whole, of=min(len(specs), len(WIDTHS))):
        problem = Problem.of(spec, n, dtype)
        found = plan(problem, machine=make_shallow_machine(*width), cache=False)
        check_run(found, draw_operands(problem, n))


@pytest.mark.parametrize(
    "dtype",
    ["float64", *(pytest.param(name, marks=pytest.mark.slow) for name in DTYPES[:1] + DTYPES[2:])],
)
@pytest.mark.parametrize("spec", ["mn-mk-kn", "nm-mk-nk", "mnb-bmk-knb"])
@guessed_tiles(0)
def test_many_registers_of_narrow_vectors(spec, dtype):
    """One less, as many and one more rows and columns than the register tile has."""
    machine = make_shallow_machine(*MANY_REGISTERS)
    usual = choose_register_tile(Problem.of("mn-mk-kn", 300, dtype), machine)
    for more in (-1, 0, 1):
        sizes = {"m": usual.columns + more, "n": usual.rows + more, "k": 19, "b": 4 + more}
        problem = Problem.of(spec, {i: sizes[i] for i in set(spec) - {"-"}}, dtype)
        check_run(plan(problem, machine=machine, cache=False))


@pytest.mark.grid
@pytest.mark.parametrize("spec", ["abcd-aebf-dfce", "abcd-dbea-ec", "abcde-ecbfa-fd", "ab-acd-dbc"])
@pytest.mark.parametrize("packed", [(1, 1), (1, 2), (2, None), (None, 1)])
@guessed_tiles(0)
def test_every_level_of_packing(spec, packed):
    """Where copies live never changes the result."""
    letters = sorted(set(spec) - {"-"})
    problem = Problem.of(spec, dict(zip(letters, (5, 9, 17, 8, 11, 6), strict=False)))
    found = plan(problem, machine=make_machine(512, 32), cache=False)
    bands = found.nest.bands
    copies = tuple(None if at is None else bands[min(at, len(bands) - 1)].level for at in packed)
    other = varied(found, nest=replace(found.nest, packed=copies))
    check_run(other)


@pytest.mark.parametrize("order", ["mnk", "nmk"])
@pytest.mark.parametrize("packed", [(2, 2), (None, None), (2, None), (None, 2)])
def test_many_tiles_of_both_sides(order, packed):
    """A tile with several register tiles of rows and of columns, some cut, is computed once."""
    problem = Problem.of("mn-mk-kn", "m=83 n=104 k=11")
    sides = {"m": 8, "n": 24, "k": 11}, {"m": 40, "n": 72, "k": 11}, dict(problem.sizes)
    bands = [
        Band(level, tuple(order), tuple((letter, side[letter]) for letter in problem.sizes))
        for level, side in zip(("register", "L2", "memory"), sides, strict=True)
    ]
    copies = tuple(None if at is None else bands[at].level for at in packed)
    found = plan(problem, machine=make_machine(512, 32), cache=False)
    found = varied(found, nest=replace(found.nest, bands=tuple(bands), packed=copies))
    check_run(found)
    trace_once(found)


def test_long_segments_are_turned_in_parts():
    """Strips too many to stay near are packed part by part, wherever runs of the source end."""
    problem = Problem.of("nbae-efba-fn", "n=3 b=4 a=99 e=25 f=70", "float32")
    found = plan(problem, machine=make_machine(128), cache=False)
    first, second = draw_operands(problem)
    expected = np.einsum("efba,fn->nbae", first.astype("float64"), second, optimize=True)
    for gap in (0, 5):
        source = np.full((*first.shape[:-1], 99 + gap), np.nan, "float32")[..., :99]
        source[...] = first
        out = poisoned(problem)
        found(source, second, out)
        check_result(problem, out, expected, (first, second))
        strides = (out.strides, source.strides, second.strides)
        assert (
            Task.of(found.solution, problem, {}, strides).schedule.pack_kinds[ROWS]
            == KIND_TRANSPOSE_ROWS
        )


@pytest.mark.parametrize(
    ("operand", "output", "sizes", "dtype", "width", "threads"),
    [
        ("[j+k+l][3i+3l]bk", "", "j=13 k=5 l=11 i=5 b=11", "complex64", (256, 16), 1),
        (
            *("e[3j+2a][b+2k+2j][a+2e+2i]", "ijabk", "i=3 j=11 a=7 b=0 k=11 e=14"),
            *("float32", (512, 32), 2),
        ),
    ],
)
def test_programs_in_which_ipopt_loses_its_way(operand, output, sizes, dtype, width, threads):
    """Once the longest time is known, levels that cannot be made faster stay as they are."""
    problem = Problem.of(f"{operand},{operand}->{output}", sizes, dtype)
    check_run(plan(problem, machine=make_machine(*width), threads=threads, cache=False))


def test_columns_of_which_a_whole_register_tile_has_no_room():
    """Narrower tiles keep the limits where a letter of several subscripts makes windows large."""
    problem = Problem.of("bk-[9b+i][9b+2i][9b+4i]-ki", "b=9 k=2000 i=3", "complex64")
    machine = make_shallow_machine(512, 32)
    found = plan(problem, machine=machine, cache=False)
    usual = choose_register_tile(problem, machine)
    assert found.microkernel.columns < usual.columns
    found.nest.check(found.share)
    check_run(found)


@pytest.mark.parametrize("second", ["j-", "-j"])
def test_a_letter_that_stands_in_three_subscripts(second):
    """Micro-panels hold each sum of each row, so that whole vectors have room whatever it is."""
    spec = f"i-[3i+j][x+3b+3i][b+2K+2i]{second}"
    problem = Problem.of(spec, "i=16 j=37 x=20 b=39 K=25", "complex64")
    found = plan(problem, machine=make_shallow_machine(512, 32), cache=False)
    assert lanes("complex64", 512) == found.nest.bands[0]["i"]
    found.nest.check(found.share)
    check_run(found)


@dataclass(frozen=True)
class Lying:
    """How an array lies within a larger one: the steps of its axes, their order, and a shift."""

    steps: list[int]
    order: list[int]
    shift: int

    def carve(self, shape, dtype):
        """Return a buffer, and what makes an array of its bytes."""
        size = np.dtype(dtype).itemsize
        steps = self.steps[: len(shape)]
        spans = [max(n - 1, 0) * abs(step) for n, step in zip(shape, steps, strict=True)]
        strides, begin, pitch = [0] * len(shape), self.shift, size
        for axis in (axis for axis in self.order if axis < len(shape)):
            strides[axis] = steps[axis] * pitch
            begin += (2 + (spans[axis] if steps[axis] < 0 else 0)) * pitch
            pitch *= spans[axis] + 5
        buffer = np.zeros(self.shift + max(pitch, 4 * size), np.uint8)
        return buffer, lambda raw: np.ndarray(shape, dtype, raw, begin, strides)


def lyings(steps):
    """Strategy for how an array lies within a larger one."""
    return st.builds(
        Lying,
        st.lists(st.sampled_from(steps), min_size=6, max_size=6),
        st.permutations(range(6)),
        st.integers(0, 1),
    )


@examples(8, 40, unshrunk)
@given(
    problems(specs(operands=2, diagonal=False), least=0, most=9),
    st.sampled_from(WIDTHS),
    lyings((1, 1, 2, 3, -1, -2)),
    st.tuples(*[lyings((1, 1, 2, 3, -1, -2, 0))] * 2),
    st.sampled_from([(1, 0), (2, 0), (-1, 1)]),
    st.integers(1, 2),
    st.integers(0, 999),
)
def test_arrays_amid_larger_ones(problem, width, target, sources, factors, threads, tiles):
    """What lies around operands is not used, what lies around the output stays, nor do operands."""
    operands, buffers = [], []
    for values, lying in zip(draw_operands(problem), sources, strict=True):
        raw, view = lying.carve(values.shape, problem.dtype)
        raw[lying.shift :].view(problem.dtype)[:] = (
            complex("nan+nanj") if np.iscomplexobj(values) else np.nan
        )
        view(raw)[...] = values
        operands.append(view(raw))
        buffers.append(raw)
    kept = [raw.copy() for raw in buffers]
    whole, view = target.carve(problem.shapes[0], problem.dtype)
    whole[:] = np.random.default_rng(0).integers(0, 256, whole.size, np.uint8)
    alpha, beta = factors
    out = view(whole)
    out[...] = 1 if beta else np.nan
    around = whole.copy()
    found = guess_plan(problem, tiles, machine=make_shallow_machine(*width), threads=threads)
    assert found(*operands, out, alpha=alpha, beta=beta) is out
    check_result(problem, out, alpha * reference(problem, *operands) + beta, operands, scale=4)
    view(around)[...] = out
    assert np.array_equal(whole, around)
    assert all(np.array_equal(raw, old) for raw, old in zip(buffers, kept, strict=True))


@cache
def planned(problem):
    """Return a plan for wide vectors, found once."""
    return plan(problem, machine=make_machine(512, 32), cache=False)


def nested(problem, sides, orders, copies):
    """Return a plan with a nest of given tiles, loops and packed copies."""
    bands = tuple(
        Band(
            level,
            tuple(i for i in loops if i in problem.sizes),
            tuple((i, side[i]) for i in problem.sizes),
        )
        for level, side, loops in zip(
            ("register", "L1", "L2", "memory"), sides, orders, strict=True
        )
    )
    found = planned(problem)
    return varied(found, nest=replace(found.nest, bands=bands, packed=copies))


@pytest.mark.grid
@pytest.mark.parametrize(
    ("spec", "cell", "copies", "idle"),
    [
        ("mn-mk-kn", {"m": 8, "n": 24, "k": 11}, ("L2", "L2"), True),
        ("mn-mk-kn", {"m": 8, "n": 24, "k": 11}, (None, None), True),
        ("mn-mk-kn", {"m": 8, "n": 24, "k": 11}, ("L2", "L1"), False),
        ("mn-mk-kn", {"m": 8, "n": 240, "k": 11}, ("L2", "L2"), False),
        ("bmn-bmk-bkn", {"b": 1, "m": 8, "n": 24, "k": 11}, ("L2", "L2"), True),
        ("bmn-bmk-bkn", {"b": 2, "m": 8, "n": 24, "k": 11}, ("L2", "L2"), False),
    ],
)
@pytest.mark.parametrize("order", ["nmkb", "mnkb", "kmnb"])
def test_a_nearest_tile_of_one_cell_is_no_level_of_its_own(spec, cell, copies, idle, order):
    """Calls are the same in the same order; what holds a copy or several cells is walked."""
    problem = Problem.of(
        spec, {i: {"b": 3, "m": 97, "n": 481, "k": 30}[i] for i in {*spec} - {"-"}}
    )
    sides = cell, cell, {"b": 2, "m": 40, "n": 480, "k": 11}, dict(problem.sizes)
    found = nested(problem, sides, (order[::-1], order, order, order[::-1]), copies)
    nest = found.nest
    [task] = Layout.of(found.solution, *check_run(found)).tasks
    assert (len(task.schedule.nest.bands) == 3) == idle
    if idle:
        without = varied(found, nest=replace(nest, bands=(nest.bands[0], *nest.bands[2:])))
        assert trace_once(found) == trace_once(without)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("tile", "around", "copies", "turns"),
    [
        ({"m": 24}, "nmkb", ("L2", "L2"), True),
        ({"n": 96}, "mnkb", ("L2", "L2"), True),
        ({"n": 96}, "bmnk", ("L2", "L2"), True),  # of batches the tile around has one
        ({"m": 24}, "nmkb", (None, "L2"), True),
        ({"m": 24}, "mnkb", ("L2", "L2"), False),  # the next column, not the next row
        ({"m": 24}, "knmb", ("L2", "L2"), False),
        ({"m": 24, "n": 96}, "nmkb", ("L2", "L2"), False),
        ({"m": 24, "k": 20}, "nmkb", ("L2", "L2"), False),
        ({"m": 24, "b": 2}, "nmkb", ("L2", "L2"), False),
        ({"m": 24}, "nmkb", ("L1", "L2"), False),
    ],
)
@pytest.mark.parametrize(
    ("order", "more"), quick_each(itertools.product(("nmkb", "mnkb", "kbmn"), (0, 5)), of=5)
)
def test_rows_of_cells_take_turns(tile, around, copies, turns, order, more, monkeypatch):
    """Calls are the same in the same order, but that cells are near-equal where edges are."""
    problem = Problem.of("bmn-bmk-bkn", {"b": 3, "m": 48 + more, "n": 384 + more, "k": 30})
    cell = {"b": 1, "m": 8, "n": 24, "k": 10}
    within = {"b": 2 if "b" in tile else 1, "m": 48, "n": 192, "k": 20}
    found = nested(
        problem,
        (cell, {**cell, **tile}, within, dict(problem.sizes)),
        (order, order, around, "kmnb"),
        copies,
    )
    [task] = Layout.of(found.solution, *check_run(found)).tasks
    nearest = dict(task.schedule.nest.bands[1].box)
    assert (nearest == {**within, "k": 10, "m" if "m" in tile else "n": tile.get("m") or 96}) == (
        turns
    )
    calls = trace_once(found)
    assert all(len(covered[i]) <= cell[i] for covered in calls for i in cell)
    if not more:
        monkeypatch.setattr(Runner, "_merge_rows", lambda _, bands, *__: bands)
        found.executor.layouts.clear()
        assert trace_once(found) == calls


@pytest.mark.grid
@pytest.mark.parametrize("spec", ["mn-mk-kn", "abcd-aebf-dfce", "bmn-bmk-bkn"])
@pytest.mark.parametrize("threads", [1, 2, 3])
@guessed_tiles(0)
def test_trace_covers_the_plan(spec, threads):
    """Every iteration is visited once, in boxes no larger than the plan's register tile."""
    problem = Problem.of(spec, 13)
    found = plan(problem, machine=make_machine(), threads=threads, cache=False)
    tile = dict(found.nest.bands[0].box)
    for covered in trace_once(found):
        for letter, indices in covered.items():
            assert len(indices) <= tile[letter]
            assert indices[-1] - indices[0] == len(indices) - 1


def test_nan_and_infinity_propagate():
    """As in numpy: only what they touch, and beta=0 forgets what out held."""
    problem = Problem.of("mn-mk-kn", 11)
    first, second = draw_operands(problem)
    first[3, 2], second[4, 5] = np.nan, np.inf
    out = poisoned(problem)
    plan(problem, machine=make_machine(), cache=False)(first, second, out)
    with np.errstate(invalid="ignore"):
        expected = first @ second
    assert np.array_equal(np.isnan(out), np.isnan(expected))
    assert np.array_equal(np.isinf(out), np.isinf(expected))


@pytest.mark.parametrize("threads", [2, 3])
@guessed_tiles(0)
def test_threads_repeat(threads):
    """The same thread count gives the same bits; several callers do not disturb each other."""
    problem = Problem.of("abcd-aebf-dfce", 9)
    operands = draw_operands(problem)
    found = plan(problem, machine=make_machine(), threads=threads, cache=False)
    expected = found(*operands)
    results = [poisoned(problem) for _ in range(4)]
    callers = [threading.Thread(target=found, args=(*operands, out)) for out in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(np.array_equal(out, expected) for out in results)
    check_result(problem, expected, reference(problem, *operands), operands)


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_end_at_a_deadline(threads):
    """One that has passed leaves the output alone, one within a run most of it; then it is over."""
    problem = Problem.of("mn-mk-kn", 1200)
    operands = draw_operands(problem)
    found = plan(problem, machine=make_machine(), threads=threads, cache=False)
    out = poisoned(problem)
    with deadline(0) as met:
        while not met():
            pass
        found(*operands, out)
    assert np.isnan(out).all()
    with deadline(0.001) as met:
        found(*operands, out)
    assert met()
    expected = operands[0] @ operands[1]
    assert not np.allclose(out, expected)
    with deadline(600) as met:
        found(*operands, out)
    assert not met()
    check_result(problem, out, expected, operands)


@guessed_tiles(0)
def test_new_plans_compile_nothing():
    """Code depends on the dtype and the vectors only."""
    first = Problem.of("mn-mk-kn", 20)
    plan(first, machine=make_machine(), cache=False)(*draw_operands(first))
    functions = set(compiled._loaded)
    families = set(kernel_cache._loaded)
    for spec in ("abcd-aebf-dfce", "bmn-bmk-bkn", "a-ab-b"):
        problem = Problem.of(spec, 7)
        plan(problem, machine=make_machine(), cache=False)(*draw_operands(problem))
    assert set(compiled._loaded) == functions
    assert set(kernel_cache._loaded) == families


def test_damaged_code_is_made_again(tmp_path, kept_functions):
    """A file that is not whole never runs."""
    (tmp_path / "functions").symlink_to(kept_functions)
    script = (
        "import numpy as np, tilesolve\n"
        "p = tilesolve.plan('ik-ij-jk', 5, 'i7-6700k', dtype='complex128', cache=False)\n"
        "ones = np.ones((5, 5), complex)\n"
        "assert (p(ones, ones) == 5).all()\n"
    )
    for damage in (False, True):
        for path in (tmp_path / "code").glob("*.o") if damage else ():
            path.write_bytes(path.read_bytes()[:-7])
        done = run_python("-c", script, env={"TILESOLVE_CACHE_DIR": str(tmp_path), "PATH": ""})
        assert done.returncode == 0, done.stderr
        assert ("is damaged" in done.stderr) == damage


@cache
def product_plan():
    """Return the plan that wrong arguments are given to."""
    return plan("ik-ij-jk", "i=3 j=4 k=5", "i7-6700k", cache=False)


def bad(**changes):
    """Return the arguments of a call that is wrong in one way."""
    good = {"first": np.ones((3, 4)), "second": np.ones((4, 5)), "out": np.zeros((3, 5))}
    return {**good, **changes}


SHARED = np.zeros((20, 20))
READ_ONLY = np.zeros((3, 5))
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"first": np.ones((3, 5))}, SizeError, "5"),
        ({"first": np.ones((3, 4), np.float32)}, DtypeError, "operand A .* float32"),
        ({"first": np.ones((3, 4), ">f8")}, DtypeError, "operand A"),
        ({"out": np.zeros((3, 6))}, SizeError, "6 for 'k'.* 5"),
        ({"out": np.zeros(15)}, SizeError, r"\(15,\)"),
        ({"out": np.zeros((3, 5), np.float32)}, DtypeError, "out .*float32"),
        ({"out": [[0.0] * 5] * 3}, DtypeError, "list"),
        ({"out": READ_ONLY}, PlanError, "read-only"),
        ({"out": np.broadcast_to(np.zeros(5), (3, 5))}, PlanError, "read-only"),
        ({"first": SHARED[:3, :4], "out": SHARED[2:5, 2:7]}, PlanError, "operand A"),
        ({"second": SHARED[:4, :5], "out": SHARED[2:5, 2:7]}, PlanError, "operand B"),
        ({"first": np.ones((3, 4), np.int64)}, DtypeError, "operand A"),
        ({"out": np.zeros((3, 5), np.int64)}, DtypeError, "out"),
        ({"alpha": 1j}, DtypeError, "alpha"),
        ({"beta": "2"}, DtypeError, "beta"),
        ({"out": None, "beta": 1}, PlanError, "beta"),
    ],
)
def test_bad_input(changes, error, words):
    """Each mistake is named, and out stays as it was, also after calls that went well."""
    arguments = bad(**changes)
    kept = np.array(arguments["out"]) if arguments["out"] is not None else None
    product_plan()(**bad())
    product_plan()(np.ones((3, 4)), np.ones((4, 5)))
    with pytest.raises(error, match=words):
        product_plan()(**arguments)
    assert kept is None or np.array_equal(arguments["out"], kept)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))]
)
def test_copies_of_plans_know_nothing_of_arrays(copied):
    """What a plan worked out for arrays has addresses in it, which another process has not."""
    problem = Problem.of("abc-bda-dc", {"a": 9, "b": 10, "c": 11, "d": 12})
    operands, out = draw_operands(problem), poisoned(problem)
    found = plan(problem, machine=make_machine(), threads=1, cache=False)
    found(*operands, out)
    assert found.executor.layouts
    other = copied(found)
    assert other == found
    assert not other.executor.layouts
    assert not other.executor.recent
    del found
    check_run(other, operands)


def test_layouts_are_bounded_by_their_bytes(monkeypatch):
    """Those not used for longest go; the last one stays, however large; results stay right."""
    problem = Problem.of("mn-mk-kn", "m=6 n=7 k=8")
    found = plan(problem, machine=make_machine(), cache=False)
    first, second = draw_operands(problem)
    store = found.executor.layouts

    def call(gap):
        room = np.zeros((6, 7 + gap))[:, :7]
        found(first, second, room)
        check_result(problem, room, first @ second, (first, second))
        return next(key for key, layout in store.items() if layout.used == last_use(store))

    one = call(1)
    size = store[one].nbytes
    assert size > sum(
        box.nbytes for task in store[one].tasks for box in task.boxes.tables[0].tables
    )
    monkeypatch.setattr(execution, "MAX_LAYOUT_BYTES", 2 * size + size // 2)
    two, three = call(2), call(3)
    assert list(store) == [one, two, three]
    call(1)
    four = call(4)
    assert set(store) == {one, three, four}
    monkeypatch.setattr(execution, "MAX_LAYOUT_BYTES", 0)
    five = call(5)
    assert list(store) == [five]


def last_use(store):
    return max(layout.used for layout in store.values())


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_numbers_of_any_kind_are_factors(dtype):
    """Python's and numpy's integers, booleans and floats, complex ones where the problem is."""
    problem = Problem.of("mn-mk-kn", 3, dtype)
    found = plan(problem, machine=make_machine(), cache=False)
    operands = draw_operands(problem)
    product = reference(problem, *operands)
    factors = [2, True, 2.5, np.float32(2.5), np.int8(-2), np.array(3), 2 + 0j]
    factors += [Fraction(1, 2), 2**64, np.longdouble(2), *[1 - 2j] * (dtype == "complex128")]
    for factor in factors:
        out = np.ones((3, 3), dtype)
        found(*operands, out, alpha=factor, beta=factor)
        wide = product.dtype.type(complex(factor) if dtype == "complex128" else factor.real)
        check_result(problem, out, wide * product + wide, operands, scale=8 * max(1, abs(wide)))
    out = np.ones((3, 3), dtype)
    with pytest.raises(DtypeError, match="alpha"):
        found(*operands, out, alpha=10**400)
    found(*operands, out, beta=np.nan)
    assert np.all(np.isnan(out))


@pytest.mark.parametrize(
    ("spec", "which"),
    [("ik-ij-jk", (1,)), ("ik-ji-kj", (2,)), ("ik-ij-kj", (1, 2)), ("ik-ij-jk", (0, 1, 2))],
)
def test_arrays_that_lie_backwards_are_packed_as_others(spec, which):
    """An array that is contiguous backwards is copied or turned, as one that is so forwards."""
    problem = Problem.of(spec, 16)
    found = plan(problem, machine=make_machine(), cache=False)
    forwards = [np.empty(shape).strides for shape in problem.shapes]
    backwards = [
        tuple(-step for step in steps) if at in which else steps
        for at, steps in enumerate(forwards)
    ]
    usual, other = (Task.of(found.solution, problem, {}, steps) for steps in (forwards, backwards))
    assert other.schedule.pack_kinds == usual.schedule.pack_kinds
    assert KIND_GATHER not in other.schedule.pack_kinds


def test_other_numbers_of_operands():
    """Solutions of one or three operands can be priced, not run."""
    found = Plan(solve(Problem.of("ij-ji", 4), Machine.load("i7-6700k"), 1, Demand()))
    with pytest.raises(PlanError, match="1 operands"):
        found(np.ones((4, 4)), np.ones((4, 4)))


def test_large_classes_are_walked_in_boxes():
    """More indices of one role than are tabulated at once."""
    problem = Problem.of("m-mk-k", "m=200001 k=3")
    check_run(plan(problem, machine=make_machine(), cache=False))
    problem = Problem.of("abc-ad-dbc", "a=2 b=300 c=301 d=2")
    check_run(plan(problem, machine=make_machine(512, 32), cache=False))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_soak(part):
    """Thousands of random problems, in parts that can be run by themselves."""

    @seed(part)
    @settings(unshrunk, max_examples=75, suppress_health_check=list(HealthCheck))
    @given(
        problems(specs(operands=2, diagonal=False), least=0, most=14),
        st.sampled_from((*WIDTHS, MANY_REGISTERS)),
        st.integers(1, 3),
    )
    def runs(problem, width, threads):
        check_run(plan(problem, machine=make_machine(*width), threads=threads, cache=False))

    runs()


@pytest.mark.parametrize("factor", [10**400, "1", None, [1.0], 1j])
def test_what_is_no_factor_of_real_numbers(factor):
    """Beyond all floats, no number, or not real."""
    found = plan("ik-ij-jk", 4, "i7-6700k", cache=False)
    first = np.ones((4, 4))
    for name in ("alpha", "beta"):
        out = np.full((4, 4), 7.0)
        with pytest.raises(DtypeError, match=name):
            found(first, first, out=out, **{name: factor})
        assert (out == 7).all()
