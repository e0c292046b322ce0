"""Calls: compiled code that Python calls directly keeps Python's rules."""

import inspect
import pickle
import sys
import threading
import time

import numpy as np
import pytest

from tilesolve import Machine, nest, plan
from tilesolve.contractions.errors import PlanError, TilesolveError
from tilesolve.kernels.runtime import guard_fields
from tilesolve.kernels.runtime.array_guard import describe_arrays
from tilesolve.kernels.runtime.fast_call import MAX_OWN_BYTES, addresses, prepare_call
from tilesolve.packing import buffers
from tilesolve.packing.buffers import workspace


@pytest.fixture
def prepared():
    """A plan that has run, and what it ran with."""
    found = plan("ik-ij-jk", 24, Machine.load("i7-6700k"), threads=1, cache=False)
    generator = np.random.default_rng(0)
    first, second = (generator.standard_normal((24, 24)) for _ in range(2))
    out = np.zeros((24, 24))
    found(first, second, out=out)
    recent = found.executor.recent
    return recent, (1.0, 0.0, workspace(recent.workspace_bytes).bytes, out, first, second)


def test_a_call_counts_references_as_python_does(prepared):
    """The output is returned with a reference of its own, and so is None; nothing else is kept."""
    recent, arguments = prepared
    alpha, beta = float("1.5"), float("0.25")
    watched = [alpha, beta, *arguments[2:]]
    others = [*arguments[:5], None]
    before = [sys.getrefcount(x) for x in watched]
    kept = [recent.call(alpha, beta, *arguments[2:]) for _ in range(50)]
    after = [sys.getrefcount(x) for x in watched]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 0, 0, 50, 0, 0]
    assert all(x is arguments[3] for x in kept)
    del kept
    assert [sys.getrefcount(x) for x in watched] == before
    nothing = sys.getrefcount(None)
    assert {recent.call(*others) for _ in range(5000)} == {None}
    assert abs(sys.getrefcount(None) - nothing) < 100


class Number(float):
    """Not a float in all that it may do."""


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (4, None),
        (5, [[1.0]]),
        (3, None),
        (3, np.ma.zeros((24, 24))),
        (4, np.zeros((24, 24), "float32")),
        (5, np.zeros((24, 25))),
        (0, 1),
        (0, 1j),
        (0, Number(1)),
        (1, np.float64(0)),
        (1, None),
    ],
)
def test_what_is_not_alike_is_left_alone(prepared, place, other):
    """Objects of other types, or subclasses, or other arrays: nothing is computed."""
    recent, arguments = prepared
    out = arguments[3]
    out[...] = np.nan
    changed = [*arguments]
    changed[place] = other
    assert recent.call(*changed) is None
    assert np.isnan(out).all()
    assert recent.call(*arguments) is out
    assert np.allclose(out, arguments[4] @ arguments[5])


@pytest.mark.parametrize("count", range(6))
def test_too_few_arguments_are_left_alone(prepared, count):
    """What is not there is not looked at."""
    recent, arguments = prepared
    assert recent.call(*arguments[:count]) is None
    with pytest.raises(TypeError):
        recent.call(*arguments, name=1)


class Many(np.ndarray):
    """No plain array, as compiled code sees it."""


@pytest.fixture
def repeated():
    """A plan whose calls compiled code takes, and arrays like those that it ran with."""
    found = nest("o[i] = a * A[i] + B[i]", 5, machine="i7-6700k", cache=False)
    given = np.arange(5.0), np.ones(5), np.full(5, np.nan)
    found(*given[:2], out=given[2], a=1.0)
    return found, given


def test_calls_of_plans_count_references_as_python_does(repeated):
    """The output is returned with a reference of its own; nothing else is kept, or goes."""
    found, (A, B, out) = repeated
    factor = float("2.5")
    watched = [A, B, out, factor, found, found._quick, None]
    before = [sys.getrefcount(x) for x in watched]
    kept = [found(A, B, out=out, a=factor) for _ in range(50)]
    assert (out == 2.5 * A + B).all()
    after = [sys.getrefcount(x) for x in watched]
    assert [b - a for a, b in zip(before, after, strict=True)][:-1] == [0, 0, 50, 0, 0, 0]
    assert all(x is out for x in kept)
    del kept
    made = [found(A, B, a=factor) for _ in range(50)]
    assert {sys.getrefcount(x) for x in made} == {3}  # in the list, as x, and as an argument
    assert all((x == out).all() for x in made)
    assert len({x.ctypes.data for x in made}) == 50
    assert found(A, B, out=None, a=factor) is not out
    del made
    assert [sys.getrefcount(x) for x in watched][:-1] == before[:-1]
    assert abs(sys.getrefcount(None) - before[-1]) < 100


def test_what_is_not_alike_goes_to_the_method(repeated):
    """Fewer, more and other arrays, names and numbers: errors, or the same result."""
    found, (A, B, out) = repeated
    expected = 3 * A + B
    many = A.view(Many)
    for given, named in (
        ((A, B), {"a": 3}),
        ((A, B), {"a": np.float64(3), "out": out}),
        ((A,), {"B": B, "a": 3.0}),
        ((), {"a": 3.0, "out": None, "B": B, "A": A}),
        ((many, B), {"a": 3.0}),
        ((np.repeat(A, 2)[::2], B), {"a": 3.0, "out": out}),
        ((list(A), B), {"a": 3.0}),
        ((A, B), {"".join(["o", "ut"]): out, "".join(["", "a"]): 3.0}),
    ):
        assert (found(*given, **named) == expected).all()
        assert (found(A, B, a=3.0) == expected).all()
    out[...] = np.nan
    for given, named in (
        ((A,), {"a": 3.0}),
        ((A, B, B), {"a": 3.0}),
        ((), {}),
        ((A, B), {}),
        ((A, B), {"a": "3"}),
        ((A, B), {"b": 3.0}),
        ((A, B), {"a": 3.0, "b": 3.0}),
        ((A, B[:4]), {"a": 3.0}),
        ((A, None), {"a": 3.0}),
        ((A, B), {"a": 3.0, "out": A}),
        ((A, B), {"a": 3.0, "out": (out,)}),
        ((A.astype("float32"), B), {"a": 3.0}),
        (tuple([A] * 40), {"a": 3.0}),
    ):
        with pytest.raises(TilesolveError):
            found(*given, **{"out": out, **named})
        assert np.isnan(out).all()


def test_classes_have_their_methods_still(repeated):
    """Through the class, for objects of others, and for plans that never ran or are copies."""
    found, (A, B, out) = repeated
    kind = type(found)
    assert (kind.__call__(found, A, B, a=2.0) == 2 * A + B).all()
    assert kind.__call__(found, A, B, out=out, a=2.0) is out
    with pytest.raises(TypeError):
        kind.__call__()
    with pytest.raises(AttributeError):
        kind.__call__(A, B)
    other = nest("o[i] = A[i]", 5, machine="i7-6700k", cache=False)
    assert (other(A) == A).all()
    assert (pickle.loads(pickle.dumps(found))(A, B, a=0.5) == 0.5 * A + B).all()
    assert [*inspect.signature(found).parameters] == ["arrays", "out", "named"]
    for call in (found.__call__, type(found).__call__):
        assert "Returns" in (call.__doc__ or "")
        assert "\n--\n" not in call.__doc__
        assert not call.__doc__.startswith("call(")
        assert {"arrays", "out", "named"} <= {*inspect.signature(call).parameters}


def test_a_plan_of_a_contraction_takes_its_output_by_name_and_by_position(prepared):
    """Without factors compiled code takes the call; with them Python does."""
    _, (_, _, _, out, first, second) = prepared
    found = plan("ik-ij-jk", 24, Machine.load("i7-6700k"), threads=1, cache=False)
    expected = first @ second
    for _ in range(3):
        assert found(first, second, out=out) is out
        assert np.allclose(out, expected)
        out[...] = np.nan
        assert found(first, second, out) is out
        assert np.allclose(out, expected)
        assert np.allclose(found(first, second, None), expected)
        assert np.allclose(found(first, second), expected)
        for given, named in (((out, out), {}), ((out,), {"out": out}), ((), {"first": first})):
            with pytest.raises(TypeError):
                found(first, second, *given, **named)
        assert np.allclose(found(first, second, out, beta=1.0), 2 * expected)
        assert np.allclose(found(first, second, alpha=0.5), expected / 2)
        with pytest.raises(PlanError):
            found(first, second, out=first)


@pytest.mark.parametrize("extent", [7, 33, 70, 150])
def test_calls_with_packed_copies_take_memory_of_their_own(extent):
    """Several threads at once, each with its own arrays, where copies are of few and many bytes."""
    text = "d[i,j] = min(X[i,k] + Y[j,k], k)"
    found = nest(text, extent, machine="i7-6700k", threads=1, cache=False)
    generator = np.random.default_rng(extent)
    pairs = [generator.standard_normal((2, extent, extent)) for _ in range(4)]
    expected = [(x[:, None] + y).min(-1) for x, y in pairs]
    found(*pairs[0])
    recent = found.executor.quick
    assert recent.workspace_bytes
    assert recent.needs_bytes == (recent.workspace_bytes > MAX_OWN_BYTES and recent.workspace_bytes)
    wrong = []

    def compute(at):
        out = np.full((extent, extent), np.nan)
        for _ in range(100):
            if not np.array_equal(found(*pairs[at], out=out), expected[at]):
                wrong.append(at)

    threads = [threading.Thread(target=compute, args=(at,)) for at in range(len(pairs))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_the_function_keeps_its_words():
    """Whoever has the function needs no reference to what it was made of."""
    array = np.zeros((2, 2))
    words = np.zeros(guard_fields.ARRAYS, np.int64)
    words[guard_fields.GIVEN :] = 3, *addresses()
    words = np.concatenate([words, describe_arrays([array] * 3)])
    count = sys.getrefcount(words)
    function = prepare_call(words)
    assert sys.getrefcount(words) == count + 1
    del function
    assert sys.getrefcount(words) == count


def test_others_run_meanwhile():
    """A long call lets other Python threads run: not only before and after it."""
    found = plan("ik-ij-jk", 600, Machine.load("i7-6700k"), threads=1)
    first = np.ones((600, 600))
    out = np.zeros_like(first)
    found(first, first, out=out)
    recent = found.executor.recent
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    clock = threading.Thread(target=tick)
    clock.start()
    meanwhile = []
    while len(meanwhile) < 100 and max(meanwhile, default=0) < 3:
        begin = time.perf_counter()
        assert (
            recent.call(1.0, 0.0, workspace(recent.workspace_bytes).bytes, out, first, first) is out
        )
        end = time.perf_counter()
        meanwhile.append(sum(begin < at < end for at in ticks))
    done.set()
    clock.join()
    assert (out == 600).all()
    assert max(meanwhile) >= 3


def test_copies_too_large_to_keep_live_as_long_as_the_call(monkeypatch):
    """The second call has room of its own, too, and nobody gives it back meanwhile."""
    monkeypatch.setattr(buffers, "MAX_IDLE_WORKSPACE_BYTES", 0)
    monkeypatch.setattr(buffers, "_idle", buffers._Idle())
    found = plan("ik-ji-kj", 700, Machine.load("i7-6700k"), threads=1)
    first, second = (np.random.default_rng(at).standard_normal((700, 700)) for at in (0, 1))
    assert any(found.nest.packed)
    for _ in range(3):
        out = np.full((700, 700), np.nan)
        assert found(first, second, out=out) is out
        assert np.allclose(out, (second @ first).T)
        assert buffers._idle.workspace.size == 0
