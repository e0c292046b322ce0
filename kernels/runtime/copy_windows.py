"""Copies of windows: boxes of an operand laid out again, with zeros where its padding is.

A record has `window_fields`; `tilesolve.packing.windows` writes it.
"""

from __future__ import annotations

from tilesolve.kernels.ir.copies import SINGLE_BYTES, copy_apart, copy_line, copy_part
from tilesolve.kernels.runtime.compiled import (
    INT,
    as_pointer,
    compiled,
    inlined,
    on_stack,
)
from tilesolve.kernels.runtime.copy_lines import copy_run
from tilesolve.packing import window_fields as fields
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

# What `on_stack` makes room for has to be a plain global: a line, wherever lines begin.
_LINE_WORDS = 2 * LINE_BYTES // WORD_BYTES


@compiled(INT, INT, INT, inner=True)
def _clear_run(zeros, target, size):
    """Write zeros, of which there is a line."""
    while size >= LINE_BYTES:
        copy_line(zeros, target)
        target, size = target + LINE_BYTES, size - LINE_BYTES
    if size:
        copy_part(zeros, target, size)


@inlined
def _copy_row(source, target, axis, unit, zeros):
    """Copy what a row has along its innermost axis."""
    before, count, after = axis[fields.BEFORE], axis[fields.COUNT], axis[fields.AFTER]
    step, pitch = axis[fields.STEP], axis[fields.PITCH]
    if before:
        _clear_run(zeros, target, before * pitch)
    target += before * pitch
    if step == unit and pitch == unit:
        copy_run(source, target, count * unit, 0, 0)
    elif unit in SINGLE_BYTES:
        copy_apart(unit, source, target, count, (step, pitch))
    else:
        for at in range(count):
            copy_run(source + at * step, target + at * pitch, unit, 0, 0)
    if after:
        _clear_run(zeros, target + count * pitch, (after - 1) * pitch + unit)


@compiled(INT, INT, INT, INT, INT, INT, inner=True)
def _copy_axes(source, target, record, at, inside, zeros):
    """Copy what the axes from a number on have: zeros where an axis before is not inside."""
    unit, axes = as_pointer(record)[fields.UNIT_BYTES], as_pointer(record)[fields.AXES]
    axis = as_pointer(record + WORD_BYTES * (fields.SIZE + fields.AXIS_WORDS * at))
    before, end = axis[fields.BEFORE], axis[fields.BEFORE] + axis[fields.COUNT]
    step, pitch = axis[fields.STEP], axis[fields.PITCH]
    places = end + axis[fields.AFTER]
    if at + 1 == axes:
        if inside:
            _copy_row(source, target, axis, unit, zeros)
        else:
            _clear_run(zeros, target, (places - 1) * pitch + unit)
        return
    for place in range(places):
        here = inside and before <= place and place < end
        begin = source + (place - before) * step if here else source
        _copy_axes(begin, target + place * pitch, record, at + 1, here, zeros)


@compiled(INT, INT, INT, INT)
def copy_windows(s, source, target, record):
    """Copy one box of an operand.

    Parameters
    ----------
    s
        Address of the state: for what is called in this function's place to time it.
    source
        Address of the array's first element.
    target
        Address of the copy.
    record
        Address of the box's record.
    """
    line = (on_stack(_LINE_WORDS) + LINE_BYTES - 1) & -LINE_BYTES
    zeros = as_pointer(line)
    for at in range(LINE_BYTES // WORD_BYTES):
        zeros[at] = 0
    told = as_pointer(record)
    begin = source + told[fields.SOURCE]
    if told[fields.AXES]:
        _copy_axes(begin, target, record, 0, 1, line)
    else:
        copy_run(begin, target, told[fields.UNIT_BYTES], 0, 0)
