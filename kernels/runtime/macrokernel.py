"""The macrokernel: walks a nest, packs what is new, and calls a microkernel for each tile.

It is compiled once. Everything that a plan decides reaches it as data: a state, a step for each
box, and a table per role. `R`, `N`, `K` and `B` are the tables of rows, columns, sums and batches.
Where its large functions are is data, too; what is called for every few tiles alone is linked in.
"""

from __future__ import annotations

import numpy as np

from tilesolve.kernels import tuning
from tilesolve.kernels.codegen import shape
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import prefetch_queue, state
from tilesolve.kernels.runtime.array_guard import Call
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    address,
    compiled,
    invoke,
    on_stack,
    pointer,
    renew,
    result,
    store_fence,
    word,
)
from tilesolve.kernels.runtime.pack_segment import pack_segment
from tilesolve.kernels.runtime.prefetch_queue import ask, expect
from tilesolve.kernels.runtime.state import TRACE, WIDEST, Past, S, Step
from tilesolve.kernels.runtime.stream_buffer import WORDS, arrange, leave
from tilesolve.kernels.sources import LAYOUT
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES
from tilesolve.packing.offset_tables import Field, TileLayout

# numba takes plain integers for constants, not members of an enumeration.
_F = {name: S.FRAME + at for at, name in enumerate(shape.FIELDS)}
_A, _B, _K = _F["a"], _F["b"], _F["k"]
_A_STEP, _B_STEP = _F["a_step"], _F["b_step"]
_ROWS_A, _COLUMNS_B = _F["rows_a"], _F["columns_b"]
_SUMS_A, _SUMS_B = _F["sums_a"], _F["sums_b"]
_NEXT_A, _MET, _MEETING = _F["next_a"], int(S.MET), int(S.MEETING)
_A_AHEAD, _B_AHEAD = _F["a_ahead"], _F["b_ahead"]
_MORE, _A_MOVE, _B_MOVE = _F["more"], _F["a_move"], _F["b_move"]
_ROWS_A_MOVE, _COLUMNS_B_MOVE = _F["rows_a_move"], _F["columns_b_move"]
_ROWS_C_MOVE, _COLUMNS_C_MOVE = _F["rows_c_move"], _F["columns_c_move"]
_NEXT_STEP, _NEXT_A_MOVE = _F["next_step"], _F["next_a_move"]
_C, _ROWS_C, _COLUMNS_C = _F["c"], _F["rows_c"], _F["columns_c"]
_COUNT, _MODE, _BETA = _F["rows"], _F["mode"], _F["beta"]
_TOP, _ORDERS, _SCRATCH = int(S.TOP), int(S.ORDERS), int(S.SCRATCH)
_LEVEL, _SOURCE, _BUFFER, _STEP = int(S.LEVEL), int(S.SOURCE), int(S.BUFFER), int(S.STEP)
_STRIP, _HELD, _ORIGIN, _BATCH = int(S.STRIP), int(S.HELD), int(S.ORIGIN), int(S.BATCH)
_PLANE, _PLACED_ROWS, _PLACED_SUMS = int(S.PLANE), int(S.PLACED_ROWS), int(S.PLACED_SUMS)
_OUTPUT, _FIRST, _TABLES, _CELLS = int(S.OUTPUT), int(S.FIRST), int(S.TABLES), int(S.CELLS)
_WRITE, _LATER, _BETAS = int(S.WRITE), int(S.LATER), int(S.BETA)
_STREAMING, _STORE, _BASES = int(S.STREAMING), int(S.STORE), int(S.BASES)
_FAR = int(S.FAR)
_TRACING, _CALLS, _BOX, _SELF = int(S.TRACING), int(S.CALLS), int(S.BOX), int(S.SELF)
_KERNELS, _MOST_VECTORS, _MOST_COLUMNS = (
    int(S.KERNELS),
    tuning.MAX_TILE_VECTORS,
    tuning.MAX_TILE_COLUMNS,
)
_GROUP, _PACKED, _PLACED, _HALVED = int(S.GROUP), state.PACKED, state.PLACED, state.HALVED
_BOUNDS, _OFFSETS = int(Field.BOUNDS), int(Field.OFFSETS)
_PLACES, _STORED, _RUNS = int(Field.PLACES), int(Field.STORED), int(Field.RUNS)
_STEP_TABLES, _STEP_CELLS, _STEP_FIRST = int(Step.TABLES), int(Step.CELLS), int(Step.FIRST)
_STEP_ALIGNED, _STEP_LONG = int(Step.ALIGNED), int(Step.LONG)
_STEP_FRESH, _STEP_SIZE = int(Step.FRESH), int(Step.SIZE)
_STREAM, _ADD = int(Mode.STREAM), int(Mode.ADD)
_PART_ADD, _SCATTER_ADD = int(Mode.PART_ADD), int(Mode.SCATTER_ADD)
_SCATTERED, _PART, _WHOLE = int(TileLayout.SCATTERED), int(TileLayout.PART), int(TileLayout.WHOLE)
_ROOM, _STEPS, _ROOM_SIZE = int(S.ROOM), int(S.STEPS), 1 + prefetch_queue.MOST
_STOP = int(S.STOP)
_PACK, _EXPECT, _DESCEND = int(S.PACK), int(S.EXPECT), int(S.DESCEND)
_PAST, _PAST_ROOM = S.PAST + Past.WANTED, S.PAST + Past.ROOM
_STATE, _CALL_STEPS = int(Call.STATE), int(Call.STEPS)
_BOXES, _TURNED = int(Call.BOXES), int(Call.TURNED)
_FRAME, _ALPHA, _SINGLE, _SIZE = int(S.FRAME), _F["alpha"], int(S.SINGLE), int(S.SIZE)


@compiled(POINTER, INT, INT, INT, INT, INT, POINTER, returns=INT, inner=True)
def _follow(s, role, count, turns, steps, w, R):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Have a call's tiles ask for their share of the rows that are met next, if these are far.

    While a cell's or a segment's rows meet its columns, what follows them in the copy comes nearer,
    as much with each tile: all at once it would keep what the tiles themselves load waiting. Of
    strips with more sums than the cells have, only a part of what is met next is asked for.
    Return how much further the next turn asks.
    """
    places = R[_PLACES]
    begin, end = s[w], s[w] + 1
    if role == 0:  # all rows of the segment meet each of its columns
        begin, end = s[w + 8], s[w + 4]
    tiles = (end - begin) * (s[w + 5] - s[w + 9])
    first, last = R[places + begin], R[places + end]
    here, length = s[_A] - (R[places + s[w]] - first) * s[_STRIP], (last - first) * s[_STRIP]
    met = s[_MET] if s[_MEETING] == here else 0
    if role == 0:
        s[_MEETING], s[_MET] = here, met + count * turns
    else:
        s[_MEETING], s[_MET] = here + (turns - 1) * length, met + count
    # Near rows need not be asked for: what a tile has itself stands for them.
    s[_NEXT_A], s[_NEXT_STEP], s[_NEXT_A_MOVE] = s[_A], 0, s[_A_MOVE]
    turn = 0 if role == 0 else length
    if s[_FAR] and met < tiles and length < s[_PLANE]:
        following = here + length
        if (last - s[_ORIGIN]) * s[_STRIP] >= s[_PLANE]:
            following -= s[_PLANE]
        s[_NEXT_STEP] = min(s[_STEP], ((last - first) * s[_STEP] - 1) // tiles + 1)
        s[_NEXT_A_MOVE] = s[_NEXT_STEP] * steps
        s[_NEXT_A] = following + met * s[_NEXT_A_MOVE]
        if role == 0:
            turn = count * s[_NEXT_A_MOVE]
    return turn


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER, inner=True)
def _tiles(s, role, count, turns, w, R, N, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Call the microkernel for a cell of each role, and for those alike that follow it.

    One call computes `count` cells along a role; the next one does so for the next cell of the
    other role, `turns` times in all. Numbers of cells are read here, from the words at `w`: as
    arguments they were loaded by one vector instruction, right after one of them was stored alone,
    and such a load waits until all stores before it, those to C among them, are done.
    """
    r, n, k, b = s[w], s[w + 1], s[w + 2], s[w + 3]
    r0, r1 = R[R[_BOUNDS] + r], R[R[_BOUNDS] + r + 1]
    n0, n1 = N[N[_BOUNDS] + n], N[N[_BOUNDS] + n + 1]
    k0, k1 = K[K[_BOUNDS] + k], K[K[_BOUNDS] + k + 1]
    place, beside = R[R[_PLACES] + r], N[N[_PLACES] + n]
    groups = R[R[_PLACES] + r + 1] - place
    kind = _PACKED
    # How far the cells of a run are apart: in indices, and in groups of packed strips.
    rows, columns = (r1 - r0) * (role == 0), (n1 - n0) * (role == 1)
    down, across = (r1 - r0) - rows, (n1 - n0) - columns
    a_turn = b_turn = next_turn = rows_a_turn = columns_b_turn = 0
    s[_MORE] = count - 1
    s[_A_MOVE] = s[_ROWS_A_MOVE] = s[_B_MOVE] = s[_COLUMNS_B_MOVE] = 0
    s[_ROWS_C_MOVE], s[_COLUMNS_C_MOVE] = 8 * rows, 8 * columns
    if s[_LEVEL]:
        s[_A] = (
            s[_BUFFER]
            + (place - s[_ORIGIN]) * s[_STRIP]
            + (k0 - s[_ORIGIN + 1]) * s[_STEP]
            + (b - s[_BATCH]) * s[_PLANE]
        )
        a_turn = groups * s[_STRIP]
        if role == 0:
            s[_A_MOVE], a_turn = a_turn, 0
        next_turn = _follow(s, role, count, turns, k1 - k0, w, R)
    else:
        kind = _PLACED
    if s[_LEVEL + 1]:
        s[_B] = (
            s[_BUFFER + 1]
            + (beside - s[_ORIGIN + 2]) * s[_STRIP + 1]
            + (k0 - s[_ORIGIN + 3]) * s[_STEP + 1]
            + (b - s[_BATCH + 1]) * s[_PLANE + 1]
        )
        b_turn = (N[N[_PLACES] + n + 1] - beside) * s[_STRIP + 1]
        if role == 1:
            s[_B_MOVE], b_turn = b_turn, 0
    else:
        kind = _PLACED
    if kind == _PLACED:
        if s[_LEVEL]:
            s[_ROWS_A] = s[_SELF] + 8 * _PLACED_ROWS
            s[_SUMS_A] = s[_PLACED_SUMS]
            s[_A_AHEAD] = 0
        else:
            at = R[_OFFSETS + 1]
            s[_A] = s[_SOURCE] + B[B[_OFFSETS + 1] + b]
            s[_ROWS_A] = s[_TABLES] + 8 * (at + r0)
            s[_ROWS_A_MOVE], rows_a_turn = 8 * rows, 8 * down
            s[_SUMS_A] = s[_TABLES + 2] + 8 * (K[_OFFSETS + 1] + k0)
            more = r + 1 < s[_CELLS]
            s[_A_AHEAD] = R[at + r1] - R[at + r0] if more else 0
        if s[_LEVEL + 1]:
            s[_COLUMNS_B] = s[_SELF] + 8 * (_PLACED_ROWS + WIDEST)
            s[_SUMS_B] = s[_PLACED_SUMS + 1]
            s[_B_AHEAD] = 0
        else:
            at = N[_OFFSETS + 2]
            s[_B] = s[_SOURCE + 1] + B[B[_OFFSETS + 2] + b]
            s[_COLUMNS_B] = s[_TABLES + 1] + 8 * (at + n0)
            s[_COLUMNS_B_MOVE], columns_b_turn = 8 * columns, 8 * across
            s[_SUMS_B] = s[_TABLES + 2] + 8 * (K[_OFFSETS + 2] + k0)
            more = n + 1 < s[_CELLS + 1]
            s[_B_AHEAD] = N[at + n1] - N[at + n0] if more else 0
    else:
        s[_A_STEP] = s[_STRIP]
        s[_B_STEP] = s[_STRIP + 1]
    s[_K] = k1 - k0
    s[_C] = out = s[_OUTPUT] + B[B[_OFFSETS] + b]
    s[_ROWS_C] = s[_TABLES] + 8 * (R[_OFFSETS] + r0)
    s[_COLUMNS_C] = s[_TABLES + 1] + 8 * (N[_OFFSETS] + n0)
    s[_COUNT] = r1 - r0
    stored = R[R[_STORED] + r]
    first = k0 == 0 and s[_FIRST]
    if first:
        s[_MODE] = s[_WRITE + stored]
        s[_BETA], s[_BETA + 1] = s[_BETAS], s[_BETAS + 1]
    else:
        s[_MODE] = s[_LATER + stored]
        s[_BETA], s[_BETA + 1] = s[_BETAS + 2], s[_BETAS + 3]
    if kind == _PACKED and 2 * (groups * s[_GROUP] - (r1 - r0)) >= s[_GROUP]:
        kind = _HALVED
    number = (kind * _MOST_VECTORS + groups - 1) * _MOST_COLUMNS + n1 - n0 - 1
    kernel, frame = s[_KERNELS + number], s[_SELF] + 8 * _FRAME
    gathered = 0
    if s[_PAST] and first and stored != _SCATTERED:
        gathered = arrange(s, role, count, turns, r0, n0, r1 - r0, n1 - n0, R, N)
    if s[_TRACING]:
        for call in range(count * turns):
            turn, cell = call // count, call % count
            trace = pointer(s[_TRACING] + 8 * TRACE * (s[_CALLS] + call))
            trace[0], trace[1] = r0 + cell * rows + turn * down, r1 - r0
            trace[2], trace[3] = n0 + cell * columns + turn * across, n1 - n0
            trace[4], trace[5] = k0, k1 - k0
            trace[6], trace[7] = b, _STREAM if gathered else s[_MODE]
            trace[8], trace[9] = kind, s[_BOX]
    s[_CALLS] += count * turns
    a, rows_a, rows_c, next_a = s[_A], s[_ROWS_A], s[_ROWS_C], s[_NEXT_A]
    beginning, columns_b, columns_c = s[_B], s[_COLUMNS_B], s[_COLUMNS_C]
    if not gathered:  # a loop of its own: the other one writes more fields for each call
        ask(s, count)
        invoke(kernel, frame)
        for turn in range(1, turns):
            s[_A], s[_B] = a + turn * a_turn, beginning + turn * b_turn
            s[_ROWS_A] = rows_a + turn * rows_a_turn
            s[_COLUMNS_B] = columns_b + turn * columns_b_turn
            s[_ROWS_C], s[_COLUMNS_C] = rows_c + 8 * turn * down, columns_c + 8 * turn * across
            s[_NEXT_A] = next_a + turn * next_turn
            ask(s, count)
            invoke(kernel, frame)
        return
    for turn in range(turns):
        for cell in range(0, count, gathered):
            now = min(gathered, count - cell)
            s[_MORE] = now - 1
            s[_A] = a + turn * a_turn + cell * s[_A_MOVE]
            s[_B] = beginning + turn * b_turn + cell * s[_B_MOVE]
            s[_ROWS_A] = rows_a + turn * rows_a_turn + cell * s[_ROWS_A_MOVE]
            s[_COLUMNS_B] = columns_b + turn * columns_b_turn + cell * s[_COLUMNS_B_MOVE]
            s[_NEXT_A] = next_a + turn * next_turn + cell * s[_NEXT_A_MOVE]
            ask(s, now)
            invoke(kernel, frame)
            high, wide = (r1 - r0) + (now - 1) * rows, (n1 - n0) + (now - 1) * columns
            r, n = r0 + turn * down + cell * rows, n0 + turn * across + cell * columns
            leave(s, out, r, n, high, wide, R, N)


@compiled(INT, POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def _descend(level, s, r, n, k, b, R, N, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Walk one segment of each role at a level: pack what lives there, then its loops."""
    if pointer(s[_STOP])[0]:
        return
    if s[_LEVEL] == level and result(s[_PACK], s, 0, r, k, b, R, K, B):
        invoke(s[_EXPECT], s, 0, level, r, n, k, b, R, N, K, B)
    if s[_LEVEL + 1] == level and result(s[_PACK], s, 1, n, k, b, N, K, B):
        invoke(s[_EXPECT], s, 1, level, r, n, k, b, R, N, K, B)
    w = _SCRATCH + 12 * level
    at = R[_BOUNDS + level] + r
    s[w], s[w + 4] = R[at], R[at + 1]
    at = N[_BOUNDS + level] + n
    s[w + 1], s[w + 5] = N[at], N[at + 1]
    at = K[_BOUNDS + level] + k
    s[w + 2], s[w + 6] = K[at], K[at + 1]
    at = B[_BOUNDS + level] + b
    s[w + 3], s[w + 7] = B[at], B[at + 1]
    o = _ORDERS + 4 * level
    o0, o1, o2, o3 = w + s[o], w + s[o + 1], w + s[o + 2], w + s[o + 3]
    role, other = s[o], s[o + 1]
    begin0, begin1, begin2 = s[o0], s[o1], s[o2]
    s[w + 8], s[w + 9], s[w + 10], s[w + 11] = s[w], s[w + 1], s[w + 2], s[w + 3]
    end0, end1, end2, end3 = s[o0 + 4], s[o1 + 4], s[o2 + 4], s[o3 + 4]
    while s[o3] < end3:
        s[o2] = begin2
        while s[o2] < end2:
            s[o1] = begin1
            while s[o1] < end1:
                s[o0] = begin0
                turns = 1
                while s[o0] < end0:
                    count = 1
                    if level == 1:
                        if role == 0:
                            count = min(R[R[_RUNS] + s[o0]], end0 - s[o0])
                        elif role == 1:
                            count = min(N[N[_RUNS] + s[o0]], end0 - s[o0])
                        if count == end0 - begin0 and role + other == 1:
                            X = R if other == 0 else N
                            turns = min(X[X[_RUNS] + s[o1]], end1 - s[o1])
                        if turns > count == 1:  # turns of one cell are a run of the other role
                            _tiles(s, other, turns, 1, w, R, N, K, B)
                        else:
                            _tiles(s, role, count, turns, w, R, N, K, B)
                    else:
                        _descend(level - 1, s, s[w], s[w + 1], s[w + 2], s[w + 3], R, N, K, B)
                    s[o0] += count
                s[o1] += turns
            s[o2] += 1
        s[o3] += 1


@compiled(INT, INT, INT, INT, INT, INT, REAL, REAL, REAL, REAL, returns=INT)
def run(words, out, first, second, memory, trace, alpha, alpha_i, beta, beta_i):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compute a problem box by box and return how many calls of a microkernel that took.

    Arguments are plain numbers, which reach compiled code in a third of a microsecond together.

    Parameters
    ----------
    words
        Address of the fields of `guards.Call`. The state is copied, so that several threads can run
        from one.
    out, first, second
        Addresses of the output and the operands, which are arrays.
    memory
        Address of room for both packed copies.
    trace
        Address of the trace; 0 for none.
    alpha, alpha_i, beta, beta_i
        The factors' real and imaginary parts.

    Examples
    --------
    It is called with what `tilesolve.running.task` makes:

    >>> run.nopython_signatures[0].return_type
    int64
    """
    call = pointer(words)
    steps, rows, columns = call[_CALL_STEPS], first, second
    if call[_TURNED]:
        rows, columns = second, first
    here = on_stack(_SIZE)
    s, before = pointer(here), pointer(call[_STATE])
    for field in range(_SIZE):
        s[field] = before[field]
    single = s[_SINGLE]
    s[_SELF], s[_TRACING], s[_STEPS] = here, trace, steps
    s[_ROOM] = on_stack(_ROOM_SIZE)
    s[_PAST], s[_PAST_ROOM] = 0, (on_stack(WORDS) + 63) & -64
    pointer(s[_ROOM])[0] = here
    s[_ALPHA], s[_ALPHA + 1] = word(alpha, single), word(alpha_i, single)
    s[_BETAS], s[_BETAS + 1] = word(beta, single), word(beta_i, single)
    s[_BETAS + 2], s[_BETAS + 3] = word(1.0, single), word(0.0, single)
    if beta != 0 or beta_i != 0:
        s[_STREAMING], s[_STORE] = 0, _ADD
        s[_WRITE + _SCATTERED], s[_WRITE + _PART] = _SCATTER_ADD, _PART_ADD
    s[_BASES] += pointer(out + OBJECT_HEADER_BYTES)[0]
    s[_BASES + 1] += pointer(rows + OBJECT_HEADER_BYTES)[0]
    s[_BASES + 2] += pointer(columns + OBJECT_HEADER_BYTES)[0]
    s[_BUFFER] += memory
    s[_BUFFER + 1] += memory
    for box in range(call[_BOXES]):
        step = pointer(steps + 8 * _STEP_SIZE * box)
        s[_BOX] = box
        s[_OUTPUT] = s[_BASES] + step[0]
        for side in range(2):
            s[_SOURCE + side] = s[_BASES + 1 + side] + step[1 + side]
            s[_CELLS + side] = step[_STEP_CELLS + side]
            if step[_STEP_FRESH + side]:
                s[_HELD + 3 * side] = -1
        for role in range(4):
            s[_TABLES + role] = step[_STEP_TABLES + role]
        s[_FIRST] = step[_STEP_FIRST]
        width = s[_STREAMING]
        streams = width > 0 and step[_STEP_ALIGNED] and s[_OUTPUT] % max(width, 1) == 0
        s[_WRITE + _WHOLE] = _STREAM if streams else s[_STORE]
        s[_PAST] = width > 0 and not streams and step[_STEP_LONG]
        R, N = pointer(s[_TABLES]), pointer(s[_TABLES + 1])
        K, B = pointer(s[_TABLES + 2]), pointer(s[_TABLES + 3])
        invoke(s[_DESCEND], s[_TOP], s, 0, 0, 0, 0, R, N, K, B)
    if s[_STREAMING]:
        store_fence()
    return s[_CALLS]


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())

PLACES = np.array([address(function) for function in (pack_segment, expect, _descend)])
"""The fields of `state.S` from `PACK` to `KERNELS`."""
