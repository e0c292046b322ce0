"""Calls and plans of decorated functions."""

import cProfile
import sys

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import PlanError, SizeError

ones = np.ones((6, 8))
weights = np.array([1.0, 2.0, 1.0])


@tilesolve.pipeline
def smooth(image, axis=0):
    """Smooth along an axis."""
    turned = np.moveaxis(image, axis, 0)
    count = turned.shape[0] - 2
    found = sum(weights[k] * turned[k : count + k] for k in range(3)) / 4
    return np.moveaxis(found, 0, axis)


def test_function_is_the_users_own():
    """It is called by `function`, and the pipeline has its name."""
    image = np.random.default_rng(0).random((6, 8))
    assert np.allclose(smooth(image), smooth.function(image))
    assert (smooth.__name__, smooth.__doc__) == ("smooth", "Smooth along an axis.")


def test_constants_are_part_of_the_plan():
    """Arguments that are no arrays decide what is planned; so do shapes and dtypes."""
    assert smooth(ones, 1).shape == smooth(ones, axis=1).shape == (6, 6)
    assert smooth.plan(ones) == smooth.plan(ones.copy())
    assert len({smooth.plan(ones), smooth.plan(ones, 1), smooth.plan(ones.astype("float32"))}) == 3


def test_report_names_stages_as_the_function_does():
    """Stages have the names of its local variables."""

    @tilesolve.pipeline
    def blur(image):
        rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
        return rows[:-2] + rows[1:-1] + rows[2:]

    plan = blur.plan(ones)
    assert [stage.name for stage in plan.computation.stages] == ["rows", "blur"]
    assert plan.inputs == ("image",)
    assert str(plan).startswith("rows[y1,x1] = image[y1,x1] + image[y1,x1+1]")
    assert type(plan).from_json(plan.to_json()) == plan
    assert plan.whatif(memory_bandwidth=2).seconds <= plan.seconds


def test_arrays_of_the_function_are_constants():
    """An array that is no argument is taken as it is when the function is traced."""
    kernel = np.arange(8.0)
    scaled = tilesolve.pipeline(lambda a: a * kernel + np.arange(8))
    assert np.array_equal(scaled(ones), ones * kernel + np.arange(8))
    kernel[:] = 0
    assert np.array_equal(scaled(ones)[0], 2 * np.arange(8.0))


def test_lists_of_arrays():
    """Arrays may lie in lists, tuples and dictionaries; and any number may be given."""
    add = tilesolve.pipeline(lambda *arrays, **more: sum(arrays) + sum(more["last"]))
    assert np.array_equal(add(ones, 2 * ones, last=[ones, 3 * ones]), 7 * ones)


def test_out():
    """The result goes to `out`, all of it, in any strides."""
    framed = tilesolve.pipeline(_frame)
    out = np.full((8, 6), np.nan).T
    assert framed(ones, out=out) is out
    assert np.array_equal(out, _frame(ones))
    pair = tilesolve.pipeline(lambda a: (a + 1, a.sum(axis=0)))
    outs = np.empty((6, 8)), np.empty(8)
    assert all(one is other for one, other in zip(pair(ones, out=outs), outs, strict=True))
    assert np.array_equal(outs[1], np.full(8, 6.0))


def _frame(a):
    out = np.zeros_like(a)
    out[1:-1] = a[1:-1]
    return out


def test_arguments_that_are_written_to():
    """They have what the function writes; what is computed has their old values."""

    def step(u, v, rate):
        u[1:-1] += rate * (v[:-2] - u[2:])
        v -= u
        return v

    u, v = np.random.default_rng(0).random((2, 6, 8))
    mine, other = u.copy(), v.copy()
    step(u, v, 0.5)
    assert tilesolve.pipeline(step)(mine, other, 0.5) is other
    assert np.allclose(mine, u)
    assert np.allclose(other, v)


def heat(u, rate=0.2):
    """A step of heat, with a border that stays."""
    new = u.copy()
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    new[1:-1, 1:-1] = u[1:-1, 1:-1] + rate * (around - 4 * u[1:-1, 1:-1])
    return new


def wave(before, now):
    """A step of a wave: two grids."""
    later = np.zeros_like(now)
    later[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.1 * (now[2:] - 2 * now[1:-1] + now[:-2])
    return now, later


def relax(u):
    """A step in place."""
    u[1:-1] = (u[:-2] + u[2:]) / 2


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("function", [heat, wave])
def test_steps(function, steps):
    """A step that runs many times gives what its function does; arguments stay."""
    grids = list(np.random.default_rng(0).random((1 if function is heat else 2, 6, 8)))
    kept = [grid.copy() for grid in grids]
    found = tilesolve.pipeline(function)(*grids, steps=steps)
    assert all(np.array_equal(*pair) for pair in zip(grids, kept, strict=True))
    for _ in range(steps):
        made = function(*grids)
        grids = list(made) if isinstance(made, tuple) else [made]
    found = found if isinstance(found, tuple) else (found,)
    assert all(np.allclose(*pair) for pair in zip(found, grids, strict=True))


def test_steps_in_place_and_into_out():
    """An argument that a step writes to has the last step's values."""
    u = np.random.default_rng(0).random(9)
    wanted = u.copy()
    for _ in range(4):
        relax(wanted)
    assert tilesolve.pipeline(relax)(u, steps=4) is None
    assert np.allclose(u, wanted)
    out = np.full_like(ones, np.nan)
    assert tilesolve.pipeline(heat)(ones, steps=3, out=out) is out
    assert np.allclose(out, ones)


def test_a_border_is_copied_in_the_first_steps_alone():
    """Plans of steps have no statement for what stays."""
    heated = tilesolve.pipeline(heat)
    (whole,) = heated.plan(ones).computation.stages
    assert not whole.where
    found, _ = heated._trace([ones], {})
    (inside,) = found.planned(step=True).plan.computation.stages
    assert len(inside.where) == 4


def test_what_calls_refuse():
    """Arrays that do not fit are errors before anything is written."""
    twice = tilesolve.pipeline(lambda a: a[1:] * 2)
    array = np.ones(6)
    for out, error in (
        (array[1:], PlanError),
        (array[:-1], PlanError),
        (np.ones(4), SizeError),
        (np.ones(5, "float32"), TypeError),
        ([1, 2, 3, 4, 5], SizeError),
        ("text", PlanError),
    ):
        with pytest.raises(error):
            twice(array, out=out)
    assert np.array_equal(array, np.ones(6))
    with pytest.raises(SizeError, match="a step returns arrays like those"):
        twice(array, steps=2)
    with pytest.raises(SizeError, match="steps=0 times or more"):
        tilesolve.pipeline(lambda a: a + 1)(array, steps=-1)
    with pytest.raises(PlanError, match="returns its argument u"):
        tilesolve.pipeline(_written)(array, out=np.ones(6))
    with pytest.raises(TypeError, match="missing a required argument"):
        twice()
    with pytest.raises(PlanError, match="are of statements"):
        tilesolve.pipeline(_frame, dtype="float32")
    with pytest.raises(PlanError, match="a function, text or stages"):
        tilesolve.pipeline(3)


def _written(u):
    u += 1
    return u


def test_options():
    """A decorator takes machine, threads and mode."""
    planned = tilesolve.pipeline(machine="i7-6700k", threads=2, mode="plain")(_frame)
    plan = planned.plan(ones)
    assert (plan.machine.name, plan.threads, plan.mode) == ("i7-6700k", 2, "plain")
    assert np.array_equal(tilesolve.pipeline(threads=2, cache=False)(heat)(ones), ones)


def test_a_profiler_goes_on():
    """That of a user who profiles what traces a function, in C or in Python."""
    profiler = cProfile.Profile()
    found = profiler.runcall(lambda: (tilesolve.pipeline(abs)(np.ones(3)), sorted([1])))
    np.testing.assert_array_equal(found[0], np.ones(3))
    assert any("sorted" in str(one.code) for one in profiler.getstats())
    calls = []
    sys.setprofile(lambda *event: calls.append(event))
    try:
        tilesolve.pipeline(abs)(np.ones(3))
        calls.clear()
        sorted([1])
    finally:
        sys.setprofile(None)
    assert calls
