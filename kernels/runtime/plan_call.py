"""Calls of plans: compiled code looks first whether one is like a recent one.

Python takes 0.25 µs from a call of an object to the method of its class, and from there to compiled
code: as long as a small call computes. See docs/decisions/007.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from types import DynamicClassAttribute
from typing import Any

import numpy as np

from tilesolve.kernels.codegen.python_entry import FASTCALL, KEYWORDS, Definition
from tilesolve.kernels.ir.intrinsics import external
from tilesolve.kernels.runtime import guard_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    VOID,
    address,
    as_pointer,
    compiled,
    inlined,
    on_stack,
)
from tilesolve.kernels.runtime.fast_call import (
    MAX_NUMBERS,
    TYPE_OFFSET,
    are_alike,
    count_reference,
    read_numbers,
    run_alike,
)
from tilesolve.packing.memory_overlap import OBJECT_HEADER_BYTES
from tilesolve.packing.sizes import WORD_BYTES

_drop_reference = external("Py_DecRef", VOID)
_call = external("PyObject_Vectorcall", INT)
_call_without = external("PyObject_CallNoArgs", INT)
_error = external("PyErr_Occurred", INT)

MAX_ROW = 32
"""Arrays that a call of a plan is given at most, the output among them."""

_ITEMS_OFFSET = tuple.__basicsize__
"""Bytes from the beginning of a tuple to the addresses of what is in it."""

_METHOD, _KIND, _SLOT, _OUT, _NONE = range(5)
"""What compiled code is told of a class: its method in Python, the class itself, where its plans
have what they know of a recent call, the name of the output, and Python's `None`."""

OUT_NAME = sys.intern("out")


@inlined
def _line_up(told, plan, given, count, names, row, numbers):
    """Write what a call is given in two rows; return whether all is there that it needs.

    An output that is not given is 0. Plans of contractions take it behind the arrays, too.
    """
    arrays = told[fields.GIVEN] - 1
    behind = count > arrays
    if count - behind != arrays or arrays >= MAX_ROW or (behind and not told[fields.VALUES]):
        return False
    row[0] = 0
    if behind and given[arrays] != plan[_NONE]:
        row[0] = given[arrays]
    for at in range(arrays):
        row[at + 1] = given[at]
    size, items = 0, given
    if names:
        size = as_pointer(names + OBJECT_HEADER_BYTES)[0]
        items = as_pointer(names + _ITEMS_OFFSET)
    wanted, found = 0, 0
    if not told[fields.VALUES]:
        wanted = told[fields.NUMBERS]
    known = as_pointer(told[fields.NAMES])
    for at in range(size):
        if items[at] == plan[_OUT]:
            if behind:
                return False
            if given[count + at] != plan[_NONE]:
                row[0] = given[count + at]
        else:
            place = wanted
            for number in range(wanted):
                if known[number] == items[at]:
                    place = number
            if place == wanted:
                return False
            numbers[place] = given[count + at]
            found += 1
    return found == wanted


@inlined
def _repeat(plan, recent, given, count, names):
    """Return the output once it is computed, or 0 for a call that is not alike."""
    words = as_pointer(as_pointer(recent + _ITEMS_OFFSET)[0] + OBJECT_HEADER_BYTES)[0]
    told, place = as_pointer(words), on_stack(MAX_ROW)
    row, numbers = as_pointer(place), as_pointer(on_stack(MAX_NUMBERS))
    values, made = on_stack(MAX_NUMBERS), 0
    if not _line_up(told, plan, given, count, names, row, numbers):
        return 0
    if not row[0]:
        made = _call_without(told[fields.NEW])
        if not made:
            return 0
        row[0] = made
    alike = are_alike(told, words, place)
    if told[fields.VALUES]:
        values = told[fields.VALUES]
    elif alike:
        alike = read_numbers(told, numbers, as_pointer(values))
    if alike and run_alike(told, place, values, 0):
        if not made:
            count_reference(row[0])
        return row[0]
    if made:
        _drop_reference(made)
    return 0


@compiled(INT, INT, INT, INT, returns=INT)
def _call_plan(myself, arguments, count, names):
    """Return what a plan computes: at once for a call like its recent one, else by its method.

    Parameters
    ----------
    myself
        The array of words of the plan's class.
    arguments
        Address of the arguments' addresses: the plan, arrays, and then what has a name.
    count
        How many have none.
    names
        The tuple of names; 0 if there are none.
    """
    plan = as_pointer(as_pointer(myself + OBJECT_HEADER_BYTES)[0])
    given = as_pointer(arguments)
    if count and as_pointer(given[0] + TYPE_OFFSET)[0] == plan[_KIND]:
        recent = as_pointer(given[0] + plan[_SLOT])[0]
        if recent and recent != plan[_NONE]:
            count_reference(recent)  # another thread may replace it meanwhile
            others = as_pointer(arguments + WORD_BYTES)
            found = _repeat(plan, recent, others, count - 1, names)
            _drop_reference(recent)
            if found or _error():
                return found
    return _call(plan[_METHOD], arguments, count, names)


def take_calls(kind: type, found: object, held: object) -> None:
    """Have compiled code take the calls of all objects of a class from now on.

    Those that are not like a recent one go to the method that the class has now.

    Parameters
    ----------
    kind
        The class.
    found, held
        One of its objects, and what it has in the slot for its recent call: a tuple, whose first
        item are the words that describe the call. Others may have None there.
    """
    name, signature, known = "__call__", "__signature__", kind.__call__
    method = _methods.get(known, known)
    takes = Signature.from_callable(method.__get__(found))
    size = kind.__basicsize__ // WORD_BYTES
    content = list((ctypes.c_ssize_t * size).from_address(id(found)))
    slot = WORD_BYTES * content.index(id(held))
    words = np.array([id(method), id(kind), slot, id(OUT_NAME), id(None)], np.int64)
    definition = Definition.of(address(_call_plan), FASTCALL | KEYWORDS, _describe(method))
    setattr(kind, name, definition.bind_method(words))
    # Python finds what objects of the class take, not the class, by its name.
    setattr(kind, signature, DynamicClassAttribute(lambda _: takes))
    _methods[kind.__call__] = method


def _describe(method: Callable[..., Any]) -> str:
    """Return a method's documentation behind what it takes, as Python reads it of C functions."""
    takes = Signature.from_callable(method)
    names = [one.replace(annotation=Parameter.empty) for one in takes.parameters.values()]
    plain = takes.replace(parameters=names, return_annotation=Signature.empty)
    return f"call{plain}\n--\n\n{method.__doc__ or ''}"


_methods: dict[Callable[..., Any], Callable[..., Any]] = {}
"""The methods that compiled code calls, and in whose place it stands."""
