"""Ways into translated functions from Python, as functions that Python calls as it calls C's.

Other ways take each argument apart before and cost more than a small contraction, see
docs/decisions/054.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Self

from llvmlite import ir

from tilesolve.kernels.codegen.scalars import INT, POINTER, REAL, VOID
from tilesolve.kernels.ir.vectors import call_function

FASTCALL = 0x0080
"""Python's `METH_FASTCALL`: the function takes itself, a row of arguments, and their number."""

KEYWORDS = 0x0002
"""Python's `METH_KEYWORDS`: and a tuple of the names of further ones, or nothing."""


class Definition(ctypes.Structure):
    """Python's `PyMethodDef`: kept for good, as functions of it may be anywhere."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )

    @classmethod
    def of(cls, address: int, flags: int = FASTCALL, documentation: str | None = None) -> Self:
        """Return the definition of the code at an address."""
        text = None if documentation is None else documentation.encode()
        found = cls(b"call", address, flags, text)
        _definitions.append(found)
        return found

    def bind(self, myself: object = None) -> Callable[..., Any]:
        """Return a Python function that runs the code, which gets an object as its first."""
        function: Callable[..., Any] = _new(ctypes.byref(self), myself, None)
        return function

    def bind_method(self, myself: object) -> Callable[..., Any]:
        """Return what a class may have as a method that runs the code: it gets `myself` first."""
        method: Callable[..., Any] = _new_method(self.bind(myself))
        return method


_definitions: list[Definition] = []

_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)

_new_method = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(
    ("PyInstanceMethod_New", ctypes.pythonapi)
)


def emit_entry(function: ir.Function) -> None:
    """Add the code of a Python function that calls another one, without Python's lock.

    It takes integers and doubles. For what is neither, and for another number of arguments, it
    raises what Python raises. Without a result it returns the object that it is bound to: None.
    """
    module, kind = function.module, function.ftype
    entry = ir.Function(module, ir.FunctionType(INT, [INT, POINTER, INT]), f"{function.name}()")
    builder = ir.IRBuilder(entry.append_basic_block("entry"))

    def call(name: str, returns: ir.Type, *values: ir.Value) -> ir.Value:
        return call_function(builder, name, returns, values)

    with builder.if_then(builder.icmp_signed("!=", entry.args[2], INT(len(kind.args)))):
        call("PyErr_BadArgument", ir.IntType(32))
        builder.ret(INT(0))
    values = []
    for at, wanted in enumerate(kind.args):
        place = builder.gep(entry.args[1], [INT(at)], source_etype=INT)
        given = builder.load(place, typ=INT)
        read, found = ("PyFloat_AsDouble", REAL) if wanted == REAL else ("PyLong_AsLongLong", INT)
        value = call(read, found, given)
        values.append(builder.inttoptr(value, wanted) if wanted == POINTER else value)
    failed = builder.icmp_signed("!=", call("PyErr_Occurred", INT), INT(0))
    with builder.if_then(failed):
        builder.ret(INT(0))
    thread = call("PyEval_SaveThread", INT)
    result = builder.call(function, values)
    call("PyEval_RestoreThread", VOID, thread)
    if kind.return_type == INT:
        builder.ret(call("PyLong_FromLongLong", INT, result))
    elif kind.return_type == VOID:
        call("Py_IncRef", VOID, entry.args[0])
        builder.ret(entry.args[0])
    else:
        raise TypeError(f"{function.name} returns {kind.return_type} to Python")
