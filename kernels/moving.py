"""Moves: copies of arrays whose elements lie in another order, tile by tile.

A tile is a range of two axes: *columns*, along which neighbours are near in the target, and *rows*,
along which they are near in the source. Where they are next to each other there, blocks are
transposed in registers into a buffer, and its rows go to the target line by line.
"""

from __future__ import annotations

from enum import IntEnum

from tilesolve.kernels import blocks, vectors
from tilesolve.kernels import compiled as compiling
from tilesolve.kernels.blocks import LINE, move, piece, stream, turn
from tilesolve.kernels.compiled import INT, POINTER, compiled, on_stack, pointer, store_fence

LOOPS = 66
"""Loops at most: those over tiles, and one for each axis of an array that they leave."""


class W(IntEnum):
    """Fields of a walk: what `run` knows of an array's layout, written by `tilesolve.transposing`.

    Examples
    --------
    >>> W.SIZE - W.LOOP == 3 * LOOPS
    True
    """

    ELEMENT = 0
    """Bytes that stay together."""
    BLOCKS = 1
    """For three sides of blocks, the longest first: the side, and its number in `blocks.KINDS`."""
    STREAMED = 7
    """Whether whole lines are written past the caches."""
    PITCH = 8
    """Bytes between rows of the buffer."""
    BEGIN = 9
    """Bytes from the first elements of target and source to those where the walk begins."""
    COLUMNS = 11
    """Of columns: the extent, a tile's share of it, and bytes between neighbours in both."""
    ROWS = 15
    """Of rows: the same."""
    COLUMN_LOOP = 19
    ROW_LOOP = 20
    """Which loops go over tiles."""
    COUNT = 21
    """How many loops there are."""
    LOOP = 22
    """For each loop, the outermost first: its trips, and the bytes of a step in both."""
    SIZE = LOOP + 3 * LOOPS


# numba takes plain integers for constants, not members of an enumeration.
_ELEMENT, _BLOCKS, _STREAMED, _PITCH = int(W.ELEMENT), int(W.BLOCKS), int(W.STREAMED), int(W.PITCH)
_BEGIN, _COLUMNS, _ROWS, _COUNT = int(W.BEGIN), int(W.COLUMNS), int(W.ROWS), int(W.COUNT)
_COLUMN_LOOP, _ROW_LOOP, _LOOP, _LOOPS = int(W.COLUMN_LOOP), int(W.ROW_LOOP), int(W.LOOP), LOOPS
_LINE = LINE


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


@compiled(POINTER, INT, INT, INT, INT, INT)
def _tile(w, target, source, columns, rows, buffer):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move one tile."""
    size, streamed = w[_ELEMENT], w[_STREAMED]
    column_steps, row_steps = (w[_COLUMNS + 2], w[_COLUMNS + 3]), (w[_ROWS + 2], w[_ROWS + 3])
    at = _BLOCKS
    while w[at] > min(columns, rows):
        at += 2
    if w[at] > 1:
        pitch = w[_PITCH]
        turn(w[at + 1], source, buffer, columns, rows, column_steps, (pitch, row_steps[1]))
        for row in range(rows):
            _copy(buffer + row * pitch, target + row * row_steps[0], columns * size, streamed)
    elif w[at] == 1:
        turn(w[at + 1], source, target, columns, rows, column_steps, row_steps)
    else:
        for row in range(rows):
            far, near = target + row * row_steps[0], source + row * row_steps[1]
            for _ in range(columns):
                _copy(near, far, size, streamed)
                far, near = far + column_steps[0], near + column_steps[1]


@compiled(INT, INT, INT, INT, INT, INT)
def run(walk, target, source, buffer, first, last):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Move an array, or the trips of the outermost loop that are named.

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
    It is called with what `tilesolve.transposing` makes:

    >>> run.nopython_signatures[0].return_type
    none
    """
    w, trips = pointer(walk), pointer(on_stack(_LOOPS))
    far = pointer(target)[0] + w[_BEGIN] + first * w[_LOOP + 1]
    near = pointer(source)[0] + w[_BEGIN + 1] + first * w[_LOOP + 2]
    innermost = w[_COUNT] - 1
    for at in range(innermost + 1):
        trips[at] = 0
    trips[0] = first
    columns, rows = _COLUMN_LOOP, _ROW_LOOP
    while trips[0] < last:
        wide = min(w[_COLUMNS + 1], w[_COLUMNS] - trips[w[columns]] * w[_COLUMNS + 1])
        high = min(w[_ROWS + 1], w[_ROWS] - trips[w[rows]] * w[_ROWS + 1])
        _tile(w, far, near, wide, high, buffer)
        at = innermost
        while True:
            loop = _LOOP + 3 * at
            trips[at] += 1
            far, near = far + w[loop + 1], near + w[loop + 2]
            if at == 0 or trips[at] < w[loop]:
                break
            far, near = far - w[loop] * w[loop + 1], near - w[loop] * w[loop + 2]
            trips[at] = 0
            at -= 1
    if w[_STREAMED]:
        store_fence()


_LAYOUT = compiling.checksum(blocks, compiling, vectors)


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return _LAYOUT


compiling.renew(__name__, _layout(), _LAYOUT)
