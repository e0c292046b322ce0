"""Moves: copies of arrays whose elements lie in another order, tile by tile.

A tile is a box over the axes, long in the target and in the source. It is filled into a buffer,
where its elements lie as in the target, and goes from there to the target in runs, line by line.
*Columns* are the axis along which elements are nearest to each other in the target, *rows* the one
in the source. Where they are next to each other there, blocks are transposed in registers.
"""

from __future__ import annotations

from enum import IntEnum

from tilesolve.kernels import blocks, vectors
from tilesolve.kernels import compiled as compiling
from tilesolve.kernels.blocks import LINE, expect, move, piece, stream, turn
from tilesolve.kernels.compiled import INT, POINTER, compiled, on_stack, pointer, store_fence

MOST = 64
"""Axes at most, as many as arrays have."""


class A(IntEnum):
    """Fields of an axis.

    Examples
    --------
    >>> A.SIZE == len(A) - 1
    True
    """

    EXTENT = 0
    TILE = 1
    """The extent of a tile."""
    TRIPS = 2
    """How many tiles."""
    FAR = 3
    """Bytes between neighbours in the target."""
    NEAR = 4
    """In the source."""
    HERE = 5
    """In the buffer, or again in the target where there is no buffer."""
    SIZE = 6


class W(IntEnum):
    """Fields of a walk: what `run` knows of two arrays, written by `tilesolve.moves`.

    Examples
    --------
    >>> W.SIZE - W.JOINED == MOST
    True
    """

    ELEMENT = 0
    """Bytes that stay together."""
    BLOCKS = 1
    """For three sides of blocks, the longest first: the side, and its number in `blocks.KINDS`."""
    STREAMED = 7
    """Whether whole lines are written past the caches."""
    BEGIN = 8
    """Bytes from the first elements of target and source to those where the walk begins."""
    COLUMNS = 10
    """The axis of columns."""
    ROWS = 11
    """The axis of rows."""
    RUN = 12
    """Bytes of a run for each element of its outermost axis, and that axis; 0 without a buffer."""
    COUNTS = 14
    """Lengths of the four lists that follow the axes."""
    AXES = 18
    LOOPS = AXES + A.SIZE * MOST
    """The axes that loops go over tiles of, the outermost first."""
    FILLS = LOOPS + MOST
    """The axes of a tile that are neither columns nor rows, and behind them columns."""
    RUNS = FILLS + MOST
    """The axes of a tile that runs do not cover."""
    JOINED = RUNS + MOST
    """Axes that go on where rows end, in the source and in the buffer: they are rows, too."""
    SIZE = JOINED + MOST


# numba takes plain integers for constants, not members of an enumeration.
_ELEMENT, _BLOCKS, _STREAMED, _BEGIN = int(W.ELEMENT), int(W.BLOCKS), int(W.STREAMED), int(W.BEGIN)
_COLUMNS, _ROWS, _RUN, _COUNTS = int(W.COLUMNS), int(W.ROWS), int(W.RUN), int(W.COUNTS)
_AXES, _LOOPS, _FILLS, _RUNS = int(W.AXES), int(W.LOOPS), int(W.FILLS), int(W.RUNS)
_JOINED = int(W.JOINED)
_EXTENT, _TILE, _TRIPS = int(A.EXTENT), int(A.TILE), int(A.TRIPS)
_FAR, _NEAR, _HERE, _FIELDS = int(A.FAR), int(A.NEAR), int(A.HERE), int(A.SIZE)
_LINE, _MOST = LINE, MOST


@compiled(INT, INT, INT, INT)
def _copy(source, target, size, streamed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Copy bytes that are next to each other on both sides."""
    if streamed:
        head = min(-target % _LINE, size)
        piece(source, target, head)
        source, target, size = source + head, target + head, size - head
        while size >= _LINE:
            stream(source, target)
            source, target, size = source + _LINE, target + _LINE, size - _LINE
    while size >= _LINE:
        move(source, target)
        source, target, size = source + _LINE, target + _LINE, size - _LINE
    piece(source, target, size)


@compiled(POINTER, INT, POINTER, POINTER, returns=INT)
def _next(order, count, places, ends):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Go to the next place of loops over some axes; return whether there is one."""
    for number in range(count - 1, -1, -1):
        axis = order[number]
        places[axis] += 1
        if places[axis] < ends[axis]:
            return 1
        places[axis] = 0
    return 0


@compiled(POINTER, POINTER, INT, POINTER, INT, returns=INT)
def _bytes(w, order, count, places, field):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how far a place is, by one of the axes' steps."""
    total = 0
    for number in range(count):
        total += places[order[number]] * w[_AXES + _FIELDS * order[number] + field]
    return total


@compiled(POINTER, POINTER, INT, INT, returns=INT)
def _start(w, tiles, count, field):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how far a tile begins from the first one, by one of the axes' steps."""
    total = 0
    for axis in range(count):
        at = _AXES + _FIELDS * axis
        total += tiles[axis] * w[at + _TILE] * w[at + field]
    return total


@compiled(POINTER, INT, INT, INT, INT)
def _fill(w, wide, high, here, near):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move the elements of columns and rows."""
    columns, rows = _AXES + _FIELDS * w[_COLUMNS], _AXES + _FIELDS * w[_ROWS]
    column_steps = (w[columns + _HERE], w[columns + _NEAR])
    row_steps = (w[rows + _HERE], w[rows + _NEAR])
    at = _BLOCKS
    while w[at] > min(wide, high):
        at += 2
    if w[at]:
        turn(w[at + 1], near, here, wide, high, column_steps, row_steps)
    else:
        streamed = w[_STREAMED] and not w[_RUN]
        for row in range(high):
            for column in range(wide):
                _copy(
                    near + row * row_steps[1] + column * column_steps[1],
                    here + row * row_steps[0] + column * column_steps[0],
                    w[_ELEMENT],
                    streamed,
                )


@compiled(INT, POINTER, POINTER, POINTER, INT, INT, INT, INT)
def _tile(walk, extents, places, marks, far, near, buffer, later):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move one tile, while the source of a later one comes nearer; all places are 0 before it."""
    w = pointer(walk)
    fills, count = pointer(walk + 8 * _FILLS), w[_COUNTS + 1]
    wide, high = extents[w[_COLUMNS]], extents[w[_ROWS]]
    for number in range(w[_COUNTS + 3]):
        high *= extents[w[_JOINED + number]]
    start = buffer if w[_RUN] else far
    parts = 0
    while True:
        here = start + _bytes(w, fills, count, places, _HERE)
        _fill(w, wide, high, here, near + _bytes(w, fills, count, places, _NEAR))
        parts += wide
        if not _next(fills, count, places, extents):
            break
    if not w[_RUN]:
        return
    size = w[_RUN] * extents[w[_RUN + 1]]
    runs, number = pointer(walk + 8 * _RUNS), w[_COUNTS + 2]
    together = 1
    for at in range(number):
        together *= extents[runs[at]]
    share = parts // together + 1
    more = later != 0 and w[_BLOCKS] > 1
    while True:
        for _ in range(share):
            if more:
                begin = later + _bytes(w, fills, count + 1, marks, _NEAR)
                for line in range(begin, begin + high * w[_ELEMENT], _LINE):
                    expect(line)
                more = _next(fills, count + 1, marks, extents)
        here = buffer + _bytes(w, runs, number, places, _HERE)
        _copy(here, far + _bytes(w, runs, number, places, _FAR), size, w[_STREAMED])
        if not _next(runs, number, places, extents):
            break


@compiled(INT, INT, INT, INT, INT, INT)
def run(walk, target, source, buffer, first, last):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Move an array, or the tiles of its outermost loop that are named.

    Parameters
    ----------
    walk
        Address of a walk, see `W`.
    target, source
        Addresses of the words that hold the arrays' addresses.
    buffer
        Address of room for a tile.
    first, last
        Trips of the outermost loop: the first one, and the one to stop before.

    Examples
    --------
    It is called with what `tilesolve.moves` makes:

    >>> run.nopython_signatures[0].return_type
    none
    """
    w = pointer(walk)
    tiles, ends = pointer(on_stack(_MOST)), pointer(on_stack(_MOST))
    extents = pointer(on_stack(_MOST))
    places, marks = pointer(on_stack(_MOST)), pointer(on_stack(_MOST))
    loops, count = pointer(walk + 8 * _LOOPS), w[_COUNTS]
    for axis in range(count):
        tiles[axis], ends[axis] = 0, w[_AXES + _FIELDS * axis + _TRIPS]
        places[axis], marks[axis] = 0, 0
    tiles[loops[0]], ends[loops[0]] = first, last
    begin = pointer(source)[0] + w[_BEGIN + 1]
    later = begin + _start(w, tiles, count, _NEAR)
    while later:
        near, far = later, pointer(target)[0] + w[_BEGIN] + _start(w, tiles, count, _FAR)
        for axis in range(count):
            at = _AXES + _FIELDS * axis
            extents[axis] = min(w[at + _TILE], w[at + _EXTENT] - tiles[axis] * w[at + _TILE])
        more = _next(loops, count, tiles, ends)
        later = begin + _start(w, tiles, count, _NEAR) if more else 0
        _tile(walk, extents, places, marks, far, near, buffer, later)
    if w[_STREAMED]:
        store_fence()


_LAYOUT = compiling.checksum(blocks, compiling, vectors)


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return _LAYOUT


compiling.renew(__name__, _layout(), _LAYOUT)
