"""The movement model against simulated caches that run the accesses of the real nest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_cases import CASES, access_all, draw_nests, make_machine
from turns import examples

from tilesolve.contractions.problem import Problem
from tilesolve.model.access import accesses_of
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.plans.plan import plan
from tilesolve.simulation.cache_simulator import CacheShape, caches
from tilesolve.simulation.nest_trace import BUFFER, COMPUTE, SOURCE, simulate
from tilesolve.studies.misses import compare_misses, describe_caches

named_cases = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.title}: {' '.join(case.around)}"
)

SPECS = (
    "mn-mk-kn",
    "ab-acd-dbc",
    "wk-c[2w+s]-kcs",
    "bi-bij-bj-jk",
    "ij-ji",
    "h-[h+r]-r",
    "khw-[h+r]w-kr",
    "ab-a-cb",
)


class ObviousNest:
    """The same accesses by plain recursion over the loops, outermost first."""

    def __init__(self, problem: Problem, nest: Nest) -> None:
        self.problem, self.spec = problem, problem.spec
        call = nest.bands[0].order[::-1]
        self.kept = [i for i in call if i in problem.spec.output.letters]
        self.summed = [i for i in call if i not in problem.spec.output.letters]
        bands = list(pairwise(nest.bands))[::-1]
        self.loops = [
            (i, near[i], band.level) for near, band in bands for i in reversed(band.order)
        ]
        self.homes = [None, *(nest.packed or (None,) * len(problem.spec.operands))]
        sizes = [-(-size // PAGE_BYTES) * PAGE_BYTES for size in problem.bytes]
        starts = np.concatenate(([0], np.cumsum(sizes * 2)))
        self.base, self.buffer = starts[: len(sizes)], starts[len(sizes) :]
        self.span = int(starts[-1])
        self.corner: dict[int, dict[str, int]] = {}
        self.slots: dict[int, dict[int, int]] = {}

    def trace(self) -> list[tuple[int, int]]:
        """Return addresses, and phase and tensor as one number."""
        whole = {i: range(n) for i, n in self.problem.sizes.items()}
        return list(self.outside(0, whole))

    def element(self, tensor: int, point: dict[str, int]) -> int:
        where = [
            sum(c * point[i] for c, i in subscript.terms)
            for subscript in self.spec.tensors[tensor].subscripts
        ]
        return int(np.ravel_multi_index(where, self.problem.shape(tensor))) if where else 0

    def outside(self, depth: int, box: dict[str, range]) -> Iterator[tuple[int, int]]:
        level = self.loops[depth][2] if depth < len(self.loops) else None
        if depth == 0 or level != self.loops[depth - 1][2]:
            for tensor, home in enumerate(self.homes):
                if home is not None and home == level:
                    yield from self.pack(tensor, depth, box)
        if depth == len(self.loops):
            yield from self.calls(box)
            return
        letter, step, _ = self.loops[depth]
        for start in range(box[letter].start, box[letter].stop, step):
            part = range(start, min(start + step, box[letter].stop))
            yield from self.outside(depth + 1, {**box, letter: part})

    def calls(self, box: dict[str, range]) -> Iterator[tuple[int, int]]:
        for step in product(*(box[i] for i in self.summed)):
            for tensor in range(1, len(self.spec.tensors)):
                yield from self.touch(tensor, box, dict(zip(self.summed, step, strict=True)))
        yield from self.touch(0, box, {})

    def touch(self, tensor, box, fixed) -> Iterator[tuple[int, int]]:
        own = [i for i in self.kept if i in self.spec.tensors[tensor].letters]
        for values in product(*(box[i] for i in own)):
            element = self.element(tensor, {**fixed, **dict(zip(own, values, strict=True))})
            if self.homes[tensor] is None:
                yield self.base[tensor] + 8 * element, tensor
            else:
                yield self.buffer[tensor] + 8 * self.slots[tensor][element], tensor

    def pack(self, tensor, depth, box) -> Iterator[tuple[int, int]]:
        letters = self.spec.tensors[tensor].letters
        corner = {i: box[i].start for i in letters}
        if self.corner.get(tensor) == corner:
            return
        self.corner[tensor], self.slots[tensor] = corner, {}
        count = len(self.spec.tensors)
        for element in self.reading_order(tensor, depth, box):
            if element not in self.slots[tensor]:
                slot = self.slots[tensor][element] = len(self.slots[tensor])
                yield self.base[tensor] + 8 * element, SOURCE * count + tensor
                yield self.buffer[tensor] + 8 * slot, BUFFER * count + tensor

    def reading_order(self, tensor, depth, box) -> Iterator[int]:
        letters = self.spec.tensors[tensor].letters
        if depth == len(self.loops):
            own = [i for i in (*self.summed, *self.kept) if i in letters]
            for values in product(*(box[i] for i in own)):
                yield self.element(tensor, dict(zip(own, values, strict=True)))
            return
        letter, step, _ = self.loops[depth]
        if letter not in letters:
            yield from self.reading_order(tensor, depth + 1, box)
            return
        for start in range(box[letter].start, box[letter].stop, step):
            part = range(start, min(start + step, box[letter].stop))
            yield from self.reading_order(tensor, depth + 1, {**box, letter: part})


@st.composite
def nests(draw: st.DrawFn) -> tuple[Problem, Nest]:
    """Draw a small problem and a nest of up to three levels, ragged and packed as it comes."""
    spec = draw(st.sampled_from(SPECS))
    letters = Problem.of(spec, 1).spec.letters
    problem = Problem.of(spec, {i: draw(st.integers(1, 4)) for i in letters})
    box, bands = dict.fromkeys(letters, 1), []
    names = ["register", *(f"L{n}" for n in range(1, draw(st.integers(1, 3)) + 1))]
    for name in names:
        box = {i: draw(st.integers(box[i], max(box[i], problem.sizes[i]))) for i in letters}
        bands.append((name, "".join(draw(st.permutations(letters))), box))
    bands.append(("memory", "".join(draw(st.permutations(letters))), dict(problem.sizes)))
    homes = st.sampled_from([None, *names[1:]])
    packed = tuple(draw(homes) for _ in problem.spec.operands)
    return problem, with_windows(Nest.of(problem, bands, packed))


def with_windows(nest: Nest) -> Nest:
    """Return a nest whose copies hold each element once, as those that are simulated do."""
    return replace(nest, kinds=tuple("windows" if home else "in place" for home in nest.packed))


@examples(6, 40)
@given(nests(), st.sampled_from((8, 64)))
def test_the_trace_is_that_of_the_obvious_loops(drawn, line):
    """Misses, touches and packed elements are those of plain recursion over the same nest."""
    problem, nest = drawn
    levels = [CacheShape(4 * line, line), CacheShape(12 * line, line)]
    obvious = ObviousNest(problem, nest)
    trace = obvious.trace()
    state = caches(levels, obvious.span, 3 * len(problem.spec.tensors))
    access_all(state, *np.array(trace, np.int64).T.copy())
    found = simulate(problem, nest, levels)
    assert np.array_equal(found.lines.reshape(2, -1), state.misses)
    owners = np.bincount([owner for _, owner in trace], minlength=state.misses.shape[1])
    by_phase = owners.reshape(3, -1)
    assert np.array_equal(found.touches, by_phase[COMPUTE])
    assert np.array_equal(found.packed, by_phase[SOURCE])


@examples(25, 60)
@given(nests())
def test_packed_elements_are_those_of_the_nest(drawn):
    """How many elements a nest packs, repetitions and overlaps counted, is priced exactly.

    But where tiles do not divide each other: at the edge a loop may not run at all, and a copy
    outlive the next one, which mean trip counts do not see; and where strides leave out what a
    window copy has, and the simulation does not. The price is then not too low.
    """
    problem, nest = drawn
    packed = simulate(problem, nest, [CacheShape(64, 64)]).packed[1:]
    toy = make_machine(tuple(64 * 4**at for at in range(len(nest.bands) - 2)))
    predicted = compute_price(problem, nest, toy).packed
    ragged = any(
        far[i] % near[i] for near, far in pairwise(nest.bands) for i in problem.spec.letters
    )
    boxes = {band.level: dict(band.box) for band in nest.bands}
    for read, home, found, cost in zip(
        accesses_of(problem)[1:], nest.packed, packed, predicted, strict=True
    ):
        box = boxes.get(home)
        gaps = box and read.reached(box) > read.touched(box, 1)
        if ragged or gaps:
            assert cost >= found * (1 - 1e-12)
        else:
            assert cost == pytest.approx(found)


@named_cases
@pytest.mark.parametrize("line", [64, 8], ids=["lines of 64 bytes", "lines of one element"])
def test_predicted_misses_are_the_simulated_ones(case, line):
    """Per level the prediction is within 10 % of what fully associative caches miss.

    But for one nest, 15 % too low with long lines: half of a copy of A is thrown out between
    its making and its first use, by its own source and by C, which is used in between.
    """
    for row in compare_misses(case.problem, case.nest, make_machine(line=line)):
        if (case.title, case.around) == THROWN_OUT and row.level == "L3" and line == 64:
            assert 0.85 < row.ratio < 0.9, row
        else:
            assert row.ratio == pytest.approx(1, abs=0.1), row


THROWN_OUT = ("abcdef-degb-gfac", ("g", "g", "bde"))


def test_a_sample_stands_for_the_whole_nest():
    """A quarter of a nest or more foretells the misses of all of it.

    In the nearer caches to a tenth; in the last one, which does not fill in so short a run and
    where what is missed once for all counts for each pass, it finds up to 40 % too many.
    """
    sampled = 0
    for case in CASES:
        problem, nest, levels = case.problem, case.nest, describe_caches(make_machine())
        whole = simulate(problem, nest, levels)
        part = simulate(problem, nest, levels, budget=whole.touches.sum() / 2)
        assert part.share < 1.0
        if part.share < 0.25:
            continue
        sampled += 1
        assert part.touches.sum() == pytest.approx(whole.touches.sum(), rel=0.05)
        ratios = part.lines.sum(axis=(1, 2)) / whole.lines.sum(axis=(1, 2))
        assert ratios[:-1] == pytest.approx(1, abs=0.1), case
        assert 0.9 < ratios[-1] < 1.4, case
    assert sampled > len(CASES) / 2


def test_a_budget_for_all_changes_nothing():
    """Where all of a nest is affordable, all of it is run."""
    case = CASES[0]
    whole = simulate(case.problem, case.nest, describe_caches(make_machine()))
    found = simulate(case.problem, case.nest, describe_caches(make_machine()), budget=1e9)
    assert found.share == 1.0
    assert np.array_equal(found.lines, whole.lines)


def test_random_nests_are_seldom_underpriced():
    """Of nests not chosen for anything few are priced more than a tenth below what they miss.

    Listing 3, which knows neither the next tile's slices nor packing's source, is too low
    several times as often.
    """
    rows = [row for nest in draw_nests(24) for row in compare_misses(*nest, make_machine())]
    low = [row for row in rows if row.ratio < 0.9]
    assert min(row.ratio for row in rows) > 0.7
    assert len(low) <= 0.08 * len(rows)
    assert sum(row.ratio3 < 0.9 for row in rows) >= 3 * len(low)
    assert np.median([row.ratio for row in rows]) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("around", ["hkrc", "rhkc", "crhk", "khcr"])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_a_copy_is_made_whole(stride, around):
    """What a tile of a convolution shares with the one before it is copied with both.

    Windows leave out nothing here: the simulation copies what is used, not what is between.
    """
    problem = Problem.of(f"kh-c[{stride}h+r]-kcr", "k=8 h=24 c=4 r=8")
    call = {"k": 2, "h": 2, "c": 2, "r": 4}
    bands = [("register", "hkrc", call), ("L1", around, {**call, "h": 4})]
    bands += [("L2", around, {"k": 4, "h": 8, "c": 2, "r": 4}), ("memory", around, 24)]
    for home in ("L1", "L2"):
        nest = with_windows(Nest.of(problem, bands, (home, home)))
        packed = simulate(problem, nest, [CacheShape(64, 64)]).packed[1:]
        assert compute_price(problem, nest, make_machine((512, 4096))).packed == pytest.approx(
            packed
        )


@named_cases
def test_registers_take_in_what_calls_touch(case):
    """L1 serves each operand once per step of a call and the output once per call."""
    problem, nest = case.problem, case.nest
    touches = simulate(problem, nest, describe_caches(make_machine())).touches
    assert compute_price(problem, nest, make_machine()).level("L1").moved == pytest.approx(
        8 * touches
    )


@examples(25, 60)
@given(nests())
def test_registers_take_in_what_calls_touch_in_any_nest(drawn):
    """Whatever the order of loops, ragged edges, and the letters that an operand lacks."""
    problem, nest = drawn
    touches = simulate(problem, nest, [CacheShape(64, 64)]).touches
    cost = compute_price(
        problem, nest, make_machine(tuple(64 * 4**at for at in range(len(nest.bands) - 2)))
    )
    assert cost.level("L1").moved == pytest.approx(8 * touches)


def test_victim_caches_are_priced_by_the_sum_of_capacities():
    """With L2 a victim cache of L1, predictions stay within 10 % of the simulation."""
    toy = make_machine(inclusive=(True, False, True))
    for case in CASES:
        for row in compare_misses(case.problem, case.nest, toy):
            if (case.title, case.around) != THROWN_OUT:
                assert row.ratio == pytest.approx(1, abs=0.1), (case, row)


def test_conflicts_make_few_nests_much_worse():
    """Set-associative caches miss up to half as much again where strided rows share sets.

    The price knows no conflicts, so that it may be too low but not too high; for most nests
    8, 8 and 16 ways are as good as full associativity.
    """
    ratios = np.array(
        [
            row.ratio
            for case in CASES
            for row in compare_misses(case.problem, case.nest, make_machine(ways=(8, 8, 16)))
        ]
    )
    assert ratios.min() > 0.65
    assert ratios.max() < 1.1
    assert np.mean(np.abs(ratios - 1) < 0.1) > 0.9


def test_listing3_overprices_tensors_that_are_touched_again():
    """Listing 3 predicts too much where a stationary tile stays in LRU order."""
    rows = [
        row for case in CASES for row in compare_misses(case.problem, case.nest, make_machine())
    ]
    assert max(row.ratio3 for row in rows) > 1.2
    assert sum(abs(row.ratio3 - 1) > 0.1 for row in rows) >= 5


class TestWhatComesBetweenUses:
    """The smallest nests that show what an LRU cache needs room for beside a tile."""

    SQUARE = "mn-mk-kn"

    def row(self, sizes, bands, toy, packed=()):
        problem = Problem.of(self.SQUARE, sizes)
        return compare_misses(problem, Nest.of(problem, bands, packed), toy)[0]

    def reused_block(self, capacity):
        """Return the row of a nest that goes over a block of A for every 12 columns of B."""
        sizes = {"m": 16, "n": 60, "k": 16}
        call, tile = {"m": 2, "n": 12, "k": 16}, {"m": 16, "n": 12, "k": 16}
        bands = [("register", "nmk", call), ("L1", "mnk", tile), ("memory", "nmk", sizes)]
        return self.row(sizes, bands, make_machine((8 * capacity,), line=8))

    def test_the_next_tile_needs_room_beside_the_last_one(self):
        """A tile that just fits is thrown out as the next one's part of B comes in.

        A (256), B (192) and C (192 elements) fit 650. But a row of A is used again only after
        the rest of the old and the beginning of the new 192 of C, and after both B's, the old
        and the new, since B belongs to no particular row: 256 + 2·192 + 192 = 832 elements.
        With less room A is missed for each of the five blocks of columns. Listing 3 says once.
        """
        tight, roomy = self.reused_block(650), self.reused_block(840)
        assert roomy.distance == roomy.simulated == tight.listing3 == (960, 256, 960)
        assert tight.distance == (960, 5 * 256, 960)
        assert tight.simulated[0] == tight.simulated[2] == 960
        assert 0.95 * 5 * 256 < tight.simulated[1] <= 5 * 256

    def test_packing_streams_its_source_through_the_level(self):
        """While a block is copied, its source passes through the copy's level too.

        C (64) stays over the loop on k if A (128) and B (128 elements) fit beside it; the copy
        of A brings 128 elements of source along. C is missed four times instead of once.
        """
        sizes = {"m": 8, "n": 8, "k": 64}
        tile = {**sizes, "k": 16}
        bands = [("register", "mnk", tile), ("L1", "mnk", tile), ("memory", "kmn", sizes)]
        tight, roomy = (
            self.row(sizes, bands, make_machine((8 * room,), line=8), ("L1", None))
            for room in (400, 600)
        )
        assert roomy.distance == roomy.simulated == tight.listing3 == (64, 512, 512)
        assert tight.distance == tight.simulated == (4 * 64, 512, 512)

    def test_packing_washes_out_the_nearer_level(self):
        """What L1 kept over a loop is gone if an operand was packed for L2 in between.

        A's block (64 elements) is used for each of four blocks of B, which go through L1 twice,
        read and written, when they are packed. It is missed four times instead of once.
        """
        sizes = {"m": 4, "n": 128, "k": 16}
        call, tile = {"m": 4, "n": 4, "k": 16}, {"m": 4, "n": 32, "k": 16}
        bands = [("register", "mnk", call), ("L1", "nmk", call), ("L2", "nmk", tile)]
        bands.append(("memory", "nmk", sizes))
        toy = make_machine((8 * 256, 8 * 4096), line=8)
        packed, in_place = (self.row(sizes, bands, toy, home) for home in ((None, "L2"), ()))
        assert in_place.distance == in_place.simulated == (512, 64, 2048)
        assert packed.distance == packed.simulated == (512, 4 * 64, 2048)

    def test_a_small_copy_stays_in_the_nearer_level(self):
        """A copy made for L2 that L1 has room for is written and read there.

        Beside B's copy (512 elements) and its source, L1 holds the block's A (1024) and C (2048):
        no call misses B, for which a smaller L1 is asked once a copy at least.
        """
        sizes = {"m": 64, "n": 128, "k": 16}
        call, tile = {"m": 4, "n": 4, "k": 16}, {"m": 64, "n": 32, "k": 16}
        bands = [("register", "mnk", call), ("L1", "nmk", call), ("L2", "nmk", tile)]
        bands.append(("memory", "nmk", sizes))
        tight, roomy = (
            self.row(sizes, bands, make_machine((8 * room, 8 * 65536), line=8), (None, "L2"))
            for room in (256, 8192)
        )
        assert roomy.distance == roomy.simulated == (64 * 128, 64 * 16, 0)
        assert tight.distance[2] >= 16 * 128
        assert tight.simulated[2] >= 16 * 128

    @pytest.mark.parametrize("columns", [96, 97])
    def test_runs_that_begin_on_a_line_take_no_more(self, columns):
        """Eight columns of a matrix with 96 lie in one line each, of one with 97 in up to two."""
        sizes = {"m": 64, "n": columns, "k": 8}
        call = {"m": 8, "n": 8, "k": 8}
        bands = [("register", "nmk", call), ("L1", "nmk", call), ("memory", "mnk", sizes)]
        row = self.row(sizes, bands, make_machine((4096,)))
        assert row.distance[0] == pytest.approx(row.simulated[0], rel=0.02)
        assert (row.distance[0] == sizes["m"] * columns / 8) == (columns == 96)


@pytest.mark.parametrize("spec", ["mnb-bmk-bkn", "mnb-mkb-knb", "bmn-bmk-bkn", "mbn-bmk-nbk"])
def test_a_batch_is_a_call_of_its_own(spec):
    """Wherever its letter stands: C's tile of one batch stays in registers, that of all would not.

    Cells have whole vectors of batches where these are side by side in C.
    """
    found = plan(spec, "m=64 n=48 k=64 b=8", "i7-6700k", cache=False)
    touches = simulate(found.problem, found.nest, [CacheShape(32768, 64, 8)]).touches
    assert found.price.level("L1").moved == pytest.approx(8 * touches)
    machine = found.machine
    written = found.nest.scattered * found.price.level("L1").moved[0] / 8
    apart = written * machine.costs.scattered_store_cycles / machine.frequency
    assert found.price.seconds - apart < 1.1 * found.search.integral
