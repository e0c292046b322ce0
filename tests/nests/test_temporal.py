"""Temporal tiles: the thesis's formulas, and the searches against trying everything."""

from dataclasses import replace
from itertools import permutations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access, Axis
from tilesolve.model.walk import walk_loops
from tilesolve.nests.references import find_references
from tilesolve.nests.relaxed import relax_tiles, solve_tiles
from tilesolve.nests.reuse import (
    cost,
    first_misses,
    first_working_set,
    order_cost,
    second_misses,
    second_working_set,
)
from tilesolve.nests.setting import make_setting
from tilesolve.nests.temporal import cost_of, enumerate_tiles, list_boundary_loops, order_loops

MACHINE = Machine.load("i7-6700k")
NEAR, FAR, *OTHERS = MACHINE.levels
THESIS = MACHINE.replace(levels=(NEAR, replace(FAR, ways=8), *OTHERS))
"""The thesis's caches: 32 and 256 KiB, both of 8 ways."""
SMALL = MACHINE.replace(
    levels=(replace(NEAR, capacity=2048, ways=4), replace(FAR, capacity=8192, ways=4), *OTHERS)
)
MATMUL = "C[i,j] += A[i,k] * B[k,j]"
SYRK = "C[i,j] += A[i,k] * A[j,k]"


def setting(text, sizes, machine=THESIS, threads=1, mode="thesis", **others):
    """What tiles of a statement are chosen by."""
    computation = bind_stages(parse_stages(text), sizes, "float32")
    return make_setting(computation, computation.stages[0], machine, threads, mode, **others)


def test_the_formulas_of_the_matrix_product():
    """Tiles of 32, 128 and 16 at 2048, loops ii kk jj i k j, worked by hand: (4.1) to (4.12)."""
    references = setting(MATMUL, 2048).references
    tiles, extents = {"i": 32, "j": 128, "k": 16}, dict.fromkeys("ijk", 2048)
    assert first_working_set(references, tiles, "i", 64) == 4 * 2192
    assert second_working_set(references, tiles) == 4 * 6656
    assert first_misses(references, tiles, extents, 64) == 10485760
    assert second_misses(references, tiles, extents, "j", 64) == 6553600
    assert order_cost("ikj", "ikj", tiles, extents) == 3072


def test_without_prefetching_every_line_of_a_run_is_a_miss():
    """A share of 1 counts lines, one of 0 runs: (4.2) beside (4.3)."""
    rows = Access("B", (Axis(((1, "k"),)), Axis(((1, "j"),))), (64, 64), 4)
    tiles = {"j": 65, "k": 16}
    assert first_misses([rows], tiles, tiles, 64, later=0.0) == 16
    assert first_misses([rows], tiles, tiles, 64, later=1.0) == 16 * 5


@pytest.mark.parametrize(
    ("extent", "sets", "tiles"),
    [
        (1600, "cache", {"i": 5, "j": 688, "k": 23}),
        (2048, "cache", {"i": 2, "j": 2016, "k": 8}),
        (2048, "printed", {"i": 10, "j": 720, "k": 35}),
    ],
)
def test_tiles_of_the_matrix_product_on_the_thesis_s_caches(extent, sets, tiles):
    """One thread's choice, two threads a core; for powers of two the reading of sets decides."""
    found = enumerate_tiles(setting(MATMUL, extent, threads_per_core=2, sets=sets))[0]
    assert found.tiles == tiles
    assert (found.ends.outermost_point, found.ends.innermost_tile) == ("k", "i")


def brute_force(one):
    """The least cost of all tiles that fit, for all choices of loops."""
    best = np.inf
    column = one.column
    shared = max(one.extents[column] // one.trips, 1)
    sizes = [
        sorted({*range(one.step, n + 1, one.step), n, min(shared, one.step)})
        if x == column
        else range(1, n + 1)
        for x, n in one.extents.items()
    ]
    grid = np.array(list(product(*sizes)))
    tiles = dict(zip(one.extents, grid.T, strict=True))
    for ends in list_boundary_loops(one):
        good = one.fits(tiles, ends.outermost_point, ends.threads)
        if good.any():
            best = min(best, cost_of(one, ends, tiles)[good].min())
    return best


@pytest.mark.grid
@pytest.mark.parametrize("text", [MATMUL, SYRK, "C[i] += A[i,k] * x[k]"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mode", ["thesis", "default"])
@pytest.mark.parametrize("extent", [17, 48])
def test_the_search_finds_what_trying_everything_finds(text, threads, mode, extent):
    """All tiles of small problems on small caches."""
    one = setting(text, extent, SMALL, threads, mode)
    assert enumerate_tiles(one)[0].cost == pytest.approx(brute_force(one), rel=1e-12)


@pytest.mark.parametrize("text", [MATMUL, SYRK])
@pytest.mark.parametrize("extent", [17, 31, 48])
def test_the_geometric_program_comes_near_trying_everything(text, extent):
    """Whole tiles of small problems on small caches cost at most 2 % more."""
    one = setting(text, extent, SMALL)
    found = solve_tiles(one)[0]
    assert one.fits(found.tiles, found.ends.outermost_point, found.ends.threads)
    assert found.cost <= 1.02 * brute_force(one)


@pytest.mark.grid
@pytest.mark.parametrize("text", [MATMUL, SYRK])
@pytest.mark.parametrize("extent", [400, 777, 1600])
@pytest.mark.parametrize("mode", ["thesis", "default"])
def test_the_geometric_program_comes_near_the_enumeration(text, extent, mode):
    """Its whole tiles fit, and cost at most 1 % more."""
    one = setting(text, extent, threads=4, mode=mode, threads_per_core=2)
    found, best = solve_tiles(one)[0], enumerate_tiles(one)[0]
    assert one.fits(found.tiles, found.ends.outermost_point, found.ends.threads)
    assert best.cost <= found.cost <= 1.01 * best.cost


@pytest.mark.parametrize("mode", ["thesis", "default"])
def test_the_relaxed_optimum_is_no_worse_than_any_whole_tile(mode):
    """Where heights are not limited, the program bounds all tiles from below."""
    one = setting(MATMUL, 480, mode=mode)
    free = replace(
        one, sets=tuple(tuple(replace(c, sets=1, ways=1 << 20) for c in pair) for pair in one.sets)
    )
    best = enumerate_tiles(free)[0]
    relaxed = [relax_tiles(free, ends, capped=False) for ends in list_boundary_loops(free)]
    least = min(found.cost for found in relaxed)
    assert least <= best.cost * (1 + 1e-6)
    assert solve_tiles(free)[0].cost <= 1.01 * best.cost


@pytest.mark.parametrize("text", [MATMUL, SYRK])
@pytest.mark.parametrize("extent", [129, 512, 1000])
def test_tiles_obey_every_limit(text, extent):
    """Working sets, rows that would evict one another, and a trip for each thread (4.13)."""
    one = setting(text, extent, threads=8, threads_per_core=2)
    found = enumerate_tiles(one)[0]
    o, threads = found.ends.outermost_point, found.ends.threads
    assert first_working_set(one.references, found.tiles, o, 64) <= 32768
    assert second_working_set(one.references, found.tiles) <= 131072
    assert all(excess <= 0 for excess in one.conflicts(found.tiles, o).values())
    assert extent // found.tiles[threads] >= 8
    assert found.inter[0] == threads
    assert threads in one.output


def test_threads_never_divide_a_letter_of_the_sum():
    """They would add to the same elements."""
    one = setting(MATMUL, 512, threads=4)
    assert {ends.threads for ends in list_boundary_loops(one)} <= {"i", "j"}


def test_the_order_is_the_nearest_of_all():
    """Of all orders with the loops that decide where they are."""
    one = setting(MATMUL, 400)
    found = enumerate_tiles(one)[0]
    for inter in permutations("ijk"):
        for intra in permutations("ijk"):
            if (inter[-1], intra[0], intra[-1]) == (
                found.ends.innermost_tile,
                found.ends.outermost_point,
                "j",
            ):
                assert found.distance <= order_cost(inter, intra, found.tiles, one.extents)


def test_the_convolution_s_seven_letters_are_solved_for():
    """Letters of the filter are run through as a whole; the others get tiles that fit."""
    sizes = {"n": 16, "k": 64, "y": 254, "x": 254, "c": 64, "r": 3, "s": 3}
    one = setting("O[n,k,y,x] += I[n,c,y+r,x+s] * W[k,c,r,s]", sizes, threads=4)
    found = solve_tiles(one)[0]
    assert one.tiled == ("x", "n", "k", "y", "c")
    assert (found.tiles["r"], found.tiles["s"]) == (3, 3)
    assert one.fits(found.tiles, found.ends.outermost_point, found.ends.threads)
    assert set(found.intra) == set(sizes)
    assert found.intra[-1] == "x"


def test_costs_of_a_machine_weigh_misses_by_what_serves_them():
    """A slower third cache makes misses of the second one dearer."""
    slower = MACHINE.replace(levels=(NEAR, FAR, replace(OTHERS[0], bandwidth=3e10), OTHERS[1]))
    usual, dear = (setting(MATMUL, 512, machine, mode="default") for machine in (MACHINE, slower))
    assert dear.weights.second > usual.weights.second
    assert dear.weights.first == usual.weights.first


def test_a_share_of_later_lines_may_be_given():
    """0 counts runs alone, 1 all lines alike; tiles differ."""
    found = [
        enumerate_tiles(setting(MATMUL, 777, mode="default", later=(share, share)))[0]
        for share in (0.0, 1.0)
    ]
    assert found[0].tiles["j"] > found[1].tiles["j"]


def test_reads_at_several_offsets_touch_their_union_once():
    """A stencil's three columns are one reference, two elements wider."""
    computation = bind_stages(parse_stages("o[y] += A[y,x] + A[y,x+1] + A[y+2,x]"), 8)
    _, read = find_references(computation, computation.stages[0])
    assert read.reaches({"x": 5, "y": 3}) == [5, 6]


def test_orders_of_many_letters_end_where_they_must():
    """Five letters: the loops that decide keep their places."""
    one = setting("O[n,k,y,x] += I[n,c,y,x] * W[k,c]", 64, threads=2)
    for ends in list(list_boundary_loops(one))[:5]:
        inter, intra, _ = order_loops(one, ends, dict.fromkeys(one.extents, 16))
        assert (inter[0], inter[-1], intra[0], intra[-1]) == (
            ends.threads,
            ends.innermost_tile,
            ends.outermost_point,
            "x",
        )


def test_cost_is_the_weighted_sum_of_misses():
    """(4.11), with 1 to 3.5."""
    one = setting(MATMUL, 512)
    tiles = {"i": 8, "j": 64, "k": 16}
    near = first_misses(one.references, tiles, one.extents, 64)
    far = second_misses(one.references, tiles, one.extents, "j", 64)
    found = cost(one.references, tiles, one.extents, "j", one.weights, one.lines)
    assert found == near + 3.5 * far


@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.permutations("ijk"),
    st.permutations("ijk"),
)
def test_the_walk_over_runs_gives_the_thesis_s_misses(tiles, counts, inter, intra):
    """What `o` runs over stays in the first cache, what `n` does in the second: (4.5), (4.10)."""
    references = setting(MATMUL, 64).references
    tile = dict(zip("ijk", tiles, strict=True))
    extents = {x: tile[x] * n for x, n in zip("ijk", counts, strict=True)}
    loops = [(x, tile[x]) for x in reversed(intra)]
    loops += [(x, extents[x] // tile[x]) for x in reversed(inter)]
    boxes = [dict.fromkeys("ijk", 1)]
    for letter, trips in loops:
        boxes.append({**boxes[-1], letter: boxes[-1][letter] * trips})
    rows = [[prod(one.reaches(box)[:-1]) for box in boxes] for one in references]
    near = walk_loops(references, loops, rows, lambda _, outer: outer < 3)
    far = walk_loops(references, loops, rows, lambda _, outer: outer < 4)
    assert sum(near) == pytest.approx(first_misses(references, tile, extents, 64))
    # A run that a trip of `n` makes longer is a new one in the thesis, the same one in the walk.
    if inter[-1] == "i":
        assert sum(far) == pytest.approx(second_misses(references, tile, extents, "i", 64))
