"""Register tiles that were not measured: those that write C in long runs."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.constants.policy import LEAST_ACCUMULATORS_SHARE
from tilesolve.constants.tuning import MIN_STAGED_RUN_BYTES
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.letter_boxes import shape_box
from tilesolve.planning.register_tile import choose_register_tile

MACHINE = Machine.load("i7-6700k").replace(vector_bits=512, vector_registers=32)
LINE = MACHINE.memory.line


def shortest_run(problem, kernel):
    """Return the bytes of the shortest piece of C that a call writes, by offsets."""
    first, second = (set(one.letters) for one in problem.spec.operands)
    output = problem.spec.output.letters
    rows = [i for i in output if i in (first if output[-1] in first else second)]
    columns = [i for i in output if i not in rows]
    group = 64 // problem.itemsize
    inner = {i: min(group, problem.sizes[i]) if i == output[-1] else 1 for i in rows}
    sides = {
        **shape_box(problem, rows, inner, kernel.rows, LINE, [problem.spec.output]),
        **shape_box(problem, columns, dict.fromkeys(columns, 1), kernel.columns, LINE, []),
    }
    places = np.arange(np.prod([problem.sizes[i] for i in output])).reshape(
        [problem.sizes[i] for i in output]
    )
    written = np.sort(places[tuple(slice(0, sides.get(i, 1)) for i in output)].ravel())
    pieces = np.split(written, np.flatnonzero(np.diff(written) > 1) + 1)
    return min(map(len, pieces)) * problem.itemsize


@given(
    extents=st.lists(st.sampled_from([2, 3, 8, 15, 16, 17, 24, 32]), min_size=3, max_size=4),
    cut=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_fewer_vectors_write_long_runs(extents, cut, order, dtype):
    """Only where C lies amid lines and goes past the caches, and the default's are short."""
    output = "abcd"[: len(extents)]
    letters = list(output)
    order.shuffle(letters)
    cut = min(cut, len(letters) - 1)
    spec = f"{output}-{''.join(letters[:cut])}k-k{''.join(letters[cut:])}"
    sizes = dict(zip(output, extents, strict=True)) | {"k": 24}
    problem = Problem.of(spec, sizes, dtype)
    default = choose_register_tile(problem, MACHINE)
    streamed = choose_register_tile(problem, MACHINE, non_temporal=True)
    at_lines = replace(problem, aligned_output=True)
    assert choose_register_tile(at_lines, MACHINE, non_temporal=True).rows == default.rows
    assert streamed.columns == default.columns
    if streamed.rows != default.rows:
        assert default.rows > streamed.rows >= LEAST_ACCUMULATORS_SHARE * default.rows
        assert shortest_run(problem, default) < MIN_STAGED_RUN_BYTES
        assert shortest_run(problem, streamed) >= MIN_STAGED_RUN_BYTES


def test_a_letter_of_two_vectors_has_two():
    """Three of them would be pieces of a line each; two go on into the next letter."""
    sizes = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}
    problem = Problem.of("abcdef-dfgc-geab", sizes)
    found = [choose_register_tile(problem, MACHINE, non_temporal=past).rows for past in (0, 1)]
    assert found == [24, 16]
