"""Windows over pixels with weights by channel: points of a block are computed in step."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.kernels.programs.programs import lay
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.program import Loop
from tilesolve.machine.model import Machine
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest
from tilesolve.nests.windows import choose_block, windows_tree

SIDES = st.tuples(st.integers(1, 3), st.integers(1, 3))


def window_text(sides, strides, gaps, *, biased=True, summand=""):
    """A statement of a window's taps, channels last."""
    taps = (
        f"A[{strides[0]}*y+{gaps[0] * r},{strides[1]}*x+{gaps[1] * s},c] * w[{r},{s},c]"
        for r in range(sides[0])
        for s in range(sides[1])
    )
    sums = " + ".join([*(["b[c]"] if biased else []), *taps, *([summand] if summand else [])])
    return f"o[y,x,c] = min(max({sums}, 0), 6)"


def make_request(text, sizes, dtype="float32", registers=16, threads=1):
    """A request for a statement."""
    machine = replace(Machine.load("i7-6700k"), vector_registers=registers)
    return NestRequest(bind_stages(parse_stages(text), sizes, dtype), machine, threads)


@st.composite
def windows(draw):
    """A text, the extents of its letters, the rows of a block, and the bits of vectors."""
    sides, strides, gaps = draw(SIDES), draw(SIDES), draw(SIDES)
    summand = draw(st.sampled_from(["", "R[y,x,c]"]))
    text = window_text(sides, strides, gaps, biased=draw(st.booleans()), summand=summand)
    bits, dtype = (
        draw(st.sampled_from([128, 256, 512])),
        draw(st.sampled_from(["float32", "float64"])),
    )
    lanes = bits // 8 // np.dtype(dtype).itemsize
    vectors = draw(st.integers(1, 2))
    channels = max(vectors * lanes + draw(st.integers(-1, 1)), 1)
    sizes = {"y": draw(st.integers(1, 7)), "x": draw(st.integers(1, 9)), "c": channels}
    rows = {x: draw(st.integers(1, 4)) for x in "yx"}
    return text, sizes, {x: n for x, n in rows.items() if n > 1}, bits, dtype


@examples(5, 10)
@given(windows(), st.integers(1, 3), st.integers(0, 10**6))
def test_points_in_step_are_what_each_point_is(window, threads, seed):
    """In blocks of any size, whole or not, with vectors of each width, divided among threads.

    Nothing else is written.
    """
    text, sizes, rows, bits, dtype = window
    rng, request = np.random.default_rng(seed), make_request(text, sizes, dtype, threads=threads)
    computation = request.computation
    arrays = {
        name: rng.standard_normal(computation.array(name).shape).astype(dtype)
        for name in computation.inputs
    }
    program = write_program(computation, windows_tree(request, rows))
    given_arrays = {name: lay(one, rng)[0] for name, one in arrays.items()}
    before = np.full(computation.output.shape, np.nan, dtype)
    out, room = lay(before, rng)
    given_arrays["o"], guard = out, room.view(np.uint8).copy()
    compile_program(program, Layout.of(given_arrays), bits).run(given_arrays, threads=threads)
    wide = {name: one.astype(np.float64) for name, one in arrays.items()}
    y, x, c = (np.arange(n) for n in computation.output.shape)
    y, x = y[:, None, None], x[:, None]
    sums = eval(text.partition("max(")[2].partition(", 0)")[0], wide | {"y": y, "x": x, "c": c})
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(out, np.clip(sums, 0, 6), rtol=0, atol=tolerance * 27)
    out[...] = before
    np.testing.assert_array_equal(room.view(np.uint8), guard)


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize(("stride", "gap"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("extent", [7, 14, 56])
def test_blocks_of_usual_images(registers, side, stride, gap, extent):
    """They fit the registers, and leave no point over where these are many."""
    text = window_text((side, side), (stride, stride), (gap, gap))
    request = make_request(text, {"y": extent, "x": extent, "c": 64}, registers=registers)
    rows = choose_block(request)
    assert 1 < prod(rows.values()) < registers
    assert registers < 32 or all(extent % n == 0 for n in rows.values())
    nodes = list_nodes(write_program(request.computation, windows_tree(request, rows)).body)
    assert {x.name for x in nodes if isinstance(x, Loop) and x.kind == "unrolled"} == set(rows)


@pytest.mark.parametrize(("rows", "blocks", "letter"), [(16, 4, "y"), (14, 4, "y"), (4, 4, "x")])
def test_threads_divide_rows_unless_shares_are_too_uneven(rows, blocks, letter):
    """As layers of single pixels do, whose results windows read."""
    sizes = {"y": rows, "x": 16, "c": 24}
    request = make_request(window_text((3, 3), (1, 1), (1, 1)), sizes, threads=2)
    assert windows_tree(request, {"y": blocks}).letter_of("threads") == letter
