"""Expressions with constant operands: what calls give, and what is computed once."""

import numpy as np
import pytest
from einsum_cases import set_costs

import tilesolve
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError, SpecError
from tilesolve.expressions.constants import PlannedWithConstant

CASES = [
    ("ij,jk->ik", [(5, 6), (6, 7)]),
    ("ij,jk,kl->il", [(5, 6), (6, 7), (7, 4)]),
    ("ab,bcd,cde,ef->af", [(4, 5), (5, 6, 3), (6, 3, 4), (4, 2)]),
    ("i,j->ij", [(5,), (6,)]),
    ("ii,ij->j", [(5, 5), (5, 6)]),
    ("c[2h+r],kcr->kh", [(3, 11), (4, 3, 3)]),
    ("ij,j", [(40, 30), (30,)]),
    ("ij->ji", [(3, 4)]),
    ("aij,ajk->aik", [(1, 5, 6), (1, 6, 7)]),
]


def whole(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(float) for shape in shapes]


@pytest.mark.parametrize("route", ["as it is", "without loops"])
@pytest.mark.parametrize(("text", "shapes"), CASES)
def test_any_operands_may_be_constant(text, shapes, route, monkeypatch):
    """Calls give the others and get what einsum gives, with and without `out`."""
    if route != "as it is":
        set_costs(monkeypatch, einsum_loop_products=0.5)
    operands = whole(shapes)
    expected = tilesolve.einsum(text, *operands)
    count = len(shapes)
    for chosen in range(2**count):
        constants = [number for number in range(count) if chosen >> number & 1]
        given = [operands[n] if n in constants else shapes[n] for n in range(count)]
        found = tilesolve.expression(text, *given, constants=constants)
        others = [operands[n] for n in range(count) if n not in constants]
        assert ("constant: " in str(found)) == bool(constants)
        for _ in range(2):
            assert np.array_equal(found(*others), expected)
            out = np.full(expected.shape, np.nan)
            assert found(*others, out=out) is out
            assert np.array_equal(out, expected)


def test_plans_have_constants_packed(monkeypatch):
    """Of both sides, also where what is constant is the result of constants."""
    set_costs(monkeypatch, einsum_loop_products=0.5, einsum_kernel_flops=1)
    shapes = [(24, 30), (30, 22), (22, 26)]
    operands = whole(shapes)
    expected = operands[0] @ operands[1] @ operands[2]
    for constants, computed, packed in ([0], 0, 1), ([1, 2], 1, 1), ([0, 1], 1, 1), ([1], 0, 1):
        given = [operands[n] if n in constants else shapes[n] for n in range(3)]
        order = [(1, 2), (0, 1)] if constants != [0, 1] else [(0, 1), (0, 1)]
        found = tilesolve.expression("ij,jk,kl->il", *given, constants=constants, optimize=order)
        left = found.constants.steps
        assert 2 - len(left) == computed
        assert sum(isinstance(step.kernel, PlannedWithConstant) for step in left) == packed
        others = [operands[n] for n in range(3) if n not in constants]
        assert np.array_equal(found(*others), expected)


def test_a_copy_of_a_constant_is_taken():
    """What is done to it later, or to a result that depends on nothing else, changes nothing."""
    first, second = whole([(5, 6), (6, 7)])
    expected = first @ second
    half = tilesolve.expression("ij,jk->ik", first.shape, second, constants=[1])
    none = tilesolve.expression("ij,jk->ik", first, second, constants=(0, 1))
    kept = first.copy()
    first[...] = second[...] = 7
    assert np.array_equal(half(kept), expected)
    none()[...] = 7
    assert np.array_equal(none(), expected)


def test_an_out_may_overlap_what_a_call_gives():
    """As in any expression."""
    first, second = whole([(6, 6), (6, 6)])
    expected = first @ second
    found = tilesolve.expression("ij,jk->ik", (6, 6), second, constants=[1])
    assert found(first, out=first) is first
    assert np.array_equal(first, expected)


def test_what_calls_and_constants_have_to_be():
    """The message names the operand; `out` stays as it was."""
    matrix = np.ones((3, 4))
    for constants, words in [
        ([2], r"constants=\[2\] has 2; 'ij,jk->ik' has operands 0 to 1"),
        ([-1], "has -1"),
        ([1], r"operand 1 of 'ij,jk->ik' is constant: give its array, not \(4, 2\)"),
        (1, "numbers of operands, not 1"),
        (["B"], "numbers of operands"),
    ]:
        with pytest.raises(SpecError, match=words):
            tilesolve.expression("ij,jk->ik", matrix, (4, 2), constants=constants)
    with pytest.raises(DtypeError, match="operand 0 is <U1"):
        tilesolve.expression("i,i", np.array(["a"]), (1,), constants=[0])
    found = tilesolve.expression("ij,jk->ik", matrix, (4, 2), constants=[0])
    out = np.full((3, 2), 5.0)
    for error, words, operands in [
        (SizeError, "takes 1 operands beside 1 constant ones, not 2", (matrix, np.ones((4, 2)))),
        (SizeError, "takes 1 operands beside 1 constant ones, not 0", ()),
        (SizeError, "operand 1 .* has 3 for 'k', the expression 2", (np.ones((4, 3)),)),
        (DtypeError, "operand 1 .* float32", (np.ones((4, 2), "f4"),)),
    ]:
        with pytest.raises(error, match=words):
            found(*operands, out=out)
    frozen = np.zeros((3, 2))
    frozen.flags.writeable = False
    with pytest.raises(PlanError, match="read-only"):
        found(np.ones((4, 2)), out=frozen)
    assert (out == 5).all()
