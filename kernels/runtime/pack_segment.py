"""Packing of segments: the part of an operand that a level holds, unless its copy has it already.

`s` is a state (`state`), `side` 0 for the rows' operand and 1 for the columns'. `X`, `K` and `B`
are the tables of rows or columns, of sums and of batches (`table_fields`), and `x`, `k` and `b`
segments of them. A group is what one micro-panel has: ``g0:g1`` and the k ``k0:k1`` are packed.
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.codegen import pack
from tilesolve.kernels.runtime import frames, state
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    as_pointer,
    compiled,
    inlined,
    invoke,
)
from tilesolve.kernels.runtime.prefetch_queue import find_indices, find_tiles
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import PANEL_GAP_BYTES, WORD_BYTES

_KINDS = len(pack.KINDS)


@compiled(POINTER, INT)
def tabulate_offsets(s, side):
    """Write where indices of packed groups lie: for kernels that read the other one in place."""
    group, step = s[state.GROUP + side], s[state.STEP_BYTES + side]
    panel = s[state.PANEL_BYTES + side]
    offsets = state.PACKED_OFFSETS + state.MAX_TILE_INDICES * side
    found = as_pointer(s[state.SELF] + WORD_BYTES * offsets)
    size, here, first = step // group, 0, 0
    while first < state.MAX_TILE_INDICES:
        for lane in range(min(group, state.MAX_TILE_INDICES - first)):
            found[first + lane] = here + lane * size
        here, first = here + panel, first + group


@compiled(POINTER, INT, INT, inner=True)
def _run_packer(s, side, kind):
    """Call the packing kernel of a kind for what is in its frame."""
    frame = s[state.SELF] + WORD_BYTES * state.PACKER_FRAME
    invoke(s[state.PACKERS + _KINDS * side + kind], frame)


@compiled(POINTER, INT, INT, INT, INT, INT, returns=INT, inner=True)
def _are_neighbours(X, blocks, group, step, at, before):
    """Return whether a block lies ``step`` bytes behind one before it for each one between."""
    first = X[table.GROUP_OFFSETS]
    apart = X[first + X[blocks + at * group]] - X[first + X[blocks + before * group]]
    return apart == step * (at - before)


@compiled(POINTER, INT, INT, INT, INT, INT, INT, returns=INT, inner=True)
def _end_part(X, blocks, group, step, low, most, high):
    """Return where to end a part of the blocks ``low:high``, about so many at most.

    A run of blocks that are neighbours in the source stays whole if it can: lines that are fetched
    beyond the part would be gone when the next part needs them. A run that hardware prefetchers
    follow is a part of its own, even one of twice as many blocks: lanes are often so far apart that
    the lines of two runs push each other out of their sets. See docs/decisions/052.
    """
    run = low + 1
    while run < high and _are_neighbours(X, blocks, group, step, run, low):
        run += 1
    if run - low >= tuning.HARDWARE_STREAM_BLOCKS:
        parts = (run - low - 1) // (2 * most) + 1
        return low + (run - low - 1) // parts + 1
    for stop in range(min(low + most, high - 1), low, -1):
        if not _are_neighbours(X, blocks, group, step, stop, stop - 1):
            return stop
    return min(low + most, high)


@compiled(POINTER, INT, INT, POINTER, INT, POINTER, INT, INT, INT, inner=True)
def _gather_group(s, side, origin, X, g, K, steps, low, high):
    """Pack one group element by element: the k in ``low:high`` of a list of them."""
    rows = X[table.OFFSETS + 1 + side] + X[X[table.GROUP_STARTS] + g]
    s[frames.PACK_TARGET] = origin + g * s[state.PANEL_BYTES + side]
    s[frames.PACK_ROWS] = s[state.TABLES + side] + WORD_BYTES * rows
    s[frames.PACK_STEPS] = s[state.TABLES + state.SUMS] + WORD_BYTES * steps
    s[frames.PACK_FIRST] = low
    s[frames.PACK_COUNT] = high - low
    s[frames.PACK_LANES] = X[X[table.GROUP_COUNTS] + g]
    _run_packer(s, side, state.KIND_GATHER)


@inlined
def _copy_groups(s, side, origin, g0, g1, k0, k1, X, K):
    """Pack groups that are contiguous in the source, and gather the others."""
    whole = X[table.GROUP_WHOLE]
    g = g0
    while g < g1:
        if X[whole + g]:
            end = g + 1
            while end < g1 and X[whole + end]:
                end += 1
            s[frames.PACK_TARGET] = origin + g * s[state.PANEL_BYTES + side]
            s[frames.PACK_ROWS] = s[state.TABLES + side] + WORD_BYTES * (X[table.GROUP_OFFSETS] + g)
            s[frames.PACK_GROUPS] = end - g
            s[frames.PACK_FIRST], s[frames.PACK_COUNT] = k0, k1 - k0
            _run_packer(s, side, state.KIND_COPY)
            g = end
        else:
            _gather_group(s, side, origin, X, g, K, K[table.COUNTING], k0, k1)
            g += 1


@inlined
def _transpose_sums(s, side, origin, k, g0, g1, X, K):
    """Pack groups whose k are contiguous in the source: blocks of k, then few of them, the rest."""
    group, panel = s[state.GROUP + side], s[state.PANEL_BYTES + side]
    at = table.BLOCKS + table.BLOCK_WORDS * side
    bounds, few_bounds = K[at + table.BLOCK_BOUNDS] + k, K[at + table.FEW_BOUNDS] + k
    rest_bounds = K[at + table.REST_BOUNDS] + k
    low, high = K[bounds], K[bounds + 1]
    few, few_end = K[few_bounds], K[few_bounds + 1]
    rest, rest_end = K[rest_bounds], K[rest_bounds + 1]
    sums = s[state.TABLES + state.SUMS]
    rows = s[state.TABLES + side] + WORD_BYTES * X[table.LANES]
    for g in range(g0, g1):
        s[frames.PACK_TARGET] = origin + g * panel
        s[frames.PACK_ROWS] = rows + WORD_BYTES * group * g
        s[frames.PACK_LATER] = rows + WORD_BYTES * group * min(g + 1, g1 - 1)
        if high > low:
            s[frames.PACK_STEPS] = sums + WORD_BYTES * K[at + table.BLOCK_ENTRIES]
            s[frames.PACK_FIRST], s[frames.PACK_COUNT] = low, high - low
            _run_packer(s, side, state.KIND_TRANSPOSE_SUMS)
        if few_end > few:
            s[frames.PACK_STEPS] = sums + WORD_BYTES * K[at + table.FEW_ENTRIES]
            s[frames.PACK_FIRST], s[frames.PACK_COUNT] = few, few_end - few
            _run_packer(s, side, state.KIND_FEW_SUMS)
        if rest_end > rest:
            _gather_group(s, side, origin, X, g, K, K[at + table.REST_ENTRIES], rest, rest_end)


@inlined
def _transpose_rows(s, side, origin, x, k0, k1, X, K):
    """Pack groups that are contiguous across: blocks of groups, then few of them, the rest."""
    group, panel = s[state.GROUP + side], s[state.PANEL_BYTES + side]
    at = table.BLOCKS + table.BLOCK_WORDS * side
    rows = s[state.TABLES + side]
    s[frames.PACK_TARGET] = origin
    s[frames.PACK_ROWS] = rows + WORD_BYTES * X[table.LANES]
    s[frames.PACK_FIRST], s[frames.PACK_COUNT] = k0, k1 - k0
    most = max(1, tuning.RESIDENT_PANEL_BYTES // (group * panel))
    for even in range(2):
        kind, bounds = state.KIND_TRANSPOSE_ROWS, X[at + table.BLOCK_BOUNDS] + x
        entries = X[at + table.BLOCK_ENTRIES]
        if even:
            kind, bounds = state.KIND_EVEN_ROWS, X[at + table.EVEN_BOUNDS] + x
            entries = X[at + table.EVEN_ENTRIES]
        low, high = X[bounds], X[bounds + 1]
        s[frames.PACK_STEPS] = rows + WORD_BYTES * entries
        while low < high:
            end = _end_part(X, entries, group, s[state.STEP_BYTES + side], low, most, high)
            s[frames.PACK_LANES], s[frames.PACK_GROUPS] = low, end - low
            _run_packer(s, side, kind)
            low = end
    few_bounds, rest_bounds = X[at + table.FEW_BOUNDS] + x, X[at + table.REST_BOUNDS] + x
    few, few_end = X[few_bounds], X[few_bounds + 1]
    if few_end > few:
        s[frames.PACK_STEPS] = rows + WORD_BYTES * X[at + table.FEW_ENTRIES]
        s[frames.PACK_LANES], s[frames.PACK_GROUPS] = few, few_end - few
        _run_packer(s, side, state.KIND_FEW_ROWS)
    for rest in range(X[rest_bounds], X[rest_bounds + 1]):
        g = X[X[at + table.REST_ENTRIES] + rest]
        _gather_group(s, side, origin, X, g, K, K[table.COUNTING], k0, k1)


@inlined
def _pack_batch(s, side, origin, x, k, g0, g1, k0, k1, X, K):
    """Pack one batch of a segment."""
    sums = K[table.OFFSETS + 1 + side]
    s[frames.PACK_SUMS] = s[state.TABLES + state.SUMS] + WORD_BYTES * sums
    kind = s[state.PACK_KIND + side]
    if kind == state.KIND_COPY:
        _copy_groups(s, side, origin, g0, g1, k0, k1, X, K)
    elif kind == state.KIND_TRANSPOSE_SUMS:
        _transpose_sums(s, side, origin, k, g0, g1, X, K)
    elif kind == state.KIND_TRANSPOSE_ROWS:
        _transpose_rows(s, side, origin, x, k0, k1, X, K)
    else:
        for g in range(g0, g1):
            _gather_group(s, side, origin, X, g, K, K[table.COUNTING], k0, k1)


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, returns=INT)
def pack_segment(s, side, x, k, b, X, K, B):
    """Pack one segment of an operand, unless the copy has it already; return whether it had not.

    Parameters
    ----------
    s
        The state.
    side
        0 for the rows' operand, 1 for the columns'.
    x, k, b
        Segments of rows or columns, of sums and of batches.
    X, K, B
        Their tables.
    """
    copied = state.COPIED_SEGMENTS + 3 * side
    if s[copied] == x and s[copied + 1] == k and s[copied + 2] == b:
        return 0
    s[copied], s[copied + 1], s[copied + 2] = x, k, b
    level = s[state.PACKED_LEVEL + side]
    first, end = find_tiles(X, level, x)
    k0, k1 = find_indices(K, level, k)
    b0, b1 = find_indices(B, level, b)
    g0, g1 = X[X[table.GROUPS] + first], X[X[table.GROUPS] + end]
    step = s[state.STEP_BYTES + side]
    panel = (k1 - k0) * step
    # Micro-panels that are an even number of lines apart would share few sets of a cache.
    panel += PANEL_GAP_BYTES * (panel % (2 * PANEL_GAP_BYTES) == 0)
    batch_bytes = (g1 - g0) * panel
    s[state.PANEL_BYTES + side], s[state.BATCH_BYTES + side] = panel, batch_bytes
    s[state.COPIED_GROUP + side], s[state.COPIED_SUM + side] = g0, k0
    s[state.COPIED_BATCH + side] = b0
    if not s[state.PACKED_LEVEL + 1 - side]:
        tabulate_offsets(s, side)
    s[frames.PACK_PANEL] = panel
    for batch in range(b0, b1):
        s[frames.PACK_SOURCE] = s[state.SOURCE + side] + B[B[table.OFFSETS + 1 + side] + batch]
        # Where micro-panel 0 and its first k of the whole table would be.
        origin = s[state.COPY + side] + (batch - b0) * batch_bytes - g0 * panel - k0 * step
        _pack_batch(s, side, origin, x, k, g0, g1, k0, k1, X, K)
    return 1
