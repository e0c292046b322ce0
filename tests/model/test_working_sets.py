"""Working sets: the paper's numbers, brute force and isl, and what else there is to count."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_cases import draw_nest

from tilesolve.contractions.errors import ModelError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model import polyhedra
from tilesolve.model.iterations import boxes_between, loops_of, whole
from tilesolve.model.nest import Nest
from tilesolve.model.polyhedra import share_of_windows
from tilesolve.model.price import compute_price
from tilesolve.model.set_costs import cost_of_reuses, cost_of_sets, fill_levels, knows_latencies
from tilesolve.model.touched import count_elements, count_lines
from tilesolve.model.working_sets import Reuse, find_reuses, find_shared

MACHINE = Machine.load("i7-6700k")

PLAIN = ("mn-mk-kn", "abc-acd-db", "bmn-bmk-bkn", "ab-acd-dcb", "abcd-aec-ebd", "mnb-mkb-nkb")
WINDOWS = ("h-[h+r]-r", "hk-[2h+r]-rk", "hk-[h+2r]c-rck", "hw-[h+r][2w+s]-rs", "h-[3h+r]h-r")

nest_seeds = st.integers(0, 10**6)


def enumerate_iterations(problem, loops):
    """Every iteration in the order in which it runs: trips, and the value of each letter."""

    def run(box, rest, trips):
        if not rest:
            yield trips, {letter: low for letter, (low, _) in box.items()}
            return
        loop, *inner = rest
        low, high = box[loop.letter]
        for begin in range(low, high, loop.step):
            part = {**box, loop.letter: (begin, min(high, begin + loop.step))}
            yield from run(part, inner, (*trips, (begin - low) // loop.step))

    return list(run(whole(problem), loops, ()))


def touch(tensor, values):
    """The element of a tensor that an iteration touches."""
    return tuple(sum(c * values[i] for c, i in one.terms) for one in tensor.subscripts)


def copied_tiles(problem, nest, loops, number, trips):
    """The tile of a tensor that its copy holds in an iteration, as ranges of its letters."""
    level = nest.packed[number - 1] if number and nest.packed else None
    if level is None:
        return None
    band = [one.level for one in nest.bands].index(level)
    box = whole(problem)
    for loop, trip in zip(loops, trips, strict=True):
        if loop.band > band:
            low, high = box[loop.letter]
            begin = low + trip * loop.step
            box = {**box, loop.letter: (begin, min(high, begin + loop.step))}
    return tuple(box[letter] for letter in problem.spec.tensors[number].letters)


def set_between(seen, tiles, first, end):
    """How many elements iterations touch; a copy that is made again, and its source, as wholes."""
    found = set()
    for number, tensor_tiles in enumerate(tiles):
        held = tensor_tiles[first : end + 1]
        for at, tile in enumerate(held, first):
            if tile is None:
                found.add((number, seen[at][number]))
                continue
            corner = [low for low, _ in tile]
            inside = zip(seen[at][number], corner, strict=True)
            found.add((number, "copy", tuple(place - low for place, low in inside)))
            if len(set(held)) > 1:
                for place in product(*(range(*one) for one in tile)):
                    inside = zip(place, corner, strict=True)
                    found.add((number, place))
                    found.add((number, "copy", tuple(one - low for one, low in inside)))
    return len(found)


def brute_force(problem, nest):
    """What `find_reuses` says of a nest, by going through all iterations."""
    loops = loops_of(problem, nest)
    points = enumerate_iterations(problem, loops)
    tensors = problem.spec.tensors
    seen = [[touch(tensor, values) for tensor in tensors] for _, values in points]
    tiles = [
        [copied_tiles(problem, nest, loops, number, trips) for trips, _ in points]
        for number in range(len(tensors))
    ]
    found = {}
    for at, loop in enumerate(loops):
        for number in range(len(tensors)):
            for first, (source, _) in enumerate(points):
                later = [
                    n
                    for n in range(first + 1, len(points))
                    if seen[n][number] == seen[first][number]
                    and points[n][0][:at] == source[:at]
                    and points[n][0][at] > source[at]
                ]
                if later:
                    found[number, loop.letter, loop.over] = tuple(
                        problem.itemsize * set_between(seen, tiles, first, end)
                        for end in (later[0], later[-1])
                    )
                    break
    return found


def said(found):
    """Reuses as `brute_force` has them."""
    return {(one.tensor, one.loop, one.over): (one.least, one.most) for one in found}


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(2, 40))
def test_the_papers_example_has_its_sets(m, n, k):
    """A of a matrix product is used again after 2K + 3 elements; all of it after NK + N + 1."""
    problem = Problem.of("ij-ik-kj", {"i": m, "j": n, "k": k})
    nest = Nest.of(problem, [("register", "kji", 1), ("memory", "kji", problem.sizes)])
    (found,) = [one for one in find_reuses(problem, nest, MACHINE) if one.loop == "j"]
    assert found.tensor == 1
    assert found.least == 8 * (2 * k + 3)
    assert found.most == 8 * (n * k + n + 1)
    assert found.count == m * (n - 1)


def test_the_papers_matrix_product_fills_caches_as_published():
    """128×2048×4096 in tiles of 32, 16 and 32: bytes that L1 and L2 hold by the fill."""
    problem = Problem.of("mn-mk-kn", "m=128 n=2048 k=4096", "float32")
    box = {"m": 32, "n": 16, "k": 32}
    nest = Nest.of(
        problem, [("register", "kmn", 1), ("L1", "knm", box), ("memory", "knm", problem.sizes)]
    )
    sets = [(one.least, one.most) for one in find_reuses(problem, nest, MACHINE)]
    (first, second, _), _ = fill_levels(sets, [32 * 2**10, 2**20, 39424 * 2**10 // 28])
    assert (first, second) == (18584, 782592)


@settings(max_examples=25, deadline=None)
@given(nest_seeds)
def test_sets_of_plain_subscripts_are_those_of_brute_force(seed):
    """For every tensor and loop of a ragged nest."""
    problem, nest = draw_nest(random.Random(seed), PLAIN, most=4)
    assert said(find_reuses(problem, nest, MACHINE)) == brute_force(problem, nest)


@settings(max_examples=25, deadline=None)
@given(nest_seeds)
def test_sets_with_copies_are_those_of_brute_force(seed):
    """A copy counts alone inside its tile, and beside its source where it is made again."""
    draw = random.Random(seed)
    problem, nest = draw_nest(draw, PLAIN, most=4)
    levels = [None, *(band.level for band in nest.bands[1:-1])]
    packed = tuple(draw.choice(levels) for _ in problem.spec.operands)
    nest = replace(nest, packed=packed)
    assert said(find_reuses(problem, nest, MACHINE)) == brute_force(problem, nest)


@settings(max_examples=12, deadline=None)
@given(nest_seeds)
def test_sets_of_windows_are_those_of_brute_force(seed):
    """For strided and dilated windows, and a diagonal through one."""
    problem, nest = draw_nest(random.Random(seed), WINDOWS, most=4)
    assert said(find_reuses(problem, nest, MACHINE)) == brute_force(problem, nest)


@settings(max_examples=6, deadline=None)
@given(nest_seeds)
def test_sets_of_plain_subscripts_are_those_of_isl(seed):
    """First use and next uses by isl over all loops, where find_reuses has a closed form."""
    problem, nest = draw_nest(random.Random(seed), PLAIN, most=8)
    loops = loops_of(problem, nest)
    expected = {}
    for at, loop in enumerate(loops):
        for number, tensor in enumerate(problem.spec.tensors):
            ends = share_of_windows(tensor.subscripts, loops, at)
            if ends is not None:
                sizes = []
                for target in ends[1:]:
                    boxes = boxes_between(whole(problem), loops, ends[0], target)
                    touched = (count_elements(one, boxes) for one in problem.spec.tensors)
                    sizes.append(8 * sum(touched))
                expected[number, loop.letter, loop.over] = tuple(sizes)
    assert said(find_reuses(problem, nest, MACHINE)) == expected


def test_a_copy_counts_beside_its_source_outside_its_tile_and_alone_inside():
    """B is copied for each tile of 4 × 4; the loop over `m` leaves its copy alone."""
    problem = Problem.of("mn-mk-kn", 8)
    bands = [("register", "knm", 1), ("L1", "knm", 4), ("memory", "nkm", 8)]
    plain = Nest.of(problem, bands)
    packed = Nest.of(problem, bands, packed=(None, "L1"))
    before, after = (said(find_reuses(problem, nest, MACHINE)) for nest in (plain, packed))
    assert {key: size for key, size in after.items() if key[2] == "register"} == {
        key: size for key, size in before.items() if key[2] == "register"
    }
    # At A's next use, over `n`: tiles of C and B are done, and those of the next are begun: all of
    # A's tile and C's, and one element of C; both tiles of B as its source, and the copy.
    assert after[1, "n", "L1"][0] == 8 * (16 + 16 + 1 + (16 + 16) + 16)
    assert before[1, "n", "L1"][0] == 8 * (16 + 16 + 1 + 16 + 1)


def test_what_threads_share_must_stay_as_a_whole():
    """The matrix that all threads read counts with all that they touch; each once a thread."""
    problem = Problem.of("ij-ik-kj", "i=64 j=32 k=16")
    (found,) = find_shared(problem, "i", 4, MACHINE)
    assert found == Reuse(2, "i", "threads", 3, 8 * 3584, 8 * 3584, "L3")
    assert find_shared(problem, "i", 1, MACHINE) == ()
    assert find_shared(problem, "k", 4, MACHINE) == ()  # outputs are their own
    (found,) = find_shared(Problem.of("i-ik-i", "i=64 k=32"), "k", 4, MACHINE)
    assert (found.tensor, found.least) == (2, 8 * (4 * 64 + 64 * 32 + 64))
    rows = Problem.of("hk-[h+r]-rk", "h=64 k=2 r=3")
    assert [one.tensor for one in find_shared(rows, "h", 2, MACHINE)] == [1, 2]


def test_no_iterations_use_nothing_again():
    """Whatever extent is zero."""
    problem = Problem.of("mn-mk-kn", "m=0 n=4 k=4")
    nest = Nest.of(problem, [("register", "nmk", 1), ("memory", "nmk", 4)])
    assert find_reuses(problem, nest, MACHINE) == ()
    assert find_shared(problem, "n", 2, MACHINE) == ()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_lines_are_those_of_all_elements(data):
    """A union of boxes touches the lines that its elements lie in."""
    spec = data.draw(st.sampled_from(["abc-ab-bc", "hw-[2h+r][w+2s]-rs", "h-[3h]-h"]))
    sizes = {i: data.draw(st.integers(1, 12)) for i in Problem.of(spec, 1).spec.letters}
    problem = Problem.of(spec, sizes)
    boxes = []
    for _ in range(data.draw(st.integers(1, 3))):
        ends = {
            i: sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n))))
            for i, n in sizes.items()
        }
        boxes.append({i: (low, max(low + 1, high)) for i, (low, high) in ends.items()})
    for number, tensor in enumerate(problem.spec.tensors):
        strides = problem.strides(number)
        addresses = {
            sum(step * at for step, at in zip(strides.values(), place, strict=True))
            for box in boxes
            for place in product(*(range(*box[i]) for i in strides))
        }
        assert count_lines(strides, 8, 64, boxes) == len({one // 64 for one in addresses})
        assert count_elements(tensor, boxes) == len(addresses)


def test_lines_count_at_least_what_elements_do():
    """In whole lines sets are at least as large, and as large where rows are whole lines."""
    problem = Problem.of("mn-mk-kn", 16)
    bands = [("register", "knm", 8), ("memory", "knm", 16)]
    nest = Nest.of(problem, bands, packed=())
    pairs = zip(
        find_reuses(problem, nest, MACHINE, lines=True),
        find_reuses(problem, nest, MACHINE),
        strict=True,
    )
    assert all(line.least >= element.least for line, element in pairs)


def test_windows_without_islpy_are_a_clear_error(monkeypatch):
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "islpy", None)
    problem = Problem.of("h-[h+r]-r", "h=9 r=3")
    nest = Nest.of(problem, [("register", "rh", 1), ("memory", "rh", problem.sizes)])
    polyhedra.count_images.cache_clear()
    with pytest.raises(ModelError, match=r"pip install 'tilesolve\[polyhedral\]'"):
        find_reuses(problem, nest, MACHINE)


def test_plain_subscripts_need_no_islpy(monkeypatch):
    """A window of one letter that runs is none."""
    monkeypatch.setitem(sys.modules, "islpy", None)
    for spec, sizes in (("mn-mk-kn", 8), ("hk-[h+r]c-rck", "h=8 k=4 r=1 c=3")):
        problem = Problem.of(spec, sizes)
        letters = "".join(problem.sizes)
        nest = Nest.of(problem, [("register", letters, 1), ("memory", letters, problem.sizes)])
        assert find_reuses(problem, nest, MACHINE)


def test_windows_of_chosen_cells_are_refused():
    """Their tiles have no common size."""
    problem = Problem.of("h-[h+r]-r", "h=7 r=3")
    bands = [("register", "rh", {"h": 4, "r": 3}), ("memory", "rh", dict(problem.sizes))]
    made = Nest.of(problem, bands)
    nest = Nest(made.bands, made.packed, made.output, cells=(("h", (3, 4)),))
    with pytest.raises(PlanError, match="chosen sizes"):
        find_reuses(problem, nest, MACHINE)


def test_costs_by_sets_are_sums_over_levels():
    """Reuses at bandwidths beside the arithmetic; sizes by latencies, where all are known."""
    problem = Problem.of("mn-mk-kn", 96)
    nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "nmk", 96)])
    found = find_reuses(problem, nest, MACHINE)
    cost = compute_price(problem, nest, MACHINE)
    rates = {level.name: level.bandwidth for level in MACHINE.levels}
    around = [one.count * one.least / rates[one.level] for one in found if one.over]
    assert cost_of_reuses(found, cost, MACHINE) == pytest.approx(cost.compute + sum(around))
    timed = replace(MACHINE, levels=tuple(replace(one, latency=2.0) for one in MACHINE.levels))
    assert (knows_latencies(MACHINE), knows_latencies(timed)) == (False, True)
    assert cost_of_sets(found, timed) == pytest.approx(2 * cost_of_sets(found, MACHINE))
    waits = [1e-9 * 4**at for at in range(len(MACHINE.levels))]
    levels = [replace(one, latency=x) for one, x in zip(MACHINE.levels, waits, strict=True)]
    sets = [(one.least, one.most) for one in found]
    filled, beyond = fill_levels(sets, [level.usable for level in MACHINE.caches])
    costs = zip((*filled, beyond), waits, rates.values(), strict=True)
    assert cost_of_sets(found, replace(MACHINE, levels=tuple(levels))) == pytest.approx(
        sum(size * wait / rate for size, wait, rate in costs)
    )
    some = replace(MACHINE, levels=(*levels[:-1], MACHINE.memory))
    assert cost_of_sets(found, some) == cost_of_sets(found, MACHINE)


def test_copies_of_halves_are_as_wide_as_sums():
    """Inside its tile a packed copy counts at the width that it is packed in."""
    problem = Problem.of("mn-mk-kn", 8, "float16")
    bands = [("register", "kmn", 1), ("L1", "kmn", 4), ("memory", "nkm", 8)]
    packed = Nest.of(problem, bands, packed=(None, "L1"))
    found = said(find_reuses(problem, packed, MACHINE))
    assert found[0, "k", "register"][0] == 2 * (1 + 2) + 4 * 2
