"""Fields of an epilogue: its program, and what it reads of each operand in a box."""

from __future__ import annotations

# The program: a number of steps, then `STEP_WORDS` for each

STEPS = 0
"""How many steps there are."""

SIZE = 1
"""Words before the steps."""

CODE = 0
"""What a step does: `SCALE`, `ADD`, or one of the functions."""

OPERAND = 1
"""The number of its operand."""

FIRST_NUMBER = 2
"""The bits of a double: the least value of a clip, the slope of a leaky one."""

SECOND_NUMBER = 3
"""The bits of a double: the largest value of a clip."""

STEP_WORDS = 4

SCALE, ADD, RELU, CLIP, LEAKY, SIGMOID, TANH, SILU, GELU, GELU_TANH = range(10)

# An operand in a box

BEGIN = 0
"""Bytes from its first element to that of the box's first indices."""

ROWS, COLUMNS, BATCHES = 1, 2, 3
"""Addresses of the offsets of each index."""

ROWS_STEADY, COLUMNS_STEADY = 4, 5
"""Addresses of how many indices, each itself included, follow each other at one distance."""

OPERAND_WORDS = 6
