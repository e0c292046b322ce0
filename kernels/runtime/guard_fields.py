"""Fields of a guard: what a call is compared with, and what computes it then.

`array_guard.describe_arrays` for each array given follows them.
"""

from __future__ import annotations

RUN = 0
"""Address of the compiled function that computes: it takes what `TOLD` has, the addresses of the
arrays' and of the numbers' words, and that of the workspace; it returns 0 if it failed."""

TOLD = 1
"""What that function is told."""

NUMBERS = 2
"""How many numbers a call is given."""

NUMBER_KINDS = 3
"""Address of `NUMBER_WORDS` for each of them."""

IS_BRIEF = 4
"""Whether a call keeps Python's lock, as others would hardly run meanwhile."""

NAMES = 5
"""Address of the addresses of the numbers' names, for calls of plans."""

VALUES = 6
"""Address of the numbers' words where calls of plans have the same; else 0."""

NEW = 7
"""Address of a Python function that returns an array for the first output."""

WORKSPACE_BYTES = 8
"""Of the workspace."""

GIVEN = 9
"""How many arrays a call is given, the outputs first."""

NONE = 10
"""Address of Python's `None`; `fast_call.addresses` has this and what follows."""

ARRAY = 11
"""Address of the type of arrays."""

FLOAT = 12
"""Address of the type of Python's floats."""

ARRAYS = 13
"""The arrays given, in their order: `array_guard.describe_arrays` for each."""

# Fields of a number

TYPE = 0
"""Address of the type that it may have beside Python's floats: that of its integers, or of truth
values."""

IS_REAL = 1
"""Whether it may be a float, and its word is that of a floating-point number."""

IS_SINGLE = 2
"""Whether that has four bytes."""

LOWEST = 3
"""The least integer that it may be."""

HIGHEST = 4
"""The largest integer."""

SMALLEST = 5
"""The smallest float, as the word of a double."""

LARGEST = 6
"""The largest float, as the word of a double."""

NUMBER_WORDS = 7
