"""What programs become: text, machine code of a kind, and errors."""

import re
import time
from functools import partial

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from interpreter import interpret
from machine_code import program_assembly

from tests.kernels.programs.programs import ZERO, draw_values, lay, number, poison
from tests.support.loop_trees import write_loops
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.codegen.object_code import TargetCpu
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.printer import print_program
from tilesolve.kernels.programs.program import (
    Barrier,
    Buffer,
    Compute,
    Loop,
    Program,
    Start,
)
from tilesolve.machine.model import Machine
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import plain_tree
from tilesolve.system.cancellation import deadline, is_stopped

Y = Affine.letter("y")


def bind(text, sizes, dtype="float32", where="", shapes=None):
    """A computation."""
    return bind_stages(parse_stages(text, where or ()), sizes, dtype, shapes)


def loop(name, low, high, *body, step=1, kind="serial"):
    """A loop with one bound at each end, numbers or positions."""
    ends = [number(one) if isinstance(one, int) else one for one in (low, high)]
    return Loop(name, ends[:1], ends[1:], body, step, kind)


def turned(rows, columns, dtype="int32", width=64, past=True):
    """``A[x,y] & B[y,x]`` by blocks that are transposed in registers."""
    found = bind("out[y,x] = A[x,y] & B[y,x]", {"y": rows, "x": columns}, dtype)
    block = ("y", 1, "unrolled"), ("x", 1, "vector")
    return write_loops(found, ("x", width, "threads"), ("y", 16), *block, past=past)


def product(extent, rows=4, columns=32):
    """A matrix product that holds a tile of the output in registers."""
    found = bind("C[i,j] += A[i,k] * B[k,j]", extent)
    held = ("k",), ("i", 1, "unrolled"), ("j", 1, "vector")
    return write_loops(found, ("i", rows, "threads"), ("j", columns), *held, held=3)


def test_a_product_is_printed():
    """Loops with bounds and kinds, and what is held."""
    assert print_program(product(50)).splitlines() == [
        "threads i_4 in 0 .. 50 by 4:",
        "  for j_32 in 0 .. 50 by 32:",
        "    hold C[i,j] in registers, begun anew:",
        "      for k in 0 .. 50:",
        "        unrolled i in i_4 .. min(i_4+4, 50):",
        "          vector j in j_32 .. min(j_32+32, 50):",
        "            C[i,j] += A[i,k] * B[k,j]",
    ]


def blur(rows, columns):
    """Two stages; the first one's rows are kept in a ring that slides over the second one's."""
    text = "t[v,x] = A[v,x] + A[v,x+1] + A[v,x+2]; out[y,x] = t[y,x] - 2 * t[y+1,x] + t[y+2,x]"
    found = bind(text, {"v": rows + 2, "y": rows, "x": columns})
    row = loop("x", 0, columns, Compute(0), kind="vector")
    steady = loop("v", Y + 2, Y + 3, row)
    warm = loop("v", Y, Y + 2, row)
    band = Affine.letter("band")
    result = loop("x", 0, columns, Compute(1), kind="vector")
    inner = Loop("y", (band,), (band + 8, number(rows)), (steady, result))
    begin = Loop("y", (band,), (band + 1,), (warm,))
    ring = Buffer("t", (ZERO, ZERO), (3, columns), (begin, inner), ring=0)
    outer = Loop("band", (ZERO,), (number(rows),), (ring,), 8, "threads")
    return Program(found, (outer,))


def test_a_sliding_window_is_printed():
    """Buffers, with the axis along which places are used again."""
    text = print_program(blur(20, 30))
    assert "buffer t[ring of 3, 0 + 30]:" in text
    assert "for v in y+2 .. y+3:" in text


@pytest.mark.grid
@pytest.mark.parametrize("columns", [30, 32, 35])
@pytest.mark.parametrize("bits", [128, 512])
def test_rows_in_a_ring_give_what_whole_arrays_give(columns, bits):
    """Rows are computed once a band, and again where bands meet."""
    program = blur(20, columns)
    rng = np.random.default_rng(columns)
    given = rng.random((22, columns + 2), np.float32)
    expected = evaluate(program.computation, {"A": given})
    found = interpret(program, {"A": given})
    np.testing.assert_allclose(found.output, expected, rtol=1e-5, atol=1e-5)
    assert found.computes == ((20 + 3 * 2) * columns, 20 * columns)
    out = np.full((20, columns), np.nan, np.float32)
    compile_program(program, bits=bits).run({"A": given, "out": out}, threads=2)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_stages_without_a_room_are_handed_over_in_memory():
    """Behind a barrier, every thread reads what all have written."""
    found = bind("t[i] = A[i] * 2; out[i] = t[i] + t[30-i]", {"i": 31}, "int16")
    parts = [loop("i", 0, 31, Compute(number), kind="threads") for number in range(2)]
    program = Program(found, (parts[0], Barrier(), parts[1]))
    given, out = np.arange(31, dtype=np.int16), np.empty(31, np.int16)
    compile_program(program).run({"A": given, "out": out}, threads=2)
    np.testing.assert_array_equal(out, evaluate(found, {"A": given}))
    np.testing.assert_array_equal(interpret(program, {"A": given}).output, out)


@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (33, 127), (6, 3)])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_blocks_are_transposed(rows, columns, dtype):
    """Where whole blocks end, and where arrays begin amid lines."""
    program = turned(rows, columns, dtype)
    rng = np.random.default_rng(rows)
    first = rng.integers(0, 2, (columns, rows)).astype(dtype)
    second = rng.integers(0, 2, (rows, columns)).astype(dtype)
    for shift in (0, 1):
        room = np.zeros(rows * columns + shift, dtype)
        out = room[shift:].reshape(rows, columns)
        compile_program(program).run({"A": first, "B": second, "out": out}, threads=2)
        np.testing.assert_array_equal(out, first.T & second)


@pytest.mark.grid
@pytest.mark.parametrize("columns", [63, 64, 65, 127, 128, 160])
@pytest.mark.parametrize("rows", [16, 19])
def test_tiles_leave_parts_of_lines_to_one_another(columns, rows):
    """Each element is written once, wherever lines begin, and nothing beside the array is."""
    compiled = [compile_program(turned(rows, columns, width=width)) for width in (16, 24, 40, 64)]
    rng = np.random.default_rng(columns)
    first = rng.integers(0, 99, (columns, rows)).astype("int32")
    second = rng.integers(0, 99, (rows, columns)).astype("int32")
    for shift in (0, 1, 5, 15, 16):
        for step in (columns, -(-columns // 16) * 16):  # rows lie alike in lines, or do not
            for threads in (1, 2):
                for one in compiled:
                    room = np.full((rows + 2) * step + 32, -1, "int32")
                    rest = room[shift:][: (rows + 2) * step].reshape(rows + 2, step)
                    out = rest[1:-1, :columns]
                    one.run({"A": first, "B": second, "out": out}, threads=threads)
                    np.testing.assert_array_equal(out, first.T & second)
                    out[...] = -1
                    assert (room == -1).all()


def test_tiles_of_threads_leave_parts_of_lines_to_one_another():
    """A row whose tiles are no whole vectors, or end before the row does."""
    found = bind("out[x] = A[x]", {"x": 200}, "int32")
    given = np.arange(200, dtype="int32")
    for step, end, past in ((64, 200, 200), (40, 120, 200), (72, 200, 190), (8, 200, 200)):
        tile = Affine.letter("x_tile")
        row = Loop("x", (tile,), (tile + step, number(past)), (Compute(0),), kind="vector")
        program = Program(
            found, (loop("x_tile", 0, end, row, step=step, kind="threads"),), frozenset(["out"])
        )
        compiled = compile_program(program)
        right = min(-(-end // step) * step, past)
        for shift in (0, 3, 16):
            room = np.full(240, -1, "int32")
            compiled.run({"A": given, "out": room[shift:][:200]}, threads=2)
            np.testing.assert_array_equal(room[shift:][:right], given[:right])
            room[shift:][:right] = -1
            assert (room == -1).all()


@pytest.mark.parametrize(("name", "bits"), [("haswell", 256), ("znver4", 512)])
def test_stores_pass_the_caches_where_the_program_says_so(name, bits):
    """And nowhere else."""
    cpu = TargetCpu.named(name, bits)
    past, near = (program_assembly(turned(64, 64, past=way), cpu=cpu) for way in (True, False))
    assert "vmovnt" in past
    assert "mfence" in past or "lock" in past
    assert "vmovnt" not in near


@pytest.mark.parametrize(
    ("name", "bits", "register"), [("haswell", 256, "ymm"), ("znver4", 512, "zmm")]
)
def test_a_held_tile_is_summed_without_memory(name, bits, register):
    """Sums are in registers: no stores between the multiplications, and no loads of C."""
    text = program_assembly(product(64, columns=bits // 16), cpu=TargetCpu.named(name, bits))
    sums = [block for block in innermost_loops(text) if block.count("vfmadd") >= 8]
    assert len(sums) == 2  # of whole tiles, and of those that are cut short
    for block in sums:
        assert register in block
        assert not [line for line in block.splitlines() if "vmov" in line and line.endswith(")")]


def innermost_loops(text):
    """The parts of an assembly that jump back to their own beginning."""
    blocks = re.findall(r"^(\.L\w+):\n((?:\t.*\n)*)", text, re.MULTILINE)
    return [block for label, block in blocks if re.search(rf"\tj\w+\t{label}\n", block)]


def test_what_is_read_alone_is_loaded_once():
    """Arrays do not overlap: what is written changes nothing that is read."""
    found = bind("out[i,j] = A[i] * B[j]", {"i": 8, "j": 64}, "float32")
    body = loop("j", 0, 64, Compute(0), kind="vector")
    program = Program(found, (loop("i", 0, 8, body),))
    text = program_assembly(program, cpu=TargetCpu.named("haswell", 256))
    rows = [block for block in innermost_loops(text) if "vmulps" in block]
    assert len(rows) == 2  # of long rows, and of short ones
    assert not any("broadcastss" in row for row in rows)
    assert "vbroadcastss" in text


def gathering(extent=40, dtype="float32"):
    """A read whose position is computed."""
    found = bind("out[i] = A[v[i]]", {"i": extent}, {"A": dtype, "v": "int32"}, shapes={"A": (7,)})
    return Program(found, (loop("i", 0, extent, Compute(0), kind="vector"),))


@pytest.mark.parametrize("wrong", [-1, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("at", [0, 20, 39])
def test_positions_outside_of_an_array_are_an_error(wrong, at):
    """The message tells the statement, the array, the axis, and both numbers."""
    program = gathering()
    places = np.arange(40, dtype=np.int32) % 7
    places[at] = wrong
    given = {"A": np.ones(7, np.float32), "v": places, "out": np.empty(40, np.float32)}
    message = rf"out\[i\] = A\[v\[i\]\].* at position {wrong} of axis 0 of A, which has 7"
    with pytest.raises(SizeError, match=message):
        compile_program(program).run(given)
    with pytest.raises(SizeError, match=f"at position {wrong} of axis 0"):
        interpret(program, given)


def test_an_update_outside_of_its_array_writes_nothing():
    """Elements beside the array are as they were."""
    found = bind("h[v[i]] += w[i]", {"i": 9}, {"v": "int64", "w": "int32"}, shapes={"h": (4,)})
    program = Program(found, (Start(0), loop("i", 0, 9, Compute(0))))
    room = np.full(12, 77, np.int32)
    given = {"v": np.arange(9) - 2, "w": np.ones(9, np.int32), "h": room[4:8]}
    with pytest.raises(SizeError, match=r"h\[v\[i\]\] is at position"):
        compile_program(program).run(given)
    assert room.tolist() == [77] * 4 + [1] * 4 + [77] * 4


def test_a_gather_from_an_empty_array_is_an_error():
    """It has no element to read in place of what is wrong."""
    with pytest.raises(SizeError, match="extent 0"):
        bind("out[i] = A[v[i]]", {"i": 3}, {"A": "int8", "v": "int8"}, shapes={"A": (0,)})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"A": np.ones(8, np.float32)}, SizeError, r"A has shape \(8,\), not \(7,\)"),
        ({"A": np.ones(7, np.float64)}, DtypeError, "A is float64, not float32"),
        ({"A": np.ones(14, np.float32)[::2]}, SizeError, "axis 0 of A are 8 bytes apart, not 4"),
        ({"out": np.broadcast_to(np.float32(0), (40,))}, SizeError, "axis 0 of out are 0 bytes"),
        ({"out": None}, SizeError, "no array is given for out"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, error, message):
    """Before anything runs."""
    given = {"A": np.ones(7, np.float32), "v": np.zeros(40, np.int32), "out": np.empty(40, "f4")}
    given = {name: array for name, array in (given | change).items() if array is not None}
    with pytest.raises(error, match=message):
        compile_program(gathering()).run(given)


def test_an_output_that_overlaps_an_input_is_refused():
    """Code is made for arrays that do not."""
    found = bind("out[i] = A[i+1]", {"i": 6}, "int32")
    program = Program(found, (loop("i", 0, 6, Compute(0), kind="vector"),))
    room = np.zeros(7, np.int32)
    with pytest.raises(SpecError, match="out, which is written, overlaps A"):
        compile_program(program).run({"A": room, "out": room[1:]})


def test_a_program_in_place_writes_what_it_reads():
    """A stage that reads its own elements changes them."""
    found = bind("A[i] = A[i] * 2 + 1", {"i": 21}, "int64")
    program = Program(found, (loop("i", 0, 21, Compute(0), kind="vector"),))
    given = np.arange(21)
    expected = interpret(program, {"A": given}).output
    compile_program(program).run({"A": given})
    np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(given, 2 * np.arange(21) + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "log"])
def test_powers_and_logarithms_are_near_the_true_ones(dtype, name):
    """By two units in the last place at most; infinities, zeros and NaN are as numpy has them."""
    ends = np.finfo(dtype)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, ends.tiny, ends.smallest_subnormal * 3]
    special += [ends.max, -ends.max, 88.7, 88.8, -87.4, -100, -104, 709.7, 709.8, -745, -746]
    usual = np.linspace(-110, 95, 4001) if name == "exp" else np.geomspace(1e-38, 1e38, 4001)
    near = np.linspace(0.6, 1.5, 1001)
    values = np.concatenate([special, usual, near]).astype(dtype)
    found = bind(f"out[i] = {name}(A[i])", {"i": values.size}, dtype)
    program = Program(found, (loop("i", 0, values.size, Compute(0), kind="vector"),))
    out = np.empty_like(values)
    compile_program(program).run({"A": values, "out": out})
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(values.astype(np.longdouble))
        rounded = exact.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(out[~finite], rounded[~finite])
    units = np.abs(out[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert units.max() <= 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "silu", "gelu", "gelu_tanh"])
def test_statements_have_the_activations_of_epilogues(dtype, name):
    values = np.linspace(-9, 9, 301).astype(dtype)
    found = bind(f"out[i] = {name}(A[i]) + 1", {"i": values.size}, dtype)
    program = Program(found, (loop("i", 0, values.size, Compute(0), kind="vector"),))
    out = np.empty_like(values)
    compile_program(program).run({"A": values, "out": out})
    bound = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, evaluate(found, {"A": values}), rtol=bound, atol=bound)
    np.testing.assert_allclose(
        out, interpret(program, {"A": values}).output, rtol=8 * bound, atol=8 * bound
    )


def test_a_program_is_checked_as_it_is_interpreted():
    """Points that are left out, computed twice, or outside of the region; reads before writes."""
    found = bind("out[i,j] = A[i] + B[j]", {"i": 4, "j": 4}, "int32", where="j <= i")
    i = Affine.letter("i")
    given = {"A": np.zeros(4), "B": np.zeros(4)}

    def run(low, high):
        inner = Loop("j", (low,), (high,), (Compute(0),))
        return interpret(Program(found, (loop("i", 0, 4, inner),)), given)

    run(ZERO, i + 1)
    with pytest.raises(SpecError, match="0 times"):
        run(ZERO, i)
    with pytest.raises(SpecError, match="outside of its region"):
        run(ZERO, number(4))
    twice = loop("again", 0, 2, Loop("j", (ZERO,), (i + 1,), (Compute(0),)))
    with pytest.raises(SpecError, match="2 times"):
        interpret(Program(found, (loop("i", 0, 4, twice),)), given)
    summed = bind("out[i] += A[i,k]", {"i": 2, "k": 2}, "int32")
    body = loop("i", 0, 2, loop("k", 0, 2, Compute(0)))
    with pytest.raises(SpecError, match="before it is written"):
        interpret(Program(summed, (body,)), {"A": np.zeros((2, 2))})


def test_a_trace_has_all_accesses_in_order():
    """Names, elements in C order, and whether they are written."""
    found = bind("out[y,x] = A[x,y] + A[0,y]", {"y": 1, "x": 2}, "int32")
    body = loop("y", 0, 1, loop("x", 0, 2, Compute(0)))
    seen = []
    given = {"A": np.zeros((2, 1))}
    interpret(Program(found, (body,)), given, trace=lambda *access: seen.append(access))
    assert seen == [
        *[("A", 0, False), ("A", 0, False), ("out", 0, True)],
        *[("A", 1, False), ("A", 0, False), ("out", 1, True)],
    ]


def test_a_run_ends_when_it_is_to():
    """Loops look at the word that ends runs: an interrupt does not wait for the last trip."""
    found = bind("out[i] += B[k] * C[i]", {"i": 10**6, "k": 10**6}, "float64")
    body = loop("i", 0, 10**6, loop("k", 0, 10**6, Compute(0)))
    program = Program(found, (loop("i", 0, 10**6, Start(0)), Barrier(), body))
    given = {"B": np.ones(10**6), "C": np.ones(10**6), "out": np.empty(10**6)}
    compiled = compile_program(program)
    began = time.process_time()  # on a busy computer, anything may take half a minute
    with deadline(0.1) as is_over:
        compiled.run(given)
    assert is_over()
    assert time.process_time() - began < 30


def test_a_single_vector_loop_ends_when_it_is_to():
    """It looks once in a while, though no loop is around it."""
    extent = 2**20
    found = bind("out[x] = A[x] + 1", {"x": extent})
    for past in ((), ("out",)):
        row = loop("x", 0, extent, Compute(0), kind="vector")
        compiled = compile_program(Program(found, (row,), frozenset(past)))
        given = {"A": np.ones(extent, "float32"), "out": np.zeros(extent + 1, "float32")[1:]}
        with deadline(0) as is_over:
            while not (is_over() and is_stopped()):
                time.sleep(0.001)
            compiled.run(given)
        assert not given["out"].any()
        compiled.run(given)
        assert (given["out"] == 2).all()


def test_code_is_kept_by_what_it_depends_on(home, monkeypatch):
    """Another width, another layout or another program is another file."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    program = gathering(17)
    strided = Layout((("A", 0), ("v", None), ("out", 0)))
    for layout, bits in ((None, 128), (None, 128), (strided, 128), (None, 256)):
        compile_program(program, layout, bits)
    files = list((home / "cache" / "code").glob("program-*.o"))
    assert len(files) == 3


def test_threads_that_would_write_the_same_elements_are_refused():
    """They share no element of a sum, and of a histogram, but divide an axis of it."""
    summed = bind("out[i] += A[i,k]", {"i": 8, "k": 8})
    body = (loop("i", 0, 8, Start(0)), Barrier())
    inner = loop("i", 0, 8, Compute(0))
    with pytest.raises(SpecError, match=r"threads k walks no axis of out\[i\]"):
        compile_program(Program(summed, (*body, loop("k", 0, 8, inner, kind="threads"))))
    kinds = {"v": "int32", "A": "int32"}
    counts = bind("h[v[i,j],j] += A[i,j]", {"i": 9, "j": 8}, kinds, shapes={"h": (5, 8)})
    rows = loop("i", 0, 9, loop("j", 0, 8, Compute(0)), kind="threads")
    with pytest.raises(SpecError, match="threads i walks no axis of h"):
        compile_program(Program(counts, (Start(0), Barrier(), rows)))
    columns = loop("j", 0, 8, loop("i", 0, 9, Compute(0)), kind="threads")
    program = Program(counts, (Start(0), Barrier(), columns))
    rng = np.random.default_rng(0)
    given = {"v": rng.integers(0, 5, (9, 8)), "A": rng.integers(-9, 9, (9, 8))}
    given = {name: array.astype(np.int32) for name, array in given.items()}
    out = np.full((5, 8), 99, np.int32)
    compile_program(program).run({**given, "h": out}, threads=2)
    np.testing.assert_array_equal(out, evaluate(counts, given))
    np.testing.assert_array_equal(interpret(program, given).output, out)


@pytest.mark.grid
@pytest.mark.parametrize("extent", [1, 15, 16, 17, 33, 70])
@pytest.mark.parametrize("step", [4, 12, 16])
def test_lanes_that_are_summed_are_put_together(extent, step):
    """A vector loop over a summed letter, held, not held, and held over tiles."""
    found = bind("out[i] += A[i,k] * B[k]", {"i": 3, "k": extent}, "float64")
    tile, row, lanes = ("i", 2), ("i", 1, "unrolled"), ("k", 1, "vector")
    programs = (
        write_loops(found, tile, row, lanes),
        write_loops(found, tile, ("i",), lanes, held=2),
        write_loops(found, tile, ("k", step), row, lanes, held=3),
    )
    rng = np.random.default_rng(extent)
    given = {"A": rng.random((3, extent)), "B": rng.random(extent)}
    for program in programs:
        out = np.full(3, np.nan)
        compile_program(program, bits=256).run({**given, "out": out})
        np.testing.assert_allclose(out, given["A"] @ given["B"], rtol=1e-12)
        assert interpret(program, given).output == pytest.approx(out)


@pytest.mark.grid
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", ["sum", "max", "min"])
@settings(max_examples=8)
@drawn(vectors=st.integers(0, 9), more=st.integers(-1, 1), rows=st.integers(1, 3))
def test_several_vectors_of_sums_are_put_together(bits, name, vectors, more, rows):
    """Where a region bounds a sum, and where none does."""
    extent = max(vectors * bits // 32 + more, 1)
    rng = np.random.default_rng(extent)
    given = {"A": rng.integers(-9, 9, (rows, extent)).astype(np.float32)}
    for where in ("", "k <= 3 * i", "k >= i"):
        found = bind(f"out[i] = {name}(A[i,k], k)", {"i": rows, "k": extent}, where=where)
        program = write_loops(found, ("i",), ("k", 1, "vector"), held=1)
        out = np.full(rows, np.nan, np.float32)
        compile_program(program, bits=bits).run({**given, "out": out})
        np.testing.assert_array_equal(out, evaluate(found, given))


ROWS = ("out[i,k] = A[v[i],k] + B[k]", "h[v[i],k] += A[i,k]")


@pytest.mark.grid
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("text", ROWS)
@settings(max_examples=10)
@drawn(
    vectors=st.integers(0, 3),
    more=st.integers(-1, 1),
    dtype=st.sampled_from(["uint8", "float32", "float64"]),
    places=st.sampled_from(["int8", "int64"]),
    wrong=st.sampled_from([None, (2, -1), (2, 5), (3, 100), (0, 9)]),
    where=st.sampled_from(["", "k <= i - 1"]),
)
def test_rows_at_computed_positions_are_vectors(
    bits, text, vectors, more, dtype, places, wrong, where
):
    """Positions outside are told of where rows have points; nothing beside arrays is written."""
    extent, rng = max(vectors * bits // 32 + more, 1), np.random.default_rng(vectors)
    kept, stage = (5, extent), parse_stages(text)[0]
    shapes = {"h" if stage.update else "A": kept}
    kinds = {read.array: dtype for read in stage.reads} | {"v": places}
    found = bind(text, {"i": 4, "k": extent}, kinds, where, shapes)
    program = write_program(found, plain_tree(NestRequest(found, Machine.load("i7-6700k"))))
    given = {one: draw_values(found.array(one).shape, dtype, rng) for one in found.inputs}
    given["v"] = rng.integers(0, 5, 4).astype(places)
    info = found.output
    out, room = lay(np.full(info.shape, poison(info.dtype), info.dtype), rng)
    right = evaluate(found, given, out=out.copy())
    if wrong is not None:
        given["v"][wrong[0]] = wrong[1]
    guard, before = room.view(np.uint8).copy(), out.copy()
    given[info.name] = out
    run = partial(compile_program(program, Layout.of(given), bits).run, given)
    if wrong is None or (where and not wrong[0]):
        run()
        np.testing.assert_allclose(out, right, rtol=1e-6)
    else:
        with pytest.raises(SizeError, match=rf"is at position {wrong[1]} of axis 0"):
            run()
    out[...] = before
    np.testing.assert_array_equal(room.view(np.uint8), guard)
