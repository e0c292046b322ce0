"""Fields of a call: what a run is told. `describe_arrays` for each array given follows them."""

from __future__ import annotations

STATE = 0
"""Address of the state before a run, see `state`."""

BOXES = 1
"""Address of the boxes, see `box_fields`."""

BOX_COUNT = 2
"""How many boxes there are."""

SWAPPED = 3
"""Whether the second operand has the rows."""

RUN = 4
"""Address of `macrokernel.run`; `fast_call.addresses` has this and what follows."""

NONE = 5
"""Address of Python's `None`."""

ARRAY = 6
"""Address of the type of arrays."""

FLOAT = 7
"""Address of the type of Python's floats."""

GIVEN = 8
"""How many arrays a call is given: the output, the operands, those of the epilogue."""

KEPT = 9
"""Addresses of the arrays that stand for the operands of each call; 0 for one that is given."""

PLACES = 11
"""Address of the addresses of the epilogue's operands; 0 among them for one that is given."""

PLACE_COUNT = 12
"""How many operands the epilogue has."""

ARRAYS = 13
"""The arrays given, in their order: `array_guard.describe_arrays` for each."""
