"""Fetching ahead: what will be packed next is brought nearer while microkernels compute.

Packing alone waits for memory: its lines are many short runs, which hardware does not follow. So
the lines of an operand's next segment are spread over the tiles that are computed before it is
packed; each microkernel asks for some (`shape.FIELDS`, ``fetch``), and packing finds them in a
cache. `s` is a state (`state`); `R`, `N`, `K` and `B` are the roles' tables.
"""

from __future__ import annotations

from tilesolve.kernels.codegen import pack, shape
from tilesolve.kernels.runtime.compiled import INT, PAIR, POINTER, compiled, pointer, renew
from tilesolve.kernels.runtime.state import Ahead, S, Step
from tilesolve.kernels.sources import LAYOUT
from tilesolve.packing.offset_tables import Blocks, Field

# numba takes plain integers for constants, not members of an enumeration.
_COPY, _TURN_SUMS, _TURN_ROWS, _GATHER, *_ = range(len(pack.KINDS))
_F = {name: S.FRAME + at for at, name in enumerate(shape.FIELDS)}
_FETCH, _FETCH_MOVE, _FETCHES = _F["fetch"], _F["fetch_move"], _F["fetches"]
_STEPS_OF_K = _F["k"]
_TOP, _ORDERS, _SCRATCH = int(S.TOP), int(S.ORDERS), int(S.SCRATCH)
_WAY, _AHEAD, _BASES = int(S.WAY), int(S.AHEAD), int(S.BASES)
_SOURCES, _TABLES, _BOX, _SELF = int(S.SOURCE), int(S.TABLES), int(S.BOX), int(S.SELF)
_STEPS, _ROOM, _FORESEEN = int(S.STEPS), int(S.ROOM), int(S.FORESEEN)
_OUTER, _END, _INNER, _INNERS = (
    int(Ahead.OUTER),
    int(Ahead.END),
    int(Ahead.INNER),
    int(Ahead.INNERS),
)
_AT, _SOURCE, _SHARE, _SIZE = int(Ahead.AT), int(Ahead.SOURCE), int(Ahead.SHARE), int(Ahead.SIZE)
_BOUNDS, _OFFSETS, _PLACES = int(Field.BOUNDS), int(Field.OFFSETS), int(Field.PLACES)
_FIRSTS, _BLOCKS, _TURNS = int(Field.FIRSTS), int(Field.BLOCKS), int(Blocks.SIZE)
_LINES, _LINE_BOUNDS = int(Blocks.LINES), int(Blocks.LINE_BOUNDS)
_STEP_TABLES, _STEP_NEXT, _STEP_SIZE = int(Step.TABLES), int(Step.NEXT), int(Step.SIZE)

MOST = 8192
"""Addresses that one call of a microkernel is given at most."""

LEAST = 8
"""Lines that each tile asks for, if so many are left: to list a few takes as long as to list one
(measured on a Zen 4, without and with: `abcdef-degb-gfac` takes 33.9 and 33.4 ms,
`abcdef-dega-gfbc` in float32 16.5 and 16.2)."""

_MOST, _LEAST = MOST, LEAST


@compiled(POINTER, INT, INT, returns=PAIR, inner=True)
def span(table, level, segment):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the range of cells of a segment of a level.

    Examples
    --------
    It is called by compiled functions:

    >>> span.nopython_signatures[0].return_type
    UniTuple(int64, 2)
    """
    first, last = segment, segment + 1
    for at in range(level, 0, -1):
        first, last = table[table[_BOUNDS + at] + first], table[table[_BOUNDS + at] + last]
    return first, last


@compiled(POINTER, INT, INT, returns=PAIR, inner=True)
def extent(table, level, segment):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the range of indices of a segment of a level.

    Examples
    --------
    It is called by compiled functions:

    >>> extent.nopython_signatures[0].return_type
    UniTuple(int64, 2)
    """
    first, last = span(table, level, segment)
    return table[table[_BOUNDS] + first], table[table[_BOUNDS] + last]


@compiled(POINTER, INT, INT, returns=INT, inner=True)
def _cells(table, level, segment):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how many cells a segment of a level has."""
    first, last = span(table, level, segment)
    return last - first


@compiled(POINTER, INT, INT, INT, INT, INT, INT, INT, INT, inner=True)
def _list(s, side, x, k, b, tables, source, tiles, level):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Note the lines of a segment: they are fetched during so many tiles.

    ``tables`` is where the addresses of the roles' tables are, ``source`` the operand's.
    """
    found = pointer(s[_SELF] + 8 * (_AHEAD + _SIZE * side))
    addresses = pointer(tables)
    rows, sums = addresses[side], addresses[2]
    X, K, B = pointer(rows), pointer(sums), pointer(addresses[3])
    k0, k1 = extent(K, level, k)
    b0, _ = extent(B, level, b)
    way, blocks = s[_WAY + side], _BLOCKS + _TURNS * side
    lines, bounds = blocks + _LINES, blocks + _LINE_BOUNDS
    found[_OUTER] = sums + 8 * (K[_OFFSETS + 1 + side] + k0)
    outers = k1 - k0
    inners = 0
    if way == _COPY:
        first, last = span(X, level, x)
        low, high = X[X[_PLACES] + first], X[X[_PLACES] + last]
        found[_INNER], inners = rows + 8 * (X[_FIRSTS] + low), high - low
    elif way == _TURN_ROWS:
        low, high = X[X[bounds] + x], X[X[bounds] + x + 1]
        found[_INNER], inners = rows + 8 * (X[lines] + low), high - low
    elif way == _TURN_SUMS:
        low, high = K[K[bounds] + k], K[K[bounds] + k + 1]
        found[_INNER], inners = sums + 8 * (K[lines] + low), high - low
        r0, r1 = extent(X, level, x)
        found[_OUTER], outers = rows + 8 * (X[_OFFSETS + 1 + side] + r0), r1 - r0
    found[_END] = found[_OUTER] + 8 * outers
    found[_INNERS], found[_AT] = inners, 0
    found[_SOURCE] = source + B[B[_OFFSETS + 1 + side] + b0]
    share = (inners * outers + tiles - 1) // max(1, tiles)
    found[_SHARE] = max(share, _LEAST) if share else 0


@compiled(POINTER, INT, INT, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def expect(s, side, level, r, n, k, b, R, N, K, B):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Find what follows the segment of an operand that was just packed, if anything does.

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

    Examples
    --------
    It is called by the macrokernel:

    >>> expect.nopython_signatures[0].return_type
    none
    """
    s[_AHEAD + _SIZE * side + _SHARE] = 0
    if not s[_FORESEEN + side]:
        return
    tiles = _cells(R, level, r) * _cells(N, level, n) * _cells(K, level, k) * _cells(B, level, b)
    X = N if side else R
    for around in range(level + 1, s[_TOP] + 1):
        w, o = _SCRATCH + 12 * around, _ORDERS + 4 * around
        # Where the next round of loops that are at their ends begins.
        x, k, b = s[w + side], s[w + 2], s[w + 3]
        same = 1
        for i in range(4):
            role = s[o + i]
            more = s[w + role] + 1 < s[w + 4 + role]
            if role == 1 - side and (same or not more):
                tiles *= s[w + 4 + role] - s[w + role]
                continue
            if role != 1 - side:
                now = s[w + role] + 1 if more else s[w + 8 + role]
                same = same and now == s[w + role]
                if role == 2:
                    k = now
                elif role == 3:
                    b = now
                else:
                    x = now
            if more:
                for at in range(around - 1, level, -1):
                    x, k, b = X[X[_BOUNDS + at] + x], K[K[_BOUNDS + at] + k], B[B[_BOUNDS + at] + b]
                source, here = s[_SOURCES + side], s[_SELF] + 8 * _TABLES
                _list(s, side, x, k, b, here, source, tiles, level)
                return
    step = pointer(s[_STEPS] + 8 * _STEP_SIZE * s[_BOX])
    later = step[_STEP_NEXT + side]
    if later:
        there = s[_STEPS] + 8 * _STEP_SIZE * (s[_BOX] + later)
        source = s[_BASES + 1 + side] + pointer(there)[1 + side]
        _list(s, side, 0, 0, 0, there + 8 * _STEP_TABLES, source, tiles * later, level)


@compiled(POINTER, INT, inner=True)
def ask(s, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Write down the lines that a call of so many tiles is to ask for.

    Examples
    --------
    It is called by the macrokernel:

    >>> ask.nopython_signatures[0].return_type
    none
    """
    shares = s[_AHEAD + _SHARE] + s[_AHEAD + _SIZE + _SHARE]
    s[_FETCH], s[_FETCH_MOVE], s[_FETCHES] = s[_ROOM], 0, 0
    if shares <= 0:
        return
    each = min(shares, s[_STEPS_OF_K], _MOST // count - 1)
    if each <= 0:
        return
    s[_FETCH], s[_FETCH_MOVE], s[_FETCHES] = s[_ROOM] + 8, 8 * each + 8, each
    room = pointer(s[_ROOM] + 8)
    end, free = count * (each + 1), each
    done = 0
    for side in range(2):
        a = pointer(s[_SELF] + 8 * (_AHEAD + _SIZE * side))
        # Of the lines of each tile its share.
        left = count * each * a[_SHARE] // shares if side == 0 else count * each
        inner, inners = pointer(a[_INNER]), a[_INNERS]
        while left > 0 and done < end and a[_OUTER] < a[_END] and a[_SHARE]:
            base = a[_SOURCE] + pointer(a[_OUTER])[0]
            at = a[_AT]
            fits = min(left, inners - at, free)
            for i in range(fits):
                room[done + i] = base + inner[at + i]
            done, left, free = done + fits, left - fits, free - fits
            if free == 0:
                room[done] = s[_SELF]
                done, free = done + 1, each
            a[_AT] = at + fits
            if a[_AT] == inners:
                a[_AT] = 0
                a[_OUTER] += 8
        if a[_OUTER] >= a[_END]:
            a[_SHARE] = 0
    for i in range(done, end):
        room[i] = s[_SELF]


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
