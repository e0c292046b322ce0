"""Loop programs of planned nests: run point by point, and as machine code, at odd sizes."""

from dataclasses import replace

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import given
from hypothesis import strategies as st
from interpreter import interpret
from machine_code import program_assembly
from turns import WHOLE, examples, in_turn

from tests.support.points import Points
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.nest_suites import nest_suite
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.codegen.object_code import TargetCpu
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Buffer, Loop
from tilesolve.nests.planning import solve_nest
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest

MACHINE = Machine.load("i7-6700k")
NEAR, FAR, *OTHERS = MACHINE.levels
SMALL = MACHINE.replace(
    levels=(replace(NEAR, capacity=512, ways=4), replace(FAR, capacity=2048, ways=4), *OTHERS)
)
"""Caches so small that small problems have several tiles of each letter."""

STATEMENTS = [
    ("C[i,j] += A[i,k] * B[k,j]", "", "i=7 j=21 k=9"),
    ("C[i,j] += A[i,k] * A[j,k]", "j <= i", "i=13 j=13 k=4"),
    ("C[i,j] += A[i,k] * B[j,k] + B[i,k] * A[j,k]", "", "i=7 j=11 k=5"),
    ("B[i,j] += A[i,k] * B0[k,j]", "k >= i", "i=11 j=11 k=11"),
    ("B[i,j] += A[i,k] * B0[k,j]", "k >= i + 3", "i=11 j=11 k=11"),
    ("C[i,j] += A[i,k] * B[k,j]", "3*k - 2*i - j >= 4", "i=7 j=11 k=13"),
    ("C[i,j] += A[i,k] * B[k,j]", "-2 <= i - j <= 1", "i=9 j=12 k=3"),
    ("C[i,j] = max(A[i,k] + B[k,j])", "", "i=5 j=12 k=7"),
    ("O[k,y,x] += I[c,y+r,2*x+s] * W[k,c,r,s]", "", "k=2 y=3 x=5 c=2 r=2 s=3"),
    ("m[y,x] = A[x,y] & B[y,x]", "", "y=33 x=41"),
    ("m[z,y,x] = A[x,z,y] ^ B[z,y,x]", "", "z=2 y=20 x=35"),
    ("m[y,x] = A[x,y] & B[y,x]", "y < 2*x", "y=33 x=41"),
    ("c[i] += A[i,k] * x[k]", "", "i=50 k=31"),
    ("C[i,j] += A[i,k] * A[j,k]", "", "i=7 j=6 k=21"),
    ("r[j] += A[i,j]", "", "i=50 j=31"),
    ("o[x] = A[x] + A[x+1]", "", "x=101"),
    ("o[z,x] = A[z,x] + 1", "", "z=3 x=101"),
    ("G[i,j] = 2 * C[i,j] + 3 * sum(A[i,k] * B[k,j])", "", "i=5 j=12 k=7"),
    ("C[i,j] = 2 * C[i,j] + 3 * sum(A[i,k] * B[k,j])", "", "i=5 j=12 k=7"),
    ("E[i,j] += A[i,k] * B[k,j]; G[i,l] += E[i,j] * F[j,l]", "", "i=9 j=20 k=11 l=17"),
]


def plan_nest(request):
    """How each statement is run."""
    return solve_nest(request).solutions


def bound(text, where, sizes, dtype="int64"):
    """A computation from text."""
    extents = {x: int(n) for x, n in (part.split("=") for part in sizes.split())}
    return bind_stages(parse_stages(text, where or ()), extents, dtype)


def draw(computation, seed=0):
    """Small whole numbers for all inputs, which no order of sums rounds."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 9, computation.array(name).shape).astype(
            computation.array(name).dtype
        )
        for name in computation.inputs
    }


def run_all(computation, arrays, machine, threads, mode, run):
    """The output, each statement by what `run` makes of one of its programs."""
    kept = dict(arrays)
    for choice in plan_nest(NestRequest(computation, machine, threads, mode, "nest")):
        programs = [choice.program]
        if mode == "default":
            for other in ("untiled", "plain"):
                programs += [
                    one.program
                    for one in plan_nest(NestRequest(choice.computation, machine, threads, other))
                ]
        own = choice.computation.output
        inputs = {x: kept[x] for x in choice.computation.inputs}
        found = [run(program, inputs, own) for program in programs]
        assert all(np.array_equal(found[0], other) for other in found[1:])
        kept[own.name] = found[0]
    return kept[computation.output.name]


def interpreted(program, arrays, own):
    """The output by the interpreter, which checks each access and each point."""
    return interpret(program, arrays, {}, np.full(own.shape, 77, own.dtype)).output


def expected(computation, arrays):
    """The output by Python's loops; it holds 77 where a region leaves it alone."""
    own = computation.output
    return Points(computation, {own.name: np.full(own.shape, 77, own.dtype), **arrays}).run()


@WHOLE
@pytest.mark.parametrize(("text", "where", "sizes"), STATEMENTS)
def test_programs_compute_each_point_once(text, where, sizes, whole):
    """Tiled, untiled and obvious loops give what Python's loops give, for several threads."""
    turn = STATEMENTS.index((text, where, sizes))
    others = in_turn([("thesis", 1), ("thesis", 2), ("untiled", 1)], turn, whole)
    computation = bound(text, where, sizes)
    arrays = draw(computation)
    want = expected(computation, arrays)
    for mode, threads in (("default", 3), *others):
        found = run_all(computation, arrays, SMALL, threads, mode, interpreted)
        assert np.array_equal(found, want), (mode, threads)


@given(
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(0, 9),
    st.integers(1, 3),
    st.sampled_from(["", "j <= i", "k >= i", "i + j >= k + 2", "i <= 3"]),
    st.sampled_from(["default", "thesis"]),
)
@examples(10, 20)
def test_any_sizes_and_regions_give_the_same(i, j, k, threads, where, mode):
    """Ragged ends, empty sums and triangles of a product."""
    computation = bound("C[i,j] += A[i,k] * B[k,j]", where, f"i={i} j={j} k={k}")
    arrays = draw(computation)
    found = run_all(computation, arrays, SMALL, threads, mode, interpreted)
    assert np.array_equal(found, expected(computation, arrays))


@pytest.mark.parametrize("name", ["matmul", "trmm", "syrk-lower", "tpm", "gemm", "syr2k"])
def test_machine_code_of_the_suite_gives_what_einsum_gives(name):
    """Small odd sizes of kernels of the suite, as machine code."""
    case = nest_suite("nests")[name]
    computation = case.computation.part(dict.fromkeys(case.computation.sizes, 67))
    arrays = draw(computation)
    params = dict(case.params)
    kept = dict(arrays)
    for choice in plan_nest(NestRequest(computation, SMALL, 2, "default", "nest")):
        own = choice.computation.output
        given = {x: kept[x] for x in choice.computation.inputs}
        out = given.setdefault(own.name, np.full(own.shape, 77, own.dtype))
        compile_program(choice.program).run(given, params)
        kept[own.name] = out
    wide = {x: kept[x].astype(np.float64) for x in arrays}
    lower = np.tril(np.ones((67, 67), bool))
    want = {
        "matmul": lambda: wide["A"] @ wide["B"],
        "trmm": lambda: np.triu(wide["A"]) @ wide["B0"],
        "syrk-lower": lambda: np.where(lower, wide["A"] @ wide["A"].T, 77),
        "syr2k": lambda: wide["A"] @ wide["B"].T + wide["B"] @ wide["A"].T,
        "tpm": lambda: arrays["A"].T & arrays["B"],
        "gemm": lambda: 0.5 * wide["C"] + 1.5 * (wide["A"] @ wide["B"]),
    }[name]()
    assert np.allclose(kept[computation.output.name], want, rtol=1e-6)


@pytest.mark.parametrize("layout", ["panels", "windows", "prepared", "ring"])
def test_what_nothing_fills_yet_has_no_program(layout):
    """Copies and rings, and trees that stand for many nests."""
    computation = bound("o[x] = A[x] + 1", "", "x=30")
    (solution,) = plan_nest(NestRequest(computation, MACHINE, mode="plain"))
    tree = solution.loops
    buffer = Buffer(1, tree.works[0].accesses[1], layout, "L2", tree.body)
    with pytest.raises(SpecError, match=layout):
        write_program(computation, replace(tree, body=(buffer,)))
    many = Loop("x", np.array([8, 16]), tree.body)
    with pytest.raises(SpecError, match="no number"):
        write_program(computation, replace(tree, body=(many,)))


@WHOLE
@pytest.mark.parametrize("mode", ["thesis", "plain"])
def test_stores_pass_the_caches_exactly_where_that_is_planned(mode, whole):
    """In the assembly of all kernels of the suite, for two CPUs, which take turns."""
    planned, both = set(), [TargetCpu.named("haswell", 256), TargetCpu.named("znver4", 512)]
    for at, (name, case) in enumerate(nest_suite("nests").items()):
        cpus = in_turn(both, at, whole, of=2)
        small = case.computation.part({x: min(n, 40) for x, n in case.computation.extents})
        for choice in plan_nest(NestRequest(small, MACHINE, 2, mode, "nest")):
            for cpu in cpus:
                text = program_assembly(choice.program, cpu=cpu)
                assert ("vmovnt" in text) == bool(choice.non_temporal), (name, choice.statement)
            planned |= {name} if choice.non_temporal else set()
    own = {"tpm", "tp", "copy", "mask", "gemm"}  # of gemm what follows the sum
    assert planned == (own if mode == "thesis" else set())
