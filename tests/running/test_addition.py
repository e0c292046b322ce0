"""Threads that divide a sum: what they find is added to C, in any layout, bit by bit the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_epilogues import apply_epilogue
from running_cases import (
    check_result,
    check_run,
    draw_operands,
    lay_out,
    make_machine,
    make_shallow_machine,
)
from turns import examples

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.reference import reference
from tilesolve.planning.demand import Demand
from tilesolve.planning.solve import rank
from tilesolve.plans.plan import Plan, plan

pytestmark = pytest.mark.usefixtures("any_tiles")

MACHINE = make_shallow_machine(256, 16)
SPECS = ("ab-ka-kb", "ba-ka-kb", "a-ka-k", "ab-kal-lbk", "gab-gka-kgb", "abg-kag-kbg", "ab-ka-b")
SLOW = examples(4, 8, settings(suppress_health_check=list(HealthCheck)))


def summing(problem, threads, machine=MACHINE, **demand):
    """Return the best plan whose threads divide a sum."""
    found = rank(problem, machine, threads, Demand(**demand))
    return Plan(next(one for one in found if one.partial_outputs))


@SLOW
@given(data=st.data())
def test_any_layout_and_factor(data):
    """Whatever the dtype, the axes and the threads: gaps of C keep what they had."""
    spec, dtype = data.draw(st.sampled_from(SPECS)), data.draw(st.sampled_from(DTYPES))
    sizes = {i: data.draw(st.integers(1, 6), i) for i in dict.fromkeys(spec) if i != "-"}
    threads = data.draw(st.integers(2, 5), "threads")
    sizes["k"] = data.draw(st.integers(180, 700), "k")
    problem = Problem.of(spec, sizes, dtype)
    found = summing(problem, threads, overwrite=data.draw(st.booleans()))
    operands = draw_operands(problem)
    order = data.draw(st.permutations(range(len(problem.shape(0)))))
    whole, out = lay_out(
        problem.shape(0), dtype, order, data.draw(st.integers(0, 2)), data.draw(st.booleans())
    )
    assert found(*operands, out) is out
    expected = reference(problem, *operands)
    check_result(problem, out, expected, operands)
    before = out.copy()
    found(*operands, out, alpha=-0.5, beta=2)
    check_result(problem, out, 2 * before - 0.5 * expected, operands, scale=4)
    assert np.count_nonzero(~np.isnan(whole)) == out.size


@pytest.mark.grid
@pytest.mark.parametrize("sums", [2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_sums_around_the_number_of_threads(sums, threads):
    """Some threads may have nothing to do."""
    problem = Problem.of("-kc-k", {"k": sums, "c": 90})
    found = Plan(next(o for o in rank(problem, MACHINE, threads, Demand()) if o.split == "k"))
    check_run(found)


def test_results_repeat_bit_by_bit():
    """Parts are added in the order of the threads, whichever is done first."""
    found = summing(Problem.of("ab-ka-kb", "a=33 b=17 k=9000", "float32"), 4)
    operands = draw_operands(found.problem)
    first = found(*operands)
    for _ in range(20):
        np.testing.assert_array_equal(found(*operands), first)
    step = found.share.sizes["k"]
    parts = [
        np.einsum("ka,kb->ab", *(one[at : at + step].astype("float64") for one in operands))
        for at in range(0, 9000, step)
    ]
    np.testing.assert_allclose(first, sum(parts), rtol=0, atol=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_is_applied_once_after_the_last_part(dtype):
    """Operands of a chain, and functions that would show if they were applied to parts."""
    text = "*b + +ba" if dtype.startswith("complex") else "+b relu *ba leaky(0.25) + relu6"
    problem, chain = Problem.of("ab-ka-kb", "a=13 b=9 k=4000", dtype), Epilogue.parse(text)
    found = summing(problem, 3, epilogue=chain)
    operands = draw_operands(problem)
    others = [np.asarray(np.random.default_rng(1).standard_normal(shape), dtype)
              for shape in chain.shapes(problem)]  # fmt: skip
    for out in (None, np.full((9, 13), np.nan, dtype).T):
        result = found(*operands, out, operands=others)
        wide = reference(problem, *operands)
        expected = apply_epilogue(chain, problem, wide, [one.astype(wide.dtype) for one in others])
        scale = np.abs(wide).max() * 16
        assert np.abs(result - expected).max() < 4000 * np.finfo(dtype).eps * scale
    with pytest.raises(SizeError, match="operand 0"):
        found(*operands, operands=[others[0][1:], *others[1:]])


def test_what_is_no_number_and_signs_of_zero_stay():
    """As with one thread: also where only one part has them, and with no warning."""
    problem = Problem.of("ab-ka-kb", "a=2 b=6 k=900")
    rows, columns = np.ones((900, 2)), np.zeros((900, 6))
    for at, value in enumerate((np.nan, np.inf, -np.inf, 0.0)):
        columns[800, at] = value
    columns[0, 1], columns[0, 4] = -np.inf, 1e300
    one, two = plan(problem, machine=MACHINE, cache=False), summing(problem, 2)
    with np.errstate(all="raise"):
        for alpha in (1.0, -1.0):
            wanted, found = (each(rows, columns, alpha=alpha) for each in (one, two))
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(np.signbit(found[:, 3:]), np.signbit(wanted[:, 3:]))


@pytest.mark.parametrize("name", ["relu6", "tanh"])
def test_chains_without_operands_leave_no_trace_of_parts(name):
    """Called again with the same arrays, too: calls that are known to be alike go the same way."""
    problem, chain = Problem.of("ab-ka-kb", "a=5 b=7 k=1200", "float32"), Epilogue.parse(name)
    found = summing(problem, 2, epilogue=chain)
    operands, out = draw_operands(problem), np.full((5, 7), np.nan, "float32")
    expected = apply_epilogue(chain, problem, reference(problem, *operands), ())
    for _ in range(3):
        found(*operands, out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=2e-3)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("spec", "sizes", "split"),
    [
        ("hwk-[h+r][w+s]c-rsck", "h=4 w=4 k=8 c=90 r=3 s=3", "c"),
        ("khw-c[2h+r][w+s]-kcrs", "h=3 w=4 k=3 c=1 r=21 s=5", "r"),
        ("rsck-[h+r][w+s]c-hwk", "h=40 w=20 k=4 c=4 r=3 s=3", "h"),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("threads", [2, 3])
def test_windows_and_padding(spec, sizes, split, padded, threads):
    """Channels, filter rows, and rows of images where weights are what is computed."""
    padding = [Padding(1, axis, 1, 1) for axis in ((0, 1) if "c-" in spec else (1, 2))]
    problem = Problem.of(spec, sizes, "float32", padding if padded else ())
    found = summing(problem, threads)
    assert found.split == split
    check_run(found)


def test_prepared_operands():
    """Each thread has its part of the micro-panels; the array is as good."""
    problem = Problem.of("ab-ka-kb", "a=8 b=32 k=3000", "float32", constant=(2,))
    found, operands = summing(problem, 2), draw_operands(problem)
    ready = found.prepare(operands[1])
    for second in (ready, operands[1]):
        check_run(found, (operands[0], second))
    assert ready.nbytes >= operands[1].nbytes


def test_more_elements_of_c_than_a_table_has():
    """C is added to in several boxes."""
    problem = Problem.of("ab-ka-kb", "a=500 b=300 k=1200", "float32")
    found = summing(problem, 2)
    check_run(found)


@pytest.mark.grid
@pytest.mark.parametrize("sizes", [(500, 300), (500, 7), (1, 300)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("chain", ["relu", "+b relu", "*a +ba"])
def test_a_chain_goes_over_blocks_of_runs(sizes, turned, chain):
    """Along what lies side by side in C, and all of it at once where no letter lies between."""
    extents = dict(zip("ab", sizes, strict=True))
    problem = Problem.of("ab-ka-kb", {"k": 2000} | extents, "float32")
    found = summing(problem, 2, epilogue=Epilogue.parse(chain))
    operands = draw_operands(problem)
    rng = np.random.default_rng(1)
    others = [rng.standard_normal(n).astype("float32") for n in found.epilogue.shapes(problem)]
    out = np.full(sizes[:: -1 if turned else 1], np.nan, "float32")
    out = out.T if turned else out
    found(*operands, out, operands=others)
    wide = reference(problem, *operands)
    expected = apply_epilogue(
        found.epilogue, problem, wide, [one.astype(wide.dtype) for one in others]
    )
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
    layout, *_ = found.executor.layouts.values()
    addition = layout.addition
    assert len(addition.blocks) == 1
    assert addition.run.steps[0] == out.itemsize
    whole = chain == "relu" or 1 in sizes
    assert addition.run.extent == (out.size if whole else sizes[0 if turned else 1])


@pytest.mark.parametrize("strategy", ["solver", "composition", "slicing"])
def test_every_strategy_may_divide_a_sum(strategy):
    """A scheme, given for as many threads, divides it again."""
    problem = Problem.of("ab-ka-kb", "a=24 b=24 k=6000")
    found = summing(problem, 2, make_machine(256, 16), strategy=strategy)
    check_run(found)
    assert Plan.from_json(found.to_json()) == found
    assert str(found.scheme).startswith("[T2,k,")
    if strategy != "composition":  # ragged tiles count as whole in a scheme
        return
    again = plan(problem, machine=found.machine, threads=2, scheme=found.scheme, cache=False)
    assert again.split == found.split == "k"
    check_run(again)


def test_a_batch_and_other_letters():
    """Batches run on one core each; cached plans have the names of the problem that asks."""
    found = plan("ij-xi-xj", "i=16 j=8 x=40000", MACHINE, threads=2)
    assert found.split == "x"
    operands = draw_operands(found.problem)
    (result,) = found.batch(*([one] for one in operands))
    check_result(found.problem, result, reference(found.problem, *operands), operands)


def test_what_a_report_says():
    found = summing(Problem.of("ab-ka-kb", "a=16 b=16 k=6000"), 3, epilogue=Epilogue.parse("relu"))
    report = str(found)
    assert "3 threads dividing 'k'" in report
    assert "threads divide the sum over k: 2 partial outputs of 2.05 kB, added to C" in report
    assert "epilogue relu: on C once it is whole" in report


def test_out_is_checked_before_anything_is_written():
    found = summing(Problem.of("ab-ka-kb", "a=4 b=4 k=400"), 2)
    rows, columns = draw_operands(found.problem)
    out = np.zeros((4, 4))
    out.flags.writeable = False
    with pytest.raises(PlanError, match="out"):
        found(rows, columns, out)
    with pytest.raises(PlanError, match="no out"):
        found(rows, columns, beta=1)
    with pytest.raises(PlanError, match="memory"):
        found(rows, columns, rows[:4])


def test_an_interrupt_leaves_workers_only_memory_of_their_own(monkeypatch):
    """Ctrl-C in the first thread's part is raised once all are done; the next call is right."""
    from tilesolve.running import execution

    found = summing(Problem.of("ab-ka-kb", "a=16 b=16 k=60000"), 2)
    operands = draw_operands(found.problem)
    usual = execution.run_together

    def interrupted(jobs, *, long):
        def raising():
            raise KeyboardInterrupt

        usual([raising, *jobs[1:]], long=long)

    with monkeypatch.context() as patched:
        patched.setattr(execution, "run_together", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found(*operands)
    check_run(found, operands)


def test_sums_of_halves_are_not_divided():
    """What each thread finds would be rounded before it is added."""
    sizes = {"a": 24, "b": 24, "k": 6000}
    found = plan("ab-ka-kb", sizes, MACHINE, dtype="float16", threads=2, cache=False)
    assert found.split in ("a", "b")
    data = json.loads(summing(Problem.of("ab-ka-kb", sizes, "float32"), 2).to_json())
    data["problem"]["dtype"] = "float16"
    del data["checksum"]
    with pytest.raises(PlanError, match="divide the sum over 'k', and parts of halves round"):
        Plan.from_json(json.dumps(data))
