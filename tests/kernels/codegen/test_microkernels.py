"""Microkernels called one by one: what they compute, and that they touch nothing else."""

import ctypes
import itertools
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from machine_code import NOWHERE, WIDTHS, GuardedMemory, call, list_plain, load_kernels
from numpy_epilogues import evaluate_term
from turns import WHOLE, in_turn, quick_each

from tilesolve.constants.tuning import INTERLEAVED_STEPS_OF_3_VECTORS, MIN_STEPS_TO_PREFETCH_C
from tilesolve.contractions.pairing import FIRST, SECOND, Pairing
from tilesolve.contractions.problem import DTYPES
from tilesolve.contractions.statements.operations import OPERATIONS, identity
from tilesolve.kernels.codegen import accumulate, object_code
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.microkernel import advanced_fields
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.codegen.tile_emitter import TileEmitter
from tilesolve.kernels.codegen.unrolling import stores_lines
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, VECTOR_BYTES

COUNTS = (
    0,
    1,
    2,
    3,
    4,
    7,
    MIN_STEPS_TO_PREFETCH_C - 1,
    MIN_STEPS_TO_PREFETCH_C,
    MIN_STEPS_TO_PREFETCH_C + 1,
)
"""Steps of k: none, fewer than there are sets of sums, around as many as stores are interleaved
with, and around where C is prefetched."""

MOST_LANEWISE_STEPS = 16
"""Steps of lanewise kernels, whose operands are as large as rows times columns times steps."""

ADVANCED = {
    name
    for packed, mixed in ((True, False), (False, False), (True, True))
    for name in advanced_fields(Shape("float32", 256, 1, 1, 8, packed, mixed=mixed))
}
ALONE = {f"{name}_move": 0 for name in ADVANCED} | {
    "more": 0,
    "next_step": 24,
    "starts": 0,
    "apart": 0,
    "bounds": 0,
}
"""Fields of a call that computes one tile: it leaves the frame as it was."""

IN_VECTORS = (
    Mode.STORE,
    Mode.ADD,
    Mode.STREAM,
    Mode.STREAM_PIECES,
    Mode.PART,
    Mode.PART_ADD,
)
ALIGNMENTS = {Mode.STREAM: LINE_BYTES, Mode.STREAM_PIECES: VECTOR_BYTES}
"""Bytes that all vectors of C are multiples of, in modes that need it."""
ADDING = (Mode.ADD, Mode.PART_ADD, Mode.SCATTER_ADD)
REAL_FACTORS = ((1, 1), (2.5, -0.5), (-1, 0), (0, 2), (1, 0))
COMPLEX_FACTORS = (*REAL_FACTORS, (1j, 2 - 1j), (1 + 0.5j, 1), (1, -1j), (0.5 - 2j, 0))
WIDER = {
    "float32": np.float64,
    "float64": np.longdouble,
    "complex64": np.complex128,
    "complex128": np.clongdouble,
}

kernels = pytest.mark.parametrize(
    ("dtype", "bits", "plain"),
    [
        (dtype, bits, plain)
        for dtype in DTYPES
        for bits in WIDTHS
        for plain in list_plain()
        if not plain or (bits == 512 and dtype in ("float32", "complex128"))
    ],
)


def drawn(generator, shape, dtype):
    """Random numbers, complex ones with both parts."""
    values = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(dtype)


def put_panels(memory, generator, values, lanes, rows, align, edge):
    """Put rows into micro-panels of `lanes` for each step of k; return address and bytes of one.

    Nothing lies behind the last of `rows`, which may be more than there are values for.
    """
    steps, size = values.shape[1], values.itemsize
    pitch = steps * lanes * size + align * int(generator.integers(0, 3))
    whole = (rows - 1) // lanes * pitch + (steps * lanes - -rows % lanes) * size
    shift = align * int(generator.integers(0, 4))
    begin = memory.take(whole if steps else 0, shift, edge)
    row, step = np.ogrid[: len(values), :steps]
    memory.scatter(begin + row // lanes * pitch + (step * lanes + row % lanes) * size, values)
    return begin, pitch


def put_anywhere(memory, generator, values, lanes, rows, edge):
    """Lay rows so that each `lanes` of them are neighbours, and all else in any order.

    Returns
    -------
    tuple
        The address that offsets count from, and the offsets of rows and of steps.
    """
    groups, steps, size = rows // lanes, values.shape[1], values.itemsize
    group = lanes * size + int(generator.integers(0, 2)) * size
    step = groups * group + int(generator.integers(0, 3)) * size
    heads = generator.permutation(groups) * group
    row_offsets = (heads[:, None] + np.arange(lanes) * size).ravel()
    step_offsets = generator.permutation(steps) * step * int(generator.choice((1, -1)))
    base = put(memory, row_offsets, step_offsets, size, int(generator.choice((0, 1, size))), edge)
    memory.scatter(base + row_offsets[: len(values), None] + step_offsets, values)
    return base, row_offsets, step_offsets


def put(memory, row_offsets, column_offsets, size, shift, edge):
    """Take the piece that a matrix of such offsets covers; return the address they count from."""
    if not len(column_offsets):
        return 0
    low = row_offsets.min() + column_offsets.min()
    high = row_offsets.max() + column_offsets.max() + size
    return memory.take(int(high - low), shift, edge) - low


def operands(memory, generator, shape, a, b, edges):
    """Lay both operands as a kernel reads them, and return its fields for them.

    Entries of tables that are not to be read lead nowhere. What lies in the lanes of missing rows,
    and behind the columns of a packed group, is poison.
    """
    if shape.lanewise:
        return lanewise_operands(memory, generator, shape, a, b, edges)
    if shape.packed:
        align = shape.bits // 8
        rows = put_panels(memory, generator, a, shape.lanes, shape.rows, align, edges["a"])
        found = {"a": rows[0], "a_step": rows[1], "next_a": NOWHERE}
        found |= prefetched_lines(memory, generator)
        if shape.mixed:
            return found | columns_in_place(memory, generator, shape, b, edges["b"])
        columns = put_panels(
            memory, generator, b, shape.group, shape.columns, b.itemsize, edges["b"]
        )
        return found | {"b": columns[0], "b_step": columns[1]}
    a, rows_a, sums_a = put_anywhere(memory, generator, a, shape.lanes, shape.rows, edges["a"])
    rows_a[np.arange(shape.rows) % shape.lanes > 0] = NOWHERE
    return {
        "a": a,
        "rows_a": memory.table(rows_a),
        "sums_a": memory.table(sums_a),
        "a_ahead": NOWHERE,
        "b_ahead": NOWHERE,
    } | columns_in_place(memory, generator, shape, b, edges["b"])


def put_lanes(memory, generator, values, shape, edge):
    """Lay an operand of a lanewise kernel: columns by rows by steps, rows side by side in groups.

    Nothing that is not there needs to exist. Return the address that offsets count from, and the
    offsets of rows, columns and steps.
    """
    columns, rows, steps = values.shape
    size, groups = values.itemsize, shape.vectors
    group = shape.lanes * size + int(generator.integers(0, 2)) * size
    heads = generator.permutation(groups) * group
    row_offsets = (heads[:, None] + np.arange(shape.lanes) * size).ravel()
    column_offsets = generator.permutation(columns) * groups * group
    step_offsets = generator.permutation(steps) * columns * groups * group
    step_offsets = step_offsets * int(generator.choice((1, -1)))
    others = (column_offsets[:, None] + step_offsets).ravel()
    base = put(
        memory, row_offsets[: max(1, rows)], others, size, int(generator.choice((0, 1))), edge
    )
    places = column_offsets[:, None, None] + row_offsets[:rows, None] + step_offsets
    memory.scatter(base + places, values)
    row_offsets[np.arange(shape.rows) % shape.lanes > 0] = NOWHERE
    return base, row_offsets, column_offsets, step_offsets


def lanewise_operands(memory, generator, shape, a, b, edges):
    """Lay both operands of a lanewise kernel, and return its fields for them."""
    base_a, rows_a, _, sums_a = put_lanes(memory, generator, a[None], shape, edges["a"])
    base_b, rows_b, columns_b, sums_b = put_lanes(memory, generator, b, shape, edges["b"])
    table = memory.table(rows_a)
    return {
        "a": base_a,
        "b": base_b,
        "rows_a": table,
        "rows_b": memory.table(rows_b) - table,
        "columns_b": memory.table(columns_b),
        "sums_a": memory.table(sums_a),
        "sums_b": memory.table(sums_b),
    }


def columns_in_place(memory, generator, shape, b, edge):
    """Lay columns anywhere, and return a kernel's fields for them."""
    base, columns_b, sums_b = put_anywhere(memory, generator, b, 1, len(b), edge)
    return {"b": base, "columns_b": memory.table(columns_b), "sums_b": memory.table(sums_b)}


def prefetched_lines(memory, generator, tiles=1):
    """Return the fields of tables of lines to fetch, from none to more than there are k."""
    count = int(generator.integers(0, max(COUNTS) + 2))
    table = memory.table(np.full(tiles * (count + 1), NOWHERE))
    return {"fetch": table, "fetches": count, "fetch_move": 8 * (count + 1) * (tiles > 1)}


def output(memory, generator, shape, mode, rows, edge):
    """Choose where C lies, and return its addresses and the fields that say so."""
    size = np.dtype(shape.dtype).itemsize
    columns = np.arange(shape.columns)
    if mode in IN_VECTORS:
        line = ALIGNMENTS.get(mode, size)
        group = shape.lanes * size + line * int(generator.integers(0, 2))
        group += -group % line
        heads = generator.permutation(shape.vectors) * group
        row_offsets = (heads[:, None] + np.arange(shape.lanes) * size).ravel()
        pitch = shape.vectors * group + line * int(generator.integers(0, 3))
        column_offsets = generator.permutation(columns) * pitch
    else:
        step = size * int(generator.integers(1, 3))
        row_offsets = generator.permutation(shape.rows) * step
        column_offsets = generator.permutation(columns) * step * shape.rows
        if generator.integers(0, 2):  # columns are neighbours
            row_offsets = row_offsets * shape.columns
            column_offsets = column_offsets // shape.rows
    if generator.integers(0, 2):
        column_offsets = -column_offsets
    shift = int(generator.choice((0, 1, size)))
    if mode in ALIGNMENTS:
        shift = ALIGNMENTS[mode] * int(generator.integers(0, 4))
    written = row_offsets[:rows] if rows else row_offsets
    base = put(memory, written, column_offsets, size, shift, None if mode is Mode.STREAM else edge)
    places = base + row_offsets[:rows, None] + column_offsets
    if mode in IN_VECTORS:
        row_offsets[np.arange(shape.rows) % shape.lanes > 0] = NOWHERE
    else:
        row_offsets[rows:] = NOWHERE
    return places, {
        "c": base,
        "rows_c": memory.table(row_offsets),
        "columns_c": memory.table(column_offsets),
    }


def waiting_lines(memory, generator, shape, steps, tiles=1):
    """Return the fields of lines that a call is to store, where they are, and where they go to.

    Interleaved steps store none.
    """
    most = max(0, steps - INTERLEAVED_STEPS_OF_3_VECTORS) if stores_lines(shape) else 0
    each = int(generator.integers(0, most + 1))
    count = each * tiles
    sources = memory.take(LINE_BYTES * max(1, count), int(generator.integers(0, LINE_BYTES)))
    targets = memory.take(LINE_BYTES * max(1, count))
    sources, targets = (
        begin + LINE_BYTES * generator.permutation(count) for begin in (sources, targets)
    )
    for source in sources:
        memory.scatter(
            source + np.arange(LINE_BYTES), generator.integers(0, 256, LINE_BYTES).astype(np.uint8)
        )
    table = memory.table(np.stack([sources, targets], 1).ravel()) if count else 0
    fields = {"lines": table, "lines_move": 16 * each, "line_count": each}
    return (
        fields,
        sources[:, None] + np.arange(LINE_BYTES),
        targets[:, None] + np.arange(LINE_BYTES),
    )


def first_sums(memory, generator, shape, rows, table, edge):
    """Return fields of numbers that sums of rows begin with, none where rows are not, and these."""
    values = drawn(generator, shape.rows, shape.dtype)
    size, heads = values.itemsize, shape.lanes * generator.permutation(shape.vectors)
    offsets = size * (heads[:, None] + np.arange(shape.lanes)).ravel()
    begin = put(memory, offsets[: max(1, rows)], np.zeros(1, np.int64), size, size, edge)
    memory.scatter(begin + offsets[:rows], values[:rows])
    offsets[np.arange(shape.rows) % shape.lanes > 0] = NOWHERE
    found = {"starts": begin, "starts_rows": memory.table(offsets) - table}
    return found, values[:rows]


def draw_epilogue(memory, generator, shape, places, fields, edge):
    """Return fields of what a kernel does beside sums, what sums begin with, and bounds."""
    found, begins, bounds = {}, np.zeros(len(places), shape.dtype), (-np.inf, np.inf)
    if not shape.takes_epilogue:
        return found, begins, bounds
    if len(places) > shape.rows - shape.lanes and generator.integers(0, 2):
        table = fields["rows_c"]
        found, begins = first_sums(memory, generator, shape, len(places), table, edge)
    count = int(generator.integers(0, 3))
    bounds = (bounds, (-0.5, np.inf), (-0.5, 0.75))[count]
    found |= {"bounds": count, "least": np.array(-0.5, shape.dtype)}
    found |= {"largest": np.array(0.75, shape.dtype)}
    if places.size and generator.integers(0, 2):
        size = np.dtype(shape.dtype).itemsize
        low, high = int(places.min()), int(places.max()) + size
        found["apart"] = memory.take(high - low, size, None) - low
    return found, begins, bounds


def missing_at_least(shape):
    """Rows of the last group that a kernel has no lanes for."""
    return shape.lanes // 2 if shape.halved else 0


def product(a, b):
    """Return the sums of products of rows by columns, which lanewise kernels have one a row of."""
    return np.einsum("rk,crk->rc", a, b) if b.ndim == 3 else a @ b.T


def paired(shape, a, b, old):
    """Return what a kernel of other pairs finds, given what is in C if it adds to that."""
    pairing = Pairing.parse(shape.pairing)
    first, second = a[:, None], b.transpose(1, 0, 2) if b.ndim == 3 else b[None]
    values = evaluate_term(pairing.term, {FIRST: first, SECOND: second})
    begin = identity(pairing.reduction, shape.dtype) if old is None else old
    function = OPERATIONS[pairing.reduction].function
    return function(
        function.reduce(values, 2, initial=identity(pairing.reduction, shape.dtype)), begin
    )


def draw_pairs(generator, shape, rows, steps):
    """Return rows and columns of few different numbers; extremes also have some that are none."""
    a, b = (
        generator.integers(-4, 5, size).astype(shape.dtype) / 4
        for size in ((rows, steps), (shape.columns, *[rows] * shape.lanewise, steps))
    )
    if shape.pairing.startswith(("minimum", "maximum")) and a.size and b.size:
        for values in (a, b):
            strange = generator.choice([np.nan, -np.nan, np.inf, -np.inf, -0.0])
            values.flat[generator.integers(values.size)] = strange
    return a, b


def factor(name, value, shape):
    """Return the fields of a factor."""
    value = np.asarray(value, shape.dtype if shape.complex else shape.real)
    found = {name: value.real}
    return found | {f"{name}_imaginary": value.imag} if shape.complex else found


def check(generator, kernels, shape, mode, steps, rows, *, scaled=True):
    """Call a kernel once, and compare every byte of a memory afterwards."""
    memory, wide = GuardedMemory(), WIDER[shape.dtype]
    edges = dict.fromkeys(("a", "b", "c", "starts"))
    edges[generator.choice(list(edges))] = generator.choice(["first", "last"])
    if shape.lanewise:
        steps = min(steps, MOST_LANEWISE_STEPS)
    a = drawn(generator, (rows, steps), shape.dtype)
    b = drawn(generator, (shape.columns, *[rows] * shape.lanewise, steps), shape.dtype)
    factors = COMPLEX_FACTORS if shape.complex else REAL_FACTORS
    alpha, beta = factors[generator.integers(0, len(factors))]
    alpha = alpha if scaled else 1
    places, fields = output(memory, generator, shape, mode, rows, edges["c"])
    fields |= operands(memory, generator, shape, a, b, edges)
    fields = (
        ALONE
        | fields
        | {"k": steps, "rows": rows, "mode": int(mode)}
        | factor("alpha", alpha, shape)
    )
    beside, begins, bounds = draw_epilogue(
        memory, generator, shape, places, fields, edges["starts"]
    )
    fields |= beside
    old = np.zeros(places.shape, shape.dtype)
    if mode in ADDING:
        old = drawn(generator, places.shape, shape.dtype)
        memory.scatter(places + fields["apart"], old)
        fields |= factor("beta", beta, shape)
    else:
        beta = 0
    lines, sources, targets = waiting_lines(memory, generator, shape, steps)
    frame = memory.frame(FIELDS, fields | lines)
    untouched = memory.bytes.copy()
    call(kernels, shape.name, frame)
    assert np.array_equal(memory.gather(targets, np.uint8), memory.gather(sources, np.uint8))
    found = memory.gather(places, shape.dtype)
    sums = product(a.astype(wide), b.astype(wide)) + begins[:, None].astype(wide)
    expected = alpha * sums + beta * old.astype(wide)
    if not shape.complex:
        expected = np.clip(expected, *bounds)
    magnitude = abs(alpha) * (product(abs(a), abs(b)) + abs(begins[:, None]))
    magnitude += abs(beta) * abs(old)
    bound = 4 * (steps + 4) * np.finfo(shape.dtype).eps * magnitude
    assert np.all(np.abs(found - expected) <= bound)
    untouched[memory.offsets(places, found.itemsize)] = memory.bytes[
        memory.offsets(places, found.itemsize)
    ]
    untouched[memory.offsets(targets, 1)] = memory.bytes[memory.offsets(targets, 1)]
    assert np.array_equal(untouched, memory.bytes)


PAIRINGS = (
    "maximum(a + b)",
    "minimum(a - 2 * b)",
    "maximum(abs(a - b))",
    "add(abs(a - b))",
    "add(max(a + b, 0))",
    "add({}(a < b))",
    "multiply(a - b)",
    "maximum(where(a < b, a, 0.5))",
)


@pytest.mark.parametrize(
    ("pairing", "made"),
    quick_each(
        itertools.product(
            PAIRINGS, (("float32", 512, False), ("float64", 256, False), ("float32", 128, True))
        ),
        of=2,
    ),
)
def test_other_pairs(made, pairing):
    """All kinds and modes; only sums are scaled, and extremes keep NaN as numpy's do."""
    dtype, bits, plain = made
    pairing = pairing.format(dtype)
    _, shapes, kernels = load_kernels(dtype, bits, plain, pairing)
    generator = np.random.default_rng(bits)
    for number, shape in enumerate(shapes):
        modes = [mode for mode in Mode if not (shape.halved and mode <= Mode.STREAM_PIECES)]
        for mode in modes:
            steps = COUNTS[(number + mode) % len(COUNTS)]
            missing = missing_at_least(shape) if mode >= Mode.PART else 0
            check_pairs(generator, kernels, shape, mode, steps, shape.rows - missing)


def check_pairs(generator, kernels, shape, mode, steps, rows):
    """Call a kernel of other pairs once; all numbers that it finds are exact."""
    memory, edges = GuardedMemory(), dict.fromkeys("abc")
    edges[generator.choice(list("abc"))] = generator.choice(["first", "last"])
    steps = min(steps, MOST_LANEWISE_STEPS)
    a, b = draw_pairs(generator, shape, rows, steps)
    places, fields = output(memory, generator, shape, mode, rows, edges["c"])
    fields |= operands(memory, generator, shape, a, b, edges)
    fields = ALONE | fields | {"k": steps, "rows": rows, "mode": int(mode)}
    fields |= factor("alpha", 1, shape) | factor("beta", 1, shape)
    old = None
    if mode in ADDING:
        old = generator.integers(-4, 5, places.shape).astype(shape.dtype)
        memory.scatter(places, old)
    lines, _, targets = waiting_lines(memory, generator, shape, steps)
    frame = memory.frame(FIELDS, fields | lines)
    untouched = memory.bytes.copy()
    call(kernels, shape.name, frame)
    with np.errstate(invalid="ignore"):
        expected = paired(shape, a, b, old)
    np.testing.assert_array_equal(memory.gather(places, shape.dtype), expected)
    for written in (memory.offsets(places, expected.itemsize), memory.offsets(targets, 1)):
        untouched[written] = memory.bytes[written]
    assert np.array_equal(untouched, memory.bytes)


@WHOLE
@kernels
@pytest.mark.parametrize("mode", [Mode.STORE, Mode.ADD, Mode.STREAM, Mode.STREAM_PIECES])
def test_whole_vectors(dtype, bits, plain, mode, whole):
    """Any k, factors and order of groups and columns; only where C is added to is it read.

    By turns with and without a factor: of each kernel, and of each k.
    """
    _, shapes, kernels = load_kernels(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    for number, shape in enumerate(shape for shape in shapes if not shape.halved):
        for at, steps in enumerate(in_turn(COUNTS, number, whole)):
            scaled = (number + at + int(mode)) % 2 == 1
            check(generator, kernels, shape, mode, steps, shape.rows, scaled=scaled)


@WHOLE
@kernels
@pytest.mark.parametrize("mode", [Mode.PART, Mode.PART_ADD])
def test_part_of_the_last_group(dtype, bits, plain, mode, whole):
    """The last group has any number of rows, and nothing behind them is touched or need exist."""
    _, shapes, kernels = load_kernels(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    for shape in shapes:
        for missing in range(missing_at_least(shape), shape.lanes):
            for steps in generator.permutation(COUNTS)[: 3 if whole else 1]:
                check(generator, kernels, shape, mode, int(steps), shape.rows - missing)


@WHOLE
@kernels
@pytest.mark.parametrize("mode", [Mode.SCATTER, Mode.SCATTER_ADD])
def test_element_by_element(dtype, bits, plain, mode, whole):
    """Rows that the tile has and C has not are computed from poison and never stored."""
    _, shapes, kernels = load_kernels(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    for number, shape in enumerate(shapes):
        for steps in in_turn(COUNTS, number, whole):
            fewest, most = shape.rows - shape.lanes + 1, shape.rows - missing_at_least(shape)
            least = steps % 2 + (fewest - 1) * shape.lanewise  # only the last group lacks rows
            for rows in {most, int(generator.integers(fewest, most + 1)), least}:
                check(generator, kernels, shape, mode, steps, rows)


@kernels
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_runs(dtype, bits, plain, along):
    """One call computes several tiles, and its frame then stands where the next would be."""
    _, shapes, kernels = load_kernels(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    size, steps = np.dtype(dtype).itemsize, 5
    for shape, tiles in [(shape, tiles) for shape in shapes for tiles in (2, 3)]:
        memory = GuardedMemory()
        mode = Mode.PART if shape.halved else Mode.STORE
        there = shape.rows - missing_at_least(shape)
        per_tile = -(-shape.columns // shape.group)
        most = {"rows": (tiles, 1), "columns": (1, tiles)}[along]
        rows, columns = shape.rows * most[0], shape.columns * most[1]
        a = drawn(generator, (rows, steps), dtype)
        b = drawn(generator, (columns, *[rows] * shape.lanewise, steps), dtype)
        c = memory.take(rows * columns * size)
        by_rows, by_columns = along == "rows", along == "columns"
        moves = {
            "rows_c_move": 8 * shape.rows * by_rows,
            "columns_c_move": 8 * shape.columns * by_columns,
        }
        fields = ALONE | {"k": steps, "rows": there, "mode": int(mode)}
        fields |= factor("alpha", 1, shape)
        fields |= {
            "c": c,
            "rows_c": memory.table(np.arange(rows) * size),
            "columns_c": memory.table(np.arange(columns) * rows * size),
        }
        if shape.lanewise:
            whole = replace(shape, vectors=shape.vectors * most[0])
            edges = dict.fromkeys("ab")
            fields |= lanewise_operands(memory, generator, whole, a, b, edges)
            moves |= {
                "rows_a_move": 8 * shape.rows * by_rows,
                "columns_b_move": 8 * shape.columns * by_columns,
            }
        elif shape.packed:
            # Each tile's columns begin a micro-panel of their own.
            lanes = per_tile * shape.group
            spread = np.zeros((most[1] * lanes, steps), dtype)
            spread.reshape(most[1], lanes, steps)[:, : shape.columns] = b.reshape(
                most[1], shape.columns, steps
            )
            begin_a, pitch_a = put_panels(
                memory, generator, a, shape.lanes, rows, shape.bits // 8, None
            )
            moves["a_move"] = shape.vectors * pitch_a * by_rows
            fields |= {
                "a": begin_a,
                "next_a": begin_a,
                "a_step": pitch_a,
                "next_step": 24,
                "next_a_move": 8,
            }
            if shape.mixed:
                moves["columns_b_move"] = 8 * shape.columns * by_columns
                fields |= columns_in_place(memory, generator, shape, b, None)
            else:
                begin_b, pitch_b = put_panels(
                    memory, generator, spread, shape.group, len(spread), size, None
                )
                moves["b_move"] = per_tile * pitch_b * by_columns
                fields |= {"b": begin_b, "b_step": pitch_b}
            moves |= prefetched_lines(memory, generator, tiles)
            fields["fetch"] = moves["fetch"]
        else:
            base_a, rows_a, sums_a = put_anywhere(memory, generator, a, shape.lanes, rows, None)
            base_b, columns_b, sums_b = put_anywhere(memory, generator, b, 1, columns, None)
            moves |= {
                "rows_a_move": 8 * shape.rows * by_rows,
                "columns_b_move": 8 * shape.columns * by_columns,
            }
            fields |= {"a": base_a, "b": base_b, "next_a": 0, "a_ahead": 0, "b_ahead": 0}
            fields |= {"rows_a": memory.table(rows_a), "columns_b": memory.table(columns_b)}
            fields |= {"sums_a": memory.table(sums_a), "sums_b": memory.table(sums_b)}
        lines, sources, targets = waiting_lines(memory, generator, shape, steps, tiles)
        frame = memory.frame(FIELDS, fields | moves | lines | {"more": tiles - 1})
        words = frame + 8 * np.arange(len(FIELDS))
        before = memory.gather(words, np.int64)
        call(kernels, shape.name, frame)
        places = c + (np.arange(rows)[:, None] + np.arange(columns) * rows) * size
        wide = WIDER[dtype]
        expected = product(a.astype(wide), b.astype(wide))
        bound = 4 * (steps + 4) * np.finfo(dtype).eps * product(abs(a), abs(b))
        mine = np.arange(rows) % shape.rows < there
        assert np.all(np.abs(memory.gather(places, dtype) - expected)[mine] <= bound[mine])
        assert np.array_equal(memory.gather(words, np.int64), before)
        assert np.array_equal(memory.gather(targets, np.uint8), memory.gather(sources, np.uint8))


@pytest.mark.parametrize("mode", Mode)
def test_c_is_prefetched_where_sums_are_long_and_it_is_read(mode):
    """Lines that streaming stores drop from the caches would be fetched for nothing."""
    machine = object_code.target(object_code.TargetCpu.here())
    module = ir.Module()
    module.triple = machine.triple
    function = ir.Function(module, ir.FunctionType(INT64, (INT64,)), "prefetches")
    builder = ir.IRBuilder(function.append_basic_block())
    shape = Shape("float64", 256, 2, 6, 4, packed=True)
    tile = TileEmitter(builder, shape, function.args[0], native=256)
    builder.ret(builder.zext(accumulate._prefetches_c(tile), INT64))
    kernels = LoadedCode(machine.emit_object(llvm.parse_assembly(str(module))))
    prefetches = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kernels.address("prefetches"))
    for steps in (
        1,
        MIN_STEPS_TO_PREFETCH_C - 1,
        MIN_STEPS_TO_PREFETCH_C,
        2 * MIN_STEPS_TO_PREFETCH_C,
    ):
        frame = np.zeros(len(FIELDS), np.int64)
        frame[FIELDS.index("k")], frame[FIELDS.index("mode")] = steps, mode
        assert prefetches(frame.ctypes.data) == (
            steps >= MIN_STEPS_TO_PREFETCH_C and mode not in ALIGNMENTS
        )
