"""Rows that are written past the caches: at every alignment, of every length, in every order."""

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support.loop_trees import write_loops
from tilesolve.constants import tuning
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.module import lower
from tilesolve.kernels.programs.skeleton import find_skeleton
from tilesolve.packing.sizes import LINE_BYTES

GUARD = 256
"""Bytes around an output that nothing may touch."""

ROW, RUN = tuning.MIN_STREAMED_ROW_BYTES, tuning.MIN_STREAMED_RUN_BYTES
"""Bytes from which on rows, and runs of them, go past the caches."""


def lengths(itemsize):
    """Bytes of rows around those of an element, a line, several, and where rows and runs stream."""
    around = (itemsize, LINE_BYTES, 4 * LINE_BYTES, ROW, RUN, tuning.MIN_CACHED_ENDS_RUN_BYTES)
    found = {bytes_ // itemsize + more for bytes_ in around for more in (-1, 0, 1)}
    return sorted(found - {0})


@dataclass(frozen=True)
class Case:
    """An output, where it begins behind a line, and how it is written.

    There are gaps of some elements behind its rows, and behind its planes.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    bits: int
    threads: int
    gaps: tuple[int, ...] = ()

    @property
    def strides(self):
        """Bytes between neighbours along each axis."""
        found = [np.dtype(self.dtype).itemsize]
        for extent, gap in zip_longest(self.shape[:0:-1], self.gaps, fillvalue=0):
            found.insert(0, extent * found[0] + gap * found[-1])
        return tuple(found)


@st.composite
def cases(draw):
    """Any of them; often rows have nothing between them, and begin where elements do."""
    dtype = draw(st.sampled_from(["float32", "float64", "uint8", "int16", "bool"]))
    size = np.dtype(dtype).itemsize
    columns = draw(st.sampled_from(lengths(size)))
    rows = draw(st.integers(1, 9 if columns * size >= ROW else 3))
    gap = st.sampled_from([0, 0, 0, 1, LINE_BYTES // size])
    element = st.integers(0, 2 * LINE_BYTES // size).map(lambda count: count * size)
    begin = draw(st.one_of(element, element, st.integers(0, 2 * LINE_BYTES)))
    return Case(
        dtype,
        (draw(st.integers(1, 3)), rows, columns),
        begin,
        draw(st.sampled_from([128, 256, 512])),
        draw(st.sampled_from([1, 2])),
        (draw(gap), draw(gap)),
    )


def draw_input(shape, dtype, rng):
    """Numbers of a dtype."""
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def run_guarded(program, case, arrays, wanted):
    """Run a program on an output among random bytes, and compare it and these."""
    rng = np.random.default_rng(1)
    size = case.strides[0] * case.shape[0] + 2 * GUARD + 4 * LINE_BYTES
    memory = rng.integers(0, 256, size, dtype=np.uint8)
    begin = -memory.ctypes.data % LINE_BYTES + GUARD + case.begin
    expected = memory.copy()
    out, right = (
        np.ndarray(case.shape, case.dtype, one, begin, case.strides) for one in (memory, expected)
    )
    right[...] = wanted(right)
    compile_program(program, bits=case.bits).run({**arrays, "o": out}, threads=case.threads)
    np.testing.assert_array_equal(memory, expected)


def plain(case, text, where=()):
    """Loops in the order of the output, the planes' divided among threads."""
    sizes = dict(zip("zyx", case.shape, strict=True))
    found = bind_stages(parse_stages(text, where), sizes, case.dtype)
    return write_loops(found, ("z", 1, "threads"), ("y",), ("x", 1, "vector"), past=True)


@examples(20, 50)
@given(cases())
def test_rows_are_whole_and_nothing_else_is_touched(case):
    """Wherever an output begins, whatever lies between its rows, with vectors of any width."""
    sign = "^" if case.dtype == "bool" else "-"
    shape = (*case.shape[:-1], case.shape[-1] + 1)
    values = draw_input(shape, case.dtype, np.random.default_rng(shape[-1]))
    first, second = values[..., :-1], values[..., 1:]
    result = first ^ second if sign == "^" else first - second
    program = plain(case, f"o[z,y,x] = A[z,y,x] {sign} A[z,y,x+1]")
    run_guarded(program, case, {"A": values}, lambda _: result)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_of_a_region_that_end_amid_lines_are_whole(dtype):
    """Each is longer than the one before: few go on where another one ends."""
    for begin, columns in ((0, 300), (16, 301)):
        case = Case(dtype, (2, columns + 1, columns), begin, 512, 2)
        values = draw_input(case.shape, dtype, np.random.default_rng(columns))
        region = np.arange(columns) <= np.arange(columns + 1)[:, None]
        program = plain(case, "o[z,y,x] = A[z,y,x] + 1", "x <= y")
        added = (values + 1).astype(dtype)

        def wanted(out, region=region, added=added):
            return np.where(region, added, out)

        run_guarded(program, case, {"A": values}, wanted)


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_rows_of_blocks_are_whole(bits):
    """Blocks that are transposed in registers, of rows that are long, short, and no whole lines."""
    for rows, columns, begin in ((20, 1024, 16), (17, 80, 16), (18, 1025, 0)):
        case = Case("int32", (rows, columns), begin, bits, 2)
        text = parse_stages("o[y,x] = A[x,y] & B[y,x]")
        found = bind_stages(text, {"y": rows, "x": columns}, "int32")
        block = ("y", 1, "unrolled"), ("x", 1, "vector")
        program = write_loops(found, ("x", 512, "threads"), ("y", 16), *block, past=True)
        rng = np.random.default_rng(rows)
        first, second = (
            rng.integers(0, 2**31, shape, dtype=np.int32)
            for shape in ((columns, rows), (rows, columns))
        )
        result = first.T & second
        run_guarded(program, case, {"A": first, "B": second}, lambda _, new=result: new)


@pytest.mark.parametrize(
    ("dtype", "written"), [("float32", "store i32"), ("float64", "store i64"), ("uint8", "masked")]
)
def test_ends_of_runs_go_past_the_caches_if_elements_can(dtype, written):
    """A line of which one part is cached and one is not costs more than a cached one."""
    program = plain(Case(dtype, (2, 3, 301), 0, 512, 1), "o[z,y,x] = A[z,y,x]")
    module = lower(find_skeleton(program)[0], Layout.rows(program.computation), 512).module
    (writer,) = (one for one in module.functions if one.name.startswith("write_part"))
    past = "!nontemporal" in str(writer)
    assert written in str(writer)
    assert past == (written != "masked")
