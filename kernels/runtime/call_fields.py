"""Fields of a contraction: what a run of the macrokernel is told, and what a call is that has one.

Runs read what is before `MACROKERNEL` alone.
"""

from __future__ import annotations

STATE = 0
"""Address of the state before a run, see `state`."""

BOXES = 1
"""Address of the boxes, see `box_fields`."""

BOX_COUNT = 2
"""How many boxes there are."""

SWAPPED = 3
"""Whether the second operand has the rows."""

MACROKERNEL = 4
"""Address of `macrokernel.run`."""

KEPT = 5
"""Addresses of the arrays that stand for the operands of each call; 0 for one that is given."""

PLACES = 7
"""Address of the addresses of the epilogue's operands; 0 among them for one that is given."""

PLACE_COUNT = 8
"""How many operands the epilogue has."""

SIZE = 9
