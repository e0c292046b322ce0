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

ALIGNED = 10
"""Whether every vector of C is whole lines away from the box's origin."""

STAGED = 11
"""Whether C that does not lie in whole lines goes through the staging buffer."""

CHANGED = 12
"""Whether the rows' and the columns' operand differ from those of the box before."""

NEXT_CHANGE = 14
"""How many boxes later the rows' and the columns' operand differ again; 0 for never."""

SIZE = 16
