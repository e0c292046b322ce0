"""The macrokernel: walks a nest, packs what is new, and calls a microkernel for each tile.

It is compiled once. Everything that a plan decides reaches it as data: a state `s` (`state`), the
fields of each box (`box_fields`), and a table per role (`table_fields`): `R`, `N`, `K` and `B` of
rows, columns, sums and batches. `r`, `n`, `k` and `b` are segments of these, or register tiles;
``r0:r1``, ``n0:n1`` and ``k0:k1`` are a tile's indices. Where its large functions are is data, too;
what is called for every few tiles alone is linked in.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import box_fields, call_fields, epilogue_fields, frames, state
from tilesolve.kernels.runtime.boxes import enter_box
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    address,
    as_pointer,
    compiled,
    inlined,
    invoke,
    on_stack,
    result,
    store_fence,
    word,
)
from tilesolve.kernels.runtime.pack_segment import pack_segment, tabulate_offsets
from tilesolve.kernels.runtime.prefetch_queue import enqueue_next
from tilesolve.kernels.runtime.staging_buffer import (
    LISTED_LINES,
    LISTED_PARTS,
    STAGING_WORDS,
    hand_over_lines,
    stage_tiles,
)
from tilesolve.kernels.runtime.turns import find_next_tiles, run_buffered, run_turns, trace_calls
from tilesolve.packing import table_fields as table
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES
from tilesolve.packing.offset_tables import TileLayout
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

_ROWS, _COLUMNS, _SUMS, _BATCHES = state.ROWS, state.COLUMNS, state.SUMS, state.BATCHES

# What `on_stack` makes room for has to be a plain global.
_STATE_WORDS, _PREFETCH_WORDS = state.SIZE, 1 + tuning.MAX_PREFETCHES_PER_CALL


@compiled(POINTER, INT, INT, INT, INT, returns=INT, inner=True)
def _find_packed(s, side, group, k0, b):
    """Return the address of a group of an operand's packed copy, from a k and in a batch."""
    return (
        s[state.COPY + side]
        + (group - s[state.COPIED_GROUP + side]) * s[state.PANEL_BYTES + side]
        + (k0 - s[state.COPIED_SUM + side]) * s[state.STEP_BYTES + side]
        + (b - s[state.COPIED_BATCH + side]) * s[state.BATCH_BYTES + side]
    )


@compiled(POINTER, INT, INT, INT, INT, INT, POINTER, returns=INT, inner=True)
def _prefetch_panels(s, role, count, turns, steps, loops, R):
    """Have a call's tiles prefetch their share of the packed rows that come next, if they are far.

    While a tile's or a segment's rows are multiplied by its columns, each tile prefetches as much
    of what follows them in the copy: all at once would delay what the tiles themselves load. Of
    micro-panels with more sums than the tiles have, only a part of what comes next is prefetched.
    Return how much further the next turn prefetches.
    """
    groups = R[table.GROUPS]
    begin, end = s[loops], s[loops] + 1
    if role == _ROWS:  # all rows of the segment are multiplied by each of its columns
        begin, end = s[loops + state.LOOP_BEGINS], s[loops + state.LOOP_ENDS]
    columns = s[loops + state.LOOP_ENDS + _COLUMNS] - s[loops + state.LOOP_BEGINS + _COLUMNS]
    tiles = (end - begin) * columns
    first, last = R[groups + begin], R[groups + end]
    panel, length = s[state.PANEL_BYTES], (last - first) * s[state.PANEL_BYTES]
    here = s[frames.A] - (R[groups + s[loops]] - first) * panel
    done = s[state.TILES_DONE] if s[state.CURRENT_PANELS] == here else 0
    if role == _ROWS:
        s[state.CURRENT_PANELS], s[state.TILES_DONE] = here, done + count * turns
    else:
        s[state.CURRENT_PANELS] = here + (turns - 1) * length
        s[state.TILES_DONE] = done + count
    # Near rows are not prefetched: what a tile has itself stands for them.
    s[frames.NEXT_A], s[frames.NEXT_STEP] = s[frames.A], 0
    s[frames.NEXT_A_MOVE] = s[frames.A_MOVE]
    turn = 0 if role == _ROWS else length
    if s[state.PREFETCHES_PANELS] and done < tiles and length < s[state.BATCH_BYTES]:
        following = here + length
        if (last - s[state.COPIED_GROUP]) * panel >= s[state.BATCH_BYTES]:
            following -= s[state.BATCH_BYTES]
        step = s[state.STEP_BYTES]
        s[frames.NEXT_STEP] = min(step, ((last - first) * step - 1) // tiles + 1)
        s[frames.NEXT_A_MOVE] = s[frames.NEXT_STEP] * steps
        s[frames.NEXT_A] = following + done * s[frames.NEXT_A_MOVE]
        if role == _ROWS:
            turn = count * s[frames.NEXT_A_MOVE]
    return turn


@inlined
def _set_rows(s, role, count, turns, loops, tile, sums, R, K, B):
    """Tell the microkernel where its rows are, with ``tile`` and ``sums`` the indices of its tile.

    Return how much further the next turn's rows, their offsets and its prefetches are.
    """
    r, b = s[loops], s[loops + _BATCHES]
    (r0, r1), (k0, k1) = tile, sums
    s[frames.A_MOVE] = s[frames.ROWS_A_MOVE] = 0
    if s[state.PACKED_LEVEL]:
        group = R[R[table.GROUPS] + r]
        s[frames.A] = _find_packed(s, _ROWS, group, k0, b)
        a_turn = (R[R[table.GROUPS] + r + 1] - group) * s[state.PANEL_BYTES]
        if role == _ROWS:
            s[frames.A_MOVE], a_turn = a_turn, 0
        next_turn = _prefetch_panels(s, role, count, turns, k1 - k0, loops, R)
        s[frames.A_STEP] = s[state.PANEL_BYTES]
        if not s[state.PACKED_LEVEL + 1]:
            s[frames.ROWS_A] = s[state.SELF] + WORD_BYTES * state.PACKED_OFFSETS
            s[frames.SUMS_A] = s[state.PACKED_SUM_OFFSETS]
            s[frames.A_AHEAD] = 0
        return a_turn, 0, next_turn
    offsets = table.OFFSETS + 1
    here = R[offsets]
    s[frames.A] = s[state.SOURCE] + B[B[offsets] + b]
    s[frames.ROWS_A] = s[state.TABLES] + WORD_BYTES * (here + r0)
    s[frames.ROWS_B] = WORD_BYTES * (R[offsets + 1] - here)
    s[frames.SUMS_A] = s[state.TABLES + _SUMS] + WORD_BYTES * (K[offsets] + k0)
    s[frames.A_AHEAD] = R[here + r1] - R[here + r0] if r + 1 < s[state.TILES] else 0
    rows_turn = WORD_BYTES * (r1 - r0)
    if role == _ROWS:
        s[frames.ROWS_A_MOVE], rows_turn = rows_turn, 0
    return 0, rows_turn, 0


@inlined
def _set_columns(s, role, loops, tile, k0, N, K, B):
    """Tell the microkernel where its columns are, with ``tile`` their indices.

    Return how much further the next turn's columns and their offsets are.
    """
    n, b = s[loops + _COLUMNS], s[loops + _BATCHES]
    n0, n1 = tile
    s[frames.B_MOVE] = s[frames.COLUMNS_B_MOVE] = 0
    if s[state.PACKED_LEVEL + 1]:
        group = N[N[table.GROUPS] + n]
        s[frames.B] = _find_packed(s, _COLUMNS, group, k0, b)
        b_turn = (N[N[table.GROUPS] + n + 1] - group) * s[state.PANEL_BYTES + 1]
        if role == _COLUMNS:
            s[frames.B_MOVE], b_turn = b_turn, 0
        if s[state.PACKED_LEVEL]:
            s[frames.B_STEP] = s[state.PANEL_BYTES + 1]
        else:
            packed = state.PACKED_OFFSETS + state.MAX_TILE_INDICES
            s[frames.COLUMNS_B] = s[state.SELF] + WORD_BYTES * packed
            s[frames.SUMS_B] = s[state.PACKED_SUM_OFFSETS + 1]
            s[frames.B_AHEAD] = 0
        return b_turn, 0
    offsets = table.OFFSETS + 2
    here = N[offsets]
    s[frames.B] = s[state.SOURCE + 1] + B[B[offsets] + b]
    s[frames.COLUMNS_B] = s[state.TABLES + 1] + WORD_BYTES * (here + n0)
    s[frames.SUMS_B] = s[state.TABLES + _SUMS] + WORD_BYTES * (K[offsets] + k0)
    s[frames.B_AHEAD] = N[here + n1] - N[here + n0] if n + 1 < s[state.TILES + 1] else 0
    columns_turn = WORD_BYTES * (n1 - n0)
    if role == _COLUMNS:
        s[frames.COLUMNS_B_MOVE], columns_turn = columns_turn, 0
    return 0, columns_turn


@inlined
def _find_operand(s, number):
    """Return the address of an operand's element at a box's first indices, and its record."""
    told = s[state.BOX_OPERANDS] + WORD_BYTES * epilogue_fields.OPERAND_WORDS * number
    begin = as_pointer(told)[epilogue_fields.BEGIN]
    return as_pointer(s[state.OPERANDS])[number] + begin, told


@inlined
def _set_epilogue(s, first, r0, b):
    """Tell the microkernel what sums begin with, and what they are added to, if they are new."""
    s[frames.STARTS] = s[frames.APART] = 0
    if first and s[state.BEGINS_WITH]:
        place, told = _find_operand(s, s[state.BEGINS_WITH] - 1)
        known = as_pointer(told)
        s[frames.STARTS] = place + as_pointer(known[epilogue_fields.BATCHES])[b]
        s[state.BEGINS_TABLE] = known[epilogue_fields.ROWS]
        s[frames.STARTS_ROWS] = s[state.BEGINS_TABLE] + WORD_BYTES * r0 - s[frames.ROWS_C]
    if first and s[state.ADDS]:
        place, told = _find_operand(s, s[state.ADDS] - 1)
        s[frames.APART] = place - s[state.OUTPUT]


@inlined
def _set_output(s, stored, rows, columns, sums, b, R, N, B):
    """Tell the microkernel where its tile of C is and how to write it; return whether it is new."""
    s[frames.C] = s[state.OUTPUT] + B[B[table.OFFSETS] + b]
    s[frames.ROWS_C] = s[state.TABLES] + WORD_BYTES * (R[table.OFFSETS] + rows[0])
    s[frames.COLUMNS_C] = s[state.TABLES + 1] + WORD_BYTES * (N[table.OFFSETS] + columns[0])
    s[frames.ROWS] = rows[1] - rows[0]
    first = sums[0] == 0 and s[state.HAS_FIRST_SUM]
    last = sums[1] >= s[state.SUM_COUNT] and s[state.HAS_LAST_SUM]
    s[frames.BOUNDS] = s[state.BOUND_COUNT] if last else 0
    _set_epilogue(s, first, rows[0], b)
    if first:
        s[frames.MODE] = s[state.FIRST_MODES + stored]
        s[frames.BETA], s[frames.BETA + 1] = s[state.BETAS], s[state.BETAS + 1]
    else:
        s[frames.MODE] = s[state.LATER_MODES + stored]
        s[frames.BETA], s[frames.BETA + 1] = s[state.BETAS + 2], s[state.BETAS + 3]
    return first


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER, inner=True)
def _call_tiles(s, role, count, turns, loops, R, N, K, B):
    """Call the microkernel for a tile of each role, and for those alike that follow it.

    One call computes `count` tiles along a role; the next one does so for the next tile of the
    other role, `turns` times in all. Numbers of tiles are read here, from the words at `loops`: as
    arguments they were loaded by one vector instruction, right after one of them was stored alone,
    and such a load waits until all stores before it, those to C among them, are done.
    """
    r, n, k, b = s[loops], s[loops + _COLUMNS], s[loops + _SUMS], s[loops + _BATCHES]
    rows = R[R[table.BOUNDS] + r], R[R[table.BOUNDS] + r + 1]
    columns = N[N[table.BOUNDS] + n], N[N[table.BOUNDS] + n + 1]
    sums = K[K[table.BOUNDS] + k], K[K[table.BOUNDS] + k + 1]
    groups, stored = R[R[table.GROUPS] + r + 1] - R[R[table.GROUPS] + r], R[R[table.STORED] + r]
    high, wide = rows[1] - rows[0], columns[1] - columns[0]
    # How far a call's tiles, and turns, are apart.
    moves = high * (role == _ROWS), wide * (role == _COLUMNS)
    apart = high - moves[0], wide - moves[1]
    s[frames.MORE], s[frames.K] = count - 1, sums[1] - sums[0]
    s[frames.ROWS_C_MOVE] = WORD_BYTES * moves[0]
    s[frames.COLUMNS_C_MOVE] = WORD_BYTES * moves[1]
    a_turn, rows_a_turn, next_turn = _set_rows(s, role, count, turns, loops, rows, sums, R, K, B)
    b_turn, columns_b_turn = _set_columns(s, role, loops, columns, sums[0], N, K, B)
    turn_by = a_turn, rows_a_turn, next_turn, b_turn, columns_b_turn
    first = _set_output(s, stored, rows, columns, sums, b, R, N, B)
    staged = s[state.STAGES_OUTPUT] and first and stored != TileLayout.SCATTERED
    kind = state.PACKED
    if not s[state.PACKED_LEVEL + 1]:
        kind = state.MIXED if s[state.PACKED_LEVEL] else state.IN_PLACE
    elif not s[state.PACKED_LEVEL]:
        kind = state.IN_PLACE
    may_halve = not staged and (kind == state.PACKED or (kind == state.MIXED and groups > 1))
    if may_halve and 2 * (groups * s[state.GROUP] - high) >= s[state.GROUP]:
        kind = state.HALVED
    number = (kind * tuning.MAX_TILE_VECTORS + groups - 1) * tuning.MAX_TILE_COLUMNS + wide - 1
    kernel = s[state.KERNELS + number]
    s[state.LISTED_PER_STEP] = groups if s[state.LISTS_BY_VECTORS] else 1
    out, most, transposed = s[frames.C], 0, 0
    if stored == TileLayout.SCATTERED and s[state.LAY_OUT_TRANSPOSED]:
        transposed = 1 + (s[frames.MODE] == Mode.SCATTER_ADD)
        most = result(s[state.LAY_OUT_TRANSPOSED], s, role, count, columns[0], high, wide, N)
    elif staged:
        most = stage_tiles(s, role, count, turns, rows[0], columns[0], high, wide, R, N)
    if s[state.TRACE]:
        mode = Mode.STREAM if most and not transposed else s[frames.MODE]
        trace_calls(s, count, turns, rows, columns, sums, apart, b, mode, kind)
    s[state.CALLS] += count * turns
    if most:
        able = not transposed and (kind == state.PACKED or kind == state.MIXED)
        vectors = groups * wide if able else 0
        run_buffered(
            s,
            kernel,
            count,
            turns,
            most,
            transposed,
            vectors,
            out,
            (rows[0], columns[0]),
            (high, wide),
            moves,
            apart,
            turn_by,
            R,
            N,
        )
    else:
        run_turns(s, role, kernel, count, turns, apart, turn_by, loops, R, N)


@inlined
def _enter_segment(s, level, role, segment, X):
    """Set the loop of a role over what a segment of a level has to its beginning."""
    loop, at = state.LOOPS + state.LOOP_WORDS * level + role, X[table.BOUNDS + level] + segment
    s[loop] = s[loop + state.LOOP_BEGINS] = X[at]
    s[loop + state.LOOP_ENDS] = X[at + 1]


@compiled(INT, POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _walk_level(level, s, r, n, k, b, R, N, K, B):
    """Walk one segment of each role at a level: pack what lives there, then its loops."""
    if as_pointer(s[state.STOP])[0]:
        return
    pack, enqueue = s[state.PACK_SEGMENT], s[state.ENQUEUE_NEXT]
    if s[state.PACKED_LEVEL] == level and result(pack, s, _ROWS, r, k, b, R, K, B):
        invoke(enqueue, s, _ROWS, level, r, n, k, b, R, N, K, B)
    if s[state.PACKED_LEVEL + 1] == level and result(pack, s, _COLUMNS, n, k, b, N, K, B):
        invoke(enqueue, s, _COLUMNS, level, r, n, k, b, R, N, K, B)
    _enter_segment(s, level, _ROWS, r, R)
    _enter_segment(s, level, _COLUMNS, n, N)
    _enter_segment(s, level, _SUMS, k, K)
    _enter_segment(s, level, _BATCHES, b, B)
    loops, orders = state.LOOPS + state.LOOP_WORDS * level, state.ORDERS + 4 * level
    role, other = s[orders], s[orders + 1]  # 0 and 1 are rows and columns
    # The words of the loops, innermost first.
    loop0, loop1, loop2 = loops + role, loops + other, loops + s[orders + 2]
    loop3 = loops + s[orders + 3]
    begin0, begin1, begin2 = s[loop0], s[loop1], s[loop2]
    end0, end1 = s[loop0 + state.LOOP_ENDS], s[loop1 + state.LOOP_ENDS]
    end2, end3 = s[loop2 + state.LOOP_ENDS], s[loop3 + state.LOOP_ENDS]
    while s[loop3] < end3:
        s[loop2] = begin2
        while s[loop2] < end2:
            s[loop1] = begin1
            if level == 1:
                find_next_tiles(s, R, N, B)
            while s[loop1] < end1:
                if as_pointer(s[state.STOP])[0]:
                    return
                s[loop0] = begin0
                turns = 1
                while s[loop0] < end0:
                    count = 1
                    if level == 1:
                        if role == _ROWS:
                            count = min(R[R[table.ALIKE] + s[loop0]], end0 - s[loop0])
                        elif role == _COLUMNS:
                            count = min(N[N[table.ALIKE] + s[loop0]], end0 - s[loop0])
                        begins, all_alike = s[loop0] == begin0, count == end0 - begin0
                        if begins and (all_alike or count == 1) and role + other == 1:
                            X = R if other == _ROWS else N
                            turns = min(X[X[table.ALIKE] + s[loop1]], end1 - s[loop1])
                            turns = turns if all_alike else min(turns, tuning.TURNS_OF_SINGLE_TILES)
                        if turns > count == 1:  # turns of one tile are a run of the other role
                            _call_tiles(s, other, turns, 1, loops, R, N, K, B)
                        else:
                            _call_tiles(s, role, count, turns, loops, R, N, K, B)
                    else:
                        r, n, k, b = s[loops], s[loops + 1], s[loops + 2], s[loops + 3]
                        _walk_level(level - 1, s, r, n, k, b, R, N, K, B)
                    s[loop0] += count
                s[loop1] += turns
            s[loop2] += 1
        s[loop3] += 1
    if level == 1 and s[state.EPILOGUE]:
        hand_over_lines(s, 1, 0)
        invoke(s[state.EPILOGUE], s, r, n, k, b, R, N, K, B)


@inlined
def _share_epilogue(s, plain, adds):
    """Leave first steps of the epilogue to microkernels; return whether they add an operand.

    They cannot where the sums have a factor, nor add two arrays.
    """
    if s[state.KERNELS_BEGIN] and plain and not (adds and s[state.ADDS]):
        s[state.EPILOGUE_PROGRAM] = s[state.LATER_PROGRAM]
        if not s[state.LATER_PROGRAM]:
            s[state.EPILOGUE] = 0
    else:
        s[state.BEGINS_WITH] = s[state.ADDS] = s[state.BOUND_COUNT] = 0
    return s[state.ADDS] > 0


@compiled(INT, INT, INT, INT, INT, INT, INT, INT, REAL, REAL, REAL, REAL, returns=INT)
def run(words, out, first, second, memory, operands, trace, stop, alpha, alpha_i, beta, beta_i):
    """Compute a problem box by box and return how many calls of a microkernel that took.

    Arguments are plain numbers, which reach compiled code in a third of a microsecond together.

    Parameters
    ----------
    words
        Address of the fields of a call (`call_fields`). The state is copied, so that several
        threads can run from one.
    out, first, second
        Addresses of the output and the operands, which are arrays.
    memory
        Address of the workspace for both packed copies.
    operands
        Address of the addresses of the epilogue's operands.
    trace
        Address of the trace; 0 for none.
    stop
        Address of a word that ends the run once it is not 0; 0 for the state's.
    alpha, alpha_i, beta, beta_i
        The factors' real and imaginary parts.
    """
    call = as_pointer(words)
    rows, columns = (second, first) if call[call_fields.SWAPPED] else (first, second)
    here = on_stack(_STATE_WORDS)
    s, before = as_pointer(here), as_pointer(call[call_fields.STATE])
    for field in range(state.SIZE):
        s[field] = before[field]
    single = s[state.SINGLE]
    s[state.SELF], s[state.TRACE], s[state.BOXES] = here, trace, call[call_fields.BOXES]
    s[state.OPERANDS], s[state.STOP] = operands, stop or s[state.STOP]
    s[state.PREFETCH_LIST], s[state.STAGES_OUTPUT] = on_stack(_PREFETCH_WORDS), 0
    s[state.STAGING_BUFFER] = (on_stack(STAGING_WORDS) + LINE_BYTES - 1) & -LINE_BYTES
    as_pointer(s[state.PREFETCH_LIST])[0] = here
    as_pointer(s[state.STAGING_BUFFER] + LISTED_LINES)[0] = s[state.STAGED_HALF] = 0
    as_pointer(s[state.STAGING_BUFFER] + LISTED_PARTS)[0] = 0
    s[frames.ALPHA], s[frames.ALPHA + 1] = word(alpha, single), word(alpha_i, single)
    s[state.BETAS], s[state.BETAS + 1] = word(beta, single), word(beta_i, single)
    s[state.BETAS + 2], s[state.BETAS + 3] = word(1.0, single), word(0.0, single)
    adds = beta != 0 or beta_i != 0
    if _share_epilogue(s, alpha == 1 and alpha_i == 0, adds):
        adds = True
        s[state.BETAS] = s[state.BETAS + 2]
    if adds:
        s[state.NON_TEMPORAL_BYTES], s[state.WHOLE_MODE] = 0, Mode.ADD
        s[state.FIRST_MODES + TileLayout.SCATTERED] = Mode.SCATTER_ADD
        s[state.FIRST_MODES + TileLayout.PART] = Mode.PART_ADD
    s[state.BASES] += as_pointer(out + OBJECT_HEADER_BYTES)[0]
    s[state.BASES + 1] += as_pointer(rows + OBJECT_HEADER_BYTES)[0]
    s[state.BASES + 2] += as_pointer(columns + OBJECT_HEADER_BYTES)[0]
    for side in range(2):
        s[state.COPY + side] += memory
        s[state.WINDOW_COPY + side] += memory
    for number in range(call[call_fields.BOX_COUNT]):
        if as_pointer(s[state.STOP])[0]:
            break
        enter_box(s, s[state.BOXES] + WORD_BYTES * box_fields.SIZE * number, number)
        R, N = as_pointer(s[state.TABLES]), as_pointer(s[state.TABLES + 1])
        K, B = as_pointer(s[state.TABLES + 2]), as_pointer(s[state.TABLES + 3])
        invoke(s[state.WALK_LEVEL], s[state.TOP], s, 0, 0, 0, 0, R, N, K, B)
    hand_over_lines(s, 1, 0)
    if s[state.NON_TEMPORAL_BYTES]:
        store_fence()
    return s[state.CALLS]


@cache
def addresses() -> Integers:
    """Return the fields of a state from `PACK_SEGMENT` to `COPY_WINDOWS`."""
    functions = pack_segment, enqueue_next, _walk_level, tabulate_offsets
    return np.array(list(map(address, functions)))
