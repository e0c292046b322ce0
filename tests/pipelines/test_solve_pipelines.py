"""Decisions about pipelines: what runs together, where stages are kept, and what comes out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support.drawn_stages import draw_stages, fill
from tests.support.pipelines import blur, chain, harris, make, unsharp
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.regions import find_regions
from tilesolve.nests.request import NestRequest
from tilesolve.pipelines.footprints import GroupTiles
from tilesolve.pipelines.grouping import Graph
from tilesolve.pipelines.simplify import simplify
from tilesolve.pipelines.solve import fuse_group, solve_pipeline

MACHINE = Machine.load("i7-6700k")


def kept(computation):
    """How the stages that are left are kept."""
    simple = simplify(computation)
    regions = find_regions(simple)
    return GroupTiles(NestRequest(simple, MACHINE), regions, list(regions.extents)[-2]).kept


def test_stages_are_kept_as_in_the_thesis():
    """Rings of what rows share, rows of what columns share, and all others within terms."""
    assert kept(blur()) == {"bx": "ring"}
    assert kept(harris()) == {"gray": "ring", "iy": "ring", "ix": "ring"}
    assert kept(unsharp())["gray"] == "ring"
    assert kept(unsharp())["down"] == "rows"
    assert set(kept(chain(6)).values()) == {"ring"}


@pytest.mark.grid
@pytest.mark.parametrize("make_one", [blur, harris, unsharp, lambda *x: chain(4, *x)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fusion", ["slide", "overlap", "inline"])
def test_pipelines_give_what_stages_give_one_by_one(make_one, threads, fusion):
    """At odd sizes, all alternatives; integers bit for bit."""
    computation = make_one(83, 111)
    request = NestRequest(computation, MACHINE, threads, fusion=fusion)
    plan = NestPlan(solve_pipeline(request))
    rng = np.random.default_rng(1)
    given_arrays = {
        name: rng.integers(1, 255, computation.array(name).shape).astype(
            computation.array(name).dtype
        )
        for name in computation.inputs
    }
    wanted = evaluate(computation, given_arrays)
    found = plan(*given_arrays.values())
    if found.dtype.kind == "f":
        assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    else:
        assert np.array_equal(found, wanted)
    assert NestPlan.from_json(plan.to_json()) == plan


@examples(2, 4)
@given(st.data())
def test_drawn_graphs_have_the_bits_of_stages_one_by_one(data):
    """Stages of all kinds, with tiles larger than those that have none."""
    computation = bind_stages(*data.draw(draw_stages(most=4, largest=50)))
    threads = data.draw(st.integers(1, 2))
    request = NestRequest(computation, MACHINE, threads)
    arrays = fill(computation, 5)
    wanted = evaluate(computation, arrays)
    for fusion in ("slide", "overlap", "inline", "root"):
        plan = NestPlan(solve_pipeline(replace(request, fusion=fusion)))
        assert np.array_equal(plan(*arrays.values()), wanted.astype(computation.output.dtype))
    graph = Graph.of(request)
    for names in graph.fuse(list(graph.stages)):
        if len(names) > 1 and (together := fuse_group(graph.part(names))) is not None:
            assert together.computation.output.name == names[-1]


def test_contractions_and_updates_run_by_themselves():
    """What a plan computes better, and what cannot be computed a part at a time."""
    lines = [
        "half[i,k] = A[i,k] / 2",
        "C[a,j] = sum(half[a,m] * B[m,j], m)",
        "out[u,v] = max(C[u,v] + bias[v], 0)",
    ]
    computation = make(lines, {"i k a m j u v": 256})
    solved = solve_pipeline(NestRequest(computation, MACHINE))
    assert [one.kind.name for one in solved.solutions][1] == "CONTRACTION"
    assert [one.statement.name for one in solved.solutions] == ["half", "out"]  # C with bias
