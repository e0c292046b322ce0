"""Past the caches where C does not lie in whole lines: tiles gather in a room, and leave as runs.

A store past the caches writes a line. Where a tile of C begins or ends amid lines, as in numpy's
own arrays, which begin 16 bytes after one, microkernels write a few tiles to a small room in the
nearest cache. There they lie as in C, so that what is side by side leaves line by line. The part of
a line that a run ends in waits for the tiles that go on there. It is done where it gains something:
`tilesolve.running.task` says on which machines. `s` is a state (`state`); `R` and `N` are
the tables of rows and columns.
"""

from __future__ import annotations

from tilesolve.kernels.codegen import shape
from tilesolve.kernels.runtime.compiled import INT, POINTER, compiled, pointer, renew
from tilesolve.kernels.runtime.copy_lines import ALL, release
from tilesolve.kernels.runtime.state import Past, S
from tilesolve.kernels.sources import LAYOUT
from tilesolve.packing.offset_tables import Field
from tilesolve.packing.sizes import LINE_BYTES

TOGETHER = 2048
"""Bytes of C that leave the room in one go, about: the more there are, the longer stores wait; but
each time costs about as much as half a tile of 16 rows by 8 columns."""

RUN = 1024
"""Bytes of a run that leave in one go, at least, where more tiles make it longer."""

LEAST = 1024
"""Bytes of runs from which on C goes by way of the room. What lies in shorter ones has so many
parts of lines that it had better be written through the caches."""

KEPT = 128
"""Runs that may go on with later tiles, at most."""

MOST = 256
"""Rows, and columns, that are in the room at once, at most."""

_HELD = 3 << 12
"""Bytes of C in the room at most: it shares the nearest cache with what is computed."""

_RUNS = 128
"""Runs in the room, at most."""

_GAP = 2 * LINE_BYTES
"""Bytes before each run, and behind the last one: a line for what was kept; and a tile's last
vectors reach so far beyond its rows, as a group of complex numbers takes two."""

_TABLES = _HELD + (_RUNS + 1) * _GAP
_SLOTS = _TABLES + 2 * 8 * MOST
_TAGS = _SLOTS + KEPT * LINE_BYTES

WORDS = (_TAGS + 8 * KEPT + LINE_BYTES) // 8
"""Words of the room with all that stands behind it."""

# numba takes plain integers for constants, not members of an enumeration.
_F = {name: S.FRAME + at for at, name in enumerate(shape.FIELDS)}
_C, _ROWS_C, _COLUMNS_C, _MODE = _F["c"], _F["rows_c"], _F["columns_c"], _F["mode"]
_AT, _STEP, _GROUP, _STORE = int(S.PAST), int(S.STEP), int(S.GROUP), int(shape.Mode.STORE)
_ROOM, _ACROSS, _PIECE = _AT + Past.ROOM, _AT + Past.ACROSS, _AT + Past.PIECE
_PITCH, _FIRSTS = _AT + Past.PITCH, _AT + Past.FIRSTS
_OFFSETS, _STEADY = int(Field.OFFSETS), int(Field.STEADY)


@compiled(POINTER, INT, INT, returns=INT, inner=True)
def _following(table, index, distance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how many indices, the first included, follow each other at a distance in C."""
    count = table[table[_STEADY] + index]
    at = table[_OFFSETS] + index
    return count if count > 1 and table[at + 1] - table[at] == distance else 1


@compiled(POINTER, INT, INT, INT, INT, INT, INT, INT, POINTER, POINTER, returns=INT, inner=True)
def arrange(s, role, count, turns, r0, n0, m, c, R, N):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Have the tiles of a call gather in the room, where each is made of runs that are alike.

    Each group of a tile's rows has to be contiguous in C.

    Parameters
    ----------
    s
        The state.
    role, count, turns
        How many tiles there are along a role, and how often along the other one.
    r0, n0
        First row and first column.
    m, c
        Rows and columns of a tile.
    R, N
        The tables.

    Returns
    -------
    int
        How many tiles along the role may be computed at once; 0 if C is to be written where it is.

    Examples
    --------
    It is called by the macrokernel:

    >>> arrange.nopython_signatures[0].return_type
    int64
    """
    element = s[_STEP] // s[_GROUP]
    high = m * (count if role == 0 else turns if role == 1 else 1)
    wide = c * (count if role == 1 else turns if role == 0 else 1)
    down = _following(R, r0, element)
    piece, cells = min(down, m), 1
    whole = role == 0 and down > m and high % down == 0 and down % m == 0 and m % s[_GROUP] == 0
    if whole and _following(N, n0, down * element) >= c:  # columns go on where all rows end
        piece, cells = down, down // m
    across = _following(N, n0, piece * element)
    along = across >= c and across * piece >= down
    if along:  # each run has as many rows, and these are whole groups where a tile has several runs
        if high % piece or (piece < m and (m % piece or piece % s[_GROUP])):
            return 0
        for row in range(r0, r0 + high, piece):
            if _following(R, row, element) < piece:
                return 0
    elif down < m:
        return 0
    size = m * c * element
    most = TOGETHER // size
    if along and role == 1:
        most = max(most, -(-RUN // size))
    elif not along and role == 0:
        most = max(most, -(-RUN // (m * element)))
    most = min(most, _HELD // size, MOST // m if role == 0 else MOST // c)
    if along and role == 0:
        most = min(most, _RUNS * piece // m)
    elif not along and role == 1:
        most = min(most, _RUNS // c)
    most = min(max(cells, most // cells * cells), count)
    if most * size > _HELD or (role == 0 and most * m > MOST):
        return 0
    rows, columns = m * (most if role == 0 else 1), c * (most if role == 1 else 1)
    pitch = (piece * columns if along else rows) * element + _GAP
    room = s[_ROOM] + _GAP
    here_rows, here_columns = s[_ROOM] + _TABLES, s[_ROOM] + _TABLES + 8 * MOST
    X, Y = pointer(here_rows), pointer(here_columns)
    for row in range(rows):
        X[row] = row // piece * pitch + row % piece * element if along else row * element
    for column in range(columns):
        Y[column] = column * (piece * element if along else pitch)
    tags = pointer(s[_ROOM] + _TAGS)
    for slot in range(KEPT):
        tags[slot] = 0
    s[_ACROSS], s[_PIECE], s[_PITCH] = along, piece, pitch
    s[_FIRSTS], s[_FIRSTS + 1], s[_FIRSTS + 2], s[_FIRSTS + 3] = r0, n0, r0 + high, n0 + wide
    s[_C], s[_ROWS_C], s[_COLUMNS_C], s[_MODE] = room, here_rows, here_columns, _STORE
    return most


@compiled(POINTER, INT, INT, INT, INT, INT, POINTER, POINTER, inner=True)
def leave(s, out, r, n, rows, columns, R, N):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Write what is in the room to C: so many rows and columns from the given ones on.

    Examples
    --------
    It is called by the macrokernel:

    >>> leave.nopython_signatures[0].return_type
    none
    """
    element = s[_STEP] // s[_GROUP]
    room, pitch = s[_ROOM] + _GAP, s[_PITCH]
    X, Y, high, wide = R, N, rows, columns
    x, y, first, last, unit = r, n, s[_FIRSTS], s[_FIRSTS + 3], s[_PIECE]
    if not s[_ACROSS]:
        X, Y, high, wide = N, R, columns, rows
        x, y, first, last, unit = n, r, s[_FIRSTS + 1], s[_FIRSTS + 2], 1
    length = element * (unit if s[_ACROSS] else 1)
    tags = pointer(s[_ROOM] + _TAGS)
    ends = Y[_OFFSETS] + y
    for at in range(0, high, unit):
        slot = (x + at - first) // unit
        base, source = out + X[X[_OFFSETS] + x + at], room + at // unit * pitch
        kept = s[_ROOM] + _SLOTS + LINE_BYTES * slot
        done = 0
        while done < wide:
            now = min(_following(Y, y + done, length), wide - done)
            begin, size = base + Y[ends + done], now * length
            before = after = 0
            if slot < KEPT:  # less than a line is not kept
                if tags[slot] == begin:
                    before = kept
                tags[slot] = 0
                more = done + now == wide and y + wide < last and size >= LINE_BYTES
                if more and base + Y[ends + wide] == begin + size:
                    after, tags[slot] = kept, begin + size
            release(source + done * length, begin, size, ALL, before, after)
            done += now


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
