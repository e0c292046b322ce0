"""Loops that store vectors begin them at lines, wherever arrays begin and however long rows are."""

import numpy as np
import pytest

import tilesolve
from tilesolve.constants.tuning import ALIGNED_BLOCK_VECTORS, ALIGNED_VECTORS


def place(shape, dtype, offset):
    """An array so many bytes behind a line, amid bytes that nobody may write."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    held = np.full(count + 256, 0x5A, np.uint8)
    begin = 64 + -held.ctypes.data % 64 + offset
    return held, held[begin : begin + count].view(dtype).reshape(shape)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_stores_at_any_place_write_their_rows_and_nothing_else(dtype, threads):
    """Around as many vectors of each width as loops need to begin at a line."""
    size = np.dtype(dtype).itemsize
    lengths = {
        ALIGNED_VECTORS * bits // 8 // size + more
        for bits in (128, 256, 512)
        for more in (-1, 0, 1)
    }
    for length in sorted(lengths | {1, 7}):
        x, y = (np.random.randint(0, 99, n).astype(dtype) for n in (3, length))
        plan = tilesolve.nest("o[i,j] = x[i] + y[j]", {"x": x, "y": y}, threads=threads)
        for offset in (0, size, 16, 48, 64 - size, 3):
            held, out = place((3, length), dtype, offset)
            before = held.copy()
            plan(x, y, out=out)
            np.testing.assert_array_equal(out, np.add.outer(x, y))
            out[...] = np.frombuffer(b"\x5a" * out.nbytes, dtype).reshape(out.shape)
            assert (held == before).all()


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 128), ("float32", 256), ("float32", 512)])
def test_rows_of_blocks_begin_at_lines(dtype, bits):
    """Rows that lie whole lines apart begin there together, and others where they did."""
    size = np.dtype(dtype).itemsize
    length = ALIGNED_BLOCK_VECTORS * bits // 8 // size
    for count in (length - 1, length, length + 16 // size + 1):
        a = np.random.randint(0, 99, (8, count)).astype(dtype)
        plan = tilesolve.nest("o[i,j] = A[i,j] - A[i+1,j]", {"A": a}, threads=1)
        joined = tilesolve.pipeline(lambda a: (a[1:] * 2)[:-1] + (a[1:] * 2)[1:], threads=1)
        for pitch in (count, -(-count * size // 64) * 64 // size):
            for offset in (0, size, 16, 64 - size, 3):
                for run, right in ((plan, a[:-1] - a[1:]), (joined, a[1:-1] * 2 + a[2:] * 2)):
                    held, rows = place((len(right), pitch), dtype, offset)
                    before, out = held.copy(), rows[:, :count]
                    run(a, out=out)
                    np.testing.assert_array_equal(out, right)
                    out[...] = np.frombuffer(b"\x5a" * size, dtype)
                    assert (held == before).all()
