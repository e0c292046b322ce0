"""Runs: bytes that are next to each other on both sides, copied line by line."""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.ir.copies import (
    copy_line,
    copy_part,
    list_lines,
    prefetch_source,
    store_head,
    store_joined_line,
    store_line,
    store_tail,
)
from tilesolve.kernels.runtime.compiled import INT, as_pointer, compiled
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

WHOLE_LINES, ALL_LINES = 1, 2
"""Which lines are written by non-temporal stores; 0 for none."""

_KEPT, _HEAD, _TAIL, _WITHIN = range(4)

PART_WORDS = 4
"""Words of each part of a line in a list, and of what comes before them."""


@compiled(INT, INT, INT, INT, INT)
def copy_run(source, target, size, non_temporal, later):
    """Copy bytes that are next to each other on both sides.

    Non-temporal stores write what `non_temporal` says: nothing (0), `WHOLE_LINES`, or `ALL_LINES`.
    Parts of lines are then written as one line if the other part is written right before or after.
    What is `COPY_PREFETCH_BYTES` ahead is prefetched meanwhile, or if that is beyond the end, what
    follows at `later`; nothing is where that is 0.
    """
    reach = min(tuning.COPY_PREFETCH_BYTES, size)
    if non_temporal:
        before = min(-target % LINE_BYTES, size)
        edges = non_temporal == ALL_LINES and before < size
        if before and edges:
            store_head(source, target, before)
        elif before:
            copy_part(source, target, before)
        source, target, size = source + before, target + before, size - before
        while size >= LINE_BYTES:
            if later:
                prefetch_source(source + reach if size > reach else later + reach - size)
            store_line(source, target)
            source, target, size = source + LINE_BYTES, target + LINE_BYTES, size - LINE_BYTES
        if edges and size:
            store_tail(source, target, size)
            return
    while size >= LINE_BYTES:
        copy_line(source, target)
        source, target, size = source + LINE_BYTES, target + LINE_BYTES, size - LINE_BYTES
    copy_part(source, target, size)


@compiled(INT, INT, INT, INT, INT, INT)
def flush_run(source, target, size, non_temporal, before, after):
    """Write a run to the target: whole lines only where it goes on from, or in, another run.

    The partial line between two runs is kept in a line of its own: at `before` for the run that
    this one goes on from, at `after` for the one that goes on where it ends. Both are 0 at the ends
    of a row of runs. In the buffer a run has a line of free space before it, bytes behind a kept
    line can be read, and runs that keep their end have a line at least.
    """
    if before:
        begun = target % LINE_BYTES
        if begun + size < LINE_BYTES:
            copy_line(before, source - LINE_BYTES)
            source, target, size = source - begun, target - begun, size + begun
        elif begun:
            done = LINE_BYTES - begun
            store_joined_line(before + done, source - begun, target - begun, begun)
            source, target, size = source + done, target + done, size - done
    if after:
        copy_line(source + size - LINE_BYTES, after)
        size -= (target + size) % LINE_BYTES
        while before and size > 0:  # whole lines: no call, as runs are often few of them
            store_line(source, target)
            source, target, size = source + LINE_BYTES, target + LINE_BYTES, size - LINE_BYTES
    copy_run(source, target, size, non_temporal, 0)


@compiled(INT, INT, INT, INT, INT, INT, INT)
def list_run(source, target, size, before, after, lines, parts):
    """List a run, as `flush_run` writes it, to be stored later: whole lines, and parts of lines.

    Nothing is read that was written last: loads of several stores together wait for all of them.
    Both lists begin with a count. Of lines `lines` has the addresses and the targets; `parts` is
    for `write_parts`.
    """
    whole = as_pointer(lines)
    if before:
        begun = target % LINE_BYTES
        copy_line(before, source - LINE_BYTES)
        source, target, size = source - begun, target - begun, size + begun
    else:
        head = min(-target % LINE_BYTES, size)
        if head:
            _list_part(parts, source, target, head, _HEAD if head < size else _WITHIN)
        source, target, size = source + head, target + head, size - head
    if after:
        _list_part(parts, source + size - LINE_BYTES, after, LINE_BYTES, _KEPT)
    count = size // LINE_BYTES
    list_lines(lines + WORD_BYTES * (1 + 2 * whole[0]), source, target, count)
    whole[0] += count
    done = LINE_BYTES * count
    if done < size and not after:
        _list_part(parts, source + done, target + done, size - done, _TAIL)


@compiled(INT, INT, INT, INT, INT, inner=True)
def _list_part(listed, source, target, size, kind):
    """Add a part of a line to a list."""
    parts = as_pointer(listed)
    if parts[0] == tuning.MAX_LISTED_PARTS:
        write_parts(listed)
    at = PART_WORDS * (1 + parts[0])
    parts[at], parts[at + 1], parts[at + 2], parts[at + 3] = source, target, size, kind
    parts[0] += 1


@compiled(INT)
def write_parts(listed):
    """Write the parts of lines that are listed, and empty the list."""
    parts = as_pointer(listed)
    for number in range(parts[0]):
        at = PART_WORDS * (1 + number)
        source, target, size, kind = parts[at], parts[at + 1], parts[at + 2], parts[at + 3]
        if kind == _KEPT:
            copy_line(source, target)
        elif kind == _HEAD:
            store_head(source, target, size)
        elif kind == _TAIL:
            store_tail(source, target, size)
        else:
            copy_part(source, target, size)
    parts[0] = 0


@compiled(INT, INT)
def store_lines(listed, count):
    """Store so many whole lines of a list, from its beginning."""
    lines = as_pointer(listed)
    for at in range(count):
        store_line(lines[1 + 2 * at], lines[2 + 2 * at])
