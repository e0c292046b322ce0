"""Epilogues: what a plan applies at the end is what NumPy makes of the finished result."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_epilogues import apply_epilogue
from running_cases import make_shallow_machine, varied
from turns import examples

from tilesolve.contractions.epilogue import FUNCTIONS, Epilogue, elementwise
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError, SpecError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.reference import reference
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.plan import Plan, plan

pytestmark = pytest.mark.usefixtures("any_tiles")

MACHINE = make_shallow_machine(256, 16)
SLOW = examples(6, 25, settings(suppress_health_check=list(HealthCheck)))
TOKENS = {"clip": "clip(-0.5,0.75)", "leaky": "leaky(0.25)"}
REAL = [TOKENS.get(name, name) for name in FUNCTIONS]
SPECS = ("mn-mk-kn", "mn-mk-kn-", "abcd-aebf-dfce", "bmn-bmk-kbn", "khw-c[h+r][w+s]-kcrs")


def draw_array(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def draw_inputs(problem, epilogue, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [*problem.shapes[1:], *epilogue.shapes(problem)]
    arrays = [draw_array(rng, shape, problem.dtype) for shape in shapes]
    return arrays[:2], arrays[2:]


def check(problem, epilogue, found, arrays, operands, plain=None):
    """Hold a result to the chain applied to the reference."""
    whole = reference(problem, *arrays) if plain is None else plain
    wide = [np.asarray(one, whole.dtype) for one in operands]
    expected = apply_epilogue(epilogue, problem, whole, wide)
    scale = max(1.0, np.abs(whole).max(initial=0), np.abs(expected).max(initial=0))
    for one in operands:
        scale *= max(1.0, np.abs(one).max(initial=0))
    bound = 400 * np.finfo(problem.dtype).eps * scale
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("token", REAL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function(token, dtype):
    problem = Problem.of("mn-mk-kn", "m=19 n=21 k=5", dtype)
    found = plan(problem, machine=MACHINE, epilogue=token, cache=False)
    arrays, _ = draw_inputs(problem, found.epilogue)
    check(problem, found.epilogue, found(*arrays), arrays, [])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("bits", "registers"), [(128, 16), (512, 32)])
def test_operands_of_every_dtype_and_width(dtype, bits, registers):
    problem = Problem.of("mn-mk-kn", "m=17 n=33 k=9", dtype)
    chain = "*n +m *nm + "
    machine = make_shallow_machine(bits, registers)
    found = plan(problem, machine=machine, epilogue=chain, cache=False)
    arrays, operands = draw_inputs(problem, found.epilogue)
    for out in (np.full((17, 33), np.nan, dtype), np.full((33, 17), np.nan, dtype).T):
        found(*arrays, out=out, operands=operands)
        check(problem, found.epilogue, out, arrays, operands)


@SLOW
@given(data=st.data())
def test_any_chain_in_any_layout(data):
    """Chains, cut sums, several boxes, threads, factors, strides of all arrays."""
    spec = data.draw(st.sampled_from([s for s in SPECS if s.count("-") == 2]))
    letters = Problem.of(spec, 1).sizes
    sizes = {i: data.draw(st.integers(1, 9), i) for i in letters}
    problem = Problem.of(spec, sizes, data.draw(st.sampled_from(["float32", "float64"])))
    output = problem.spec.output.letters
    steps = []
    for _ in range(data.draw(st.integers(1, 4), "steps")):
        own = data.draw(st.lists(st.sampled_from(output), unique=True))
        steps.append(data.draw(st.sampled_from([*REAL, "*" + "".join(own), "+" + "".join(own)])))
    threads = data.draw(st.integers(1, 2), "threads")
    found = plan(problem, machine=MACHINE, threads=threads, epilogue=" ".join(steps), cache=False)
    side = data.draw(st.integers(1, 9), "side")
    nest = found.nest
    bands = [replace(b, box=tuple((i, min(n, side)) for i, n in b.box)) for b in nest.bands[:-1]]
    found = varied(found, nest=replace(nest, bands=(*bands, nest.bands[-1])))
    arrays, operands = draw_inputs(problem, found.epilogue, data.draw(st.integers(0, 9)))
    if data.draw(st.booleans(), "backwards"):
        operands = [one[::-1].copy()[::-1] if one.ndim else one for one in operands]
    order = data.draw(st.permutations(range(len(output))))
    shape = problem.shape(0)
    out = np.full([shape[at] for at in order], np.nan, problem.dtype)
    out = out.transpose(np.argsort(order))
    assert found(*arrays, out=out, operands=operands) is out
    check(problem, found.epilogue, out, arrays, operands)
    out[...] = before = draw_array(np.random.default_rng(5), shape, problem.dtype)
    found(*arrays, out=out, alpha=0.5, beta=2.0, operands=operands)
    check(
        problem, found.epilogue, out, arrays, operands,
        0.5 * reference(problem, *arrays) + 2.0 * before.astype(np.float64),
    )  # fmt: skip


def test_what_is_no_number_and_signs_of_zero():
    ones = np.ones((1, 1))
    values = np.array([[np.nan, np.inf, -np.inf, -0.0, 0.0, 7.0]])
    for chain in ("relu", "relu6", "clip(-1,6)", "leaky(0.5)"):
        found = plan("mn-mk-kn", "m=1 n=6 k=1", MACHINE, epilogue=chain, cache=False)
        # Sums begin at 0, which a factor of -1 makes -0.
        expected = apply_epilogue(found.epilogue, found.problem, -(0.0 - values), ())
        result = found(ones, -values, alpha=-1.0)
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


def test_sums_of_nothing_and_outputs_of_nothing():
    for sizes in ("m=3 n=4 k=0", "m=0 n=4 k=3"):
        found = plan("mn-mk-kn", sizes, MACHINE, epilogue="+n relu", cache=False)
        arrays, operands = draw_inputs(found.problem, found.epilogue)
        check(found.problem, found.epilogue, found(*arrays, operands=operands), arrays, operands)


def test_it_is_kept_with_the_plan():
    found = plan("mn-mk-kn", 12, "i7-6700k", epilogue="+n gelu-tanh clip(-1,2.5)")
    assert Plan.from_json(found.to_json()) == found
    assert str(found.epilogue) == "+n gelu-tanh clip(-1,2.5)"
    other = plan("xy-xz-zy", 12, "i7-6700k", epilogue="+y gelu-tanh clip(-1,2.5)")
    assert str(other.epilogue) == "+y gelu-tanh clip(-1,2.5)"
    assert "+n gelu-tanh" in str(found)
    plain = plan("mn-mk-kn", 12, "i7-6700k")
    assert plain.epilogue is None
    assert found.price.compute > plain.price.compute
    assert plan("mn-mk-kn", 12, "i7-6700k", epilogue="") == plain


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("+q", SpecError, "'q' is no letter of the output 'mn'"),
        ("+nn", SpecError, "stands twice"),
        ("+1", SpecError, "letters must follow"),
        ("swish", SpecError, "'swish' is not known"),
        ("clip(1)", SpecError, "takes 2 numbers, got 1"),
        ("relu(1)", SpecError, "takes 0 numbers, got 1"),
    ],
)
def test_bad_chains(text, kind, message):
    with pytest.raises(kind, match=message):
        plan("mn-mk-kn", 4, MACHINE, epilogue=text, cache=False)
    with pytest.raises(DtypeError, match="real numbers"):
        plan("mn-mk-kn", 4, MACHINE, dtype="complex64", epilogue="relu")


def test_bad_operands_write_nothing():
    found = plan("mn-mk-kn", "m=3 n=4 k=5", MACHINE, epilogue="+n relu", cache=False)
    a, b, out = np.zeros((3, 5)), np.zeros((5, 4)), np.full((3, 4), 7.0)
    for operands, kind, message in (
        ((), SizeError, "takes 1 operands, got 0"),
        ((np.zeros(3),), SizeError, r"must have shape \(4,\), got \(3,\)"),
        ((np.zeros(4, "float32"),), DtypeError, "float32"),
        ((out[0],), PlanError, "share"),
    ):
        with pytest.raises(kind, match=message):
            found(a, b, out=out, operands=operands)
    assert (out == 7).all()
    with pytest.raises(PlanError, match="no operands for the epilogue"):
        found.batch([a], [b])
    with pytest.raises(SizeError, match="takes 0 operands, got 1"):
        plan("mn-mk-kn", 4, MACHINE, cache=False)(*[np.zeros((4, 4))] * 2, operands=[np.zeros(4)])


def softplus(x):
    return math.log1p(math.exp(x))


def square(x):
    return x * x


SLOPE = np.float32(0.25)


def shrink(x):
    return x - 0.5 if x > 0.5 else max(x, -2.0) * SLOPE


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        shrink,
        lambda x: x / (1 + abs(x)),
        lambda x: np.where((x > 0) & (x < 1), x**3, np.float32(-1)),
        lambda x: x * np.tanh(np.log(1 + np.exp(min(x, 20.0)))),
        lambda x: np.floor(x * 4) / 4 + (x % 0.5) * 0,
    ],
)
def test_functions_that_become_terms(function, dtype):
    problem = Problem.of("mn-mk-kn", "m=5 n=37 k=1", dtype)
    found = plan(problem, machine=MACHINE, epilogue=elementwise(function), cache=False)
    values = (np.arange(5 * 37).reshape(5, 37) / 16 - 5).astype(array_dtype(dtype))
    ones = np.ones((5, 1), values.dtype)
    for row in values:
        result = found(ones, row[None]).astype("float64")
        expected = [float(function(np.float64(one))) for one in row]
        eps = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3}[dtype]
        np.testing.assert_allclose(result, [expected] * 5, rtol=8 * eps, atol=8 * eps)


def test_only_functions_that_cannot_be_traced_wait_for_numba():
    """Neither chains, nor traced functions, nor partial outputs do."""
    code = """
import math, sys
import numpy as np, tilesolve

def run(function, threads=1):
    chain = ("+b", "gelu", tilesolve.elementwise(function))
    plan = tilesolve.plan("ab-ka-kb", "a=3 b=4 k=900", threads=threads, epilogue=chain)
    return plan(np.ones((900, 3)), np.ones((900, 4)), operands=[np.ones(4)])

for threads in (1, 2):
    assert (run(lambda x: x / (1 + abs(x)), threads) == 901 / 902).all()
print("numba" in sys.modules, run(lambda x: math.erf(x))[0, 0])
print("numba" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "1.0", "True"]


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_ones_own(dtype, threads):
    problem = Problem.of("mn-mk-kn", "m=19 n=21 k=5", dtype)
    chains = elementwise(square), ("+n", elementwise(softplus), "clip(0,2)", elementwise(square))
    for chain in chains:
        found = plan(problem, machine=MACHINE, threads=threads, epilogue=chain, cache=False)
        arrays, operands = draw_inputs(problem, found.epilogue)
        result = found(*arrays, operands=operands)
        check(problem, found.epilogue, result, arrays, operands)


@pytest.mark.parametrize("kind", [lambda x: x > 0, lambda x: 2, lambda x: math.sqrt(abs(x))])
def test_results_of_any_real_kind_become_numbers_of_the_dtype(kind):
    problem = Problem.of("mn-mk-kn", "m=3 n=11 k=2", "float32")
    found = plan(problem, machine=MACHINE, epilogue=elementwise(kind), cache=False)
    arrays, _ = draw_inputs(problem, found.epilogue)
    check(problem, found.epilogue, found(*arrays), arrays, [])


def of_two(x, y):
    return x + y


def of_a_list(x):
    return x + TABLE[0]


def of_a_raise(x):
    if x > 3:
        raise ValueError
    return x


TABLE = [1.0]


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (of_two, PlanError, r"'of_two' must take one number, it takes \(x, y\)"),
        (of_a_list, PlanError, "'of_a_list' uses 'TABLE', which is a list"),
        (of_a_raise, PlanError, "'of_a_raise' raises errors"),
        (np.sin, PlanError, "'sin' is no Python function"),
        (lambda x: x.nothing, PlanError, "'<lambda>' cannot be compiled for float64: .*nothing"),
        (lambda x: (x, x), PlanError, "'<lambda>' returns UniTuple.* must return a real number"),
        (lambda x: 1j * x, PlanError, "returns complex128 for float64"),
        (lambda x: None, PlanError, "returns none for float64"),
    ],
)
def test_functions_that_cannot_be(function, kind, message):
    for cache in (False, True):
        with pytest.raises(kind, match=message):
            plan("mn-mk-kn", 4, MACHINE, epilogue=elementwise(function), cache=cache)
    with pytest.raises(DtypeError, match="real numbers"):
        plan("mn-mk-kn", 4, MACHINE, dtype="complex64", epilogue=elementwise(square))
    with pytest.raises(SpecError, match=r"tilesolve\.elementwise makes one of a function"):
        plan("mn-mk-kn", 4, MACHINE, epilogue=square)


def test_functions_are_what_they_compute():
    def times(factor):
        return elementwise(lambda x: x * factor)

    assert times(2.0) == times(2.0)
    assert hash(times(2.0)) == hash(times(2.0))
    assert len({times(2.0), times(3.0), times(2), elementwise(square)}) == 4
    assert repr(times(2.0)) == repr(times(2.0))
    with pytest.raises(PlanError, match="uses 'factor', which is a ndarray"):
        times(np.ones(2))
    results = [
        plan("mn-mk-kn", 2, MACHINE, epilogue=times(factor))(np.eye(2), np.ones((2, 2)))
        for factor in (2.0, 3.0)
    ]
    assert [result.tolist() for result in results] == [[[2.0, 2.0]] * 2, [[3.0, 3.0]] * 2]


def test_plans_with_functions_are_kept_and_pickled_but_no_json():
    chain = "+n", elementwise(square)
    found = plan("mn-mk-kn", 12, "i7-6700k", epilogue=chain)
    plan_cache.forget()
    again = plan("mn-mk-kn", 12, "i7-6700k", epilogue=chain)
    assert again == found
    assert again is not found
    assert str(again.epilogue) == "+n elementwise(square)"
    assert "+n elementwise(square)" in str(again)
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    arrays, operands = draw_inputs(found.problem, found.epilogue)
    np.testing.assert_array_equal(
        copy(*arrays, operands=operands), found(*arrays, operands=operands)
    )
    with pytest.raises(PlanError, match=r"elementwise\(square\).* JSON cannot hold"):
        Plan.from_json(found.to_json())
    with pytest.raises(SpecError, match="text has no functions"):
        Epilogue.parse("elementwise(square)")


def test_epilogues_read_back():
    for text in ("*k +k relu6", "+ gelu", "clip(-1,2) leaky(0.1) tanh"):
        assert str(Epilogue.parse(text)) == text
