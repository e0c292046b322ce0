"""Fields of a window copy's record: what one box of an operand is copied from and to.

Behind the fields stand `AXIS_WORDS` for each axis, outermost first.
"""

from __future__ import annotations

SOURCE = 0
"""Bytes from the array's first element to the first one that is copied."""

ORIGIN = 1
"""Bytes from the copy's beginning to the place of the box's first indices."""

UNIT_BYTES = 2
"""Bytes that lie side by side in the array and in the copy, whatever the box is."""

AXES = 3
"""How many axes there are."""

SIZE = 4
"""Words before those of the axes."""

# Of an axis

BEFORE = 0
"""Zeros before what is copied."""

COUNT = 1
"""What is copied."""

AFTER = 2
"""Zeros behind it."""

STEP = 3
"""Bytes from one place to the next in the array."""

PITCH = 4
"""The same in the copy."""

AXIS_WORDS = 5
