"""How NumPy's functions are called: `out`, orders, borders, places of arguments; constants."""

import copy
import pickle
from collections import namedtuple
from inspect import signature

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import DtypeError, SizeError, TraceError
from tilesolve.pipelines.tracing import trace_function

A = np.random.default_rng(0).standard_normal((6, 9))
KERNELS = (np.ones(3), np.arange(3.0))
STEPS = ([1, 2], [3])
Pair = namedtuple("Pair", "x y")


@tilesolve.pipeline
def double(a):
    """Return a part of an array, twice as large."""
    return a[1:] * 2


WRITES = [
    lambda a, o: np.clip(a, 0, 1, out=o),
    lambda a, o: a.clip(0, 1, out=o),
    lambda a, o: np.mean(a, axis=1, keepdims=True, out=o[:, :1]),
    lambda a, o: np.ptp(a, axis=0, out=o[0]),
    lambda a, o: np.max(a, 1, o[:, 2]),
    lambda a, o: a.sum(0, out=o[1]),
    lambda a, o: np.cumsum(a, axis=1, out=o),
    lambda a, o: np.dot(a[:, :6], a, out=o),
    lambda a, o: np.einsum("ij,kj->ik", a, a, out=o[:, :6]),
    lambda a, o: np.concatenate([a[:3], a[:3]], out=o),
    lambda a, o: np.take(a, [0, 1], 1, out=o[:, :2]),
    lambda a, o: np.round(a, out=o),
    lambda a, o: o.fill(3),
    lambda a, o: o.__setitem__(a > 0, 2),
]

CALLS = [
    lambda a: a.reshape(9, 6, order="F") + 0,
    lambda a: np.reshape(a, (3, -1), "F") + 0,
    lambda a: (a.ravel("F"), a.flatten(order="F"), np.ravel(a, order="C"), a.copy(order="C")),
    lambda a: (np.min(a, 0, None, True), np.any(a > 0, 1, None, True), a.sum(1, keepdims=1)),
    lambda a: (np.mean(a, 1, None, None, True), np.var(a, 0, "float64", None, 1), a.std(1)),
    lambda a: (np.std(a, axis=0, dtype="float32"), np.mean(9 * a, axis=1, dtype="int64")),
    lambda a: (np.add.reduce(a), np.maximum.reduce(a, axis=None), np.maximum.reduce(a, 1)),
    lambda a: np.array([a[0], a[1]], dtype="float32"),
    lambda a: np.array([[a[0, 0], 1.0], [2.0, a[1, 0]]]) @ a[:2],
    lambda a: (np.zeros_like(a, order="C") + a, np.full_like(a, 2, shape=(9,))),
    lambda a: np.full(shape=(9,), fill_value=2.0) + a,
    lambda a: np.expand_dims(a, (0, 2)) * 2,
    lambda a: (np.roll(a, (1, 2)), np.roll(a, (1, 2), axis=1)),
    lambda a: (np.dstack([a[0], a[0]]), np.vstack([a, [1.0] * 9]), np.hstack([[1.0], a[0]])),
    lambda a: np.concatenate([a, a], dtype="float32"),
    lambda a: np.outer(a, a[0]),
    lambda a: (np.einsum("...j,...j->...", a, a), np.einsum("i...->...", a[None] * a)),
    lambda a: np.einsum("...ij,...kj", np.stack([a, a * 2]), a),
    lambda a: (np.einsum("ij,ij->i", a[:, :1], a), np.einsum("...i->i", a[0])),
    lambda a: np.pad(a, ((1, 2), (3, 0)), constant_values=((1, 2), (3, 4))),
    lambda a: (np.diff(a, prepend=0), np.diff(a, axis=0, prepend=a[:1], append=a[-1:])),
    lambda a: np.take(a, [-3, 1000], axis=1, mode="wrap"),
    lambda a: np.asfortranarray(a) + np.asanyarray(a),
    lambda a: (np.pad(a, {0: 1, -1: (2, 3)}), np.repeat(a, 0, axis=1), a[[]]),
    lambda a: (np.tril(a[0]), np.triu(a[0], 1), *np.split(a, [4, 1])),
    lambda a: (np.argmax(a[None], axis=0), a[:, None].argmin(1), np.argmax(a[0, 0])),
    lambda a: np.cumsum(a[0, 0], axis=-1) * (2 if isinstance(a, np.ndarray) else 1),
    lambda a: a[(a[0] * 0).astype(int)] + a[(a[0, 0] * 0).astype(int)],
    lambda a: [a + 1, a * 2],
    lambda a: sum(k[i] * a[i : 4 + i] for k in KERNELS for i in range(3)) * STEPS[0][1],
]


def agree(found, expected):
    """Results are of the same kind, dtypes and shapes, and have the same values."""
    assert type(found) is type(expected)
    many = isinstance(expected, tuple | list)
    for one, other in zip(*((found, expected) if many else ([found], [expected])), strict=True):
        assert (one.dtype, np.shape(one)) == (other.dtype, np.shape(other))
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("write", WRITES)
def test_results_that_are_written_to_an_array(write):
    """`out` has what NumPy writes to it, and so has what the function computes of it."""

    def function(a):
        o = np.zeros_like(a)
        write(a, o)
        return o * 2

    agree(tilesolve.pipeline(function)(A), function(A))


@pytest.mark.parametrize("function", CALLS)
def test_arguments_by_place_and_name(function):
    """Arguments stand where NumPy has them, and are not left out."""
    agree(tilesolve.pipeline(function)(A), function(A))


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy])
def test_copies_are_arrays_of_their_own(take):
    """What is written to them is not written to what they were copied from."""

    def function(a):
        b = take(a)
        b[1:] = 0
        return a + b

    agree(tilesolve.pipeline(function)(A), function(A))


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda a: np.sum(a, 1, out=KERNELS[0]), TraceError, "none of its own"),
        (lambda a: np.sum(a, axis=(0, 0)), SizeError, "duplicate value in 'axis'"),
        (lambda a: np.swapaxes(a, 0, 5), SizeError, "axis 5 is out of bounds"),
        (lambda a: a[[0, 1], [0, 1, 2]], SizeError, "do not fit together"),
        (lambda a: np.einsum("ij->k", a), SizeError, "output subscript 'k' which never"),
        (lambda a: np.diff(a, n=-1), SizeError, "order must be non-negative but got -1"),
        (lambda a: np.tile(a, -1), SizeError, "negative dimensions"),
        (
            lambda a: np.lib.stride_tricks.sliding_window_view(a, 10, 1),
            SizeError,
            "window shape cannot be larger",
        ),
        (lambda a: (a > 0) - (a > 1), DtypeError, "boolean subtract"),
    ],
)
def test_what_numpy_refuses_or_pipelines_lack(function, error, says):
    """The error says what is wrong, and names the line."""
    with pytest.raises(error, match=f"{says}.*test_calls_of_numpy.py:"):
        tilesolve.pipeline(function)(A)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
def test_arrays_without_elements(shape):
    """Borders of no elements, and what is no number, are NumPy's."""

    def function(a):
        return np.diff(a, axis=0, append=np.concatenate([a, a])), a.std(0, ddof=1), a.sum(1)

    agree(tilesolve.pipeline(function)(np.ones(shape)), function(np.ones(shape)))


def test_sums_in_a_dtype():
    """Sums in a narrow dtype leave out what does not fit, as NumPy's do."""
    values = np.arange(200, dtype="uint8").reshape(20, 10)
    for dtype in ("uint8", "int16", "bool", "float32"):

        def function(a, dtype=dtype):
            return a.sum(1, dtype=dtype), np.cumsum(a, 0, dtype), np.add.accumulate(a, 1, dtype)

        agree(tilesolve.pipeline(function)(values), function(values))


def test_functions_have_numpys_dtypes():
    """Where NumPy computes in another dtype than the operands', the result has it."""
    for dtype in ("bool", "int8", "int32", "float32"):
        values = np.array([1, 0, 1]).astype(dtype)
        agree(tilesolve.pipeline(lambda a: np.square(a))(values), np.square(values))
        if dtype in ("int32", "float32"):  # others are halves
            least = np.full(2, np.iinfo("int32").min).astype(dtype)
            agree(tilesolve.pipeline(lambda a: np.fabs(a))(least), np.fabs(least))


def test_constants_are_told_apart():
    """Zeros have signs; what is no number is traced once."""
    divide = tilesolve.pipeline(lambda a, c: a / c)
    for zero in (0.0, -0.0, np.float32(-0.0), 0.0):
        with np.errstate(divide="ignore"):
            wanted = np.ones(3) / zero
        agree(divide(np.ones(3), zero), wanted)
    before = len(divide._known)
    for _ in range(3):
        assert np.isnan(divide(np.ones(3), float("nan"))).all()
    assert len(divide._known) == before + 1


def test_other_arguments():
    """Tuples with names keep these; a slice is a constant."""
    total = tilesolve.pipeline(lambda p: p.x + p.y)
    agree(total(Pair(A, A + 1)), A + A + 1)
    part = tilesolve.pipeline(lambda a, where: a[where] + 1)
    agree(part(A, slice(1, 3)), A[1:3] + 1)
    agree(part(A, slice(2, 6)), A[2:6] + 1)


def test_pickles_and_copies():
    """A decorated function is pickled by its name, another one with what it is made of."""
    assert pickle.loads(pickle.dumps(double)) is double
    assert copy.copy(double) is double
    alone = tilesolve.pipeline(agree, threads=1)
    again = pickle.loads(pickle.dumps(alone))
    assert again.function is agree


BIG = np.broadcast_to(np.zeros(()), (20_000, 30_000))


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda a: np.sum(a, axis="x"), TraceError, "'str' object"),
        (lambda a: a.sum(axis=2), SizeError, "axis 2 is out of bounds"),
        (lambda a: np.take(a, [20_000], 0), SizeError, "index 20000 is out of bounds"),
        (lambda a: a.reshape(7, -1), SizeError, "cannot reshape"),
        (lambda a: np.split(a, 7), SizeError, "equal division"),
        (lambda a: np.matmul(a, a), SizeError, "mismatch"),
        (lambda a: np.mean(a, 0, out=a), SizeError, "dimensions|non-broadcastable"),
        (lambda a: a.__setitem__(slice(9), a[:8]), SizeError, "could not broadcast"),
    ],
)
def test_calls_on_large_arrays_are_refused(function, error, says):
    """NumPy is asked about them, too."""
    with pytest.raises(error, match=f"{says}.*test_calls_of_numpy.py:"):
        trace_function(function, signature(function).bind(BIG))


LARGE = [
    (lambda a: (a.sum(axis=(0, -1)), a.argmax(1), a.mean(0)), [(), (20_000,), (30_000,)]),
    (lambda a: (np.take(a, [19_999, -20_000], 0), a[[-30_000 // 2]]), [(2, 30_000), (1, 30_000)]),
    (
        lambda a: (a.reshape(30_000, -1), *np.split(a, 2, 1)),
        [(30_000, 20_000), *[(20_000, 15_000)] * 2],
    ),
    (lambda a: (a @ a.T, np.einsum("ij,kj->ki", a, a)), [(20_000, 20_000)] * 2),
    (lambda a: (np.dot(a[0], a[1]), np.outer(a[0], a[:, 1])), [(), (30_000, 20_000)]),
    (lambda a: np.concatenate([a, a[:, :70]], 1), [(20_000, 30_070)]),
    (lambda a: (np.diff(a, n=3), np.roll(a, 5_000, 0)), [(20_000, 29_997), (20_000, 30_000)]),
    (lambda a: np.pad(a, ((0, 9), (5, 6)), "wrap"), [(20_009, 30_011)]),
]


@pytest.mark.parametrize(("function", "shapes"), LARGE)
def test_calls_on_large_arrays(function, shapes):
    """They have shapes of their own: fewer elements that NumPy is asked about do not show."""
    found = trace_function(function, signature(function).bind(BIG))
    assert [one.shape for one in found.results] == shapes
