"""Staging buffer: collects tiles of C that do not lie in whole lines, and writes them as runs.

A non-temporal store writes a line, or a part of one that is a multiple of 16 bytes away from
others. Where vectors of C do not lie at such multiples, microkernels write a few tiles to a small
buffer in the first cache. There they lie as in C, so that what is side by side leaves line by line:
the lines are listed, and stored while the next tiles are computed and written to the buffer's other
half. The part of a line that a run ends in is kept for the tiles that go on there. A box says
whether it is staged (`box_fields.STAGED`); see docs/decisions/051. `s` is a state (`state`); `R`
and `N` are the tables of rows and columns (`table_fields`).
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import frames, state
from tilesolve.kernels.runtime.compiled import INT, POINTER, as_pointer, compiled, inlined
from tilesolve.kernels.runtime.copy_lines import (
    PART_WORDS,
    list_run,
    store_lines,
    write_parts,
)
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

_HALF_BYTES = tuning.STAGING_BYTES + (tuning.MAX_STAGED_RUNS + 1) * tuning.STAGING_GAP_BYTES

# Bytes from the buffer to what stands behind both of its halves.
ROW_OFFSETS = _HALF_BYTES + _HALF_BYTES
"""Offsets of rows in the buffer."""

COLUMN_OFFSETS = ROW_OFFSETS + WORD_BYTES * tuning.MAX_STAGED_INDICES
"""Offsets of columns."""

# The kept lines of runs, and the addresses where C goes on from them.
_KEPT_LINES = COLUMN_OFFSETS + WORD_BYTES * tuning.MAX_STAGED_INDICES
_KEPT_ENDS = _KEPT_LINES + tuning.MAX_KEPT_LINES * LINE_BYTES

LISTED_LINES = _KEPT_ENDS + WORD_BYTES * tuning.MAX_KEPT_LINES
"""The list of whole lines that wait: a run has one more than its bytes fill at most."""

LISTED_PARTS = LISTED_LINES + tuning.STAGING_BYTES + LINE_BYTES * tuning.MAX_STAGED_RUNS
"""The list of parts of lines that wait; a line of room for each line before is more than enough."""

STAGING_WORDS = (LISTED_PARTS + LINE_BYTES) // WORD_BYTES + tuning.MAX_LISTED_PARTS * PART_WORDS
"""Words of the staging buffer with all that stands behind it."""


@compiled(POINTER, INT, INT, returns=INT, inner=True)
def count_steady(X, index, distance):
    """Return how many indices, the first included, follow each other at a distance in C."""
    count = X[X[table.STEADY] + index]
    at = X[table.OFFSETS] + index
    return count if count > 1 and X[at + 1] - X[at] == distance else 1


@inlined
def _count_staged_tiles(role, count, m, n, element, across, piece, per_run):
    """Return how many tiles of a call may be staged at once, a multiple of `per_run`; 0 if none.

    A tile has `m` rows and `n` columns. Runs go `across` columns with `piece` rows each, or else
    down rows.
    """
    size = m * n * element
    most = tuning.STAGING_FLUSH_BYTES // size
    if across and role == state.COLUMNS:
        most = max(most, -(-tuning.MIN_FLUSHED_RUN_BYTES // size))
    elif not across and role == state.ROWS:
        most = max(most, -(-tuning.MIN_FLUSHED_RUN_BYTES // (m * element)))
    indices = m if role == state.ROWS else n
    most = min(most, tuning.STAGING_BYTES // size, tuning.MAX_STAGED_INDICES // indices)
    if across and role == state.ROWS:
        most = min(most, tuning.MAX_STAGED_RUNS * piece // m)
    elif not across and role == state.COLUMNS:
        most = min(most, tuning.MAX_STAGED_RUNS // n)
    most = min(max(per_run, most // per_run * per_run), count)
    if most * size > tuning.STAGING_BYTES:
        return 0
    return 0 if role == state.ROWS and most * m > tuning.MAX_STAGED_INDICES else most


@inlined
def _lay_out_runs(s, across, piece, rows, columns, runs, element):
    """Write down where so many rows and columns are in a half, and that no run's line is kept."""
    pitch = (piece * columns if across else rows) * element + tuning.STAGING_GAP_BYTES
    buffer = s[state.STAGING_BUFFER]
    row_offsets, column_offsets = buffer + ROW_OFFSETS, buffer + COLUMN_OFFSETS
    offsets = as_pointer(row_offsets)
    high = piece if across else rows
    place = 0
    for first in range(0, rows, high):
        for row in range(high):
            offsets[first + row] = place + row * element
        place += pitch
    offsets = as_pointer(column_offsets)
    for column in range(columns):
        offsets[column] = column * (piece * element if across else pitch)
    ends = as_pointer(buffer + _KEPT_ENDS)
    for slot in range(min(runs, tuning.MAX_KEPT_LINES)):
        ends[slot] = 0
    s[state.STAGED_ACROSS], s[state.STAGED_RUN_ROWS] = across, piece if across else 1
    s[state.STAGED_RUN_PITCH] = pitch
    s[state.STAGED_STEP_BYTES] = element * (piece if across else 1)
    s[frames.MODE] = Mode.STORE
    s[frames.ROWS_C], s[frames.COLUMNS_C] = row_offsets, column_offsets


@compiled(POINTER, INT, INT, INT, INT, INT, INT, INT, POINTER, POINTER, returns=INT, inner=True)
def stage_tiles(s, role, count, turns, r0, n0, m, n, R, N):
    """Have the tiles of a call go to the staging buffer, where each is made of runs that are alike.

    Each group of a tile's rows has to be contiguous in C.

    Parameters
    ----------
    s
        The state.
    role, count, turns
        How many tiles there are along a role, and how often along the other one.
    r0, n0
        First row and first column.
    m, n
        Rows and columns of a tile.
    R, N
        The tables.

    Returns
    -------
    int
        How many tiles along the role may be computed at once; 0 if C is to be written in place.
    """
    element, group = s[state.STEP_BYTES] // s[state.GROUP], s[state.GROUP]
    high = m * (count if role == state.ROWS else turns if role == state.COLUMNS else 1)
    wide = n * (count if role == state.COLUMNS else turns if role == state.ROWS else 1)
    down = count_steady(R, r0, element)
    piece, per_run = min(down, m), 1
    whole = role == state.ROWS and high % down == 0 and down % m == 0 and m % group == 0
    if whole and down > m and count_steady(N, n0, down * element) >= n:
        piece, per_run = down, down // m  # columns go on where all rows end
    beside = count_steady(N, n0, piece * element)
    across = beside >= n and beside * piece >= down
    if (
        across
    ):  # each run has as many rows, and these are whole groups where a tile has several runs
        if high % piece or (piece < m and (m % piece or piece % group)):
            return 0
        for row in range(r0, r0 + high, piece):
            if count_steady(R, row, element) < piece:
                return 0
    elif down < m:
        return 0
    most = _count_staged_tiles(role, count, m, n, element, across, piece, per_run)
    if most:
        rows, columns = m * (most if role == 0 else 1), n * (most if role == 1 else 1)
        _lay_out_runs(s, across, piece, rows, columns, high // piece if across else wide, element)
        s[state.STAGED_FIRST_ROW], s[state.STAGED_FIRST_COLUMN] = r0, n0
        s[state.STAGED_END_ROW], s[state.STAGED_END_COLUMN] = r0 + high, n0 + wide
    return most


@compiled(POINTER, INT, INT, inner=True)
def hand_over_lines(s, count, vectors):
    """Have a call for so many tiles, each of so many vectors, store the lines that are listed.

    Each tile stores as many, one in a step of k. What is left over is stored now: all that is
    listed, where no vectors are given.
    """
    listed, each = s[state.STAGING_BUFFER] + LISTED_LINES, 0
    lines = as_pointer(listed)
    waiting = lines[0]
    if vectors >= s[state.STORING_VECTORS] > 0:
        each = max(0, min(waiting // count, s[frames.K] - tuning.INTERLEAVED_STEPS_OF_3_VECTORS))
    now = waiting - count * each
    store_lines(listed, now)
    lines[0] = 0
    if not vectors:
        write_parts(s[state.STAGING_BUFFER] + LISTED_PARTS)
    s[frames.LINES] = listed + WORD_BYTES * (1 + 2 * now)
    s[frames.LINES_MOVE], s[frames.LINE_COUNT] = 2 * WORD_BYTES * each, each


@compiled(POINTER, INT, INT, INT, INT, INT, POINTER, POINTER, inner=True)
def flush_tiles(s, out, r, n, rows, columns, R, N):
    """Have so many rows and columns of C, from the given ones on, leave the half they are in."""
    buffer, pitch = s[state.STAGING_BUFFER], s[state.STAGED_RUN_PITCH]
    half, lines, parts = buffer + s[state.STAGED_HALF], buffer + LISTED_LINES, buffer + LISTED_PARTS
    write_parts(parts)  # of the other half: what was just written could not be read yet
    s[state.STAGED_HALF] = _HALF_BYTES - s[state.STAGED_HALF]
    # Runs go along Y, from y to the last of it; x is the index of a run.
    X, Y, high, wide = R, N, rows, columns
    x, y, first, last = r, n, s[state.STAGED_FIRST_ROW], s[state.STAGED_END_COLUMN]
    if not s[state.STAGED_ACROSS]:
        X, Y, high, wide = N, R, columns, rows
        x, y, first, last = n, r, s[state.STAGED_FIRST_COLUMN], s[state.STAGED_END_ROW]
    unit, length = s[state.STAGED_RUN_ROWS], s[state.STAGED_STEP_BYTES]
    ends = as_pointer(buffer + _KEPT_ENDS)
    offsets = Y[table.OFFSETS] + y
    slot, source = (x - first) // unit - 1, half + tuning.STAGING_GAP_BYTES - pitch
    for at in range(0, high, unit):
        slot, source = slot + 1, source + pitch
        base = out + X[X[table.OFFSETS] + x + at]
        kept = buffer + _KEPT_LINES + LINE_BYTES * slot
        done = 0
        while done < wide:
            now = min(count_steady(Y, y + done, length), wide - done)
            begin, size = base + Y[offsets + done], now * length
            before = after = 0
            if slot < tuning.MAX_KEPT_LINES:  # less than a line is not kept
                if ends[slot] == begin:
                    before = kept
                ends[slot] = 0
                more = done + now == wide and y + wide < last and size >= LINE_BYTES
                if more and base + Y[offsets + wide] == begin + size:
                    after, ends[slot] = kept, begin + size
            list_run(source + done * length, begin, size, before, after, lines, parts)
            done += now
