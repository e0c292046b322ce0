"""Plans of nests: what they take, what they compute, and what they refuse."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import Array, axes, total
from turns import WHOLE, examples, in_turn

import tilesolve
from tests.support.guard_pages import allocate
from tilesolve.contractions.errors import (
    DtypeError,
    PlanError,
    SizeError,
    SpecError,
    TilesolveError,
)
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.nest_suites import NestCase, nest_suite
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.nests.planning import solve_nest

MACHINE = "i7-6700k"


def draw(computation, seed=0):
    """Inputs of a computation by name."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in computation.inputs:
        info = computation.array(name)
        if np.dtype(info.dtype).kind == "f":
            found[name] = rng.standard_normal(info.shape).astype(info.dtype)
        else:
            found[name] = rng.integers(0, 9, info.shape).astype(info.dtype)
    return found


def check(plan, params=None, out=None, arrays=None):
    """A call gives what the reference does, to rounding; returns the result."""
    params = params or {}
    arrays = draw(plan.computation) if arrays is None else arrays
    before = {name: array.copy() for name, array in arrays.items()}
    right = evaluate(plan.computation, arrays, params, None if out is None else out.copy())
    found = plan(*arrays.values(), out=out, **params)
    if found.dtype.kind == "f":
        slack = 1e-5 if found.dtype == "float32" else 1e-12
        largest = max(1.0, float(np.abs(right).max(initial=0.0)))
        np.testing.assert_allclose(found, right, rtol=slack, atol=slack * largest)
    else:
        np.testing.assert_array_equal(found, right)
    for name, array in arrays.items():
        if out is None or not np.may_share_memory(array, out):
            np.testing.assert_array_equal(array, before[name])
    return found


def shrink(case: NestCase, extent):
    """A case of the suite with odd small extents, no two alike."""
    sizes = {x: min(n, extent + at) for at, (x, n) in enumerate(case.sizes)}
    if case.where:  # both letters of a triangle have one range
        sizes = dict.fromkeys(sizes, extent)
    return sizes


WAYS = (
    *((5, "default", None, 1), (18, "default", "nest", 1), (18, "default", "nest", 2)),
    *((18, "thesis", "nest", 1), (18, "plain", None, 2)),
)
"""Extents, modes, routes and threads."""


@WHOLE
@pytest.mark.parametrize("name", nest_suite("nests"))
def test_kernels_of_the_suite_are_right(name, whole):
    """At odd sizes, by the fastest route and by generated loops, in all modes."""
    case = nest_suite("nests")[name]
    turn = list(nest_suite("nests")).index(name)
    for extent, mode, route, threads in in_turn(WAYS, turn, whole, of=2):
        plan = nest(
            case.text,
            shrink(case, extent),
            case.dtype,
            where=case.where,
            machine=MACHINE,
            threads=threads,
            mode=mode,
            route=route,
        )
        poisoned = np.full(plan.computation.output.shape, 77, case.dtype)
        check(plan, dict(case.params), poisoned)


def test_large_contractions_are_plans_and_moves_transposes():
    """The report says which and why; forced loops compute the same."""
    product_ = nest("C[i,j] += A[i,k] * B[k,j]", 192, "float32", machine=MACHINE)
    assert product_.how == "contraction, contraction"
    assert "ij-ik-kj" in str(product_)
    check(product_)
    moved = nest("out[y,x] = A[x,y]", {"y": 30, "x": 47}, "uint8", machine=MACHINE)
    assert moved.how == "move, transpose"
    check(moved)
    forced = nest("out[y,x] = A[x,y]", {"y": 30, "x": 47}, "uint8", machine=MACHINE, route="nest")
    assert forced.how == "spatial, nest"
    assert "out[y,x] = A[x,y]" in str(forced)
    check(forced)


def test_larger_arrays_and_scaled_products():
    """An operand may be larger than what is read of it; alpha and beta are parameters."""
    text = "C[i,j] = beta * C[i,j] + alpha * sum(A[i,k] * B[k,j])"
    sizes = {"i": 130, "j": 190, "k": 170, "A": (140, 171)}
    plan = nest(text, sizes, machine=MACHINE)
    assert plan.how == "contraction, contraction"
    check(plan, {"alpha": 0.5, "beta": -2.0})
    arrays = draw(plan.computation)
    check(plan, {"alpha": 2, "beta": 1}, out=arrays["C"], arrays=arrays)


@pytest.mark.parametrize(
    ("text", "sizes", "dtype", "where"),
    [
        ("out[y,x] = (A[y,x] + A[y,x+1] + A[y+2,x]) / 3", {"y": 9, "x": 33}, "float32", ()),
        ("out[x] = A[2*x+1] - A[x//2]", 17, "float64", ()),
        ("out[x] = A[16-x]", 17, "int16", ()),
        ("out[y,x] = max(A[y,x], A[x,y]) if y > x else 0", 19, "int32", ()),
        ("out[i] = exp(A[i]) * sqrt(B[i])", 37, "float32", "2 <= i < 30"),
        ("y[i] += A[i,k] * x[k]", {"i": 21, "k": 35}, "float64", "k <= i"),
        ("m[j] = max(A[i,j])", {"i": 9, "j": 18}, "float32", ()),
        ("s[()] += A[i,j]", {"i": 5, "j": 33}, "int32", ()),
        ("out[x] = (A[x] > 3) & (B[x] < 5)", 40, "int8", ()),
        ("t[y,x] = A[y,x] + A[y,x+1]; out[y] += t[y,x] * t[y,x]", 11, "float32", ()),
        ("B[i] = B[i] + A[i]; out[i] = B[i] * 2", 12, "int64", ()),
    ],
)
def test_statements_are_computed(text, sizes, dtype, where):
    """Stencils, strides, reversals, choices, functions, regions and several statements."""
    plan = nest(text, sizes, dtype, where=where, machine=MACHINE, threads=2)
    found = check(plan)
    out = np.full(found.shape, 5, found.dtype)
    check(plan, out=out)
    check(plan, out=np.full((*found.shape, 2), 3, found.dtype)[..., 1])


def test_gathers_and_histograms():
    """Positions may be computed; those outside are an error that names all there is to know."""
    table = nest("out[i] = T[v[i]]", {"i": 50, "T": (9,)}, {"v": "int32", "T": "float32"})
    arrays = draw(table.computation)
    check(table, arrays=arrays)
    arrays["v"][7] = 9
    with pytest.raises(SizeError, match=r"T\[v\[i\]\] is at position 9 of axis 0.*which has 9"):
        table(*arrays.values())
    counts = nest("h[v[i]] += w[i]", {"i": 300, "h": (9,)}, {"v": "uint8", "w": "float64"})
    found = check(counts)
    right = draw(counts.computation)
    np.testing.assert_allclose(found, np.bincount(right["v"], right["w"], 9))


STRIDES = ("rows", "columns", "steps", "back", "broadcast")


def lay(array, kind):
    """The same values with other strides."""
    if kind == "columns":
        return np.asfortranarray(array)
    if kind == "steps":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if kind == "back":
        return array[::-1].copy()[::-1]
    if kind == "broadcast":
        return np.broadcast_to(array[:1], array.shape)
    return array


@examples(5, 12)
@given(st.sampled_from(STRIDES), st.sampled_from(STRIDES), st.sampled_from(STRIDES[:4]))
def test_any_strides(first, second, result):
    """Arrays lie as they like, also the output."""
    for text in ("out[y,x] = A[x,y] & B[y,x]", "out[y,x] += A[y,k] * B[x,k]"):
        plan = nest(text, 13, "int32", machine=MACHINE)
        arrays = draw(plan.computation)
        arrays = {"A": lay(arrays["A"], first), "B": lay(arrays["B"], second)}
        check(plan, out=lay(np.full((13, 13), 9, "int32"), result), arrays=arrays)


def test_nothing_outside_of_arrays_is_touched():
    """Arrays lie between pages that nobody may touch, at sizes around vectors."""
    rng = np.random.default_rng(3)

    def guard(array):
        room = allocate(max(array.nbytes, 1), rng)[: array.nbytes]
        room = room.view(array.dtype).reshape(array.shape)
        room[...] = array
        return room

    for text in (
        "C[i,j] += A[i,k] * A[j,k]",
        "out[y,x] = A[x,y] & B[y,x]",
        "out[y,x] = A[y,x] + A[y,x+2]",
    ):
        for extent in (1, 7, 15, 16, 17, 33):
            plan = nest(text, extent, "int32", machine=MACHINE, route="nest")
            arrays = {name: guard(array) for name, array in draw(plan.computation).items()}
            out = guard(np.zeros(plan.computation.output.shape, "int32"))
            check(plan, out=out, arrays=arrays)


def test_regions_leave_elements_as_they_are():
    """With `out` they stay, without it they are zero."""
    plan = nest("C[i,j] += A[i,k] * A[j,k]", 20, where="j <= i", machine=MACHINE)
    found = check(plan)
    assert not np.triu(found, 1).any()
    assert (np.triu(check(plan, out=np.full((20, 20), 8.0)), 1)[0, 1:] == 8).all()


def test_stages_are_statements_too():
    """Objects and text give equal plans."""
    i, j, k = axes("i j k")
    a, c = Array("A"), Array("C")
    stage = tilesolve.Stage.of(c[i, j], total(a[i, k] * a[j, k], k))
    assert nest(stage, 9, machine=MACHINE) == nest(
        "C[i,j] = sum(A[i,k]*A[j,k], k)", 9, machine=MACHINE
    )


def test_sizes_come_from_arrays():
    """Their shapes and dtypes."""
    image = np.ones((12, 30), "float32")
    plan = nest("out[y,x] = A[y,x] + A[y,x+3]", {"A": image}, machine=MACHINE)
    assert dict(plan.computation.sizes) == {"y": 12, "x": 27}
    assert plan(image).dtype == np.float32


def test_plans_are_values():
    """They are equal, hash, and come back from pickles and JSON."""
    plan = nest("out[y,x] = A[x,y] | ~B[y,x]", "y=40, x=31", "uint16", machine=MACHINE, threads=2)
    printed = NestPlan(solve_nest(replace(plan.request, sets="printed", later=0.5)))
    assert NestPlan.from_json(printed.to_json()) == printed != plan
    for other in (pickle.loads(pickle.dumps(plan)), NestPlan.from_json(plan.to_json())):
        assert other == plan
        assert hash(other) == hash(plan)
        check(other)
    assert "NestPlan" in repr(plan)
    assert plan.seconds > 0
    older = plan.to_json().replace('"format": 9', '"format": 1', 1)
    with pytest.raises(PlanError, match="not a plan of a nest of format 9 but 1"):
        NestPlan.from_json(older)
    damaged = plan.to_json().replace("uint16", "uint32", 1)
    with pytest.raises(PlanError, match="checksum"):
        NestPlan.from_json(damaged)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("C[i,j] += A[i,k * B[k,j]", 4), SpecError, "at column"),
        (("C[i] = C[i+1] + A[i]", 4), SpecError, "depend on one another"),
        (("C[i] = C[i-1] + A[i]", 4), SizeError, "at position -1 of axis 0"),
        (("C[i] = A[i-1]", 4), SizeError, r"A\[i-1\] at position -1 of axis 0, with i=4"),
        (("C[i] = A[i+1]", {"i": 4, "A": (4,)}), SizeError, "i=4, but A has extent 4"),
        (("C[i] = A[i] & 1.5", 4), DtypeError, r"bitwise_and .* C\[i\] = A\[i\] & 1.5"),
        (("C[i] = A[i]", {"i": 4, "q": 3}), SizeError, "'q'"),
        (("C[i] = A[i] + B[j]", 4), SpecError, "no axis 'j'"),
        (("C[i] = A[i]", {}), SizeError, "no size for 'i'"),
        (("C[i] = A[i]", 4, "float16"), DtypeError, "float16"),
    ],
)
def test_bad_statements_are_refused(arguments, error, message):
    """The message names the statement, the letter or array, and both sizes."""
    with pytest.raises(error, match=message):
        nest(*arguments)


def test_bad_calls_are_refused():
    """Numbers, shapes, dtypes, parameters and `out`; nothing is written."""
    plan = nest("C[i] = a * A[i] + B[i]", 6, "float32", machine=MACHINE)
    good = np.ones(6, "float32")
    out = np.full(6, 7, "float32")
    for arguments, named, message in [
        ((good,), {"a": 1}, "takes 2 arrays, A, B; got 1"),
        ((good, good[:5]), {"a": 1}, r"B of .* has shape \(5,\), the plan has \(6,\)"),
        ((good, good.astype(float)), {"a": 1}, "B of .* is float64"),
        ((good, good), {}, "parameter 'a'"),
        ((good, good), {"a": 1, "b": 2}, "no parameter 'b'"),
        ((good, good), {"a": 1j}, "'a' is a number of float32"),
        ((good, good), {"a": 1, "out": good}, "shares memory"),
        ((good, good), {"a": 1, "out": np.ones(5, "float32")}, "5"),
        (("A", good), {"a": 1}, "A of"),
    ]:
        with pytest.raises(TilesolveError, match=message):
            plan(*arguments, **{"out": out, **named})
    assert (out == 7).all()


def test_routes_and_modes_that_do_not_fit_are_refused():
    """With the reason."""
    with pytest.raises(PlanError, match="no contraction: "):
        nest("out[y,x] = A[x,y] & B[y,x]", 9, "int32", machine=MACHINE, route="contraction")
    with pytest.raises(PlanError, match="no transpose"):
        nest("out[y,x] = A[x,y] & B[y,x]", 9, "int32", machine=MACHINE, route="transpose")
    with pytest.raises(PlanError, match="mode is one of"):
        nest("out[x] = A[x]", 9, machine=MACHINE, mode="fast")
    with pytest.raises(PlanError, match="untiled"):
        nest("out[y,x] = A[x,y]", 9, machine=MACHINE, mode="untiled", route="transpose")


def test_the_report_tells_what_runs_and_why():
    """Class, tiles, threads, levels and the loops as pseudo-C."""
    text = str(
        nest(
            "C[i,j] += A[i,k] * A[j,k]",
            300,
            "float32",
            where="j <= i",
            machine=MACHINE,
            route="nest",
        )
    )
    for part in ("temporal, by a nest", "tile ", "vectors along ", "bound by", "for "):
        assert re.search(re.escape(part), text), part


def test_what_a_statement_does_not_compute_is_not_read_by_a_later_one():
    with pytest.raises(SizeError, match=r"o\[i\+1\] at position 5 of axis 0, with i=5, but o has"):
        tilesolve.nest("o[i] = 2 * A[i]; p[i] = o[i] + o[i+1]", {"i": 5})


def test_elements_beyond_the_letters_stay_as_they_are():
    shifted = tilesolve.nest("o[i] = 2 * A[i]", {"i": 3, "o": (5,)})
    np.testing.assert_array_equal(shifted(np.ones(3)), [2, 2, 2, 0, 0])
    out = np.full(5, 7.0)
    np.testing.assert_array_equal(shifted(np.ones(3), out=out), [2, 2, 2, 7, 7])


def test_conditions_on_a_sum_bound_no_other_term():
    """Elements read outside of the sum are read at all values of the output's letters."""
    both = tilesolve.nest("o[i] = C[i,i] + sum(A[i,k], k) * sum(B[m], m)", 5, where="k > i+1")
    shapes = {array.name: array.shape for array in both.computation.arrays}
    assert shapes == {"C": (5, 5), "A": (5, 5), "B": (5,), "o": (5,)}
    found = both(np.full((5, 5), 0.5), np.ones((5, 5)), np.ones(5))
    np.testing.assert_array_equal(found, [15.5, 10.5, 5.5, 0.5, 0.5])
    with pytest.raises(SpecError, match="letters of several sums"):
        tilesolve.nest("o[i] = sum(A[i,k], k) * sum(B[i,m], m)", 5, where="k > m")


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_sums_whose_conditions_alone_have_the_vectors_letter(dtype):
    part = tilesolve.nest("o[i] = i - int8(1) * sum(A[k], k)", 17, dtype, where="k < i")
    A = np.arange(17).astype(dtype)
    np.testing.assert_array_equal(part(A), [i - A[:i].sum() for i in range(17)])


def test_held_elements_of_a_region_that_begins_whole():
    """The first row has all columns, others fewer: nothing beyond their ends is written."""
    upper = tilesolve.nest("o[i,j] *= A[i,k] + B[k,j]", {"i": 3, "j": 8, "k": 16}, where="j >= i")
    out = np.zeros((3, 8))
    upper(np.ones((3, 16)), np.ones((16, 8)), out=out)
    np.testing.assert_array_equal(out, np.triu(np.full((3, 8), 2.0**16)))


def test_equal_requests_share_a_plan():
    """Unless it is asked not to; a plan for another machine is another one."""
    text = "out[x] = A[x] + A[x+1]"
    found = nest(text, 1_000_000, machine=MACHINE)
    assert nest(text, {"x": 1_000_000}, machine=MACHINE) is found
    other = nest(text, 1_000_000, machine=MACHINE, cache=False)
    assert other is not found
    assert other == found
    faster = found.whatif(l3_bandwidth=1.2, memory_bandwidth=1.2)
    assert faster.seconds < found.seconds
    assert faster != found


def test_each_kind_of_plan_names_the_other():
    """JSON says what it holds."""
    product = tilesolve.plan("ij-ik-kj", 8, MACHINE)
    masked = nest("out[y,x] = A[x,y] & B[y,x]", 8, "int32", machine=MACHINE)
    with pytest.raises(PlanError, match="this is 'a plan of a nest', not 'a plan'"):
        tilesolve.Plan.from_json(masked.to_json())
    with pytest.raises(PlanError, match="this is 'a plan', not 'a plan of a nest'"):
        NestPlan.from_json(product.to_json())
