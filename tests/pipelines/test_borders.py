"""Borders: pads, writes to slices and arrays put together run in groups, and slide."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples, quick_each

import tilesolve
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Choose, Number, Position, Read, apply
from tilesolve.nests import running
from tilesolve.nests.cuts import cut_stage, list_parts
from tilesolve.nests.regions import find_regions
from tilesolve.nests.solutions import FusedSolution

IMAGE = np.random.default_rng(0).integers(0, 255, (75, 150)).astype("int32")


def smooth(image, mode):
    """An image of the same shape, by neighbours at each side."""
    padded = np.pad(image, 1, mode)
    down = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    return (down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]) // 16


def chain(mode):
    return lambda image: smooth(smooth(smooth(image, mode), mode), mode)


def heat(u):
    for _ in range(3):
        new = u.copy()
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        new[1:-1, 1:-1] = (u[1:-1, 1:-1] * 4 + around) // 8
        u = new
    return u


def gradients(u):
    """Differences with zeros at the end, put together again: what total variation does."""
    dx, dy = np.zeros_like(u), np.zeros_like(u)
    dx[:, :-1] = u[:, 1:] - u[:, :-1]
    dy[:-1] = u[1:] - u[:-1]
    size = np.maximum(abs(dx), abs(dy)) // 4 + 1
    px, py = dx // size, dy // size
    found = px + py
    found[:, 1:] -= px[:, :-1]
    found[1:] -= py[:-1]
    return u + found


def framed(u):
    """Rows above and below, and what is between them."""
    smoothed = u[1:] + u[:-1]
    whole = np.concatenate([u[:1], smoothed, u[-2:]])
    return whole[1:] - whole[:-1]


FUNCTIONS = {
    **{mode: chain(mode) for mode in ("edge", "constant", "reflect", "symmetric")},
    **{one.__name__: one for one in (heat, gradients, framed)},
}


@cache
def plan_chain(name, threads):
    """The pipeline of a function, which keeps its plan: some take seconds."""
    return tilesolve.pipeline(
        FUNCTIONS[name], threads=threads, machine="i7-6700k", start="cold", cache=False
    )


@pytest.mark.parametrize(("threads", "name"), quick_each(product([1, 2], FUNCTIONS), of=2))
def test_chains_with_borders_are_one_group(name, threads):
    """Each stage is computed as rows of the last one need it, and comes out as NumPy has it."""
    function = FUNCTIONS[name]
    found = plan_chain(name, threads)
    assert np.array_equal(found(IMAGE), function(IMAGE))
    plan = found.plan(IMAGE)
    (solution,) = plan.solutions
    if isinstance(solution, FusedSolution):
        for one in solution.placed.values():
            assert one.points() <= 1.2 * threads * np.prod(IMAGE.shape)
    else:
        assert len(plan.computation.stages) == 1


def test_rings_of_padded_chains_are_short():
    """What an edge repeats is not kept for long: rows are those that neighbours need."""
    plan = tilesolve.pipeline(chain("edge"), machine="i7-6700k", start="cold").plan(IMAGE)
    (solution,) = plan.solutions
    rows = [one.room()[1][0] for one in solution.placed.values() if one.kept]
    assert rows
    assert max(rows) <= 8


def test_wrapped_borders_need_all_rows():
    """A periodic border reads the other end: stages before it run by themselves."""
    function = chain("wrap")
    found = tilesolve.pipeline(function, machine="i7-6700k", cache=False)
    assert np.array_equal(found(IMAGE), function(IMAGE))


def test_parts_cover_each_point_once_and_have_plain_positions():
    """A term of clipped positions and choices is cut where they change."""
    y, x = Affine.letter("y"), Affine.letter("x")
    row = apply("minimum", apply("maximum", Position(y - 2), 0), 9)
    column = apply("minimum", apply("maximum", Position(2 * x - 1), 0), 6)
    inside = apply("less", Position(y), 3) & apply("greater_equal", Position(x), 1)
    term = Choose(inside, Read("A", (row, column)), Number(7))
    stage = Stage("o", (y, x), term, "int32")
    found = bind_stages([stage], {"y": 14, "x": 5}, "int32", {"A": (10, 7)})
    parts = cut_stage(found, stage)
    count = np.zeros((14, 5), int)
    for part in parts:
        (_, y0, y1), (_, x0, x1) = part.ranges
        count[y0 : y1 + 1, x0 : x1 + 1] += 1
        assert all(read.plain is not None for read in part.term.reads)
    assert (count == 1).all()
    A = np.arange(70).reshape(10, 7)
    shapes = {"A": (10, 7), "o": (14, 5)}
    whole = bind_stages(list_parts(found, stage), {"y": 14, "x": 5}, "int32", shapes)
    assert np.array_equal(evaluate(whole, {"A": A}), evaluate(found, {"A": A}))


@examples(15, 40)
@given(st.data())
def test_regions_of_borders_hold_all_that_is_read(data):
    """For each box of the root, the box of a producer has all elements that its points read."""
    rows, before, after = (data.draw(st.integers(low, 6)) for low in (2, 0, 0))
    mode = data.draw(st.sampled_from(["edge", "constant", "reflect", "wrap"]))
    if mode == "reflect":
        before, after = min(before, rows - 1), min(after, rows - 1)
    step = data.draw(st.integers(1, 2))

    def function(a):
        made = a * a[::-1] + 1  # not trivial, and read several times
        padded = np.pad(made, (before, after), mode)
        return padded[::step][:-1] - padded[::step][1:] * made[0]

    traced = tilesolve.pipeline(function, cache=False)
    computation = traced.plan(np.ones(rows)).computation
    regions = find_regions(computation)
    root = computation.stages[-1]
    (letter,) = root.output
    names = [stage.name for stage in computation.stages[:-1]]
    for low in range(computation.sizes[letter]):
        for high in range(low, computation.sizes[letter]):
            for part in cut_stage(computation, root):
                ends = part.box[letter]
                for point in range(max(low, ends[0]), min(high, ends[1]) + 1):
                    for read in part.term.reads:
                        if read.array in names:
                            ((first, last),) = regions.box(
                                read.array, {letter: (low, high)}
                            ).values()
                            assert first <= read.subscripts[0].at({letter: point}) <= last


def test_many_parts_are_no_terms():
    """Arrays that are written part by part many times are still what NumPy has."""

    def rows(a):
        out = np.zeros_like(a)
        for row in range(70):
            out[row] = a[row] * row
        return out[1:] - out[:-1]

    assert np.array_equal(tilesolve.pipeline(rows, cache=False)(IMAGE), rows(IMAGE))


def test_sums_in_place_at_one_region():
    """A region that is added to again and again stays one part."""

    def add(a):
        out = np.zeros_like(a)
        for k in range(9):
            out[4:-4] += (k + 1) * a[k : k + a.shape[0] - 8]
        return out

    found = tilesolve.pipeline(add, cache=False)
    assert np.array_equal(found(IMAGE), add(IMAGE))
    (stage,) = found.plan(IMAGE).computation.stages
    assert len(stage.term.all) < 512


@pytest.mark.parametrize("threads", [1, 2])
def test_results_that_others_read_are_computed_once(threads):
    """Several results are one plan, and one group where their shapes allow it."""

    def several(image):
        rows = image[1:] * 2 + image[:-1]
        gray = rows[:, 1:] * rows[:, :-1] + rows[:, 1:]
        return gray // 2, gray - 3, gray

    found = tilesolve.pipeline(several, threads=threads, machine="i7-6700k", cache=False)
    wanted = several(IMAGE)
    assert all(map(np.array_equal, found(IMAGE), wanted))
    plan = found.plan(IMAGE)
    assert plan.outputs == ("several", "several_2", "gray")
    assert [len(one.computation.stages) for one in plan.solutions] == [len(plan.computation.stages)]
    assert type(plan).from_json(plan.to_json()) == plan
    outs = tuple(np.full_like(one, -1) for one in wanted)
    found(IMAGE, out=outs)
    assert all(map(np.array_equal, outs, wanted))


def test_results_of_which_tiles_need_a_part_run_by_themselves():
    """A result that the others read a part of is computed as a whole."""

    def several(image):
        rows = image[1:] * 2 + image[:-1]
        return rows, rows[10:, 5:] - rows[9:-1, :-5]

    found = tilesolve.pipeline(several, machine="i7-6700k", cache=False)
    assert all(map(np.array_equal, found(IMAGE), several(IMAGE)))


def test_plans_with_borders_are_read_back():
    """Limits of positions are text, and the same when it is read."""
    for name in ("edge", "heat", "gradients", "framed"):
        plan = plan_chain(name, 1).plan(IMAGE)
        assert type(plan).from_json(plan.to_json()) == plan
    image = np.arange(12.0).reshape(3, 4)
    plan = tilesolve.pipeline("o[y,x] = A[min(max(y-1, 0), 2), x]", A=(3, 4), y=5, x=4)
    assert np.array_equal(plan(image), np.pad(image, ((1, 1), (0, 0)), "edge"))


def _in_place(a):
    out = a.copy()
    out[1:, :-2] += a[:-1, 2:]
    out[:3] = 7
    return out


def _interleaved(a):
    out = np.empty((a.shape[0], 2 * a.shape[1]), a.dtype)
    out[:, ::2] = a
    out[:, 1::2] = a[::-1, ::-1]
    return out[:, 3:-3]


STEPS = [
    lambda a: smooth(a, "edge"),
    lambda a: smooth(a, "constant"),
    lambda a: np.pad(a, ((0, 2), (3, 0)), "reflect"),
    lambda a: np.pad(a, ((2, 1), (0, 1)), "symmetric"),
    lambda a: np.pad(a, 1, "wrap")[:, 1:],
    lambda a: np.roll(a, 3, axis=0) + a,
    lambda a: np.roll(a, -1, axis=1) - a,
    lambda a: np.concatenate([a[2:], a[:2] * 3, a[-1:]]),
    lambda a: a[1:-1, 2:] * 2 - a[2:, :-2],
    lambda a: a[::2] + a[::-1][: len(a[::2])] // 2,
    lambda a: np.repeat(a, 2, axis=1)[:, :-1],
    lambda a: np.stack([a, -a])[0] + np.tril(a),
    lambda a: np.flip(a, 1) // 3 + a,
    lambda a: (a + np.pad(a, 1, "edge")[:-2, 2:]) % 1000,
    _in_place,
    _interleaved,
]


@examples(5, 12)
@given(st.data())
def test_drawn_chains_with_borders(data):
    """Integers are NumPy's bit for bit, whatever runs together; several results, too."""
    chosen = data.draw(st.lists(st.sampled_from(range(len(STEPS))), min_size=2, max_size=5))
    kept = data.draw(st.integers(0, len(chosen) - 1))
    threads = data.draw(st.integers(1, 2))

    def function(a):
        held = a
        for at, number in enumerate(chosen):
            a = STEPS[number](a) + 1
            held = a if at == kept else held
        return (a, held) if kept < len(chosen) - 1 else a

    image = np.random.default_rng(sum(chosen)).integers(-99, 99, (47, 71)).astype("int32")
    found = tilesolve.pipeline(
        function, threads=threads, machine="i7-6700k", start="cold", cache=False
    )(image)
    wanted = function(image)
    for one, other in zip(
        found if isinstance(found, tuple) else [found],
        wanted if isinstance(wanted, tuple) else [wanted],
        strict=True,
    ):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_strips_of_threads_slide_in_two_steps():
    """A strip that is as high as the rows written out would be walked twice by each thread."""

    def function(a):
        held = STEPS[10](a) + 1
        return STEPS[10](held) + 1, held

    image = np.random.default_rng(20).integers(-99, 99, (47, 71)).astype("int32")
    for threads in (1, 2):
        run = tilesolve.pipeline(
            function, threads=threads, machine="i7-6700k", start="cold", cache=False
        )
        for one, other in zip(run(image), function(image), strict=True):
            assert np.array_equal(one, other)


def halved(image):
    """Half the rows, of an array whose border and inside are computed apart."""
    padded = np.pad(image, 1, "edge")
    rows = padded[:-2:2] + padded[1:-1:2] + padded[2::2]
    return rows.sum(axis=1) + rows[:, 0]


def read_between(image):
    """An array that is read before all of it was written."""
    whole = np.zeros_like(image)
    whole[:40] = image[:40] * 2
    turned = whole[::-1] + 1
    whole[40:] = image[40:] + turned[40:]
    return whole.sum(axis=1) + turned.sum(axis=1)


@pytest.mark.parametrize("function", [halved, read_between])
@pytest.mark.parametrize("threads", [1, 2])
def test_new_arrays_have_nothing_that_was_there_before(function, threads, monkeypatch):
    """Parts that fill an array together find no zeros in it; others do."""

    def poison(shape, dtype):
        found = np.empty(shape, dtype)
        found.view(np.uint8).fill(0xA5)
        return found

    monkeypatch.setattr(running, "new_result", poison)
    given_image = IMAGE.astype("int64")
    planned = tilesolve.pipeline(function, threads=threads, cache=False, machine="i7-6700k")
    for _ in range(2):
        assert np.array_equal(planned(given_image), function(given_image))
