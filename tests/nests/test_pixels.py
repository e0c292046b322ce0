"""Pixels: channels are taken apart and put together as NumPy does, and nothing else is touched."""

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import example, given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.layout import Layout
from tilesolve.nests.planning import solve_nest
from tilesolve.nests.request import NestRequest

DTYPES = ("bool", "uint8", "int16", "uint32", "float32", "float64")
STATEMENTS = {
    "o[c,y,x] = A[y,x,c]": lambda A, P, g: A.transpose(2, 0, 1),
    "o[y,x,c] = P[c,y,x]": lambda A, P, g: P.transpose(1, 2, 0),
    "o[y,c,x] = float32(A[y,x,c]) * 2": lambda A, P, g: 2 * A.transpose(0, 2, 1).astype("f4"),
    "o[y,x,c] = A[y,x,c] != g[c]": lambda A, P, g: g != A,
    "o[y,x,c] = max(P[c,y,x], A[y,x,c])": lambda A, P, g: np.maximum(P.transpose(1, 2, 0), A),
    "o[y,x] = int16(A[y,x,0]) + int16(A[y,x,1])": lambda A, P, g: A[..., :2].sum(2, dtype="i2"),
    "o[y,x] = max(A[y,x,c], c)": lambda A, P, g: A.max(axis=2),
    "o[x,y] = A[y,x,1]": lambda A, P, g: A[..., 1].T,
}
"""What NumPy makes of pixels, of planes, and of a number for each channel."""


@examples(12, 80)
@example("o[y,c,x] = float32(A[y,x,c]) * 2", "bool", (0, 0, 5), 2, False, 0)
@given(
    st.sampled_from(list(STATEMENTS)),
    st.sampled_from(DTYPES),
    st.tuples(st.integers(0, 9), st.integers(0, 210), st.integers(2, 5)),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_channels_are_those_of_numpy(text, dtype, shape, threads, sliced, seed):
    """At any size, in any memory; those of some arrays and results lie amid further channels."""
    rng = np.random.default_rng(seed)
    drawn = {"A": shape, "P": (shape[2], *shape[:2]), "g": shape[2:]}
    values = {
        name: rng.integers(0, 2 if dtype == "bool" else 99, one).astype(dtype)
        for name, one in drawn.items()
    }
    expected = STATEMENTS[text](**values)
    used = {name: one for name, one in values.items() if f"{name}[" in text}
    shapes = {name: one.shape for name, one in used.items()}
    plan = tilesolve.nest(text, shapes, dtype, threads=threads)
    place = amid_others if sliced else lambda one: guard_pages.lay(one, rng)
    out = place(np.ones(expected.shape, plan.computation.output.dtype))
    found = plan(**{name: place(one) for name, one in used.items()}, out=out)
    np.testing.assert_array_equal(found, expected)
    if sliced:
        assert (out.base[..., -1] == 1).all()


def amid_others(values):
    """The same values in an array that has one more behind each run."""
    room = np.ones((*values.shape[:-1], values.shape[-1] + 1), values.dtype)
    room[..., :-1] = values
    return room[..., :-1]


def test_moves_of_channels_are_loops_that_load_whole_pixels():
    """No byte is loaded by itself amid a vector; a transpose is made where it is asked for."""
    moved = tilesolve.nest("P[c,y,x] = I[y,x,c]", {"y": 60, "x": 640, "c": 3}, "uint8")
    (loops,) = moved.solutions
    assert loops.route == "nest"
    assert "pixels" in loops.why
    asked = tilesolve.nest(
        "P[c,y,x] = I[y,x,c]", {"y": 60, "x": 640, "c": 3}, "uint8", route="transpose"
    )
    assert asked.how == "move, transpose"
    assert tilesolve.nest("P[c,y,x] = I[y,x,c]", 40, "uint8").how == "move, transpose"


def test_a_program_for_pixels_refuses_arrays_with_more_channels():
    """Its code has the distance between pixels as a number."""
    computation = bind_stages(parse_stages("P[c,x] = I[x,c]"), {"x": 40, "c": 3})
    (solution,) = solve_nest(NestRequest(computation, tilesolve.Machine.load("i7-6700k"))).solutions
    room, out = np.ones((40, 4)), np.zeros((3, 40))
    code = compile_program(solution.program, Layout.of({"I": room[:, :3].copy(), "P": out}))
    with pytest.raises(SizeError, match="neighbours along axis 0 of I are 32 bytes apart, not 24"):
        code.run({"I": room[:, :3], "P": out})
    code.run({"I": room[:, :3].copy(), "P": out})
    assert out.all()
