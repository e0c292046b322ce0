"""Filling: packs the segment of an operand that a level holds, unless its copy has it already.

`s` is a state (`state`); `X`, `K` and `B` are tables of rows or columns, of sums
and of batches (`tilesolve.packing.offset_tables`).
"""

from __future__ import annotations

from tilesolve.kernels.codegen import pack
from tilesolve.kernels.runtime.compiled import INT, POINTER, compiled, invoke, pointer, renew
from tilesolve.kernels.runtime.prefetch_queue import extent, span
from tilesolve.kernels.runtime.state import WIDEST, S
from tilesolve.kernels.sources import LAYOUT
from tilesolve.packing import sizes
from tilesolve.packing.offset_tables import Blocks, Field

# numba takes plain integers for constants, not members of an enumeration.
_P = {name: S.PACKER + at for at, name in enumerate(pack.FIELDS)}
_P_SOURCE, _P_TARGET, _P_STRIP = _P["source"], _P["target"], _P["strip"]
_P_ROWS, _P_GROUPS, _P_SUMS = _P["rows"], _P["groups"], _P["sums"]
_P_STEPS, _P_FIRST, _P_COUNT, _P_LANES = _P["steps"], _P["first"], _P["count"], _P["lanes"]
_P_LATER = _P["later"]
_PACKER, _PACKERS, _WAYS = int(S.PACKER), int(S.PACKERS), len(pack.KINDS)
_LEVEL, _WAY, _SOURCE, _BUFFER = int(S.LEVEL), int(S.WAY), int(S.SOURCE), int(S.BUFFER)
_STEP, _STRIP, _GROUP, _HELD = int(S.STEP), int(S.STRIP), int(S.GROUP), int(S.HELD)
_ORIGIN, _BATCH, _PLANE = int(S.ORIGIN), int(S.BATCH), int(S.PLANE)
_PLACED_ROWS, _TABLES, _SELF = int(S.PLACED_ROWS), int(S.TABLES), int(S.SELF)
_BOUNDS, _OFFSETS, _PLACES = int(Field.BOUNDS), int(Field.OFFSETS), int(Field.PLACES)
_FIRSTS, _STARTS, _COUNTS = int(Field.FIRSTS), int(Field.STARTS), int(Field.COUNTS)
_WHOLE, _BLOCKS, _COUNTING = int(Field.WHOLE), int(Field.BLOCKS), int(Field.COUNTING)
_LANES, _SPACE = int(Field.LANES), sizes.PANEL_GAP_BYTES
_COPY, _TURN_SUMS, _TURN_ROWS, _GATHER, _FEW_SUMS, _FEW_ROWS, _EVEN_ROWS = range(_WAYS)
_TURNS, _ENTRIES, _BLOCK_BOUNDS = int(Blocks.SIZE), int(Blocks.ENTRIES), int(Blocks.BOUNDS)
_FEW, _FEW_BOUNDS = int(Blocks.FEW), int(Blocks.FEW_BOUNDS)
_REST, _REST_BOUNDS = int(Blocks.REST), int(Blocks.REST_BOUNDS)
_EVEN, _EVEN_BOUNDS = int(Blocks.EVEN), int(Blocks.EVEN_BOUNDS)

_NEAR = 1 << 18
"""Bytes of strips that are written again and again before others: they stay in a near cache."""

_LONG = 3
"""Blocks of a run from which on hardware follows it."""


@compiled(INT, INT, INT, INT, inner=True)
def _offsets(table, group, step, strip):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Write where the indices of packed groups lie: for kernels that read in place."""
    found = pointer(table)
    size = step // group
    for index in range(WIDEST):
        found[index] = index // group * strip + index % group * size


@compiled(POINTER, INT, INT, INT, INT, INT, returns=INT, inner=True)
def _follows(X, blocks, group, step, at, before):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return whether a block is the neighbour in the source of one before it, ``step`` bytes on."""
    first = X[_FIRSTS]
    apart = X[first + X[blocks + at * group]] - X[first + X[blocks + before * group]]
    return apart == step * (at - before)


@compiled(POINTER, INT, INT, INT, INT, INT, INT, returns=INT, inner=True)
def _stretch(X, blocks, group, step, low, most, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return where to end a part of the blocks ``low:high``, about so many at most.

    A run of blocks that are neighbours in the source stays whole if it can: lines that are fetched
    beyond the part would be gone when the next part needs them. One that is long enough for
    hardware to follow it is a part of its own, even one of twice as many blocks: lanes are often so
    far apart that the lines of two runs push each other out of their sets (measured on a Zen 4 in
    cycles a line, packed from a near cache, parts of one and of two runs: `abcde-efcad-bf` 8.3 and
    10.9; `abcde-ecbfa-fd` in float32 7.5 and 8.9. And a run of 8 in parts of 7 and 1, of 4 and 4,
    whole: `abcde-efcad-bf` in float32 12.3, 11.7 and 10.2).
    """
    run = low + 1
    while run < high and _follows(X, blocks, group, step, run, low):
        run += 1
    if run - low >= _LONG:
        parts = (run - low - 1) // (2 * most) + 1
        return low + (run - low - 1) // parts + 1
    for stop in range(min(low + most, high - 1), low, -1):
        if not _follows(X, blocks, group, step, stop, stop - 1):
            return stop
    return min(low + most, high)


@compiled(POINTER, INT, INT, POINTER, INT, POINTER, INT, INT, INT, inner=True)
def _gather(s, side, origin, X, g, K, steps, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Pack one group element by element: the k in ``low:high`` of a table of them."""
    s[_P_TARGET] = origin + g * s[_STRIP + side]
    s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_OFFSETS + 1 + side] + X[X[_STARTS] + g])
    s[_P_STEPS] = s[_TABLES + 2] + 8 * steps
    s[_P_FIRST] = low
    s[_P_COUNT] = high - low
    s[_P_LANES] = X[X[_COUNTS] + g]
    invoke(s[_PACKERS + _WAYS * side + _GATHER], s[_SELF] + 8 * _PACKER)


@compiled(POINTER, INT, INT, INT, INT, INT, INT, INT, INT, POINTER, POINTER, inner=True)
def _fill(s, side, origin, x, k, g0, g1, k0, k1, X, K):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Pack one batch of a segment: groups ``g0:g1``, k ``k0:k1``."""
    group, strip = s[_GROUP + side], s[_STRIP + side]
    s[_P_SUMS] = s[_TABLES + 2] + 8 * K[_OFFSETS + 1 + side]
    frame = s[_SELF] + 8 * _PACKER
    way = s[_WAY + side]
    whole, everything = X[_WHOLE], K[_COUNTING]
    if way == _COPY:
        g = g0
        while g < g1:
            if X[whole + g]:
                end = g + 1
                while end < g1 and X[whole + end]:
                    end += 1
                s[_P_TARGET] = origin + g * strip
                s[_P_ROWS] = s[_TABLES + side] + 8 * (X[_FIRSTS] + g)
                s[_P_GROUPS] = end - g
                s[_P_FIRST], s[_P_COUNT] = k0, k1 - k0
                invoke(s[_PACKERS + _WAYS * side + _COPY], frame)
                g = end
            else:
                _gather(s, side, origin, X, g, K, everything, k0, k1)
                g += 1
    elif way == _TURN_SUMS:
        table = _BLOCKS + _TURNS * side
        low, high = K[K[table + _BLOCK_BOUNDS] + k], K[K[table + _BLOCK_BOUNDS] + k + 1]
        few, few_end = K[K[table + _FEW_BOUNDS] + k], K[K[table + _FEW_BOUNDS] + k + 1]
        rest, rest_end = K[K[table + _REST_BOUNDS] + k], K[K[table + _REST_BOUNDS] + k + 1]
        for g in range(g0, g1):
            s[_P_TARGET] = origin + g * strip
            rows = s[_TABLES + side] + 8 * X[_LANES]
            s[_P_ROWS] = rows + 8 * group * g
            s[_P_LATER] = rows + 8 * group * min(g + 1, g1 - 1)
            s[_P_STEPS] = s[_TABLES + 2] + 8 * K[table + _ENTRIES]
            s[_P_FIRST], s[_P_COUNT] = low, high - low
            if high > low:
                invoke(s[_PACKERS + _WAYS * side + _TURN_SUMS], frame)
            if few_end > few:
                s[_P_STEPS] = s[_TABLES + 2] + 8 * K[table + _FEW]
                s[_P_FIRST], s[_P_COUNT] = few, few_end - few
                invoke(s[_PACKERS + _WAYS * side + _FEW_SUMS], frame)
            if rest_end > rest:
                _gather(s, side, origin, X, g, K, K[table + _REST], rest, rest_end)
    elif way == _TURN_ROWS:
        table = _BLOCKS + _TURNS * side
        s[_P_TARGET] = origin
        s[_P_ROWS] = s[_TABLES + side] + 8 * X[_LANES]
        s[_P_FIRST], s[_P_COUNT] = k0, k1 - k0
        most = max(1, _NEAR // (group * strip))
        for even in range(2):
            kernel, bounds, entries = _TURN_ROWS, X[table + _BLOCK_BOUNDS], X[table + _ENTRIES]
            if even:
                kernel, bounds, entries = _EVEN_ROWS, X[table + _EVEN_BOUNDS], X[table + _EVEN]
            low, high = X[bounds + x], X[bounds + x + 1]
            s[_P_STEPS] = s[_TABLES + side] + 8 * entries
            while low < high:
                end = _stretch(X, entries, group, s[_STEP + side], low, most, high)
                s[_P_LANES], s[_P_GROUPS] = low, end - low
                invoke(s[_PACKERS + _WAYS * side + kernel], frame)
                low = end
        few, few_end = X[X[table + _FEW_BOUNDS] + x], X[X[table + _FEW_BOUNDS] + x + 1]
        if few_end > few:
            s[_P_STEPS] = s[_TABLES + side] + 8 * X[table + _FEW]
            s[_P_LANES], s[_P_GROUPS] = few, few_end - few
            invoke(s[_PACKERS + _WAYS * side + _FEW_ROWS], frame)
        rest = table + _REST_BOUNDS
        for at in range(X[X[rest] + x], X[X[rest] + x + 1]):
            _gather(s, side, origin, X, X[X[table + _REST] + at], K, everything, k0, k1)
    else:
        for g in range(g0, g1):
            _gather(s, side, origin, X, g, K, everything, k0, k1)


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, returns=INT)
def pack_segment(s, side, x, k, b, X, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Pack one segment of an operand, unless the copy holds it already; return whether it did not.

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

    Examples
    --------
    It is called by the macrokernel:

    >>> pack_segment.nopython_signatures[0].return_type
    int64
    """
    held = _HELD + 3 * side
    if s[held] == x and s[held + 1] == k and s[held + 2] == b:
        return 0
    s[held], s[held + 1], s[held + 2] = x, k, b
    level = s[_LEVEL + side]
    first, last = span(X, level, x)
    k0, k1 = extent(K, level, k)
    b0, b1 = extent(B, level, b)
    g0, g1 = X[X[_PLACES] + first], X[X[_PLACES] + last]
    step = s[_STEP + side]
    strip = (k1 - k0) * step
    # Strips that are an even number of lines apart would share few sets of a cache.
    strip += _SPACE * (strip % (2 * _SPACE) == 0)
    s[_STRIP + side] = strip
    s[_ORIGIN + 2 * side], s[_ORIGIN + 2 * side + 1] = g0, k0
    plane = (g1 - g0) * strip
    s[_BATCH + side], s[_PLANE + side] = b0, plane
    if not s[_LEVEL + 1 - side]:  # the other operand is read in place, by kernels that need these
        _offsets(s[_SELF] + 8 * (_PLACED_ROWS + WIDEST * side), s[_GROUP + side], step, strip)
    s[_P_STRIP] = strip
    for batch in range(b0, b1):
        s[_P_SOURCE] = s[_SOURCE + side] + B[B[_OFFSETS + 1 + side] + batch]
        # Where strip 0 and its first k of the whole table would be.
        origin = s[_BUFFER + side] + (batch - b0) * plane - g0 * strip - k0 * step
        _fill(s, side, origin, x, k, g0, g1, k0, k1, X, K)
    return 1


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
