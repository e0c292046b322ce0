"""Fields of tilings whose traffic is counted: what `traffic_walk` knows of their loops.

`tilesolve.model.compiled_traffic` writes them. First come numbers, then addresses of arrays. Loops
count from the innermost one, places from the registers, tensors from the output.
"""

from __future__ import annotations

LETTERS, DEPTH, LOOPS, PLACES, TENSORS, FORMS, FOOTPRINTS, TILINGS = range(8)
"""How many there are of each; of the depth, steps of a letter at most, its extent included."""

CALL, HELD, SIDES = range(8, 11)
"""Loops of a call, those over which registers hold the output, and how many of those that run in
some tiling lanes and written-out code go over."""

UNREAD = 11
"""2 if no place reads C before it is written, 1 if registers alone do not, else 0."""

# Of tilings: of each letter

CHAINS, OFFSETS = range(12, 14)
"""How many chains of steps it has, and where the first one begins."""

SIZES, COUNTS, CORNERS = range(14, 17)
"""Of each step of each chain: iterations, how many tiles there are, and what they begin at
multiples of."""

NUMBERS = 17
"""The chain that each tiling has."""

# What is found: of each place and tensor, of each tensor, and the calls, for each tiling

MOVED, PACKING, VOLUMES, PACKED, CALLS = range(18, 23)

# What is worked out

KEPT_LETTER, KEPT_STEP, KEPT_COUNT = range(23, 26)
"""Of loops that run in some tiling: letter and step; and how many are among the first ones."""

LENGTHS, TIMES = range(26, 28)
"""Of parts of a range, how long they are and how often they come."""

TRIPS, FIRST, GRID, BOX = range(28, 32)
"""Of one tiling: trips of loops that run, else 0; where each letter's chain is; what the present
box begins at multiples of, and its sides."""

TOUCHED, CAME, OWN, LAST = range(32, 36)
"""Footprints; what has come in; and of what is read and of each array the last loop so far that
moves it."""

REACHES, POSITIONS = range(36, 38)
"""Of axes of several letters, by their last one: how far a box reaches, and what it touches."""

# Of each letter

STEPS = 38

# Of each loop

LOOP_LETTER, LOOP_STEP, LOOP_SIDE = range(39, 42)
"""Its letter, the step that all its trips make, and whether lanes or written-out code walk it."""

# Of each form: an array, or its copy, as it lies

FORM_LETTERS, FORM_AXES, FORM_ELEMENT, FORM_BYTES, FORM_WINDOWS = range(42, 47)
"""The bits of its letters, how many there are, bytes of an element, and of the array; and whether
it has windows: 0 if each axis is a letter, 2 if one has several, else 1."""

AXIS_LETTER, AXIS_EXTENT, AXIS_PITCH, AXIS_STEP, AXIS_ENDS = range(47, 52)
"""Of each letter its axis, in rows of as many as there are letters: the last axis first, or with
windows the first. How far it moves, in bytes and in positions; and whether the axis ends there."""

# Of each footprint: what a form touches after each loop

FOOTPRINT_FORM, FOOTPRINT_LINE, FOOTPRINT_LARGEST, FOOTPRINT_WIDTH = range(52, 56)
"""Of which form, in lines of how many bytes (0: all that lies between counts), whether of largest
boxes, how many times as wide."""

# Of each tensor

ACCESSED, COPIED, COPY_LOOPS, COPY_LEVEL, COPY_WIDTH, COPY_FOOTPRINT = range(56, 62)
"""The form of the array; 1 if calls fill a copy, 2 if it was made before; loops that use one
filling; the place that it lives in; its bytes beside the array's; and its footprint."""

# Of each place and tensor

READ_FORM, HELD_FOOTPRINT, MEAN_FOOTPRINT, SOURCE_FOOTPRINT = range(62, 66)
"""The form that is read there; the footprints that are held and that move; and those of what copies
are made from."""

# Of each place

CAPACITY, OUTPUT_FOOTPRINT = range(66, 68)
"""Bytes, and what the output has."""

OPTIONS, LIMITS = range(68, 70)

SIZE = 70

OUTPUT_WIDTH, WHOLE_SUM_PASSES, PACK_CROSSINGS = range(3)
"""Options: how many times as wide the output is while it is summed; see `constants.policy`."""

MOST_SCORE, OVERLAP, WORK_SECONDS, CALL_SECONDS, FIRST_SECONDS = range(5)
"""Limits: the score beyond which a tiling is of no use, whose calls are then infinite; what scores
have of other times than the longest; and seconds of the bare arithmetic, of a call, of each element
of each tensor that is packed, and, for each place, of a byte of the output and of an operand."""
