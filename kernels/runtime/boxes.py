"""Boxes: what the macrokernel sets for each, and what prepared copies have of it.

A box is a part of the problem that is tabulated at once; `box_fields` are its fields, `s` is a
state (`state`).
"""

from __future__ import annotations

from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import box_fields, call_fields, state
from tilesolve.kernels.runtime.compiled import (
    INT,
    as_pointer,
    compiled,
    inlined,
    invoke,
    on_stack,
)
from tilesolve.packing import window_fields
from tilesolve.packing.offset_tables import TileLayout
from tilesolve.packing.sizes import VECTOR_BYTES, WORD_BYTES

# What `on_stack` makes room for has to be a plain global.
_STATE_WORDS = state.SIZE


@inlined
def enter_box(s, record, number):
    """Set what differs from one box to the next, given the fields of one."""
    box = as_pointer(record)
    s[state.BOX] = number
    s[state.OUTPUT] = s[state.BASES] + box[box_fields.OFFSETS]
    for side in range(2):
        source = s[state.BASES + 1 + side]
        s[state.SOURCE + side] = source + box[box_fields.OFFSETS + 1 + side]
        s[state.TILES + side] = box[box_fields.TILES + side]
        windows = box[box_fields.WINDOWS + side]
        if windows:
            copy = s[state.WINDOW_COPY + side]
            s[state.SOURCE + side] = copy + as_pointer(windows)[window_fields.ORIGIN]
            if box[box_fields.CHANGED + side]:
                invoke(s[state.COPY_WINDOWS], s[state.SELF], source, copy, windows)
        if box[box_fields.CHANGED + side]:
            s[state.COPIED_SEGMENTS + 3 * side] = -1
        if s[state.PREPARED_COPY + side]:
            s[state.COPY + side] = s[state.PREPARED_COPY + side] + box[box_fields.PREPARED + side]
            s[state.PANEL_BYTES + side] = box[box_fields.PREPARED_PANEL + side]
            s[state.BATCH_BYTES + side] = box[box_fields.PREPARED_BATCH + side]
            s[state.COPIED_GROUP + side] = s[state.COPIED_SUM + side] = 0
            s[state.COPIED_BATCH + side] = 0
            if not s[state.PACKED_LEVEL + 1 - side]:
                invoke(s[state.TABULATE_OFFSETS], s, side)
    for role in range(4):
        s[state.TABLES + role] = box[box_fields.TABLES + role]
    s[state.HAS_FIRST_SUM] = box[box_fields.HAS_FIRST_SUM]
    s[state.HAS_LAST_SUM] = box[box_fields.HAS_LAST_SUM]
    s[state.SUM_COUNT] = box[box_fields.SUM_COUNT]
    s[state.BOX_OPERANDS] = box[box_fields.OPERANDS]
    width = s[state.NON_TEMPORAL_BYTES]
    places = (s[state.OUTPUT] + box[box_fields.LEAD_BYTES]) | box[box_fields.VECTOR_PLACES]
    mode = s[state.WHOLE_MODE]
    if width and places % max(width, 1) == 0:
        mode = Mode.STREAM
    elif width and places % VECTOR_BYTES == 0 and box[box_fields.STREAMS_PIECES]:
        mode = Mode.STREAM_PIECES
    s[state.FIRST_MODES + TileLayout.WHOLE] = mode
    s[state.STAGES_OUTPUT] = width > 0 and mode == s[state.WHOLE_MODE] and box[box_fields.STAGED]


@compiled(INT, INT, INT, INT)
def pack_boxes(words, side, source, target):
    """Make a prepared copy of an operand: what each box has of it, one after the other.

    Parameters
    ----------
    words
        Address of the fields of a call (`call_fields`).
    side
        0 for the rows' operand, 1 for the columns'.
    source
        Address of the array's first element.
    target
        Address of the copy.
    """
    call = as_pointer(words)
    here = on_stack(_STATE_WORDS)
    s, before = as_pointer(here), as_pointer(call[call_fields.STATE])
    for field in range(state.SIZE):
        s[field] = before[field]
    s[state.SELF] = here
    s[state.PACKED_LEVEL + side] = s[state.TOP]
    for number in range(call[call_fields.BOX_COUNT]):
        box = as_pointer(call[call_fields.BOXES] + WORD_BYTES * box_fields.SIZE * number)
        if box[box_fields.PREPARES + side]:
            offset = s[state.BASES + 1 + side] + box[box_fields.OFFSETS + 1 + side]
            s[state.SOURCE + side] = source + offset
            s[state.COPY + side] = target + box[box_fields.PREPARED + side]
            s[state.COPIED_SEGMENTS + 3 * side] = -1
            for role in range(4):
                s[state.TABLES + role] = box[box_fields.TABLES + role]
            X, K = as_pointer(s[state.TABLES + side]), as_pointer(s[state.TABLES + state.SUMS])
            B = as_pointer(s[state.TABLES + state.BATCHES])
            invoke(s[state.PACK_SEGMENT], s, side, 0, 0, 0, X, K, B)
