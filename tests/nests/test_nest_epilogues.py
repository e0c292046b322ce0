"""Contractions with what follows them, on parts of arrays and in boxes, beside NumPy."""

import numpy as np
import pytest

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.plan import nest
from tilesolve.nests.solutions import BlockSolution, ContractionSolution

STATEMENTS = [
    "C[i,j] = max(sum(A[i,k] * B[k,j], k) + b[j], 0)",
    "C[i,j] = R[j,i+1] + s[i] * sum(A[i,k+1] * B[k,j], k)",
    "C[i,j] = max(C[i,j] + 2 * sum(A[i,k] * B[k+2,j], k) + A[i,0], 1)",
    "C[i,j] = min(sum(A[i,k] * B[k,j], k) + D[3,1] + sum(B[j,l] * A[i,l], l), 6)",
    "O[c,y] = max(sum(W[1,c,d,r] * I[d,y+2*r+1], d, r), -3)",
]


@pytest.mark.grid
@pytest.mark.parametrize("text", STATEMENTS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(text, threads, dtype):
    """All that an epilogue has; elements outside of a box stay."""
    for where in ([], ["1 <= i < 15"] if "i" in text else ["y >= 3"]):
        plan = nest(
            text, 17, dtype, where=where, machine="i7-6700k", threads=threads, route="contraction"
        )
        (solution,) = plan.solutions
        assert isinstance(solution, BlockSolution if where else ContractionSolution)
        stages = parse_stages(text, where)
        computation = bind_stages(stages, 17, dtype)
        rng = np.random.default_rng(0)
        arrays = {
            name: rng.integers(-3, 4, computation.array(name).shape).astype(dtype)
            for name in computation.inputs
        }
        wanted = evaluate(computation, arrays)
        assert np.array_equal(plan(**arrays), wanted)
        out = np.full(wanted.shape, 77, dtype)
        inside = np.ones(wanted.shape, bool)
        if where:
            inside = np.zeros(wanted.shape, bool)
            inside[(slice(1, 15),) if "i" in text else (slice(None), slice(3, None))] = True
        old = arrays.get("C", out)
        plan(**arrays, out=out)
        assert np.array_equal(out, np.where(inside, wanted, old))
        assert type(plan).from_json(plan.to_json()) == plan
