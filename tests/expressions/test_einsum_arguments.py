"""What einsum takes beside arrays of numbers and text, as numpy does, and what it refuses."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    LabelsError,
    PathError,
    SpecError,
)

# Objects


def fractions(*shape):
    """Return an array of fractions, of which sums and products are exact."""
    count = int(np.prod(shape))
    return np.array([Fraction(x - 3, x + 2) for x in range(count)], object).reshape(shape)


@pytest.mark.parametrize("optimize", [False, True, "optimal"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ij,jk,lm->", [(3, 4), (4, 5), (5, 2)]),
        ("i,j", [(3,), (1,)]),
        ("i,i->", [(3,), (3,)]),
        (",", [(), ()]),
        ("ii", [(3, 3)]),
        ("ij->j", [(3, 4)]),
        ("ij->i", [(2, 0)]),
        ("ij->ji", [(3, 4)]),
    ],
)
def test_objects_are_computed_as_numpy_does(text, shapes, optimize):
    """Fractions stay exact, alone or beside floats and whole numbers; `out` may be of objects."""
    operands = [fractions(*shape) for shape in shapes]
    for second in (operands[1:], [np.ones(shape, int) for shape in shapes[1:]]):
        given = [operands[0], *second]
        expected = np.einsum(text, *given)
        for _ in range(2):
            found = tilesolve.einsum(text, *given, optimize=optimize)
            assert type(found) is type(expected)
            assert np.array_equal(found, expected)
        out = np.full(np.shape(expected), None)
        assert tilesolve.einsum(text, *given, out=out, optimize=optimize) is out
        assert np.array_equal(out, expected)
        assert np.array_equal(tilesolve.expression(text, *given)(*given), expected)


def test_objects_that_do_not_commute_meet_in_the_order_written():
    """Two operands always; more of them where optimize is False."""

    class Word(str):
        def __mul__(self, other):
            return Word(f"{self}{other}")

        def __radd__(self, zero):  # where a sum begins
            return self

    a, b, c = (np.array([Word(x + str(at)) for at in range(2)], object) for x in "abc")
    assert list(tilesolve.einsum("i,i->i", a, b)) == ["a0b0", "a1b1"]
    assert list(tilesolve.einsum("i,i,i->i", a, b, c, optimize=False)) == ["a0b0c0", "a1b1c1"]


def test_large_arrays_of_objects_are_copied_too(monkeypatch):
    """As `transpose`, which is for large copies, refuses objects."""
    array = np.arange(600 * 600).reshape(600, 600).astype(object)
    out = np.empty((600, 600), object)
    assert tilesolve.einsum("ij->ji", array, out=out) is out
    assert (out == array.T).all()


def test_an_object_that_fails_leaves_out_as_it_was():
    """The error is the object's own."""

    class Glass:
        def __mul__(self, other):
            raise ZeroDivisionError("broken")

    operand, out = np.array([1, Glass()], object), np.array([7, 8], object)
    with pytest.raises(ZeroDivisionError, match="broken"):
        tilesolve.einsum("i,i->i", operand, operand, out=out)
    assert list(out) == [7, 8]


def test_lists_become_objects_where_they_hold_numbers():
    """Fractions, decimals and integers past 64 bits; what else there is, the error names."""
    assert tilesolve.einsum("i,i", [Fraction(1, 2), 1], [2, 3]) == 4
    assert tilesolve.einsum("i,->i", [2**70], 2).tolist() == [2**71]
    assert tilesolve.einsum(",", Decimal("0.1"), Decimal(3)) == Decimal("0.3")
    with pytest.raises(DtypeError, match=r"operand 1 is list with an element of NoneType"):
        tilesolve.einsum("i,i", [1, 2], [1, None])


# What is no array


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia", "lil"])
@pytest.mark.parametrize("container", ["array", "matrix"])
def test_sparse_arrays_are_refused_before_and_after_a_dense_call(kind, container):
    """By the same words, although their shape and dtype are a kept call's."""
    dense = np.eye(3)
    sparse = getattr(scipy.sparse, f"{kind}_{container}")(dense)
    said = set()
    for text, operands, at in [
        ("ij,jk->ik", [sparse, dense], 0),
        ("ij,jk->ik", [dense, sparse], 1),
        ("ij->ji", [sparse], 0),
        ("ij,jk,kl->il", [dense, sparse, dense], 1),
        ("ij,jk,kl,lm->im", [dense, dense, dense, sparse], 3),
    ]:
        for _ in range(2):
            with pytest.raises(DtypeError, match=f"operand {at} is {kind}_.*, which is no array"):
                tilesolve.einsum(text, *operands)
            tilesolve.einsum(text, *[dense] * len(operands))  # is kept
    with pytest.raises(DtypeError) as caught:
        tilesolve.tensordot(dense, sparse)
    said.add(str(caught.value))
    with pytest.raises(DtypeError) as caught:
        tilesolve.expression("ij,jk->ik", dense, dense)(dense, sparse)
    said.add(str(caught.value))
    assert len(said) == 1


# Arrays of other libraries


class Theirs:
    """An array of another library, which notes what it is asked for."""

    shape, dtype = (3, 3), np.dtype(float)

    def __array_function__(self, function, types, args, kwargs):
        return function, args, kwargs


def test_other_libraries_compute_with_their_arrays():
    """They get numpy's function and the arguments as they were given, and nothing of ours."""
    theirs, dense = Theirs(), np.eye(3)
    tilesolve.einsum("ij,jk", dense, dense)  # is kept
    for arguments in (
        ("ij,jk", theirs, dense),
        ("ij,jk", dense, theirs),
        (theirs, [0, 1]),
        (dense, [0, 1], theirs, [1, 2], [0]),
    ):
        assert tilesolve.einsum(*arguments) == (np.einsum, arguments, {})
    given = {"out": theirs, "dtype": "f4", "order": "C", "casting": "unsafe", "optimize": "greedy"}
    assert tilesolve.einsum("ij", dense, **given) == (np.einsum, ("ij", dense), given)
    assert tilesolve.tensordot(dense, theirs, 1) == (np.tensordot, (dense, theirs, 1), {})
    with pytest.raises(DtypeError, match=r"threads=2 is for numpy arrays; Theirs computes"):
        tilesolve.einsum("ij", theirs, threads=2)
    with pytest.raises(DtypeError, match=r"memory_limit=5 is for numpy arrays"):
        tilesolve.einsum("ij", theirs, memory_limit=5)
    with pytest.raises(DtypeError, match=r"threads=2 is for numpy arrays"):
        tilesolve.tensordot(theirs, dense, threads=2)


def test_ours_may_stand_in_numpys_place(monkeypatch):
    """Other libraries get numpy's function even then."""
    numpys = np.einsum
    monkeypatch.setattr(np, "einsum", tilesolve.einsum)
    assert np.einsum("ij", Theirs())[0] is numpys


# Subscripts


def test_bytes_are_subscripts():
    """As in numpy, in einsum and in expression."""
    a, b = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    for _ in range(2):
        assert np.array_equal(tilesolve.einsum(b"ij,jk->ik", a, b), a @ b)
    assert np.array_equal(tilesolve.expression(b"ij,jk->ik", a, b)(a, b), a @ b)
    with pytest.raises(SpecError, match="ASCII"):
        tilesolve.einsum("αj,jk".encode(), a, b)


def test_nothing_to_compute_is_an_error():
    """As in numpy: ValueError without operands, TypeError for labels that are no list."""
    for arguments in ((), ("",), ("i",)):
        with pytest.raises(SpecError, match="needs an operand"):
            tilesolve.einsum(*arguments)
    with pytest.raises(LabelsError) as caught:
        tilesolve.einsum(0, 0)
    assert isinstance(caught.value, TypeError)


# An out without axes


@pytest.mark.parametrize("optimize", [True, "optimal", "greedy"])
def test_an_out_without_axes_takes_a_number_of_another_dtype(optimize):
    """As numpy does where it optimizes, if the number keeps its value; False asks `casting`."""
    a = np.ones(7)
    for dtype in ("i8", "f4", "u1", "f8", "c16", object):
        out = np.array(0, dtype)
        assert tilesolve.einsum("i,i->", a, a, out=out, optimize=optimize) is out
        assert out == 7
    out = np.array(3)
    for number in (0.5, np.nan, np.inf, 1e30):
        with pytest.raises(DtypeError, match=r"the result .* cannot be cast from float64 to int64"):
            tilesolve.einsum("i,i->", a[:1], [number], out=out, optimize=optimize)
    with pytest.raises(DtypeError, match="complex128"):
        tilesolve.einsum("i,i->", a, a + 0j, out=out, optimize=optimize)
    with pytest.raises(DtypeError, match="the result cannot be cast"):
        tilesolve.einsum("i,i->", a, a, out=out, optimize=False)
    assert out == 3
    assert tilesolve.einsum("i,i->", a, a / 2, out=out, casting="unsafe", optimize=optimize) == 3


# Orders that cannot be followed


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_paths_that_cannot_be_followed(count):
    """Whatever the operands' number and size, the error is a RuntimeError and a ValueError."""
    text = ",".join(["ab", "bc", "cd", "de"][:count])
    for n in (2, 30):
        operands = [np.ones((n, n))] * count
        bad = [[(0, count)], [(0, 0)], [()], [(0, "a")], [0], [(0, 1)] * count, [(0.5,)], [(-1, 0)]]
        bad += [[]] if count > 1 else []
        for path in bad:
            for asked in (path, ["einsum_path", *path], tuple(path)):
                with pytest.raises(PathError) as caught:
                    tilesolve.einsum(text, *operands, optimize=asked)
                assert isinstance(caught.value, RuntimeError)
                assert isinstance(caught.value, ValueError)
        good = [(0, 1)] * (count - 1) or [(0,)]
        expected = np.einsum(text, *operands, optimize=["einsum_path", *good])
        for path in (good, ["einsum_path", *good], [*good, (0,)], [np.array(x) for x in good]):
            found = tilesolve.einsum(text, *operands, optimize=path)
            assert np.array_equal(found, expected)
        assert np.array_equal(tilesolve.einsum(text, *operands, optimize=None), expected)
