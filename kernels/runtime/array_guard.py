"""Array guard: compiled code checks whether arrays are like those that a run was prepared for.

It compares shapes, strides and dtypes, and checks that outputs can be written and share no memory
with one another or with an operand. Python would take longer than a small
contraction, see docs/decisions/054. All of that is read where NumPy's C interface says that an
array has it (`PyArrayObject_fields`), behind what every object has: the address of its first
element, the number of its axes, the addresses of its shape and strides, what it is part of, its
dtype, and its flags.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from tilesolve.kernels.runtime import guard_fields as fields
from tilesolve.kernels.runtime.compiled import INT, as_pointer, compiled, on_stack
from tilesolve.packing.memory_overlap import (
    OBJECT_HEADER_BYTES,
    Array,
    address_range,
    same_elements,
)
from tilesolve.packing.offsets import Integers

_AXES, _SHAPE, _STRIDES, _DTYPE, _FLAGS = 1, 2, 3, 5, 6
_HALF = 0 if sys.byteorder == "little" else 32
_WRITEABLE = 0x400

MAX_OUTPUTS = 8
"""Outputs that a call has at most."""

_SPAN_WORDS = 2 * MAX_OUTPUTS


def describe_arrays(given: Sequence[Array], outputs: int = 1) -> Integers:
    """Return what `match_arrays` compares other arrays with.

    Whoever keeps it has to keep the dtypes, too, so that no other dtype gets the same address.

    Parameters
    ----------
    given
        The arrays, the outputs first. One that has an output's elements has them in all calls.
    outputs
        How many of them are outputs.

    Examples
    --------
    >>> array = np.zeros((2, 3))
    >>> axes, dtype, low, high, same, *others = describe_arrays([array]).tolist()
    >>> axes, dtype == id(array.dtype), low, high, same, others
    (2, True, 0, 48, 1, [2, 3, 24, 8])
    """
    words: list[int] = []
    for array in given:
        begin = array.ctypes.data
        low, high = address_range(array)
        words += [array.ndim, id(array.dtype), low - begin, high - begin]
        same = (same_elements(one, array) for one in given[:outputs])
        words += [next((number for number, one in enumerate(same, 1) if one), 0)]
        words += [*array.shape, *array.strides]
    return np.array(words, np.int64)


@compiled(INT, INT, returns=INT)
def match_arrays(words, given):
    """Return whether arrays are like others, and outputs writable and apart from the rest.

    Where another one had an output's elements, it has them again. An output whose elements are
    only between an operand's does not count as apart.

    Parameters
    ----------
    words
        Address of a guard (`guard_fields`), what the arrays are to be like among its fields.
    given
        Address of the arrays' addresses, the outputs' first.

    Examples
    --------
    >>> wanted = np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((4, 3))
    >>> words = np.append(np.zeros(fields.ARRAYS, np.int64), describe_arrays(wanted))
    >>> words[fields.GIVEN] = 3
    >>> row = np.array([id(array) for array in wanted])
    >>> match_arrays(words.ctypes.data, row.ctypes.data)
    1
    >>> other = np.ones((2, 5))
    >>> row[1] = id(other)
    >>> match_arrays(words.ctypes.data, row.ctypes.data)
    0
    """
    wanted, row = as_pointer(words), as_pointer(given)
    at, outputs, spans = fields.ARRAYS, 0, as_pointer(on_stack(_SPAN_WORDS))
    for number in range(wanted[fields.GIVEN]):
        array = as_pointer(row[number] + OBJECT_HEADER_BYTES)
        count = wanted[at]
        if (array[_AXES] >> _HALF) & 0xFFFFFFFF != count or array[_DTYPE] != wanted[at + 1]:
            return 0
        low, high = array[0] + wanted[at + 2], array[0] + wanted[at + 3]
        shape, strides = as_pointer(array[_SHAPE]), as_pointer(array[_STRIDES])
        same = wanted[at + 4]
        at += 5
        for axis in range(count):
            if shape[axis] != wanted[at + axis] or strides[axis] != wanted[at + count + axis]:
                return 0
        at += 2 * count
        own = same == number + 1
        if own and not (array[_FLAGS] >> _HALF) & _WRITEABLE:
            return 0
        for other in range(outputs):
            begin, end = spans[2 * other], spans[2 * other + 1]
            if same == other + 1:
                if low != begin:
                    return 0
            elif low < end and begin < high:
                return 0
        if own:
            spans[2 * outputs], spans[2 * outputs + 1] = low, high
            outputs += 1
    return 1
