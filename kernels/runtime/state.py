"""States: what the macrokernel knows of a plan and of where it is in it, as an array of integers.

A state is written by `tilesolve.running.task` and read by compiled code, which takes its fields for
constants. Fields of operands are pairs: of the rows' and of the columns' operand.
"""

from __future__ import annotations

from enum import IntEnum

from tilesolve.kernels.codegen import pack, shape
from tilesolve.kernels.tuning import MAX_TILE_COLUMNS, MAX_TILE_VECTORS
from tilesolve.packing.offset_tables import TileLayout

LEVELS = 8
"""Levels of a nest at most, the cells included."""

ROWS, COLUMNS, SUMS, BATCHES = range(4)
"""The roles of indices."""

PACKED, PLACED, HALVED = range(3)
"""The kinds of microkernels."""

KINDS = 3
"""How many these are."""

WIDEST = 64
"""Indices whose packed offsets are tabulated: more than any tile has."""

TRACE = 10
"""Integers of one traced call: first index and count of rows, columns and sums, the batch, the
way of writing, the kind of kernel, the box."""


class Ahead(IntEnum):
    """Fields of what is to be fetched: a line for each pair of offsets from two lists.

    Examples
    --------
    >>> Ahead.OUTER < Ahead.SIZE
    True
    """

    OUTER = 0
    """Address of the next offset of the outer list."""
    END = 1
    """Address of its end."""
    INNER = 2
    """Address of the inner list."""
    INNERS = 3
    """How many offsets it has."""
    AT = 4
    """Which of them is next."""
    SOURCE = 5
    """The address that offsets count from."""
    SHARE = 6
    """Lines for each tile."""
    SIZE = 7


class Past(IntEnum):
    """Fields of how tiles of C lie in a room of their own before they go past the caches.

    Examples
    --------
    >>> Past.SIZE - Past.FIRSTS
    4
    """

    WANTED = 0
    """Whether what a microkernel cannot stream in this box may go by way of the room."""
    ROOM = 1
    """Address of the room; tables of where its rows and columns are stand behind it."""
    ACROSS = 2
    """Whether runs of C go from column to column, and not from row to row."""
    PIECE = 3
    """Rows of a run that goes across."""
    PITCH = 4
    """Bytes from one run in the room to the next."""
    FIRSTS = 5
    """First row and first column of a call, then its last ones and one."""
    SIZE = 9


class S(IntEnum):
    """Fields of a state.

    Examples
    --------
    >>> S.PACKER - S.FRAME >= len(shape.FIELDS)
    True
    """

    FRAME = 0
    """The microkernel's frame: `shape.FIELDS`."""
    ENTERING = FRAME + shape.FIELDS.index("entering")
    """Whether tiles ask for the next one's first lines before they write C past the caches."""
    PACKER = FRAME + len(shape.FIELDS)
    """The packing kernels' frame: `pack.FIELDS`."""
    TOP = PACKER + len(pack.FIELDS)
    """The outermost level that is walked within a box."""
    ORDERS = TOP + 1
    """For each level its four roles, innermost loop first."""
    SCRATCH = ORDERS + 4 * LEVELS
    """For each level the current segment of each role, their ends and their beginnings."""
    LEVEL = SCRATCH + 12 * LEVELS
    """At which level the operand is packed; 0: never."""
    WAY = LEVEL + 2
    """Which packing kernel: a number of `pack.KINDS`."""
    SOURCE = WAY + 2
    """Address of the operand in this box."""
    BUFFER = SOURCE + 2
    """Address of its packed copy; before a run how far into the run's memory it is."""
    STEP = BUFFER + 2
    """Bytes of one k of a strip."""
    STRIP = STEP + 2
    """Bytes of a strip."""
    GROUP = STRIP + 2
    """Indices of a group."""
    AHEAD = GROUP + 2
    """For each operand what is to be fetched before it is packed again: `Ahead`."""
    HELD = AHEAD + 2 * Ahead.SIZE
    """What the copy is of: segment of rows or columns, of sums, of batches; -1 if of nothing."""
    ORIGIN = HELD + 6
    """First group and first k of the copy."""
    BATCH = ORIGIN + 4
    """First batch of the copy."""
    PLANE = BATCH + 2
    """Bytes of one batch of the copy."""
    PLACED_ROWS = PLANE + 2
    """Offsets of packed rows, then of packed columns, for kernels that read in place."""
    PLACED_SUMS = PLACED_ROWS + 2 * WIDEST
    """Address of a table of offsets of packed k."""
    PACKERS = PLACED_SUMS + 2
    """Addresses of the packing kernels of both operands."""
    OUTPUT = PACKERS + 2 * len(pack.KINDS)
    """Address of the output in this box."""
    FIRST = OUTPUT + 1
    """Whether this box has the first k of all."""
    WRITE = FIRST + 1
    """How C is written the first time, for each way of lying there: a number of `TileLayout`."""
    LATER = WRITE + len(TileLayout)
    """The same for all further times."""
    BETA = LATER + len(TileLayout)
    """Two words of beta, for the first time; two words of one for later."""
    STREAMING = BETA + 4
    """Bytes that addresses must be multiples of to be streamed to; 0 if nothing is streamed."""
    FORESEEN = STREAMING + 1
    """Whether lines of the operand are fetched before it is packed again; never where kernels read
    in place, which ask for none."""
    FAR = FORESEEN + 2
    """Whether the second cache cannot keep the rows' copy: its next strips are asked for then."""
    STORE = FAR + 1
    """How C is written in whole vectors the first time where it is not streamed."""
    TABLES = STORE + 1
    """Addresses of the roles' tables."""
    CELLS = TABLES + 4
    """How many cells of rows and of columns there are."""
    BASES = CELLS + 2
    """Addresses of the output, the rows' operand and the columns' operand; before a run how far
    from the arrays' first elements they are."""
    PAST = BASES + 3
    """How C goes past the caches that does not lie in whole lines: `Past`."""
    TRACING = PAST + Past.SIZE
    """Where the trace begins; 0 if calls are not traced."""
    CALLS = TRACING + 1
    """Calls of the microkernel so far."""
    ROOM = CALLS + 1
    """Where the addresses of lines to be fetched are written, after one of a line at hand."""
    STEPS = ROOM + 1
    """Address of the steps."""
    MEETING = STEPS + 1
    """Address of the first packed rows of those that meet their columns now."""
    MET = MEETING + 1
    """Tiles so far since those rows came."""
    BOX = MET + 1
    """The number of the current box."""
    SELF = BOX + 1
    """Address of the state."""
    STOP = SELF + 1
    """Address of a word that is not 0 once runs are to end before they are done."""
    SINGLE = STOP + 1
    """Whether a real number takes four bytes, not eight."""
    PACK = SINGLE + 1
    """Where `filling.pack` is; this and what follows is in `macrokernel.PLACES`."""
    EXPECT = PACK + 1
    """Where `ahead.expect` is."""
    DESCEND = EXPECT + 1
    """Where the macrokernel's function for segments is."""
    KERNELS = DESCEND + 1
    """Addresses of the kernels that read strips, of those that read in place, and of those whose
    last vectors are half as wide."""
    SIZE = KERNELS + KINDS * MAX_TILE_VECTORS * MAX_TILE_COLUMNS


class Step(IntEnum):
    """Fields of a step: what differs from one box to the next.

    Examples
    --------
    >>> Step.TABLES < Step.SIZE
    True
    """

    OFFSETS = 0
    """Bytes from the bases of the output, the rows' and the columns' operand."""
    TABLES = 3
    """Addresses of the roles' tables."""
    CELLS = 7
    """How many cells of rows and of columns there are."""
    FIRST = 9
    """Whether the box has the first k of all."""
    ALIGNED = 10
    """Whether every vector of C is whole lines away from the box's origin."""
    LONG = 11
    """Whether C lies in runs that are long enough to go past the caches in parts of lines, on a
    machine where that gains something."""
    FRESH = 12
    """Whether the rows' and the columns' operand differ from those of the step before."""
    NEXT = 14
    """How many steps later the rows' and the columns' operand differ again; 0 for never."""
    SIZE = 16
