"""Prefetch queue: lines of an operand's next segment, prefetched while microkernels compute.

Packing alone would wait for memory: it reads many short runs, which hardware prefetchers do not
follow. So the lines of the segment that is packed next are spread over the tiles that are computed
before; each microkernel prefetches some (`shape.FIELDS`, ``fetch``), and packing finds them in a
cache. See docs/decisions/050. `s` is a state (`state`); `R`, `N`, `K` and `B` are the tables of
rows, columns, sums and batches (`table_fields`), and `r`, `n`, `k` and `b` segments of them. `X`
and `x` are those of the operand's rows or columns.
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.runtime import box_fields, frames, state
from tilesolve.kernels.runtime.compiled import INT, PAIR, POINTER, as_pointer, compiled
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import WORD_BYTES


@compiled(POINTER, INT, INT, returns=PAIR, inner=True)
def find_tiles(X, level, segment):
    """Return the range of register tiles of a segment of a level."""
    first, end = segment, segment + 1
    for at in range(level, 0, -1):
        first, end = X[X[table.BOUNDS + at] + first], X[X[table.BOUNDS + at] + end]
    return first, end


@compiled(POINTER, INT, INT, returns=PAIR, inner=True)
def find_indices(X, level, segment):
    """Return the range of indices of a segment of a level."""
    first, end = find_tiles(X, level, segment)
    return X[X[table.BOUNDS] + first], X[X[table.BOUNDS] + end]


@compiled(POINTER, INT, INT, returns=INT, inner=True)
def _count_tiles(X, level, segment):
    """Return how many register tiles a segment of a level has."""
    first, end = find_tiles(X, level, segment)
    return end - first


@compiled(POINTER, INT, INT, INT, INT, INT, INT, INT, INT, inner=True)
def _enqueue(s, side, x, k, b, tables, source, tiles, level):
    """Queue the lines of a segment of an operand, to be prefetched during so many tiles.

    ``tables`` is where the addresses of the roles' tables are, ``source`` where the operand is.
    """
    addresses = as_pointer(tables)
    own, sums = addresses[side], addresses[state.SUMS]
    X, K, B = as_pointer(own), as_pointer(sums), as_pointer(addresses[state.BATCHES])
    k0, k1 = find_indices(K, level, k)
    b0, _ = find_indices(B, level, b)
    offsets, blocks = table.OFFSETS + 1 + side, table.BLOCKS + table.BLOCK_WORDS * side
    bounds, lines = blocks + table.LINE_BOUNDS, blocks + table.LINE_OFFSETS
    kind = s[state.PACK_KIND + side]
    outer, outers = sums + WORD_BYTES * (K[offsets] + k0), k1 - k0
    inner = inners = 0
    if kind == state.KIND_COPY:
        first, end = find_tiles(X, level, x)
        low, high = X[X[table.GROUPS] + first], X[X[table.GROUPS] + end]
        inner, inners = own + WORD_BYTES * (X[table.GROUP_ENDS] + low), high - low
    elif kind == state.KIND_TRANSPOSE_ROWS:
        low, high = X[X[bounds] + x], X[X[bounds] + x + 1]
        inner, inners = own + WORD_BYTES * (X[lines] + low), high - low
    elif kind == state.KIND_TRANSPOSE_SUMS:
        low, high = K[K[bounds] + k], K[K[bounds] + k + 1]
        inner, inners = sums + WORD_BYTES * (K[lines] + low), high - low
        x0, x1 = find_indices(X, level, x)
        outer, outers = own + WORD_BYTES * (X[offsets] + x0), x1 - x0
    s[state.QUEUE_OUTER + side], s[state.QUEUE_OUTER_END + side] = (
        outer,
        outer + WORD_BYTES * outers,
    )
    s[state.QUEUE_INNER + side], s[state.QUEUE_INNER_COUNT + side] = inner, inners
    s[state.QUEUE_INNER_AT + side] = 0
    s[state.QUEUE_SOURCE + side] = source + B[B[offsets] + b0]
    share = (inners * outers + tiles - 1) // max(1, tiles)
    share = max(share, tuning.MIN_PREFETCHES_PER_TILE) if share else 0
    s[state.QUEUE_LINES_PER_TILE + side] = share


@compiled(POINTER, INT, INT, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def enqueue_next(s, side, level, r, n, k, b, R, N, K, B):
    """Queue the segment that follows the one of an operand that was just packed, if any does.

    Parameters
    ----------
    s
        The state.
    side
        0 for the rows' operand, 1 for the columns'.
    level
        Whose segment it is.
    r, n, k, b
        The current segments of the roles.
    R, N, K, B
        Their tables.
    """
    s[state.QUEUE_LINES_PER_TILE + side] = 0
    if not s[state.PREFETCHED + side]:
        return
    tiles = _count_tiles(R, level, r) * _count_tiles(N, level, n)
    tiles *= _count_tiles(K, level, k) * _count_tiles(B, level, b)
    X = N if side else R
    for around in range(level + 1, s[state.TOP] + 1):
        loops, orders = state.LOOPS + state.LOOP_WORDS * around, state.ORDERS + 4 * around
        ends, begins = loops + state.LOOP_ENDS, loops + state.LOOP_BEGINS
        # Where the next round of loops that are at their ends begins.
        x, k, b = s[loops + side], s[loops + state.SUMS], s[loops + state.BATCHES]
        same = 1
        for at in range(4):
            role = s[orders + at]
            more = s[loops + role] + 1 < s[ends + role]
            if role == 1 - side and (same or not more):
                tiles *= s[ends + role] - s[loops + role]
                continue
            if role != 1 - side:
                now = s[loops + role] + 1 if more else s[begins + role]
                same = same and now == s[loops + role]
                if role == state.SUMS:
                    k = now
                elif role == state.BATCHES:
                    b = now
                else:
                    x = now
            if more:
                for inner in range(around - 1, level, -1):
                    bounds = table.BOUNDS + inner
                    x, k, b = X[X[bounds] + x], K[K[bounds] + k], B[B[bounds] + b]
                tables = s[state.SELF] + WORD_BYTES * state.TABLES
                _enqueue(s, side, x, k, b, tables, s[state.SOURCE + side], tiles, level)
                return
    box_bytes = WORD_BYTES * box_fields.SIZE
    here = s[state.BOXES] + box_bytes * s[state.BOX]
    later = as_pointer(here)[box_fields.NEXT_CHANGE + side]
    if later:
        there = here + box_bytes * later
        source = s[state.BASES + 1 + side] + as_pointer(there)[box_fields.OFFSETS + 1 + side]
        tables = there + WORD_BYTES * box_fields.TABLES
        _enqueue(s, side, 0, 0, 0, tables, source, tiles * later, level)


@compiled(POINTER, INT, inner=True)
def list_prefetches(s, count):
    """List the lines that a call for so many tiles prefetches, and take them from the queue."""
    shares = s[state.QUEUE_LINES_PER_TILE] + s[state.QUEUE_LINES_PER_TILE + 1]
    first_line = s[state.PREFETCH_LIST]
    s[frames.FETCH], s[frames.FETCH_MOVE], s[frames.FETCHES] = first_line, 0, 0
    if shares <= 0:
        return
    at_once = s[state.LISTED_PER_STEP]
    steps = min(s[frames.K], tuning.MAX_PREFETCHES_PER_CALL // (count * at_once) - 1)
    steps = min(steps, (shares + at_once - 1) // at_once)
    if steps <= 0:
        return
    each = steps * at_once
    s[frames.FETCH], s[frames.FETCHES] = first_line + WORD_BYTES, steps
    s[frames.FETCH_MOVE] = WORD_BYTES * (each + at_once)
    lines = as_pointer(first_line + WORD_BYTES)
    end, free = count * (each + at_once), each
    done = 0
    for side in range(2):
        share = s[state.QUEUE_LINES_PER_TILE + side]
        outer, outer_end = s[state.QUEUE_OUTER + side], s[state.QUEUE_OUTER_END + side]
        inner = as_pointer(s[state.QUEUE_INNER + side])
        inners, at = s[state.QUEUE_INNER_COUNT + side], s[state.QUEUE_INNER_AT + side]
        # Of the lines of each tile its share.
        left = count * each * share // shares if side == 0 else count * each
        while left > 0 and done < end and outer < outer_end and share:
            base = s[state.QUEUE_SOURCE + side] + as_pointer(outer)[0]
            fits = min(left, inners - at, free)
            for i in range(fits):
                lines[done + i] = base + inner[at + i]
            done, left, free = done + fits, left - fits, free - fits
            if free == 0:
                for i in range(at_once):
                    lines[done + i] = s[state.SELF]
                done, free = done + at_once, each
            at += fits
            if at == inners:
                at = 0
                outer += WORD_BYTES
        s[state.QUEUE_OUTER + side], s[state.QUEUE_INNER_AT + side] = outer, at
        if outer >= outer_end:
            s[state.QUEUE_LINES_PER_TILE + side] = 0
    for i in range(done, end):
        lines[i] = s[state.SELF]
