import gc
import html
import re
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from einsum_cases import set_costs
from guessed_tiles import guessed_tiles
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_cases import NETWORKS, SIZES

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    MemoryLimitError,
    PlanError,
    SizeError,
    SpecError,
)
from tilesolve.expressions import contraction_order
from tilesolve.expressions.contraction_order import contraction_steps
from tilesolve.expressions.dispatch import Options, Request
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import ALIGNMENT_BYTES, GUARD_BYTES
from tilesolve.running.execution import Layout

CHAIN = "abcd,cdef,efgh->abgh"
CHAIN_SHAPES = [(6, 5, 4, 7), (4, 7, 3, 8), (3, 8, 5, 6)]


ALWAYS = 1e-9
"""A cost from which on something is done whatever its size, or up to which nothing is."""


def random(shapes, seed=0, dtype="f8"):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def test_it_is_called_again_and_again():
    """An expression gives numpy's result each time, in new memory or in `out`."""
    found = tilesolve.expression(CHAIN, *CHAIN_SHAPES)
    out = np.empty((6, 5, 5, 6))
    for seed in range(3):
        operands = random(CHAIN_SHAPES, seed)
        expected = np.einsum(CHAIN, *operands, optimize=True)
        np.testing.assert_allclose(found(*operands), expected, rtol=1e-12)
        assert found(*operands, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-12)
    first, second = found(*operands), found(*operands)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("text", NETWORKS[::4])
@pytest.mark.parametrize("least", [ALWAYS, 1e9])
def test_every_route_gives_the_same(text, least, monkeypatch):
    """With plans wherever one can run, and with none, results are numpy's."""
    terms, _, output = text.partition("->")
    terms = terms.split(",")
    if not text.count("->") or len(terms) < 2 or any(len(set(x)) < len(x) for x in terms):
        pytest.skip("what `contraction_steps` takes has an output and no diagonal")
    once = {x for x in terms[0] if not any(x in y for y in (*terms[1:], output))}
    if once or any(sum(x in y for y in (*terms, output)) == 1 for term in terms for x in term):
        pytest.skip("letters of one operand alone are summed before")
    operands = random([[SIZES[x] for x in term] for term in terms])
    set_costs(monkeypatch, einsum_loop_products=ALWAYS, einsum_kernel_flops=least)
    steps = contraction_steps(Request(SIZES, np.dtype("f8")), terms, output)
    at_hand = list(operands)
    for step in steps:
        taken = [at_hand[at] for at in step.takes]
        at_hand = [array for at, array in enumerate(at_hand) if at not in step.takes]
        at_hand.append(step.kernel(*taken))
    expected = np.einsum(text, *operands, optimize="greedy")
    np.testing.assert_allclose(at_hand[0], expected, rtol=1e-9, atol=1e-9)
    assert least > 1 or any(step.kernel.route in ("plan", "matmul", "multiply") for step in steps)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_plans_run_where_they_pay(dtype):
    """Large products of every dtype of ours are planned, and the report says so."""
    found = tilesolve.expression("ij,jk->ik", (150, 150), (150, 150), dtype=dtype)
    assert found.planned
    assert "plan, " in str(found)
    a, b = random([(150, 150)] * 2, dtype=dtype)
    exact = a.astype("complex256") @ b.astype("complex256")
    assert np.abs(found(a, b) - exact).max() < 150 * 4 * np.finfo(dtype).eps
    small = tilesolve.expression("ij,jk->ik", (50, 50), (50, 50), dtype=dtype)
    assert not small.planned
    assert "plans take from" in str(small)


def test_integers_are_never_planned():
    """However large, integers are computed exactly by numpy, and the report says so."""
    found = tilesolve.expression("ij,jk->ik", (170, 160), (160, 150), dtype="int64")
    assert "int64 is computed exactly, by numpy" in str(found)
    big = np.full((170, 160), 2**60 + 3)
    np.testing.assert_array_equal(found(big, big.T[:, :150]), big @ big.T[:, :150])


def test_shapes_may_come_from_arrays():
    """An array stands for its shape and dtype, a tuple for a shape of the dtype given."""
    found = tilesolve.expression("ij,jk", np.ones((2, 3), "f4"), (3, 4), dtype="i2")
    assert found.dtypes == (np.dtype("f4"), np.dtype("i2"))
    assert found(np.ones((2, 3), "f4"), np.ones((3, 4), "i2")).dtype == np.float32


def test_what_the_report_says():
    """It has the letters and sizes, each step with its route and why, and the bytes."""
    found = tilesolve.expression("ii j,jk...,k->i...", (3, 3, 4), (4, 300, 5, 1), (300,))
    lines = str(found).splitlines()
    assert lines[0].endswith("i=3 j=4 k=300 α=5 β=1 float64")
    assert "at most" in lines[2]
    assert any("iij->ij" in line and "view" in line for line in lines)
    assert sum(line.startswith("step ") for line in lines) == len(found.steps)
    assert repr(found).startswith("<Expression 'ii j,jk...,k->i...' of (3, 3, 4), ")
    assert found.flops == sum(step.flops for step in found.steps)


def test_notebooks_show_the_report_as_a_table():
    """All words of the report, escaped, and its table as one."""
    found = tilesolve.expression("ii j,jk...,k->i...", (3, 3, 4), (4, 300, 5, 1), (300,))
    text = found._repr_html_()
    words = [html.unescape(word) for word in re.sub("<[^<>]*>", " ", text).split()]
    assert words == str(found).split()
    assert "<th>route</th>" in text
    assert "-&gt;" in text


# Layouts of intermediate results


def test_an_intermediate_is_written_as_the_next_step_wants_it(monkeypatch):
    """Below the size that is priced, what the next step sums over comes before what it keeps."""
    sizes = dict.fromkeys("abcdef", 40)
    set_costs(monkeypatch, einsum_kernel_flops=ALWAYS)
    request = Request(sizes, np.dtype(float), Options(optimize=False))
    steps = contraction_steps(request, ["abcd", "cdef", "efa"], "b")
    made = steps[0].kernel.text.split("->")[1]
    assert steps[0].kernel.route == "plan"
    assert set(made) == set("abef")
    assert made.endswith("b")


def test_large_intermediates_take_the_layout_of_the_fastest_plans(monkeypatch):
    """Of the layouts that are compared, the one whose two plans score least is taken."""
    asked = []
    planned = contraction_order._planned

    def counted(request, first, second, output, final=False):
        step = planned(request, first, second, output, final)
        asked.append((first, second, output, step.plan.solution.score))
        return step

    monkeypatch.setattr(contraction_order, "_planned", counted)
    sizes = {"a": 24, "b": 20, "c": 16, "d": 12, "e": 20, "f": 24, "g": 16}
    tensors = ["abcd", "cdef", "ebg"]
    set_costs(monkeypatch, einsum_kernel_flops=ALWAYS, einsum_layout_flops=ALWAYS)
    request = Request(sizes, np.dtype(float), Options(optimize=False))
    steps = contraction_steps(request, tensors, "afg")
    made = steps[0].kernel.text.split("->")[1]
    here = {output: score for first, _, output, score in asked if first == "abcd"}
    there = {first: score for first, _, _, score in asked if first != "abcd"}
    assert len(here) >= 2
    prices = {letters: here[letters] + there[letters] for letters in here if letters in there}
    assert prices[made] == min(prices.values())
    one, two, three = random([[sizes[x] for x in letters] for letters in tensors])
    pair = {0: three, 1: steps[0].kernel(one, two)}
    found = steps[1].kernel(*(pair[at] for at in steps[1].takes))
    np.testing.assert_allclose(
        found, np.einsum("abcd,cdef,ebg->afg", one, two, three, optimize=True), atol=1e-9
    )


# Memory


def check_peak(call: Callable[[], object], most: float) -> int:
    """Check that a call allocates so many bytes at once at most, and return how many.

    Other threads of the process (the test runner's own) allocate meanwhile, too, but not always.
    """
    for _ in range(20):
        gc.collect()
        tracemalloc.start()
        call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak <= most:
            return peak
    raise AssertionError(f"{peak} bytes, not {most}, beside {threading.enumerate()}")


def test_the_memory_that_is_reported_is_what_is_used():
    """numpy's allocations while it runs stay within the peak that the report gives."""
    for text, shapes in [
        ("abc,cde,ebf->adf", [(10, 20, 15), (15, 12, 18), (18, 20, 14)]),
        ("ijk,jl,kl->i", [(30, 40, 50), (40, 60), (50, 60)]),
        ("iij,jk->ik", [(40, 40, 50), (50, 60)]),
        ("ijk,kl->lij", [(30, 31, 32), (32, 33)]),
        ("ijx,jk,y->ik", [(60, 70, 40), (70, 80), (50,)]),
    ]:
        found = tilesolve.expression(text, *shapes)
        assert not found.planned
        operands = random(shapes)
        out = np.empty(found.shape)
        found(*operands, out=out)
        call = partial(found, *operands, out=out)
        peak = check_peak(call, found.peak + 10_000)
        if found.peak > 50_000:
            assert peak >= found.peak / 2, text


def test_a_memory_limit_changes_the_order_or_is_refused():
    """Within the limit another order is taken; where none fits, nothing is computed."""
    text, shapes = "ab,bc,cd->ad", [(4, 300), (300, 300), (300, 4)]
    free = tilesolve.expression(text, *shapes)
    held = tilesolve.expression(text, *shapes, memory_limit=free.peak)
    assert held.peak <= free.peak
    operands = random(shapes)
    np.testing.assert_allclose(held(*operands), np.einsum(text, *operands, optimize=True))
    out = np.full((4, 4), 7.0)
    for limit in (0, 100):
        with pytest.raises(MemoryLimitError, match="memory_limit") as caught:
            tilesolve.einsum(text, *operands, out=out, memory_limit=limit)
        assert isinstance(caught.value, MemoryError)
    assert (out == 7).all()
    text, shapes = "a,b,c->abc", [(30,), (40,), (50,)]
    with pytest.raises(MemoryLimitError):
        tilesolve.expression(text, *shapes, memory_limit=0)
    with pytest.raises(MemoryLimitError, match=r"needs .* bytes"):
        tilesolve.expression("ij,jk", (300, 300), (300, 300), memory_limit=10)
    with pytest.raises(MemoryLimitError):
        tilesolve.expression("ijk,kl", np.ones((30, 40, 50), "f4"), (50, 60), memory_limit=1000)


def test_a_limit_makes_opt_einsum_choose_smaller_intermediates():
    """With a limit between them, the order with the smaller intermediates is taken."""
    text, shapes = "b,cd,dec,bc->de", [(3,), (8, 20), (20, 20, 8), (3, 8)]
    free = tilesolve.expression(text, *shapes)
    limit = max(step.result for step in free.steps[:-1]) // 2
    held = tilesolve.expression(text, *shapes, memory_limit=limit)
    assert max(step.result for step in held.steps[:-1]) <= limit
    operands = random(shapes)
    np.testing.assert_allclose(held(*operands), free(*operands))


# Threads


def test_threads_may_call_one_expression_at_once():
    """Several threads with data of their own get their own results."""
    found = tilesolve.expression(CHAIN, *CHAIN_SHAPES)
    data = [random(CHAIN_SHAPES, seed) for seed in range(6)]
    results = [None] * len(data)

    def work(number):
        for _ in range(20):
            results[number] = found(*data[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(data))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for operands, result in zip(data, results, strict=True):
        np.testing.assert_array_equal(result, found(*operands))


def test_plans_of_an_expression_have_its_threads():
    """The number of threads reaches the plans."""
    found = tilesolve.expression("ij,jk->ik", (200, 150), (150, 200), threads=2)
    assert found.steps[0].kernel.plan.threads == 2
    a, b = random([(200, 150), (150, 200)])
    np.testing.assert_allclose(found(a, b), a @ b)


# Bad input


def test_operands_that_are_not_the_expressions():
    """The message names the operand, the letter and both sizes; `out` stays as it was."""
    found = tilesolve.expression("ij,jk->ik", (2, 3), (3, 4))
    a, b, out = np.ones((2, 3)), np.ones((3, 4)), np.full((2, 4), 7.0)
    for error, match, call in [
        (SizeError, "takes 2 operands, not 1", (a,)),
        (SizeError, r"operand 1 \('jk'\) has 5 for 'k', the expression 4", (a, np.ones((3, 5)))),
        (SizeError, r"operand 0 .* shape \(2, 3, 1\)", (a[..., None], b)),
        (DtypeError, "operand 1 .* float32, the expression's is float64", (a, b.astype("f4"))),
        (DtypeError, "operand 1 is NoneType", (a, None)),
    ]:
        with pytest.raises(error, match=match):
            found(*call, out=out)
    with pytest.raises(DtypeError, match="out of 'ij,jk->ik' is float32"):
        found(a, b, out=np.zeros((2, 4), "f4"))
    read_only = out.view()
    read_only.flags.writeable = False
    with pytest.raises(PlanError, match="read-only"):
        found(a, b, out=read_only)
    assert (out == 7).all()
    expected = out[:, :3] @ b
    assert found(out[:, :3], b, out=out) is out  # shares memory with operand 0
    np.testing.assert_array_equal(out, expected)


def test_shapes_that_are_none():
    """Shapes must be extents; the message names the operand."""
    for shape in (3, "ab", (2, -1), (2, 1.5), None):
        with pytest.raises(SizeError, match="operand 1"):
            tilesolve.expression("ij,jk", (2, 3), shape)
    with pytest.raises(DtypeError, match="dtype is datetime64"):
        tilesolve.expression("ij", (2, 3), dtype="M8[s]")
    with pytest.raises(DtypeError, match="bad"):
        tilesolve.expression("ij", (2, 3), dtype="bad")
    with pytest.raises(SpecError):
        tilesolve.expression("ij,jk", (2, 3))
    with pytest.raises(SpecError):
        tilesolve.expression(None, (2, 3))
    for limit in (-1, "much", 1.5):
        with pytest.raises(SizeError, match="memory_limit"):
            tilesolve.expression("ij,jk", (2, 3), (3, 4), memory_limit=limit)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_peak_of_a_plan_is_what_its_runs_may_take(threads):
    """Packed copies as they are laid out, filled up to whole groups: no less than any task has."""
    found = tilesolve.expression("ij,jk", (200, 200), (200, 200), threads=threads)
    (step,) = found.steps
    first, second = random([(200, 200)] * 2)
    layout = Layout.of(step.kernel.plan.solution, first, second, None)
    assert len(layout.tasks) == threads
    nothing = 2 * (GUARD_BYTES + ALIGNMENT_BYTES)  # of operands that are read in place
    assert found.peak >= sum(task.workspace_bytes - nothing for task in layout.tasks)


@st.composite
def batched(draw):
    """Draw a contraction with letters of a batch anywhere, and extents."""
    batch = "bc"[: draw(st.integers(1, 2))]
    shuffled = [
        "".join(draw(st.permutations(letters + batch)))
        for letters in draw(st.sampled_from([("ik", "kj", "ij"), ("ik", "kjl", "ijl")]))
    ]
    first, second, output = shuffled
    sizes = {x: draw(st.integers(2, 9)) for x in sorted({*first, *second})}
    return first, second, output, sizes


@settings(max_examples=30)
@given(
    batched(),
    st.sampled_from(["f4", "f8", "c8", "c16"]),
    st.booleans(),
    st.lists(st.sampled_from("CF"), min_size=3, max_size=3),
)
@guessed_tiles(0)
def test_batches_in_front_give_the_same(given_case, dtype, ours, orders):
    """Wherever letters of a batch stand, what is transposed on the way is numpy's result."""
    first, second, output, sizes = given_case
    with pytest.MonkeyPatch.context() as patch:
        set_costs(
            patch,
            einsum_loop_products=ALWAYS,
            einsum_kernel_flops=ALWAYS,
            einsum_transpose_bytes=ALWAYS,
            einsum_batch_extent=2,
        )
        (step,) = contraction_steps(Request(sizes, np.dtype(dtype)), [first, second], output)
        set_costs(patch, einsum_transpose_bytes=ALWAYS if ours else 2**22)
        assert step.kernel.route == "plan"
        batch = set(first) & set(second) & set(output)
        for letters, axes in zip((first, second, output), step.kernel.axes, strict=True):
            assert (axes is not None) == (letters[-1] in batch)
        for letters, axes in zip((first, second), step.kernel.axes[:2], strict=True):
            assert axes is None or letters[axes[-1]] not in batch
        operands = random([[sizes[x] for x in term] for term in (first, second)], dtype=dtype)
        if dtype[0] == "c":
            operands = [x + 1j * y for x, y in zip(operands, map(np.flip, operands), strict=True)]
        precise = [x.astype("G" if dtype[0] == "c" else "g") for x in operands]
        expected = np.einsum(step.kernel.text, *precise)
        tolerance = 64 * np.finfo(dtype).eps
        operands = [np.array(x, order=order) for x, order in zip(operands, orders, strict=False)]
        out = np.full(expected.shape, np.nan, dtype, orders[2])
        assert step.kernel(*operands, out=out) is out
        np.testing.assert_allclose(out, expected, tolerance, 10 * tolerance)
        np.testing.assert_allclose(step.kernel(*operands), expected, tolerance, 10 * tolerance)


def test_a_batch_that_comes_last_is_put_in_front():
    """Large tensors are transposed, the report says so, and its memory counts the copies."""
    shapes = (128, 128, 33), (128, 128, 33)
    found = tilesolve.expression("ikb,kjb->ijb", *shapes)
    report = str(found)
    for transposed in (
        "ikb is transposed to bik",
        "kjb is transposed to bkj",
        "ijb is transposed to bij",
    ):
        assert transposed in report
    operands = random(shapes)
    assert found.peak >= 3 * operands[0].nbytes
    out = np.full((128, 128, 33), np.nan)
    expected = np.einsum("ikb,kjb->ijb", *operands, optimize=True)
    np.testing.assert_allclose(found(*operands, out=out), expected, rtol=1e-11, atol=1e-11)
    for limit in (found.peak, found.peak - 1):
        limited = tilesolve.expression("ikb,kjb->ijb", *shapes, memory_limit=limit)
        assert limited.peak <= limit
        assert ("transposed" in str(limited)) == (limit == found.peak)
        np.testing.assert_allclose(limited(*operands), expected, rtol=1e-11, atol=1e-11)
    few = tilesolve.expression("ikb,kjb->bij", (256, 512, 7), (512, 600, 7))
    assert "transposed" not in str(few)


def test_what_has_its_batch_in_front_in_memory_is_not_copied():
    """Views whose last letter is a batch's, but lies outermost, go to the plan as they are."""
    found = tilesolve.expression("ikb,kjb->ijb", (128, 128, 33), (128, 128, 33))
    operands = [x.transpose(1, 2, 0) for x in random([(33, 128, 128)] * 2)]
    out = np.full((33, 128, 128), np.nan).transpose(1, 2, 0)
    found(*operands, out=out)  # loads code
    out[:] = np.nan
    check_peak(partial(found, *operands, out=out), operands[0].nbytes / 2)
    expected = np.einsum("ikb,kjb->ijb", *operands, optimize=True)
    np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-11)


# Limits of routes


def test_no_route_reads_a_machine(monkeypatch):
    """Sizes alone decide between numpy's functions: nothing is read from files."""

    def loaded(*_):
        raise AssertionError("a machine was loaded")

    monkeypatch.setattr(Machine, "find", loaded)
    for extent in (3, 50):
        small = np.arange(extent * extent, dtype=float).reshape(extent, extent)
        for text in ("ij,jk->ik", "ij,jk,kl->il", "ij->ji", "ij->i", "ii"):
            operands = [small] * (1 + text.count(","))
            expected = np.einsum(text, *operands)
            np.testing.assert_array_equal(tilesolve.einsum(text, *operands), expected)
            out = np.empty_like(expected)
            np.testing.assert_array_equal(tilesolve.einsum(text, *operands, out=out), expected)
            compiled = tilesolve.expression(text, *operands)
            np.testing.assert_array_equal(compiled(*operands), expected)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, "matmul"),
        ({"einsum_kernel_flops": 1000}, "plan"),
        ({"einsum_loop_products": 30**3}, "loops"),
    ],
)
def test_limits_choose_the_route(monkeypatch, limits, expected):
    """From how many flops on plans pay, and up to where loops do."""
    set_costs(monkeypatch, **limits)
    (step,) = tilesolve.expression("ij,jk->ik", (30, 30), (30, 30)).steps
    assert step.kernel.route == expected
