"""Fields of a state: what the macrokernel knows of a plan and of where it is in it.

A state is an array of 8-byte words. `tilesolve.running.task` writes it, and compiled functions read
it: a module's numbers are constants to them. Fields "for each operand" are a word for the rows'
operand and one for the columns'.
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.codegen import pack, shape
from tilesolve.packing.offset_tables import TileLayout

PREPARED_LEVEL = tuning.MAX_LEVELS
"""Stands for a level of packed copies that were prepared: none that is walked."""

ROWS, COLUMNS, SUMS, BATCHES = range(4)
"""The roles of letters."""

PACKED, IN_PLACE, HALVED, MIXED = range(4)
"""The kinds of microkernels: they read micro-panels, read in place, read as the others of a run do
that packs rows and have last vectors that are half as wide, or read rows from micro-panels and
columns in place."""

KERNEL_KINDS = 4
"""How many kinds there are."""

MAX_TILE_INDICES = 64
"""Indices whose packed offsets are tabulated: more than any register tile has."""

(
    KIND_COPY,
    KIND_TRANSPOSE_SUMS,
    KIND_TRANSPOSE_ROWS,
    KIND_GATHER,
    KIND_FEW_SUMS,
    KIND_FEW_ROWS,
    KIND_EVEN_ROWS,
) = range(len(pack.KINDS))
"""The packing kernels: numbers of `pack.KINDS`."""

TRACE_WORDS = 10
"""Words of one traced call: first index and count of rows, columns and sums, the batch, the mode of
writing, the kind of kernel, the box."""

MICROKERNEL_FRAME = 0
"""The microkernel's frame: `frames` has its fields."""

PREFETCHES_NEXT_TILE = MICROKERNEL_FRAME + shape.FIELDS.index("prefetch_next")
"""Whether tiles prefetch the next one's first lines before they write C by non-temporal stores: a
field of the frame."""

PACKER_FRAME = MICROKERNEL_FRAME + len(shape.FIELDS)
"""The packing kernels' frame: `frames` has its fields."""

# Loops

TOP = PACKER_FRAME + len(pack.FIELDS)
"""The outermost level that is walked within a box."""

ORDERS = TOP + 1
"""For each level its four roles, innermost loop first."""

LOOPS = ORDERS + 4 * tuning.MAX_LEVELS
"""For each level `LOOP_WORDS`: the current segment of each role, `LOOP_ENDS` words further their
ends, `LOOP_BEGINS` words further their beginnings."""

LOOP_ENDS, LOOP_BEGINS, LOOP_WORDS = 4, 8, 12

# Packed copies, for each operand

PACKED_LEVEL = LOOPS + LOOP_WORDS * tuning.MAX_LEVELS
"""At which level it is packed; 0: it is read in place; `PREPARED_LEVEL`: it was packed before."""

PACK_KIND = PACKED_LEVEL + 2
"""Which packing kernel: a number of `pack.KINDS`."""

SOURCE = PACK_KIND + 2
"""Address of the operand in this box."""

COPY = SOURCE + 2
"""Address of its packed copy; before a run the bytes from the workspace's beginning."""

STEP_BYTES = COPY + 2
"""Bytes of one k of a micro-panel."""

PANEL_BYTES = STEP_BYTES + 2
"""Bytes of a micro-panel."""

GROUP = PANEL_BYTES + 2
"""Indices of a micro-panel."""

COPIED_SEGMENTS = GROUP + 2
"""Three words: the segments of rows or columns, of sums and of batches that the copy has; -1 if
none."""

COPIED_GROUP = COPIED_SEGMENTS + 6
"""The copy's first micro-panel, as a number among the operand's."""

COPIED_SUM = COPIED_GROUP + 2
"""The copy's first k."""

COPIED_BATCH = COPIED_SUM + 2
"""The copy's first batch."""

BATCH_BYTES = COPIED_BATCH + 2
"""Bytes of one batch of the copy."""

WINDOW_COPY = BATCH_BYTES + 2
"""Address of its window copy; before a run the bytes from the workspace's beginning."""

PREPARED_COPY = WINDOW_COPY + 2
"""Address of its prepared copy; 0: none."""

PACKED_OFFSETS = PREPARED_COPY + 2
"""`MAX_TILE_INDICES` words: offsets of packed rows or columns, for kernels that read the other
operand in place."""

PACKED_SUM_OFFSETS = PACKED_OFFSETS + 2 * MAX_TILE_INDICES
"""Address of a table of offsets of packed k."""

PACKERS = PACKED_SUM_OFFSETS + 2
"""Addresses of its packing kernels."""

# The prefetch queue, for each operand: a line for each pair of offsets from two lists

QUEUE_OUTER = PACKERS + 2 * len(pack.KINDS)
"""Address of the next offset of the outer list."""

QUEUE_OUTER_END = QUEUE_OUTER + 2
"""Address of the outer list's end."""

QUEUE_INNER = QUEUE_OUTER_END + 2
"""Address of the inner list."""

QUEUE_INNER_COUNT = QUEUE_INNER + 2
"""How many offsets the inner list has."""

QUEUE_INNER_AT = QUEUE_INNER_COUNT + 2
"""Which of them is next."""

QUEUE_SOURCE = QUEUE_INNER_AT + 2
"""The address that offsets count from."""

QUEUE_LINES_PER_TILE = QUEUE_SOURCE + 2
"""Lines that each tile prefetches; 0 if the queue is empty."""

PREFETCHED = QUEUE_LINES_PER_TILE + 2
"""Whether lines of the operand are prefetched before it is packed again. Never where kernels read
in place: they prefetch none."""

# The output

OUTPUT = PREFETCHED + 2
"""Address of the output in this box."""

HAS_FIRST_SUM = OUTPUT + 1
"""Whether this box has the first k of all."""

FIRST_MODES = HAS_FIRST_SUM + 1
"""How C is written the first time, for each way of lying there: a number of `TileLayout`."""

LATER_MODES = FIRST_MODES + len(TileLayout)
"""How C is written all further times."""

BETAS = LATER_MODES + len(TileLayout)
"""Two words of beta, for the first time; two words of one for later."""

NON_TEMPORAL_BYTES = BETAS + 4
"""Bytes that addresses must be multiples of for non-temporal stores; 0 if there are none."""

PREFETCHES_PANELS = NON_TEMPORAL_BYTES + 1
"""Whether the second cache cannot keep the rows' copy: tiles prefetch its next micro-panels."""

WHOLE_MODE = PREFETCHES_PANELS + 1
"""How C is written in whole vectors the first time where no store is non-temporal."""

STAGES_OUTPUT = WHOLE_MODE + 1
"""Whether C in this box goes through the staging buffer where a microkernel cannot write it by
non-temporal stores."""

STAGING_BUFFER = STAGES_OUTPUT + 1
"""Address of the staging buffer."""

STAGED_HALF = STAGING_BUFFER + 1
"""Bytes from there to the half of it that the next tiles are written to."""

STORING_VECTORS = STAGED_HALF + 1
"""Vectors of C from which on packed microkernels store such lines; 0 where none do."""

LISTS_BY_VECTORS = STORING_VECTORS + 1
"""Whether a step of k of packed microkernels prefetches a listed line for each vector of rows."""

LISTED_PER_STEP = LISTS_BY_VECTORS + 1
"""How many lines a step of the next call prefetches."""

STAGED_ACROSS = LISTED_PER_STEP + 1
"""Whether runs of C go from column to column, and not from row to row."""

STAGED_RUN_ROWS = STAGED_ACROSS + 1
"""Rows of a run that goes across; else 1."""

STAGED_STEP_BYTES = STAGED_RUN_ROWS + 1
"""Bytes of each column of such a run, or of each row of one that goes down."""

STAGED_RUN_PITCH = STAGED_STEP_BYTES + 1
"""Bytes from one run in the staging buffer to the next."""

STAGED_FIRST_ROW = STAGED_RUN_PITCH + 1
"""The first row of the tiles that go on in the staging buffer, then their first column."""

STAGED_FIRST_COLUMN = STAGED_FIRST_ROW + 1

STAGED_END_ROW = STAGED_FIRST_COLUMN + 1
"""One more than their last row, then the same for columns."""

STAGED_END_COLUMN = STAGED_END_ROW + 1

# The epilogue

EPILOGUE = STAGED_END_COLUMN + 1
"""Address of the pass of `epilogues` over what a segment of the first level wrote; 0 for none."""

EPILOGUE_PROGRAM = EPILOGUE + 1
"""Address of its program, see `epilogue_fields`."""

OPERANDS = EPILOGUE_PROGRAM + 1
"""Address of the addresses of its operands."""

OPERAND_COUNT = OPERANDS + 1
"""How many operands it has."""

BOX_OPERANDS = OPERAND_COUNT + 1
"""Address of `epilogue_fields.OPERAND_WORDS` for each of them in this box."""

HAS_LAST_SUM = BOX_OPERANDS + 1
"""Whether this box has the last k of all."""

SUM_COUNT = HAS_LAST_SUM + 1
"""How many k this box has."""

BEGINS_WITH = SUM_COUNT + 1
"""One more than the number of the operand that sums of rows begin with; 0 for none."""

BEGINS_TABLE = BEGINS_WITH + 1
"""Address of the offsets of its rows in this box."""

ADDS = BEGINS_TABLE + 1
"""One more than the number of the operand that lies as C does and is added first; 0 for none."""

BOUND_COUNT = ADDS + 1
"""How many bounds microkernels keep what is written last within: those of the frame."""

KERNELS_BEGIN = BOUND_COUNT + 1
"""Whether microkernels do the first steps of the program, where the sums have no factor."""

LATER_PROGRAM = KERNELS_BEGIN + 1
"""Address of the program of the steps after these; 0 for none."""

# Boxes and calls

TABLES = LATER_PROGRAM + 1
"""Addresses of the roles' tables."""

TILES = TABLES + 4
"""How many register tiles of rows and of columns there are."""

BASES = TILES + 2
"""Addresses of the output, the rows' operand and the columns' operand; before a run the bytes from
the arrays' first elements."""

TRACE = BASES + 3
"""Address of the trace; 0 if calls are not traced."""

CALLS = TRACE + 1
"""Calls of the microkernel so far."""

PREFETCH_LIST = CALLS + 1
"""Where addresses of lines to prefetch are listed, behind one of a line in the first cache."""

BOXES = PREFETCH_LIST + 1
"""Address of the boxes: `box_fields` for each."""

BOX = BOXES + 1
"""The number of the current box."""

NEXT_TILES = BOX + 1
"""Bytes in C from the tiles of level 1 that are walked now to those that follow; 0 if none do."""

CURRENT_PANELS = NEXT_TILES + 1
"""Address of the first of the packed rows that are multiplied by their columns now."""

TILES_DONE = CURRENT_PANELS + 1
"""Tiles that these rows have gone through so far."""

SELF = TILES_DONE + 1
"""Address of the state."""

STOP = SELF + 1
"""Address of a word that is not 0 once runs are to end before they are done."""

SINGLE = STOP + 1
"""Whether a real number takes four bytes, not eight."""

STOPWATCH = SINGLE + 1
"""Address of the record of `kernels.probes.packing_time`; 0 where packing is not timed."""

PACK_SEGMENT = STOPWATCH + 1
"""Address of `pack_segment.pack_segment`; `macrokernel.addresses` has this and three
more."""

ENQUEUE_NEXT = PACK_SEGMENT + 1
"""Address of `prefetch_queue.enqueue_next`."""

WALK_LEVEL = ENQUEUE_NEXT + 1
"""Address of the macrokernel's function for a level."""

TABULATE_OFFSETS = WALK_LEVEL + 1
"""Address of `pack_segment.tabulate_offsets`."""

COPY_WINDOWS = TABULATE_OFFSETS + 1
"""Address of `copy_windows.copy_windows`; 0 where nothing is copied."""

LAY_OUT_TRANSPOSED = COPY_WINDOWS + 1
"""Address of `transposed_output.lay_out_transposed`; 0 where C is written in place."""

TRANSPOSE_TILES = LAY_OUT_TRANSPOSED + 1
"""Address of `transposed_output.transpose_tiles`."""

KERNELS = TRANSPOSE_TILES + 1
"""Addresses of the microkernels, by kind, groups of rows and columns."""

SIZE = KERNELS + KERNEL_KINDS * tuning.MAX_TILE_VECTORS * tuning.MAX_TILE_COLUMNS
