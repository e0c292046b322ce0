"""Operations of a point, and what rows have in common that are written out together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.constants.nests import NEST_OPERATIONS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.terms import Apply, Number, Read
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.operations import count_operations

Y, X = Affine.letter("y"), Affine.letter("x")
DTYPES = dict.fromkeys("ABC", "int32")
STEPS = st.integers(0, 3)
LEAVES = st.one_of(
    st.builds(lambda y, x: Read("A", (Y + y, X + x)), STEPS, STEPS),
    st.builds(lambda y, x: Read("C", (2 * Y + y, X + x)), STEPS, STEPS),
    st.builds(lambda x: Read("B", (X + x,)), STEPS),
    st.builds(Number, st.integers(1, 3)),
)
OPERATIONS = st.sampled_from(["add", "multiply", "bitwise_and"])
TERMS = st.recursive(
    LEAVES, lambda some: st.builds(lambda name, *x: Apply(name, x), OPERATIONS, some, some)
)


def move(term, rows):
    """Return a term so many rows further down."""
    moved = {
        read: Read(read.array, tuple(x + rows * x.factor("y") for x in read.subscripts))
        for read in term.reads
    }
    return replace_terms(term, moved)


@examples(30, 80)
@given(TERMS, st.integers(1, 5))
def test_rows_share_what_is_the_same(term, count):
    """Of all rows together, each different operation is counted once."""
    applied = [one for one in term.all if isinstance(one, Apply)]
    different = {move(one, row) for one in applied for row in range(count)}
    found = count_operations(term, DTYPES, None, {"y": count})
    assert abs(found * count - len(different)) < 1e-9


@pytest.mark.parametrize("count", [1, 2, 5])
def test_even_and_odd_rows_share_nothing(count):
    """They are never the same ones, however many are written out."""
    (stage,) = parse_stages("o[y,x] = (C[2*y+1,x] + B[x]) * (C[2*y,x] + B[x])")
    assert count_operations(stage.term, DTYPES, None, {"y": count}) == 3


def test_several_letters_are_written_out():
    """What depends on none of two letters is computed once for both, else once for each."""
    (stage,) = parse_stages("o[c,y,x] = (A[y,x] + A[y+1,x]) * (B[c,x] + 1) * (C[x] + C[x+1])")
    found = count_operations(stage.term, DTYPES, "x", {"c": 3, "y": 2})
    assert abs(found - (1 / 3 + 1 / 2 + 1 / 6 + 2)) < 1e-9


def test_divisions_by_numbers_are_products():
    """By those whose reciprocals are near enough."""
    terms = [parse_stages(f"o[x] = A[x] / {number}")[0].term for number in ("3", "7", "B[x]")]
    found = [count_operations(one, dict.fromkeys("AB", "float32"), "x") for one in terms]
    assert found == [NEST_OPERATIONS[x] for x in ("divide_by_number", *["true_divide"] * 2)]
