"""Contractions in pipelines: windows, epilogues and bands of rows, beside NumPy."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.contractions.errors import PlanError
from tilesolve.machine.model import Machine
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import BandSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.nests.split import split_parts
from tilesolve.packing.buffers import workspace
from tilesolve.pipelines import bands
from tilesolve.pipelines.bands import list_chains
from tilesolve.pipelines.epilogues import take_epilogues
from tilesolve.pipelines.grouping import Graph
from tilesolve.pipelines.pictures import frame_groups
from tilesolve.pipelines.plan import PipelinePlan
from tilesolve.pipelines.solve import solve_part

MACHINE = Machine.load("i7-6700k")
POISON = 2**22


@pytest.fixture(autouse=True)
def _all_are_contractions(monkeypatch):
    """Products are of microkernels, however small they are."""
    for function in (is_contraction, split_parts, NestRequest.__init__):
        known = inspect.signature(function).parameters
        given = [x for x in known.values() if x.default is not inspect.Parameter.empty]
        values = [0 if x.name == "least_flops" else x.default for x in given]
        monkeypatch.setattr(function, "__defaults__", tuple(values))


def convolve(image, weights, mode="constant"):
    """Products of windows, as the suite's VDSR has them."""
    high, wide = weights.shape[2] // 2, weights.shape[3] // 2
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (high, high), (wide, wide)), mode)
    return sum(
        np.tensordot(weights[:, :, y, x], padded[:, y : y + height, x : x + width], 1)
        for y in range(weights.shape[2])
        for x in range(weights.shape[3])
    )


def draw(rng, *shape):
    """Numbers whose products are exact, so that the order of sums does not matter."""
    return rng.integers(-4, 5, shape).astype("float32")


def in_bands(function, arrays, rows, threads=1):
    """The plan of a function in bands of so many rows; None if there is none."""
    computation = tilesolve.pipeline(function, cache=False).plan(*arrays).computation
    pinned = frozenset(computation.outputs)
    request = NestRequest(take_epilogues(computation, pinned), MACHINE, threads)
    graph = Graph.of(request, pinned)
    (chain,) = list_chains(graph, graph.fuse(list(graph.stages)))
    kept, bands.PIPELINE_BANDS = bands.PIPELINE_BANDS, (rows,)
    try:
        found = bands.choose_bands(request, chain, solve_part)
    finally:
        bands.PIPELINE_BANDS = kept
    return found and PipelinePlan(SolvedNest(request, (found,)))


def check(plan, function, arrays):
    """A plan gives what NumPy does, whatever is in memory that it takes."""
    workspace(POISON).bytes[:] = 255
    out = np.full(plan.computation.output.shape, np.nan, plan.computation.output.dtype)
    plan(**dict(zip(plan.computation.inputs, _in_order(plan, arrays), strict=True)), out=out)
    assert np.array_equal(out, function(*arrays))
    assert PipelinePlan.from_json(plan.to_json()) == plan


def _in_order(plan, arrays):
    shapes = {one.name: one.shape for one in plan.computation.arrays}
    left = list(arrays)
    for name in plan.computation.inputs:
        at = next(at for at, one in enumerate(left) if one.shape == shapes[name])
        yield left.pop(at)


def two_layers(image, first, second, bias):
    """Two layers, with all that an epilogue has."""
    found = np.maximum(convolve(image, first) + bias[:, None, None], 0)
    return image + np.maximum(convolve(found, second), 0)


def layers(rng, height, width=8, channels=4, sides=(3, 3)):
    """Arguments of `two_layers`."""
    weights = (draw(rng, channels, channels, *sides) for _ in range(2))
    return draw(rng, channels, height, width), *weights, draw(rng, channels)


def test_shifted_products_are_one_sum_over_windows():
    """And bias, rectifier, residual and border belong to it."""
    arrays = layers(np.random.default_rng(0), 12)
    plan = tilesolve.pipeline(two_layers, cache=False).plan(*arrays)
    sums = [one for one in plan.computation.stages if "sum(" in str(one)]
    assert [str(one).count("sum(") for one in sums] == [1, 1]
    simple = take_epilogues(plan.computation, frozenset(plan.computation.outputs))
    assert len(simple.stages) == 3
    assert [one.route for one in plan.solutions].count("contraction") == 2
    check(plan, two_layers, arrays)


def test_windows_are_one_sum_in_any_order():
    """Also from the last product on, which is read furthest behind."""
    rng = np.random.default_rng(2)
    image, weights = draw(rng, 3, 9, 7), draw(rng, 5, 3, 3, 2)
    places = [(y, x) for y in range(3) for x in range(2)]

    def backwards(image, weights):
        parts = ((weights[:, :, y, x], image[:, y : y + 7, x : x + 6]) for y, x in places[::-1])
        return sum(np.tensordot(*one, 1) for one in parts)

    plan = tilesolve.pipeline(backwards, cache=False).plan(image, weights)
    assert [str(one).count("sum(") for one in plan.computation.stages if "sum(" in str(one)] == [1]
    check(plan, backwards, (image, weights))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_windows_of_any_shape(data):
    """Borders of all kinds, sides of windows, and products that are no full grid."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    sides = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([1, 3, 5]))
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect"]))
    arrays = draw(rng, 3, 9, 7), draw(rng, 5, 3, *sides)

    def function(image, weights):
        found = np.maximum(convolve(image, weights, mode), 0)
        return found + np.tensordot(weights[:, :, 0, 0], image, 1)

    assert np.array_equal(tilesolve.pipeline(function, cache=False)(*arrays), function(*arrays))


@pytest.mark.parametrize(("height", "threads"), [(15, 1), (16, 2), (17, 2)])
def test_bands_give_what_layers_do(height, threads):
    """Where bands end before, at and behind the last row."""
    arrays = layers(np.random.default_rng(height), height)
    plan = in_bands(two_layers, arrays, 4, threads)
    (solution,) = plan.solutions
    assert isinstance(solution, BandSolution)
    assert len(solution.strips) == threads
    assert all(6 <= one.rows <= 12 for one in solution.buffers)
    check(plan, two_layers, arrays)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_drawn_chains(data):
    """Layers of several depths and windows, in bands of any height."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    count, rows = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 6))
    side = data.draw(st.sampled_from([1, 3]))
    arrays = (
        draw(rng, 3, data.draw(st.integers(8, 20)), data.draw(st.integers(3, 9))),
        draw(rng, count, 3, 3, side, 3),
    )

    def function(image, weights):
        found = image
        for layer in range(weights.shape[0]):
            found = np.minimum(np.maximum(convolve(found, weights[layer]), -8), 8)
        return found

    plan = in_bands(function, arrays, rows)
    assert plan is not None
    check(plan, function, arrays)


def attention(queries, keys, values):
    """Products of rows, with what is between them."""
    scores = queries @ keys.T
    return (scores - scores.max(axis=-1, keepdims=True)) @ values


@pytest.mark.parametrize("rows", [4, 8])
def test_rows_of_products(rows):
    """Stages that need no rows of others: buffers have those of a band."""
    rng = np.random.default_rng(rows)
    arrays = draw(rng, 17, 6), draw(rng, 40, 6), draw(rng, 40, 5)
    plan = in_bands(attention, arrays, rows)
    (solution,) = plan.solutions
    assert {one.rows for one in solution.buffers} == {rows}
    check(plan, attention, arrays)


def test_reports_and_pictures_show_bands():
    """What is kept, in how many rows and bytes, and what computes it."""
    arrays = layers(np.random.default_rng(0), 16)
    plan = in_bands(two_layers, arrays, 4)
    (solution,) = plan.solutions
    text = str(plan)
    assert f"bands of 4 rows along {solution.letter}" in text
    sides = {one.array: one.rows for one in solution.buffers}
    assert all(f"4 x {rows} x 10" in text for rows in sides.values())
    assert "by a contraction" in text
    _, frame = frame_groups(plan._solution)
    assert "in bands of 4 rows" in frame.title
    rings = [box for box in frame.boxes if box.kept == "ring"]
    assert len(rings) == len(solution.buffers)
    assert all(f"4 × {sides[box.name]} × 10" in box.lines[0] for box in rings)
    moved = replace(solution.strips[0][0], arrays=(("a1", "none", -1, 0),))
    broken = replace(solution, strips=((moved,),))
    with pytest.raises(PlanError):
        PipelinePlan.from_json(PipelinePlan(SolvedNest(plan.request, (broken,))).to_json())
