"""Fields of a box: what differs from one box of a plan to the next. `running.task` writes them."""

from __future__ import annotations

OFFSETS = 0
"""Bytes from the bases of the output, the rows' and the columns' operand."""

TABLES = 3
"""Addresses of the roles' tables."""

TILES = 7
"""How many register tiles of rows and of columns there are."""

HAS_FIRST_SUM = 9
"""Whether the box has the first k of all."""

VECTOR_PLACES = 10
"""How many bytes the vectors of C are away from the box's origin, all numbers in one by bitwise or:
a power of two divides it if it divides each."""

STAGED = 11
"""Whether C that lies neither in whole lines nor in pieces of them goes through the staging
buffer."""

CHANGED = 12
"""Whether the rows' and the columns' operand differ from those of the box before."""

NEXT_CHANGE = 14
"""How many boxes later the rows' and the columns' operand differ again; 0 for never."""

WINDOWS = 16
"""Addresses of the records of the rows' and the columns' window copy; 0 where there is none."""

PREPARED = 18
"""Bytes from the beginning of the rows' and the columns' prepared copy to what the box has of it.
"""

PREPARED_PANEL = 20
"""Bytes of a micro-panel of either prepared copy; 0 where there is none."""

PREPARED_BATCH = 22
"""Bytes of a batch of either prepared copy."""

PREPARES = 24
"""Whether either prepared copy has what the box has of it from this box, and not from one before.
"""

HAS_LAST_SUM = 26
"""Whether the box has the last k of all."""

SUM_COUNT = 27
"""How many k it has."""

OPERANDS = 28
"""Address of what an epilogue reads in the box, see `epilogue_fields`; 0 without one."""

STREAMS_PIECES = 29
"""Whether C is written in whole vectors and long runs, after sums too short to prefetch it: these
may go past the caches in pieces of lines."""

LEAD_BYTES = 30
"""Bytes from the box's origin in C to its first whole vector: `VECTOR_PLACES` count from there."""

NEXT_OUTPUT = 31
"""Bytes in C from the box to the next one that has the same tables; 0 if none has."""

SIZE = 32
