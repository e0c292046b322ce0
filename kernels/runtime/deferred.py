"""Functions that numba compiles when they are first asked for, and whose code outlives the process.

numba knows types that translated functions (`compiled`) do not have. It takes tenths of a second
for each, and long to be loaded. Its own files lie beside the sources, which may be read-only, and
are executed whoever wrote them; here each function is an object as other code is.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numba
from numba.core import compiler, serialize, typeinfer
from numba.core.compiler_lock import global_compiler_lock

from tilesolve.kernels.garbage import pause_collection
from tilesolve.kernels.objects import make_object, object_path

_numba: Any = numba
_typeinfer: Any = typeinfer
_serialize: Any = serialize
_CompileResult: Any = compiler.CompileResult  # numba's types describe none of them well

INT = _numba.types.int64
REAL = _numba.types.float64


def deferred(function: Any) -> Any:
    """Make a function that `address_for` compiles, or takes from an earlier process, when asked."""
    return _numba.njit(nogil=True, error_model="numpy", no_cpython_wrapper=True)(function)


def inlined(function: Any) -> Any:
    """Make a function part of each deferred function that calls it.

    It is not compiled for itself, so its types are those of its calls.
    """
    return _numba.njit(inline="always", error_model="numpy")(function)


def address_for(function: Any, *signature: Any) -> int:
    """Return where a `deferred` function is that takes arguments of some types.

    Examples
    --------
    >>> address_for(deferred(lambda count: None), INT) > 0
    True
    """
    register = _typeinfer.register_dispatcher
    with global_compiler_lock, pause_collection(), register(function):
        if signature not in function.overloads:
            _obtain(function, signature)
    return code_address(function, signature)


def code_address(function: Any, signature: tuple[Any, ...]) -> int:
    """Return where a function is that has been compiled for some types."""
    code = function.overloads[signature]
    found: int = code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)
    return found


def _obtain(function: Any, signature: tuple[Any, ...]) -> None:
    """Compile a function, or take its code from disk."""
    python, context = function.py_func, function.targetctx
    context.refresh()
    name = f"{python.__module__.rpartition('.')[2]}.{python.__qualname__}"
    tools = numba.__version__, sys.version, context.codegen().magic_tuple()

    def build() -> bytes:
        function.compile(signature)
        made = function.overloads[signature]
        if made.library.has_dynamic_globals:
            raise RuntimeError(f"{name} has addresses in it, which are of no use to others")
        code: bytes = _serialize.dumps(made._reduce())
        return code

    code = make_object(object_path("functions", name, tools, name, signature), build)
    if signature not in function.overloads:  # pickled and signed by this user
        found = _CompileResult._rebuild(context, *pickle.loads(code))
        context.insert_user_function(found.entry_point, found.fndesc, [found.library])
        function.add_overload(found)
