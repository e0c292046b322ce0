"""Compiled functions: Python with addresses in place of arrays, and code that outlives the process.

The functions of a module are one object file, made when the first of them is needed. Small
functions of other modules are part of it. Large ones are called where they are instead (`invoke`).
See docs/decisions/055.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from llvmlite import ir

from tilesolve.kernels.codegen import object_code
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu
from tilesolve.kernels.codegen.python_entry import Definition, emit_entry
from tilesolve.kernels.codegen.python_source import Source
from tilesolve.kernels.codegen.scalars import INT, PAIR, POINTER, REAL, REALS, VOID
from tilesolve.kernels.garbage import pause_collection
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BIT
from tilesolve.kernels.ir.intrinsics import intrinsic
from tilesolve.kernels.objects import load_object, object_path
from tilesolve.system.locks import make_lock
from tilesolve.system.makers import start_maker

__all__ = ["INT", "PAIR", "POINTER", "REAL", "VOID"]


@intrinsic
def invoke(builder, address, *arguments):
    """Call the machine code at an address as C does.

    It is a kernel, with the address of its frame as argument, or a compiled function, see
    `address`.
    """
    _call(builder, VOID, address, arguments)


@intrinsic
def result(builder, address, *arguments):
    """Call the machine code at an address and return the integer that it returns."""
    return _call(builder, INT, address, arguments)


def _call(builder: ir.IRBuilder, returns: ir.Type, address: ir.Value, given: Any) -> ir.Value:
    function = ir.FunctionType(returns, [value.type for value in given])
    return builder.call(builder.inttoptr(address, function.as_pointer()), given)


@intrinsic
def as_pointer(builder, address):
    """Return an address as a pointer to integers."""
    return builder.inttoptr(address, POINTER)


@intrinsic
def on_stack(builder, count):
    """Return the address of memory for so many integers, gone when the function returns.

    The count is a constant. What is in the memory is unknown. A function that is `inlined` has it
    from its caller.
    """
    with builder.goto_entry_block():
        found = builder.alloca(ir.ArrayType(INT, count.constant))
    return builder.ptrtoint(found, INT)


@intrinsic
def word(builder, value, single):
    """Return the bits of a number as an integer: or of its four-byte form."""
    short = builder.bitcast(builder.fptrunc(value, ir.FloatType()), ir.IntType(32))
    return builder.select(
        builder.trunc(single, BIT), builder.zext(short, INT), builder.bitcast(value, INT)
    )


@intrinsic
def double(builder, bits):
    """Return the double that has some bits."""
    return builder.bitcast(bits, REAL)


@intrinsic
def as_real(builder, value):
    """Return an integer as a double."""
    return builder.sitofp(value, REAL)


@intrinsic
def as_reals(builder, address):
    """Return an address as a pointer to doubles."""
    return builder.inttoptr(address, REALS)


@intrinsic
def take_next(builder, place):
    """Return the number at an address, and add one to it: each of several threads gets another."""
    return builder.atomic_rmw("add", builder.inttoptr(place, POINTER), INT(1), "monotonic")


@intrinsic
def add_behind(builder, place, amount):
    """Add to the number at an address, and return what it was.

    Who sees that with `look` sees all that was done before.
    """
    return builder.atomic_rmw("add", builder.inttoptr(place, POINTER), amount, "release")


@intrinsic
def look(builder, place):
    """Return the number at an address as it is now, with all that was done before it was so."""
    return builder.load_atomic(builder.inttoptr(place, POINTER), "acquire", INT.width // 8)


@intrinsic
def store_fence(builder):
    """Wait until every store, streaming ones included, has reached memory."""
    vectors.store_fence(builder)


class Compiled:
    """A function that is compiled with its module, when one of these is needed.

    Parameters
    ----------
    source
        The Python function, and its types.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the code from Python, with integers for pointers, and without Python's lock."""
        if self._entry is None:
            name = f"{self.source.name}()"
            loaded = load_functions(self.source.python.__module__)
            self._entry = Definition.of(loaded.address(name)).bind()
        return self._entry(*arguments)


_functions: dict[str, list[Source]] = {}
"""The functions of each module that can be reached from elsewhere."""

_loaded: dict[str, LoadedCode] = {}
_lock = make_lock()

_makers: dict[str, subprocess.Popen[bytes] | None] = {}
"""Of modules that another process compiles, that process; None where none can be had."""


def compiled(
    *signature: ir.Type, returns: ir.Type = VOID, inner: bool = False
) -> Callable[[Any], Compiled]:
    """Return a decorator that has a function compiled with its module, when that is needed.

    Parameters
    ----------
    signature, returns
        What the function takes and returns.
    inner
        Whether only compiled functions call it, by its name.

    Examples
    --------
    >>> compiled(INT, returns=INT).__name__
    'decorate'
    """

    def decorate(function: Any) -> Compiled:
        source = Source(function, signature, returns)
        if not inner:
            _functions.setdefault(function.__module__, []).append(source)
        return Compiled(source)

    return decorate


def inlined(function: Any) -> Compiled:
    """Make a function part of each compiled function that calls it, for the types of the call."""
    return Compiled(Source(function))


def address(function: Compiled) -> int:
    """Return where a compiled function is, for callers that follow C's rules.

    Its module's functions are compiled now, or taken from an earlier process.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import match_arrays
    >>> address(match_arrays) > 0
    True
    """
    source = function.source
    return load_functions(source.python.__module__).address(source.name)


def is_ready(function: Compiled, after: Sequence[str] = ()) -> bool:
    """Return whether a function runs at once, for those who can do without it until then.

    If not, another process compiles its module. Where none can be had, or it has ended in vain, the
    first call does.

    Parameters
    ----------
    function
        The function.
    after
        Modules that are wanted sooner: that process compiles them first.

    Examples
    --------
    >>> from tilesolve.kernels.runtime.array_guard import match_arrays
    >>> address(match_arrays) > 0 and is_ready(match_arrays)
    True
    """
    module = function.source.python.__module__
    if module in _loaded:
        return True
    with _lock:
        if module not in _makers and not _path_of(module).exists():
            modules = (*after, module)
            order = f"import os, {', '.join(modules)}\nfrom {__name__} import load_functions\n"
            order += f"os.nice(5)\nfor module in {modules}:\n    load_functions(module)\n"
            _makers[module] = start_maker(order)
        maker = _makers.get(module)
        return maker is None or maker.poll() is not None


def load_functions(module: str) -> LoadedCode:
    """Return the code of a module's functions: from memory, from disk, or compiled now."""
    with _lock:
        if module not in _loaded:
            _loaded[module] = load_object(_path_of(module), lambda: build_functions(module))
        return _loaded[module]


def _path_of(module: str) -> Path:
    """Return where the code of a module's functions is kept."""
    ways = [(one.name, *map(str, (one.returns, *one.parameters))) for one in _functions[module]]
    return object_path("functions", module.rpartition(".")[2], sys.version, ways)


def build_functions(module: str) -> bytes:
    """Return an object file of a module's functions.

    LLVM unrolls their loops, unless the module says that it is not worth the time: `UNROLL`.
    """
    from tilesolve.kernels.codegen.translation import translate  # most processes have it on disk

    unit = ir.Module(name=module)
    with pause_collection():
        for function in translate(unit, _functions[module]):
            emit_entry(function)
        return object_code.compile_module(
            unit, TargetCpu.here(), unroll=getattr(sys.modules[module], "UNROLL", True)
        )
