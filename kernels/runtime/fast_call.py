"""Fast calls: compiled code that Python calls as it calls a function written in C.

numba's own way from Python into compiled code takes each argument apart, and Python has to find the
arguments before. Here compiled code gets the address of a row of objects (`METH_FASTCALL` in
Python's C interface) and looks by itself. See docs/decisions/054.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tilesolve.kernels.runtime import call_fields
from tilesolve.kernels.runtime.array_guard import match_arrays
from tilesolve.kernels.runtime.compiled import (
    INT,
    REAL,
    address,
    as_pointer,
    compiled,
    renew,
    result,
)
from tilesolve.kernels.runtime.macrokernel import run
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES, Array
from tilesolve.packing.offsets import Integers

# Functions of Python's C interface, which the process itself exports.
_external: Any = types.ExternalFunction
_count_reference = _external("Py_IncRef", types.void(INT))
_to_float = _external("PyFloat_AsDouble", REAL(INT))
_release_lock = _external("PyEval_SaveThread", INT())
_take_lock = _external("PyEval_RestoreThread", types.void(INT))

_TYPE_OFFSET = OBJECT_HEADER_BYTES - np.dtype(np.intp).itemsize
"""Bytes from the beginning of an object to the address of its type, the last of what all have."""

_FASTCALL = 0x0080
"""Python's `METH_FASTCALL`: the function takes itself, a row of arguments, and their number."""

_ARGUMENT_COUNT = 6
"""Arguments of a call."""


@compiled(INT, INT, INT, returns=INT)
def _repeat_run(myself, arguments, count):
    """Return the output once it is computed, or None if the call is not the one prepared for.

    Parameters
    ----------
    myself
        The array of words that `prepare_call` was given.
    arguments
        Address of the arguments' addresses: both operands, the output, both factors, the
        workspace for packed copies as an array.
    count
        How many there are.
    """
    words = as_pointer(myself + OBJECT_HEADER_BYTES)[0]
    told, given = as_pointer(words), as_pointer(arguments)
    found, array, number = told[call_fields.NONE], told[call_fields.ARRAY], told[call_fields.FLOAT]
    if count != _ARGUMENT_COUNT:
        _count_reference(found)
        return found
    first, second, out, alpha, beta = given[0], given[1], given[2], given[3], given[4]
    if (
        as_pointer(first + _TYPE_OFFSET)[0] == array
        and as_pointer(second + _TYPE_OFFSET)[0] == array
        and as_pointer(out + _TYPE_OFFSET)[0] == array
        and as_pointer(alpha + _TYPE_OFFSET)[0] == number
        and as_pointer(beta + _TYPE_OFFSET)[0] == number
        and match_arrays(words, out, first, second)
    ):
        found = out
        factor, summand = _to_float(alpha), _to_float(beta)
        copies = as_pointer(given[5] + OBJECT_HEADER_BYTES)[0]
        thread = _release_lock()
        result(
            told[call_fields.RUN],
            words,
            out,
            first,
            second,
            copies,
            0,
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


class _Definition(ctypes.Structure):
    """Python's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def prepare_call(words: Integers) -> Callable[..., Array | None]:
    """Return a function that computes if it is given arrays like those that the words describe.

    It takes both operands, the output, both factors, and the workspace for packed copies, all by
    position; it returns the output. For anything else than arrays and floats, and for other arrays
    (see `match_arrays`), nothing is done, and None returned.

    Parameters
    ----------
    words
        All fields of `call_fields`. The function keeps the array, but not what is at its addresses.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import describe_arrays
    >>> array = np.zeros((2, 2))
    >>> fields = [np.zeros(call_fields.RUN, np.int64), ADDRESSES, describe_arrays([array] * 3)]
    >>> prepare_call(np.concatenate(fields))(array, array, None, 1.0, 0.0, array) is None
    True
    """
    function: Callable[..., Array | None] = _new(ctypes.byref(_DEFINITION), words, None)
    return function


renew(__name__)

_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
_DEFINITION = _Definition(b"call", address(_repeat_run), _FASTCALL, None)
"""Python keeps its address: it stays as long as the module."""

ADDRESSES = np.array([address(run), id(None), id(np.ndarray), id(float)])
"""The fields of `call_fields` from `RUN` to `ARRAYS`."""
