"""Fast calls: compiled code that Python calls as it calls a function written in C.

Other ways into compiled code take each argument apart, and Python has to find the arguments before.
Here compiled code gets the address of a row of objects (`METH_FASTCALL` in
Python's C interface) and looks by itself. See docs/decisions/054.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tilesolve.kernels.codegen.intrinsics import external
from tilesolve.kernels.codegen.python_entry import Definition
from tilesolve.kernels.runtime import call_fields
from tilesolve.kernels.runtime.array_guard import match_arrays
from tilesolve.kernels.runtime.compiled import (
    INT,
    REAL,
    VOID,
    address,
    as_pointer,
    compiled,
    inlined,
    on_stack,
    result,
)
from tilesolve.kernels.runtime.macrokernel import run
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES, Array
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import WORD_BYTES

# Functions of Python's C interface, which the process itself exports.
_count_reference = external("Py_IncRef", INT, returns=VOID)
_to_float = external("PyFloat_AsDouble", INT, returns=REAL)
_release_lock = external("PyEval_SaveThread", returns=INT)
_take_lock = external("PyEval_RestoreThread", INT, returns=VOID)

_TYPE_OFFSET = OBJECT_HEADER_BYTES - np.dtype(np.intp).itemsize
"""Bytes from the beginning of an object to the address of its type, the last of what all have."""

_NUMBERS = 3
"""Arguments before the arrays: both factors, and the workspace for packed copies."""

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


@inlined
def _are_arrays(told, given):
    """Return whether all that is given instead of arrays is one, no subclass."""
    for number in range(told[call_fields.GIVEN]):
        if as_pointer(given[number] + _TYPE_OFFSET)[0] != told[call_fields.ARRAY]:
            return False
    return True


@compiled(INT, INT, INT, returns=INT)
def _repeat_run(myself, arguments, count):
    """Return the output once it is computed, or None if the call is not the one prepared for.

    Parameters
    ----------
    myself
        The array of words that `prepare_call` was given.
    arguments
        Address of the arguments' addresses: both factors, the workspace for packed copies as an
        array, the output, and the other arrays that a call is given.
    count
        How many there are.
    """
    words = as_pointer(myself + OBJECT_HEADER_BYTES)[0]
    told, numbers = as_pointer(words), as_pointer(arguments)
    found, number = told[call_fields.NONE], told[call_fields.FLOAT]
    if count != _NUMBERS + told[call_fields.GIVEN]:
        _count_reference(found)
        return found
    alpha, beta, row = numbers[0], numbers[1], arguments + WORD_BYTES * _NUMBERS
    given = as_pointer(row)
    if (
        as_pointer(alpha + _TYPE_OFFSET)[0] == number
        and as_pointer(beta + _TYPE_OFFSET)[0] == number
        and _are_arrays(told, given)
        and match_arrays(words, row)
    ):
        found = given[0]
        factor, summand = _to_float(alpha), _to_float(beta)
        copies = as_pointer(numbers[2] + OBJECT_HEADER_BYTES)[0]
        first, second, places = _find_operands(told, given)
        thread = _release_lock()
        result(
            told[call_fields.RUN],
            words,
            found,
            first,
            second,
            copies,
            places,
            0,
            0,
            factor,
            0.0,
            summand,
            0.0,
        )
        _take_lock(thread)
    _count_reference(found)
    return found


def prepare_call(words: Integers) -> Callable[..., Array | None]:
    """Return a function that computes if it is given arrays like those that the words describe.

    It takes both factors, the workspace for packed copies, the output, and the other arrays that
    the words describe, all by position; it returns the output. For anything else than arrays and
    floats, and for other arrays (see `match_arrays`), nothing is done, and None returned.

    Parameters
    ----------
    words
        All fields of `call_fields`. The function keeps the array, but not what is at its addresses.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import describe_arrays
    >>> array = np.zeros((2, 2))
    >>> words = [np.zeros(call_fields.ARRAYS, np.int64), describe_arrays([array])]
    >>> words[0][call_fields.RUN : call_fields.GIVEN + 1] = *addresses(), 1
    >>> prepare_call(np.concatenate(words))(1.0, 0.0, array, None) is None
    True
    """
    function: Callable[..., Array | None] = _definition().bind(words)
    return function


@cache
def addresses() -> Integers:
    """Return the fields of `call_fields` from `RUN` to `GIVEN`."""
    return np.array([address(run), id(None), id(np.ndarray), id(float)])


@cache
def _definition() -> Definition:
    """Return what Python calls."""
    return Definition.of(address(_repeat_run))
