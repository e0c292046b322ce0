"""Compiled functions: numba with addresses in place of arrays, and code that outlives the process.

Arrays would be counted: each call would begin and end with an atomic instruction, which waits for
all stores before it.

numba links a function into all that call it, and has it optimised and translated again in each.
Small ones gain by that. Large ones are called where they are instead (`invoke`), or are part of
their only caller (`inlined`). See docs/decisions/054.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import typeinfer
from numba.extending import intrinsic

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.garbage import pause_collection
from tilesolve.kernels.runtime.kept_functions import KeptFunction
from tilesolve.kernels.sources import LAYOUT
from tilesolve.system.first_use import tell_of_compiling

_intrinsic: Any = intrinsic
_njit: Any = njit
_typeinfer: Any = typeinfer  # numba's types describe none of them well

INT = types.int64
REAL = types.float64
PAIR = types.UniTuple(INT, 2)
TRIPLE = types.UniTuple(INT, 3)
FIVE = types.UniTuple(INT, 5)
POINTER = types.CPointer(types.int64)

_functions: dict[str, list[Any]] = {}
"""The compiled functions of each module."""

_layouts: dict[str, Any] = {}
"""Each module's function that returns the `LAYOUT` that it was compiled for."""


@_intrinsic
def invoke(_context, address, *arguments):
    """Call the machine code at an address as C does.

    It is a kernel, with the address of its frame as argument, or a compiled function, see
    `address`.
    """
    return _calling(types.void, ir.VoidType(), address, arguments)


@_intrinsic
def result(_context, address, *arguments):
    """Call the machine code at an address and return the integer that it returns."""
    return _calling(INT, ir.IntType(64), address, arguments)


def _calling(kind: Any, returns: ir.Type, address: Any, arguments: Any) -> Any:
    """Return what numba wants to know of a call: its signature, and what emits it."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        place, together = args
        count = len(together.type.elements)
        given = [builder.extract_value(together, number) for number in range(count)]
        function = ir.FunctionType(returns, [value.type for value in given])
        return builder.call(builder.inttoptr(place, function.as_pointer()), given)

    together = types.StarArgTuple.from_types(arguments)
    return kind(address, together), generate


@_intrinsic
def as_pointer(_context, address):
    """Return an address as a pointer to integers."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return POINTER(address), generate


@_intrinsic(prefer_literal=True)
def on_stack(_context, count):
    """Return the address of memory for so many integers, gone when the function returns.

    The count is a constant: a number, or a global of the calling module. What is in the memory is
    unknown: numba's own arrays would be filled with zeros each time.
    """

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, _args: Any) -> ir.Value:
        room = ir.ArrayType(ir.IntType(64), count.literal_value)
        with builder.goto_entry_block():
            found = builder.alloca(room)
        return builder.ptrtoint(found, ir.IntType(64))

    return types.int64(count), generate


@_intrinsic
def word(_context, value, single):
    """Return the bits of a number as an integer: or of its four-byte form."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        double, short = args
        single = builder.bitcast(builder.fptrunc(double, ir.FloatType()), ir.IntType(32))
        return builder.select(
            builder.trunc(short, ir.IntType(1)),
            builder.zext(single, ir.IntType(64)),
            builder.bitcast(double, ir.IntType(64)),
        )

    return types.int64(value, single), generate


@_intrinsic
def store_fence(_context):
    """Wait until every store, streaming ones included, has reached memory."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, _args: Any) -> None:
        vectors.store_fence(builder)

    return types.void(), generate


def compiled(
    *signature: Any,
    returns: Any = types.void,
    inner: bool = False,
) -> Callable[[Any], Any]:
    """Return a decorator that compiles at once, or takes what an earlier process compiled.

    Parameters
    ----------
    signature, returns
        What the function takes and returns.
    inner
        Whether only compiled functions call it that it is linked into. The ways in from elsewhere
        are not made then, which takes as long as all else of a short function.

    Examples
    --------
    >>> compiled(INT, returns=INT).__name__
    'decorate'
    """

    def decorate(function: Any) -> Any:
        ways = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} if inner else {}
        found = _kept(function, **ways)
        _compile(found, returns(*signature))
        found.disable_compile()
        _functions.setdefault(function.__module__, []).append(found)
        return found

    return decorate


def deferred(function: Any) -> Any:
    """Make a function that `address_for` compiles, or takes from an earlier process, when asked."""
    return _kept(function, no_cpython_wrapper=True)


def _kept(function: Any, **ways: bool) -> Any:
    """Return a function that numba compiles for some arguments, and whose code outlives it."""
    found = _njit(nogil=True, error_model="numpy", **ways)(function)
    found._cache = KeptFunction(function)
    return found


def _compile(function: Any, signature: Any) -> None:
    """Compile a function for a signature, or take what an earlier process compiled."""
    kept = function._cache if isinstance(function._cache, KeptFunction) else nullcontext()
    with pause_collection(), tell_of_compiling(), kept, _typeinfer.register_dispatcher(function):
        function.compile(signature)


def inlined(function: Any) -> Any:
    """Make a function part of each compiled function that calls it.

    It is not compiled for itself, so its types are those of its calls. That takes less time where
    it has one caller, above all if it is long.
    """
    return _njit(inline="always", error_model="numpy")(function)


def address(function: Any) -> int:
    """Return where a compiled function is, for callers that follow C's rules.

    It may be taken only once the function's module is done with `renew`.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import match_arrays
    >>> address(match_arrays) > 0
    True
    """
    (code,) = function.overloads.values()
    return _entry(code)


def address_for(function: Any, *signature: Any) -> int:
    """Return where a `deferred` function is that takes arguments of some types.

    Examples
    --------
    >>> address_for(deferred(lambda count: None), INT) > 0
    True
    """
    if signature not in function.overloads:
        _compile(function, signature)
    return _entry(function.overloads[signature])


def _entry(code: Any) -> int:
    """Return where callers that follow C's rules enter compiled code."""
    found: int = code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)
    return found


def renew(module: str) -> None:
    """Compile a module's functions again where they were compiled for another `LAYOUT`.

    A module calls it behind its last function. numba notices a change of a function's own file, but
    not of those that it takes constants and other functions from, and these from others. So each
    module has a function that returns the checksum of all of them as it was compiled.
    """
    if compiled_for(module) != LAYOUT:
        with pause_collection():
            for function in _functions[module]:
                with function._cache:
                    function.recompile()


def compiled_for(module: str) -> int:
    """Return the `LAYOUT` that a module's functions were compiled for."""
    if module not in _layouts:
        _layouts[module] = _layout_of(module)
    found: int = _layouts[module]()
    return found


def _layout_of(module: str) -> Any:
    """Return a compiled function that returns `LAYOUT`, kept as one of the module's own file."""
    file = inspect.getfile(sys.modules[module])

    def layout():
        return LAYOUT

    code = layout.__code__.replace(co_filename=file, co_qualname="layout")
    function = FunctionType(code, {"LAYOUT": LAYOUT, "__name__": module}, "layout")
    return compiled(returns=INT)(function)
