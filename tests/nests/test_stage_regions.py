"""Regions of stages hold what is read, and no more where arithmetic is exact."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support.drawn_stages import draw_stages
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.terms import Read, apply
from tilesolve.nests.regions import find_regions
from tilesolve.nests.spans import Span
from tilesolve.nests.subscript_ends import subscript_ends
from tilesolve.solver.signomials import Signomial


def read_points(computation, box):
    """Return what a box of the last stage reads of each one, point by point."""
    stages = {stage.name: stage for stage in computation.stages}
    sizes = computation.sizes
    wanted = {name: set() for name in stages}
    last = computation.stages[-1]
    wanted[last.name] = set(grid([range(low, high + 1) for low, high in box.values()]))
    for stage in reversed(computation.stages):
        for point in wanted[stage.name]:
            at = dict(zip(stage.output_letters(), point, strict=True))
            for more in grid([range(sizes[x]) for x in stage.summed]):
                values = at | dict(zip(stage.summed, more, strict=True))
                for read in stage.reads:
                    if read.array in stages:
                        wanted[read.array].add(tuple(x.at(values) for x in read.subscripts))
    return wanted


def grid(ranges):
    """Yield all points of a product of ranges."""
    found = [()]
    for one in ranges:
        found = [(*point, value) for point in found for value in one]
    return found


@examples(25, 150)
@given(st.data())
def test_regions_hold_all_points_that_are_read(data):
    """The box of each stage is the hull of its points; wider by what quotients round at most."""
    computation = bind_stages(*data.draw(draw_stages()))
    names = {stage.name for stage in computation.stages}
    subscripts = [
        one
        for stage in computation.stages
        for read in stage.reads
        if read.array in names
        for one in read.subscripts
    ]
    shifts = all(one.divisor == 1 and abs(one.terms[0][0]) == 1 for one in subscripts)
    regions = find_regions(computation)
    box = {}
    for letter, extent in regions.extents.items():
        low = data.draw(st.integers(0, extent - 1))
        box[letter] = (low, data.draw(st.integers(low, extent - 1)))
    found = read_points(computation, box)
    for name in regions.stages:
        points = found[name]
        for axis, (low, high) in enumerate(regions.box(name, box).values()):
            reached = [point[axis] for point in points]
            assert low <= min(reached)
            assert max(reached) <= high
            if shifts:
                assert (low, high) == (min(reached), max(reached))


@examples(25, 60)
@given(st.data())
def test_points_of_tilings_are_those_of_all_their_boxes(data):
    """Counted at once as tile by tile, with ragged ends; in symbols no fewer for whole tiles."""
    computation = bind_stages(*data.draw(draw_stages()))
    regions = find_regions(computation)
    tiles = {x: data.draw(st.integers(1, extent)) for x, extent in regions.extents.items()}
    begins = grid([range(0, extent, tiles[x]) for x, extent in regions.extents.items()])
    for name in regions.stages:
        counted = 0
        for begin in begins:
            box = {
                x: (low, min(low + tiles[x], extent) - 1)
                for (x, extent), low in zip(regions.extents.items(), begin, strict=True)
            }
            sides = [high - low + 1 for low, high in regions.box(name, box).values()]
            counted += prod(max(side, 0) for side in sides)
        assert regions.points(name, tiles) == counted
        symbols = {x: Signomial.symbol(x) for x in tiles}
        size = Signomial.of(regions.size(name, symbols))
        assert all(coefficient >= 0 for _, coefficient in size.terms)
        whole = {x: tile - tile % regions.period for x, tile in tiles.items()}
        if all(whole.values()):
            box = {x: (0, tile - 1) for x, tile in whole.items()}
            sides = [high - low + 1 for low, high in regions.box(name, box).values()]
            assert size.at(whole) >= prod(max(side, 0) for side in sides) - 1e-6


def test_blur_has_the_unit_values_of_its_model():
    """Eqs 5.1 to 5.9: tiles of 4 x 4 in 8 x 8 points, a blur of three rows."""
    text = "bx[y,x] = I[y,x] + I[y,x+1] + I[y,x+2]\nby[u,v] = bx[u,v] + bx[u+1,v] + bx[u+2,v]"
    computation = bind_stages(parse_stages(text), {"y": 10, "x": 8, "u": 8, "v": 8})
    regions = find_regions(computation)
    tiles = {"u": 4, "v": 4}
    assert regions.size("bx", tiles) == 24
    assert regions.points("bx", tiles) == 96
    assert regions.points("bx", {}) == 80
    assert regions.ring_rows("bx", "u", 1, {"bx"}) == 3
    assert regions.ring_rows("bx", "u", 2, {"bx"}) == 4
    assert regions.warm_up("u", 1, {"bx"}) == 2
    assert regions.spans["bx"]["y"] == Span(Affine.letter("u"), Affine.letter("u") + 2, 10)


@pytest.mark.parametrize("name", ["minimum", "maximum", "remainder", "floor_divide", "add"])
@given(st.integers(-9, 9), st.integers(0, 9), st.integers(0, 9), st.integers(-5, 5))
def test_ends_of_computed_subscripts_hold_their_values(name, number, low, more, shift):
    """Of one operation with a number, and of one within another."""
    position = Affine.letter("y") + shift
    first = apply(
        name, position, max(number, 1) if name in ("remainder", "floor_divide") else number
    )
    box = {"y": (low, low + more)}
    for term in (first, apply("maximum", first, 2), apply("minimum", first, number)):
        ends = subscript_ends(term, box)
        for begin in range(low, low + more + 1):
            for end in range(begin, low + more + 1):
                values = [_value(term, y) for y in range(begin, end + 1)]
                assert ends.low.at({"y": begin}) <= min(values)
                assert ends.high.at({"y": end}) >= max(values)


def _value(term, y):
    if not term.parts:
        return term.value if hasattr(term, "value") else term.position.at({"y": y})
    first, second = (_value(part, y) for part in term.parts)
    return {
        "minimum": min(first, second),
        "maximum": max(first, second),
        "remainder": first % second if second > 0 else 0,
        "floor_divide": first // second if second > 0 else 0,
        "add": first + second,
    }[term.name]


def test_positions_known_at_run_time_take_whole_axes_or_what_they_are_cut_to():
    """A table that is looked up, and one within ends."""
    y = Affine.letter("y")
    plain = parse_stages("t[k] = I[k] * 2\no[y] = t[J[y]]")
    shapes = {"I": (20,), "J": (9,)}
    found = bind_stages(
        plain, {"k": 20, "y": 9}, {"I": "float32", "J": "int64"}, {**shapes, "t": (20,)}
    )
    assert find_regions(found).box("t", {"y": (3, 3)}) == {"k": (0, 19)}
    within = subscript_ends(
        apply("minimum", apply("maximum", Read("J", (y,)), 2), 7), {"y": (0, 8)}
    )
    assert (within.low, within.high) == (Affine.number(2), Affine.number(7))
