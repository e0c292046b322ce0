"""Turns: calls of a microkernel for tiles alike, which write C in place or to the staging buffer.

A turn is one call for some tiles along a role; the next one does so for the next tile of the other
role. `s` is a state (`state`); `R` and `N` are the tables of rows and columns (`table_fields`).
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.runtime import frames, state
from tilesolve.kernels.runtime.compiled import as_pointer, inlined, invoke
from tilesolve.kernels.runtime.prefetch_queue import list_prefetches
from tilesolve.kernels.runtime.staging_buffer import flush_tiles, hand_over_lines
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import WORD_BYTES


@inlined
def trace_calls(s, count, turns, rows, columns, sums, turn_by, b, mode, kind):
    """Write down what each of a call's tiles computes; ``turn_by`` is how far turns are apart."""
    for call in range(count * turns):
        turn, at = call // count, call % count
        words = state.TRACE_WORDS * (s[state.CALLS] + call)
        trace = as_pointer(s[state.TRACE] + WORD_BYTES * words)
        high, wide = rows[1] - rows[0], columns[1] - columns[0]
        down, across = turn_by
        trace[0], trace[1] = rows[0] + at * (high - down) + turn * down, high
        trace[2], trace[3] = columns[0] + at * (wide - across) + turn * across, wide
        trace[4], trace[5] = sums[0], sums[1] - sums[0]
        trace[6], trace[7] = b, mode
        trace[8], trace[9] = kind, s[state.BOX]


@inlined
def look_ahead(s, role, loops, rows, columns, R, N):
    """Tell the microkernel how far ahead in C the tiles of the next turn are; 0 if none is."""
    s[frames.C_AHEAD] = 0
    if role == state.ROWS and s[loops + state.COLUMNS] + 1 < s[state.TILES + 1]:
        offsets = N[table.OFFSETS]
        s[frames.C_AHEAD] = N[offsets + columns[1]] - N[offsets + columns[0]]
    elif role == state.COLUMNS and s[loops] + 1 < s[state.TILES]:
        offsets = R[table.OFFSETS]
        s[frames.C_AHEAD] = R[offsets + rows[1]] - R[offsets + rows[0]]


@inlined
def _go_to_turn(s, begins, turn_by, turn):
    """Move what the microkernel reads on to a turn."""
    s[frames.A] = begins[0] + turn * turn_by[0]
    s[frames.ROWS_A] = begins[1] + turn * turn_by[1]
    s[frames.NEXT_A] = begins[2] + turn * turn_by[2]
    s[frames.B] = begins[3] + turn * turn_by[3]
    s[frames.COLUMNS_B] = begins[4] + turn * turn_by[4]


@inlined
def run_turns(s, kernel, count, turns, apart, turn_by):
    """Call the microkernel for each turn: tiles are written to C in place."""
    frame = s[state.SELF] + WORD_BYTES * state.MICROKERNEL_FRAME
    rows_c, columns_c = s[frames.ROWS_C], s[frames.COLUMNS_C]
    hand_over_lines(s, 1, 0)
    begins = s[frames.A], s[frames.ROWS_A], s[frames.NEXT_A], s[frames.B], s[frames.COLUMNS_B]
    list_prefetches(s, count)
    invoke(kernel, frame)
    for turn in range(1, turns):
        _go_to_turn(s, begins, turn_by, turn)
        s[frames.ROWS_C] = rows_c + WORD_BYTES * turn * apart[0]
        s[frames.COLUMNS_C] = columns_c + WORD_BYTES * turn * apart[1]
        list_prefetches(s, count)
        invoke(kernel, frame)


@inlined
def run_buffered(
    s,
    kernel,
    count,
    turns,
    most,
    transposed,
    vectors,
    out,
    tile,
    sides,
    moves,
    apart,
    turn_by,
    R,
    N,
):
    """Call the microkernel for so many tiles at a time, and move them from a buffer in between.

    They are flushed to C, or transposed; what is added to comes before: ``transposed`` is 2 then,
    else 1. Tiles have so many ``vectors`` where their kernels may store lines. ``tile`` is the
    first row and column of the first tile, ``sides`` are its extents, ``moves`` is how far a call's
    tiles are apart, ``apart`` how far turns are.
    """
    frame = s[state.SELF] + WORD_BYTES * state.MICROKERNEL_FRAME
    begins = s[frames.A], s[frames.ROWS_A], s[frames.NEXT_A], s[frames.B], s[frames.COLUMNS_B]
    s[frames.C_AHEAD] = 0
    for turn in range(turns):
        for at in range(0, count, most):
            now = min(most, count - at)
            s[frames.MORE] = now - 1
            _go_to_turn(s, begins, turn_by, turn)
            s[frames.A] += at * s[frames.A_MOVE]
            s[frames.ROWS_A] += at * s[frames.ROWS_A_MOVE]
            s[frames.NEXT_A] += at * s[frames.NEXT_A_MOVE]
            s[frames.B] += at * s[frames.B_MOVE]
            s[frames.COLUMNS_B] += at * s[frames.COLUMNS_B_MOVE]
            row = tile[0] + turn * apart[0] + at * moves[0]
            column = tile[1] + turn * apart[1] + at * moves[1]
            high, wide = sides[0] + (now - 1) * moves[0], sides[1] + (now - 1) * moves[1]
            hand_over_lines(s, now, vectors)
            begin = s[state.BEGINS_TABLE] + WORD_BYTES * row
            s[frames.STARTS_ROWS] = begin - s[frames.ROWS_C]
            if transposed == 2:
                invoke(s[state.TRANSPOSE_TILES], s, 1, out, row, column, high, wide, R, N)
            elif not transposed:
                half = s[state.STAGING_BUFFER] + s[state.STAGED_HALF]
                s[frames.C] = half + tuning.STAGING_GAP_BYTES
            list_prefetches(s, now)
            invoke(kernel, frame)
            if transposed:
                invoke(s[state.TRANSPOSE_TILES], s, 0, out, row, column, high, wide, R, N)
            else:
                flush_tiles(s, out, row, column, high, wide, R, N)
