"""Statements as text: what they mean, and where they are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.parse import parse_conditions, parse_stages
from tilesolve.contractions.statements.terms import Number, Param, Position


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("C[i,j] += A[i,k]*B[k,j]", "C[i,j] += A[i,k] * B[k,j]"),
        ("o[y] = sum(A[y,x], x) / 2", "o[y] = sum(A[y,x], x) / 2"),
        ("o[y,x] = max(A[y,x], 0)", "o[y,x] = max(A[y,x], 0)"),
        ("o[y] *= A[y,x]", "o[y] *= A[y,x]"),
        ("o[y] = prod(A[y,x])", "o[y] = prod(A[y,x], x)"),
        ("o[y] = max(A[y,x], x)", "o[y] = max(A[y,x], x)"),
        ("o[y,x] = max(A[y,x], 0+x)", "o[y,x] = max(A[y,x], x+0)"),
        ("o[x] = A[2*x-1+3]", "o[x] = A[2*x+2]"),
        ("o[x] = A[(x+1)//2]", "o[x] = A[(x+1)//2]"),
        ("o[x] = A[x] if x < 3 else 0", "o[x] = (A[x] if x < 3 else 0)"),
        ("o[x] = float32(A[x]) ", "o[x] = float32(A[x])"),
        ("h[A[x]//8] += B[x]", "h[A[x] // 8] += B[x]"),
        ("o[x] = -1 * A[x]", "o[x] = -1 * A[x]"),
        ("row_2[a_b] = In[a_b]", "row_2[a_b] = In[a_b]"),
        ("o[x] = a - (b - A[x])", "o[x] = a - (b - A[x])"),
    ],
)
def test_statements_mean_what_python_means(text, meant):
    """As their printed form shows, which is read as the same."""
    (stage,) = parse_stages(text)
    assert str(stage) == meant
    assert parse_stages(meant) == (stage,)


def test_names_are_letters_if_they_stand_in_subscripts_else_parameters():
    """So `x` is a position and `gain` a parameter."""
    (stage,) = parse_stages("o[x] = gain * A[x] + x")
    kinds = {type(one) for one in stage.term.all}
    assert {Param, Position} <= kinds
    assert stage.term.params == ("gain",)


def test_lines_and_semicolons_part_statements():
    """The region is that of the last one."""
    stages = parse_stages("t[y,x] = A[y,x]; u[y,x] = t[y,x]\n\no[y] += u[y,x]", "x <= y")
    assert [len(stage.where) for stage in stages] == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("C[i,j] = A[i,j", 7 + 4, "was never closed"),
        ("C[i,j]", 1, "no assignment"),
        ("C.x = A[i]", 1, "the left side is an element"),
        ("C[i] = D[i] = A[i]", 8, "one array is assigned to at a time"),
        ("C[i] -= A[i,k]", 1, "only \\+=, \\*=, &=, \\|= and \\^= run over letters"),
        ("C[i] += A[i]", 1, "runs over no letter"),
        ("C[i] = A[i] and B[i]", 8, "not with 'and' and 'or'"),
        ("C[i] = A[i:j]", 10, "not a slice"),
        ("C[i] = erf(A[i])", 8, "no function 'erf'"),
        ("C[i] = abs(A[i], 2)", 8, "abs takes 1 arguments, not 2"),
        ("C[i] = sqrt(x=A[i])", 8, "no keywords"),
        ("C[i] = sum()", 8, "sum takes a term"),
        ("C[i] = sum(A[i,k], j)", 20, "runs over letters of its term"),
        ("C[i] = sum(A[i])", 8, "runs over no letter"),
        ("C[i] = sum(A[i], i+0)", 18, r"A\[i\] has no 'i \+ 0'"),
        ("C[i,k] = max(A[i], k)", 20, r"A\[i\] has no 'k'; as a number it is k\+0"),
        ("C[i] = max(A[i], B[i], i)", 8, "max takes 2 arguments, not 3"),
        ("C[i] = where(A[i])", 8, r"called like where\(test, yes, no\)"),
        ("C[i] = cumsum(A[i])", 8, r"called like cumsum\(A\[i,k\], k\)"),
        ("C[i] = int8(A[i], 2)", 8, r"called like int8\(A\[i\]\)"),
        ("C[i] = A[i*i]", 10, "is no position"),
        ("C[i] = A[1.5]", 10, "is no position"),
        ("C[i] = (A+B)[i]", 8, "an array is a name"),
        ("C[i] = 'text'", 8, "is no part of a statement"),
        ("C[i] = A[i] @ B[i]", 8, "no such operation"),
    ],
)
def test_what_is_no_statement_is_refused_with_its_column(text, column, message):
    """The message has the text and the place, in a line."""
    with pytest.raises(SpecError, match=message) as caught:
        parse_stages(text)
    assert str(caught.value).startswith(f"statement {text!r}, at column {column}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no statement"),
        (" ; ", "no statement"),
        (3, "text"),
        ("C[i,i] = A[i]", "2 times"),
        ("C[i] = A[i,k]", "nothing runs over it"),
        ("C[i+1] = A[i]", "not a letter"),
        ("C[i] = A[i] + C[i+1]", "iterations depend on one another"),
        ("C[i] += C[i] * A[i,k]", "iterations depend on one another"),
        ("C[i] = sum(sum(A[i,k,l], k), l)", "a reduction within a reduction"),
        ("C[i] = sum(A[i,j], i)", "is not summed"),
        ("C[i] = max(A[i,j], i)", "is not summed"),
        ("C[i,k] = A[i,k] - min(A[i,k], k)", "is not summed"),
    ],
)
def test_statements_that_mean_nothing_are_refused(text, message):
    """With what is wrong."""
    with pytest.raises(SpecError, match=message):
        parse_stages(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i", "compares letters"),
        ("i != j", "no intersection: it has 2 pieces"),
        ("i < j or j < i", "no intersection"),
        ("i <= A[j]", "bounded by letters and numbers"),
        ("j <= i // 2", "compares sums of letters; i//2 is a quotient"),
        ("j >= i // 2", "compares sums of letters; i//2 is a quotient"),
        ("3 > 2 * i // 3", r"compares sums of letters; \(2\*i\)//3 is a quotient"),
        ("j - i // 2 >= 0", "is no position"),
    ],
)
def test_regions_that_are_none_are_refused(text, message):
    """A region is an intersection of half-spaces."""
    with pytest.raises(SpecError, match=message):
        parse_conditions(text)


def test_a_condition_on_a_letter_that_is_not_there_is_refused():
    """By both names."""
    with pytest.raises(SpecError, match="has 'k', which"):
        parse_stages("C[i,j] = A[i,j]", "k <= i")


@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(["<", "<=", ">", ">=", "=="]))
def test_conditions_compare_as_python_does(i, j, sign):
    """Each comparison, at any values."""
    text = f"2*i - 1 {sign} j + 1"
    found = parse_conditions(text)
    point = {"i": i, "j": j}
    assert all(one.holds(point) for one in found) == eval(text, {}, point)


def test_letters_that_cancel_out_are_still_letters_of_a_condition():
    """What is never true is so on the letters that were written."""
    assert parse_conditions("l < l") == parse_conditions("l < 0")
    assert parse_conditions("l + k < k + l")[0].letters == ("k", "l")
    assert parse_conditions("l <= l") == ()
    assert [str(one) for one in parse_conditions("j < i and i - 2 < j")] == ["i > j", "j+1 >= i"]


def test_numbers_keep_their_kind():
    """An integer is none with a point."""
    (stage,) = parse_stages("o[x] = 1 + 1.0 * A[x]")
    numbers = [one.value for one in stage.term.all if isinstance(one, Number)]
    assert [type(value) for value in numbers] == [int, float]


def test_numbers_as_written_are_pythons():
    """So they take the dtype of what they meet; positions and regions may have them."""
    (stage,) = parse_stages("C[i] = A[3-2] * (7 // 2) + 1 / 4 - i", "i < 9 - 2 * 3")
    assert str(stage) == "C[i] = A[1] * 3 + 0.25 - i, where 2 >= i"
    assert stage.term.kind({"A": "float32"}) == "float64"
    (stage,) = parse_stages("C[i] = A[i] * (3 - 2)")
    assert stage.term.kind({"A": "uint8"}) == "uint8"
    (stage,) = parse_stages("C[i] = A[i] + 1 // 0")
    assert str(stage) == "C[i] = A[i] + 1 // 0"
