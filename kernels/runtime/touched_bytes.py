"""What boxes touch of arrays, in whole lines: of plain arrays, and of windows.

`f` are the fields of tilings, see `traffic_fields`.
"""

from __future__ import annotations

from tilesolve.kernels.codegen.scalars import REALS
from tilesolve.kernels.ir.intrinsics import intrinsic
from tilesolve.kernels.runtime import traffic_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    as_pointer,
    as_real,
    as_reals,
    compiled,
    inlined,
)


@intrinsic
def as_int(builder, value):
    """Return a double without what is behind its point."""
    return builder.fptosi(value, INT)


@inlined
def ints(f, field):
    """Return an array of integers."""
    return as_pointer(f[field])


@inlined
def reals(f, field):
    """Return an array of doubles."""
    return as_reals(f[field])


@compiled(INT, INT, returns=INT, inner=True)
def find_common(one, other):
    """Return the greatest common divisor."""
    if one & (one - 1) == 0 and one != 0:  # a power of two, as lines have
        lowest = other & (0 - other)
        return lowest if lowest != 0 and lowest < one else one
    while other != 0:
        rest = one % other
        one = other
        other = rest
    return one


@compiled(POINTER, INT, INT, REALS, returns=REAL, inner=True)
def _touch_windows(f, form, line, box):
    """Return what `touch` does where axes are sums of letters: see `Access.scattered`."""
    first, count = form * f[fields.LETTERS], ints(f, fields.FORM_AXES)[form]
    letters, extents = ints(f, fields.AXIS_LETTER), ints(f, fields.AXIS_EXTENT)
    pitches, factors = ints(f, fields.AXIS_PITCH), ints(f, fields.AXIS_STEP)
    ends, grid = ints(f, fields.AXIS_ENDS), ints(f, fields.GRID)
    reaches, sides = reals(f, fields.REACHES), reals(f, fields.POSITIONS)
    element, whole = ints(f, fields.FORM_ELEMENT)[form], reals(f, fields.FORM_BYTES)[form]
    elements, around, positions, far = as_real(element), 1.0, 1.0, 0.0
    for number in range(count):
        side = box[letters[first + number]]
        positions = positions * side
        far = far + as_real(factors[first + number]) * (side - 1.0)
        if ends[first + number]:
            reach = 1.0 + far
            touched = positions if positions < reach else reach
            reaches[number] = reach
            sides[number] = touched
            elements = elements * touched
            around = around * reach
            positions = 1.0
            far = 0.0
    if line == 0:
        return as_real(element) * around
    if line <= element:
        return whole if whole < elements else elements
    run, held, contiguous, grows, corner = as_real(element), 1.0, 1, 1, line
    axis = count - 1
    for back in range(count):
        number = count - 1 - back
        at = first + number
        if ends[at]:
            axis = number
            # Within a row lines have no gaps; rows that are left out are gaps.
            grows = 1 if back == 0 or (contiguous and sides[axis] >= reaches[axis]) else 0
        corner = find_common(corner, pitches[at] * grid[letters[at]] if grows else pitches[at])
        if number == 0 or ends[at - 1]:
            contiguous = 0
            if grows:
                run = run * reaches[axis]
                held = held * sides[axis]
                contiguous = 1 if reaches[axis] >= as_real(extents[at]) else 0
    if ints(f, fields.FORM_WINDOWS)[form] == 2:
        parts = run / as_real(corner)
        wholes = as_int(parts)
        wholes = wholes + 1 if as_real(wholes) < parts else wholes
        run = as_real(wholes) * as_real(corner)
    lines = run if contiguous else run + as_real(line - corner)
    most_lines = held * as_real(line)
    lines = most_lines if most_lines < lines else lines
    found = elements / (as_real(element) * held) * lines
    return whole if whole < found else found


@compiled(POINTER, INT, INT, REALS, returns=REAL, inner=True)
def touch(f, form, line, box):
    """Return the bytes of a form that a box touches, in whole lines."""
    if ints(f, fields.FORM_WINDOWS)[form]:
        return _touch_windows(f, form, line, box)
    most, count = f[fields.LETTERS], ints(f, fields.FORM_AXES)[form]
    letters, extents = ints(f, fields.AXIS_LETTER), ints(f, fields.AXIS_EXTENT)
    pitches, grid, first = ints(f, fields.AXIS_PITCH), ints(f, fields.GRID), form * most
    element = ints(f, fields.FORM_ELEMENT)[form]
    elements = as_real(element)
    for back in range(count):
        elements = elements * box[letters[first + count - 1 - back]]
    if line <= element:
        return elements
    run, corner, contiguous, at = as_real(element), line, 1, first
    while at < first + count:
        if not contiguous:
            corner = find_common(corner, pitches[at])
            at = first + count
        else:
            letter = letters[at]
            corner = find_common(corner, pitches[at] * grid[letter])
            run = run * box[letter]
            if not box[letter] >= as_real(extents[at]):
                contiguous = 0
            at += 1
    touched = run if contiguous else run + as_real(line - corner)
    most_lines = run * (as_real(line) / as_real(element))
    if most_lines < touched:
        touched = most_lines
    found, whole = elements / run * touched, reals(f, fields.FORM_BYTES)[form]
    return whole if whole < found else found
