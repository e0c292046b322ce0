"""The text for Halide: it is Python, refuses what it cannot say, and gives what stages give."""

from itertools import product

import numpy as np
import pytest
from turns import quick_pairs

import tilesolve
from tests.support.pipelines import blur, chain, harris, make, unsharp
from tilesolve.bench.nests import PipelineCase, run_function
from tilesolve.bench.pipelines import CASES
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.machine.model import Machine
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import FusedSolution
from tilesolve.pipelines.plan import PipelinePlan
from tilesolve.pipelines.solve import solve_pipeline

MACHINE = Machine.load("i7-6700k")
PIPELINES = [blur, harris, unsharp, lambda *x: chain(4, *x)]


def sums(height, width):
    """Sums of a term and of a product, with a choice and integers that are divided."""
    lines = [
        "a[y] = sum(I[y,x] * I[y,x], x)",
        "b[u] = where(a[u] > 3, a[u] / 2, 7)",
    ]
    return make(lines, {"y u": height, "x": width}, "int32")


def plan_of(computation, threads=2):
    return PipelinePlan(solve_pipeline(NestRequest(computation, MACHINE, threads)))


@pytest.mark.parametrize("make_one", PIPELINES)
def test_the_text_is_python_with_our_schedule(make_one):
    """Each stage of a group is computed within the root's loops."""
    plan = plan_of(make_one(283, 411))
    text = plan.to_halide()
    compile(text, "halide", "exec")
    for solution in plan.solutions:
        if isinstance(solution, FusedSolution):
            root = solution.statement.name
            for name in solution.placed:
                assert name == root or f"f_{name}.compute_at(f_{root}, " in text


def test_regions_and_updates_are_refused():
    """The error says so."""
    twice = make(["a[i] = x[i] + 1", "a[i] = a[i] * 2"], {"i": 8})
    with pytest.raises(PlanError, match="not written for Halide"):
        plan_of(twice).to_halide()


CALLS = list(product([1, 2], [283, 1024]))
"""Threads and rows."""


@pytest.mark.parametrize(
    ("make_one", "call"),
    [
        *quick_pairs([*PIPELINES[:-1], sums], CALLS),
        # Halide compiles a long chain for up to a minute.
        *(pytest.param(PIPELINES[-1], call, marks=pytest.mark.slow) for call in CALLS),
    ],
)
def test_halide_gives_what_stages_give(make_one, call):
    """At odd sizes, and where rings begin before the first row; integers bit for bit."""
    hl = pytest.importorskip("halide")
    threads, height = call
    computation = make_one(height, 411)
    rng = np.random.default_rng(1)
    arrays = {
        name: rng.integers(1, 255, computation.array(name).shape).astype(
            computation.array(name).dtype
        )
        for name in computation.inputs
    }
    wanted = evaluate(computation, arrays)
    scope = {}
    exec(plan_of(computation, threads).to_halide(), scope)
    found = np.zeros(wanted.shape, computation.output.dtype)
    scope["make"](arrays).realize(hl.Buffer(found))
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    else:
        np.testing.assert_array_equal(found, wanted)


def bordered(image):
    """Differences of rows, with others above and below."""
    rows = np.concatenate([image[:1], image[1:] * 2, image[-2:]])
    return rows[1:] - rows[:-1]


def realize(plan, arrays, out):
    """Put into an array what Halide makes of a plan's text."""
    hl = pytest.importorskip("halide")
    scope = {}
    exec(plan.to_halide(), scope)
    named = dict(zip(plan.computation.inputs, arrays, strict=True))
    scope["make"](named).realize(hl.Buffer(out))


def test_arrays_that_are_computed_in_parts_are_functions_with_choices():
    """Borders are parts in plans, and one function each here."""
    image = np.random.default_rng(1).random((40, 33), np.float32)
    plan = tilesolve.pipeline(bordered, machine=MACHINE, threads=2, cache=False).plan(image)
    assert len(plan.solutions) > len(plan.computation.stages) == 1
    assert "select(" in plan.to_halide()
    wanted = bordered(image)
    out = np.full_like(wanted, np.nan)
    realize(plan, [image], out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["interpolate", "pyramid_blend"])
def test_pyramids_that_are_computed_in_parts(name):
    """Halide compiles the first one for most of a minute."""
    case = PipelineCase(name, CASES[name].shrink(32))
    *arrays, out = case.draw()
    realize(plan_of(case.work.computation), arrays, out)
    np.testing.assert_allclose(out, run_function(case.work, arrays), rtol=1e-5, atol=1e-5)
