"""Fields of a call: what a run is told. `describe_arrays` for each array follows them."""

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
"""Address of `macrokernel.run`; `fast_call.ADDRESSES` has this and what follows."""

NONE = 5
"""Address of Python's `None`."""

ARRAY = 6
"""Address of the type of arrays."""

FLOAT = 7
"""Address of the type of Python's floats."""

ARRAYS = 8
"""The output, then both operands: `array_guard.describe_arrays` for each."""
