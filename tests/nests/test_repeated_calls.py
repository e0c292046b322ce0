"""Repeated calls of nests: compiled code does what Python did first, and refuses the same."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.errors import SizeError, TilesolveError
from tilesolve.nests.calls import Signature
from tilesolve.nests.plan import nest
from tilesolve.nests.running import NestRunner

MACHINE = "i7-6700k"
RNG = np.random.default_rng(0)
N, M = 7, 5
F8, F4, I8 = "float64", "float32", "int64"


@dataclass(frozen=True)
class Statement:
    """A nest, and what is right of it, given inputs in a wider dtype and what `out` had."""

    text: str
    dtypes: object
    right: object
    sizes: object = None
    params: tuple[str, ...] = ()
    options: tuple[tuple[str, object], ...] = ()

    def plan(self):
        sizes = self.sizes or {x: N if x in "ik" else M for x in "ijk" if x in self.text}
        return nest(self.text, sizes, self.dtypes, machine=MACHINE, **dict(self.options))


def _lower(A, out):
    return np.where(np.tri(N, dtype=bool), 2 * A, 0 if out is None else out)


STATEMENTS = {
    "mask": Statement("o[i,j] = A[j,i] & B[i,j]", I8, lambda A, B, out: A.T & B),
    "many reads": Statement(
        "o[i,j] = A[i,j] - B[i,j] + C[i,j] * D[j,i] + E[i]",
        F8,
        lambda A, B, C, D, E, out: A - B + C * D.T + E[:, None],
    ),
    "sum": Statement(
        "o[i] = a * sum(A[i,j] * B[j], j)",
        F4,
        lambda A, B, out, a: a * (A @ B),
        params=("a",),
    ),
    "own": Statement(
        "o[i,j] = a * o[i,j] + b * A[j,i]",
        F8,
        lambda o, A, out, a, b: a * o + b * A.T,
        params=("a", "b"),
    ),
    "stages": Statement(
        "t[i] = A[i] * B[i]; A2[i] = t[i] + A[i]; o[i] = A2[i] * t[i]",
        F8,
        lambda A, B, out: (A * B + A) * (A * B),
    ),
    "input between": Statement(
        "A[i] = 2 * A[i]; o[i] = A[i] + B[i]", F8, lambda A, B, out: 2 * A + B
    ),
    "gather": Statement(
        "o[i] = T[v[i]]",
        {"T": F8, "v": I8},
        lambda T, v, out: T[v.astype(int)],
        sizes={"i": N, "T": (4,)},
    ),
    "region": Statement(
        "o[i,k] = 2 * A[i,k]", F8, lambda A, out: _lower(A, out), options=(("where", "k <= i"),)
    ),
    "move": Statement("o[i,j] = A[j,i]", F4, lambda A, out: A.T),
    "product": Statement(
        "o[i,k] = b * o[i,k] + a * sum(A[i,j] * B[k,j], j)",
        F4,
        lambda o, A, B, out, a, b: b * o + a * (A @ B.T),
        params=("a", "b"),
        options=(("route", "contraction"),),
    ),
    "blocks": Statement(
        "o[i,k] += A[i,j] * A[k,j]",
        F8,
        lambda A, out: np.where(np.tri(N, dtype=bool), A @ A.T, 0 if out is None else out),
        options=(("route", "contraction"), ("where", "k <= i")),
    ),
    "blocks of sums": Statement(
        "o[i,j] += A[i,k] * B[k,j]",
        F8,
        lambda A, B, out: np.tril(A) @ B,
        options=(("route", "contraction"), ("where", "k <= i")),
    ),
}

PLANS = {}
"""Of all examples, which follow one another."""


def plan_of(name):
    """The plan of a statement, which all examples share: calls of one follow those of others."""
    if name not in PLANS:
        PLANS[name] = STATEMENTS[name].plan()
    return PLANS[name]


INPUTS = ("rows",) * 6 + ("columns", "backwards", "spread", "odd", "swapped", "short", "other")
INPUTS += ("list", "subclass", "frozen", "one")
OUTS = ("none", "rows", "rows", "columns", "backwards", "spread", "odd", "swapped", "short")
OUTS += ("other", "larger", "frozen", "subclass", "one", "over", "beside", "own", "own")


def lay(values, how):
    """Return an array of some values, in memory of its own."""
    axes = values.ndim
    if how == "columns":
        return np.asfortranarray(values)
    if how == "backwards":
        turned = (slice(None, None, -1),) * axes
        return values[turned].copy()[turned]
    if how == "spread":
        room = np.full([2 * n for n in values.shape], values.dtype.type(77))
        found = room[(slice(None, None, 2),) * axes]
        found[...] = values
        return found
    if how == "odd":
        room = np.zeros(values.nbytes + 1, np.uint8)
        found = room[1:].view(values.dtype).reshape(values.shape)
        found[...] = values
        return found
    if how == "swapped":
        return values.astype(values.dtype.newbyteorder())
    if how == "short":
        return values[:-1].copy()
    if how == "other":
        return values.astype("float32" if values.dtype != "float32" else "float64")
    if how == "list":
        return values.tolist()
    if how == "subclass":
        return np.ma.array(values)
    if how == "one":
        return np.broadcast_to(values[(slice(0, 1),) * axes], values.shape)
    found = values.copy()
    found.flags.writeable = how != "frozen"
    return found


def build(plan, recipe):
    """Return the inputs and the output of a call, all memory anew."""
    ways, how, seed = recipe
    rng = np.random.default_rng(seed)
    infos = [plan.computation.array(name) for name in plan.inputs]
    inputs = [
        lay(rng.integers(0, 4, info.shape).astype(info.dtype), way)
        for info, way in zip(infos, ways, strict=False)
    ]
    info = plan.computation.output
    values = rng.integers(0, 4, info.shape).astype(info.dtype)
    if how == "none":
        return inputs, None
    if how == "own" and info.name in plan.inputs:
        return inputs, inputs[plan.inputs.index(info.name)]
    if how == "larger":
        room = np.full([n + 2 for n in info.shape], values.dtype.type(77))
        room[tuple(map(slice, info.shape))] = values
        return inputs, room
    if how in ("over", "beside"):  # elements of the last input, or between them
        size = infos[-1].shape[0]
        if len(infos[-1].shape) == 1 and len(info.shape) == 1 and infos[-1].dtype == info.dtype:
            room = np.zeros(2 * max(size, N) + 1, info.dtype)
            inputs[-1] = room[: 2 * size : 2]
            inputs[-1][...] = rng.integers(0, 4, size)
            first = how == "beside"
            return inputs, room[first : first + 2 * info.shape[0] : 2]
    return inputs, lay(values, how)


def give(call):
    """Return what a call gives, or its error."""
    try:
        return call()
    except TilesolveError as error:
        return type(error), str(error)


def check_same(found, right):
    """Hold what two calls gave against each other."""
    assert type(found) is type(right)
    if isinstance(right, tuple):
        assert found == right
    else:
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(right))


recipes = st.tuples(
    st.lists(st.sampled_from(INPUTS), min_size=5, max_size=5),
    st.sampled_from(OUTS),
    st.integers(0, 2**32 - 1),
)
values = st.sampled_from((1.0, 0.5, -2.0, 3, 2**60, True, np.float32(0.5), np.int64(2)))


@pytest.mark.parametrize("name", STATEMENTS)
@examples(4, 12)
@given(st.lists(st.tuples(recipes, st.tuples(values, values)), min_size=1, max_size=4))
def test_repeated_calls_are_like_first_ones(name, calls):
    """Calls with arrays of any kind, each twice, beside those of a runner that saw none before."""
    statement, plan = STATEMENTS[name], plan_of(name)
    for recipe, numbers in calls:
        params = dict(zip(statement.params, numbers, strict=False))
        for _ in range(2):
            first = NestRunner(plan.solution)
            others, other_out = build(plan, recipe)
            inputs, out = build(plan, recipe)
            wide = [
                np.array(one, float if one.dtype.kind == "f" else object)
                for one in map(np.asarray, inputs)
            ]
            before = None if out is None else np.array(out)
            right = give(lambda: first.compute(others, params, other_out))  # noqa: B023
            found = give(lambda: plan(*inputs, out=out, **params))  # noqa: B023
            check_same(found, right)
            for one, other in zip((*inputs, out), (*others, other_out), strict=True):
                if isinstance(one, np.ndarray):
                    base = (x if x.base is None else x.base for x in (one, other))
                    np.testing.assert_array_equal(*map(np.asarray, base))
            if isinstance(found, tuple):
                continue
            assert out is None or found is out
            named = {x: float(v) for x, v in params.items()}
            shape = plan.computation.output.shape
            old = None if before is None else before[tuple(map(slice, shape))].astype(float)
            expected = statement.right(*wide, out=old, **named).astype(float)
            np.testing.assert_allclose(
                np.asarray(found)[tuple(map(slice, shape))].astype(float), expected, rtol=1e-5
            )


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("given_out", [False, True])
def test_python_looks_at_no_call_that_is_like_the_last(name, given_out, monkeypatch):
    """With an output or without, parameters and inputs by name or by position."""
    plan, statement = STATEMENTS[name].plan(), STATEMENTS[name]
    inputs, out = build(plan, (["rows"] * 5, "rows" if given_out else "none", 3))
    start = None if out is None else out.copy()
    params = dict.fromkeys(statement.params, 0.5)
    right = plan(*inputs, out=out, **params).copy()

    def refuse(*_):
        raise AssertionError("Python looks at the arrays")

    monkeypatch.setattr(Signature, "read", refuse)
    others, other_out = build(plan, (["rows"] * 5, "rows" if given_out else "none", 3))
    by_name = dict(zip(plan.inputs, others, strict=True))
    for call in (
        lambda: plan(*others, out=other_out, **params),
        lambda: plan(**by_name, out=other_out, **params),
    ):
        if given_out:
            other_out[...] = start
        np.testing.assert_array_equal(call(), right)


def test_calls_of_several_layouts_are_known_in_turn(monkeypatch):
    """Outputs that are larger, inputs in another order: each as soon as it came once."""
    plan = nest("o[i,j] = A[i,j] + B[j,i]", {"i": N, "j": M}, machine=MACHINE)
    rng = np.random.default_rng(4)
    A, B = rng.standard_normal((N, M)), rng.standard_normal((M, N))
    room = np.full((N + 1, M), 77.0)
    calls = [
        lambda: plan(A, B),
        lambda: plan(np.asfortranarray(A), B, out=room),
        lambda: plan(A, np.asfortranarray(B), out=room[1:]),
        lambda: plan(A, B, out=room),
    ]

    def check():
        for call in calls:
            room[...] = 77
            found = call()
            np.testing.assert_array_equal(found[:N], A + B.T)
            assert (found[N:] == 77).all()

    def refuse(*_):
        raise AssertionError("Python looks at the arrays")

    check()
    monkeypatch.setattr(Signature, "read", refuse)
    check()
    check()


PARAMETERS = st.one_of(
    st.floats(width=64),
    st.integers(-(2**70), 2**70),
    st.integers(-300, 300),
    st.booleans(),
    st.sampled_from((np.float32(0.1), np.int8(-3), np.uint64(2**63), np.bool_(True), None, "one")),
    st.sampled_from((2.0**128, -1e39, 3.5e38, 1e-46, 2**53 + 1, -(2**63), 2**64 - 1, 2**31)),
)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "int8", "uint32", "int64", "uint64", "bool"]
)
@examples(10, 30)
@given(first=PARAMETERS, second=PARAMETERS)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_numbers_are_read_as_python_reads_them(dtype, first, second):
    """Of all kinds and sizes: the same result, or the same refusal."""
    text = "o[i] = A[i] | a" if dtype == "bool" else "o[i] = A[i] * a"
    key = f"number {dtype}"
    if key not in PLANS:
        PLANS[key] = nest(text, 3, dtype, machine=MACHINE)
    plan, A = PLANS[key], np.array([0, 1, 1]).astype(dtype)
    for number in (first, second, first):
        other = NestRunner(plan.solution)
        right = give(lambda: other.compute([A], {"a": number}, None))  # noqa: B023
        check_same(give(lambda: plan(A, a=number)), right)  # noqa: B023


def test_a_position_outside_is_refused_again_and_again():
    """Compiled code tells Python, which raises; the next call is right."""
    plan = nest("o[i] = T[v[i]]", {"i": 9, "T": (4,)}, {"v": "int64", "T": F8}, machine=MACHINE)
    T, v, wrong = np.arange(4.0), np.arange(9) % 4, np.arange(9)
    for _ in range(3):
        np.testing.assert_array_equal(plan(T, v), T[v])
        with pytest.raises(SizeError, match=r"is at position . of axis 0 of T, which has 4"):
            plan(T, wrong)


@pytest.mark.parametrize("threads", [1, 2])
def test_bound_calls_see_what_arrays_have_now(threads):
    """Results may lie between one another; what is refused is refused in each call."""
    text, sizes = "p[i,j] = A[i,j] + B[j]; m[i,j] = A[i,j] - B[j]", {"i": N, "j": M}
    plan = nest(text, sizes, F8, outputs=("p", "m"), machine=MACHINE, threads=threads)
    both, (A, B) = np.empty((N, M, 2)), (RNG.standard_normal(shape) for shape in ((N, M), M))
    again = plan.bind(A, B, out=(both[::-1, :, 0], both[..., 1]))
    for _ in range(3):
        A[...], both[...] = RNG.standard_normal((N, M)), np.nan
        again()
        assert (both[::-1, :, 0] == A + B).all()
        assert (both[..., 1] == A - B).all()
    with pytest.raises(SizeError):
        plan.bind(A, B[1:], out=(both[..., 0], both[..., 1]))
    places = np.arange(N)
    gather = nest("o[i] = x[v[i]]", {"i": N, "x": (N,)}, {"x": F8, "v": I8}, machine=MACHINE)
    given = {"x": RNG.standard_normal(N), "v": places}
    out = np.empty(N)
    again = gather.bind(*(given[name] for name in gather.inputs), out=out)
    again()
    assert (out == given["x"]).all()
    places[2] = N
    for _ in range(2):
        with pytest.raises(SizeError, match=str(N)):
            again()


def test_several_threads_call_at_once():
    """Each with arrays and parameters of its own; some calls have another layout."""
    plan = nest(
        "t[i,j] = A[j,i] + a; o[i,j] = t[i,j] * B[i,j]", {"i": 60, "j": 50}, machine=MACHINE
    )
    rng, wrong = np.random.default_rng(0), []

    def work(seed):
        A, B = rng.standard_normal((2, 50, 60))
        B = np.asfortranarray(B.T) if seed % 2 else B.T.copy()
        for number in range(200):
            if not np.array_equal(plan(A, B, a=float(number)), (A.T + number) * B):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
