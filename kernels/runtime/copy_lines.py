"""Runs: bytes that are next to each other on both sides, copied line by line or past the caches."""

from __future__ import annotations

from tilesolve.kernels.codegen.transpose_blocks import (
    copy_line,
    copy_part,
    prefetch_source,
    store_head,
    store_joined_line,
    store_line,
    store_tail,
)
from tilesolve.kernels.runtime.compiled import INT, compiled, renew
from tilesolve.kernels.sources import LAYOUT
from tilesolve.packing.sizes import LINE_BYTES

REACH = 2048
"""Bytes ahead by which a source is asked for that goes past the caches without the buffer: what
hardware finds ends with a page (measured: a copy of 192 MiB at 27 instead of 18 GB/s)."""

ALL = 2
"""Parts of lines go past the caches, too."""


@compiled(INT, INT, INT, INT, INT)
def copy(source, target, size, streamed, later):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Copy bytes that are next to each other on both sides.

    Where `streamed` is not 0, whole lines go past the caches. Where it is `ALL` so do parts of
    them: they are written as one line if its other part is written right before or after. What is
    `REACH` bytes ahead is asked for meanwhile, or if that is beyond the end, what follows at
    `later`; nothing is where that is 0.

    Examples
    --------
    It is called by compiled functions:

    >>> copy.nopython_signatures[0].return_type
    none
    """
    reach = min(REACH, size)
    if streamed:
        before = min(-target % LINE_BYTES, size)
        edges = streamed == ALL and before < size
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
def release(source, target, size, streamed, before, after):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Move a run to the target: whole lines only where runs before or after it are kept as well.

    What is kept are the `LINE_BYTES` bytes before a run, at addresses that are 0 at either end of
    a row of runs. As much room is before a run in the buffer, bytes behind what is kept can be
    read, and runs of which the end is kept have a line at least.

    Examples
    --------
    It is called by compiled functions:

    >>> release.nopython_signatures[0].return_type
    none
    """
    if before:
        begun = target % LINE_BYTES
        if begun + size < LINE_BYTES:
            copy_line(before, source - LINE_BYTES)
            source, target, size = source - begun, target - begun, size + begun
        elif begun:
            store_joined_line(before + LINE_BYTES - begun, source - begun, target - begun, begun)
            done = LINE_BYTES - begun
            source, target, size = source + done, target + done, size - done
    if after:
        copy_line(source + size - LINE_BYTES, after)
        size -= (target + size) % LINE_BYTES
        while before and size > 0:  # whole lines: no call, as runs are often few of them
            store_line(source, target)
            source, target, size = source + LINE_BYTES, target + LINE_BYTES, size - LINE_BYTES
    copy(source, target, size, streamed, 0)


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
