"""Powers of e: those of the definition, in higher precision, everywhere."""

from math import inf

import numpy as np
import pytest

from tests.kernels.ir.functions import call
from tilesolve.kernels.ir.exponentials import exp

UNITS = 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_units_are_lost(dtype):
    """From what becomes zero to what becomes infinite, subnormal results among them."""
    ends = np.finfo(dtype)
    least, most = float(np.log(ends.smallest_subnormal)), float(np.log(ends.max))
    x = np.concatenate([np.linspace(least - 9, most, 60_000), np.linspace(-2, 2, 20_000)])
    x = np.minimum(x.astype(dtype), np.nextafter(np.array(most, dtype), 0, dtype=dtype))
    with np.errstate(under="ignore"):
        expected = np.exp(x.astype(np.longdouble))
        unit = np.spacing(expected.astype(dtype)).astype(np.longdouble)
    lost = np.abs(call(exp, x).astype(np.longdouble) - expected) / unit
    assert lost.max() <= UNITS, (x[lost.argmax()], lost.max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_and_what_is_no_number(dtype):
    largest = np.finfo(dtype).max
    x = np.array([np.nan, inf, -inf, largest, -largest, 0.0, -0.0, 1e4], dtype)
    np.testing.assert_array_equal(call(exp, x), [np.nan, inf, 0, inf, 0, 1, 1, inf])
