"""Lists of calls: compiled code makes them one after another, and says how far it came."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.running.call_list import CallList, FixedCall
from tilesolve.system.cancellation import deadline

RNG = np.random.default_rng(0)


def product(rows):
    """A contraction's call, its result, and what that should be."""
    plan = tilesolve.plan("ij-ik-kj", {"i": rows, "j": 20, "k": 9}, "i7-6700k", dtype="float32")
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((rows, 9), (9, 20)))
    out = np.empty((rows, 20), np.float32)
    plan(a, b, out)
    return FixedCall(plan.executor.recent, (out, a, b), (1.0, 0.0)), out, a @ b


def statement(rows):
    """A statement's call, its result, and what that should be; its factor is a number."""
    plan = tilesolve.nest("o[i] += 3 * A[i,k] * x[k]", {"i": rows, "k": 7}, machine="i7-6700k")
    arrays, out = (RNG.standard_normal((rows, 7)), RNG.standard_normal(7)), np.empty(rows)
    plan(*arrays, out=out)
    return plan.executor.fixed_call(arrays, (out,)), out, 3 * arrays[0] @ arrays[1]


def gather(positions):
    """A call that fails where a position is not 0 to 4."""
    plan = tilesolve.nest(
        "o[i] = x[v[i]]", {"i": 3, "x": (5,)}, {"x": "float64", "v": "int64"}, machine="i7-6700k"
    )
    found = {"x": np.arange(5.0), "v": np.arange(3)}
    arrays, out = [found[name] for name in plan.inputs], np.empty(3)
    plan(*arrays, out=out)
    found["v"][:] = positions
    return plan.executor.fixed_call(arrays, (out,)), out


@given(
    drawn=st.lists(st.tuples(st.sampled_from([product, statement]), st.sampled_from([1, 4, 30])))
)
@settings(max_examples=10)
def test_all_calls(drawn):
    """Each has the result that it has by itself, whatever lay there before."""
    made = [make(rows) for make, rows in drawn]
    calls = CallList([call for call, *_ in made])
    for _ in range(2):
        for _, out, _ in made:
            out.fill(np.nan)
        assert calls.run() == len(calls) == len(made)
        for _, out, expected in made:
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_calls_that_fail():
    """What fails is told by its number, and nothing runs behind it."""
    first, out, expected = product(8)
    wrong, _ = gather([0, 5, 1])
    last, other, _ = statement(5)
    out.fill(np.nan)
    other.fill(np.nan)
    assert CallList([first, wrong, last]).run() == 1
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(other).all()


def test_calls_that_are_to_end():
    """A deadline that is over ends the list before it begins."""
    first, out, _ = product(8)
    out.fill(np.nan)
    with deadline(0) as is_over:
        while not is_over():
            time.sleep(0.001)
        time.sleep(0.01)
        assert CallList([first]).run() == 0
    assert np.isnan(out).all()
    assert CallList([first]).run() == 1


def test_parameters():
    """A call that takes a number by name is none of a list."""
    plan = tilesolve.nest("o[i] = a * x[i]", 4, machine="i7-6700k")
    x, out = np.ones(4), np.empty(4)
    plan(x, a=2, out=out)
    assert plan.executor.fixed_call([x], (out,)) is None
