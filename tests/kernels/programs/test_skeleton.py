"""Skeletons of programs: sizes of one statement share their code, whatever their tiles leave."""

import os
from unittest import mock

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import assume, given
from hypothesis import strategies as st
from interpreter import interpret
from turns import examples

from tests.kernels.programs.programs import ZERO, draw_values, lay, number, poison
from tests.kernels.programs.test_lowering import STATEMENTS, compare
from tests.support.loop_trees import draw_tree
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs import compiled_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.program import Compute, Loop, Program
from tilesolve.kernels.programs.skeleton import find_skeleton
from tilesolve.nests.programs import write_program

BITS, LANES = 256, 8
SIZED = [
    (text, where)
    for text, where, dtypes in STATEMENTS
    if "float32" in dtypes and "v[" not in text and "40-" not in text
]
AROUND_STEPS = st.builds(
    lambda step, count, beside: step * count + beside,
    st.sampled_from([16, 17, 24]),
    st.integers(2, 3),
    st.integers(-1, 1),
)


def draw_arrays(computation, seed):
    """Inputs and poisoned results that lie anyhow, some with an axis of one element repeated."""
    rng, numbers = np.random.default_rng(seed), np.random.default_rng(seed)
    found = {}
    for name in computation.inputs:
        shape = computation.array(name).shape
        values = draw_values(shape, "float32", numbers)
        if shape and rng.random() < 0.2:
            axis = int(rng.integers(len(shape)))
            found[name] = np.broadcast_to(np.take(values, [0], axis), shape)
        else:
            found[name] = lay(values, rng)[0]
    for info in computation.arrays[len(computation.inputs) :]:
        found[info.name] = lay(np.full(info.shape, poison(info.dtype), info.dtype), rng)[0]
    return found


@examples(4, 20)
@given(st.data(), st.sampled_from(SIZED), st.integers(0, 10**6))
def test_sizes_around_steps_share_one_object(tmp_path_factory, data, statement, seed):
    """Two sizes compile once, and give what NumPy does, on arrays of any strides.

    In a region extents are alike: whether one is cut by all that another can reach changes loops.
    A size that is another bound as well, by chance, has one symbol with it: the loops differ.
    """
    symbols = []
    text, where = statement
    stages = parse_stages(text, where or ())
    letters = dict.fromkeys(letter for stage in stages for letter in stage.letters)
    folder = {"TILESOLVE_CACHE_DIR": str(tmp_path_factory.mktemp("objects"))}
    build = mock.patch.object(
        compiled_program, "compile_module", wraps=compiled_program.compile_module
    )
    with build as built, mock.patch.dict(os.environ, folder):
        for _ in range(2):
            extent = data.draw(AROUND_STEPS)
            sizes = {x: extent if where else data.draw(AROUND_STEPS) for x in letters}
            computation = bind_stages(stages, sizes, "float32")
            tree = draw_tree(computation, np.random.default_rng(seed), LANES)
            program = write_program(computation, tree)
            _, values = find_skeleton(program)
            assume(values)  # not what is written out too often
            symbols.append(len(values))
            arrays = draw_arrays(computation, seed)
            params = {name: np.float32(3) for name, _ in computation.params}
            out = arrays[computation.output.name]
            expected = evaluate(computation, arrays, params, out=out)
            compiled = compile_program(program, Layout.of(arrays), BITS)
            compiled.run(arrays, params, threads=2)
            compare(out, expected, single=True)
    assert built.call_count == len(set(symbols))


@pytest.mark.parametrize(("ends", "sized"), [([20], 2), ([], 0)])
def test_what_is_written_out_up_to_a_size_has_it_in_the_code(ends, sized):
    """The bound itself, or all sizes where it depends on another loop's."""
    extent = 20
    found = bind_stages(parse_stages("out[y,x] = A[y,x] + 1", "x <= y"), extent, "float32")
    high = (Affine.letter("y") + 1, *map(number, ends))
    row = Loop("x", (ZERO,), high, (Compute(0),), kind="unrolled")
    program = Program(found, (Loop("y", (ZERO,), (number(extent),), (row,)),))
    assert len(find_skeleton(program)[1]) == sized
    values = np.random.default_rng(extent).random((extent, extent), np.float32)
    out = np.full((extent, extent), np.nan, np.float32)
    expected = interpret(program, {"A": values}, out=out).output
    compile_program(program).run({"A": values, "out": out})
    np.testing.assert_array_equal(out, expected)


def test_what_is_written_out_very_often_has_sizes_in_the_code():
    """LLVM would take long for the code of any size."""
    found = bind_stages(parse_stages("out[y,x] = A[y,x] + 1"), 9, "float32")
    body = (Compute(0),)
    for letter in ("x", "y"):
        body = (Loop(letter, (ZERO,), (number(9),), body, kind="unrolled"),)
    assert find_skeleton(Program(found, body))[1] == ()
    assert find_skeleton(Program(found, (Loop("y", (ZERO,), (number(9),), body[0].body),)))[1]


def test_names_of_loops_over_tiles_are_not_in_the_code():
    """They tell how long tiles are, where plans write them."""

    def tiled(name, step):
        found = bind_stages(parse_stages("out[x] = A[x]"), 100, "float32")
        tile = Affine.letter(name)
        row = Loop("x", (tile,), (tile + step, number(100)), (Compute(0),), kind="vector")
        return Program(found, (Loop(name, (ZERO,), (number(100),), (row,), step),))

    first, second = (find_skeleton(tiled(f"x_{step}", step)) for step in (16, 24))
    assert first[0] == second[0]
    assert (first[1], second[1]) == ((100, 16), (100, 24))
