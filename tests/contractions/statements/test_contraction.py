"""Statements that are contractions, and why others are none."""

import re

import numpy as np
import pytest

from tilesolve.contractions.reference import reference
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages


def find(text, dtype="float32", where=(), **others):
    """The contraction of a statement, and the reason if it is none."""
    computation = bind_stages(parse_stages(text, where), 4, dtype, **others)
    return find_contraction(computation.stages[-1], computation.dtypes)


def text_of(term):
    """A factor as text; None for none."""
    return term and str(term)


@pytest.mark.parametrize(
    ("text", "products", "beta"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", [("ij-ik-kj", "AB", None)], None),
        ("C[i,j] += A[i,k] * A[j,k]", [("ij-ik-jk", "AA", None)], None),
        (
            "O[n,k,y,x] += I[n,c,y+r,2*x+s] * W[k,c,r,s]",
            [("nkyx-nc[r+y][s+2x]-kcrs", "IW", None)],
            None,
        ),
        ("C[row,col] += A[row,k] * B[k,col]", [("ab-ak-kb", "AB", None)], None),
        (
            "C[i,j] = a * sum(A[i,k] * B[k,j], k) + b * C[i,j]",
            [("ij-ik-kj", "AB", "a")],
            "b",
        ),
        ("C[i,j] = C[i,j] + sum(2 * A[i,k] * B[k,j], k)", [("ij-ik-kj", "AB", "2")], "1"),
        (
            "C[i,j] += A[i,k] * B[j,k] + B[i,k] * A[j,k]",
            [("ij-ik-jk", "AB", None), ("ij-ik-jk", "BA", None)],
            None,
        ),
        (
            "C[i,j] = b * C[i,j] - a * (sum(A[i,k] * B[k,j], k) - 2 * sum(D[i,l] * E[l,j], l))",
            [("ij-ik-kj", "AB", "-1 * a"), ("ij-il-lj", "DE", "-1 * a * -1 * 2")],
            "b",
        ),
        (
            "C[i,j] = sum(-A[i,k] * B[k,j]) - C[i,j]",
            [("ij-ik-kj", "AB", "-1")],
            "-1",
        ),
    ],
)
def test_contractions_are_found(text, products, beta):
    """With the spec, operands and factor of each product, and what multiplies the output."""
    found, reason = find(text)
    assert not reason
    assert [
        (str(one.spec), "".join(one.operands), text_of(one.alpha)) for one in found.products
    ] == products
    assert text_of(found.beta) == beta


@pytest.mark.parametrize(
    ("text", "chain", "operands"),
    [
        ("C[i,j] = max(sum(A[i,k] * B[k,j], k), 0)", "relu", []),
        ("C[i,j] = max(0, min(sum(A[i,k] * B[k,j], k), 6))", "clip(-inf,6) relu", []),
        ("C[i,j] = max(b[j] + sum(A[i,k] * B[k,j], k), 0)", "+j relu", ["b[j]"]),
        (
            "C[i,j] = gelu_tanh(s[i+1] * (sum(A[i,k] * B[k,j], k) + b[2,j])) + R[j,i]",
            "+j *i gelu-tanh +ji",
            ["b[2,j]", "s[i+1]", "R[j,i]"],
        ),
        ("C[i,j] = D[0,0] * sum(A[i,k] * B[k,j], k)", "*", ["D[0,0]"]),
        ("C[i,j] = tanh(C[i,j] + 2 * sum(A[i,k+1] * B[k,j], k))", "tanh", []),
        (
            "C[i,j] = sum(A[i,k] * B[k,j], k) + b[i] + sum(A[i,l] * B[l,j], l)",
            "+i",
            ["b[i]"],
        ),
    ],
)
def test_what_follows_a_sum_is_an_epilogue(text, chain, operands):
    """From the sum outwards, with the elements that it reads."""
    found, reason = find(text)
    assert not reason
    assert str(found.epilogue) == chain
    assert [str(one) for one in found.operands] == operands
    assert found.products[0].operands == ("A", "B")


def test_regions_of_contractions_have_conditions_on_two_letters():
    """On letters of the output or of all sums."""
    assert find("C[i,j] += A[i,k] * B[k,j]", where="j <= i")[0] is not None
    assert find("C[i,j] += A[i,k] * B[k,j]", where=("k >= i", "0 <= j < 3"))[0] is not None


@pytest.mark.parametrize(
    ("text", "others", "reason"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", {"dtype": "int32"}, "one floating dtype, not of int32"),
        ("C[i,j] += A[i,k] * B[k,j]", {"where": "i + j <= k"}, "has more letters than two"),
        (
            "C[i,j] = sum(A[i,k] * B[k,j], k) + sum(A[i,l] * B[l,j], l)",
            {"where": "l <= i"},
            "has 'l', ij-ik-kj not",
        ),
        ("C[i,j] += A[i,k] * B[k,j] + B[i,k]", {}, "B\\[i,k\\] has 1 operand, a plan has two"),
        ("C[i,j] += A[i,k] * B[k,j] * D[k,j]", {}, "has 3 operands, a plan has two"),
        ("C[i,j] += A[i,k] * B[k,j] + A[i,0] * B[0,j]", {}, "summed over 'k', which it has not"),
        ("C[i,j] += A[i,k] / B[k,j]", {}, "is no product of elements"),
        ("C[i,j] += A[i,k//2] * B[k,j]", {}, "the subscript k//2 of A"),
        ("C[i,j] += A[i,3-k] * B[k,j]", {}, "is no sum of letters"),
        ("C[i,j] = sum(A[0,0] * B[i,j] * D[k,j], k)", {}, "has 3 operands"),
        ("C[i,j] = sum(A[0,0] * B[i,k,j], k)", {}, "A\\[0,0\\] is a single element"),
        ("C[i,j] = max(A[i,k] * B[k,j] * D[k,j])", {}, "reads 3 elements, pairs are of two"),
        ("C[i,j] = max(A[i,k] + x * B[k,j])", {}, "the parameter x, which pairs have not"),
        ("C[i] = max(A[i,k] + B[k])", {}, "do not both have letters of their own"),
        ("C[i,j] = max(exp(A[i,k] * B[k,j]))", {}, "nothing that register tiles compute"),
        ("C[i,j] = 2 * max(A[i,k] + B[k,j], k)", {}, "is no sum, and no other reduction alone"),
        ("C[i,j] = max(A[i,k] + B[k,j], k) + C[i,j]", {}, "and no other reduction alone"),
        ("C[i,j] = max(A[i,k] + B[k,j])", {"where": "k <= i"}, "has letters that it runs over"),
        ("C[i,j] = A[i,j] * B[i,j]", {}, "is no sum over letters"),
        ("C[i,j] = sum(A[i,k], k) + B[i,j]", {}, "A\\[i,k\\] has 1 operand"),
        ("C[i,j] = sum(A[i,k] * B[k,j], k) - B[i,j]", {}, "nor C\\[i,j\\] itself"),
        ("C[i,j] = sum(A[i,k] * B[k,j], k) + B[i,i]", {}, "nor C\\[i,j\\] itself"),
        ("C[i,j] = max(sum(A[i,k] * B[k,j], k), 0.123456789)", {}, "is no sum over letters"),
        (
            "C[i,j] = max(sum(A[i,k] * B[k,j], k), 0)",
            {"where": "j <= i"},
            "in a region that is no box",
        ),
    ],
)
def test_others_are_none_for_a_reason(text, others, reason):
    """That names what is in the way."""
    found, why = find(text, **others)
    assert found is None
    assert re.search(reason, why)


def test_operands_of_two_dtypes_are_none():
    """All are of the same, the output too."""
    found, why = find("C[i,j] += A[i,k] * B[k,j]", {"A": "float32", "B": "float64"})
    assert found is None
    assert "float32, float64" in why


@pytest.mark.parametrize(
    "text",
    ["C[i,j] += A[i,k] * B[k,j]", "O[k,y] += I[c,y+2*r] * W[k,c,r]", "S[q,p] += A[q,s] * B[s,p]"],
)
def test_the_problem_computes_what_the_statement_does(text):
    """By einsum of its operands."""
    computation = bind_stages(parse_stages(text), 5, "float64")
    found, _ = find_contraction(computation.stages[0], computation.dtypes)
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(0, 5, computation.array(name).shape).astype(float)
        for name in computation.inputs
    }
    (product,) = found.products
    problem = product.problem(computation, computation.output.dtype)
    got = reference(problem, *(arrays[name] for name in product.operands))
    assert np.array_equal(got, evaluate(computation, arrays))
