"""Prices of nests against the paper's table, hand counts, brute force and general laws."""

from __future__ import annotations

from itertools import product
from math import ceil, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_cases import make_machine
from strategies import problems, specs

from tilesolve.constants.policy import PACK_CROSSINGS
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level
from tilesolve.machine.microkernel import Microkernel
from tilesolve.model.access import accesses_of
from tilesolve.model.chain import keep_boxes
from tilesolve.model.nest import Nest, tile_counts
from tilesolve.model.price import compute_price
from tilesolve.studies.misses import RULES

EXTENTS, TILES = {"i": 96, "j": 120, "k": 144}, {"i": 8, "j": 12, "k": 18}
SIZES = {"m": 96, "n": 64, "k": 80}


def elements(bytes_moved) -> tuple[float, ...]:
    """Return float64 elements of bytes."""
    return tuple(size / 8 for size in bytes_moved)


class TestTable1:
    """Table 1 of the paper: one level, C[i,j] += A[i,k]·B[k,j], loops i2, j2, k2 from outside."""

    # The paper's rows under i2: which tiles reach across their index, and A, B and C. An entry
    # such as "Ni Nk Nj/Tj" is a product of extents and tile sizes.
    ROWS = (
        ("", "Ni Nk Nj/Tj", "Nj Nk Ni/Ti", "Ni Nj"),
        ("k", "Ni Tk", "Nj Tk Ni/Ti", "Ni Nj"),
        ("j", "Ni Nk Nj/Tj", "Tj Nk Ni/Ti", "Ni Tj"),
        ("jk", "Ni Tk", "Tj Tk", "Ni Tj"),
        ("i", "Ti Nk Nj/Tj", "Nj Nk Ni/Ti", "Ti Nj"),
        ("ik", "Ti Tk", "Nj Tk Ni/Ti", "Ti Nj"),
        ("ij", "Ti Nk Nj/Tj", "Tj Nk Ni/Ti", "Ti Tj"),
        ("ijk", "Ti Tk", "Tj Tk", "Ti Tj"),
    )

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("row", ROWS, ids=lambda row: f"fits: {row[0] or 'none'}")
    def test_row(self, row, rule):
        """Each entry of the row is what memory serves, by both rules."""
        whole, *entries = row
        tile = {i: EXTENTS[i] if i in whole else TILES[i] for i in "ijk"}
        problem = Problem.of("ij-ik-kj", EXTENTS)
        nest = Nest.of(problem, [("register", "kji", tile), ("memory", "kji", EXTENTS)])
        # Room for the tile and for what the next one brings, not for two tiles in a row.
        room = tile["i"] * tile["k"] + 2 * tile["k"] * tile["j"] + tile["i"] * tile["j"]
        found = compute_price(problem, nest, make_machine((8 * room,), line=8), rule=rule)
        symbols = {**{f"N{i}": n for i, n in EXTENTS.items()}, **{f"T{i}": tile[i] for i in "ijk"}}
        first, second, output = (self.value(entry, symbols) for entry in entries)
        assert elements(found.level("memory").moved) == pytest.approx((output, first, second))

    @staticmethod
    def value(entry: str, symbols: dict[str, int]) -> float:
        """Return the product that an entry of the table stands for."""
        result = 1.0
        for factor in entry.split():
            above, _, below = factor.partition("/")
            result *= symbols[above] / (symbols[below] if below else 1)
        return result


class TestByHand:
    """Prices worked out on paper, with the arithmetic shown."""

    def test_two_levels(self):
        """L1 and memory serve a 64³ product in 16×16×8 tiles and 4×4 register tiles."""
        problem = Problem.of("mn-mk-kn", 64)
        call, tile = {"m": 4, "n": 4, "k": 8}, {"m": 16, "n": 16, "k": 8}
        bands = [("register", "mnk", call), ("L1", "mnk", tile), ("memory", "kmn", 64)]
        cost = compute_price(problem, Nest.of(problem, bands), make_machine((8 * 700,), line=8))
        # Registers: a call reads 4·8 of A and of B, and 4·4 of C; there are 16·16·8 calls.
        calls = 16 * 16 * 8
        assert cost.calls == calls
        assert elements(cost.level("L1").moved) == (calls * 16, calls * 32, calls * 32)
        # L1 holds a tile (128 of A, 128 of B, 256 of C) and goes along k, which leaves C: the
        # 4·4 tiles of C come once, each with the whole of its rows of A and columns of B.
        assert elements(cost.level("memory").moved) == (4096, 4 * 4096, 4 * 4096)

    def test_three_levels(self):
        """With L2 between, A stays in it along n, and C in L1 along k."""
        sizes = {"m": 32, "n": 64, "k": 64}
        problem = Problem.of("mn-mk-kn", sizes)
        call, near = {"m": 4, "n": 4, "k": 8}, {"m": 8, "n": 8, "k": 8}
        far = {"m": 16, "n": 8, "k": 32}
        bands = [
            ("register", "mnk", call),
            ("L1", "mnk", near),
            ("L2", "kmn", far),
            ("memory", "nkm", sizes),
        ]
        cost = compute_price(
            problem, Nest.of(problem, bands), make_machine((8 * 300, 8 * 1500), line=8)
        )
        # L1 holds 8×8 of each, and a tile of C stays while k goes from 8 to 32. Then it goes:
        # every one of the 2 blocks of k reads and writes all of C. A and B come for every tile:
        # A for each of the 64/8 tiles of n, B for each of the 32/8 tiles of m.
        c, a, b = 32 * 64, 32 * 64, 64 * 64
        assert elements(cost.level("L2").moved) == (2 * c, 8 * a, 4 * b)
        # L2 holds 16×32 of A, 32×8 of B and 16×8 of C (896 elements) and goes along n, which
        # leaves A: it comes once. C comes for each of 2 blocks of k, B for each of 2 of m.
        assert elements(cost.level("memory").moved) == (2 * c, a, 2 * b)
        assert cost.level("memory").volumes == (8 * 2 * 2 * c, 8 * a, 8 * 2 * b)

    def test_three_operands(self):
        """In a product of three, a tensor that lacks the loop's letter stays, the others go."""
        problem = Problem.of("ij-ik-kl-lj", {"i": 8, "j": 16, "k": 4, "l": 4})
        tile = {"i": 8, "j": 4, "k": 4, "l": 4}
        bands = [("register", "jlki", tile), ("memory", "jikl", dict(problem.sizes))]
        cost = compute_price(problem, Nest.of(problem, bands), make_machine((8 * 200,), line=8))
        # The tile has 32 of C, 32 of A, 16 of B and 16 of D, and only j goes on, 4 times.
        assert elements(cost.level("memory").moved) == (8 * 16, 8 * 4, 4 * 4, 4 * 16)

    @pytest.mark.parametrize(("rule", "times"), [("distance", 1), ("listing3", 4)])
    def test_a_tensor_that_is_touched_again_stays(self, rule, times):
        """Round a second loop without its letters a tensor stays, though Listing 3 reloads it."""
        problem = Problem.of("mnp-mk-knp", {"m": 8, "k": 8, "n": 32, "p": 4})
        tile = {"m": 8, "k": 8, "n": 4, "p": 1}
        bands = [("register", "mnkp", tile), ("memory", "npmk", dict(problem.sizes))]
        cost = compute_price(
            problem, Nest.of(problem, bands), make_machine((8 * 300,), line=8), rule=rule
        )
        # The tile takes 64 of A, 32 of B and 32 of C, so that A stays along n. The loop on n
        # sends 256 of B and as many of C through 300, but A is used again every 4 columns.
        assert elements(cost.level("memory").moved) == (8 * 32 * 4, times * 64, 8 * 32 * 4)

    def test_a_letter_in_two_subscripts_counts_once(self):
        """A band along the diagonal has an element for each point of its letters, not more."""
        problem = Problem.of("i-i[i+j]", {"i": 5, "j": 2})
        band = accesses_of(problem)[1]
        assert band.touched({"i": 5, "j": 1}, 1) == 8 * 5
        assert band.touched({"i": 5, "j": 2}, 1) == 8 * 5 * 2

    def test_times_are_volumes_over_bandwidths(self):
        """A level's time is its bytes over its server's bandwidth; compute counts as a level."""
        problem = Problem.of("mn-mk-kn", 64)
        nest = Nest.of(problem, [("register", "mnk", 8), ("memory", "kmn", 64)])
        toy = make_machine((4096, 65536))
        kernel = Microkernel(
            8,
            8,
            efficiency=0.5,
            call_cycles=30,
            pack_cycles=2,
            in_place_rows_cycles=0.25,
            in_place_columns_cycles=0,
            in_place_columns_slowdown=1.5,
        )
        cost = compute_price(problem, nest, toy, microkernel=kernel)
        for level in cost.levels:
            assert level.seconds == level.volume / toy.level(level.level).bandwidth
        # 2·64³ flops at half of 1e10, half as long again with columns of A read in place; at
        # 1e9 Hz 8³ calls of 30 cycles, and a quarter of a cycle for each of the 64² elements of
        # B, whose rows are read in place; L2 holds them.
        cycles = 512 * 30 + 64**2 * 0.25
        assert cost.compute == pytest.approx(1.5 * 2 * 64**3 / 5e9 + cycles / 1e9)
        assert cost.seconds == max(cost.compute, *(level.seconds for level in cost.levels))
        assert cost.ranking[0] == cost.seconds
        assert cost.bottleneck == "compute"
        slow = toy.replace(levels=(*toy.caches, Level("memory", None, 1e3)))
        assert compute_price(problem, nest, slow).bottleneck == "memory"


class TestRagged:
    """Extents that tiles do not divide, against a count of the tiles."""

    @given(st.integers(1, 60), st.lists(st.integers(1, 60), min_size=1, max_size=3).map(sorted))
    def test_counts_are_those_of_the_tiles(self, extent, tiles):
        """The tiles of every band, the ragged ones too, are counted as a listing finds them."""
        problem = Problem.of("i-i", extent)
        bands = [(f"band{at}", "i", {"i": tile}) for at, tile in enumerate(tiles)]
        nest = Nest.of(problem, [*bands, ("memory", "i", extent)])
        pieces, expected = [extent], [1.0]
        for band in nest.bands[-2::-1]:
            step = band["i"]
            pieces = [min(step, n - at) for n in pieces for at in range(0, n, step)]
            expected.append(float(len(pieces)))
        assert tile_counts([band["i"] for band in nest.bands]) == expected[::-1]

    @pytest.mark.parametrize("change", [-1, 0, 1])
    @pytest.mark.parametrize("first", "mnk")
    def test_a_level_moves_what_its_tiles_move(self, change, first):
        """Just under, at and just over whole tiles, tensors move as a walk over tiles does."""
        tile = {"m": 6, "n": 5, "k": 7}
        sizes = {i: 4 * t + change for i, t in tile.items()}
        problem = Problem.of("mn-mk-kn", sizes)
        order = first + "mnk".replace(first, "")
        nest = Nest.of(problem, [("register", "mnk", tile), ("memory", order, sizes)])
        room = sum(tile[i] * tile[j] for i, j in ("mn", "mk", "kn")) + tile["m"] * tile["n"]
        cost = compute_price(problem, nest, make_machine((8 * room,), line=8))
        assert elements(cost.level("memory").moved) == pytest.approx(self.brute(sizes, tile, order))
        assert cost.calls == prod(ceil(sizes[i] / t) for i, t in tile.items())

    @staticmethod
    def brute(sizes: dict[str, int], tile: dict[str, int], order: str) -> list[int]:
        """Walk over the tiles; a tensor is fetched whenever its tile is not the last one's."""
        moved, last = [0, 0, 0], [None, None, None]
        for corner in product(*(range(0, sizes[i], tile[i]) for i in reversed(order))):
            at = dict(zip(reversed(order), corner, strict=True))
            for t, letters in enumerate(("mn", "mk", "kn")):
                where = tuple(at[i] for i in letters)
                if where != last[t]:
                    last[t] = where
                    moved[t] += prod(min(tile[i], sizes[i] - at[i]) for i in letters)
        return moved


class TestOutput:
    """How C is written decides what its first touch costs."""

    def volumes(self, output):
        problem = Problem.of("mn-mk-kn", {"m": 32, "n": 48, "k": 64})
        bands = [("register", "mnk", 8), ("L1", "mnk", 16), ("memory", "mnk", dict(problem.sizes))]
        cost = compute_price(
            problem, Nest.of(problem, bands, output=output), make_machine((8192,), line=8)
        )
        return problem.bytes[0], [level.volumes[0] for level in cost.levels], cost

    def test_an_accumulated_output_weighs_two(self):
        """What is read, changed and written crosses every level twice."""
        _, volumes, cost = self.volumes("accumulate")
        assert volumes == [2 * level.moved[0] for level in cost.levels]
        assert [level.volumes[1:] for level in cost.levels] == [
            level.moved[1:] for level in cost.levels
        ]

    def test_a_streamed_output_weighs_one_the_first_time(self):
        """The first write needs no read at any level; later visits weigh two."""
        size, volumes, _ = self.volumes("stream")
        assert volumes == [twice - size for twice in self.volumes("accumulate")[1]]

    def test_an_overwritten_output_is_read_by_the_caches_only(self):
        """A store that goes through the caches fetches its lines, but not into registers."""
        size, volumes, _ = self.volumes("store")
        twice = self.volumes("accumulate")[1]
        assert volumes == [twice[0] - size, *twice[1:]]


class TestPacking:
    """Packed elements and their traffic, by Eqs 10-14 of the paper."""

    def cost(self, order, packed, near_order="mnk"):
        problem = Problem.of("mn-mk-kn", SIZES)
        bands = [
            ("register", "mnk", {"m": 8, "n": 4, "k": 20}),
            ("L1", "mnk", {"m": 8, "n": 4, "k": 20}),
            ("L2", near_order, {"m": 24, "n": 16, "k": 20}),
            ("L3", near_order, {"m": 48, "n": 32, "k": 40}),
            ("memory", order, SIZES),
        ]
        return compute_price(problem, Nest.of(problem, bands, packed), make_machine())

    def test_a_copy_of_everything_is_made_once(self):
        """Eq. 10: a buffer that holds the whole operand packs each element once."""
        problem = Problem.of("mn-mk-kn", SIZES)
        bands = [("register", "mnk", 8), ("L1", "mnk", dict(SIZES))]
        bands.append(("memory", "mnk", dict(SIZES)))
        packed = compute_price(
            problem, Nest.of(problem, bands, ("L1", "L1")), make_machine((4096,))
        ).packed
        assert packed == (96 * 80, 80 * 64)

    @pytest.mark.parametrize(
        ("order", "times_a", "times_b"),
        [
            # Eqs 11-12: a loop over an index that the operand lacks repeats its packing if one
            # over an index of it is inside. n repeats A (64/32), m repeats B (96/48).
            ("nmk", 1, 2),
            ("nkm", 1, 2),
            ("mnk", 2, 1),
            ("mkn", 2, 1),
            ("kmn", 2, 2),
            ("knm", 2, 2),
        ],
    )
    def test_buffers_in_the_last_cache(self, order, times_a, times_b):
        """Loops above the buffer repeat packing only around loops that change its tile."""
        packed = self.cost(order, ("L3", "L3")).packed
        assert packed == (times_a * 96 * 80, times_b * 80 * 64)

    def test_a_buffer_in_a_nearer_cache(self):
        """Eqs 13-14: with its buffer in L2, A is packed again for all 64/16 tiles of n."""
        order = "knm"
        near = self.cost(order, ("L2", None), near_order=order).packed
        assert near == (96 * 80 * 64 // 16, 0)
        # With n innermost in both bands and k between, only the 64/32 trips outside repeat it.
        assert self.cost("nkm", ("L2", None), near_order="nkm").packed == (96 * 80 * 64 // 32, 0)

    def test_packing_crosses_every_level_up_to_the_buffer(self):
        """The source and the copy go in, and the copy out, at each level nearer than its own."""
        cost = self.cost("mnk", ("L3", "L3"))
        size_a, size_b = (8 * count for count in cost.packed)
        assert cost.levels[0].packing == (0, 2 * size_a, 2 * size_b)
        for level in cost.levels[1:3]:
            assert level.packing == (0, PACK_CROSSINGS * size_a, PACK_CROSSINGS * size_b)
            assert level.volumes[1:] == tuple(
                a + b for a, b in zip(level.moved[1:], level.packing[1:], strict=True)
            )
        assert cost.levels[3].packing == (0, 0, 0)

    def test_a_copy_is_dense_where_the_source_is_strided(self):
        """Nearer than its buffer an operand moves bytes, at and beyond it whole lines."""
        packed, in_place = self.cost("mnk", ("L3", "L3")), self.cost("mnk", ())
        for near in (1, 2):
            assert packed.levels[near].moved[1] < in_place.levels[near].moved[1]
        assert packed.levels[3].moved[1] == in_place.levels[3].moved[1]

    def test_a_buffer_needs_a_tile(self):
        """A copy in a level without a tile is refused, by name."""
        with pytest.raises(SizeError, match="'L7'"):
            self.cost("mnk", ("L7", None))

    def test_a_way_of_writing_is_one_that_there_is(self):
        """The name of a level, given for the way in which C is written, is refused."""
        problem = Problem.of("mn-mk-kn", 8)
        nest = Nest.of(problem, [("memory", "mnk", 8)], output="L1")
        with pytest.raises(PlanError, match="accumulate, store, stream, got 'L1'"):
            nest.check(problem)


class TestSmallest:
    """Extents of 0 and 1."""

    @pytest.mark.parametrize("empty", ["m", "n", "k", "mk", "mnk"])
    def test_an_empty_problem_sets_its_output(self, empty):
        """Without iterations nothing is read; an output with elements is written once."""
        sizes = {i: 0 if i in empty else 7 for i in "mnk"}
        problem = Problem.of("mn-mk-kn", sizes)
        whole = {i: max(1, n) for i, n in sizes.items()}
        nest = Nest.of(problem, [("register", "mnk", 4), ("memory", "mnk", whole)])
        cost = compute_price(problem, nest, make_machine())
        assert (cost.calls, cost.compute, cost.packed) == (0, 0, (0, 0))
        for level in cost.levels:
            assert level.volumes == (8 * sizes["m"] * sizes["n"], 0, 0)

    @settings(max_examples=30)
    @given(problems(specs(max_order=3), 1, 1), st.integers(1, 5))
    def test_one_iteration_moves_one_of_each(self, problem, levels):
        """Extents of 1 move one element of every tensor at every level."""
        nest = Nest.of(problem, [("register", "", 1), ("memory", "", 1)])
        cost = compute_price(problem, nest, make_machine((4096,) * levels, line=1))
        assert cost.calls == 1
        for level in cost.levels:
            assert level.moved == (problem.itemsize,) * len(problem.spec.tensors)


@given(st.data(), st.sampled_from(["mn-mk-kn", "abcd-aebf-dfce", "ab-cad-dcb"]))
@settings(max_examples=30)
def test_prices_do_not_depend_on_what_was_priced_before(data, text):
    """Nests that differ in their copies share the boxes between their loops."""
    problem = Problem.of(text, 24)
    sides = st.sampled_from([1, 2, 4, 6, 12, 24])
    call = {i: data.draw(sides) for i in problem.sizes}
    tile = {i: max(side, data.draw(sides)) for i, side in call.items()}
    order = "".join(data.draw(st.permutations(problem.spec.letters)))
    bands = [("register", order, call), ("L1", order, tile), ("memory", order, problem.sizes)]
    machine = make_machine((2**12, 2**15))
    nests = [Nest.of(problem, bands, packed=one) for one in product((None, "L1"), repeat=2)]
    together = [compute_price(problem, nest, machine) for nest in nests]
    for nest, price in zip(nests, together, strict=True):
        keep_boxes.cache_clear()
        assert compute_price(problem, nest, machine) == price
