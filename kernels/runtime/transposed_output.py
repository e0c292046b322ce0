"""Turned output: tiles of C whose columns lie side by side in it, and not their rows.

Microkernels write vectors of rows. Where C has columns there, they write a few tiles to a small
buffer in the first cache, whose blocks are transposed in registers on their way to C; what is to be
added to comes in the same way before. The buffer is that of `staging_buffer`. `s` is a state
(`state`); `R` and `N` are the tables of rows and columns (`table_fields`).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.ir.transpose_blocks import TRANSPOSED_KINDS, transpose_by_blocks
from tilesolve.kernels.runtime import frames, state
from tilesolve.kernels.runtime.compiled import INT, POINTER, address, as_pointer, compiled
from tilesolve.kernels.runtime.staging_buffer import COLUMN_OFFSETS, ROW_OFFSETS, count_steady
from tilesolve.packing import table_fields as table
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES

_SIZES, _SIDES = zip(*TRANSPOSED_KINDS, strict=True)


@compiled(POINTER, INT, INT, INT, INT, INT, POINTER, returns=INT)
def lay_out_transposed(s, role, count, n0, m, n, N):
    """Have the tiles of a call go to the buffer, where C has their columns side by side.

    Parameters
    ----------
    s
        The state.
    role, count
        How many tiles there are along a role.
    n0
        First column.
    m, n
        Rows and columns of a tile.
    N
        The table of columns.

    Returns
    -------
    int
        How many tiles may be computed at once; 0 if C is to be written in place.
    """
    element, group = s[state.STEP_BYTES] // s[state.GROUP], s[state.GROUP]
    if min(n, count_steady(N, n0, element)) < tuning.MIN_TRANSPOSED_COLUMNS:
        return 0
    size = n * (m * element + LINE_BYTES)
    most = min(count, max(1, tuning.STAGING_BYTES // size))
    most = min(most, tuning.MAX_STAGED_INDICES // (m if role == state.ROWS else n))
    if size > tuning.STAGING_BYTES or most < 1:
        return 0
    rows = m * (most if role == state.ROWS else 1)
    columns = n * (most if role == state.COLUMNS else 1)
    buffer, pitch = s[state.STAGING_BUFFER], rows * element + LINE_BYTES
    offsets = as_pointer(buffer + ROW_OFFSETS)
    for row in range(rows):
        offsets[row] = row * element
    offsets = as_pointer(buffer + COLUMN_OFFSETS)
    for column in range(columns):
        offsets[column] = column * pitch
    adds = s[frames.MODE] == Mode.SCATTER_ADD
    whole = m % group == 0
    s[frames.MODE] = (
        (Mode.ADD if whole else Mode.PART_ADD) if adds else (Mode.STORE if whole else Mode.PART)
    )
    s[frames.C] = buffer + tuning.STAGING_GAP_BYTES
    s[frames.ROWS_C], s[frames.COLUMNS_C] = buffer + ROW_OFFSETS, buffer + COLUMN_OFFSETS
    s[state.STAGED_RUN_PITCH] = pitch
    return most


@compiled(POINTER, INT, INT, INT, INT, INT, INT, POINTER, POINTER)
def transpose_tiles(s, into, out, r, n, rows, columns, R, N):
    """Move so many rows and columns of C, from the given ones on, into the buffer or out of it."""
    element, pitch = s[state.STEP_BYTES] // s[state.GROUP], s[state.STAGED_RUN_PITCH]
    buffer = s[state.STAGING_BUFFER] + tuning.STAGING_GAP_BYTES
    down = across = 0
    while down < rows:
        here = out + R[R[table.OFFSETS] + r + down]
        high = min(R[R[table.STEADY] + r + down], rows - down)
        apart = (
            R[R[table.OFFSETS] + r + down + 1] - R[R[table.OFFSETS] + r + down] if high > 1 else 0
        )
        across = 0
        while across < columns:
            wide = min(count_steady(N, n + across, element), columns - across)
            place = here + N[N[table.OFFSETS] + n + across]
            near = buffer + across * pitch + down * element
            kind = 0
            while _SIZES[kind] != element or _SIDES[kind] > min(high, wide):
                kind += 1
            if into:
                transpose_by_blocks(
                    kind, place, near, high, wide, (element, apart), (pitch, element)
                )
            else:
                transpose_by_blocks(
                    kind, near, place, wide, high, (element, pitch), (apart, element)
                )
            across += wide
        down += high


@cache
def addresses() -> Integers:
    """Return the fields of a state from `LAY_OUT_TRANSPOSED` on, where C may be transposed."""
    return np.array([address(lay_out_transposed), address(transpose_tiles)])
