"""`tilesolve.empty`: like numpy's, but for where arrays begin."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

import tilesolve
from tilesolve.contractions.errors import DtypeError, MemoryLimitError, SizeError
from tilesolve.packing.sizes import HUGE_PAGE_BYTES, LINE_BYTES

DTYPES = ["float64", "float32", "float16", "complex64", "int8", "uint16", "bool", ">f4"]


@given(
    drawn.array_shapes(min_dims=0, min_side=0, max_side=7),
    st.sampled_from(DTYPES),
    st.sampled_from("CF"),
)
def test_it_is_numpys_at_a_line(shape, dtype, order):
    """Shape, dtype and strides are the same; it can be written, and begins with a line."""
    found, right = tilesolve.empty(shape, dtype, order), np.empty(shape, dtype, order)
    assert (found.shape, found.dtype, found.flags.writeable) == (shape, right.dtype, True)
    assert found.flags[f"{order}_CONTIGUOUS"]
    assert found.strides == right.strides or not found.size
    assert not found.size or found.ctypes.data % LINE_BYTES == 0
    found[...] = 1
    assert (found == 1).all()


@pytest.mark.parametrize("extra", [-1, 0, 1, HUGE_PAGE_BYTES + 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_ones_are_their_own(extra, order):
    """Two that live at once share nothing, though memory of one that is gone is used again."""
    shape = (2, (HUGE_PAGE_BYTES + extra) // 2 + 1)
    for value in range(3):
        one, other = (tilesolve.empty(shape, np.uint8, order) for _ in range(2))
        one[...], other[...] = value, value + 1
        assert not np.shares_memory(one, other)
        assert (one == value).all()
        assert one.ctypes.data % LINE_BYTES == other.ctypes.data % LINE_BYTES == 0
        del one, other
        gc.collect()


def test_a_number_is_a_shape():
    assert tilesolve.empty(3).shape == tilesolve.empty(np.int64(3)).shape == (3,)
    assert tilesolve.empty([2, 3]).dtype == np.float64


def test_a_plan_computes_with_them():
    """As operands and as result, in both orders."""
    first, second = tilesolve.empty((30, 40), order="F"), tilesolve.empty((40, 20))
    first[...], second[...] = np.arange(1200).reshape(30, 40), np.arange(800).reshape(40, 20)
    out = tilesolve.empty((30, 20))
    tilesolve.plan("ij,jk->ik", (first, second))(first, second, out)
    assert np.allclose(out, first @ second)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (((2, -1),), SizeError),
        ((2.5,), SizeError),
        (("ab",), SizeError),
        (((1,) * 99,), SizeError),
        (((2, 3), "no such"), DtypeError),
        (((2, 3), object), DtypeError),
        (((2, 3), [("x", "f8"), ("y", "O")]), DtypeError),
        (((2, 3), "f8", "K"), SizeError),
        (((2**40, 2**40),), MemoryLimitError),
        ((2**60,), MemoryLimitError),
    ],
)
def test_what_is_no_array_is_refused(arguments, error):
    with pytest.raises(error):
        tilesolve.empty(*arguments)
