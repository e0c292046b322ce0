"""Fields of frames: where in a state the fields of both kinds of kernels' frames are.

What they mean is written in `microkernel` and in `pack`, whose kernels read them.
"""

from __future__ import annotations

from tilesolve.kernels.codegen import pack, shape
from tilesolve.kernels.runtime.state import MICROKERNEL_FRAME, PACKER_FRAME


def _microkernel(name: str) -> int:
    """Return the position of a field of the microkernel's frame."""
    return MICROKERNEL_FRAME + shape.FIELDS.index(name)


def _packer(name: str) -> int:
    """Return the position of a field of the packing kernels' frame."""
    return PACKER_FRAME + pack.FIELDS.index(name)


A = _microkernel("a")
B = _microkernel("b")
K = _microkernel("k")
A_STEP = _microkernel("a_step")
B_STEP = _microkernel("b_step")
ROWS_A = _microkernel("rows_a")
COLUMNS_B = _microkernel("columns_b")
SUMS_A = _microkernel("sums_a")
SUMS_B = _microkernel("sums_b")
NEXT_A = _microkernel("next_a")
A_AHEAD = _microkernel("a_ahead")
B_AHEAD = _microkernel("b_ahead")
MORE = _microkernel("more")
A_MOVE = _microkernel("a_move")
B_MOVE = _microkernel("b_move")
ROWS_A_MOVE = _microkernel("rows_a_move")
COLUMNS_B_MOVE = _microkernel("columns_b_move")
ROWS_C_MOVE = _microkernel("rows_c_move")
COLUMNS_C_MOVE = _microkernel("columns_c_move")
NEXT_STEP = _microkernel("next_step")
NEXT_A_MOVE = _microkernel("next_a_move")
FETCH = _microkernel("fetch")
FETCH_MOVE = _microkernel("fetch_move")
FETCHES = _microkernel("fetches")
C = _microkernel("c")
ROWS_C = _microkernel("rows_c")
COLUMNS_C = _microkernel("columns_c")
ROWS = _microkernel("rows")
MODE = _microkernel("mode")
ALPHA = _microkernel("alpha")
BETA = _microkernel("beta")
ROWS_B = _microkernel("rows_b")
LINES = _microkernel("lines")
LINES_MOVE = _microkernel("lines_move")
LINE_COUNT = _microkernel("line_count")
STARTS = _microkernel("starts")
STARTS_ROWS = _microkernel("starts_rows")
APART = _microkernel("apart")
BOUNDS = _microkernel("bounds")
LEAST = _microkernel("least")
LARGEST = _microkernel("largest")
C_AHEAD = _microkernel("c_ahead")

PACK_SOURCE = _packer("source")
PACK_TARGET = _packer("target")
PACK_PANEL = _packer("panel")
PACK_ROWS = _packer("rows")
PACK_GROUPS = _packer("groups")
PACK_SUMS = _packer("sums")
PACK_STEPS = _packer("steps")
PACK_FIRST = _packer("first")
PACK_COUNT = _packer("count")
PACK_LANES = _packer("lanes")
PACK_LATER = _packer("later")
