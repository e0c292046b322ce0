"""Epilogues: passes over tiles of C once their last products are added, while they are near.

`s` is a state (`state`), a program has `epilogue_fields`. A pass goes over blocks of runs: indices
of rows, or of columns, that are side by side in C and at one distance in each operand, for indices
of the others that are at one distance, too. What is done to a block is compiled for each step and
dtype by itself (`codegen.epilogue_steps`), this for all of them.
"""

from __future__ import annotations

from tilesolve.kernels.runtime import epilogue_fields as fields
from tilesolve.kernels.runtime import state
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    as_pointer,
    compiled,
    double,
    inlined,
    invoke,
)
from tilesolve.packing import table_fields as table
from tilesolve.packing.sizes import WORD_BYTES


@inlined
def _run_program(s, run, count, high, pitch, x, y, b, down):
    """Apply all steps to a block of C that begins at an index along its runs and one across."""
    program = s[state.EPILOGUE_PROGRAM]
    for number in range(as_pointer(program)[fields.STEPS]):
        step = as_pointer(program + WORD_BYTES * (fields.SIZE + fields.STEP_WORDS * number))
        operand, place, distance, apart = step[fields.OPERAND], 0, 0, 0
        if operand >= 0:
            told = s[state.BOX_OPERANDS] + WORD_BYTES * fields.OPERAND_WORDS * operand
            known = as_pointer(told)
            along = as_pointer(known[fields.ROWS if down else fields.COLUMNS])
            across = as_pointer(known[fields.COLUMNS if down else fields.ROWS])
            place = as_pointer(s[state.OPERANDS])[operand] + known[fields.BEGIN] + along[x]
            place += across[y] + as_pointer(known[fields.BATCHES])[b]
            distance = along[x + 1] - along[x] if count > 1 else 0
            apart = across[y + 1] - across[y] if high > 1 else 0
        first, second = double(step[fields.FIRST_NUMBER]), double(step[fields.SECOND_NUMBER])
        code = step[fields.CODE]
        invoke(code, run, count, high, pitch, place, distance, apart, first, second)


@inlined
def _count_steady(s, x, most, operands, down, X):
    """Return how many indices from one on are at one distance in C, and in each operand."""
    count = min(X[X[table.STEADY] + x], most)
    for operand in range(operands):
        told = s[state.BOX_OPERANDS] + WORD_BYTES * fields.OPERAND_WORDS * operand
        steady = fields.ROWS_STEADY if down else fields.COLUMNS_STEADY
        count = min(count, as_pointer(as_pointer(told)[steady])[x])
    return count


@inlined
def _count_run(s, x, most, operands, down, X, size):
    """Return how many of these are side by side in C."""
    count, offsets = _count_steady(s, x, most, operands, down, X), X[table.OFFSETS]
    return count if count > 1 and X[offsets + x + 1] - X[offsets + x] == size else 1


@inlined
def _find_indices(X, segment):
    """Return the range of indices of a segment of the first level."""
    bounds = X[table.BOUNDS + 1] + segment
    return X[X[table.BOUNDS] + X[bounds]], X[X[table.BOUNDS] + X[bounds + 1]]


@compiled(POINTER, INT, INT, INT, INT, POINTER, POINTER, POINTER, POINTER)
def pass_over(s, r, n, k, b, R, N, K, B):
    """Go over what a segment of the first level has of C, if it has the last of all sums."""
    sums = _find_indices(K, k)
    if not s[state.HAS_LAST_SUM] or sums[1] < s[state.SUM_COUNT]:
        return
    r0, r1 = _find_indices(R, r)
    n0, n1 = _find_indices(N, n)
    b0, b1 = _find_indices(B, b)
    operands = s[state.OPERAND_COUNT]
    size = as_pointer(s[state.EPILOGUE_PROGRAM])[fields.ITEM_BYTES]
    down = _count_run(s, r0, r1 - r0, operands, True, R, size)
    across = _count_run(s, n0, n1 - n0, operands, False, N, size)
    goes_down = down >= across
    X, x0, x1, Y, y0, y1 = N, n0, n1, R, r0, r1
    if goes_down:
        X, x0, x1, Y, y0, y1 = R, r0, r1, N, n0, n1
    offsets = Y[table.OFFSETS]
    for batch in range(b0, b1):
        out = s[state.OUTPUT] + B[B[table.OFFSETS] + batch]
        y = y0
        while y < y1:
            high = _count_steady(s, y, y1 - y, operands, not goes_down, Y)
            pitch = Y[offsets + y + 1] - Y[offsets + y] if high > 1 else 0
            x = x0
            while x < x1:
                count = _count_run(s, x, x1 - x, operands, goes_down, X, size)
                run = out + Y[offsets + y] + X[X[table.OFFSETS] + x]
                _run_program(s, run, count, high, pitch, x, y, batch, goes_down)
                x += count
            y += high
