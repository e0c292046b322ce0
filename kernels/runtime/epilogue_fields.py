"""Fields of an epilogue: its program, and what it reads of each operand in a box."""

from __future__ import annotations

# The program: a number of steps, the bytes of an element, then `STEP_WORDS` for each step

STEPS = 0
"""How many steps there are."""

ITEM_BYTES = 1
"""Bytes of an element of C."""

SIZE = 2
"""Words before the steps."""

CODE = 0
"""Address of the compiled function of a step, see `codegen.epilogue_steps`."""

OPERAND = 1
"""The number of its operand; -1 for none."""

FIRST_NUMBER = 2
"""The bits of a double: the least value of a clip, the largest of a rectifier, or a slope."""

SECOND_NUMBER = 3
"""The bits of a double: the largest value of a clip."""

STEP_WORDS = 4

# An operand in a box

BEGIN = 0
"""Bytes from its first element to that of the box's first indices."""

ROWS, COLUMNS, BATCHES = 1, 2, 3
"""Addresses of the offsets of each index."""

ROWS_STEADY, COLUMNS_STEADY = 4, 5
"""Addresses of how many indices, each itself included, follow each other at one distance."""

OPERAND_WORDS = 6
