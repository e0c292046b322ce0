"""Microkernels called one by one: what they compute, and that they touch nothing else."""

import numpy as np
import pytest
from machine_code import WIDTHS, Room, call, loaded, plain_or_not

from tilesolve.contractions.problem import DTYPES
from tilesolve.kernels.shape import FIELDS, Mode
from tilesolve.kernels.summing import FAR

COUNTS = (0, 1, 2, 7, FAR - 1, FAR, FAR + 1)
"""Steps of k: none, fewer than there are sets of sums, and around where C is prefetched."""

IN_VECTORS = (Mode.STORE, Mode.ADD, Mode.STREAM)
ADDING = (Mode.ADD, Mode.SCATTER_ADD)
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
        for plain in plain_or_not()
        if bits == 512 or not plain
    ],
)


def drawn(generator, shape, dtype):
    """Random numbers, complex ones with both parts."""
    values = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(dtype)


def put_strips(room, generator, values, lanes, strips, align):
    """Lay rows in strips, for each step of k their `lanes`; return address and bytes of a strip."""
    rows, steps = values.shape
    size = values.itemsize
    pitch = steps * lanes * size + align * int(generator.integers(0, 3))
    begin = room.take(max(1, strips * pitch), shift=align * int(generator.integers(0, 4)))
    row, step = np.ogrid[:rows, :steps]
    room.scatter(begin + row // lanes * pitch + (step * lanes + row % lanes) * size, values)
    return {"begin": begin, "pitch": pitch}


def put_anywhere(room, generator, values, lanes, rows):
    """Lay rows so that each `lanes` of them are neighbours, and all else in any order.

    Returns
    -------
    tuple
        The address that offsets count from, and the offsets of rows and of steps.
    """
    groups, steps, size = -(-rows // lanes), values.shape[1], values.itemsize
    group = lanes * size + int(generator.integers(0, 2)) * size
    step = groups * group + int(generator.integers(0, 3)) * size
    starts = generator.permutation(groups) * group
    row_offsets = starts[np.arange(rows) // lanes] + np.arange(rows) % lanes * size
    step_offsets = generator.permutation(steps) * step
    sign = int(generator.choice((1, -1)))
    base = room.take(max(1, steps * step), shift=int(generator.choice((0, 1, size))))
    if sign < 0:
        step_offsets = -step_offsets
        base += (steps - 1) * step
    found = base + row_offsets[: len(values), None] + step_offsets
    room.scatter(found, values)
    return base, row_offsets, step_offsets


def operands(room, generator, shape, a, b):
    """Lay both operands as a kernel reads them, and return its fields for them.

    Entries of tables that are not to be read are left out: they are poison. So is what lies in the
    lanes of missing rows, and behind the columns of a packed group.
    """
    nowhere = int.from_bytes(b"\xef\xbe\xfd\x7f" * 2, "little")
    if shape.packed:
        rows = put_strips(room, generator, a, shape.lanes, shape.vectors, shape.bits // 8)
        groups = -(-shape.columns // shape.group)
        columns = put_strips(room, generator, b, shape.group, groups, a.itemsize)
        return {
            "a": rows["begin"],
            "a_step": rows["pitch"],
            "b": columns["begin"],
            "b_step": columns["pitch"],
            "next_a": nowhere,
        }
    base_a, rows_a, sums_a = put_anywhere(room, generator, a, shape.lanes, shape.rows)
    base_b, columns_b, sums_b = put_anywhere(room, generator, b, 1, shape.columns)
    heads = np.full(shape.rows, nowhere)
    heads[:: shape.lanes] = rows_a[:: shape.lanes]
    return {
        "a": base_a,
        "rows_a": room.table(heads),
        "sums_a": room.table(sums_a),
        "b": base_b,
        "columns_b": room.table(columns_b),
        "sums_b": room.table(sums_b),
        "a_ahead": nowhere,
        "b_ahead": nowhere,
    }


def output(room, generator, shape, mode, rows):
    """Choose where C lies, and return its addresses and the fields that say so."""
    size = np.dtype(shape.dtype).itemsize
    columns = np.arange(shape.columns)
    if mode in IN_VECTORS:
        line = 64 if mode is Mode.STREAM else size
        group = shape.lanes * size + line * int(generator.integers(0, 2))
        group += -group % line
        starts = generator.permutation(shape.vectors) * group
        row_offsets = np.repeat(starts, shape.lanes) + np.tile(
            np.arange(shape.lanes) * size, shape.vectors
        )
        heads = row_offsets.copy()
        heads[np.arange(shape.rows) % shape.lanes > 0] = 1 << 60  # which nothing is to read
        pitch = shape.vectors * group + line * int(generator.integers(0, 3))
        column_offsets = generator.permutation(columns) * pitch
        whole = shape.columns * pitch
    else:
        step = size * int(generator.integers(1, 3))
        row_offsets = generator.permutation(shape.rows) * step
        column_offsets = generator.permutation(columns) * step * shape.rows
        if generator.integers(0, 2):  # columns are neighbours
            row_offsets = row_offsets * shape.columns
            column_offsets = column_offsets // shape.rows
        heads = row_offsets
        whole = step * shape.rows * shape.columns
    base = room.take(whole, shift=0 if mode is Mode.STREAM else int(generator.choice((0, 1, size))))
    if generator.integers(0, 2):  # columns that run backwards
        base += int(column_offsets.max())
        column_offsets = -column_offsets
    places = base + row_offsets[:rows, None] + column_offsets
    fields = {"c": base, "rows_c": room.table(heads), "columns_c": room.table(column_offsets)}
    return places, fields


def check(generator, kernels, shape, mode, steps, rows):
    """Call a kernel once, and compare every byte of a room afterwards."""
    room, wide = Room(), WIDER[shape.dtype]
    a = drawn(generator, (rows, steps), shape.dtype)
    b = drawn(generator, (shape.columns, steps), shape.dtype)
    factors = COMPLEX_FACTORS if shape.complex else REAL_FACTORS
    alpha, beta = factors[generator.integers(0, len(factors))]
    places, fields = output(room, generator, shape, mode, rows)
    old = np.zeros(places.shape, shape.dtype)
    fields |= operands(room, generator, shape, a, b)
    fields |= {"k": steps, "rows": rows, "mode": int(mode)}
    fields |= {"alpha": np.asarray(alpha, wide).real.astype(shape.real)}
    if shape.complex:
        fields |= {"alpha_imaginary": np.asarray(alpha).imag.astype(shape.real)}
    if mode in ADDING:
        old = drawn(generator, places.shape, shape.dtype)
        room.scatter(places, old)
        fields |= {"beta": np.asarray(beta).real.astype(shape.real)}
        if shape.complex:
            fields |= {"beta_imaginary": np.asarray(beta).imag.astype(shape.real)}
    frame = room.frame(FIELDS, fields)
    before = room.bytes.copy()
    call(kernels, shape.name, frame)
    found = room.gather(places, shape.dtype)
    beta = beta if mode in ADDING else 0
    expected = alpha * (a.astype(wide) @ b.astype(wide).T) + beta * old.astype(wide)
    magnitude = abs(alpha) * (abs(a) @ abs(b).T) + abs(beta) * abs(old)
    bound = 4 * (steps + 4) * np.finfo(shape.dtype).eps * magnitude
    assert np.all(np.abs(found - expected) <= bound)
    room.scatter(places, np.zeros(places.shape, shape.dtype))
    after = room.bytes.copy()
    room.bytes[:] = before
    room.scatter(places, np.zeros(places.shape, shape.dtype))
    assert np.array_equal(after, room.bytes)


@kernels
@pytest.mark.parametrize("mode", IN_VECTORS)
def test_whole_vectors(dtype, bits, plain, mode):
    """Any k, factors and order of groups and columns; only where C is added to is it read."""
    _, shapes, kernels = loaded(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    for shape in shapes:
        for steps in COUNTS:
            check(generator, kernels, shape, mode, steps, shape.rows)


@kernels
@pytest.mark.parametrize("mode", [Mode.SCATTER, Mode.SCATTER_ADD])
def test_element_by_element(dtype, bits, plain, mode):
    """Rows that the tile has and C has not are computed from poison and never stored."""
    _, shapes, kernels = loaded(dtype, bits, plain)
    generator = np.random.default_rng(bits)
    for shape in shapes:
        for steps in COUNTS:
            fewest = shape.rows - shape.lanes + 1
            for rows in {shape.rows, int(generator.integers(fewest, shape.rows + 1)), steps % 2}:
                check(generator, kernels, shape, mode, steps, rows)
