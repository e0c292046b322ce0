"""Fast calls: compiled code that Python calls as it calls a function written in C.

Other ways into compiled code take each argument apart, and Python has to find the arguments before.
Here compiled code gets the address of a row of objects (`METH_FASTCALL` in
Python's C interface) and looks by itself. See docs/decisions/054.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tilesolve.kernels.codegen.python_entry import Definition
from tilesolve.kernels.ir.intrinsics import external
from tilesolve.kernels.runtime import guard_fields as fields
from tilesolve.kernels.runtime.array_guard import match_arrays
from tilesolve.kernels.runtime.compiled import (
    INT,
    REAL,
    VOID,
    address,
    as_pointer,
    as_real,
    compiled,
    double,
    inlined,
    on_stack,
    result,
    word,
)
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES, Array
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import ALIGNMENT_BYTES, WORD_BYTES

# Functions of Python's C interface, which the process itself exports.
count_reference = external("Py_IncRef", VOID)
_to_float = external("PyFloat_AsDouble", REAL)
_to_integer = external("PyLong_AsLongLongAndOverflow", INT)
_release_lock = external("PyEval_SaveThread", INT)
_take_lock = external("PyEval_RestoreThread", VOID)
_allocate = external("PyMem_RawMalloc", INT)
_free = external("PyMem_RawFree", VOID)

TYPE_OFFSET = OBJECT_HEADER_BYTES - np.dtype(np.intp).itemsize
"""Bytes from the beginning of an object to the address of its type, the last of what all have."""

MAX_NUMBERS = 32
"""Numbers that a call is given at most."""

MAX_STACK_BYTES = 4096
"""Bytes of a workspace that a call has on its stack, where it is given none."""

MAX_OWN_BYTES = 1 << 17
"""Bytes of a workspace that a call takes by itself, where it is given none: C's `malloc` has so
many at hand."""

_STACK_WORDS = (MAX_STACK_BYTES + ALIGNMENT_BYTES) // WORD_BYTES


@inlined
def _are_arrays(told, given):
    """Return whether all that is given instead of arrays is one, no subclass."""
    for number in range(told[fields.GIVEN]):
        if as_pointer(given[number] + TYPE_OFFSET)[0] != told[fields.ARRAY]:
            return False
    return True


@inlined
def are_alike(told, words, row):
    """Return whether what is given instead of arrays are such as the words describe."""
    return _are_arrays(told, as_pointer(row)) and match_arrays(words, row)


@inlined
def run_alike(told, row, values, memory):
    """Run on arrays that are alike, a long run without Python's lock; return 0 if it fails.

    Without memory, 0, it takes some of its own.
    """
    thread, taken, own = 0, 0, on_stack(_STACK_WORDS)
    if not memory:
        if told[fields.WORKSPACE_BYTES] > MAX_STACK_BYTES:
            taken = _allocate(told[fields.WORKSPACE_BYTES] + ALIGNMENT_BYTES)
            if not taken:
                return 0
            own = taken
        memory = (own + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES
    if not told[fields.IS_BRIEF]:
        thread = _release_lock()
    done = result(told[fields.RUN], told[fields.TOLD], row, values, memory)
    if not told[fields.IS_BRIEF]:
        _take_lock(thread)
    if taken:
        _free(taken)
    return done


@inlined
def _read_number(told, kind, given, values, number):
    """Write the word of a number that is given; return whether it is one that may be."""
    its_type, real = as_pointer(given + TYPE_OFFSET)[0], 0.0
    if its_type == told[fields.FLOAT]:
        if not kind[fields.IS_REAL]:
            return False
        real = _to_float(given)
    elif its_type == kind[fields.TYPE]:
        beyond = on_stack(1)
        as_pointer(beyond)[0] = 0
        whole = _to_integer(given, beyond)
        if as_pointer(beyond)[0] or not kind[fields.LOWEST] <= whole <= kind[fields.HIGHEST]:
            return False
        values[number] = whole
        real = as_real(whole)
    else:
        return False
    if kind[fields.IS_REAL]:
        if not double(kind[fields.SMALLEST]) <= real <= double(kind[fields.LARGEST]):
            return False
        values[number] = word(real, kind[fields.IS_SINGLE])
    return True


@inlined
def read_numbers(told, given, values):
    """Write the words of the numbers that are given; return whether all are what they may be."""
    kinds = told[fields.NUMBER_KINDS]
    for number in range(told[fields.NUMBERS]):
        kind = as_pointer(kinds + WORD_BYTES * fields.NUMBER_WORDS * number)
        if not _read_number(told, kind, given[number], values, number):
            return False
    return True


@compiled(INT, INT, INT, returns=INT)
def _repeat_run(myself, arguments, count):
    """Return the first output once all are computed, or None for a call that is not alike.

    Parameters
    ----------
    myself
        The array of words that `prepare_call` was given.
    arguments
        Address of the arguments' addresses: the numbers, the workspace as an array or None, the
        outputs, and the other arrays that a call is given.
    count
        How many there are.
    """
    words = as_pointer(myself + OBJECT_HEADER_BYTES)[0]
    told, given = as_pointer(words), as_pointer(arguments)
    found, numbers = told[fields.NONE], told[fields.NUMBERS]
    values, row = on_stack(MAX_NUMBERS), arguments + WORD_BYTES * (numbers + 1)
    memory = 0
    if count != numbers + 1 + told[fields.GIVEN]:
        count_reference(found)
        return found
    if given[numbers] != told[fields.NONE]:
        memory = as_pointer(given[numbers] + OBJECT_HEADER_BYTES)[0]
    if (
        are_alike(told, words, row)
        and read_numbers(told, given, as_pointer(values))
        and run_alike(told, row, values, memory)
    ):
        found = as_pointer(row)[0]
    count_reference(found)
    return found


def prepare_call(words: Integers) -> Callable[..., Array | None]:
    """Return a function that computes if it is given arrays like those that the words describe.

    It takes the numbers, the workspace, the outputs, and the other arrays that the words describe,
    all by position; it returns the first output. A workspace of up to `MAX_OWN_BYTES` may be
    None. For other numbers (see `describe_number`), for what is no array, and for other arrays (see
    `match_arrays`), nothing is done, and None returned. It returns that, too, where a run fails.

    Parameters
    ----------
    words
        All of `guard_fields`. The function keeps the array, but not what is at its addresses.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import describe_arrays
    >>> array = np.zeros((2, 2))
    >>> words = [np.zeros(fields.ARRAYS, np.int64), describe_arrays([array])]
    >>> words[0][fields.GIVEN : fields.ARRAYS] = 1, *addresses()
    >>> prepare_call(np.concatenate(words))(array, None) is None
    True
    """
    function: Callable[..., Array | None] = _definition().bind(words)
    return function


def describe_number(dtype: str, *, takes_integers: bool = True) -> list[int]:
    """Return what compiled code takes for a number of a dtype, as the fields of one.

    It leaves others to Python: those that are rounded to infinity, and what is not a number.

    Parameters
    ----------
    dtype
        That of bits, of integers, or of floats of four or eight bytes.
    takes_integers
        Whether a number that may be a float may be an integer of Python, too.

    Examples
    --------
    >>> describe_number("int8")[fields.IS_REAL : fields.SMALLEST]
    [0, 0, -128, 127]
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        single = kind.itemsize < np.dtype(np.float64).itemsize
        largest = float(np.finfo(kind).max) if single else np.inf
        exact = 1 << np.finfo(np.float64).nmant
        words = np.array([-largest, largest]).view(np.int64).tolist()
        return [id(int if takes_integers else float), 1, int(single), -exact, exact, *words]
    if kind.kind == "b":
        return [id(bool), 0, 0, 0, 1, 0, 0]
    limits = np.iinfo(kind)
    highest = min(int(limits.max), int(np.iinfo(np.int64).max))
    return [id(int), 0, 0, int(limits.min), highest, 0, 0]


@cache
def addresses() -> Integers:
    """Return the fields of a guard from `NONE` on."""
    return np.array([id(None), id(np.ndarray), id(float)])


@cache
def _definition() -> Definition:
    """Return what Python calls."""
    return Definition.of(address(_repeat_run))
