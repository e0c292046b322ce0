"""Tiles of groups: the thesis's numbers, programs beside enumeration, and room in caches."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import interpret

from tests.support.drawn_stages import fill
from tests.support.pipelines import blur, chain, harris, unsharp
from tests.support.pipelines import make as make_lines
from tilesolve.bench.pipelines import CASES
from tilesolve.constants.nests import PIPELINE_LAST_CACHES
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.machine.model import Machine
from tilesolve.nests.programs import write_program
from tilesolve.nests.regions import find_regions
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import FusedSolution
from tilesolve.pipelines.footprints import GroupTiles, list_planes
from tilesolve.pipelines.fusion import Order, place_stages
from tilesolve.pipelines.grouping import Graph
from tilesolve.pipelines.simplify import simplify
from tilesolve.pipelines.solve import solve_pipeline
from tilesolve.pipelines.thesis import thesis_cost, thesis_tiles
from tilesolve.pipelines.tiling import (
    fits,
    list_rooms,
    make_grouping,
    relax_tiles,
    tile_bounds,
    whole_tiles,
)

MACHINE = Machine.load("i7-6700k")


def tiles_of(computation, threads=1, machine=MACHINE, rows=1, slide=True):
    """A group of all stages that simplifying leaves."""
    simple = simplify(computation)
    regions = find_regions(simple)
    letter = list(regions.extents)[-2] if slide else None
    return GroupTiles(NestRequest(simple, machine, threads), regions, letter, rows)


def with_last_cache(capacity):
    """The machine with a last cache of some bytes."""
    *others, last, memory = MACHINE.levels
    return MACHINE.replace(levels=(*others, replace(last, capacity=capacity), memory))


def test_regions_of_a_blur_are_those_of_the_thesis():
    """Of 8 x 8 elements in tiles of 4: buffers, rings, and what is computed again."""
    group = tiles_of(blur(8, 8))
    tiles = {"u": 4, "v": 4}
    assert group.regions.size("bx", tiles) == 24
    assert group.kept_bytes("bx", "ring", tiles) == 12 * 4
    assert group.regions.points("bx", tiles) == 96
    assert group.regions.points("bx", {}) == 80


def test_levels_of_a_blur_follow_the_order_of_loops():
    """(yi, xo) where columns are innermost, (xi, xi) where rows are."""
    regions = find_regions(blur())
    across, down = Order(("v", "u"), ("v", "u")), Order(("u", "v"), ("v", "u"))
    assert [across.loops[at] for at in place_stages(regions, across)["bx"]] == ["ui", "vo"]
    assert [down.loops[at] for at in place_stages(regions, down)["bx"]] == ["vi", "vi"]


def test_costs_of_the_thesis():
    """Of the blur on two threads: strips as wide as the image, small tiles, and rows innermost."""
    group = tiles_of(blur(), threads=2)
    assert thesis_cost(group, {"u": 2400, "v": 6400}) == pytest.approx(204_960)
    assert thesis_cost(group, {"u": 160, "v": 1600}) == pytest.approx(1_148_800)
    assert thesis_tiles(group) == {"u": 2400, "v": 6400}
    again = 162 * 1600 * 120 - 4802 * 6400
    down = thesis_cost(group, {"u": 160, "v": 1600}, innermost="u") - again
    assert down == pytest.approx(40 * 3 * 162 * 6400 * 30)
    small, again = tiles_of(blur(8, 8)), 96 - 80
    vars(small)["tiled"] = ("u", "v")  # shorter than what has tiles
    costs = [thesis_cost(small, {"u": 4, "v": 4}, innermost=letter) for letter in "vu"]
    assert costs == [pytest.approx(runs + again) for runs in (24, 288)]


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([blur, harris, unsharp, lambda h, w: chain(3, h, w)]),
    st.integers(40, 90),
    st.integers(130, 400),
    st.booleans(),
    st.integers(12, 20),
)
def test_programs_find_what_enumeration_finds(make, height, width, slide, bits):
    """Within one per cent of all whole tiles that fit."""
    group = tiles_of(make(height, width), slide=slide)
    bounds = tile_bounds(group)
    axes = [np.arange(int(low), int(high) + 1) for low, high in bounds.values()]
    grid = dict(zip(bounds, np.meshgrid(*axes, indexing="ij"), strict=True))
    fitting = group.room(grid) + np.zeros(grid[group.column].shape) <= 2**bits
    found = relax_tiles(group, 2**bits)
    if not fitting.any():
        assert found is None
        return
    least = group.seconds(grid)[fitting].min()
    assert group.seconds(found) <= least * 1.01
    assert group.room(found) <= 2**bits * 1.001


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([blur, harris, unsharp, lambda h, w: chain(5, h, w)]),
    st.integers(33, 3000),
    st.integers(33, 3000),
    st.integers(1, 3),
)
def test_whole_tiles_stay_near_and_give_each_thread_as_much(make, height, width, threads):
    """Tiles begin at whole lines, or are the extent; strips are as many as threads at least."""
    group = tiles_of(make(height, width), threads, rows=2)
    for limit in list_rooms(group.request):
        relaxed = relax_tiles(group, limit)
        if relaxed is None:
            continue
        tiles = whole_tiles(group, relaxed)
        extents = group.regions.extents
        assert all(0 < tiles[x] <= extents[x] for x in tiles)
        column = tiles[group.column]
        assert column == extents[group.column] or column % group.request.line == 0
        assert group.room(tiles) <= 2.1 * limit


def test_stages_are_divided_only_where_the_last_cache_is_too_small():
    """Of a chain, as the cache that rings have to stay in shrinks; all parts fit then."""
    computation = chain(4, 100, 600)
    group = tiles_of(computation)
    least = group.room({x: low for x, (low, _) in tile_bounds(group).items()})
    for share, whole in ((0.6, True), (0.4, False)):
        machine = with_last_cache(int(least * share))
        solved = solve_pipeline(NestRequest(computation, machine, mode="thesis"))
        fused = [one for one in solved.solutions if isinstance(one, FusedSolution)]
        assert (len(solved.solutions) == 1 and len(fused) == 1) == whole
        assert solved.solutions[-1].computation.output == computation.output


@pytest.mark.parametrize("make", [lambda: chain(5, 90, 400), lambda: harris(120, 300)])
@pytest.mark.parametrize("share", [0.25, 4.0])
def test_cuts_by_dynamic_programming_cost_no_more_and_parts_fit(make, share):
    """With a last cache that is too small for all, and one that is not."""
    computation = simplify(make())
    group = tiles_of(computation)
    least = group.room({x: low for x, (low, _) in tile_bounds(group).items()})
    machine = with_last_cache(int(least * share))
    request = NestRequest(computation, machine)
    split, best = (
        solve_pipeline(replace(request, division=one)).solutions for one in ("split", "best")
    )
    assert sum(one.score for one in best) <= sum(one.score for one in split) * (1 + 1e-9)
    for one in (*split, *best):
        if isinstance(one, FusedSolution):
            assert fits(one.request, find_regions(one.computation), PIPELINE_LAST_CACHES)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([blur, harris, unsharp, lambda h, w: chain(3, h, w)]),
    st.integers(40, 90),
    st.integers(40, 90),
    st.integers(1, 3),
    st.data(),
)
def test_buffers_have_the_bytes_that_tiles_are_chosen_by(make, height, width, rows, data):
    """Rings have a row for each that is read again and for each that is computed, and no more."""
    group = tiles_of(make(height, width), rows=rows)
    extents = group.regions.extents
    tiles = {x: data.draw(st.integers(rows + 1, extents[x])) for x in group.tiled}
    made = FusedSolution.of(group.request, make_grouping(group, tiles), "drawn", streamed=False)
    for stage, kind in group.kept.items():
        shape = made.placed[stage].room()[1]
        size = np.dtype(made.computation.array(stage).dtype).itemsize
        assert prod(shape) * size == group.kept_bytes(stage, kind, tiles)


def stencils(height, width):
    """Three stages with overlaps along both axes."""
    lines = [
        "a[y,x] = I[y,x] + I[y+1,x]",
        "b[s,t] = a[s,t] - a[s,t+2]",
        "c[u,v] = b[u,v] * b[u+2,v]",
    ]
    sizes = {"y s": height + 2, "x": width + 2, "t v": width, "u": height}
    return make_lines(lines, sizes, "int32")


@pytest.mark.parametrize("make", [blur, stencils])
@pytest.mark.parametrize("slide", [True, False])
def test_what_is_computed_again_is_what_costs_count(make, slide):
    """Counted by the interpreter, of ragged tiles: Cp of the thesis, beside Croot."""
    group = tiles_of(make(34, 35), slide=slide)
    tiles = dict(zip(group.tiled, (15, 16), strict=True))
    made = FusedSolution.of(group.request, make_grouping(group, tiles), "given", streamed=False)
    found = interpret(write_program(made.computation, made.loops), fill(made.computation))
    again = 0
    for stage, computes in zip(made.computation.stages, found.computes, strict=True):
        assert computes == group.regions.points(stage.name, tiles)
        again += computes - group.regions.points(stage.name, {})
    assert again > 0


@pytest.mark.parametrize("rows", [1, 2])
def test_planes_follow_one_another(rows):
    """Rings have one of three channels, each of which is computed as all were together."""
    lines = ["a[c,y,x] = I[c,y,x] + I[c,y+1,x]", "b[d,u,v] = a[d,u,v] - a[d,u+2,v+1]"]
    made = make_lines(lines, {"c d": 3, "y": 36, "u": 34, "x": 36, "v": 35}, "int32")
    regions, arrays, tiles = find_regions(made), fill(made), {"u": 15, "v": 16}
    assert list_planes(regions) == ("d",)
    whole = GroupTiles(NestRequest(made, MACHINE), regions, "u", rows)
    apart = replace(whole, planes=("d",))
    assert 3 * apart.kept_bytes("a", "ring", tiles) == whole.kept_bytes("a", "ring", tiles)
    found = []
    for group in (whole, apart):
        one = FusedSolution.of(group.request, make_grouping(group, tiles), "given", streamed=False)
        room = 4 * prod(one.placed["a"].room()[1])
        assert room == group.kept_bytes("a", "ring", tiles)
        found.append(interpret(write_program(one.computation, one.loops), arrays))
    assert found[0].computes == found[1].computes
    assert np.array_equal(*(one.output for one in found))
    assert np.array_equal(found[0].output, evaluate(made, arrays))


@pytest.mark.parametrize(
    "name",
    ["blur", "unsharp", "harris", "maxfilter", "interpolate", "pyramid_blend", "stencil_chain"],
)
def test_groups_of_the_thesis_are_divided_if_two_last_caches_are_too_small(name):
    """All that follows the tiles of one stage is one group, unless its buffers are larger."""
    request = NestRequest(CASES[name].shrink(8).computation, MACHINE, mode="thesis")
    solved = solve_pipeline(request)
    stages = [one.computation.stages for one in solved.solutions]
    simple = replace(request, computation=simplify(request.computation, Graph.of(request).alone))
    graph = Graph.of(simple)
    wanted = []
    for names in graph.fuse(list(graph.stages)):
        part = graph.part(names)
        if len(names) > 1 and not fits(part, find_regions(part.computation), PIPELINE_LAST_CACHES):
            wanted += graph.segments(names)
        else:
            wanted.append(names)
    assert {tuple(x.name for x in one) for one in stages} == set(wanted)
