"""Transposes: every element where numpy puts it, nothing else touched, mistakes named."""

import itertools
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import run_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turns import WHOLE, examples, in_turn

from tilesolve import transpose
from tilesolve.constants import policy
from tilesolve.contractions.errors import (
    DtypeError,
    MachineError,
    PlanError,
    SettingError,
    SizeError,
)
from tilesolve.kernels.ir import transpose_blocks
from tilesolve.kernels.runtime import walk_fields
from tilesolve.machine.costs import Costs
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.transposes import tiles, walk_setup
from tilesolve.transposes.limits import Limits, limits_in_force

DTYPES = (
    "?",
    "i1",
    "u2",
    "f2",
    "f4",
    ">f4",
    "c8",
    "f8",
    "c16",
    "M8[s]",
    "S3",
    "U5",
    "i4,f8",
    "V64",
)
LIMITS = Limits(
    register_bytes=2048,
    stores_whole_lines=True,
    near_bytes=0,
    last_cache_bytes=1 << 24,
    way_bytes=1 << 17,
    ways=8,
)
SPANS = {"usual": (2048, 1 << 20), "small": (64, 2048), "smallest": (16, 256)}
"""How far runs and tiles reach: a short reach has small arrays walked as large ones are."""


@pytest.fixture
def reach(monkeypatch):
    """Return a function that sets how far tiles reach, where lines go, and what registers hold."""

    def chosen(span, streamed, conflicts=False, register_bytes=2048, held=False, lines=True):
        walk_setup.walk_between.cache_clear()
        run_bytes, tile_bytes = SPANS[span]
        found = Limits(
            register_bytes=register_bytes,
            stores_whole_lines=lines,
            near_bytes=1 << 40 if held else 0,
            last_cache_bytes=0 if streamed else 1 << 40,
            way_bytes=1 << 17,
            ways=0.001 if conflicts else 8,
        )
        monkeypatch.setattr(policy, "TRANSPOSE_RUN_BYTES", run_bytes)
        monkeypatch.setattr(policy, "TRANSPOSE_TILE_BYTES", tile_bytes)
        monkeypatch.setattr(walk_setup, "limits_in_force", lambda: found)

    yield chosen
    walk_setup.walk_between.cache_clear()


def drawn(shape, dtype, seed=0):
    """Return an array of random bytes."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(shape)


def same(found, expected):
    """Whether two arrays have the same shape, dtype and bytes, NaN or not."""
    return (found.shape, found.dtype) == (expected.shape, expected.dtype) and (
        found.tobytes() == expected.tobytes()
    )


def guarded(shape, dtype, how):
    """Return an array of a layout, and the bytes around and between its elements."""
    dtype = np.dtype(dtype)
    order = sorted(range(len(shape)), key=lambda axis: how["order"][axis])
    gaps = how["gaps"][: len(shape)]
    strides, step = [0] * len(shape), dtype.itemsize
    for axis, gap in zip(order, gaps, strict=False):
        strides[axis] = step * gap
        step = strides[axis] * max(1, shape[axis])
    room = np.full(step + 256, 0xA5, np.uint8)
    array = np.ndarray(shape, dtype, room, 128 + how["shift"], strides)
    turned = tuple(slice(None, None, -1 if flip else 1) for flip in how["flips"][: len(shape)])
    return array[(*turned, ...)], room


def transpose_amid_guards(a, axes, shift, *, streamed=False, threads=1, **more):
    """Transpose to so many bytes after a line; return the walk, having looked at what is around."""
    expected = a.transpose(axes)
    room = np.full(a.nbytes + 512, 0xA5, np.uint8)
    begin = 128 - room.ctypes.data % 64 + shift
    out = np.ndarray(expected.shape, a.dtype, room, begin)
    assert same(transpose(a, axes, out, threads=threads), expected)
    assert (room[:begin] == 0xA5).all()
    assert (room[begin + a.nbytes :] == 0xA5).all()
    strides, limits = (out.strides, expected.strides), walk_setup.limits_in_force()
    return walk_setup.walk_between(
        out.shape, *strides, a.itemsize, 1, limits, streamed=streamed, **more
    ).table


LAYOUTS = st.fixed_dictionaries(
    {
        "order": st.permutations(range(5)),
        "gaps": st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=5, max_size=5),
        "flips": st.lists(st.booleans(), min_size=5, max_size=5),
        "shift": st.integers(0, 70),
    }
)


@examples(40, 300, settings(suppress_health_check=list(HealthCheck)))
@given(st.data())
def test_any_axes_of_any_layout(reach, data):
    """Elements go where numpy puts them; the bytes around the output and the array stay."""
    reach(
        data.draw(st.sampled_from(sorted(SPANS))),
        data.draw(st.booleans()),
        data.draw(st.booleans()),
        data.draw(st.sampled_from([128, 256, 512, 2048])),
        data.draw(st.booleans()),
        data.draw(st.booleans()),
    )
    extents = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31])
    shape = tuple(data.draw(st.lists(extents, max_size=4)))
    if np.prod(shape) > 20_000:
        shape = shape[:2]
    axes = data.draw(st.none() | st.permutations(range(len(shape))))
    dtype = data.draw(st.sampled_from(DTYPES))
    values = drawn(shape, dtype)
    a, room = guarded(shape, dtype, data.draw(LAYOUTS))
    a[...] = values
    expected = np.transpose(values, axes)
    kept = room.copy()
    a.flags.writeable = False
    threads = data.draw(st.integers(1, 3))

    fresh = transpose(a, axes, threads=threads)
    assert fresh.flags.c_contiguous
    assert same(fresh, expected)

    out, room_out = guarded(expected.shape, dtype, data.draw(LAYOUTS))
    untouched = room_out.copy()
    assert transpose(a, axes, out, threads=threads) is out
    assert same(out, expected)
    assert np.array_equal(room, kept)
    begin = out.ctypes.data - room_out.ctypes.data
    np.ndarray(out.shape, out.dtype, untouched, begin, out.strides)[...] = out
    assert np.array_equal(room_out, untouched)


@pytest.mark.grid
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 12])
@pytest.mark.parametrize("span", sorted(SPANS))
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("registers", [256, 512, 2048])
@WHOLE
def test_around_block_sizes(reach, size, span, streamed, registers, whole):
    """One less, exactly, and one more than the sides of blocks and of tiles."""
    reach(span, streamed, register_bytes=registers)
    pairs = itertools.product([1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33], repeat=2)
    turn = sorted(SPANS).index(span) + 2 * streamed + registers.bit_length()
    for rows, columns in in_turn(pairs, turn, whole):
        a = drawn((rows, columns), f"V{size}")
        assert same(transpose(a), a.T)
        b = drawn((3, rows, 2, columns), f"V{size}")
        assert same(transpose(b, (3, 2, 1, 0)), b.transpose(3, 2, 1, 0))
        assert same(transpose(b, (1, 0, 3, 2)), b.transpose(1, 0, 3, 2))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_larger_than_a_tile(threads):
    """Arrays of many tiles, in every order of three and some of six axes."""
    a = drawn((67, 130, 129), "f8")
    for axes in itertools.permutations(range(3)):
        assert same(transpose(a, axes, threads=threads), a.transpose(axes))
    b = drawn((9, 7, 6, 8, 5, 11), "c8")
    for axes in ((5, 4, 3, 2, 1, 0), (1, 0, 3, 2, 5, 4), (0, 2, 1, 5, 3, 4), (3, 0, 4, 1, 5, 2)):
        assert same(transpose(b, axes, threads=threads), b.transpose(axes))


def test_streamed_lines():
    """Beyond the last cache, lines go past it; rows that begin within a line are whole, too."""
    a = drawn((1201, 1023), "f8")
    with pytest.MonkeyPatch.context() as patch:
        here = replace(walk_setup.limits_in_force(), last_cache_bytes=1 << 20)
        patch.setattr(walk_setup, "limits_in_force", lambda: here)
        assert same(transpose(a), a.T)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16"])
@pytest.mark.parametrize("extent", [16, 17])
@pytest.mark.parametrize("lines", [False, True])
def test_many_axes_of_one_extent(reach, dtype, extent, lines):
    """Six axes, streamed; strides that are powers of two have a run's source on a few lines."""
    reach("usual", True, lines=lines)
    a = drawn((extent, extent, 3, extent, 2, extent), dtype)
    for axes in ((5, 4, 3, 2, 1, 0), (1, 0, 3, 2, 5, 4), (3, 5, 0, 4, 1, 2)):
        assert same(transpose(a, axes), a.transpose(axes))
    b = drawn((64, 16, 256), dtype)
    assert same(transpose(b), b.T)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16", "V12"])
@pytest.mark.parametrize("shift", [0, 1, 37])
def test_ends_of_runs_that_next_tiles_go_on_from(reach, dtype, shift):
    """Parts of lines that one tile keeps for the next arrive, and nothing beside the output."""
    reach("small", True)
    for shape in ((130, 67), (9, 5, 131), (3, 21, 7, 35)):
        a = drawn(shape, dtype)
        for axes, threads in itertools.product(itertools.permutations(range(a.ndim)), (1, 3)):
            transpose_amid_guards(a, axes, shift, threads=threads)


@pytest.mark.parametrize("size", [3, 12, 36, 63, 64, 65, 127, 128, 129, 200, 257, 392, 1184])
@pytest.mark.parametrize("streamed", [False, True])
def test_elements_of_any_size(reach, size, streamed):
    """Bytes that stay together arrive whole, and nothing beside them, wherever a line begins."""
    reach("usual", streamed)
    a = drawn((19, 5, 33, size), "u1")
    for axes, shift in itertools.product(((1, 0, 2, 3), (2, 1, 0, 3), (0, 2, 1, 3)), (0, 1, 6, 52)):
        transpose_amid_guards(a, axes, shift)
    gaps = np.full((33, 5, 38, size), 0xA5, np.uint8)
    assert same(transpose(a, (2, 1, 0, 3), gaps[:, :, ::2]).copy(), a.transpose(2, 1, 0, 3))
    assert (gaps[:, :, 1::2] == 0xA5).all()


@pytest.mark.parametrize(
    ("shape", "size", "staged"),
    [
        ((520, 730), 8, False),
        ((729, 521, 3), 4, False),
        ((512, 520), 8, True),  # rows of the target at one place in pages
        ((9, 40, 9, 40, 9), 8, True),  # lines that end at once
    ],
)
def test_what_near_caches_hold_is_not_staged(reach, shape, size, staged):
    """But where lines of the target would push each other out, or be parts of some."""
    a = drawn(shape, f"V{size}")
    for held in (False, True):
        reach("usual", streamed=False, held=held)
        out = np.zeros(shape[::-1], a.dtype)
        assert same(transpose(a, None, out), a.T)
        found = walk_setup.walk_between(
            out.shape, out.strides, a.T.strides, size, 1, walk_setup.limits_in_force(), held=held
        )
        assert bool(found.table[walk_fields.RUN]) == (staged or not held)


@pytest.mark.grid
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("threads", [1, 3])
@WHOLE
def test_columns_that_blocks_would_leave_over_are_transposed_together(reach, size, threads, whole):
    """Those of all fills of a run, which are some blocks and what is left of one, or more."""
    side = transpose_blocks.BLOCK_SIDES[size][0]
    sides = itertools.product(
        (side + 1, 2 * side + 1, 3 * side - 1), (2, 5), (3, side + 1, 5 * side + 2)
    )
    for columns, more, high in in_turn(sides, size + threads, whole, of=5):
        shape = (columns, more, {2: 2000, 4: 1000}.get(size, 250), high)  # enough to be listed
        a = drawn(shape, f"V{size}")
        reach("usual", streamed=True)
        out = np.zeros(shape[::-1], a.dtype)
        found = walk_setup.walk_between(
            out.shape,
            out.strides,
            a.T.strides,
            size,
            1,
            walk_setup.limits_in_force(),
            streamed=True,
        )
        assert found.table[walk_fields.LISTED]
        assert same(transpose(a, None, out, threads=threads), a.T)


@pytest.mark.parametrize(
    ("size", "registers", "step", "side"),
    [
        (4, 2048, 5121 * 4, 8),
        (4, 2048, 5119 * 4, 8),
        (4, 2048, 4096, 8),
        (4, 2048, 5122 * 4, 16),
        (4, 512, 5121 * 4, 8),
        (8, 2048, 4097 * 8, 8),
        (2, 2048, 4097 * 2, 16),
    ],
)
def test_blocks_whose_lines_share_a_place_in_pages_are_small(size, registers, step, side):
    """Those of sixteen are more than the nearest cache has ways for."""
    limits = replace(LIMITS, register_bytes=registers)
    far, near = (step, size), (size, step)
    walk = walk_setup.walk_between(
        (step // size, 3000), far, near, size, 1, limits, streamed=True
    ).table
    assert walk[walk_fields.BLOCKS] == side


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_follow_each_other_in_the_target_are_one_run(reach, size, streamed, threads):
    """Wherever in a line the target begins, and in whatever groups rows are transposed."""
    reach("small", streamed=streamed)
    for wide, high, shift in itertools.product(
        (64 // size + 1, 80 // size + 1), (48, 129, 500), (0, 1, 63)
    ):
        a = drawn((3, wide, high), f"V{size}")
        walk = transpose_amid_guards(a, (0, 2, 1), shift, streamed=streamed, threads=threads)
        assert walk[walk_fields.JOINED]


@pytest.mark.grid
@pytest.mark.parametrize("size", [4, 8, 12])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_runs_go_to_the_target_as_they_are_filled(reach, size, streamed, threads):
    """Piece by piece: what is not a whole line yet waits for the next, at most to the run's end."""
    reach("usual", streamed=streamed)
    for shape, shift in itertools.product(
        ((23, 60, 17, 19), (300, 50, 3, 7), (64, 64, 8, 8), (31, 700, 3, 5), (600, 9, 17, 3)),
        (0, 1, 63),
    ):
        a = drawn(shape, f"V{size}")
        walk = transpose_amid_guards(a, (1, 0, 3, 2), shift, streamed=streamed, threads=threads)
        assert walk[walk_fields.FILL_BYTES] == size * shape[2] * shape[3]


def test_fills_amid_columns_and_rows_are_no_pieces():
    """Then a run is whole when all of it is filled."""
    near = {"rows": 8, "columns": 8 * 9 * 400, "fills": 8 * 9}
    far = {"columns": 8, "fills": 8 * 9, "rows": 8 * 9 * 9}
    axes = [tiles.WalkAxis(9, far[name], near[name], 9) for name in ("rows", "fills", "columns")]
    axes = [tiles.WalkAxis(50, 8 * 9**3, 8 * 9 * 9 * 400, 50), *axes]
    assert tiles.Staging.of(axes, 8, rows=1, run_bytes=2048, limits=LIMITS).piece == 0


@pytest.mark.grid
@pytest.mark.parametrize("span", sorted(SPANS))
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 3])
def test_nothing_is_written_beyond_the_workspace_of_a_walk(reach, monkeypatch, size, span):
    """Buffer, kept ends, offsets and distances: bytes on both sides of the workspace stay."""
    reach(span, streamed=True)
    workspaces = []

    def guarded_workspace(size):
        workspaces.append(np.full(size + 2 * 4096, 0xA5, np.uint8))
        begin = 4096 - workspaces[-1].ctypes.data % 64
        return SimpleNamespace(address=workspaces[-1].ctypes.data + begin)

    monkeypatch.setattr(walk_setup, "workspace", guarded_workspace)
    for first, axes in itertools.product(
        (2, 16, 17, 33), ((3, 2, 1, 0), (1, 0, 3, 2), (0, 3, 2, 1))
    ):
        a = drawn((first, 9, 70, 41), f"V{size}")
        assert same(transpose(a, axes), np.ascontiguousarray(a.transpose(axes)))
    for room in workspaces:
        assert (room[: 4096 - 64] == 0xA5).all()
        assert (room[-4096 + 64 :] == 0xA5).all()


@pytest.mark.parametrize("shift", [0, 64, 2048, 4032])
def test_small_buffers_cross_no_pages(reach, monkeypatch, shift):
    """Wherever a workspace begins, the staging buffer begins with a page, within it."""
    reach("usual", streamed=True)
    asked, begun = [], []

    def shifted_workspace(size):
        memory = np.zeros(size + 2 * 4096, np.uint8)
        first = memory.ctypes.data + -memory.ctypes.data % 4096 + shift
        asked.append((memory, first, size))
        return SimpleNamespace(address=first)

    run = walk_setup.transpose_walk.run
    monkeypatch.setattr(walk_setup, "workspace", shifted_workspace)
    monkeypatch.setattr(
        walk_setup.transpose_walk, "run", lambda *args: (begun.append(args[3]), run(*args))
    )
    a = drawn((23, 60, 17, 19), "f4")
    assert same(transpose(a, (1, 0, 3, 2)), a.transpose(1, 0, 3, 2))
    ((_, first, size),), (begin,) = asked, begun
    needed = walk_setup.walk_between(
        (60, 23, 19, 17),
        np.empty((60, 23, 19, 17), "f4").strides,
        a.transpose(1, 0, 3, 2).strides,
        4,
        1,
        walk_setup.limits_in_force(),
        streamed=True,
    ).workspace_bytes
    assert begin % 4096 == 0
    assert first <= begin
    assert begin + needed <= first + size


def test_tiles_that_keep_ends():
    """Ends are kept from tile to tile, but not where threads share these or rows are one tile."""
    for shape, threads, kept in (
        ((1201, 1023), 1, True),
        ((9001, 9003), 2, True),
        ((1201, 1023), 2, False),
        ((1201, 101), 1, False),
    ):
        steps = (shape[1] * 8, 8), (8, shape[0] * 8)
        found = walk_setup.walk_between(
            shape, *steps, 8, threads, walk_setup.limits_in_force(), streamed=True
        )
        assert (found.table[walk_fields.KEPT] > 0) == kept
        assert len(found.parts) == threads


@pytest.mark.grid
@pytest.mark.parametrize("span", sorted(SPANS))
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [4, 8, 16, 32])
def test_whole_lines_go_to_the_target_lines(reach, size, threads, span):
    """Where lines of the target are whole, and those of a block at different places in pages."""
    reach(span, streamed=True)
    side, dtype = 64 // size, np.dtype(f"V{size}")
    for lines, high, deep, aligned in itertools.product(
        (1, 3, 5), (side, 4 * side + 1, 5 * side - 1, 133), (1, 3), (True, False)
    ):
        a = drawn((lines * side, deep, high), dtype)
        how = {"streamed": True, "aligned": True, "threads": threads}
        walk = transpose_amid_guards(a, (2, 1, 0), 0 if aligned else size, **how)
        apart = lines * deep  # lines from one row of a block to the next: all are odd
        assert walk[walk_fields.WHOLE] == (4 * high >= 3 * (high + -high % side)), apart


@pytest.mark.parametrize(
    ("shape", "begin", "lines", "whole"),
    [
        ((40, 72), 0, False, True),
        ((40, 76), 0, True, False),  # lines that end amid a block
        ((40, 512), 0, False, False),  # all lines of a block at one place in pages
        ((40, 256), 0, False, False),  # of two places
        ((40, 512), 0, True, True),  # the same, in vectors of a line
        ((4, 72), 0, True, False),  # no block
        ((40, 72), 8, True, False),  # a target that begins amid a line
    ],
)
def test_blocks_that_are_no_lines_are_staged(reach, monkeypatch, shape, begin, lines, whole):
    chosen = []
    reach("usual", streamed=True, lines=lines)
    monkeypatch.setattr(
        walk_setup.Walk, "run", lambda self, *_: chosen.append(self.table[walk_fields.WHOLE])
    )
    room = np.zeros(8 * shape[0] * shape[1] + 128, np.uint8)
    out = np.ndarray(shape, float, room, -room.ctypes.data % 64 + begin)
    transpose(np.zeros(shape[::-1]), None, out)
    assert chosen == [whole]


def test_what_the_last_cache_cannot_hold_of_both_goes_past_it(monkeypatch):
    """Not a target that it could hold alone, either."""
    chosen, a = [], np.zeros((64, 64))
    monkeypatch.setattr(
        walk_setup.Walk, "run", lambda self, *_: chosen.append(self.table[walk_fields.NON_TEMPORAL])
    )
    for capacity in (2 * a.nbytes - 1, 2 * a.nbytes):
        here = replace(LIMITS, last_cache_bytes=capacity)
        monkeypatch.setattr(walk_setup, "limits_in_force", lambda here=here: here)
        transpose(a)
    assert chosen == [1, 0]


def test_lines_that_go_past_the_caches_are_asked_for_just_before():
    """A few rows are filled with what is next to each other in the target, however short."""
    far, near = (1433600, 17920, 320, 4), (17920, 1433600, 4, 224)
    walk = walk_setup.walk_between(
        (80, 80, 56, 80), far, near, 4, 1, LIMITS, streamed=True, aligned=True
    ).table
    fills = walk[walk_fields.FILLS : walk_fields.FILLS + walk[walk_fields.COUNTS + 3]]
    assert walk[walk_fields.WHOLE]
    assert not len(fills)


@pytest.mark.parametrize(
    ("size", "longest"), [(1, 512), (2, 512), (4, 1024), (8, 2048), (16, 2048)]
)
def test_staged_rows_stay_near(size, longest):
    """The more rows the lines of a source are, the shorter are runs; none is cut in small parts."""
    n = 6001
    steps = (n * size, size), (size, n * size)
    walk = walk_setup.walk_between((n, n), *steps, size, 1, LIMITS, streamed=True).table
    second = walk_fields.AXES + walk_fields.AXIS_WORDS
    run = walk[walk_fields.RUN] * walk[second + walk_fields.AXIS_TILE]
    assert 0.9 * longest <= run <= 1.1 * longest
    assert [tiles._near_equal_part(extent, 100, even=False) for extent in (140, 160)] == [140, 80]


@pytest.mark.parametrize(
    ("length", "staged"), [(130, True), (132, False), (254, True), (258, False)]
)
def test_parts_that_cannot_go_past_the_caches(length, staged):
    """Long elements are not staged, unless they end amid what is written past the caches."""
    far, near = (40 * length, length, 1), (length, 50 * length, 1)
    walk = walk_setup.walk_between((50, 40, length), far, near, 1, 1, LIMITS, streamed=True).table
    assert bool(walk[walk_fields.RUN]) == staged


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (64, 1000), (150, 40, 90)])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_have_tiles(shape, threads):
    """Arrays that would be one tile are several, where several threads share them."""
    a = np.zeros(shape)
    view = a.transpose()
    steps = np.empty(view.shape).strides, view.strides
    walk = walk_setup.walk_between(view.shape, *steps, 8, threads, LIMITS)
    assert len(walk.parts) == threads


def test_ways_of_the_machine():
    """The second cache's ways are the machine's; where they are unknown, no lines are too many."""
    machine = Machine.load("i7-6700k")
    for levels, expected in (
        (machine.levels, (machine.levels[1].capacity // machine.levels[1].ways)),
        (tuple(replace(level, ways=None) for level in machine.levels), LINE_BYTES),
    ):
        found = Limits.of(replace(machine, levels=levels))
        assert found.way_bytes == expected
        assert found.register_bytes == 16 * 32
        assert not found.stores_whole_lines
    assert tiles._lines_per_way([tiles.WalkAxis(256, 4, 1 << 18, 256)], [0], found) <= 1


def test_bytes_of_the_last_cache():
    """Arrays take a share of it; one far larger than the cores seen would have is others', too."""
    machine = Machine.load("i7-6700k")
    huge = replace(machine.levels[2], capacity=480 << 20, shared_by=2)
    near = replace(huge, read=100 * machine.memory.bandwidth)
    for last, expected in (
        (machine.levels[2], machine.levels[2].capacity // 2),
        (huge, 16 << 20),
        (near, 8 << 20),
    ):
        levels = (*machine.levels[:2], last, machine.levels[3])
        assert Limits.of(replace(machine, levels=levels)).last_cache_bytes == expected
        costs = Costs(transpose_row_slowdown=3.0)
        assert Limits.of(replace(machine, levels=levels, costs=costs)).costs == costs


@pytest.mark.parametrize("caches", [0, 1])
def test_few_caches(tmp_path, monkeypatch, caches):
    """A machine of memory alone, or of one cache, transposes too; each setting has its own."""
    machine = Machine.load("i7-6700k")
    few = replace(machine, levels=(*machine.levels[:caches], machine.memory))
    path = tmp_path / "few.toml"
    path.write_text(few.to_toml())
    for named in (path, "e5-2680v4"):
        monkeypatch.setenv("TILESOLVE_MACHINE", str(named))
        assert asdict(limits_in_force()) == asdict(Limits.of(Machine.load()))
        for shape in ((5, 3), (64, 128), (700, 900), (256, 16, 256)):
            a = drawn(shape, "f8")
            assert same(transpose(a), a.T)
    found, nearest = Limits.of(few), machine.levels[0]
    assert found.near_bytes == (nearest.usable if caches else 0)
    assert found.last_cache_bytes == (nearest.capacity // 2 if caches else 0)
    assert found.way_bytes == (nearest.capacity // nearest.ways if caches else LINE_BYTES)
    assert found.ways == (nearest.ways if caches else np.inf)


def test_lines_that_push_each_other_out():
    """A run whose source falls on a few sets of a cache is known; odd extents spread it."""
    even, odd = (
        [tiles.WalkAxis(256, 4, 4 * extent, 256), tiles.WalkAxis(256, 1024, 4, 256)]
        for extent in (2**16, 2**16 + 17)
    )
    assert tiles._lines_per_way(even, [0], LIMITS) > 1
    assert tiles._lines_per_way(odd, [0], LIMITS) <= 1


@pytest.mark.parametrize("shape", [(16,) * 6, (80, 80, 80, 64), (64, 64, 64, 48)])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_lines_at_one_place_in_pages(reach, shape, size):
    """They go there one by one if each is stored at once; a cache holds their sources."""
    steps = tuple(size * int(np.prod(shape[at + 1 :])) for at in range(len(shape)))
    far = tuple(size * int(np.prod(shape[:at])) for at in range(len(shape)))
    for lines in (False, True):
        reach("usual", True, lines=lines)
        here = walk_setup.limits_in_force()
        walk = walk_setup.walk_between(
            shape, far, steps, size, 1, here, streamed=True, aligned=True
        ).table
        assert walk[walk_fields.WHOLE] == lines
    fields = walk[walk_fields.AXES :][: len(shape) * walk_fields.AXIS_WORDS].reshape(len(shape), -1)
    run, length = np.zeros(1, int), size
    for axis in fields[::-1]:
        if axis[walk_fields.AXIS_TARGET_STEP] == length < 512:
            run = (
                run[:, None]
                + axis[walk_fields.AXIS_SOURCE_STEP] * np.arange(axis[walk_fields.AXIS_TILE])
            ).ravel()
            length *= axis[walk_fields.AXIS_TILE]
    sets = np.bincount(run % (1 << 17) // LINE_BYTES)
    most = policy.TRANSPOSE_ALIASED_LINES
    assert 4 * most < sets.max() <= 8 * most


def test_new_arrays_are_private():
    """What a forked process writes to a large array stays there."""
    text = """
import os
import numpy as np
from tilesolve.packing.buffers import empty
array = empty((1 << 22,), np.dtype("u1"))
array[:] = 1
child = os.fork()
if not child:
    array[:] = 2
    os._exit(0)
os.waitpid(child, 0)
print(array.max())
"""
    found = run_python("-c", text)
    assert found.stdout == "1\n", found.stderr


def test_elements_that_are_repeated():
    """A stride of 0 in the array is read as often as needed."""
    a = np.broadcast_to(drawn((5, 1, 7), "f4"), (5, 40, 7))
    for axes in itertools.permutations(range(3)):
        assert same(transpose(a, axes), np.ascontiguousarray(a.transpose(axes)))


@pytest.mark.parametrize("axes", [19, 24])
def test_many_axes(axes):
    """As many axes as memory lets an array have, none of which stays beside its neighbour."""
    a = drawn((2,) * axes, "u1")
    order = [*reversed(range(0, axes, 2)), *range(1, axes, 2)]
    assert same(transpose(a, order), a.transpose(order))


def test_anything_that_becomes_an_array():
    """Lists and scalars; axes that count from the end; a result of no axes."""
    assert transpose([[1, 2], [3, 4]]).tolist() == [[1, 3], [2, 4]]
    assert transpose(5).shape == ()
    assert same(
        transpose(drawn((2, 3, 4), "f8"), (-1, 0, -2)), drawn((2, 3, 4), "f8").transpose(2, 0, 1)
    )


def test_several_callers():
    """Calls from several threads at once, each with threads of its own, do not meet."""
    arrays = [drawn((150, 40, 90), "f8", seed) for seed in range(4)]
    found = {}

    def call(number):
        found[number] = transpose(arrays[number], (2, 1, 0), threads=2)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(same(found[at], array.transpose(2, 1, 0)) for at, array in enumerate(arrays))


READ_ONLY = np.zeros((4, 3))
READ_ONLY.flags.writeable = False
BOTH = np.zeros((4, 6))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"axes": (0, 0)}, SizeError, r"\(0, 0\).*2"),
        ({"axes": (0, 2)}, SizeError, "permutation"),
        ({"axes": (0,)}, SizeError, "permutation"),
        ({"axes": (0.0, 1)}, SizeError, "integers"),
        ({"axes": 1}, SizeError, "integers"),
        ({"out": np.zeros((3, 4))}, SizeError, r"\(3, 4\).*\(4, 3\)"),
        ({"out": np.zeros((4, 3), np.float32)}, DtypeError, "float32.*float64"),
        ({"out": [[0.0] * 3] * 4}, DtypeError, "list"),
        ({"out": READ_ONLY}, PlanError, "read-only"),
        ({"out": np.lib.stride_tricks.as_strided(np.zeros(3), (4, 3), (0, 8))}, PlanError, "0"),
        ({"a": BOTH[:3, :4], "out": BOTH[:, 2:5]}, PlanError, "shares memory"),
        ({"a": np.zeros((3, 4), object)}, DtypeError, "object"),
        ({"threads": 0}, MachineError, "threads"),
        ({"threads": 1.5}, MachineError, "threads"),
    ],
)
def test_bad_input(arguments, error, words):
    """Each mistake is named, and out stays as it was."""
    out = arguments.get("out")
    kept = np.array(out) if out is not None else None
    with pytest.raises(error, match=words):
        transpose(**{"a": np.ones((3, 4)), **arguments})
    assert kept is None or np.array_equal(out, kept)


def test_threads_that_are_set(monkeypatch):
    """The environment's number of threads holds where none is named, and is checked."""
    a = drawn((64, 300), "f8")
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", "2")
    assert same(transpose(a), a.T)
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", "none")
    with pytest.raises(SettingError):
        transpose(a)


def test_interleaved_memory_is_no_overlap():
    """An output between the array's own elements is allowed."""
    room = np.arange(32.0).reshape(4, 8)
    expected = room[:, ::2].T.copy()
    transpose(room[:, ::2], out=room[:, 1::2])
    assert np.array_equal(room[:, 1::2], expected)
