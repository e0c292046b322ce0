"""Loops that store vectors begin them at lines, wherever arrays begin and however long rows are."""

import numpy as np
import pytest

import tilesolve
from tilesolve.constants.tuning import ALIGNED_VECTORS


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
