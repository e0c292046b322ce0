"""Contractions of fast calls: the macrokernel runs on the arrays that a call is given."""

from __future__ import annotations

from tilesolve.kernels.runtime import call_fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    as_pointer,
    compiled,
    double,
    inlined,
    on_stack,
    result,
)
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES

MAX_PLACES = 8
"""Operands of an epilogue at most."""


@inlined
def _find_operands(told, given):
    """Return the addresses of both operands' arrays, and of the addresses of the epilogue's."""
    at = 1
    first, second = told[call_fields.KEPT], told[call_fields.KEPT + 1]
    if first == 0:
        first = given[at]
        at += 1
    if second == 0:
        second = given[at]
        at += 1
    count = told[call_fields.PLACE_COUNT]
    if count == 0:
        return first, second, 0
    room, kept = on_stack(MAX_PLACES), as_pointer(told[call_fields.PLACES])
    places = as_pointer(room)
    for number in range(count):
        places[number] = kept[number]
        if kept[number] == 0:
            places[number] = as_pointer(given[at] + OBJECT_HEADER_BYTES)[0]
            at += 1
    return first, second, room


@compiled(INT, INT, INT, INT, returns=INT)
def run_contraction(words, row, numbers, memory):
    """Compute a contraction of a fast call; return 1, as nothing can fail.

    Parameters
    ----------
    words
        Address of the fields of the contraction (`call_fields`).
    row
        Address of the addresses of the arrays that the call is given, the output first.
    numbers
        Address of both factors.
    memory
        Address of the workspace for packed copies.
    """
    told, given, factors = as_pointer(words), as_pointer(row), as_pointer(numbers)
    first, second, places = _find_operands(told, given)
    result(
        told[call_fields.MACROKERNEL],
        words,
        given[0],
        first,
        second,
        memory,
        places,
        0,
        0,
        double(factors[0]),
        0.0,
        double(factors[1]),
        0.0,
    )
    return 1
