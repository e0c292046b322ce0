"""Runs: bytes that are next to each other on both sides, copied line by line or past the caches."""

from __future__ import annotations

from tilesolve.kernels.codegen.transpose_blocks import (
    LINE,
    expect,
    head,
    join,
    move,
    piece,
    stream,
    tail,
)
from tilesolve.kernels.runtime.compiled import INT, compiled, renew
from tilesolve.kernels.sources import LAYOUT

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
        before = min(-target % LINE, size)
        edges = streamed == ALL and before < size
        if before and edges:
            head(source, target, before)
        elif before:
            piece(source, target, before)
        source, target, size = source + before, target + before, size - before
        while size >= LINE:
            if later:
                expect(source + reach if size > reach else later + reach - size)
            stream(source, target)
            source, target, size = source + LINE, target + LINE, size - LINE
        if edges and size:
            tail(source, target, size)
            return
    while size >= LINE:
        move(source, target)
        source, target, size = source + LINE, target + LINE, size - LINE
    piece(source, target, size)


@compiled(INT, INT, INT, INT, INT, INT)
def release(source, target, size, streamed, before, after):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Move a run to the target: whole lines only where runs before or after it are kept as well.

    What is kept are the `LINE` bytes before a run, at addresses that are 0 at either end of a row
    of runs. There is as much room before a run in the buffer, bytes behind what is kept can be
    read, and runs of which the end is kept have a line at least.

    Examples
    --------
    It is called by compiled functions:

    >>> release.nopython_signatures[0].return_type
    none
    """
    if before:
        begun = target % LINE
        if begun + size < LINE:
            move(before, source - LINE)
            source, target, size = source - begun, target - begun, size + begun
        elif begun:
            join(before + LINE - begun, source - begun, target - begun, begun)
            done = LINE - begun
            source, target, size = source + done, target + done, size - done
    if after:
        move(source + size - LINE, after)
        size -= (target + size) % LINE
        while before and size > 0:  # whole lines: no call, as runs are often few of them
            stream(source, target)
            source, target, size = source + LINE, target + LINE, size - LINE
    copy(source, target, size, streamed, 0)


@compiled(returns=INT)
def _layout():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
