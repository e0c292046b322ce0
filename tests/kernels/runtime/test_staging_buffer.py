"""C past the caches by way of a room: outputs that begin or end amid lines, of any extents."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from guessed_tiles import guess_plan
from hypothesis import given
from hypothesis import strategies as st
from running_cases import (
    WIDTHS,
    check_result,
    check_run,
    draw_operands,
    make_shallow_machine,
    varied,
)
from strategies import problems, specs, unshrunk
from turns import examples

from tilesolve import Problem, plan, reference
from tilesolve.constants import tuning
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.codegen.unrolling import prefetches_columns_of_c
from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.microkernel_costs import default_tile
from tilesolve.kernels.runtime import call_fields, copy_lines
from tilesolve.model.fused import fuse
from tilesolve.model.nest import Nest
from tilesolve.packing import table_fields
from tilesolve.packing.offset_tables import offset_table
from tilesolve.packing.offsets import RoleTile, build_axis
from tilesolve.packing.sizes import LINE_BYTES, VECTOR_BYTES
from tilesolve.planning.letter_boxes import box_letters
from tilesolve.running import schedule
from tilesolve.running.execution import Layout

GUARD = 5 * LINE_BYTES


@pytest.fixture(autouse=True, scope="module")
def short_sums_are_staged():
    """Short sums go through the buffer, as if no calls prefetched columns of C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "prefetches_columns_of_c", lambda _: False)
        yield


def placed(shape, dtype, offset):
    """Return a poisoned array so many bytes behind a line's beginning, and all memory around it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(size + 2 * GUARD + LINE_BYTES, 0xFF, np.uint8)
    begin = GUARD + -memory.ctypes.data % LINE_BYTES + offset
    return memory[begin : begin + size].view(dtype).reshape(shape), memory, begin


def streamed(problem, bits, registers):
    """Return a plan that writes C past the caches wherever it can."""
    found = guess_plan(problem, 0, machine=make_shallow_machine(bits, registers), threads=1)
    return varied(found, output="stream")


def run_at(found, offset):
    """Run a plan into memory at an offset; hold the result to the reference, and what is around."""
    problem = found.problem
    out, memory, begin = placed(problem.shapes[0], problem.dtype, offset)
    check_run(found, out=out)
    assert (memory[:begin] == 0xFF).all()
    assert (memory[begin + out.nbytes :] == 0xFF).all()


def modes_at(found, offset):
    """Return in which ways a plan's calls write to memory at an offset."""
    out, *_ = placed(found.problem.shapes[0], found.problem.dtype, offset)
    arrays = (out, *draw_operands(found.problem))
    tasks = Layout.of(found.solution, *arrays[1:], out).tasks
    return {int(row[7]) for task in tasks for _, row in task.trace(arrays)}


@examples(12, 25, unshrunk)
@given(
    problems(specs(operands=2, diagonal=False), most=9),
    st.sampled_from(WIDTHS),
    st.integers(0, LINE_BYTES - 1),
    st.integers(0, 999),
)
def test_any_problem_at_any_place(problem, width, offset, tiles):
    """Also where arrays begin amid elements, however short the runs are, whatever the tiles."""
    found = guess_plan(problem, tiles, machine=make_shallow_machine(*width), threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MIN_STAGED_RUN_BYTES", 0)
        run_at(varied(found, output="stream"), offset)


@pytest.mark.grid
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_around_vectors_and_rooms(width, dtype, monkeypatch):
    """Extents around whole vectors, and runs that leave the room in parts or all at once."""
    size = np.dtype(dtype).itemsize
    for m, n in ((3, 130), (40, 7), (40, 9), (40, 17), (40, 23), (150, 24), (150, 49), (40, 72)):
        found = streamed(Problem.of("mn-mk-kn", {"m": m, "n": n, "k": 5}, dtype), *width)
        for least, offset in (
            (0, size),
            (0, LINE_BYTES - size),
            (tuning.MIN_STAGED_RUN_BYTES, 3 * size % LINE_BYTES),
        ):
            monkeypatch.setattr(tuning, "MIN_STAGED_RUN_BYTES", least)
            run_at(varied(found), offset)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("abcd-eb-aecd", "a=3 b=9 c=11 d=72 e=6"),  # rows of several letters, side by side
        ("abcd-ec-abed", "a=2 b=5 c=17 d=72 e=6"),  # columns go on where all rows end
        ("abcdef-dega-gfbc", "a=3 b=2 c=4 d=5 e=16 f=16 g=7"),  # columns go on where a cell ends
        ("abcdef-dfga-gebc", "a=2 b=2 c=3 d=6 e=16 f=16 g=7"),  # a cell has several runs
        ("abcdef-efga-gdbc", "a=2 b=2 c=5 d=12 e=16 f=16 g=7"),  # many columns keep their ends
        ("abcdef-efga-gdbc", "a=2 b=2 c=5 d=11 e=15 f=17 g=7"),
        ("abc-bda-dc", "a=31 b=9 c=24 d=11"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_runs_of_every_kind(spec, sizes, dtype):
    """Rows and columns of tiles are side by side in C in more than one way."""
    for width in WIDTHS[1:]:
        found = streamed(Problem.of(spec, sizes, dtype), *width)
        for offset in (0, 4, 16, 60):
            run_at(found, offset)


@pytest.mark.grid
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("n", [9, 10, 17])
def test_last_vectors_spoil_nothing(width, dtype, n, monkeypatch):
    """Cells of rows that are side by side in C all end amid a vector, of complex numbers amid two.

    What the vector has beyond them must not come to lie where another column begins.
    """
    monkeypatch.setattr(tuning, "MIN_STAGED_RUN_BYTES", 0)
    problem = Problem.of("cbn-ck-kbn", {"c": 20, "b": 9, "n": n, "k": 5}, dtype)
    run_at(streamed(problem, *width), 16)


@pytest.mark.grid
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("offset", [0, 3, 8, 16, 32, 48, 56])
def test_long_runs_go_past_the_caches(width, offset, monkeypatch):
    """All calls for one output go the same way: to have a line on both ways would be slow.

    Vectors go as they are from where they are aligned, in pieces from where these are, and from
    anywhere else by the staging buffer.
    """
    monkeypatch.setattr(tuning, "MAX_RUNS_IN_PIECES", tuning.MAX_TILE_COLUMNS)
    monkeypatch.setattr(tuning, "MIN_VECTORS_BEHIND_LEAD", 1 << 20)
    problem = Problem.of("mn-mk-kn", {"m": 40, "n": 72, "k": 5})
    whole = offset % (width[0] // 8) == 0
    pieces = not whole and offset % VECTOR_BYTES == 0
    expected = Mode.STREAM_PIECES if pieces else Mode.STREAM
    assert modes_at(streamed(problem, *width), offset) == {expected}
    monkeypatch.setattr(tuning, "MIN_STAGED_RUN_BYTES", 1 << 20)
    through = modes_at(streamed(problem, *width), offset)
    assert through == ({Mode.STREAM} if whole else {Mode.STORE})


@examples(15, 40, unshrunk)
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from(["float32", "float64", "complex64", "complex128", "float16"]),
    st.tuples(st.integers(-1, 1), st.integers(-1, 1), st.integers(0, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 16), st.integers(0, 16), st.integers(0, 16)),
    st.sampled_from([0.0, 1.0, -0.5]),
)
def test_around_register_tiles_at_any_elements(width, dtype, sides, tiles, offsets, beta):
    """A, B and C begin so many elements behind a line, and what is around C stays as it was."""
    columns, rows = default_tile(dtype, *width)[1], lanes(summed_dtype(dtype), width[0])
    m, n = tiles[0] * columns + sides[0], tiles[1] * rows + sides[1]
    problem = Problem.of("mn-mk-kn", {"m": max(1, m), "n": max(1, n), "k": 1 + sides[2]}, dtype)
    given, size = draw_operands(problem), problem.itemsize
    first, second = (
        placed(one.shape, one.dtype, size * at % LINE_BYTES)[0]
        for one, at in zip(given, offsets, strict=False)
    )
    first[...], second[...] = given
    out, memory, begin = placed(problem.shapes[0], first.dtype, size * offsets[2] % LINE_BYTES)
    before = np.zeros_like(out)
    if beta:
        before[...] = out[...] = np.random.default_rng(m).uniform(-1, 1, out.shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MIN_STAGED_RUN_BYTES", 0)
        streamed(problem, *width)(first, second, out=out, beta=beta)
    check_result(problem, out, reference(problem, *given) + beta * before, given)
    assert (memory[:begin] == 0xFF).all()
    assert (memory[begin + out.nbytes :] == 0xFF).all()


def test_pieces_leave_from_registers_after_short_sums(monkeypatch):
    """After longer ones, and at other places, C goes through the staging buffer, in whole lines."""
    monkeypatch.setattr(tuning, "MAX_RUNS_IN_PIECES", tuning.MAX_TILE_COLUMNS)
    sizes = {"m": 40, "n": 72, "k": 5}
    found = streamed(Problem.of("mn-mk-kn", sizes), 256, 16)
    assert modes_at(found, 0) == {Mode.STREAM}
    assert modes_at(found, 8) == {Mode.STREAM}
    assert modes_at(found, 48) == {Mode.STREAM_PIECES}
    long = Problem.of("mn-mk-kn", sizes | {"k": tuning.MIN_STEPS_TO_PREFETCH_C})
    assert Mode.STREAM_PIECES not in modes_at(streamed(long, 256, 16), 48)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_tiles_of_many_runs_leave_as_whole_lines(width):
    """Each run that leaves in pieces has a line written in part until the next call."""
    group = lanes("float64", width[0])
    few, many = {"m": 288, "n": group, "k": 5}, {"m": 40, "n": 72, "k": 5}
    for sizes, expected in ((few, Mode.STREAM_PIECES), (many, Mode.STREAM)):
        found = streamed(Problem.of("mn-mk-kn", sizes), *width)
        assert modes_at(found, 16) == {expected}
        run_at(found, 16)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("more", [-1, 0])
def test_short_sums_whose_lines_are_prefetched_go_through_the_caches(width, more, monkeypatch):
    """Wide kernels prefetch them; narrow ones, and longer sums, go through the staging buffer."""
    monkeypatch.setattr(schedule, "prefetches_columns_of_c", prefetches_columns_of_c)
    monkeypatch.setattr(tuning, "MIN_VECTORS_BEHIND_LEAD", 1 << 20)
    monkeypatch.setattr(tuning, "MIN_STAGED_RUN_BYTES", 0)
    steps = tuning.MIN_STEPS_TO_PREFETCH_C + more
    found = streamed(Problem.of("mn-mk-kn", {"m": 40, "n": 720, "k": steps}), *width)
    level = found.solution.nest.bands[1].level
    nest = replace(found.solution.nest, packed=(level, level))
    found = varied(found, nest=nest)
    fetched = width[0] == tuning.WIDE_VECTOR_BITS and more < 0
    assert (Mode.STREAM in modes_at(found, 8)) != fetched
    run_at(found, 8)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_many_runs_that_end_amid_vectors_go_through_the_caches(width, monkeypatch):
    """Few runs, and those of whole vectors alone, go through the staging buffer."""
    monkeypatch.setattr(tuning, "MAX_RUNS_IN_PIECES", 1)
    whole, ragged = ({"m": 40, "n": 720 + rest, "k": 5} for rest in (0, 1))
    found = streamed(Problem.of("mn-mk-kn", whole), *width)
    assert modes_at(found, 8) == {Mode.STREAM}
    found = streamed(Problem.of("mn-mk-kn", ragged), *width)
    assert Mode.STREAM not in modes_at(found, 8)
    run_at(found, 8)
    monkeypatch.setattr(tuning, "MAX_RUNS_IN_PIECES", tuning.MAX_TILE_COLUMNS)
    found = streamed(Problem.of("mn-mk-kn", ragged), *width)
    assert Mode.STREAM in modes_at(found, 8)
    run_at(found, 8)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_runs_leave_as_whole_lines_behind_the_first(width, dtype, monkeypatch):
    """Tiles begin at C's lines, wherever it begins: what lies before and after has masks."""
    monkeypatch.setattr(tuning, "MAX_RUNS_IN_PIECES", 0)
    group, size = lanes(dtype, width[0]), np.dtype(dtype).itemsize
    n = tuning.MIN_VECTORS_BEHIND_LEAD * group
    long, short, ragged = (
        streamed(Problem.of("mn-mk-nk", {"m": 17, "n": many, "k": 5}, dtype), *width)
        for many in (n, n - group, n + 1)
    )
    for offset in (0, 2 * size, 16, LINE_BYTES - size):
        amid = offset % (group * size) > 0
        found = modes_at(long, offset)
        assert found == ({Mode.STREAM, Mode.PART} if amid else {Mode.STREAM})
        assert (Mode.PART in modes_at(short, offset)) == (Mode.PART in modes_at(short, 0))
        run_at(long, offset)
    run_at(ragged, 16)


@examples(15, 60, unshrunk)
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from(["float32", "float64", "complex64"]),
    st.sampled_from(["abn-ak-bkn", "ban-nkb-ak", "abn-bak-kn", "nab-nk-kab"]),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 8), st.integers(1, 70)),
    st.integers(0, LINE_BYTES),
    st.integers(0, 999),
)
def test_tiles_behind_a_line_at_any_place(width, dtype, spec, sizes, offset, tiles):
    """Runs of one vector and more, whatever the tiles are, and C may lie elsewhere next time."""
    a, b, vectors, k = sizes
    n = vectors * lanes(dtype, width[0])
    problem = Problem.of(spec, {"a": a, "b": b, "n": n, "k": k}, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MIN_VECTORS_BEHIND_LEAD", 1)
        found = guess_plan(problem, tiles, machine=make_shallow_machine(*width), threads=1)
        found = varied(found, output="stream")
        for place in (offset, offset % VECTOR_BYTES, offset // VECTOR_BYTES * VECTOR_BYTES):
            run_at(found, place)


@pytest.mark.parametrize("width", WIDTHS)
def test_short_runs_go_through_them(width):
    """The output's unit stride is short, and its next letter is far away."""
    problem = Problem.of("abn-ak-bkn", {"a": 40, "b": 30, "n": 8, "k": 5})
    found = streamed(problem, *width)
    arrays = (np.zeros((40, 30, 9))[..., :8], *draw_operands(problem))
    tasks = Layout.of(found.solution, *arrays[1:], arrays[0]).tasks
    modes = {int(row[7]) for task in tasks for _, row in task.trace(arrays)}
    assert Mode.STREAM not in modes


def test_sums_in_several_pieces_come_back():
    """Only what is written for the first time leaves; what is added to it is in the caches."""
    problem = Problem.of("mn-mk-kn", {"m": 40, "n": 255, "k": 3000})
    found = streamed(problem, 256, 16)
    run_at(found, 16)


@given(st.data())
def test_runs_are_released_in_any_parts(data):
    """Parts of a run, kept from one to the next, come to the same as a copy of all of it.

    But for the last one they have a line at least.
    """
    parts = [
        *data.draw(st.lists(st.integers(LINE_BYTES, 300), max_size=5)),
        data.draw(st.integers(1, 300)),
    ]
    bounds = np.cumsum([0, *parts]).tolist()
    length = bounds[-1]
    source = np.random.default_rng(length).integers(0, 255, length, np.uint8)
    target, memory, begin = placed((length,), np.uint8, data.draw(st.integers(0, LINE_BYTES - 1)))
    way = data.draw(st.sampled_from([copy_lines.WHOLE_LINES, copy_lines.ALL_LINES]))
    room, kept = np.zeros(length + 3 * LINE_BYTES, np.uint8), np.zeros(2 * LINE_BYTES, np.uint8)
    for low, high in pairwise(bounds):
        shift = data.draw(st.integers(LINE_BYTES, 2 * LINE_BYTES))
        room[:] = 0xAA
        room[shift : shift + high - low] = source[low:high]
        before, after = (kept.ctypes.data if inner else 0 for inner in (low > 0, high < length))
        address = room.ctypes.data + shift
        copy_lines.flush_run(address, target.ctypes.data + low, high - low, way, before, after)
    assert (target == source).all()
    assert (memory[:begin] == 0xFF).all()
    assert (memory[begin + length :] == 0xFF).all()


@given(st.lists(st.integers(1, 4), max_size=12), st.integers(1, 6))
def test_steady_indices_are_counted(steps, cell):
    """For each index: how many follow each other at the distance of it and the next one."""
    offsets = np.cumsum([0, *steps]) * 8
    sides = (len(offsets),)
    axis = build_axis([RoleTile("m", (cell,)), RoleTile("m", sides)], [{"m": 8}, {"m": 8}, {}])
    axis = replace(axis, offsets=(offsets, *axis.offsets[1:]))
    found = offset_table(axis, operand=1, group=4, element=8)
    at = found[table_fields.STEADY]
    for index in range(len(offsets)):
        rest = np.diff(offsets[index:])
        count = 1 + (int(np.argmin(np.append(rest == rest[0], False))) if len(rest) else 0)
        assert found[at + index] == count


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("abcd-eb-aecd", "a=72 b=72 c=72 d=72 e=72"),
        ("abcdef-degb-gfac", "a=24 b=16 c=16 d=24 e=16 f=16 g=24"),
        ("abcde-efbad-cf", "a=48 b=32 c=24 d=32 e=48 f=32"),
    ],
)
def test_the_nearest_tile_is_walked_along_c(spec, sizes):
    """Within each class of letters, those that are nearer to unit stride in C come first."""
    found = plan(spec, sizes, "i7-6700k", cache=False)
    assert found.output == "stream"
    output, *operands = (tensor.letters for tensor in found.problem.spec.tensors)
    for operand in operands:
        inner, band = found.nest.bands[:2]
        running = [i for i in band.order if band[i] > inner[i]]
        order = [i for i in running if i in operand and i in output]
        assert order == sorted(order, key=output.index, reverse=True)


@pytest.mark.parametrize("avoids", [False, True])
def test_runs_that_are_cut_off_come_last_where_c_goes_through_the_caches(avoids):
    """Else steps along C would be of two lengths, which hardware does not follow."""
    problem = Problem.of("abcde-efbad-cf", "a=48 b=32 c=24 d=32 e=48 f=32")
    fused = fuse(problem)
    classes = [
        ("register", "NMK", {"M": 8, "N": 6, "K": 32}),
        ("L2", "MNK", {"M": 512, "N": 24, "K": 32}),
        ("memory", "MNK", dict(fused.problem.sizes)),
    ]
    nest = replace(Nest.of(fused.problem, classes), output="stream")
    boxes = box_letters(problem, fused, nest, LINE_BYTES, 4, avoids_aliased_stores=avoids)
    cell, tile = (dict(band.box) for band in boxes.bands[:2])
    assert cell["c"] > 1  # its columns are whole pages apart
    assert cell["e"] < tile["e"] < 48
    assert [i for i in boxes.bands[1].order if i in "ed"] == ["d", "e"][:: 1 if avoids else -1]


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_read_amid_lines_is_read_in_place(width):
    """Wherever an operand begins: the same layout serves every call."""
    problem = Problem.of("abc-bda-dc", {"a": 160, "b": 10, "c": 8, "d": 60})
    found = plan(problem, machine=make_shallow_machine(*width), threads=1, cache=False)
    found = varied(found, nest=replace(found.nest, packed=(None, found.nest.bands[1].level)))
    first, second = draw_operands(problem)
    for offset in (0, 16, 3, 8):
        moved, *_ = placed(first.shape, problem.dtype, offset)
        moved[...] = first
        check_run(found, (moved, second))
    (layout,) = found.executor.layouts.values()
    side = int(layout.tasks[0].words[call_fields.SWAPPED])
    assert not layout.tasks[0].schedule.packed[side]
