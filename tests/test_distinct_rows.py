"""Rows that are alike, against NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tilesolve.packing.distinct_rows import number_rows


@given(arrays(np.int64, array_shapes(min_dims=2, max_dims=2), elements=st.integers(-1, 1)))
def test_rows_are_numbered_as_numpy_does(rows):
    _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    found, numbers = number_rows(rows)
    np.testing.assert_array_equal(found, first)
    np.testing.assert_array_equal(numbers, same.reshape(-1))
    np.testing.assert_array_equal(rows[found][numbers], rows)
