"""Where C begins: what of its runs lies amid lines, what that costs, and which plan runs."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from commands import answer, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import quick_pairs

import tilesolve
from tilesolve import Machine, Problem, plan
from tilesolve.bench.case import place_array
from tilesolve.expressions.einsum import forget_calls
from tilesolve.expressions.planned import Planned
from tilesolve.model.lines import line_waste, share_amid_lines
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price
from tilesolve.planning.waiting import store_seconds
from tilesolve.plans import cache as plan_cache
from tilesolve.plans import plan as plans
from tilesolve.plans.plan import Plan

MACHINE = Machine.load("i7-6700k")
LINE = MACHINE.memory.line
SPEC, SIZES = "mn-mk-kn", {"m": 1100, "n": 1032, "k": 9}
"""C outgrows the last cache, and its sums are short."""


def aligned(problem):
    return replace(problem, aligned_output=True)


def count_starts(problem, box):
    """Return how many runs begin amid lines, and how many there are: C from a line on, in boxes."""
    rows, columns = problem.shape(0)
    starts = np.arange(rows)[:, None] * columns + np.arange(0, columns, box["n"])
    if box["n"] >= columns:  # runs go on into the next row
        starts = np.arange(0, rows * columns, columns * box["m"])
    return np.count_nonzero(starts * problem.itemsize % LINE), starts.size


@given(
    n=st.integers(1, 40),
    side=st.integers(1, 40),
    m=st.integers(2, 9),
    dtype=st.sampled_from(["float32", "float64", "complex128"]),
)
def test_whole_lines_have_no_ends_and_others_do(n, side, m, dtype):
    """No run is amid a line where none counts; where one counts, one is, in as many rows."""
    problem = aligned(Problem.of("mn-mk-kn", {"m": LINE, "n": n, "k": 4}, dtype))
    box = {"m": min(m, LINE) if side >= n else 1, "n": min(side, n)}
    amid, runs = count_starts(problem, box)
    share = float(share_amid_lines(problem, box, LINE))
    assert (share == 0) == (amid == 0 or runs == 1)
    assert 0 <= share < 1
    assert share_amid_lines(replace(problem, aligned_output=False), box, LINE) == 1


@given(n=st.integers(1, 40), rows=st.integers(1, 3))
def test_whole_rows_are_counted_one_by_one(n, rows):
    """The share is that of the runs whose first element is no line's first one."""
    problem = aligned(Problem.of("mn-mk-kn", {"m": 24, "n": n, "k": 4}))
    amid, runs = count_starts(problem, {"m": rows, "n": n})
    assert float(share_amid_lines(problem, {"m": rows, "n": n}, LINE)) == pytest.approx(amid / runs)


@pytest.mark.parametrize("lines", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_element_more_or_less_than_a_line(lines, dtype):
    """Runs of whole lines in rows of whole lines have no ends, those of one element less have."""
    elements = LINE // np.dtype(dtype).itemsize
    problem = aligned(Problem.of("mn-mk-kn", {"m": 8, "n": 20 * elements, "k": 4}, dtype))
    side = lines * elements
    shares = [
        float(share_amid_lines(problem, {"n": one}, LINE)) for one in (side - 1, side, side + 1)
    ]
    assert shares[1] == 0
    assert all(share > 0.5 for share in (shares[0], shares[2]))
    rows = aligned(Problem.of("mn-mk-kn", {"m": 8, "n": side + 1, "k": 4}, dtype))
    assert float(share_amid_lines(rows, {"n": side + 1}, LINE)) > 0.5


@settings(max_examples=60)
@given(st.data())
def test_an_aligned_output_never_costs_more(data):
    """Of a nest and of boxes; as much where no run is whole lines but for its ends' share."""
    call = {i: data.draw(st.integers(1, 9)) for i in "bmn"} | {"k": 4}
    tile = {i: side * data.draw(st.integers(1, 3)) for i, side in call.items() if i != "k"}
    sizes = {i: side * data.draw(st.integers(1, 2)) for i, side in tile.items()} | {"k": 4}
    problem = Problem.of("bmn-bmk-bkn", sizes)
    bands = [("register", "kmnb", call), ("L1", "kmnb", tile | {"k": 4}), ("memory", "kmnb", sizes)]
    nest = Nest.of(problem, bands, output="stream")
    cost = compute_price(problem, nest, MACHINE)
    at_line, amid = (store_seconds(one, nest, cost, MACHINE) for one in (aligned(problem), problem))
    assert at_line <= amid
    sides = {"n": np.arange(1, sizes["n"] + 1)}
    known = {i: call[i] for i in "bmk"}
    wasted, usual = (
        line_waste(one, sides, known, LINE, [problem.spec.output], ends=500.0)
        for one in (aligned(problem), problem)
    )
    assert (wasted <= usual).all()
    bare = line_waste(problem, sides, known, LINE, [problem.spec.output])
    whole = (np.arange(1, sizes["n"] + 1) * 8 % LINE == 0) & (sizes["n"] * 8 % LINE == 0)
    np.testing.assert_array_equal(wasted[whole], bare[whole])


@pytest.mark.parametrize(("machine", "n"), quick_pairs(["i7-6700k", "e5-2680v4"], [1031, 1032]))
def test_both_plans_give_numpys_result_wherever_c_begins(machine, n):
    """Plans take any output, and differ in their price: whole lines wait for nothing."""
    sizes = SIZES | {"n": n, "m": 4600}
    first, second = np.random.rand(4600, 9), np.random.rand(9, n)
    found = [plan(SPEC, sizes, machine, aligned_output=one, cache=False) for one in (False, True)]
    assert [one.output for one in found] == ["stream", "stream"]
    assert found[1].solution.score <= 1.01 * found[0].solution.score
    if n % 8 == 0:
        assert found[1].solution.score < found[0].solution.score
    for one in found:
        for offset in (0, 16):
            out = place_array((4600, n), "float64", offset)
            out.fill(np.nan)
            np.testing.assert_allclose(one(first, second, out), first @ second, rtol=1e-12)
        again = one.whatif(compute=0.5)
        assert again.problem == one.problem


def test_plans_are_kept_apart_and_read_again():
    """In memory, on disk and as JSON; a file from before says nothing, and is of C amid lines."""
    usual, at_line = (plan(SPEC, SIZES, MACHINE, aligned_output=one) for one in (False, True))
    assert plan(SPEC, SIZES, MACHINE) is usual != at_line
    assert plan(SPEC, SIZES, MACHINE, aligned_output=True) is at_line
    assert plan(at_line.problem, machine=MACHINE) == at_line
    plan_cache.forget()
    assert plan(SPEC, SIZES, MACHINE, aligned_output=True) == at_line
    assert (
        plan("qp,rq->rp", {"r": 1100, "p": 1032, "q": 9}, MACHINE).problem.aligned_output is False
    )
    for one in (usual, at_line):
        assert Plan.from_json(one.to_json()) == one
    data = json.loads(usual.to_json())
    del data["problem"]["aligned_output"], data["checksum"]
    assert Plan.from_json(json.dumps(data)) == usual


def test_what_stays_in_caches_is_solved_once(monkeypatch):
    """Where C goes through the caches the plan for the other place is read, not solved."""
    usual = plan("mn-mk-kn", 96, MACHINE)
    monkeypatch.setattr(plan_cache, "pick_fastest_measured", lambda *_: pytest.fail("solved"))
    at_line = plan("mn-mk-kn", 96, MACHINE, aligned_output=True)
    assert at_line.problem == aligned(usual.problem)
    assert (at_line.nest, at_line.price) == (usual.nest, usual.price)


def test_the_report_and_the_command_say_how_c_is_priced():
    sizes = [f"{letter}={extent}" for letter, extent in SIZES.items()]
    asked = ("plan", SPEC, *sizes, "--machine", "i7-6700k")
    usual, at_line = answer(*asked), answer(*asked, "--aligned-output")
    assert "C is priced as it begins amid a line: ends of runs lie amid lines in 100%" in usual
    assert "aligned C on i7-6700k" in at_line
    assert "C is priced as it begins with a line: ends of runs lie amid lines in 0%" in at_line
    assert "priced" not in answer("plan", SPEC, "64", "--machine", "i7-6700k")
    layer = "c=64 h=56 w=56 k=64 r=3 s=3 padding=1"
    assert "takes no --aligned-output" in refused("plan", "--conv", layer, "--aligned-output")


@pytest.fixture
def solved(monkeypatch):
    """The problems that were solved, none of which is kept before."""
    monkeypatch.setenv("TILESOLVE_MACHINE", "i7-6700k")
    found = []
    usual = plan_cache.pick_fastest_measured

    def note(problem, *others):
        found.append(problem)
        return usual(problem, *others)

    monkeypatch.setattr(plan_cache, "pick_fastest_measured", note)
    plan_cache.clear()
    forget_calls()
    return found


@pytest.fixture
def called(monkeypatch):
    """Whether each plan that ran is for outputs at lines."""
    found = []
    usual = plans.Plan.__call__

    def note(self, *operands, **options):
        found.append(self.problem.aligned_output)
        return usual(self, *operands, **options)

    monkeypatch.setattr(plans.Plan, "__call__", note)
    return found


SHAPES = ((1100, 40), (40, 1032))


@pytest.mark.parametrize("constants", [(), (1,)])
def test_an_expression_plans_for_where_its_result_begins(constants, solved, called):
    """New results begin with lines; another plan is made when an output first begins amid one."""
    first, second = map(np.random.rand, *zip(*SHAPES, strict=True))
    given = (SHAPES[0], second) if constants else SHAPES
    found = tilesolve.expression("ij,jk->ik", *given, constants=constants)
    operands = (first,) if constants else (first, second)
    before = len(solved)
    assert all(problem.aligned_output for problem in solved)
    places = [None, *(place_array((1100, 1032), "float64", offset) for offset in (0, 16, 16))]
    for out in places:
        if out is not None:
            out.fill(np.nan)
        np.testing.assert_allclose(found(*operands, out=out), first @ second, rtol=1e-12)
    assert called == [True, True, False, False]
    assert 0 < len(solved) - before <= 2
    assert not any(problem.aligned_output for problem in solved[before:])


def test_einsum_solves_for_the_outputs_that_it_is_given(solved, called):
    """One problem for each place that results have had, and no other one."""
    first, second = np.random.rand(1100, 90), np.random.rand(90, 1032)
    for offset, expected in ((16, [False]), (0, [False, True]), (None, [False, True, True])):
        out = None if offset is None else place_array((1100, 1032), "float64", offset)
        result = tilesolve.einsum("ij,jk->ik", first, second, out=out)
        np.testing.assert_allclose(result, first @ second, rtol=1e-12)
        assert called == expected
    assert [problem.aligned_output for problem in solved] == [False, True]


@pytest.mark.parametrize("place", [None, 0, 16])
def test_a_layer_plans_for_where_its_result_begins(place, solved, called):
    """With the same weights, packed for each plan that depends on it."""
    weights, x = np.random.rand(64, 8, 1, 1), np.random.rand(1, 8, 160, 160)
    layer = tilesolve.conv_layer(x.shape, weights)
    assert layer.plan.output == "stream"
    expected = np.einsum("nchw,kc->nkhw", x, weights[:, :, 0, 0])
    out = None if place is None else place_array(expected.shape, "float64", place)
    for _ in range(2):
        np.testing.assert_allclose(layer(x, out), expected, rtol=1e-12)
    assert called == [place != 16] * 2
    assert [problem.aligned_output for problem in solved] == [True] + [False] * (place == 16)


def test_a_step_that_is_transposed_runs_the_plan_for_new_arrays():
    """Its result is copied to an output, wherever that begins."""
    found = plan(SPEC, SIZES, MACHINE, aligned_output=True)
    step = Planned("mk,kn->nm", found, (None, None, (1, 0)))
    first, second = np.random.rand(1100, 9), np.random.rand(9, 1032)
    out = place_array((1032, 1100), "float64", 16)
    assert step.plan_for(step.find_target(out)) is found
    np.testing.assert_allclose(step(first, second, out=out), (first @ second).T, rtol=1e-12)
    across = place_array((1100, 1032), "float64", 16).T
    assert not step.plan_for(step.find_target(across)).problem.aligned_output
    np.testing.assert_allclose(step(first, second, out=across), (first @ second).T, rtol=1e-12)


def test_a_problem_with_an_aligned_output_goes_through_pickle():
    """It is not the problem of an output amid a line."""
    problem = replace(Problem.of(SPEC, SIZES), aligned_output=True)
    assert pickle.loads(pickle.dumps(problem)) == problem
