"""Plans of halves: sums in float32, rounded once, whatever the layout and the tiles are."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_epilogues import apply_epilogue
from running_cases import (
    LAYOUTS,
    WIDTHS,
    make_machine,
    make_shallow_machine,
    poisoned,
    relaid,
)
from strategies import draw_whole_numbers, problems, specs, unshrunk
from turns import examples

from tilesolve import Problem, conv, conv_layer, plan
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.half_precision import HALF_DTYPES, array_dtype
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.reference import reference
from tilesolve.kernels.dtypes import lanes
from tilesolve.model.nest import Band
from tilesolve.planning.register_tile import choose_register_tile
from tilesolve.plans.plan import Plan

pytestmark = pytest.mark.usefixtures("any_tiles")

MACHINE = make_shallow_machine(256, 16)
SLOW = examples(6, 30, settings(unshrunk, suppress_health_check=list(HealthCheck)))
halves = pytest.mark.parametrize("dtype", HALF_DTYPES)


def draw(shape, dtype, generator):
    return generator.standard_normal(shape).astype(array_dtype(dtype))


def operands_of(problem, seed=0):
    generator = np.random.default_rng(seed)
    return [draw(shape, problem.dtype, generator) for shape in problem.shapes[1:]]


def exactly(problem, arrays):
    """The result for the same halves in float64, and the sum of the sizes of what is added up."""
    wide = [array.astype(np.float64) for array in arrays]
    return reference(problem, *wide), reference(problem, *map(np.abs, wide))


def spacing(values, dtype):
    """The distance of halves around numbers."""
    info = (10, -14) if dtype == "float16" else (7, -126)
    exponent = np.maximum(np.frexp(values)[1] - 1, info[1])
    return np.ldexp(1.0, exponent - info[0])


def check(problem, found, exact, sizes, extra=0.0):
    """Hold a result to the exact one: half a unit for rounding, and what float32 sums may lose."""
    assert found.dtype == array_dtype(problem.dtype)
    count = np.prod([1, *problem.sizes.values()])
    bound = (count + 8) * np.finfo(np.float32).eps * (sizes + np.abs(exact)) + extra
    bound = bound + spacing(np.abs(exact) + bound, problem.dtype) / 2
    assert np.all(np.abs(found.astype(np.float64) - exact) <= bound)


@pytest.mark.parametrize(("bits", "registers"), WIDTHS)
@pytest.mark.parametrize(
    ("dtype", "spec"),
    [("float16", "mn-mk-kn"), ("bfloat16", "nm-km-nk"), ("bfloat16", "mnb-mkb-nkb")],
)
def test_edges_of_register_tiles_at_every_width(dtype, bits, registers, spec):
    """One less, as many and one more rows and columns than a register tile has."""
    machine = make_shallow_machine(bits, registers)
    usual = choose_register_tile(Problem.of("mn-mk-kn", 300, dtype), machine)
    for more in (-1, 0, 1):
        sizes = {"m": usual.columns + more, "n": usual.rows + more, "k": 19}
        sizes["b"] = lanes(dtype, bits) + more
        problem = Problem.of(spec, {i: sizes[i] for i in set(spec) - {"-"}}, dtype)
        arrays, out = operands_of(problem), poisoned(problem)
        plan(problem, machine=machine, cache=False)(*arrays, out=out)
        check(problem, out, *exactly(problem, arrays))


@SLOW
@given(problems(specs(2, affine=True), least=0, most=9, dtypes=HALF_DTYPES), st.integers(0, 99))
def test_any_spec_is_exact_where_sums_are(problem, seed):
    """Small whole numbers: the one rounding is all that happens."""
    arrays = draw_whole_numbers(problem, seed)
    out = poisoned(problem)
    plan(problem, machine=MACHINE, cache=False)(*arrays, out=out)
    exact, _ = exactly(problem, arrays)
    assert np.array_equal(out, exact.astype(out.dtype))


@pytest.mark.grid
@halves
@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("mn-mk-kn", "m=37 n=53 k=29"),
        ("abcd-aebf-dfce", "a=5 b=9 c=7 d=6 e=4 f=3"),
        ("bmn-bmk-kbn", "b=3 m=10 n=21 k=17"),
        ("mnb-mkb-nkb", "m=5 n=6 b=35 k=9"),
        ("khw-c[2h+r][w+s]-kcrs", "k=20 h=7 w=19 c=5 r=3 s=3"),
        ("hwc-[h+r][w+s]c-rsc", "h=6 w=9 c=37 r=3 s=3"),
    ],
)
def test_strides_do_not_matter(dtype, spec, sizes):
    problem = Problem.of(spec, sizes, dtype)
    run, arrays = plan(problem, machine=MACHINE, cache=False), operands_of(problem)
    exact, sums = exactly(problem, arrays)
    for number in range(8):
        given = [relaid(array, LAYOUTS[1 + (number + at) % 4]) for at, array in enumerate(arrays)]
        out = relaid(poisoned(problem), LAYOUTS[1 + number // 2])
        kept = [array.copy() for array in given]
        run(*given, out=out)
        check(problem, out, exact, sums)
        assert all(np.array_equal(x, y) for x, y in zip(given, kept, strict=True))


@halves
def test_long_sums_are_rounded_once(dtype):
    """A thousand ones more than a half can count by ones: parts of them were lost otherwise."""
    machine = make_machine()
    for sizes in ("m=33 n=50 k=60000", "m=300 n=300 k=3000"):
        problem = Problem.of("mn-mk-kn", sizes, dtype)
        arrays = [np.ones(shape, array_dtype(dtype)) for shape in problem.shapes[1:]]
        found = plan(problem, machine=machine, cache=False)(*arrays)
        assert np.all(found == array_dtype(dtype).type(problem.sizes["k"]))


@halves
def test_sums_cut_at_every_band_are_rounded_once(dtype):
    """Whatever tile has whole sums, and where boxes have parts of them."""
    problem = Problem.of("mn-mk-kn", "m=70 n=90 k=83", dtype)
    found = plan(problem, machine=make_machine(), cache=False)
    arrays = operands_of(problem)
    exact, sums = exactly(problem, arrays)
    names = [band.level for band in found.solution.nest.bands]
    sides = [(8, 16, 10), (16, 32, 20), (40, 50, 40), (70, 90, 83)]
    for turn in range(6):
        order = ("m", "n", "k")[turn % 3 :] + ("m", "n", "k")[: turn % 3]
        boxes = [dict(zip("mnk", box, strict=True)) for box in sides]
        if turn > 2:
            boxes[2]["k"] = 83
        bands = tuple(
            Band(name, order, tuple((i, box[i]) for i in problem.sizes))
            for name, box in zip((names[0], "L1", "L2", names[-1]), boxes, strict=True)
        )
        nest = replace(found.solution.nest, bands=bands, packed=("L1", "L2"), kinds=())
        out = poisoned(problem)
        Plan(replace(found.solution, nest=nest))(*arrays, out=out)
        check(problem, out, exact, sums)


@halves
@pytest.mark.parametrize("spec", ["mn-mk-kn", "nm-mk-kn"])
@pytest.mark.parametrize("threads", [1, 2])
def test_factors_and_sums_that_are_added_to(dtype, spec, threads):
    """``alpha * sums + beta * out`` in float32, rounded once."""
    problem = Problem.of(spec, "m=61 n=45 k=33", dtype)
    arrays = operands_of(problem)
    exact, sums = exactly(problem, arrays)
    run = plan(problem, machine=make_machine(), threads=threads, accumulate=True, cache=False)
    before = draw(problem.shapes[0], dtype, np.random.default_rng(7))
    for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (-3.0, 0.0), (0.0, 1.0)):
        out = before.copy()
        run(*arrays, out=out, alpha=alpha, beta=beta)
        wide = before.astype(np.float64)
        expected = alpha * exact + beta * wide
        check(problem, out, expected, abs(alpha) * sums + abs(beta * wide))
    ones, coarse = [np.ones_like(array) for array in arrays], 2048 if dtype == "float16" else 256
    out = np.full_like(before, coarse)
    run(*ones, out=out, beta=1.0)
    assert np.all(out == array_dtype(dtype).type(coarse + 33))


@halves
@pytest.mark.parametrize(
    "text", ["+n relu", "*n +mn", "sigmoid", "+m relu6", "clip(-0.5,0.75) *mn"]
)
@pytest.mark.parametrize("spec", ["mn-mk-kn", "nm-mk-kn"])
def test_epilogues_act_on_float32(dtype, text, spec):
    """Before the rounding; with operands of halves."""
    problem = Problem.of(spec, "m=35 n=50 k=12", dtype)
    epilogue = Epilogue.parse(text)
    arrays = operands_of(problem)
    others = [draw(s, dtype, np.random.default_rng(5)) for s in epilogue.shapes(problem)]
    found = plan(problem, machine=MACHINE, epilogue=text, cache=False)(*arrays, operands=others)
    exact, sums = exactly(problem, arrays)
    expected = apply_epilogue(epilogue, problem, exact, [one.astype(np.float64) for one in others])
    largest = max([1.0, *(float(np.abs(one.astype(float)).max()) for one in others)])
    check(problem, found, expected, (sums + largest) * largest)


@halves
def test_infinities_and_what_is_no_number_come_through(dtype):
    kind = array_dtype(dtype)
    problem = Problem.of("mn-mk-kn", "m=20 n=40 k=6", dtype)
    first, second = np.zeros((20, 6), kind), np.zeros((6, 40), kind)
    first[:, 0], second[0] = 1, 1
    first[3, 1], second[1, 5] = np.inf, 2
    first[4, 2] = np.nan
    run = plan(problem, machine=MACHINE, cache=False)
    found = run(first, second).astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = first.astype(np.float64) @ second.astype(np.float64)
    assert np.array_equal(found, expected, equal_nan=True)
    large = np.full((20, 6), np.float32(3e38) if dtype == "bfloat16" else 6e4).astype(kind)
    assert np.all(np.isposinf(run(large, np.full((6, 40), 2, kind)).astype(np.float64)))
    small = np.zeros((20, 6), kind)
    small.view(np.uint16)[:, 0] = np.arange(1, 21)  # subnormal
    ones = np.ones((6, 40), kind)
    assert np.array_equal(run(small, ones), np.broadcast_to(small[:, :1], (20, 40)))
    signs = run(-np.zeros((20, 6), kind), ones, alpha=1.0)
    assert np.all(signs == 0)


@pytest.mark.parametrize(
    ("dtype", "layout", "groups"),
    [
        ("float16", "NCHW", 1),
        ("bfloat16", "NHWC", 1),
        ("bfloat16", "NCHW", 24),
        ("float16", "NHWC", 24),
    ],
)
def test_layers_with_padding(dtype, layout, groups):
    """Also depthwise ones, whose kernels read halves in place."""
    generator = np.random.default_rng(2)
    x, w = draw((2, 24, 9, 11), dtype, generator), draw((24, 24 // groups, 3, 3), dtype, generator)
    bias = draw(24, dtype, generator)
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    wide = [array.astype(np.float64) for array in (x, w, bias)]
    how = {"padding": 1, "groups": groups, "layout": layout}
    expected = conv(*wide[:2], bias=wide[2], epilogue="relu", **how)
    found = conv(x, w, bias=bias, epilogue="relu", **how)
    kept = conv_layer(x.shape, w, bias=bias, epilogue="relu", **how)(x)
    sums = conv(*map(np.abs, wide[:2]), bias=np.abs(wide[2]), **how)
    for one in (found, kept):
        assert one.dtype == array_dtype(dtype)
        bound = 1e-4 * sums + spacing(np.abs(expected) + 1e-4 * sums, dtype) / 2
        assert np.all(np.abs(one.astype(np.float64) - expected) <= bound)


@halves
def test_prepared_operands_and_texts_of_plans(dtype):
    problem = Problem.of("mn-mk-kn", "m=33 n=40 k=21", dtype)
    arrays = operands_of(problem)
    found = plan(problem, machine=MACHINE, constant="B", cache=False)
    expected = found(*arrays)
    assert np.array_equal(found(arrays[0], found.prepare(arrays[1], "B")), expected)
    assert Plan.from_json(found.to_json()).problem.dtype == dtype
    assert np.array_equal(pickle.loads(pickle.dumps(found))(*arrays), expected)


@halves
def test_padded_operands(dtype):
    problem = Problem.of("hk-[h+r]c-rck", "h=20 k=19 r=3 c=5", dtype, [Padding(1, 0, 1, 1)])
    arrays = operands_of(problem)
    found = plan(problem, machine=MACHINE, cache=False)(*arrays)
    check(problem, found, *exactly(problem, arrays))


@halves
def test_other_dtypes_are_refused_by_name(dtype):
    problem = Problem.of("mn-mk-kn", 8, dtype)
    run = plan(problem, machine=MACHINE, cache=False)
    good, other = np.zeros((8, 8), array_dtype(dtype)), np.zeros((8, 8), np.float32)
    text = f"operand B of 'mn-mk-kn' is float32, the plan's dtype is {dtype}"
    with pytest.raises(DtypeError, match=text):
        run(good, other)
    with pytest.raises(DtypeError, match=f"out of 'mn-mk-kn' is float32, .* is {dtype}"):
        run(good, good, out=other)
    with pytest.raises(DtypeError, match=f"operand 0 .* is float32, the plan's dtype is {dtype}"):
        plan(problem, machine=MACHINE, cache=False, epilogue="+n")(
            good, good, operands=[np.zeros(8, np.float32)]
        )


@halves
def test_reports_name_what_is_summed_in(dtype):
    text = str(plan("mn-mk-kn", 64, MACHINE, dtype=dtype, cache=False))
    assert f"{dtype}, summed in float32" in text
    assert "rounded once its sums are whole" in text
