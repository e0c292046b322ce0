"""Functions of real numbers: those of the definition, in higher precision, everywhere."""

from math import inf, nan

import numpy as np
import pytest

from tests.kernels.ir.functions import call, lost_units
from tilesolve.kernels.ir import angles, exponentials, logarithms, powers

UNITS = 3
"""Units in the last place that are lost at most."""

FUNCTIONS = {
    "exp2": exponentials.exp2,
    "log": logarithms.logarithm,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "log1p": logarithms.log1p,
    "sin": angles.sine,
    "cos": angles.cosine,
    "tan": angles.tangent,
    "arctan2": angles.arctan2,
    "hypot": angles.hypotenuse,
    "power": powers.power,
}
BINARY = ("arctan2", "hypot", "power")
WIDTHS = (0, 128, 256, 512)
SPECIAL = (0.0, 1.0, 2.0, 0.5, 3.0, 1e-3, 700.0, 1e30, inf)


def numbers(dtype, count, rng):
    """Numbers of all sizes and signs, subnormal ones too."""
    ends = np.finfo(dtype)
    low, high = float(np.log2(ends.smallest_subnormal)), float(np.log2(ends.max))
    sizes = np.exp2(rng.uniform(low, high - 1e-3, count))
    near = rng.uniform(-8, 8, count)
    ones = 1 + rng.normal(size=count) * np.exp2(rng.uniform(-40, -1, count))
    mixed = np.concatenate([sizes, near, ones, np.abs(near)])
    return (mixed * rng.choice([-1, 1], mixed.size)).astype(dtype)


def special(dtype):
    """Numbers at which functions have ends, of both signs, and what is no number."""
    ends = np.finfo(dtype)
    found = np.array([*SPECIAL, ends.max, ends.tiny, ends.smallest_subnormal], dtype)
    return np.concatenate([found, -found, np.array([nan], dtype)])


def arguments(name, dtype, rng):
    """What a function is called with: numbers of all sizes, and all pairs of special ones."""
    x, ends = numbers(dtype, 5000, rng), special(dtype)
    if name not in BINARY:
        return [np.concatenate([x, ends])]
    y = rng.permutation(numbers(dtype, 5000, rng))
    if name == "power":  # so that most results are finite
        with np.errstate(all="ignore"):
            y = (rng.uniform(-1, 1, x.size) * 745 / np.abs(np.log(np.abs(x)))).astype(dtype)
        y[::3] = np.rint(y[::3])
    others = np.meshgrid(ends, ends)
    return [np.concatenate(pair) for pair in zip((x, y), map(np.ravel, others), strict=True)]


@pytest.mark.grid
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_units_are_lost(name, dtype, bits):
    """Everywhere; infinities, zeros with signs and what is no number are NumPy's."""
    given = arguments(name, dtype, np.random.default_rng(bits))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*(one.astype(np.longdouble) for one in given))
        right = getattr(np, name)(*given)
    found = call(FUNCTIONS[name], *given, bits=bits)
    lost = lost_units(found, expected)
    at = int(lost.argmax())
    assert lost[at] <= UNITS, ([one[at] for one in given], found[at], expected[at])
    ends = ~np.isfinite(right) | (right == 0)
    ends &= ~(np.isfinite(expected) & (expected != 0))
    np.testing.assert_array_equal(found[ends], right[ends])
    np.testing.assert_array_equal(
        np.signbit(found[ends & ~np.isnan(right)]), np.signbit(right[ends & ~np.isnan(right)])
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_that_are_almost_whole_quarters(name, dtype):
    """The rest that multiples of a quarter turn leave is right, however large they are."""
    quarter = np.longdouble(2) * np.arctan(np.longdouble(1))
    turns = np.concatenate([np.arange(1, 3000), 2 ** np.arange(10, 100, dtype=np.longdouble)])
    x = np.concatenate([turns * quarter, -turns * quarter]).astype(dtype)
    known = [6381956970095103.0 * 2.0**797, 5.319372648326541e255] if dtype == "float64" else []
    x = np.concatenate([x, np.array(known, dtype)])
    expected = getattr(np, name)(x.astype(np.longdouble))
    assert lost_units(call(FUNCTIONS[name], x), expected).max() <= UNITS


def test_logarithms_of_powers_are_whole():
    tens, twos = 10.0 ** np.arange(23), 2.0 ** np.arange(-1074, 1024)
    np.testing.assert_array_equal(call(logarithms.log10, tens), np.arange(23))
    np.testing.assert_array_equal(call(logarithms.log2, twos), np.arange(-1074, 1024))
    np.testing.assert_array_equal(call(exponentials.exp2, np.arange(-1074.0, 1024)), twos)
