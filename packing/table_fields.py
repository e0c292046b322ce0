"""Fields of a table: where it says what begins where. `offset_tables.offset_table` writes them.

They are plain integers, constants to compiled functions.
"""

from __future__ import annotations

BOUNDS = 0
"""First of at most 8 levels' bounds."""

OFFSETS = 8
"""First of the three tensors' offsets."""

GROUPS = 11
"""For each register tile the groups before it."""

GROUP_OFFSETS = 12
"""For each group the offset of its first index in the operand."""

GROUP_STARTS = 13
"""For each group the number of its first index."""

GROUP_COUNTS = 14
"""For each group its indices."""

GROUP_WHOLE = 15
"""For each group whether as many indices as a full one has follow each other in the operand, from
its first one on: those that it lacks may belong to the next group."""

STORED = 16
"""For each register tile a number of `TileLayout`: how its groups lie in the output."""

BLOCKS = 17
"""First of the fields of how each of the two operands is transposed: `BLOCK_WORDS` each."""

COUNTING = 37
"""0, 1, 2, …"""

ALIKE = 38
"""For each register tile how many, itself included, follow each other that are alike in size and in
how they lie in the output."""

LANES = 39
"""For each lane of each group its offset in the operand; lanes that a group lacks have that of its
last index, so that all can be read."""

STEADY = 40
"""For each index how many, itself included, follow each other at one distance in the output."""

GROUP_ENDS = 41
"""For each group the offset of its last index in the operand."""

SIZE = 44
"""Words before the data."""

# How one operand is transposed, from `BLOCKS` on: what each segment has begins where bounds say

BLOCK_BOUNDS = 0
"""Bounds of blocks, as many entries each as micro-panels have lanes."""

BLOCK_ENTRIES = 1
"""The entries of blocks."""

FEW_BOUNDS = 2
"""Bounds of blocks of few entries: what is too short for others."""

FEW_ENTRIES = 3
"""Their entries, of which some may be in another block, too."""

REST_BOUNDS = 4
"""Bounds of what is in no block."""

REST_ENTRIES = 5
"""The entries of that."""

LINE_BOUNDS = 6
"""Bounds of lines."""

LINE_OFFSETS = 7
"""Where the lines of the segments lie in the operand, lane by lane."""

EVEN_BOUNDS = 8
"""Bounds of blocks of groups whose lanes are one distance apart, as the groups are; these are in no
other block."""

EVEN_ENTRIES = 9
"""Their entries."""

BLOCK_WORDS = 10
