"""Roles: one partition of letters, whatever asks for it."""

from hypothesis import given
from strategies import problems, specs

from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles, shared_lane


@given(problems(specs(operands=2), most=3))
def test_every_letter_has_one_role(problem):
    """By the tensors that it stands in; which operand has the rows only swaps rows and columns.

    Where all tensors end with one letter, it is the row, and what that operand has are batches.
    """
    output, first, second = (set(tensor.letters) for tensor in problem.spec.tensors)
    roles, lane = Roles.of_problem(problem), shared_lane(problem)
    for letter in problem.spec.letters:
        stands = letter in output, letter in first, letter in second
        expected = SUMS if not stands[0] else BATCHES if all(stands) else COLUMNS - stands[1]
        if lane is not None and expected == ROWS:
            expected = BATCHES
        assert roles.number(letter) == (ROWS if letter == lane else expected)
    assert sorted(i for letters in roles for i in letters) == sorted(problem.spec.letters)
    swapped = Roles.of_problem(problem, rows=1)
    if lane is None:
        assert swapped == (roles.columns, roles.rows, roles.sums, roles.batches)
    else:
        assert swapped.rows == roles.rows == (lane,)
        assert {*swapped.columns, *swapped.batches} == {*roles.columns, *roles.batches}


@given(problems(specs(operands=2), most=3))
def test_an_order_only_sorts_the_letters_of_each_role(problem):
    """Without one, batches are in the output's order."""
    output, *operands = (tensor.letters for tensor in problem.spec.tensors)
    plain = Roles.of(output, operands)
    sorted_ = Roles.of(output, operands, order=sorted(problem.spec.letters))
    assert sorted_ == tuple(tuple(sorted(letters)) for letters in plain)
    assert list(plain.batches) == [i for i in dict.fromkeys(output) if i in plain.batches]
    assert plain.rows == tuple(dict.fromkeys(i for i in operands[0] if i in plain.rows))
    assert ROWS < COLUMNS < SUMS < BATCHES
