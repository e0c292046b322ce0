"""Translated functions do what Python does with the same text, on 64-bit integers."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from tilesolve.kernels.codegen.python_source import Source
from tilesolve.kernels.codegen.scalars import INT
from tilesolve.kernels.codegen.translation import UntranslatableError, translate
from tilesolve.kernels.runtime.compiled import (
    PAIR,
    POINTER,
    REAL,
    as_pointer,
    compiled,
    inlined,
    on_stack,
)
from tilesolve.kernels.runtime.interior_steps import as_reals, exponential

TABLE = 7, -3, 2**40, 0
STEP = 3


@compiled(INT, INT, returns=INT)
def divide(first, second):
    return first // second


@compiled(INT, INT, returns=INT)
def take_rest(first, second):
    return first % second


@compiled(INT, returns=INT)
def divide_by_constants(x):
    return x // 8 + 10 * (x % 8) + 1000 * (x // 7) - x % 7 + (x // -4) - (x % -4)


@compiled(INT, INT, returns=INT)
def mix(x, y):
    low, high = min(x, y, 100), max(x, -y)
    low, high = high, low
    flag = x < y <= 50 and not x & 1
    found = (x & 255) | (y << 2) if flag else (x >> 3) - -y
    found += low * (y == 4) + (x or y) - (y and x)
    return found + (high if y in (1, 2, 5) else TABLE[x & 3])


@inlined
def find_first(p, count, wanted):
    for at in range(count):
        if p[at] == wanted:
            return at
    return -1


@compiled(INT, INT, returns=PAIR, inner=True)
def ordered(x, y):
    if x < y:
        return x, y
    return y, x


@compiled(INT, returns=INT)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@compiled(INT, INT, INT, returns=INT)
def walk(first, last, step):
    total = last_seen = 0
    for at in range(first, last, step):
        if at % 5 == 3:
            continue
        if total > 1000:
            break
        total += at * at
        last_seen = at
    for at in range(10, 0, -STEP):
        total = 2 * total + at
    while total % 3:
        total += 1
        if total > 1_000_000_000:
            return -total
    return total + last_seen


@compiled(POINTER, INT, INT, returns=INT)
def search(p, count, wanted):
    room = as_pointer(on_stack(4))
    small, large = ordered(count, wanted)
    room[0], room[3] = small, large
    room[3] -= 1
    at = find_first(p, count, wanted)
    if at >= 0:
        p[at] *= 2
    return at + 100 * (room[3] - room[0])


@compiled(REAL, returns=INT)
def is_other(x):
    return x != 1


@compiled(INT, REAL)
def combine(address, x):
    p = as_reals(address)
    p[2] = -(p[0] - 2) / x + 3 * p[1]
    p[1] += x if p[0] < 1 else p[2] * 0.5
    p[0] = exponential(p[0])


FUNCTIONS = {
    divide: (2,),
    take_rest: (2,),
    divide_by_constants: (1,),
    mix: (2,),
}
integers = st.integers(-(2**31), 2**31) | st.integers(-8, 8)


@given(st.data())
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.source.name)
def test_arithmetic_is_pythons(function, data):
    given = [data.draw(integers) for _ in function.source.parameters]
    if function in (divide, take_rest) and not given[1]:
        assert function(*given) == 0
    else:
        assert function(*given) == function.source.python(*given)


@given(st.integers(-30, 30), st.integers(-30, 30), st.integers(-7, 7).filter(bool))
def test_loops_are_pythons(first, last, step):
    assert walk(first, last, step) == walk.source.python(first, last, step)


@given(st.floats(-9, 9), st.floats(-1e9, 1e9), st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3))
def test_arithmetic_of_doubles_is_pythons(first, second, x):
    numbers = np.array([first, second, 0.0])
    assert combine(numbers.ctypes.data, x) is None
    quotient = -(first - 2) / x + 3 * second
    added = second + (x if first < 1 else quotient * 0.5)
    assert numbers.tolist() == [pytest.approx(exp(first), rel=1e-15), added, quotient]


def test_functions_call_themselves_and_each_other():
    assert [fibonacci(n) for n in range(12)] == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    numbers = np.array([5, 8, 2, 8])
    assert search(numbers.ctypes.data, 4, 8) == 1 + 100 * (8 - 1 - 4)
    assert search(numbers.ctypes.data, 4, 3) == -1 + 100 * (4 - 1 - 3)
    assert numbers.tolist() == [5, 16, 2, 8]


@pytest.mark.parametrize("x", [0.0, 1.0, -2.5, float("nan"), 2.0**60])
def test_doubles_are_compared_as_python_compares_them(x):
    assert is_other(x) == (x != 1)


@compiled(POINTER)
def count_up(p):
    p[0] += 1


def test_what_returns_nothing_returns_none():
    number = np.zeros(1, np.int64)
    assert [count_up(number.ctypes.data) for _ in range(3)] == [None] * 3
    assert number[0] == 3


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3), ("a", 1), (1, None), (2**70, 1), (1.5, 1)])
def test_what_is_no_integer_is_an_error(given):
    with pytest.raises((TypeError, OverflowError)):
        divide(*given)


def test_subclasses_of_integers_are_integers():
    assert divide(np.int64(7), True) == 7


def use_list(x):
    return [x]


def use_power(x):
    return x**2


def loop_over_list(x):
    for one in TABLE:
        x += one
    return x


def call_something(x):
    return sorted(x)


def use_unknown(x):
    return unknown + x  # noqa: F821


def use_text(x):
    y = "text"
    return x + y


def change_type(x, y):
    z = (x, y)
    z = x
    return z + y


@pytest.mark.parametrize(
    "function",
    [use_list, use_power, loop_over_list, call_something, use_unknown, use_text, change_type],
)
def test_what_cannot_be_translated_is_an_error_that_names_the_line(function):
    count = function.__code__.co_argcount
    with pytest.raises(UntranslatableError, match=rf"{function.__name__}, line \d+: "):
        translate(ir.Module(), [Source(function, [INT] * count, INT)])
