"""What cannot be traced: the catalogue of the documentation, each with its error and its line."""

import math
import re

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import DtypeError, SizeError, TraceError

table = np.ones(5)


def branch(a):
    """Take a branch on a value."""
    if a[0] > 0:
        return a
    return -a


def nothing(a):
    """Compute nothing."""
    a + 1


def cast(a):
    """Write a real number to an integer."""
    a.astype("int32").__iadd__(0.5)


def scatter(a):
    """Write to positions from an array."""
    a[np.array([0, 2])] = 1


def write_outside(a):
    """Write to an array from outside."""
    table[0] = a[0]


def within(a):
    """Call another function that cannot be traced."""
    return branch(a + 1)


def write_to_part(a):
    """Write to what NumPy has a view for."""
    part = (a + 1j).real
    part += 1


def read_old_view(a):
    """Read a view of what was written since."""
    b = np.stack([a, a, a])
    view = b[1:].reshape(-1)
    b[0] = 0
    return view


REFUSED = [
    (branch, TraceError, "branches on a value"),
    (within, TraceError, "branches on a value"),
    (lambda a: a * float(a[0]), TraceError, "a number of Python's"),
    (lambda a: a * int(a[0]), TraceError, "a number of Python's"),
    (lambda a: list(range(a[0])), TraceError, "a number of Python's"),
    (lambda a: math.sin(a[0]), TraceError, "a number of Python's"),
    (lambda a: round(a[0], 1), TraceError, "a number of Python's"),
    (lambda a: a * complex(a[0]), TraceError, "a number of Python's"),
    (lambda a: a[: a[0]], TraceError, "a number of Python's"),
    (lambda a: a[a > 0], TraceError, "depends on truth values"),
    (lambda a: np.nonzero(a), TraceError, "numpy.nonzero"),
    (lambda a: np.where(a), TraceError, "depends on values"),
    (lambda a: np.sort(a), TraceError, "numpy.sort"),
    (lambda a: np.subtract.accumulate(a), TraceError, "subtract as it is called"),
    (lambda a: np.linalg.inv(a), TraceError, "numpy.linalg.inv"),
    (lambda a: a.tolist(), TraceError, "'tolist'"),
    (lambda a: np.var(a, mean=0), TraceError, "var as it is called"),
    (lambda a: np.array(a, ndmin=3), TraceError, "array as it is called"),
    (lambda a: a.ravel("K"), TraceError, "order 'C' or 'F'"),
    (lambda a: np.arcsinh(a), TraceError, "'arcsinh'"),
    (lambda a: np.exp(a, where=a > 0), TraceError, "exp as it is called"),
    (lambda a: np.add.at(a, 0, 1), TraceError, "add as it is called"),
    (lambda a: np.modf(a), TraceError, "modf as it is called"),
    (lambda a: a.sum(where=a > 0), TraceError, "where of reductions"),
    (scatter, TraceError, "positions that are computed"),
    (write_outside, TraceError, "a number of Python's"),
    (lambda a: np.add(a, 1, out=table), TraceError, "none of its own"),
    (lambda a: table.__setitem__(slice(None), a), TraceError, "writes them to one"),
    (lambda a: np.stack([a, a]).reshape(-1).__setitem__(0, 1), TraceError, "put together or split"),
    (lambda a: np.pad(a, 1, "linear_ramp"), TraceError, "borders are one of"),
    (lambda a: np.repeat(a, [1, 2, 1, 1, 1]), TraceError, "repeat by a number"),
    (lambda a: np.round(a, 2), TraceError, "rounds to decimals"),
    (lambda a: a[0.5], TraceError, "a subscript is"),
    (lambda a: len(a[0]), TraceError, "length of a number"),
    (lambda a: np.einsum(a, [0], [0]), TraceError, "einsum of text"),
    (lambda a: np.einsum("...i->i", a[None]), SizeError, "dots of '...i->i'"),
    (lambda a: np.einsum("..i", a[None]), SizeError, "dots of '..i'|no einsum"),
    (cast, TraceError, "float64 is written to an array of int32"),
    (lambda a: 3, TraceError, "returns 3"),
    (nothing, TraceError, "returns no array"),
    (lambda a: a[9], SizeError, "position 9 of axis 0"),
    (lambda a: a[0, 0], SizeError, "2 subscripts"),
    (lambda a: a + np.ones(3), SizeError, "do not fit together"),
    (lambda a: a.reshape(7), SizeError, "no shape"),
    (lambda a: a.sum(axis=4), SizeError, "no axis 4"),
    (lambda a: a[:0].max(), SizeError, "no elements"),
    (lambda a: a.__setitem__(slice(2), np.ones(3)), SizeError, "do not fit together"),
    (lambda a: np.concatenate([a, a[None]]), SizeError, "put together"),
    (lambda a: np.broadcast_to(a, (5, 3)), SizeError, "do not fit|not broadcast"),
    (lambda a: np.einsum("ij->j", a), SizeError, "no einsum"),
    (lambda a: np.einsum("i,i->i", a, a[1:]), SizeError, "is 5 and 4"),
    (lambda a: setattr(a, "shape", (1, 5)), TraceError, "sets the attribute 'shape'"),
    (lambda a: setattr(a, "real", 0), TraceError, "sets the attribute 'real'"),
    (lambda a: np.rot90(a[None], 1.5), TraceError, "rot90 as it is called"),
    (lambda a: np.sum(a, axis="x"), TraceError, "'str' object"),
    (lambda a: np.add.reduce(a, axis="x"), TraceError, "'str' object"),
    (lambda a: np.moveaxis(a, [0], []), SizeError, "same number of elements"),
    (lambda a: np.transpose(a[None], (0,)), SizeError, "axes don't match"),
    (lambda a: np.pad(a, -1), SizeError, "none below 0, not -1"),
    (lambda a: np.pad(a, 1.5, "edge"), TraceError, "must be of integral type"),
    (lambda a: np.pad(a, ((1, 2, 3),)), SizeError, "not be broadcast"),
    (lambda a: np.repeat(a, -1), SizeError, "repeated -1 times"),
    (lambda a: a @ 2, SizeError, "no number as an operand"),
    (lambda a: a[..., ...], SizeError, "dots once"),
    (lambda a: a[::0], SizeError, "step cannot be zero"),
    (lambda a: a[slice("x")], TraceError, "'str' object"),
    (lambda a: (a > 0) > 2**63, DtypeError, "does not fit"),
    (lambda a: np.sum(a, out=a[0]), TraceError, "number of an array"),
    (write_to_part, TraceError, "view that is read alone"),
    (read_old_view, TraceError, "written to since"),
    (lambda a: np.argmax(a[None], axis=(0, 1)), TraceError, "as an integer"),
    (lambda a: a.reshape(5.0), TraceError, "as an integer"),
    (lambda a: np.sum(a[None], True), TraceError, "an integer is required"),
    (lambda a: a.sum(keepdims=(1,)), TraceError, "as an integer"),
    (lambda a: a.copy("x"), SizeError, "order must be"),
    (lambda a: np.take(a, [0, 5]), SizeError, "out of bounds"),
    (lambda a: a[[0, 5]], SizeError, "out of bounds"),
    (lambda a: a.__setitem__(a > 1, 1j), TraceError, "complex"),
    (lambda a: np.inner(a, a[:1]), SizeError, "summed over together"),
    (lambda a: a[None] @ np.ones((1, 3)), SizeError, "are multiplied"),
    (lambda a: np.zeros(3, a) + a[:3], TraceError, "Cannot construct a dtype|Cannot interpret"),
    (lambda a: np.zeros(-1) + a, SizeError, "no shape|negative"),
    (lambda a: np.split(a, a), TraceError, "positions that are computed"),
    (lambda a: np.maximum.reduce(a[None], out=a[None]), SizeError, "dimensions"),
    (lambda a: (a + 1j).astype("uint8"), DtypeError, "complex numbers"),
    (lambda a: np.subtract.reduce(a), TraceError, "does not run over letters"),
    (lambda a: a.astype(object), DtypeError, "not in object"),
    (lambda a: a.astype("uint8") + 300, (DtypeError, SizeError), "300"),
]


@pytest.mark.parametrize(("function", "error", "text"), REFUSED)
def test_refused(function, error, text):
    """The message says what is wrong, and in which line of which file."""
    with pytest.raises(error, match=text) as found:
        tilesolve.pipeline(function)(np.ones(5))
    assert re.search(r", test_refused\.py:\d+: \S", str(found.value)), found.value


def test_the_innermost_line_is_named():
    """Of functions that call others, the line where it is."""
    with pytest.raises(TraceError, match=r"in within, test_refused.py:\d+: if a\[0\] > 0:"):
        tilesolve.pipeline(within)(np.ones(5))


def test_errors_of_the_function_itself_stay():
    """What the user's function raises is what a call raises."""

    def picky(a):
        if a.shape[0] < 9:
            raise KeyError("too small")
        return a.nothing

    with pytest.raises(KeyError, match="too small"):
        tilesolve.pipeline(picky)(np.ones(5))
    with pytest.raises(AttributeError, match="nothing"):
        tilesolve.pipeline(picky)(np.ones(9))


@pytest.mark.parametrize("dtype", [object, "clongdouble", "float16", "datetime64[s]", ">f8"])
def test_dtypes_of_arguments(dtype):
    """The message names the argument."""
    with pytest.raises(DtypeError, match="the argument a"):
        tilesolve.pipeline(lambda a: a + a)(np.zeros(3, dtype))


def test_arguments_with_operators_of_their_own():
    """Masked arrays and matrices compute otherwise than arrays."""
    with pytest.raises(TraceError, match="the argument a is a MaskedArray"):
        tilesolve.pipeline(lambda a: a + a)(np.ma.masked_array([1.0, 2.0], [True, False]))


def caught_branch(a):
    """Catch what a branch raises."""
    try:
        return a if a[0] > 0 else -a
    except TypeError:
        return a * 2


def caught_call(a):
    """Catch that there is no such function."""
    try:
        return np.sort(a)
    except Exception:
        return a


@pytest.mark.parametrize("function", [caught_branch, caught_call])
def test_what_a_function_catches_is_told(function):
    """A function that goes on computes something else than NumPy does."""
    with pytest.raises(TraceError, match=r"test_refused.py:\d+: return (a if|np.sort)"):
        tilesolve.pipeline(function)(np.ones(5))


def test_arguments_without_a_hash():
    """A constant that may change is none."""
    with pytest.raises(TraceError, match="neither an array nor a constant"):
        tilesolve.pipeline(lambda a, b: a)(np.ones(3), {1, 2})
