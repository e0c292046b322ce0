"""Loop trees as they are priced, interpreted and compiled, against the evaluation of stages."""

from dataclasses import replace

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import example, given
from hypothesis import strategies as st
from interpreter import interpret
from turns import examples

from tests.kernels.programs.programs import ZERO, draw_values, lay, number, poison
from tests.support import guard_pages
from tests.support.loop_trees import check_traffic, draw_tree
from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.program import Compute, Loop, Program
from tilesolve.nests.programs import write_program

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = ("float32", "float64")
BITS = ("bool", *INTEGERS)
NUMBERS = (*INTEGERS, *REALS)
ALL = ("bool", *NUMBERS)

STATEMENTS = (
    ("out[y,x] = A[y,x] + 3 * A[y,x+2]", "", NUMBERS),
    ("out[y,x] = A[x,y] & B[y,x]", "", BITS),
    ("out[x] = A[2*x+1] - A[3*x]", "", NUMBERS),
    ("out[y,x] = B[x] + A[y,x] * 2 + A[y+1,x] * C[x] + A[y+3,x]", "", NUMBERS),
    ("out[y,x] = max(A[2*y,x] + A[2*y+1,x] + A[2*y+2,x] + B[y,x], 3)", "y <= x", NUMBERS),
    ("out[x] = A[40-x]", "", ALL),
    ("out[y,x] = A[y//2,x//2] * A[y//3,x//3+1]", "", NUMBERS),
    ("out[x] = A[(2*x+1)//3]", "", NUMBERS),
    ("out[x,y] = A[x] * B[y] + x - 2*y", "", NUMBERS),
    ("out[i,j] += A[i,k] * B[k,j]", "", NUMBERS),
    ("out[i,j] += A[i,k] * A[j,k]", "", NUMBERS),
    ("out[i,j] += A[i,k] * A[j,k]", "j <= i", NUMBERS),
    ("out[i,j] += A[i,k] * B[k,j]", "k >= i", NUMBERS),
    ("out[i,j] = A[j,i] + B[i,j]", "i <= j + 2", NUMBERS),
    ("out[i] = max(A[i,k] - B[k])", "", NUMBERS),
    ("out[i] = min(A[k,i])", "", ALL),
    ("out[i] &= A[i,k]", "", BITS),
    ("out[i] |= A[i,k]", "", BITS),
    ("out[i] ^= A[i,k]", "", BITS),
    ("out[i] *= A[i,k]", "", NUMBERS),
    ("out[i] = sum(A[i,k], k) / (1 + sum(abs(B[k]), k)) + i", "", REALS),
    ("out[i] = sum(A[i,k] * 100, k) // 7 - max(B[i,k])", "", NUMBERS),
    ("out[i] = where(A[i] > B[i], A[i] // B[i], B[i] % 7)", "", NUMBERS),
    ("out[i] = A[i] % B[i]", "", NUMBERS),
    ("out[i] = abs(A[i]) + (min(A[i], B[i]) - max(A[i], 2))", "", NUMBERS),
    ("out[i] = (A[i] << (B[i] & 31)) ^ (A[i] >> B[i]) | ~A[i]", "", INTEGERS),
    ("out[i] = sqrt(abs(A[i])) + floor(A[i]) * ceil(B[i]) - round(A[i] * 3.3)", "", REALS),
    ("out[i] = exp(A[i]) + log(abs(B[i]) + 0.001)", "", REALS),
    ("out[i] = int32(A[i] * 10) + uint8(3)", "", REALS),
    ("out[i] = float32(A[i]) * 0.5", "", BITS),
    ("out[i] = A[v[i]] + v[i]", "", ("int32", "uint8", *REALS)),
    ("out[i,j] = A[v[j],i] + A[v[i],j]", "", ("int16", "int32", "float32")),
    ("out[i,j] = A[v[i],j] * B[j]", "", ("int8", "int32", *REALS)),
    ("out[i,j] = A[v[i],j] + B[i]", "j <= i", ("int16", *REALS)),
    ("out[i] = max(A[i,k] * B[k])", "k <= i", NUMBERS),
    ("out[i] += A[i,k] * B[k]", "k >= i", NUMBERS),
    ("out[i] += A[i,k]", "2 * i <= k and k <= 2 * i + 20", NUMBERS),
    ("out[v[i]] += A[i]", "", NUMBERS),
    ("out[v[i],j] += A[i,j]", "", NUMBERS),
    ("out[v[i],j] += A[j,i] * B[j]", "j <= i", REALS),
    ("out[v[i],i//4] += A[i] * p", "", REALS),
    ("out[i,j] = A[i,j] * p + B[j]", "", REALS),
    ("out[i] = A[i,i] + A[3,i]", "", NUMBERS),
    ("out[i] = (A[i] < B[i]) & (A[i+1] != 3) | (B[i] >= 0)", "", NUMBERS),
    ("t[i,j] += A[i,k] * B[k,j]; out[i,l] = max(t[i,j] - C[l,j])", "i >= 2 and l <= i", NUMBERS),
    ("t[y,x] = A[x,y] * 2; out[x] = min(t[y,x] + B[y])", "", NUMBERS),
    ("t[x] = A[x] - B[x+1]; out[x] = t[x] * A[x] + B[x]", "x >= 3", NUMBERS),
)
"""Statements, the region of the last one, and the dtypes of arrays."""

EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)


def draw_computation(rng):
    """Statements at some extents, in some dtype; and how many rows `v` chooses from."""
    text, where, dtypes = STATEMENTS[rng.integers(len(STATEMENTS))]
    dtype, rows = str(rng.choice(dtypes)), int(rng.choice([5, 11]))
    *others, stage = parse_stages(text, where or ())
    real = "float" in text  # which CPUs round differently to an integer that cannot hold it
    if dtype in INTEGERS and not real and rng.random() < 0.3:
        stage = replace(stage, dtype=str(rng.choice(INTEGERS)))
    stages = (*others, stage)
    sizes = {x: int(rng.choice(EXTENTS)) for one in stages for x in one.letters}
    if "40-x" in text:
        sizes["x"] = int(rng.choice([15, 16, 33, 40, 41]))
    read = [one.array for stage in stages for one in stage.reads if one.array != "t"]
    kinds = dict.fromkeys([*read, *stage.term.params], dtype)
    shapes = {}
    if "v" in kinds:
        kinds["v"] = str(rng.choice(["uint8", "int16", "int32", "int64"]))
        if stage.update is not None:
            columns = sizes.get("j", (sizes["i"] - 1) // 4 + 1)
            shapes["out"] = (rows, columns)[: len(stage.axes)]
        else:
            shapes["A"] = (rows, max(sizes.values()))[: 2 if "j" in sizes else 1]
    return bind_stages(stages, sizes, kinds, shapes), rows


def draw_case(seed):
    """A computation, a tree for it, its arrays and parameters, and a width of vectors."""
    rng = np.random.default_rng(seed)
    computation, rows = draw_computation(rng)
    bits = int(rng.choice([128, 256, 512]))
    tree = draw_tree(computation, rng, bits // 8 // np.dtype(computation.output.dtype).itemsize)
    arrays = {}
    for name in computation.inputs:
        info = computation.array(name)
        values = draw_values(info.shape, info.dtype, rng)
        if name == "v":
            values = rng.integers(0, rows, info.shape).astype(info.dtype)
        arrays[name] = values
    params = {name: np.dtype(dtype).type(3) for name, dtype in computation.params}
    return rng, computation, tree, arrays, params, bits


def compare(found, expected, single):
    """Integers are the same, and floating-point numbers near."""
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    tolerance = 1e-5 if single else 1e-12
    scale = 1 + np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


@examples(10, 25)
@given(st.integers(0, 10**6))
@example(1611)  # a summed letter bounds vectors that are held
@example(204)  # tiles of a summed letter bound a letter of the output that is held
@example(587)  # a stage of several parts shares a loop with another one
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_a_tree_is_priced_interpreted_and_compiled(seed):
    """Statements of all kinds, in trees of all shapes, on arrays that lie anyhow.

    Half of the time inputs end where pages do that nobody may touch.
    """
    try:
        rng, computation, tree, arrays, params, bits = draw_case(seed)
    except DtypeError:  # such as the square root of a bool
        return
    if all(computation.sizes.values()):
        check_traffic(tree, rng)
    program = write_program(computation, tree)
    info = computation.output
    before = np.full(info.shape, poison(info.dtype), info.dtype)
    expected = evaluate(computation, arrays, params, out=before)
    single = "float32" in (info.dtype, *computation.dtypes.values())
    compare(interpret(program, arrays, params, out=before).output, expected, single)
    give = guard_pages.give if rng.random() < 0.5 else lambda values, rng: lay(values, rng)[0]
    given_arrays = {name: give(values, rng) for name, values in arrays.items()}
    for one in computation.arrays[len(arrays) : -1]:  # what lies between stages
        given_arrays[one.name] = lay(np.full(one.shape, poison(one.dtype), one.dtype), rng)[0]
    out, room = lay(before, rng)
    given_arrays["out"], guard = out, room.view(np.uint8).copy()
    compiled = compile_program(program, Layout.of(given_arrays), bits)
    compiled.run(given_arrays, params, threads=int(rng.integers(1, 3)))
    compare(out, expected, single)
    out[...] = before  # and nothing else was touched
    np.testing.assert_array_equal(room.view(np.uint8), guard)


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ("int64", "int8"),
        ("int64", "int32"),
        ("int32", "int16"),
        ("float32", "uint8"),
        ("int16", "uint8"),
    ],
)
def test_a_single_last_lane_of_narrowed_numbers_is_stored_alone(given, dtype, bits):
    extent = 2 * bits // 8 + 1
    computation = bind_stages(parse_stages(f"out[i] = {dtype}(A[i])"), extent, given)
    room = np.full(extent + 16, 7, dtype)
    loop = Loop("i", (ZERO,), (number(extent),), (Compute(0),), kind="vector")
    program = Program(computation, (loop,))
    A = np.arange(extent).astype(given)
    compile_program(program, bits=bits).run({"A": A, "out": room[:extent]})
    np.testing.assert_array_equal(room[:extent], A.astype(dtype))
    assert (room[extent:] == 7).all()
