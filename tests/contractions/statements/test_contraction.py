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


@pytest.mark.parametrize(
    ("text", "spec", "operands", "alpha", "beta"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", "ij-ik-kj", "AB", None, None),
        ("C[i,j] += A[i,k] * A[j,k]", "ij-ik-jk", "AA", None, None),
        (
            "O[n,k,y,x] += I[n,c,y+r,2*x+s] * W[k,c,r,s]",
            "nkyx-nc[r+y][s+2x]-kcrs",
            "IW",
            None,
            None,
        ),
        ("C[row,col] += A[row,k] * B[k,col]", "ab-ak-kb", "AB", None, None),
        ("C[i,j] = a * sum(A[i,k] * B[k,j], k) + b * C[i,j]", "ij-ik-kj", "AB", "a", "b"),
        ("C[i,j] = C[i,j] + sum(2 * A[i,k] * B[k,j], k)", "ij-ik-kj", "AB", "2", "1"),
        ("D[i,l] += A[i,j] * B[j,k] * C[k,l]", "il-ij-jk-kl", "ABC", None, None),
    ],
)
def test_contractions_are_found(text, spec, operands, alpha, beta):
    """With their spec, operands and factors."""
    found, reason = find(text)
    assert not reason
    assert (str(found.spec), "".join(found.operands)) == (spec, operands)
    assert (found.alpha and str(found.alpha), found.beta and str(found.beta)) == (alpha, beta)


@pytest.mark.parametrize(
    ("text", "others", "reason"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", {"dtype": "int32"}, "one floating dtype, not of int32"),
        ("C[i,j] += A[i,k] * B[k,j]", {"where": "j <= i"}, "it runs where i >= j"),
        ("C[i,j] += A[i,k] * B[k,j] + B[i,k]", {}, "is no product of elements"),
        ("C[i,j] += A[i,k] / B[k,j]", {}, "is no product of elements"),
        ("C[i,j] += A[i,k+1] * B[k,j]", {}, "the subscript k\\+1 of A"),
        ("C[i,j] += A[i,k//2] * B[k,j]", {}, "the subscript k//2 of A"),
        ("C[i,j] += A[i,3-k] * B[k,j]", {}, "is no sum of letters alone"),
        ("C[i,j] += A[i,0] * B[k,j]", {}, "the subscript 0 of A"),
        ("C[i,j] = max(A[i,k] * B[k,j])", {}, "is no sum"),
        ("C[i,j] = A[i,j] * B[i,j]", {}, "is no sum over letters"),
        ("C[i,j] = sum(A[i,k], k) + B[i,j]", {}, "nor C\\[i,j\\] itself"),
        ("C[i,j] = C[i,j] - sum(A[i,k], k)", {}, "is no sum over letters"),
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
    problem = found.problem(computation)
    got = reference(problem, *(arrays[name] for name in found.operands))
    assert np.array_equal(got, evaluate(computation, arrays))
