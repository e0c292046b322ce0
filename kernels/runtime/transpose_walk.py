"""Moves: copies of arrays whose elements lie in another order, tile by tile.

A tile is a box over the axes, long in the target and in the source. *Columns* are the axis along
which elements are nearest to each other in the target, *rows* the one in the source. Where they are
next to each other there, blocks are transposed in registers. A few rows at a time are filled into a
buffer, where their elements lie as in the target, and go from there to the target in *runs*, line
by line. The buffer stays in the nearest cache, and the source of the rows that follow comes nearer
meanwhile. So do the lines of the target that a run covers in part: a store to a line that is far
away would hold up those behind it. Where the next tile goes on where a run ends, that run's last
part of a line is kept for it, so that lines are written once and whole. Where all lines of the
target are whole anyway, blocks go there past the caches at once, without the buffer.
"""

from __future__ import annotations

from enum import IntEnum

from tilesolve.kernels.codegen.transpose_blocks import (
    copy_line,
    copy_part,
    prefetch_target,
    transpose_listed,
    transpose_tile,
)
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    address,
    compiled,
    invoke,
    on_stack,
    pointer,
    renew,
    store_fence,
)
from tilesolve.kernels.runtime.copy_lines import ALL, REACH, copy, release
from tilesolve.kernels.sources import LAYOUT
from tilesolve.kernels.tuning import MIN_NON_TEMPORAL_BYTES
from tilesolve.packing.sizes import LINE_BYTES

MOST = 64
"""Axes at most, as many as arrays have."""

TOGETHER = 256
"""Rows that are moved at once, at most."""

SOON = 1024
"""Bytes of a run that go to the target before the rest of it is filled, at least: a buffer of many
does not stay in the nearest cache beside their source (measured on a Zen 4, 17×17×17×17×17×17
numbers of 4 bytes with each two axes swapped: 10.9 ms with 20 KB in it, 8.7 with this)."""

CLOSE = 512
"""Bytes ahead by which a source is asked for where a cache could not hold that of all rows."""

BEYOND = 128
"""Bytes beyond the rows that are next by which a source is asked for: that of these would come too
late (measured on a Zen 4, 5121×5121 numbers of 4 bytes: 9.3 ms without, 8.1 with it)."""


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
    """Fields of a walk: what `run` knows of two arrays, written by `walk_setup`.

    Examples
    --------
    >>> W.SIZE - W.FILLS == MOST
    True
    """

    ELEMENT = 0
    """Bytes that stay together."""
    BLOCKS = 1
    """For three sides of blocks, the longest first: the side, and its number in `blocks.KINDS`;
    sides of 0 where elements are copied one by one."""
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
    GROUP = 14
    """Rows that are moved at once."""
    AHEAD = 15
    """Whether the source of rows that follow comes nearer meanwhile, `BEYOND` the next ones, and
    not just of those that are `CLOSE`."""
    KEPT = 16
    """Bytes from the buffer to where the ends of runs are kept for the tiles that go on there, 0 if
    they are not; loops over such tiles are the innermost."""
    WHOLE = 17
    """Whether blocks go to the target past the caches, line by line; there is no buffer then."""
    LISTED = 18
    """Whether all columns of a run are moved together: those of all fills lie next to each other in
    the buffer, and their distances in the source are listed. Kinds are then of `blocks.LISTED`."""
    JOINED = 19
    """Whether rows that are moved at once follow each other in the target: they are one run."""
    OFFSETS = 20
    """Bytes from the buffer to the offsets in source and buffer of what a run is filled with, or to
    the distances of its columns."""
    COUNTS = 21
    """Lengths of the four lists that follow the axes."""
    PIECE = 25
    """Bytes that each fill adds to a run where the one before it ended, 0 if fills lie otherwise:
    whole lines of them go to the target `SOON`."""
    MOVE = 26
    """Where the function for tiles is: `PLACE`."""
    AXES = 27
    LOOPS = AXES + A.SIZE * MOST
    """The axes that loops go over tiles of, the outermost first."""
    OUTER = LOOPS + MOST
    """The axes of a tile that neither runs nor rows cover."""
    INNER = OUTER + MOST
    """Rows, if runs do not cover them, behind the axes that go on where they end: they are rows,
    too."""
    FILLS = INNER + MOST
    """The axes that runs cover beside columns and rows."""
    SIZE = FILLS + MOST


# numba takes plain integers for constants, not members of an enumeration.
_ELEMENT, _BLOCKS, _STREAMED, _BEGIN = int(W.ELEMENT), int(W.BLOCKS), int(W.STREAMED), int(W.BEGIN)
_COLUMNS, _ROWS, _RUN, _GROUP = int(W.COLUMNS), int(W.ROWS), int(W.RUN), int(W.GROUP)
_AHEAD, _KEPT, _WHOLE, _LISTED = int(W.AHEAD), int(W.KEPT), int(W.WHOLE), int(W.LISTED)
_JOINED, _OFFSETS, _COUNTS, _AXES = int(W.JOINED), int(W.OFFSETS), int(W.COUNTS), int(W.AXES)
_PIECE, _MOVE, _LOOPS = int(W.PIECE), int(W.MOVE), int(W.LOOPS)
_OUTER, _INNER, _FILLS = int(W.OUTER), int(W.INNER), int(W.FILLS)
_EXTENT, _TILE, _TRIPS = int(A.EXTENT), int(A.TILE), int(A.TRIPS)
_FAR, _NEAR, _HERE, _FIELDS = int(A.FAR), int(A.NEAR), int(A.HERE), int(A.SIZE)
_LINE, _SMALLEST, _REACH = LINE_BYTES, MIN_NON_TEMPORAL_BYTES, REACH
_MOST, _TOGETHER, _SOON, _CLOSE, _BEYOND = MOST, TOGETHER, SOON, CLOSE, BEYOND

# Fields of a part of columns and rows that blocks of one kind cover, behind the kind: where it
# begins in the source (of listed columns, its rows) and in the buffer, its extents, and the steps
# of both loops (of listed columns, where among the distances they begin). All fills of a group of
# rows have the same parts: they are worked out once.
_FROM, _TO, _WIDE, _HIGH, _ACROSS, _DOWN, _PART = 1, 2, 3, 4, 5, 7, 9
_PARTS = 6 * _PART


@compiled(POINTER, INT, POINTER, POINTER, returns=INT, inner=True)
def _next(order, count, places, ends):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Go to the next place of loops over some axes; return whether there is one."""
    for number in range(count - 1, -1, -1):
        axis = order[number]
        places[axis] += 1
        if places[axis] < ends[axis]:
            return 1
        places[axis] = 0
    return 0


@compiled(POINTER, POINTER, INT, POINTER, INT, returns=INT, inner=True)
def _bytes(w, order, count, places, field):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how far a place is, by one of the axes' steps."""
    total = 0
    for number in range(count):
        total += places[order[number]] * w[_AXES + _FIELDS * order[number] + field]
    return total


@compiled(POINTER, POINTER, INT, INT, returns=INT, inner=True)
def _start(w, tiles, count, field):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return how far a tile begins from the first one, by one of the axes' steps."""
    total = 0
    for axis in range(count):
        at = _AXES + _FIELDS * axis
        total += tiles[axis] * w[at + _TILE] * w[at + field]
    return total


@compiled(POINTER, POINTER, INT, INT, INT, INT, INT, INT, inner=True)
def _part(w, parts, part, at, c, r, wide, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Note that blocks of a kind cover so many columns and rows, from the given ones on."""
    x, y = _AXES + _FIELDS * w[_COLUMNS], _AXES + _FIELDS * w[_ROWS]
    parts[part] = w[at + 1]
    parts[part + _TO] = c * w[x + _HERE] + r * w[y + _HERE]
    if w[_LISTED]:
        parts[part + _FROM], parts[part + _ACROSS] = r * w[y + _NEAR], 8 * c
    else:
        parts[part + _FROM] = c * w[x + _NEAR] + r * w[y + _NEAR]
        if w[at] == 1 and wide > high:  # of loops over single elements the longer is the inner one
            x, y, wide, high = y, x, high, wide
        parts[part + _ACROSS], parts[part + _ACROSS + 1] = w[x + _HERE], w[x + _NEAR]
    parts[part + _WIDE], parts[part + _HIGH] = wide, high
    parts[part + _DOWN], parts[part + _DOWN + 1] = w[y + _HERE], w[y + _NEAR]


@compiled(POINTER, INT, INT, POINTER, returns=INT, inner=True)
def _parted(w, wide, high, parts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Part columns and rows into large blocks, what is left into smaller; return where parts end.

    The last blocks overlap others instead where half of a block or more is left (of elements of one
    or two bytes a quarter, as smaller blocks are not much faster), or anything where blocks write
    whole lines, as smaller ones would not.
    """
    end, at, part = 0, _BLOCKS, 2 if w[_ELEMENT] >= _SMALLEST else 4
    c, r = 0, 0  # columns and rows that are in parts
    while c < wide or r < high:
        side = w[at]
        least = side if w[_WHOLE] else part
        more_c, more_r = wide & side - 1, high & side - 1  # sides are powers of two
        new_c = wide if not c and wide >= side <= least * more_c else max(c, wide - more_c)
        new_r = high if not r and high >= side <= least * more_r else max(r, high - more_r)
        if new_c and new_r:
            if new_c > c:
                _part(w, parts, end, at, c, 0, new_c - c, new_r)
                end += _PART
            if c and new_r > r:
                _part(w, parts, end, at, 0, r, c, new_r - r)
                end += _PART
            c, r = new_c, new_r
        at += 2
    return end


@compiled(INT, POINTER, POINTER, INT, returns=INT, inner=True)
def _list(walk, extents, places, distances):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """List how far each column of all fills is in the source; return how many there are."""
    w, listed, count = pointer(walk), pointer(distances), 0
    fills, filled = pointer(walk + 8 * _FILLS), w[_COUNTS + 3]
    step = w[_AXES + _FIELDS * w[_COLUMNS] + _NEAR]
    more = 1
    while more:
        away = _bytes(w, fills, filled, places, _NEAR)
        for column in range(extents[w[_COLUMNS]]):
            listed[count + column] = away + column * step
        count += extents[w[_COLUMNS]]
        more = _next(fills, filled, places, extents)
    return count


@compiled(POINTER, INT, INT, INT, INT, INT, inner=True)
def _turn_listed(parts, end, source, here, ahead, distances):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move the columns of all fills to the buffer."""
    for at in range(0, end, _PART):
        begin = source + parts[at + _FROM]
        transpose_listed(
            parts[at],
            begin,
            here + parts[at + _TO],
            begin + ahead - source,
            distances + parts[at + _ACROSS],
            parts[at + _WIDE],
            parts[at + _HIGH],
            (parts[at + _DOWN], parts[at + _DOWN + 1]),
        )


@compiled(POINTER, INT, INT, INT, INT, INT, inner=True)
def _pieces(w, wide, high, here, near, later):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move the elements of columns and rows that are too long, or too odd, for blocks."""
    columns, rows = _AXES + _FIELDS * w[_COLUMNS], _AXES + _FIELDS * w[_ROWS]
    across, down = (w[columns + _HERE], w[columns + _NEAR]), (w[rows + _HERE], w[rows + _NEAR])
    element, past = w[_ELEMENT], w[_STREAMED] and not w[_RUN]
    close = w[columns + _FAR] == element
    away = -(-_REACH // element)
    for row in range(high):
        x, y = near + row * down[1], here + row * down[0]
        streamed = 1 if past else 0
        if past and close and (y | element) % _SMALLEST == 0:
            streamed = ALL
        if element < _LINE and not streamed:
            for column in range(wide):
                copy_part(x + column * across[1], y + column * across[0], element)
        else:
            for column in range(wide):
                soon, begin = row * wide + column + away, near
                if soon >= high * wide:
                    soon, begin = soon - high * wide, later
                then = begin + soon // wide * down[1] + soon % wide * across[1]
                source, target = x + column * across[1], y + column * across[0]
                copy(source, target, element, streamed, then)


@compiled(INT, POINTER, POINTER, POINTER, INT, INT, INT, INT, INT, INT)
def _tile(walk, extents, places, begins, far, near, buffer, later, before, after):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Move one tile, and have a later one's source come nearer; all places are 0 before it."""
    w, first_near, first_far = pointer(walk), near, far
    outer, outers = pointer(walk + 8 * _OUTER), w[_COUNTS + 1]
    inner, inners = pointer(walk + 8 * _INNER), w[_COUNTS + 2]
    fills, filled = pointer(walk + 8 * _FILLS), w[_COUNTS + 3]
    wide, high = extents[w[_COLUMNS]], extents[w[_ROWS]]
    for at in range(inners - 1):
        high *= extents[inner[at]]
    rows = _AXES + _FIELDS * w[_ROWS]
    size = w[_RUN] * extents[w[_RUN + 1]]
    beyond = _BEYOND // w[_ELEMENT]
    if not w[_BLOCKS] or w[_GROUP] + beyond > high:
        beyond = 0  # those of the next tile are next
    parts = pointer(on_stack(_PARTS))
    end = parted = 0
    distances = buffer - _LINE + w[_OFFSETS]
    offsets, positions = pointer(distances), 0
    if w[_LISTED]:
        wide = _list(walk, extents, places, distances)
    more = 0 if w[_LISTED] else 1
    while more:
        offsets[2 * positions] = _bytes(w, fills, filled, places, _NEAR)
        offsets[2 * positions + 1] = _bytes(w, fills, filled, places, _HERE)
        positions += 1
        more = _next(fills, filled, places, extents)
    more = 1
    while more:
        more = _next(outer, outers, places, extents)
        next_near, next_far = later or near, far
        if more:
            next_near = first_near + _bytes(w, outer, outers, places, _NEAR)
            next_far = first_far + _bytes(w, outer, outers, places, _FAR)
        for row in range(0, high, w[_GROUP]):
            now = min(w[_GROUP], high - row)
            runs = 0 if not size else now if inners else 1
            here, length = buffer if size else far + row * w[rows + _FAR], size
            alone = size and (w[_JOINED] or not inners)
            if alone:  # its lines in the buffer begin where those of the target do
                runs, length = 1, now * size if w[_JOINED] else size
                begins[0] = far + row * w[rows + _FAR]
                here = buffer + begins[0] % _LINE
            elif inners == 1:
                for at in range(runs):
                    begins[at] = far + (row + at) * w[rows + _FAR]
            else:
                for at in range(runs):
                    begins[at] = far + _bytes(w, inner, inners, places, _FAR)
                    _next(inner, inners, places, extents)
            if w[_STREAMED] and not (before and after):
                for at in range(runs):
                    if begins[at] % _LINE and not before:
                        prefetch_target(begins[at])
                    if (begins[at] + length) % _LINE and not after:
                        prefetch_target(begins[at] + length)
            source = near + row * w[rows + _NEAR]
            ahead = source + _CLOSE
            if w[_AHEAD]:
                soon = row + now + beyond
                ahead = near + soon * w[rows + _NEAR]
                if soon >= high:
                    ahead = next_near + (soon - high) * w[rows + _NEAR]
            if now != parted and w[_BLOCKS]:
                end, parted = _parted(w, wide, now, parts), now
            if w[_LISTED]:
                _turn_listed(parts, end, source, here, ahead, distances)
            full, ended = here, before  # where what is not yet in the target begins, and what joins
            for fill in range(0, 2 * positions, 2):
                away, there = offsets[fill], here + offsets[fill + 1]
                if not w[_BLOCKS]:
                    _pieces(w, wide, now, there, source + away, ahead + away)
                for at in range(0, end, _PART):
                    begin = source + away + parts[at + _FROM]
                    transpose_tile(
                        parts[at],
                        begin,
                        there + parts[at + _TO],
                        begin + ahead - source,
                        parts[at + _WIDE],
                        parts[at + _HIGH],
                        (parts[at + _ACROSS], parts[at + _ACROSS + 1]),
                        (parts[at + _DOWN], parts[at + _DOWN + 1]),
                    )
                filled = there + w[_PIECE] - full
                if w[_PIECE] and filled >= _SOON and fill + 2 < 2 * positions:
                    left = (begins[0] + filled) % _LINE
                    ready = filled - left
                    release(full, begins[0], ready, w[_STREAMED], ended, 0)
                    copy_line(full + ready, buffer)  # the next fill goes on behind what is left
                    here = buffer + left - offsets[fill + 3]
                    full, ended, length = buffer, 0, length - ready
                    begins[0] += ready
            for at in range(runs):
                begin = full + at * w[rows + _HERE]
                release(begin, begins[at], length, w[_STREAMED], ended, after)
                before, after = before + (_LINE if before else 0), after + (_LINE if after else 0)
                ended = before
        near, far = next_near, next_far


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
    It is called with what `walk_setup` makes:

    >>> run.nopython_signatures[0].return_type
    none
    """
    w = pointer(walk)
    tiles, ends = pointer(on_stack(_MOST)), pointer(on_stack(_MOST))
    extents = pointer(on_stack(_MOST))
    places, begins = pointer(on_stack(_MOST)), pointer(on_stack(_TOGETHER))
    loops, count = pointer(walk + 8 * _LOOPS), w[_COUNTS]
    for axis in range(count):
        tiles[axis], ends[axis] = 0, w[_AXES + _FIELDS * axis + _TRIPS]
        places[axis] = 0
    tiles[loops[0]], ends[loops[0]] = first, last
    begin = pointer(source)[0] + w[_BEGIN + 1]
    later = begin + _start(w, tiles, count, _NEAR)
    before = 0
    while later:
        near, far = later, pointer(target)[0] + w[_BEGIN] + _start(w, tiles, count, _FAR)
        for axis in range(count):
            at = _AXES + _FIELDS * axis
            extents[axis] = min(w[at + _TILE], w[at + _EXTENT] - tiles[axis] * w[at + _TILE])
        more = _next(loops, count, tiles, ends)
        later = begin + _start(w, tiles, count, _NEAR) if more else 0
        kept = w[_KEPT] and buffer + w[_KEPT]
        after = kept if more and tiles[w[_RUN + 1]] else 0
        room = buffer + _LINE
        invoke(w[_MOVE], walk, extents, places, begins, far, near, room, later, before, after)
        before = after and kept
    if w[_STREAMED]:
        store_fence()


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())

PLACE = address(_tile)
"""The field `W.MOVE` of all walks."""
