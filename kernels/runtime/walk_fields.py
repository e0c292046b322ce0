"""Fields of a walk: what `transpose_walk.run` knows of two arrays.

`tilesolve.transposes.walk_setup` writes them.
"""

from __future__ import annotations

MAX_AXES = 64
"""Axes at most, as many as arrays have."""

# Fields of an axis

AXIS_EXTENT = 0

AXIS_TILE = 1
"""The extent of a tile."""

AXIS_TRIPS = 2
"""How many tiles."""

AXIS_TARGET_STEP = 3
"""Bytes between neighbours in the target."""

AXIS_SOURCE_STEP = 4
"""Bytes between neighbours in the source."""

AXIS_BUFFER_STEP = 5
"""Bytes between neighbours in the buffer, or again in the target where there is no buffer."""

AXIS_WORDS = 6

# Fields of a walk

ELEMENT_BYTES = 0
"""Bytes that stay together."""

BLOCKS = 1
"""For three sides of blocks, the longest first: the side, and its number in
`transpose_blocks.BLOCK_KINDS`; sides of 0 where elements are copied one by one."""

NON_TEMPORAL = 7
"""Whether whole lines are written by non-temporal stores."""

START = 8
"""Bytes from the first elements of target and source to those where the walk begins."""

COLUMNS = 10
"""The axis of columns."""

ROWS = 11
"""The axis of rows."""

RUN = 12
"""Bytes of a run for each element of its outermost axis, and that axis; 0 without a buffer."""

RUN_AXIS = 13

GROUP = 14
"""Rows that are transposed at once."""

PREFETCHES_NEXT_ROWS = 15
"""Whether the source of the rows that follow is prefetched, `TRANSPOSE_NEXT_ROWS_BYTES` beyond the
next ones, and not just what is `TRANSPOSE_PREFETCH_BYTES` ahead."""

KEPT = 16
"""Bytes from the buffer to where the ends of runs are kept for the tiles that go on there, 0 if
they are not; loops over such tiles are the innermost."""

WHOLE = 17
"""Whether blocks are written to the target by non-temporal stores of whole lines; there is no
buffer then."""

LISTED = 18
"""Whether all columns of a run are transposed together: those of all fills lie next to each other
in the buffer, and their distances in the source are listed. Kinds of blocks are then numbers of
`transpose_blocks.LISTED_KINDS`."""

JOINED = 19
"""Whether rows of a group follow each other in the target: they are one run."""

OFFSETS = 20
"""Bytes from the buffer to the offsets in source and buffer of what a run is filled with, or to
the distances of its columns."""

COUNTS = 21
"""Lengths of the four lists that follow the axes."""

OUTER_COUNT = 22

INNER_COUNT = 23

FILL_COUNT = 24

FILL_BYTES = 25
"""Bytes that each fill adds to a run where the one before it ended, 0 if fills lie otherwise: whole
lines of them go to the target `TRANSPOSE_FLUSH_BYTES` at a time."""

TILE_FUNCTION = 26
"""Address of the function for tiles: `transpose_walk.TILE_FUNCTION`."""

AXES = 27
"""`AXIS_WORDS` for each axis."""

LOOPS = AXES + AXIS_WORDS * MAX_AXES
"""The axes that loops go over tiles of, the outermost first."""

OUTER = LOOPS + MAX_AXES
"""The axes of a tile that neither runs nor rows cover."""

INNER = OUTER + MAX_AXES
"""Rows, if runs do not cover them, behind the axes that go on where they end: they are rows,
too."""

FILLS = INNER + MAX_AXES
"""The axes that runs cover beside columns and rows."""

SIZE = FILLS + MAX_AXES
