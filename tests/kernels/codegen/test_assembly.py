"""The machine code of microkernels, read as it is built for CPUs that need not be this one."""

import re
from dataclasses import dataclass
from functools import cache

import pytest
from machine_code import assembly, keep_once
from turns import quick_each

from tilesolve.constants.tuning import (
    INDEPENDENT_FMAS,
    NEXT_PANEL_LINES,
    PREFETCHING_STEPS,
    WIDE_VECTOR_BITS,
)
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.problem import DTYPES
from tilesolve.kernels.codegen.object_code import Family, TargetCpu
from tilesolve.kernels.codegen.store_output import interleaved_steps
from tilesolve.kernels.codegen.unrolling import (
    is_unrolled,
    prefetches_columns_of_c,
    steps_per_trip,
    stores_lines,
    vectors_from_memory,
)
from tilesolve.kernels.microkernel_costs import default_tile
from tilesolve.packing.sizes import LINE_BYTES, VECTOR_BYTES

MADE_FOR = (
    ("skylake-avx512", 512, 32),
    ("znver4", 512, 32),
    ("skylake-avx512", 256, 32),
    ("haswell", 256, 16),
    ("haswell", 128, 16),
)
"""A CPU, the width of the vectors that a machine may use there, and their registers."""

REGISTERS = {128: "xmm", 256: "ymm", 512: "zmm"}
SUFFIX = {"float32": "ps", "float64": "pd"}
FMA = r"^vfn?m(add|sub)\d+"
NEAR_PREFETCH = r"^prefetcht0"
MASKED = r"\{%k[1-7]\}|^vmaskmov"
ON_STACK = r"\(%r[sb]p"
STREAMED = r"^vmovnt"
WRITTEN = r"^vmov\w+\s+%[xyz]mm\d+, -?\d*\(%r(?![sb]p)"


def has_x86():
    """Whether this build of LLVM makes code for x86."""
    family = Family("float32", 128, 4, 4)
    try:
        assembly(family, family.shapes[:1], TargetCpu.named("haswell", 256))
    except MachineError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_x86(), reason="this LLVM makes no code for x86")

kernels = pytest.mark.parametrize(
    ("cpu", "bits", "registers", "dtype"),
    quick_each((*made, dtype) for made in MADE_FOR for dtype in DTYPES),
)


@dataclass(frozen=True)
class Code:
    """The assembly of one kernel: its lines, and those of each innermost loop that sums products.

    `storing` are those that store lines meanwhile. The loop that adds to C where rows are missing
    has masks, which tell it from these; and the way from the last steps of k back to the next tile,
    which may lie behind the loops, writes C.
    """

    lines: list[str]
    loops: list[list[str]]
    storing: list[list[str]]

    @classmethod
    def of(cls, text, name):
        body = text.split(f"\n{name}:\n")[1].split(".Lfunc_end")[0]
        lines = [line.strip() for line in body.splitlines()]
        labels, loops = {}, []
        for at, line in enumerate(lines):
            if label := re.match(r"(\.LBB\w+):", line):
                labels[label[1]] = at
            elif (jump := re.match(r"j\w+\s+(\.LBB\w+)", line)) and jump[1] in labels:
                loops.append((labels[jump[1]], at))
        innermost = [
            lines[begin : end + 1]
            for begin, end in loops
            if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in loops)
        ]
        others = rf"{MASKED}|{WRITTEN}"
        summing = [loop for loop in innermost if count(loop, FMA)]
        return cls(
            lines,
            [loop for loop in summing if not count(loop, others)],
            [loop for loop in summing if count(loop, STREAMED) == 1],
        )


def count(lines, pattern):
    return sum(bool(re.search(pattern, line)) for line in lines)


@cache
def around_default(cpu, bits, registers, dtype):
    """The default register tile and those around it, each with its code."""
    family = Family.of(dtype, bits, registers)
    vectors, columns = default_tile(dtype, bits, registers)
    wanted = [
        shape
        for shape in family.shapes
        if abs(shape.vectors - vectors) + abs(shape.columns - columns) <= 1
    ]
    assert any((shape.vectors, shape.columns) == (vectors, columns) for shape in wanted)
    made_for = TargetCpu.named(cpu, 512 if registers == 32 else 256)
    text = keep_once(assembly, family, wanted, made_for).decode()
    return {shape: Code.of(text, shape.name) for shape in wanted}


@kernels
def test_every_product_is_a_full_fma(cpu, bits, registers, dtype):
    """A step of k is one FMA of the full width an accumulator, two for complex ones, and no other.

    Where few accumulators would wait for each other, a loop does several steps, and another one
    what is left. In kernels that read micro-panels a first loop prefetches lines of what is packed
    next, of narrow vectors several steps at once, and a last one, of several steps, lines of C.
    Before them, wide ones have a loop in which each step prefetches a column of C.
    Narrow ones that read in place do not prefetch columns that are packed. Of halved kernels each
    column has one FMA of half the width, or all of them where registers suffice.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        step = shape.accumulators * (2 if shape.complex else 1)
        narrow = step if shape.narrow else shape.columns if shape.halved else 0
        sets = 1
        while sets * shape.accumulators < INDEPENDENT_FMAS:
            sets *= 2
        full = rf"{FMA}{SUFFIX[shape.real]}\b.*%{REGISTERS[bits]}\d+$"
        expected = [step] if sets == 1 else [sets * step, step]
        if sets == 1 and shape.packed and not shape.halved:
            prefetching = [PREFETCHING_STEPS * step] if bits < WIDE_VECTOR_BITS else []
            expected = [*prefetching, step, steps_per_trip(shape) * step]
        if prefetches_columns_of_c(shape):
            lines = [count(loop, NEAR_PREFETCH) for loop in code.loops]
            assert lines[0] >= shape.vectors > max(lines[1:]), shape.name
            expected = [expected[0], *expected]
        if not (shape.packed or shape.complex) and bits < WIDE_VECTOR_BITS:
            expected *= 2
        found = [step * count(loop, full) for loop in code.loops]
        assert found == [(step - narrow) * fmas for fmas in expected], shape.name
        assert [count(loop, FMA) for loop in code.loops] == expected, shape.name
        assert not any(count(loop, r"^v?(mul|add|sub)[ps][sd]") for loop in code.loops), shape.name


@kernels
def test_nothing_is_spilled(cpu, bits, registers, dtype):
    """While k is summed, no accumulator goes through the stack.

    Kernels that read in place have more addresses than there are integer registers; these may.
    Others read an address or two there, where steps begin, and the list of the lines of C to
    prefetch, in each trip; and where they are, those that store lines read their addresses. A
    complex tile that takes all 32 vector registers may leave two of its 24 accumulators there.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        parts = 2 if shape.complex else 1
        taken = shape.accumulators + parts * (shape.vectors + 1)
        excused = 4 if taken == 32 else 0
        for loop in (*code.loops, *code.storing):
            assert count(loop, rf"^v.*{ON_STACK}") <= excused, shape.name
            if shape.packed:
                read = count(loop, rf"^(mov|cmp|add)q\s.*{ON_STACK}.*, ")
                assert read <= 5, shape.name
                assert count(loop, ON_STACK) - read <= excused, shape.name


@kernels
def test_steps_store_a_line_each(cpu, bits, registers, dtype):
    """Wide kernels that read micro-panels have a loop of steps with one non-temporal store."""
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        step = shape.accumulators * (2 if shape.complex else 1)
        found = [(count(loop, FMA), count(loop, STREAMED)) for loop in code.storing]
        assert found == [(step, 1)] * stores_lines(shape), shape.name


@kernels
def test_narrow_steps_take_little_beside_their_products(cpu, bits, registers, dtype):
    """A step has columns' elements, rows that are not taken from memory, and two others at most.

    Those are the trip's own and prefetches. Two threads on a core have half of its
    instructions each.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        if shape.bits >= WIDE_VECTOR_BITS or shape.complex or not is_unrolled(shape):
            continue
        steps, trip = steps_per_trip(shape), code.loops[-1]
        loads = shape.columns + shape.vectors - vectors_from_memory(shape)
        taken = count(trip, r"^[a-z]")
        assert taken - count(trip, "^prefetch") <= steps * (shape.accumulators + loads + 2)
        assert count(trip, rf"{FMA}.*\(%r") == steps * vectors_from_memory(shape) * shape.columns, (
            shape.name
        )


@kernels
def test_columns_in_place_take_turns_in_being_prefetched(cpu, bits, registers, dtype):
    """A step prefetches a line of the rows, and one of each group of columns: a different one.

    The number of the column goes with k, so its offset is loaded in the loop.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        if shape.packed or len(code.loops) > 2:
            continue
        loop = code.loops[0]
        each = max(1, LINE_BYTES // (shape.bits // 8 * (2 if shape.complex else 1)))
        rows = -(-shape.vectors // each)
        columns = -(-shape.columns // shape.group)
        steps = count(loop, FMA) // (shape.accumulators * (2 if shape.complex else 1))
        assert count(loop, "^prefetch") == steps * (rows + columns), shape.name
        assert count(loop, "^and"), shape.name


@kernels
def test_non_temporal_stores_are_full_vectors(cpu, bits, registers, dtype):
    """One mode stores every vector of the tile non-temporally, or all of it in pieces of 16 bytes.

    Where stores are interleaved with the last steps of k, another one does; both may share their
    end. Kernels that store lines have a store for that, too.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        ways = 0 if shape.halved else 2 if interleaved_steps(shape) else 1
        whole = shape.accumulators
        pieces = whole * bits // (8 * VECTOR_BYTES)
        every, of_whole = (
            count(code.lines, kind) - stores_lines(shape)
            for kind in (r"^v?movnt", rf"^vmovntp[sd]\s+%{REGISTERS[bits]}\d+, ")
        )
        if bits > 8 * VECTOR_BYTES:
            of_pieces = every - of_whole
            assert count(code.lines, r"^vmovnt(?:p[sd]|dq)\s+%xmm\d+, ") == of_pieces, shape.name
            assert min(ways, 1) * pieces <= of_pieces <= ways * pieces, shape.name
        else:  # pieces are whole vectors
            ways *= 2
        assert min(ways, 1) * whole <= of_whole <= ways * whole, shape.name


@kernels
def test_stores_are_interleaved_with_the_last_steps(cpu, bits, registers, dtype):
    """Where large vectors are stored, each column's FMAs come before its stores, and no others."""
    around = around_default(cpu, bits, registers, dtype).items()
    large = [(shape, code) for shape, code in around if interleaved_steps(shape)]
    assert bool(large) == (bits == 512)
    for shape, code in large:
        products, vectors = (4, 2) if shape.complex else (1, 1)
        fmas, stores = interleaved_steps(shape) * shape.vectors * products, shape.vectors * vectors
        events = "".join(
            "F" if re.search(FMA, line) else "S"
            for line in code.lines
            if re.search(rf"{FMA}|^vmovntp", line)
        )
        column = rf"F{{{fmas}}}S{{{stores}}}"
        assert re.search(rf"({column}){{{shape.columns}}}", events), (shape.name, events)


@kernels
def test_the_next_micro_panels_are_prefetched_before_non_temporal_stores(
    cpu, bits, registers, dtype
):
    """Either those of the columns or those of the rows, whichever the next tile has anew."""
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        if not shape.packed or shape.halved:
            continue
        panels = -(-shape.columns // shape.group) + shape.vectors
        near = r"^prefetch(t0|w)"  # the loops prefetch C, or micro-panels to the second cache
        prefetches = count(code.lines, near) - sum(count(loop, near) for loop in code.loops)
        lines = NEXT_PANEL_LINES * panels if interleaved_steps(shape) else 0
        assert prefetches - lines in (0, shape.accumulators), shape.name


@kernels
def test_missing_rows_are_masked(cpu, bits, registers, dtype):
    """Where rows are missing, one loop reads C and writes it under a mask.

    Where C is not read, each column is written so, straight from registers. The bias of the rows,
    which complex kernels have none of, is read under it, too.
    """
    for shape, code in around_default(cpu, bits, registers, dtype).items():
        parts = 2 if shape.complex else 1
        masked = [line for line in code.lines if re.search(MASKED, line)]
        moves = rf"^(vmovu|vmaskmov){SUFFIX[shape.real]}\s.*%"
        whole = count(masked, moves + REGISTERS[bits])
        halves = count(masked, moves) - whole  # of bias, where half a vector of rows is left
        assert (whole + halves, halves) in ((len(masked), 0), (len(masked), 1)), shape.name
        loads = count(masked, r"^\S+\s+-?\d*\(")
        assert loads == 2, shape.name
        assert len(masked) - loads == parts * (shape.columns + 1), shape.name


def test_unknown_architectures_are_named():
    """An architecture that LLVM was not built with is an error that says so."""
    family = Family("float32", 128, 4, 4)
    with pytest.raises(MachineError, match="some-cpu"):
        assembly(
            family, family.shapes[:1], TargetCpu("nowhere-unknown-linux-gnu", "some-cpu", "", 128)
        )
