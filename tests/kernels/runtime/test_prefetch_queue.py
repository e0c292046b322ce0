"""What is asked for while microkernels compute: the lines that are packed next."""

import ctypes
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from guessed_tiles import guessed_tiles
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, specs, unshrunk
from turns import examples, quick_each

import tilesolve
from tilesolve import Level, Machine, Problem
from tilesolve.constants import policy, tuning
from tilesolve.constants.tuning import MAX_TILE_COLUMNS, MAX_TILE_VECTORS
from tilesolve.kernels.codegen import pack, shape
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile, default_tile
from tilesolve.kernels.runtime import state
from tilesolve.machine.costs import Costs
from tilesolve.model.pages import lines_by_place
from tilesolve.packing.buffers import allocate
from tilesolve.packing.offset_tables import few_entries
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.planning.prefetch import (
    cut_to_stay,
    should_prefetch,
    stays_in_second_cache,
    third_cache_feeds,
)
from tilesolve.planning.register_tile import fits_second_cache
from tilesolve.running.execution import Layout

LINE = 64
DEAR = Costs(pack_cycles=2.5, late_line_cycles=0.01, level_overlap=0.48)
"""Packing takes long, whatever runs it reads: its boxes are large, and seldom repeated."""

USUAL = Machine.load("i7-6700k").replace(costs=DEAR)
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64)
WIDE = {"vector_bits": 512, "vector_registers": 32}


def feeding_rate(machine):
    """Return the bytes per second from which on a cache feeds steps of the default tile."""
    vectors, columns = default_tile("float64", machine.vector_bits, machine.vector_registers)
    rows = vectors * machine.vector_bits / 8
    step = vectors * columns / machine.fma_rate / machine.frequency
    return policy.FEEDING_RATIO * rows / step * (1 + 1e-9)


def word(address):
    """Return the integer at an address."""
    return ctypes.c_int64.from_address(address).value


def lines(kind, lanes, frame):
    """Return the lines in which the vectors begin and end that a packing kernel reads."""
    f = {name: word(frame + 8 * at) for at, name in enumerate(pack.FIELDS)}
    length = few_entries(lanes, 8) if kind.startswith("few") else lanes
    ks = range(f["first"], f["first"] + f["count"])
    if kind == "copy":
        rows, sums = range(f["groups"]), ks
    elif kind in ("turn_rows", "few_rows", "even_rows"):
        blocks = range(f["lanes"], f["lanes"] + f["groups"])
        begins = [lanes * word(f["steps"] + 8 * at * length) for at in blocks]
        rows, sums = [begin + lane for begin in begins for lane in range(lanes)], ks
    elif kind in ("turn_sums", "few_sums"):
        rows, sums = range(lanes), [word(f["steps"] + 8 * at * length) for at in ks]
    else:
        rows, sums = (), ()
    row_offsets = np.array([word(f["rows"] + 8 * row) for row in rows], np.int64)
    sum_offsets = np.array([word(f["sums"] + 8 * k) for k in sums], np.int64)
    begins = f["source"] + np.add.outer(row_offsets, sum_offsets).ravel()
    return {*(begins // LINE).tolist(), *((begins + 8 * length - 1) // LINE).tolist()}


def zeros_at(shape, offset):
    """Return an array of zeros that begins so many bytes behind a line."""
    memory = allocate(8 * prod(shape) + LINE)
    memory[:] = 0
    return memory[offset : offset + 8 * prod(shape)].view(np.float64).reshape(shape)


def replaced(problem, machine, *functions, offset=0):
    """Return a plan's task and its arrays, with functions of a frame for its microkernels.

    They stand for those that read micro-panels, those that read in place and those of halved
    vectors; the last value keeps them alive. The arrays begin so many bytes behind a line.
    """
    arrays = [zeros_at(shape, offset) for shape in problem.shapes]
    found = tilesolve.plan(problem, machine=machine, threads=1, cache=False)
    task = Layout.of(found.solution, *arrays[1:], arrays[0]).tasks[0]
    kept = [ENTRY(function) for function in functions]
    count = MAX_TILE_VECTORS * MAX_TILE_COLUMNS
    for at, function in enumerate(kept):
        kernels = slice(state.KERNELS + at * count, state.KERNELS + (at + 1) * count)
        task.state[kernels] = ctypes.cast(function, ctypes.c_void_p).value
    return task, arrays, kept


def fields(frame):
    """Return the fields of a microkernel's frame."""
    return {name: word(frame + 8 * at) for at, name in enumerate(shape.FIELDS)}


def watched(problem, machine, offset=0):
    """Run a plan with kernels that only look; return packs, lines that no pack can want, and
    how many lines each call that reads in place was given.

    Each pack is its operand's number, its lines, those of them that had been asked for, and how
    many tiles came before.
    """
    asked, packs, assigned, tiles = set(), [], [], [0]

    def kernel(frame):
        f = fields(frame)
        at_once = f["fetch_move"] // (8 * (f["fetches"] + 1)) if f["fetches"] else 0
        for tile, number in product(range(f["more"] + 1), range(at_once)):
            for k in range(f["k"]):
                at = tile * f["fetch_move"] + 8 * (at_once * min(k, f["fetches"]) + number)
                asked.add(word(f["fetch"] + at) // LINE)
        tiles[0] += f["more"] + 1

    def packer(side, kind):
        def look(frame):
            wanted = lines(kind, task.schedule.group(side), frame)
            packs.append((side, len(wanted), len(wanted & asked), tiles[0]))

        return look

    def in_place(frame):
        f = fields(frame)
        assigned.append(f["fetches"])
        tiles[0] += f["more"] + 1

    task, arrays, kept = replaced(problem, machine, kernel, in_place, kernel, offset=offset)
    for side in (0, 1):
        for at, kind in enumerate(pack.KINDS):
            kept.append(ENTRY(packer(side, kind)))
            where = state.PACKERS + len(pack.KINDS) * side + at
            task.state[where] = ctypes.cast(kept[-1], ctypes.c_void_p).value
    task.run(arrays, 1, 0)
    begins = [a.__array_interface__["data"][0] for a in arrays[1:]]
    inside = {
        line
        for begin, a in zip(begins, arrays[1:], strict=True)
        for line in range(begin // LINE, (begin + a.nbytes) // LINE + 1)
    }
    return packs, len(asked - inside), assigned


@pytest.mark.parametrize(
    ("spec", "sizes", "offset"),
    quick_each(
        [
            ("mn-mk-kn", {"m": 96, "n": 192, "k": 1000}, 0),
            ("abcd-dbea-ec", 32, 16),
            ("ab-cad-dcb", {"a": 192, "b": 96, "c": 16, "d": 312}, 16),
            ("abcde-efcad-bf", {"a": 2, "b": 24, "c": 17, "d": 32, "e": 48, "f": 8}, 0),
            ("abcd-aebf-dfce", 16, 16),
            ("ab-acd-dbc", {"a": 96, "b": 96, "c": 21, "d": 107}, 0),
        ],
        of=2,
    ),
)
def test_what_is_packed_was_asked_for(monkeypatch, spec, sizes, offset):
    """Most lines of an operand had been asked for before they were packed, but for the first.

    Also where arrays begin amid a line, as numpy's do 16 bytes behind one.
    """
    monkeypatch.setattr("tilesolve.planning.layout_policy.should_prefetch", lambda *_: True)
    packs, *_ = watched(Problem.of(spec, sizes), USUAL, offset)
    later = [(wanted, asked) for _, wanted, asked, tiles in packs if tiles and wanted]
    assert later
    assert sum(asked for _, asked in later) > 0.8 * sum(wanted for wanted, _ in later)


def test_wide_kernels_ask_for_a_line_for_each_vector_of_rows(monkeypatch):
    """With so few columns there are fewer steps than lines of what is packed next."""
    monkeypatch.setattr("tilesolve.planning.layout_policy.should_prefetch", lambda *_: True)
    problem = Problem.of("dca-dea-ec", {"a": 243, "c": 8, "d": 60, "e": 30})
    packs, *_ = watched(problem, USUAL.replace(**WIDE))
    later = [(wanted, asked) for _, wanted, asked, tiles in packs if tiles and wanted]
    assert later
    assert sum(asked for _, asked in later) > 0.8 * sum(wanted for wanted, _ in later)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("abcd-aebf-dfce", 16),
        ("abcd-dbea-ec", 40),
        ("ab-acd-dbc", {"a": 96, "b": 96, "c": 21, "d": 107}),
    ],
)
def test_lines_are_asked_for_several_at_once(monkeypatch, spec, sizes):
    """A tile asks for none, or for as many as are worth listing: they are not spread evenly."""
    monkeypatch.setattr("tilesolve.planning.layout_policy.should_prefetch", lambda *_: True)
    counts = []

    def kernel(frame):
        f = fields(frame)
        counts.append((f["k"], f["fetches"]))

    task, arrays, _kept = replaced(Problem.of(spec, sizes), USUAL, kernel, kernel, kernel)
    task.run(arrays, 1, 0)
    assert any(fetches for _, fetches in counts)
    assert all(
        fetches >= min(tuning.MIN_PREFETCHES_PER_TILE, steps)
        for steps, fetches in counts
        if fetches
    )
    assert any(not fetches for _, fetches in counts)


@pytest.mark.parametrize(
    ("rows", "pitch", "run", "stay", "close"),
    [
        (64, 5120, 1024, True, True),
        (150, 4864, 768, True, True),
        (150, 4096, 768, False, True),  # 150 lines at each of 12 places; the cache has 64 pages
        (170, 4864, 768, False, True),  # with the copy in use all of the cache, but for 1 KiB
        (256, 5120, 1024, False, True),  # as much as the cache, which holds the copy in use, too
        (64, 4352, 256, True, False),  # four lines in each page
        (64, 256, 256, True, True),  # the same side by side
    ],
)
def test_lines_are_asked_for_where_they_stay_and_are_close(rows, pitch, run, stay, close):
    """They have to stay everywhere, and be close unless the third cache feeds microkernels."""
    machine = Machine.load("e5-2680v4")
    assert machine.caches[1].capacity == 64 * PAGE_BYTES

    def third(bandwidth, read=None):
        last = replace(machine.levels[2], bandwidth=bandwidth, read=read)
        return machine.replace(levels=(*machine.levels[:2], last, machine.memory))

    slow, fast = machine.memory.bandwidth, feeding_rate(machine)
    two = machine.replace(levels=(*machine.levels[:2], machine.memory))
    strides, sides = {"m": pitch, "k": 8}, {"m": rows, "k": run // 8, "n": 3}
    box = Problem.of("mn-mk-kn", sides)
    for level in (third(slow), third(fast, read=slow), two):
        assert should_prefetch(strides, box, level) == (stay and close)
    # What is read once in a long while is not worth it.
    often = Problem.of("mn-mk-kn", sides | {"n": 20000})
    assert not should_prefetch(strides, often, third(slow))
    for one in (box, often):
        assert should_prefetch(strides, one, third(fast)) == stay
        assert should_prefetch(strides, one, third(fast, read=fast)) == stay


@pytest.mark.parametrize(
    ("units", "second", "third", "memories", "near"),
    [
        (WIDE | {"fma_rate": 1.0, "frequency": 3.7e9}, 110, 90, (24, 26, 29, 31, 33), True),
        (WIDE | {"fma_rate": 2.0, "frequency": 3.9e9}, 100, 27, (9, 11, 13), False),
        ({}, 77, 54, (27,), False),
    ],
)
def test_a_third_cache_feeds_whatever_neighbours_leave(units, second, third, memories, near):
    """Reading, in GB/s: on a Zen 4, on a Granite Rapids, and as published of an i7-6700K.

    A bandwidth counts both ways; reading alone is what stands beside it, where it was measured.
    """
    base = Machine.load("i7-6700k").replace(**units)
    for memory in memories:
        for name in ("bandwidth", "read"):
            rates = (1000, second, third, memory)
            levels = [
                replace(level, **{name: 1e9 * rate})
                for level, rate in zip(base.levels, rates, strict=True)
            ]
            assert third_cache_feeds(base.replace(levels=tuple(levels))) == near


@pytest.mark.parametrize("rate", [0.99, 1.0])
def test_a_third_cache_feeds_steps_from_one_rate_on(rate):
    """It is the rate of rows that FMAs take; where memory has it as well, no cache is needed."""
    base = USUAL.replace(**WIDE)
    *near, third, memory = base.levels
    levels = (*near, replace(third, read=rate * feeding_rate(base)), memory)
    assert third_cache_feeds(base.replace(levels=levels)) == (rate == 1)
    fast = replace(memory, read=rate * feeding_rate(base) * 2)
    assert not third_cache_feeds(base.replace(levels=(*levels[:-1], fast)))
    assert not third_cache_feeds(base.replace(levels=(*near, memory)))


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 70)), max_size=4),
    st.integers(1, 300),
    st.sampled_from([-1, 1]),
    st.sampled_from([4, 8, 16]),
)
def test_lines_are_counted_at_each_place_in_pages(outer, unit, sign, element):
    """As counted one by one, where runs begin on lines and are apart."""
    strides, sides, span = {"u": element}, {"u": unit}, unit * element
    for letter, (side, gap) in zip("abcd", outer, strict=False):
        strides[letter], sides[letter] = -(-span // LINE) * LINE + gap * LINE, side
        span = strides[letter] * side
    lines = np.zeros(1, np.int64)
    for letter, stride in strides.items():
        lines = (lines[:, None] + stride * np.arange(sides[letter])).ravel()
    wanted = np.bincount(np.unique(lines // LINE) % 64, minlength=64)
    turned = {letter: sign * stride for letter, stride in strides.items()}
    assert lines_by_place(turned, sides, LINE).tolist() == wanted.tolist()


def test_lines_that_push_each_other_out_are_not_asked_for(monkeypatch):
    """1536 lines of A begin at each of four places in pages; L2 has room for 512."""
    problem = Problem.of("abcde-efcad-bf", {"a": 4, "b": 24, "c": 4, "d": 32, "e": 48, "f": 32})
    caches = [Level("L1", 49152, 4e11, ways=12), Level("L2", 2**21, 8e10, ways=16)]
    levels = (*caches, Level("L3", 2**25, 4e10, ways=16), Level("memory", None, 2e10))
    machine = Machine.load("i7-6700k").replace(levels=levels, fma_rate=1.0, **WIDE)
    strides = problem.strides(1)
    assert {strides[letter] % 4096 for letter in "ef"} == {0}
    fast = replace(levels[2], bandwidth=feeding_rate(machine))
    monkeypatch.setattr("tilesolve.planning.geometric.select.cut_to_stay", lambda *_: {})
    for third in (levels[2], fast):
        packs, *_ = watched(problem, machine.replace(levels=(*caches, third, levels[3])))
        later = [(wanted, asked) for side, wanted, asked, tiles in packs if tiles and wanted]
        assert later
        assert not any(asked for _, asked in later)
    monkeypatch.setattr(policy, "ALIASED_PAGES_RATIO", 16.0)
    packs, *_ = watched(problem, machine.replace(levels=(*caches, fast, levels[3])))
    assert any(asked for *_, asked, tiles in packs if tiles)


@pytest.mark.parametrize(("times", "side"), [(0.99, 48), (1, 24)])
def test_boxes_are_smaller_where_their_lines_can_be_asked_for_then(times, side):
    """Of 48 by 32 runs as above too few stay, of 24 not; that counts where a third cache feeds."""
    sizes = {"a": 16, "b": 24, "c": 8, "d": 32, "e": 48, "f": 32}
    problem = Problem.of("abcde-efcad-bf", sizes)
    caches = [Level("L1", 49152, 4e11, ways=12), Level("L2", 2**21, 8e10, ways=16)]
    memory = Level("memory", None, 2e10)
    wide = USUAL.replace(fma_rate=1.0, costs=Costs(late_line_cycles=30.0), **WIDE)
    third = Level("L3", 2**25, times * feeding_rate(wide), ways=16)
    machine = wide.replace(levels=(*caches, third, memory))
    found = tilesolve.plan(problem, machine=machine, threads=1, cache=False)
    box = dict(found.nest.bands[-2].box)
    assert box["e"] == side
    assert stays_in_second_cache(problem.strides(1), Problem.of(problem.spec, box), machine) == (
        times == 1
    )


@pytest.mark.grid
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("unit", [4, 30])
@given(st.data())
def test_a_smaller_box_is_the_largest_whose_lines_stay(number, unit, data):
    """Of those that are smaller in one letter: along the unit stride, if longer, by whole lines."""
    machine = USUAL
    problem = Problem.of("mxn-mkx-knx", {"m": 256, "n": 256, "x": unit, "k": 64})
    sides = st.integers(1, 16).map(lambda times: 16 * times)
    box = {"m": data.draw(sides), "n": data.draw(sides), "x": unit, "k": 64}
    cell = {"m": 8, "n": 16, "x": 1, "k": 64}
    steps = cell | ({"x": LINE // 8} if unit > LINE // 8 else {})
    strides = problem.strides(number)

    def stays(one):
        return stays_in_second_cache(strides, Problem.of(problem.spec, one, problem.dtype), machine)

    smaller = [
        (side / box[letter], letter, side)
        for letter in strides
        if letter != "k"
        for side in range(steps[letter], box[letter], steps[letter])
        if stays({**box, letter: side})
    ]
    found = cut_to_stay(problem, number, box, cell, machine)
    kept = [side / box[letter] for letter, side in found.items()]
    assert kept == [max(smaller)[0]] if smaller else not found
    assert all((kept[0], letter, side) in smaller for letter, side in found.items())


def test_kernels_that_read_in_place_are_given_no_lines():
    """They would not ask for them."""
    problem = Problem.of("abc-adc-bd", {"a": 600, "b": 24, "c": 320, "d": 64})
    many = Machine.load("i7-6700k").replace(**WIDE)
    packs, _, assigned = watched(problem, many)
    assert packs
    assert assigned
    assert not any(assigned)


@pytest.mark.grid
@pytest.mark.parametrize(("spec", "sides"), [("abcd-aebf-dfce", 16), ("abc-bda-dc", 48)])
@pytest.mark.parametrize("columns", [4, 6])
def test_groups_that_are_not_full_are_packed_in_vectors(spec, sides, columns):
    """Cells of six columns are a group of four and one of two: neither goes by single elements."""
    tile = RegisterTile(2, columns, 2.0 * columns, 0.0)
    usual = Machine.load("i7-6700k")
    machine = usual.replace(catalogues=(Catalogue("float64", 256, 16, (tile,)),))
    packs, *_ = watched(Problem.of(spec, sides), machine)
    assert {side for side, *_ in packs} == {0, 1}
    assert all(wanted for _, wanted, *_ in packs)


@examples(4, 15, unshrunk)
@given(problems(specs(operands=2, affine=False, diagonal=False), 1, 24, ("float64",)))
@guessed_tiles(0)
def test_nothing_but_operands_is_asked_for(problem):
    """Every address is in an operand's lines, but for the one that stands for nothing."""
    with pytest.MonkeyPatch.context() as patch:  # most that are drawn are small
        patch.setattr("tilesolve.planning.layout_policy.fits_second_cache", lambda *_: False)
        patch.setattr("tilesolve.planning.layout_policy.should_prefetch", lambda *_: True)
        _, strangers, _ = watched(problem, USUAL)
    assert strangers <= 1


@pytest.mark.parametrize("near", [True, False])
def test_what_the_second_cache_holds_is_not_asked_for(monkeypatch, near):
    """Where it did not, the same plan would ask for what it packs later."""
    caches = [Level("L1", 16384, 4e11, ways=8), Level("L2", 2**19, 1e11, ways=8)]
    levels = (*caches, Level("L3", 2**23, 5e10, ways=16), Level("memory", None, 2e10))
    machine = Machine.load("i7-6700k").replace(levels=levels)
    problem = Problem.of("mn-mk-kn", 136)
    assert fits_second_cache(problem, machine)
    if not near:
        monkeypatch.setattr("tilesolve.planning.layout_policy.fits_second_cache", lambda *_: False)
    packs, *_ = watched(problem, machine)
    assert any(asked for *_, asked, _ in packs) != near


def met(problem, machine):
    """Run a plan with kernels that only look: of micro-panels eight rows wide, a line a step.

    Return for each call how many lines of packed rows it met anew and how many of these had been
    asked for, and how many lines a step a call asked for at most.
    """
    asked, seen, counts, most = set(), set(), [], [0.0]

    def kernel(frame):
        f = fields(frame)
        micro_panels = -(-f["rows"] // 8) * (f["more"] + 1 if f["a_move"] else 1)
        lines = {
            (f["a"] + strip * f["a_step"] + LINE * k) // LINE
            for strip in range(micro_panels)
            for k in range(f["k"])
        }
        if lines - seen:
            counts.append((len(lines - seen), len((lines - seen) & asked)))
        seen.clear()
        seen.update(lines)
        mine = {
            (f["next_a"] + tile * f["next_a_move"] + k * f["next_step"]) // LINE
            for tile in range(f["more"] + 1)
            for k in range(f["k"])
        }
        most[0] = max(most[0], len(mine) / (f["k"] * (f["more"] + 1)))
        asked.update(mine - lines)

    task, arrays, _kept = replaced(problem, machine, kernel, kernel, kernel)
    task.run(arrays, 1, 0)
    return counts, most[0]


@pytest.mark.parametrize(
    ("spec", "sizes"),
    quick_each(
        [
            ("mn-mk-kn", {"m": 700, "n": 750, "k": 150}),
            ("mn-mk-kn", {"m": 800, "n": 301, "k": 640}),
            ("mn-mk-kn", {"m": 900, "n": 96, "k": 900}),  # rows innermost
            ("abcd-aebf-dfce", 24),
        ],
        of=2,
    ),
)
def test_rows_from_afar_are_asked_for_little_by_little(spec, sizes):
    """Before they are met, and never a line in each step; what the second cache keeps is not."""
    problem = Problem.of(spec, sizes)
    counts, most = met(problem, USUAL.replace(**WIDE))
    assert sum(asked for _, asked in counts) > 0.94 * sum(new for new, _ in counts)
    assert most < 1
    large = replace(USUAL.levels[1], capacity=2**24)
    levels = (USUAL.levels[0], large, *USUAL.levels[2:])
    counts, _ = met(problem, USUAL.replace(levels=levels, **WIDE))
    assert counts
    assert not any(asked for _, asked in counts)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("mn-mk-kn", {"m": 96, "n": 192, "k": 9}),
        ("abcd-dbea-ec", {"a": 12, "b": 24, "c": 16, "d": 48, "e": 10}),
        ("abc-bda-dc", {"a": 32, "b": 24, "c": 72, "d": 12}),
        ("dbca-ea-cbde", {"d": 16, "b": 16, "c": 8, "a": 48, "e": 8}),
    ],
)
def test_calls_of_short_sums_ask_for_tiles_that_follow(spec, sizes):
    """What lies so far ahead in C is written later, and most of it was asked for before."""
    problem, written = Problem.of(spec, sizes), []

    def kernel(frame):
        f = fields(frame)
        for tile in range(f["more"] + 1):
            here = f["c"] + word(f["rows_c"] + tile * f["rows_c_move"])
            here += word(f["columns_c"] + tile * f["columns_c_move"])
            written.append((here, here + f["c_ahead"] if f["c_ahead"] else 0))

    task, arrays, _ = replaced(problem, USUAL.replace(**WIDE), kernel, kernel, kernel)
    task.run(arrays, 1, 0)
    later, found, all_asked = set(), set(), set()
    for here, ahead in reversed(written):
        assert not ahead or ahead in later or ahead > max(later)
        later.add(here)
    for here, ahead in written:
        found |= {here} & all_asked
        all_asked.add(ahead)
    assert len(found) >= 0.7 * len(later)
