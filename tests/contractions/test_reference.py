import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from strategies import draw_whole_numbers, problems, specs
from turns import examples

from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference


def oracle(problem, *arrays):
    """Evaluate point by point in Python numbers."""
    spec = problem.spec
    out = np.zeros(problem.shape(0), complex if "complex" in problem.dtype else float)
    for point in itertools.product(*(range(extent) for _, extent in problem.extents)):
        at = dict(zip(spec.letters, point, strict=True))
        value = 1
        for tensor, array in zip(spec.operands, arrays, strict=True):
            position = [sum(c * at[x] for c, x in sub.terms) for sub in tensor.subscripts]
            value = value * array[tuple(position)].item()
        out[tuple(at[x] for x in spec.output.letters)] += value
    return out


@examples(40, 100)
@given(problems(specs(operands=(1, 3), letters="abhr", max_order=3), most=3))
def test_equals_a_loop_over_all_points(problem):
    """Affine subscripts, diagonals, sums, scalars and empty extents equal plain Python loops."""
    arrays = draw_whole_numbers(problem)
    result, expected = reference(problem, *arrays), oracle(problem, *arrays)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("text", ["abc-acd-db", "abcd-aebf-dfce", "bij-bik-bkj", "i-iij-j"])
def test_equals_numpy_on_plain_specs(text):
    """On what numpy's einsum can do, the result is numpy's."""
    problem = Problem.of(text, 5)
    arrays = draw_whole_numbers(problem, seed=1)
    assert np.array_equal(reference(problem, *arrays), np.einsum(problem.spec.einsum(), *arrays))


def test_strided_and_dilated_convolution():
    """A hand-computed convolution with stride 2 and dilation 3."""
    problem = Problem.of("h-[2h+3r]-r", "h=2 r=2")
    assert reference(problem, [1, 2, 3, 4, 5, 6], [10, 1]).tolist() == [14, 36]


@pytest.mark.parametrize(("dtype", "result"), [("float32", "float64"), ("complex64", "complex128")])
def test_accumulates_in_double_precision(dtype, result):
    """Single-precision operands are summed in double precision, where no term is lost."""
    problem = Problem.of("i,i->", 3, dtype)
    found = reference(problem, np.array([1e8, 1, -1e8], dtype), np.ones(3, dtype))
    assert found.dtype == result
    assert found == 1


def test_the_result_is_an_array_of_its_own():
    """Even where the output is the operand, the caller gets memory that is not the operand's."""
    operand = np.ones((2, 3))
    found = reference(Problem.of("ab-ab", "a=2 b=3"), operand)
    found[:] = 7
    assert operand.max() == 1
    assert isinstance(reference(Problem.of(",->", {}), 2.0, 3.0), np.ndarray)


def test_any_memory_layout_is_read():
    """Transposed, reversed and broadcast operands are read by their values."""
    problem = Problem.of("ij,jk->ik", "i=2 j=3 k=4")
    left = np.arange(6.0).reshape(3, 2).T
    right = np.broadcast_to(np.arange(4.0), (3, 4))[::-1]
    assert np.array_equal(reference(problem, left, right), left @ right)


def test_fifty_two_letters_and_no_more():
    """As many letters as numpy's einsum has are evaluated; one more is a clear error."""
    letters = "".join(chr(0x4E00 + i) for i in range(53))

    def ones(count):
        text = "-" + "-".join(letters[i:count][:13] for i in range(0, count, 13))
        problem = Problem.of(text, 1)
        return reference(problem, *(np.ones(shape) for shape in problem.shapes[1:]))

    assert ones(52) == 1
    with pytest.raises(SpecError, match=r"up to 52 letters and 31 operands; .* has 53 and 5"):
        ones(53)


def test_too_many_operands_are_refused():
    """The limit on operands is stated, not left to numpy."""
    problem = Problem.of("-" + "-".join("a" * 32), 1)
    with pytest.raises(SpecError, match=r"up to 52 letters and 31 operands; .* has 1 and 32"):
        reference(problem, *[np.ones(1)] * 32)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(9,)], "'h-[2h+r]-r' has 2 operands, but 1 arrays are given"),
        (
            [(9, 1), (3,)],
            "operand A of 'h-[2h+r]-r' is '[2h+r]', 1 dimensions, but its array has 2",
        ),
        (
            [(10,), (3,)],
            "axis 0 of operand A of 'h-[2h+r]-r' has extent 10, but '[2h+r]' with h=4,",
        ),
        (
            [(9,), (1,)],
            "axis 0 of operand B of 'h-[2h+r]-r' has extent 1, but 'r' with r=3 needs 3",
        ),
    ],
)
def test_operands_of_other_shapes_are_refused(shapes, message):
    """Nothing is broadcast or cut: a wrong shape is named with both sizes."""
    with pytest.raises(SizeError, match=re.escape(message)):
        reference(Problem.of("h-[2h+r]-r", "h=4 r=3"), *map(np.zeros, shapes))


@pytest.mark.parametrize("dtype", ["complex64", "O", "datetime64[D]"])
def test_operands_that_are_not_real_numbers_are_refused(dtype):
    """A real problem does not drop imaginary parts, nor take objects."""
    problem = Problem.of("ij,jk->ik", 2)
    with pytest.raises(DtypeError, match="operand B of 'ij,jk->ik' is"):
        reference(problem, np.zeros((2, 2)), np.zeros((2, 2), dtype))
