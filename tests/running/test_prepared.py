"""Prepared operands whose array was dropped: micro-panels have all of it."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.plans.plan import plan


@examples(5, 12)
@given(
    dtype=st.sampled_from(["float32", "float64", "float16", "complex64"]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70)),
    threads=st.integers(1, 3),
    spec=st.sampled_from(["xk-xc-ck", "xk-xc-kc", "bxk-bxc-bck"]),
)
def test_arrays_are_found_in_micro_panels(dtype, sizes, threads, spec):
    """Exactly, whatever the dtype, the order and the threads that share the micro-panels."""
    rng = np.random.default_rng(0)
    numbers = dict(zip("xkc", sizes, strict=True)) | ({"b": 3} if "b" in spec else {})
    problem = Problem.of(spec, numbers, dtype, constant=(2,))
    found = plan(problem, machine="i7-6700k", threads=threads, cache=False)
    first, second = (
        rng.standard_normal(shape).astype(array_dtype(dtype)) for shape in problem.shapes[1:]
    )
    ready = found.prepare(second)
    expected, whole = found(first, ready), ready.held_bytes
    ready.drop_array()
    dropped = second.nbytes if ready.nbytes and dtype != "complex64" else 0
    assert ready.held_bytes == whole - dropped
    assert ready.like.strides == second.strides
    assert np.array_equal(ready.array, second)
    assert ready.held_bytes == whole
    ready.drop_array()
    assert np.array_equal(found(first, pickle.loads(pickle.dumps(ready))), expected)
    assert np.array_equal(found(first, ready), expected)


@pytest.mark.parametrize("count", [254, 255, 256, 257, 65535, 65537])
def test_numbers_of_several_digits(count):
    """Elements are numbered in digits, which the dtype has exactly."""
    found = plan("xk-xc-ck", {"x": 2, "k": count, "c": 1}, "i7-6700k", dtype="float16",
                 constant="B", cache=False)  # fmt: skip
    array = np.random.default_rng(0).standard_normal((1, count)).astype(np.float16)
    ready = found.prepare(array)
    ready.drop_array()
    assert np.array_equal(ready.array, array)
