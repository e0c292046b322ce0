"""Compiled functions: numba with addresses in place of arrays, and code that outlives the process.

Arrays would be counted: each call would begin and end with an atomic instruction, which waits for
all stores before it (measured: half the speed where a call is short).

numba links a function into all that call it, and has it optimised and translated again in each.
Small ones gain by that. Large ones are called where they are instead, see `invoke`: moves compile
in two thirds of the time, contractions in five sixths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.garbage import pause_collection
from tilesolve.kernels.sources import LAYOUT

_intrinsic: Any = intrinsic
_njit: Any = njit  # numba's types describe neither of the two well

INT = types.int64
REAL = types.float64
PAIR = types.UniTuple(INT, 2)  # type: ignore[no-untyped-call]
POINTER = types.CPointer(types.int64)  # type: ignore[no-untyped-call]

_functions: dict[str, list[Any]] = {}
"""The compiled functions of each module."""


@_intrinsic
def invoke(_context, address, *arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN201
    """Call the machine code at an address as C does.

    It is a kernel, with the address of its frame as argument, or a compiled function, see
    `address`.

    Examples
    --------
    It is for compiled functions only:

    >>> type(invoke).__name__
    '_Intrinsic'
    """
    return _calling(types.void, ir.VoidType(), address, arguments)


@_intrinsic
def result(_context, address, *arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN201
    """Call the machine code at an address and return the integer that it returns.

    Examples
    --------
    It is for compiled functions only:

    >>> type(result).__name__
    '_Intrinsic'
    """
    return _calling(INT, ir.IntType(64), address, arguments)


def _calling(kind: Any, returns: ir.Type, address: Any, arguments: Any) -> Any:  # noqa: ANN401
    """Return what numba wants to know of a call: its signature, and what emits it."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:  # noqa: ANN401
        place, together = args
        count = len(together.type.elements)
        given = [builder.extract_value(together, number) for number in range(count)]
        function = ir.FunctionType(returns, [value.type for value in given])
        return builder.call(builder.inttoptr(place, function.as_pointer()), given)

    together = types.StarArgTuple.from_types(arguments)  # type: ignore[no-untyped-call]
    return kind(address, together), generate


@_intrinsic
def pointer(_context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return an address as a pointer to integers.

    Examples
    --------
    It is for compiled functions only:

    >>> type(pointer).__name__
    '_Intrinsic'
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:  # noqa: ANN401
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return POINTER(address), generate


@_intrinsic(prefer_literal=True)
def on_stack(_context, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the address of room for so many integers, gone when the function returns.

    What is in it is unknown: numba's own way to have such room would fill it with zeros each time.

    Examples
    --------
    It is for compiled functions only, and the count is a constant there:

    >>> type(on_stack).__name__
    '_Intrinsic'
    """

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, _args: Any) -> ir.Value:  # noqa: ANN401
        room = ir.ArrayType(ir.IntType(64), count.literal_value)
        with builder.goto_entry_block():
            found = builder.alloca(room)
        return builder.ptrtoint(found, ir.IntType(64))

    return types.int64(count), generate


@_intrinsic
def word(_context, value, single):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the bits of a number as an integer: of its four-byte form where that is asked for.

    Examples
    --------
    It is for compiled functions only:

    >>> type(word).__name__
    '_Intrinsic'
    """

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:  # noqa: ANN401
        double, short = args
        single = builder.bitcast(builder.fptrunc(double, ir.FloatType()), ir.IntType(32))
        return builder.select(
            builder.trunc(short, ir.IntType(1)),
            builder.zext(single, ir.IntType(64)),
            builder.bitcast(double, ir.IntType(64)),
        )

    return types.int64(value, single), generate


@_intrinsic
def store_fence(_context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Wait until every store, streaming ones included, has reached memory.

    Examples
    --------
    It is for compiled functions only:

    >>> type(store_fence).__name__
    '_Intrinsic'
    """

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, _args: Any) -> None:  # noqa: ANN401
        vectors.store_fence(builder)

    return types.void(), generate


def compiled(
    *signature: Any,  # noqa: ANN401 - numba's types have none
    returns: Any = types.void,  # noqa: ANN401
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

    def decorate(function: Any) -> Any:  # noqa: ANN401 - numba's types have none
        kind = returns(*signature)
        options = {"nogil": True, "error_model": "numpy"}
        if inner:
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        with pause_collection():
            try:
                found = _njit(kind, cache=True, **options)(function)
            except RuntimeError:  # no folder for numba's cache can be written
                found = _njit(kind, **options)(function)
        _functions.setdefault(function.__module__, []).append(found)
        return found

    return decorate


def address(function: Any) -> int:  # noqa: ANN401 - numba's types have none
    """Return where a compiled function is, for callers that follow C's rules.

    It may be taken only once the function's module is done with `renew`.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import holds
    >>> address(holds) > 0
    True
    """
    (code,) = function.overloads.values()
    found: int = code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)
    return found


def renew(module: str, compiled_for: int) -> None:
    """Compile a module's functions again where they were compiled for another `LAYOUT`.

    numba notices a change of a function's own file, but not of those that it takes constants and
    other functions from, and these from others. So each module has a function that returns the
    checksum of all of them as it was compiled.

    Examples
    --------
    >>> renew("no module", LAYOUT + 1)
    """
    for function in _functions.get(module, ()) if compiled_for != LAYOUT else ():
        with pause_collection():
            function.recompile()
