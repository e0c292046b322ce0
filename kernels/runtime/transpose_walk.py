"""Transposes of arrays: copies of elements to another order, tile by tile.

A tile is a box over the axes, long in the target and in the source. *Columns* are the axis along
which elements are nearest to each other in the target, *rows* the one in the source. Where they are
next to each other there, blocks are transposed in registers. A group of rows at a time is filled
into a buffer, where its elements lie as in the target, and goes from there to the target in *runs*,
line by line; a *fill* is what one place of the axes that runs cover beside columns and rows adds.
The buffer stays in the first cache, and the source of the rows that follow is prefetched meanwhile.
So are the lines of the target that a run covers in part: a store to a line that is far away would
hold up those behind it. Where the next tile goes on where a run ends, that run's last part of a
line is kept for it, so that lines are written once and whole. Where all lines of the target are
whole anyway, blocks are written there by non-temporal stores, without the buffer. See
docs/decisions/053. `w` is a walk (`walk_fields`).
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.ir.copies import copy_line, copy_part, prefetch_target
from tilesolve.kernels.ir.transpose_blocks import transpose_listed, transpose_tile
from tilesolve.kernels.runtime import walk_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    as_pointer,
    compiled,
    inlined,
    invoke,
    on_stack,
    store_fence,
)
from tilesolve.kernels.runtime.copy_lines import ALL_LINES, WHOLE_LINES, copy_run, flush_run
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

# Fields of a part of columns and rows that blocks of one kind cover, behind the kind: where it
# begins in the source (of listed columns, its rows) and in the buffer, its extents, and the steps
# of both loops (of listed columns, where among the distances they begin). All fills of a group of
# rows have the same parts: they are worked out once.
_FROM, _TO, _WIDE, _HIGH, _ACROSS, _DOWN, _PART_WORDS = 1, 2, 3, 4, 5, 7, 9
_PARTS_WORDS = 6 * _PART_WORDS

# What `on_stack` makes room for has to be a plain global.
_MAX_AXES, _MAX_ROWS = fields.MAX_AXES, tuning.MAX_TRANSPOSED_ROWS


@compiled(POINTER, INT, POINTER, POINTER, returns=INT, inner=True)
def _go_to_next(order, count, places, ends):
    """Go to the next place of loops over some axes; return whether there is one."""
    for number in range(count - 1, -1, -1):
        axis = order[number]
        places[axis] += 1
        if places[axis] < ends[axis]:
            return 1
        places[axis] = 0
    return 0


@compiled(POINTER, POINTER, INT, POINTER, INT, returns=INT, inner=True)
def _count_bytes(w, order, count, places, field):
    """Return how far a place is, by one of the axes' steps."""
    total = 0
    for number in range(count):
        axis = order[number]
        total += places[axis] * w[fields.AXES + fields.AXIS_WORDS * axis + field]
    return total


@compiled(POINTER, POINTER, INT, INT, returns=INT, inner=True)
def _find_tile(w, tiles, count, field):
    """Return how far a tile begins from the first one, by one of the axes' steps."""
    total = 0
    for axis in range(count):
        at = fields.AXES + fields.AXIS_WORDS * axis
        total += tiles[axis] * w[at + fields.AXIS_TILE] * w[at + field]
    return total


@compiled(POINTER, POINTER, INT, INT, INT, INT, INT, INT, inner=True)
def _add_part(w, parts, part, block, c, r, wide, high):
    """Note that blocks of a kind cover so many columns and rows, from the given ones on."""
    x = fields.AXES + fields.AXIS_WORDS * w[fields.COLUMNS]
    y = fields.AXES + fields.AXIS_WORDS * w[fields.ROWS]
    there, here = fields.AXIS_SOURCE_STEP, fields.AXIS_BUFFER_STEP
    parts[part] = w[block + 1]
    parts[part + _TO] = c * w[x + here] + r * w[y + here]
    if w[fields.LISTED]:
        parts[part + _FROM], parts[part + _ACROSS] = r * w[y + there], WORD_BYTES * c
    else:
        parts[part + _FROM] = c * w[x + there] + r * w[y + there]
        if w[block] == 1 and wide > high:  # the longer of two loops over elements is the inner one
            x, y, wide, high = y, x, high, wide
        parts[part + _ACROSS], parts[part + _ACROSS + 1] = w[x + here], w[x + there]
    parts[part + _WIDE], parts[part + _HIGH] = wide, high
    parts[part + _DOWN], parts[part + _DOWN + 1] = w[y + here], w[y + there]


@compiled(POINTER, INT, INT, POINTER, returns=INT, inner=True)
def _cut_into_parts(w, wide, high, parts):
    """Cut columns and rows into large blocks, what is left into smaller; return where parts end.

    The last blocks overlap others instead where half of a block or more is left (of elements of one
    or two bytes a quarter, as smaller blocks are not much faster), or anything where blocks write
    whole lines, as smaller ones would not.
    """
    end, block = 0, fields.BLOCKS
    part = 2 if w[fields.ELEMENT_BYTES] >= tuning.MIN_NON_TEMPORAL_BYTES else 4
    c, r = 0, 0  # columns and rows that are in parts
    while c < wide or r < high:
        side = w[block]
        least = side if w[fields.WHOLE] else part
        more_c, more_r = wide & side - 1, high & side - 1  # sides are powers of two
        new_c = wide if not c and wide >= side <= least * more_c else max(c, wide - more_c)
        new_r = high if not r and high >= side <= least * more_r else max(r, high - more_r)
        if new_c and new_r:
            if new_c > c:
                _add_part(w, parts, end, block, c, 0, new_c - c, new_r)
                end += _PART_WORDS
            if c and new_r > r:
                _add_part(w, parts, end, block, 0, r, c, new_r - r)
                end += _PART_WORDS
            c, r = new_c, new_r
        block += 2
    return end


@inlined
def _list_columns(walk, extents, places, distances):
    """List how far each column of all fills is in the source; return how many there are."""
    w, count = as_pointer(walk), 0
    fills, filled = as_pointer(walk + WORD_BYTES * fields.FILLS), w[fields.FILL_COUNT]
    columns = fields.AXES + fields.AXIS_WORDS * w[fields.COLUMNS]
    step = w[columns + fields.AXIS_SOURCE_STEP]
    more = 1
    while more:
        away = _count_bytes(w, fills, filled, places, fields.AXIS_SOURCE_STEP)
        for column in range(extents[w[fields.COLUMNS]]):
            distances[count + column] = away + column * step
        count += extents[w[fields.COLUMNS]]
        more = _go_to_next(fills, filled, places, extents)
    return count


@inlined
def _list_fills(walk, extents, places, offsets):
    """List how far each fill is in the source and in the buffer; return where the list ends."""
    w, end = as_pointer(walk), 0
    fills, filled = as_pointer(walk + WORD_BYTES * fields.FILLS), w[fields.FILL_COUNT]
    more = 1
    while more:
        offsets[end] = _count_bytes(w, fills, filled, places, fields.AXIS_SOURCE_STEP)
        offsets[end + 1] = _count_bytes(w, fills, filled, places, fields.AXIS_BUFFER_STEP)
        end += 2
        more = _go_to_next(fills, filled, places, extents)
    return end


@inlined
def _transpose_listed(parts, end, source, here, ahead, distances):
    """Move the columns of all fills to the buffer."""
    for at in range(0, end, _PART_WORDS):
        begin = source + parts[at + _FROM]
        transpose_listed(
            parts[at],
            begin,
            here + parts[at + _TO],
            begin + ahead,
            distances + parts[at + _ACROSS],
            parts[at + _WIDE],
            parts[at + _HIGH],
            (parts[at + _DOWN], parts[at + _DOWN + 1]),
        )


@inlined
def _transpose_parts(parts, end, source, here, ahead):
    """Move the blocks of a fill to the buffer."""
    for at in range(0, end, _PART_WORDS):
        begin = source + parts[at + _FROM]
        transpose_tile(
            parts[at],
            begin,
            here + parts[at + _TO],
            begin + ahead,
            parts[at + _WIDE],
            parts[at + _HIGH],
            (parts[at + _ACROSS], parts[at + _ACROSS + 1]),
            (parts[at + _DOWN], parts[at + _DOWN + 1]),
        )


@inlined
def _copy_elements(w, wide, high, here, source, later):
    """Move the elements of columns and rows that are too long, or too odd, for blocks."""
    columns = fields.AXES + fields.AXIS_WORDS * w[fields.COLUMNS]
    rows = fields.AXES + fields.AXIS_WORDS * w[fields.ROWS]
    across, across_here = w[columns + fields.AXIS_SOURCE_STEP], w[columns + fields.AXIS_BUFFER_STEP]
    down, down_here = w[rows + fields.AXIS_SOURCE_STEP], w[rows + fields.AXIS_BUFFER_STEP]
    element, direct = w[fields.ELEMENT_BYTES], w[fields.NON_TEMPORAL] and not w[fields.RUN]
    joined = w[columns + fields.AXIS_TARGET_STEP] == element
    away = -(-tuning.COPY_PREFETCH_BYTES // element)
    for row in range(high):
        x, y = source + row * down, here + row * down_here
        lines = WHOLE_LINES if direct else 0
        if direct and joined and (y | element) % tuning.MIN_NON_TEMPORAL_BYTES == 0:
            lines = ALL_LINES
        if element < LINE_BYTES and not lines:
            for column in range(wide):
                copy_part(x + column * across, y + column * across_here, element)
        else:
            for column in range(wide):
                soon, begin = row * wide + column + away, source
                if soon >= high * wide:
                    soon, begin = soon - high * wide, later
                then = begin + soon // wide * down + soon % wide * across
                copy_run(x + column * across, y + column * across_here, element, lines, then)


@inlined
def _find_runs(walk, extents, places, begins, target, row, now, buffer):
    """Find where the runs of a group of rows begin in the target.

    Return how many there are, where the first is filled, and their length; no run where there is no
    buffer.
    """
    w = as_pointer(walk)
    inner, inners = as_pointer(walk + WORD_BYTES * fields.INNER), w[fields.INNER_COUNT]
    size = w[fields.RUN] * extents[w[fields.RUN_AXIS]]
    down = w[fields.AXES + fields.AXIS_WORDS * w[fields.ROWS] + fields.AXIS_TARGET_STEP]
    if not size:
        return 0, target + row * down, 0
    if w[fields.JOINED] or not inners:  # its lines in the buffer begin where those of the target do
        begins[0] = target + row * down
        return 1, buffer + begins[0] % LINE_BYTES, now * size if w[fields.JOINED] else size
    for at in range(now):
        if inners == 1:
            begins[at] = target + (row + at) * down
        else:
            begins[at] = target + _count_bytes(w, inner, inners, places, fields.AXIS_TARGET_STEP)
            _go_to_next(inner, inners, places, extents)
    return now, buffer, size


@inlined
def _fill_runs(w, blocks, fills, begins, buffer, runs, reads, group, before):
    """Fill the runs of a group of rows, and flush what is ready of a long one meanwhile.

    `blocks` and `fills` are lists and their ends, `runs` is where they are filled and their length,
    `reads` is where their source is and how far ahead of it is prefetched, and `group` has so many
    columns and rows. Return where what is not yet in the target begins, its length, and where the
    partial line before it is kept.
    """
    (parts, end), (offsets, fills_end), (wide, now) = blocks, fills, group
    (here, length), (source, ahead) = runs, reads
    full, kept = here, before
    for fill in range(0, fills_end, 2):
        away, there = offsets[fill], here + offsets[fill + 1]
        if not w[fields.BLOCKS]:
            _copy_elements(w, wide, now, there, source + away, source + ahead + away)
        _transpose_parts(parts, end, source + away, there, ahead)
        filled = there + w[fields.FILL_BYTES] - full
        more = w[fields.FILL_BYTES] and fill + 2 < fills_end
        if more and filled >= tuning.TRANSPOSE_FLUSH_BYTES:
            left = (begins[0] + filled) % LINE_BYTES
            ready = filled - left
            flush_run(full, begins[0], ready, w[fields.NON_TEMPORAL], kept, 0)
            copy_line(full + ready, buffer)  # the next fill goes on behind what is left
            here = buffer + left - offsets[fill + 3]
            full, kept, length = buffer, 0, length - ready
            begins[0] += ready
    return full, length, kept


@inlined
def _fetch_edges(w, begins, runs, length, before, after):
    """Prefetch the lines of the target that runs cover in part."""
    if w[fields.NON_TEMPORAL] and not (before and after):
        for at in range(runs):
            if begins[at] % LINE_BYTES and not before:
                prefetch_target(begins[at])
            if (begins[at] + length) % LINE_BYTES and not after:
                prefetch_target(begins[at] + length)


@inlined
def _find_ahead(w, row, soon, high, down, next_tile):
    """Return how far ahead of a row's source the source is that is prefetched meanwhile.

    It is that of the row `soon`, or of the next tile, where prefetches are by rows.
    """
    if not w[fields.PREFETCHES_NEXT_ROWS]:
        return tuning.TRANSPOSE_PREFETCH_BYTES
    ahead = (soon - row) * down
    return ahead if soon < high else ahead - high * down + next_tile


@compiled(INT, POINTER, POINTER, POINTER, INT, INT, INT, INT, INT, INT)
def transpose_whole_tile(
    walk, extents, places, begins, target, source, buffer, later, before, after
):
    """Transpose one tile, and prefetch a later one's source; all places are 0 before it.

    `before` and `after` are where the partial lines are kept at which the tile's runs begin, and
    end; 0 for none.
    """
    w, first_source, first_target = as_pointer(walk), source, target
    outer, outers = as_pointer(walk + WORD_BYTES * fields.OUTER), w[fields.OUTER_COUNT]
    inner = as_pointer(walk + WORD_BYTES * fields.INNER)
    wide, high = extents[w[fields.COLUMNS]], extents[w[fields.ROWS]]
    for at in range(w[fields.INNER_COUNT] - 1):
        high *= extents[inner[at]]
    rows = fields.AXES + fields.AXIS_WORDS * w[fields.ROWS]
    down, down_here = w[rows + fields.AXIS_SOURCE_STEP], w[rows + fields.AXIS_BUFFER_STEP]
    beyond = tuning.TRANSPOSE_NEXT_ROWS_BYTES // w[fields.ELEMENT_BYTES]
    if not w[fields.BLOCKS] or w[fields.GROUP] + beyond > high:
        beyond = 0  # those of the next tile are next
    parts = as_pointer(on_stack(_PARTS_WORDS))
    end = parted = fills_end = 0
    listed = buffer - LINE_BYTES + w[fields.OFFSETS]
    offsets = as_pointer(listed)
    if w[fields.LISTED]:
        wide = _list_columns(walk, extents, places, offsets)
    else:
        fills_end = _list_fills(walk, extents, places, offsets)
    more = 1
    while more:
        more = _go_to_next(outer, outers, places, extents)
        next_source, next_target = later or source, target
        if more:
            distance = _count_bytes(w, outer, outers, places, fields.AXIS_SOURCE_STEP)
            next_source = first_source + distance
            distance = _count_bytes(w, outer, outers, places, fields.AXIS_TARGET_STEP)
            next_target = first_target + distance
        for row in range(0, high, w[fields.GROUP]):
            now = min(w[fields.GROUP], high - row)
            runs, here, length = _find_runs(walk, extents, places, begins, target, row, now, buffer)
            _fetch_edges(w, begins, runs, length, before, after)
            begin = source + row * down
            ahead = _find_ahead(w, row, row + now + beyond, high, down, next_source - source)
            if now != parted and w[fields.BLOCKS]:
                end, parted = _cut_into_parts(w, wide, now, parts), now
            if w[fields.LISTED]:
                _transpose_listed(parts, end, begin, here, ahead, listed)
            blocks, fills, group = (parts, end), (offsets, fills_end), (wide, now)
            full, length, kept = _fill_runs(
                w, blocks, fills, begins, buffer, (here, length), (begin, ahead), group, before
            )
            for at in range(runs):
                run = full + at * down_here
                flush_run(run, begins[at], length, w[fields.NON_TEMPORAL], kept, after)
                before = before + (LINE_BYTES if before else 0)
                after = after + (LINE_BYTES if after else 0)
                kept = before
        source, target = next_source, next_target


@compiled(INT, INT, INT, INT, INT, INT, INT)
def run(walk, target, source, buffer, first, last, stop):
    """Transpose an array, or the tiles of its outermost loop that are named.

    Parameters
    ----------
    walk
        Address of a walk, see `walk_fields`.
    target, source
        Addresses of the words that hold the arrays' addresses.
    buffer
        Address of the buffer for a tile.
    first, last
        Trips of the outermost loop: the first one, and the one to stop before.
    stop
        Address of a word that ends the run once it is not 0.
    """
    w = as_pointer(walk)
    tiles, ends = as_pointer(on_stack(_MAX_AXES)), as_pointer(on_stack(_MAX_AXES))
    extents = as_pointer(on_stack(_MAX_AXES))
    places = as_pointer(on_stack(_MAX_AXES))
    begins = as_pointer(on_stack(_MAX_ROWS))
    loops, count = as_pointer(walk + WORD_BYTES * fields.LOOPS), w[fields.COUNTS]
    for axis in range(count):
        tiles[axis], places[axis] = 0, 0
        ends[axis] = w[fields.AXES + fields.AXIS_WORDS * axis + fields.AXIS_TRIPS]
    tiles[loops[0]], ends[loops[0]] = first, last
    start = as_pointer(target)[0] + w[fields.START]
    begin = as_pointer(source)[0] + w[fields.START + 1]
    later = begin + _find_tile(w, tiles, count, fields.AXIS_SOURCE_STEP)
    before = 0
    while later and not as_pointer(stop)[0]:
        near, far = later, start + _find_tile(w, tiles, count, fields.AXIS_TARGET_STEP)
        for axis in range(count):
            at = fields.AXES + fields.AXIS_WORDS * axis
            tile = w[at + fields.AXIS_TILE]
            extents[axis] = min(tile, w[at + fields.AXIS_EXTENT] - tiles[axis] * tile)
        more = _go_to_next(loops, count, tiles, ends)
        later = begin + _find_tile(w, tiles, count, fields.AXIS_SOURCE_STEP) if more else 0
        kept = w[fields.KEPT] and buffer + w[fields.KEPT]
        after = kept if more and tiles[w[fields.RUN_AXIS]] else 0
        runs = buffer + LINE_BYTES
        function = w[fields.TILE_FUNCTION]
        invoke(function, walk, extents, places, begins, far, near, runs, later, before, after)
        before = after and kept
    if w[fields.NON_TEMPORAL]:
        store_fence()
