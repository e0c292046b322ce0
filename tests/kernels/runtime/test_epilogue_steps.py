"""Steps of epilogues: functions are those of the definitions, in higher precision, everywhere."""

import ctypes
from math import erfc, inf

import numpy as np
import pytest

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.epilogue_terms import list_steps
from tilesolve.kernels.runtime.epilogue_steps import step_address

STEP = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7, *[ctypes.c_double] * 2)
WIDE = np.longdouble
UNITS = 4
DTYPES = ("float32", "float64")


def compile_step(text, dtype):
    """The code of a chain that is one step."""
    (step,) = list_steps(Epilogue.parse(text))
    return STEP(step_address(step.term, dtype))


def apply_step(name, x):
    """What a step makes of numbers."""
    found = x.copy()
    compile_step(name, str(x.dtype))(found.ctypes.data, found.size, 1, 0, 0, 0, 0, 0.0, 0.0)
    return found


def normal(x):
    """The normal distribution, in longer numbers than the doubles of `erfc`."""
    z = -x / np.sqrt(WIDE(2))
    short = z.astype(np.float64)
    found = np.array([erfc(one) for one in short], WIDE) / 2
    near = np.where(np.isfinite(z), short.astype(WIDE) ** 2 - z**2, 0)
    return found * np.where(z > 0, np.exp(near), 1)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def turn(x):
    """Twice what the tangent of `gelu-tanh` is taken of."""
    return 2 * np.sqrt(2 / (4 * np.arctan(WIDE(1)))) * (x + WIDE(0.044715) * x**3)


DEFINITIONS = {
    "sigmoid": logistic,
    "tanh": np.tanh,
    "silu": lambda x: x * logistic(x),
    "gelu": lambda x: x * normal(x),
    "gelu-tanh": lambda x: x * logistic(turn(x)),
}


def numbers(dtype):
    """Numbers of every size and sign, dense where functions bend."""
    largest = float(np.log(np.finfo(dtype).max))
    sizes = np.concatenate([np.geomspace(1e-30, 2 * largest, 20001), [np.finfo(dtype).tiny]])
    dense = np.random.default_rng(1).uniform(-12, 12, 40001)
    return np.concatenate([sizes, -sizes, dense]).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_few_units_are_lost(name, dtype):
    x = numbers(dtype)
    with np.errstate(over="ignore", under="ignore"):
        expected = DEFINITIONS[name](x.astype(WIDE))
        unit = np.spacing(np.abs(expected).astype(dtype)).astype(WIDE)
    lost = np.abs(apply_step(name, x).astype(WIDE) - expected) / unit
    if name == "gelu-tanh":  # the exponent is rounded
        lost /= np.maximum(1, np.abs(turn(x.astype(WIDE))))
    if (name, dtype) == ("gelu", "float32"):  # a polynomial alone: as exact as the number
        assert (np.abs(apply_step(name, x) - expected) <= 2e-7 * np.abs(x)).all()
        return
    if (name, dtype) == ("gelu", "float64"):  # so far as its polynomial is
        lost /= 4
    assert lost.max() <= UNITS, (x[lost.argmax()], lost.max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_ends_zeros_and_what_is_no_number(name, dtype):
    largest = np.finfo(dtype).max
    x = np.array([np.nan, inf, -inf, 0.0, -0.0, largest, -largest, 1e30, -1e30] * 5, dtype)
    high, low = (1.0, -1.0 if name == "tanh" else 0.0)
    middle = 0.5 if name == "sigmoid" else 0.0
    bounded = name in ("sigmoid", "tanh")
    ends = [high, low, high, low] if bounded else [largest, -0.0, 1e30, -0.0]
    least = low if bounded else np.nan  # as NumPy has it: infinity times nothing
    first = [np.nan, high if bounded else inf, least, middle, -middle if middle == 0 else middle]
    found = apply_step(name, x)
    expected = np.array([*first, *ends] * 5, dtype)
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


def test_any_count_and_place():
    """Vectors and what remains of them give the same, and nothing behind a run is touched."""
    values = np.linspace(-3, 3, 70, dtype=np.float32)
    whole = apply_step("gelu", values)
    for begin in range(0, 19, 3):
        for count in (0, 1, 2, 7, 8, 9, 15, 17, 33):
            run = values.copy()
            step = compile_step("gelu", "float32")
            step(run[begin:].ctypes.data, count, 1, 0, 0, 0, 0, 0.0, 0.0)
            np.testing.assert_array_equal(run[begin : begin + count], whole[begin : begin + count])
            run[begin : begin + count] = values[begin : begin + count]
            np.testing.assert_array_equal(run, values)


@pytest.mark.parametrize("distance", [0, 1, 2])
def test_a_block_is_all_of_its_runs_and_nothing_else(distance):
    """Runs lie apart in C and in the operand; a sum and a rectifier are one step."""
    generator = np.random.default_rng(0)
    whole = generator.uniform(-9, 9, (5, 40)).astype(np.float32)
    operand = generator.uniform(-9, 9, (5, 90)).astype(np.float32)
    for name, least, most in (("+ relu", 0, inf), ("+ relu6", 0, 6.0), ("+ clip(-1,2)", -1, 2)):
        step = compile_step(name, "float32")
        for count in (0, 1, 8, 33):
            found, expected = whole.copy(), whole.copy()
            here = operand[:, : max(1, distance * count) : max(1, distance)][:, :count]
            expected[:, 3 : 3 + count] = np.clip(expected[:, 3 : 3 + count] + here, least, most)
            place, apart = operand.ctypes.data, operand.strides[0]
            begin, pitch = found[:, 3:].ctypes.data, found.strides[0]
            step(begin, count, 5, pitch, place, 4 * distance, apart, least, most)
            np.testing.assert_array_equal(found, expected)
