"""Sums of products of three and more elements become products of fewer, with the same values."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.nests.factors import yield_factored
from tilesolve.nests.plan import nest

SUMS = {
    "C[i,j] += A[i,k] * B[k,j] * w[k]": "ik,kj,k->ij",
    "C[i,j] += A[i,k] * B[j,k] * D[i,j]": "ik,jk,ij->ij",
    "C[i,r] += A[i,j,k] * B[j,r] * D[k,r]": "ijk,jr,kr->ir",
    "C[i,j] += A[i,k] * B[k,j] * w[k] * D[j]": "ik,kj,k,j->ij",
    "C[i] += A[i,k] * A[i,k] * w[k]": "ik,ik,k->i",
}


@pytest.mark.parametrize("text", SUMS)
def test_products_of_many_elements_have_numpys_values(text: str) -> None:
    plan = nest(text, 12, "float64", machine="i7-6700k", cache=False)
    rng = np.random.default_rng(1)
    made = plan.computation
    arrays = {name: rng.standard_normal(made.array(name).shape) for name in plan.inputs}
    right = np.einsum(SUMS[text], *[arrays[name] for name in re.findall(r"(\w)\[", text)[1:]])
    assert np.allclose(plan(**arrays), right)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", ""),
        ("C[i,j] += A[i,k] * B[k,j] * w[k]", "j <= i"),
        ("C[i,j] = max(A[i,k] * B[k,j] * w[k], k)", ""),
        ("C[i,j] += A[i,k] * B[k,j] * w[k+1]", ""),
    ],
)
def test_other_statements_stay_whole(text: str, where: str) -> None:
    found = bind_stages(parse_stages(text, where), 9)
    assert not list(yield_factored(found))


def test_integers_stay_whole() -> None:
    stages = parse_stages("C[i,j] += A[i,k] * B[k,j] * w[k]")
    assert not list(yield_factored(bind_stages(stages, 9, "int32")))


def test_a_small_product_is_a_plan_where_that_is_predicted_to_take_less() -> None:
    machine = Machine.load("i7-6700k")
    crossed = nest("C[i,j] += A[k,i] * B[j,k]", 96, "float32", machine=machine, cache=False)
    loops = nest("C[i,j] += A[k,i] * B[j,k]", 96, machine=machine, route="nest", dtype="float32")
    assert crossed.seconds <= loops.seconds
