import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from strategies import draw_whole_numbers, problems, specs
from turns import examples

from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.spec import Spec


def test_sizes_can_be_written_in_any_way():
    """A mapping, text with commas or spaces, and numpy's integers give equal problems."""
    expected = Problem.of("ab-ac-cb", {"a": 2, "b": 3, "c": 4})
    for sizes in [
        "a=2,b=3,c=4",
        "c=4 b=3 a=2",
        " a = 2,  b=3 ,\nc=4 ",
        {"c": np.int64(4), "b": np.uint8(3), "a": 2},
    ]:
        assert Problem.of(Spec.parse("ab-ac-cb"), sizes) == expected
    assert all(type(extent) is int for _, extent in expected.extents)


def test_one_integer_sizes_every_letter():
    """An integer, numpy's too, is the extent of all letters."""
    assert Problem.of("ab-ac-cb", np.int32(7)).sizes == {"a": 7, "b": 7, "c": 7}


def test_extents_of_zero_and_one_are_valid():
    """Empty and single-element tensors are problems like any other."""
    problem = Problem.of("ab-ac-cb", "a=0 b=1 c=1")
    assert problem.shapes == ((0, 1), (0, 1), (1, 1))
    assert problem.flops == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("a=2 b=3", "no size for 'c' of A, B in 'ab-ac-cb'; sizes are given for a, b"),
        ({}, "no size for 'a' of C, A in 'ab-ac-cb'; sizes are given for nothing"),
        ("a=2 b=3 c=4 x=5", "a size is given for 'x', which 'ab-ac-cb' does not have"),
        ({"a": 2, "b": 3, "c": 4, 1: 5}, "a size is given for 1, which"),
        ("a=2 b=3 c=-1", "size of 'c' of A, B in 'ab-ac-cb' must be an integer from 0"),
        ({"a": 2, "b": 3, "c": 2**63}, "size of 'c' of A, B in 'ab-ac-cb' must be an integer from"),
        ({"a": 2, "b": 3, "c": 4.0}, "size of 'c' of A, B in 'ab-ac-cb' must be an integer, got 4"),
        (
            {"a": 2, "b": True, "c": 4},
            "size of 'b' of C, B in 'ab-ac-cb' must be an integer, got T",
        ),
        ({"a": 2, "b": np.True_, "c": 4}, "size of 'b' of C, B in 'ab-ac-cb' must be an integer"),
        ({"a": "2", "b": 3, "c": 4}, "size of 'a' of C, A in 'ab-ac-cb' must be an integer"),
        (2.5, "size of 'a' of C, A in 'ab-ac-cb' must be an integer, got 2.5"),
        (False, "size of 'a' of C, A in 'ab-ac-cb' must be an integer, got False"),
        (None, "size of 'a' of C, A in 'ab-ac-cb' must be an integer, got None"),
        ("a=2 b=3 c=4.0", "found 'c=4.0' in 'a=2 b=3 c=4.0'"),
        ("a=2 b=3 c", "found 'c' in 'a=2 b=3 c'"),
        ("a=2 b=3 =4", "expected sizes such as 'a=72, b=72', found"),
        ("a=2 b=3 c=" + "9" * 5000, "expected sizes such as"),
        ("a=2 b=3 c=4 a=5", "two sizes for 'a' in 'a=2 b=3 c=4 a=5': 2 and 5"),
    ],
)
def test_bad_sizes_are_explained(sizes, message):
    """Each fault of sizes has an error of its own that names the letter and the tensors."""
    with pytest.raises(SizeError, match=re.escape(message)):
        Problem.of("ab-ac-cb", sizes)


@pytest.mark.parametrize(
    ("extents", "dtype", "kind"),
    [
        ((("b", 2), ("a", 2)), "float64", SizeError),
        ((("a", 2),), "float64", SizeError),
        ((("a", 2), ("b", np.int64(2))), "float64", SizeError),
        ((("a", 2), ("b", 2)), "f8", DtypeError),
        ((("a", 2), ("b", 2)), np.dtype("float64"), DtypeError),
    ],
)
def test_values_built_by_hand_are_checked(extents, dtype, kind):
    """The constructor takes letters in the spec's order, plain integers and dtype names only."""
    with pytest.raises(kind):
        Problem(Spec.parse("ab-ba"), extents, dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_can_be_given_as_numpy_takes_them(name):
    """A dtype's name, its code, its type and its value are the same dtype."""
    dtype = np.dtype(name)
    for given_as in (name, dtype.char, dtype.type, dtype, dtype.str):
        problem = Problem.of("ab-ba", 2, given_as)
        assert problem.dtype == name
        assert problem.itemsize == dtype.itemsize


@pytest.mark.parametrize(
    "dtype",
    ["int64", "float8", "bool", object, "f4,f4", "no dtype", None, 5, ">f8", ">c8", np.longdouble],
)
def test_other_dtypes_are_refused(dtype):
    """What tilesolve does not compute in is refused, byte-swapped numbers too."""
    with pytest.raises(DtypeError, match="computes in float32, float64, complex64, complex128"):
        Problem.of("ab-ba", 2, dtype)


@given(problems(specs(affine=False)))
def test_shapes_of_operands_give_the_problem_back(problem):
    """A problem is found again from operands of its shapes and dtype."""
    assert Problem.from_arrays(problem.spec, *draw_whole_numbers(problem)) == problem


@examples(40, 100)
@given(problems(specs(letters="abhr"), most=3))
def test_inference_never_guesses(problem):
    """From operands' shapes come the sizes that made them, or an error that names what is open."""
    try:
        found = Problem.from_arrays(problem.spec, *draw_whole_numbers(problem))
    except SizeError as error:
        assert "do not determine" in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert found == problem


def test_affine_subscripts_are_solved_one_after_the_other():
    """A letter that one affine subscript determines helps to solve the next."""
    problem = Problem.of("h-[h+r][2r+3s]-[s+t]t", "h=5 r=4 s=3 t=2")
    assert Problem.from_arrays(problem.spec, *draw_whole_numbers(problem)) == problem


@pytest.mark.parametrize(
    ("spec", "shapes", "message"),
    [
        ("ab-ac-cb", [(2, 3)], "'ab-ac-cb' has 2 operands, but 1 arrays are given"),
        ("ab-ac-cb", [(2, 3), (3,)], "operand B of 'ab-ac-cb' is 'cb', 2 dimensions, but its"),
        (
            "ab-ac-cb",
            [(2, 3), (4, 5)],
            "the extents of 'c' in 'ab-ac-cb' disagree: 3 on axis 1 of operand A, 4 on axis 0 of "
            "operand B",
        ),
        ("i-ii", [(2, 3)], "'i' in 'i-ii' disagree: 2 on axis 0 of operand A, 3 on axis 1"),
        (
            "h-[2h+r]-r",
            [(10,), (3,)],
            "axis 0 of operand A of 'h-[2h+r]-r' has extent 10, but '[2h+r]' with r=3 needs 3 plus "
            "a multiple of 2: 9 or 11 would do",
        ),
        ("h-[2h+r]-r", [(2,), (3,)], "has extent 2, but '[2h+r]' with r=3 needs at least 3"),
        ("h-[2h+r]-r", [(2,), (0,)], "has extent 2, but '[2h+r]' with r=0 needs 0"),
        (
            "h-[2h+r]-r",
            [(0,), (0,)],
            "do not determine 'h' in 'h-[2h+r]-r': axis 0 of operand A is",
        ),
        ("h-[h+r]", [(7,)], "do not determine 'h', 'r' in 'h-[h+r]': axis 0 of operand A is [h+r]"),
        ("h-[h+r]-rh", [(7,), (3, 4)], "has extent 7, but '[h+r]' with h=4, r=3 needs 6"),
    ],
)
def test_shapes_that_do_not_fit_are_explained(spec, shapes, message):
    """Operands that disagree, or leave a letter open, are named with both sizes."""
    with pytest.raises(SizeError, match=re.escape(message)):
        Problem.from_arrays(spec, *map(np.zeros, shapes))


def test_an_empty_axis_determines_its_one_unknown():
    """An affine axis without elements means that its only unknown letter has extent 0."""
    problem = Problem.from_arrays("h-[h+r]-r", np.zeros(0), np.zeros(3))
    assert problem.sizes == {"h": 0, "r": 3}


def test_dtype_of_arrays_is_the_common_one():
    """Mixed operands take numpy's common dtype, in native byte order; a dtype given wins."""
    single, double = np.zeros((2, 2), "f4"), np.zeros((2, 2), ">f8")
    swapped = np.zeros((2, 2), np.dtype("f4").newbyteorder())
    assert Problem.from_arrays("ij,jk", single, double).dtype == "float64"
    assert Problem.from_arrays("ij,jk", swapped, swapped).dtype == "float32"
    assert Problem.from_arrays("ij,jk", single, single * 1j).dtype == "complex64"
    assert Problem.from_arrays("ij,jk", [[1]], [[2]], dtype=np.float32).dtype == "float32"


@pytest.mark.parametrize("arrays", [([[1]], [[2]]), ([["a"]], [[None]])])
def test_arrays_without_a_supported_dtype_are_refused(arrays):
    """Whole numbers and objects are not turned into floats unasked."""
    with pytest.raises(DtypeError):
        Problem.from_arrays("ij,jk", *arrays)


def test_dtypes_without_a_common_one_are_refused():
    """Dates and numbers have no common dtype, and the error shows both."""
    with pytest.raises(DtypeError, match=r"no common dtype: datetime64\[D\], float64"):
        Problem.from_arrays("i,i->", np.zeros(2, "datetime64[D]"), np.zeros(2))


def test_a_ragged_list_is_no_operand():
    """What numpy cannot take for an array is refused by the operand's name."""
    with pytest.raises(DtypeError, match="operand B of 'i,ij->j' is no array"):
        Problem.from_arrays("i,ij->j", [1.0, 2.0], [[1.0], [2.0, 3.0]])


@examples(40, 100)
@given(problems())
def test_bytes_are_those_of_the_arrays(problem):
    """Shapes, item size and bytes are what numpy allocates for the operands."""
    for position, array in enumerate(draw_whole_numbers(problem), start=1):
        assert problem.shapes[position] == problem.shape(position) == array.shape
        assert problem.bytes[position] == array.nbytes
        assert problem.itemsize == array.itemsize


@pytest.mark.parametrize(
    ("spec", "dtype", "flops"),
    [
        ("ij,jk->ik", "float32", 2 * 24),
        ("ij,jk->ik", "complex128", 8 * 24),
        ("ij,jk,k->i", "float64", 3 * 24),
        ("ij,jk,k->i", "complex64", 14 * 24),
        ("ij->j", "float64", 6),
        ("ij->j", "complex64", 2 * 6),
        (",->", "float64", 2),
    ],
)
def test_flops_are_counted_per_point(spec, dtype, flops):
    """Each point of the iteration space costs its multiplications and one addition."""
    sizes = {"i": 2, "j": 3, "k": 4}
    parsed = Spec.parse(spec)
    problem = Problem.of(parsed, {letter: sizes[letter] for letter in parsed.letters}, dtype)
    assert problem.flops == flops


def test_intensity_of_a_matrix_product():
    """Intensity is flops per byte of all three matrices; nothing to move has none."""
    assert Problem.of("ij,jk->ik", 6, "float32").intensity == 2 * 6**3 / (3 * 36 * 4)
    assert Problem.of("ij,jk->ik", "i=0 j=5 k=0").intensity == 0.0


def test_a_problem_is_a_value():
    """Problems hash, compare by content and cannot be changed, not even through their sizes."""
    problem = Problem.of("ab-ac-cb", 4)
    assert {problem: 1}[Problem.of("ac,cb->ab", 4)] == 1
    assert problem != Problem.of("ab-ac-cb", 4, "float32")
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.dtype = "float32"
    with pytest.raises(TypeError):
        problem.sizes["a"] = 5


def test_text_of_a_problem():
    """A problem prints its spec, sizes and dtype."""
    assert str(Problem.of("j,j->", "j=3")) == "j,j-> j=3 float64"
