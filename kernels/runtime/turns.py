"""Turns: calls of a microkernel for tiles alike, which write C in place or to the staging buffer.

A turn is one call for some tiles along a role; the next one does so for the next tile of the other
role. `s` is a state (`state`); `R` and `N` are the tables of rows and columns (`table_fields`).
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import box_fields, frames, state
from tilesolve.kernels.runtime.compiled import POINTER, as_pointer, compiled, inlined, invoke
from tilesolve.kernels.runtime.prefetch_queue import find_indices, list_prefetches
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


@compiled(POINTER, POINTER, POINTER, POINTER, inner=True)
def find_next_tiles(s, R, N, B):
    """Set how far ahead in C the tiles are that are walked after those of level 1; 0 if none are.

    They are as many along the innermost loop: where its role's next segment has another size, the
    same segment in the next round of the loops around is what is looked for.
    """
    s[state.NEXT_TILES] = far = 0
    orders = state.ORDERS + 4
    inner = s[orders]
    if inner + s[orders + 1] != state.ROWS + state.COLUMNS:
        return
    for level in range(1, s[state.TOP] + 1):
        loops, orders = state.LOOPS + state.LOOP_WORDS * level, state.ORDERS + 4 * level
        for at in range(2 * (level == 1), 4):
            role = s[orders + at]
            now = s[loops + role]
            more = now + 1 < s[loops + state.LOOP_ENDS + role]
            there = now + 1 if more else s[loops + state.LOOP_BEGINS + role]
            alike = 1
            if role != state.SUMS and there != now:
                X = R if role == state.ROWS else N if role == state.COLUMNS else B
                i0, i1 = find_indices(X, level - 1, now)
                j0, j1 = find_indices(X, level - 1, there)
                alike = role != inner or i1 - i0 == j1 - j0
                if alike:
                    far += X[X[table.OFFSETS] + j0] - X[X[table.OFFSETS] + i0]
            if more and alike:
                s[state.NEXT_TILES] = far
                return
    box = as_pointer(s[state.BOXES] + WORD_BYTES * box_fields.SIZE * s[state.BOX])
    if box[box_fields.NEXT_OUTPUT]:
        s[state.NEXT_TILES] = far + box[box_fields.NEXT_OUTPUT]


@inlined
def _look_ahead(s, role, count, turn, loops, X, Y):
    """Tell the microkernel how far ahead in C the tiles are that are walked after a turn's.

    These are `count` along the role of `X`; 0 if none are.
    """
    other, offsets = 1 - role, table.OFFSETS
    x, y = s[loops + role], s[loops + other] + turn
    here = Y[Y[offsets] + Y[Y[table.BOUNDS] + y]]
    ends = loops + state.LOOP_ENDS
    s[frames.C_AHEAD] = 0
    if y + 1 < s[ends + other]:
        s[frames.C_AHEAD] = Y[Y[offsets] + Y[Y[table.BOUNDS] + y + 1]] - here
        return
    again = Y[Y[offsets] + Y[Y[table.BOUNDS] + s[loops + state.LOOP_BEGINS + other]]] - here
    if s[state.ORDERS + 4] == other:  # a call takes tiles of the outer loop
        first = X[X[offsets] + X[X[table.BOUNDS] + x]]
        if x + count < s[ends + role]:
            s[frames.C_AHEAD] = X[X[offsets] + X[X[table.BOUNDS] + x + count]] - first + again
            return
        again += X[X[offsets] + X[X[table.BOUNDS] + s[loops + state.LOOP_BEGINS + role]]] - first
    if s[state.NEXT_TILES]:
        s[frames.C_AHEAD] = s[state.NEXT_TILES] + again


@inlined
def _go_to_turn(s, begins, turn_by, turn):
    """Move what the microkernel reads on to a turn."""
    s[frames.A] = begins[0] + turn * turn_by[0]
    s[frames.ROWS_A] = begins[1] + turn * turn_by[1]
    s[frames.NEXT_A] = begins[2] + turn * turn_by[2]
    s[frames.B] = begins[3] + turn * turn_by[3]
    s[frames.COLUMNS_B] = begins[4] + turn * turn_by[4]


@inlined
def run_turns(s, role, kernel, count, turns, apart, turn_by, loops, R, N):
    """Call the microkernel for each turn: tiles are written to C in place."""
    frame = s[state.SELF] + WORD_BYTES * state.MICROKERNEL_FRAME
    rows_c, columns_c = s[frames.ROWS_C], s[frames.COLUMNS_C]
    hand_over_lines(s, 1, 0)
    begins = s[frames.A], s[frames.ROWS_A], s[frames.NEXT_A], s[frames.B], s[frames.COLUMNS_B]
    list_prefetches(s, count)
    fetches = s[frames.K] < tuning.MIN_STEPS_TO_PREFETCH_C and role <= state.COLUMNS
    fetches = fetches and s[frames.MODE] != Mode.STREAM and s[frames.MODE] != Mode.STREAM_PIECES
    X, Y = (R, N) if role == state.ROWS else (N, R)
    s[frames.C_AHEAD] = 0
    if fetches:
        _look_ahead(s, role, count, 0, loops, X, Y)
    invoke(kernel, frame)
    for turn in range(1, turns):
        if fetches:
            _look_ahead(s, role, count, turn, loops, X, Y)
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
