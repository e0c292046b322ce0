"""Functions that numba compiles when they are first asked for, and whose code outlives the process.

numba knows types that translated functions (`compiled`) do not have, and compiles functions of
users, too. It takes tenths of a second for each, and long to be loaded.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from numba import njit, types
from numba.core import typeinfer

from tilesolve.kernels.garbage import pause_collection
from tilesolve.kernels.runtime.kept_functions import KeptFunction
from tilesolve.system.first_use import tell_of_compiling

_njit: Any = njit
_typeinfer: Any = typeinfer  # numba's types describe neither well

INT = types.int64
REAL = types.float64


def deferred(function: Any) -> Any:
    """Make a function that `address_for` compiles, or takes from an earlier process, when asked."""
    found = _njit(nogil=True, error_model="numpy", no_cpython_wrapper=True)(function)
    found._cache = KeptFunction(function)
    return found


def inlined(function: Any) -> Any:
    """Make a function part of each deferred function that calls it.

    It is not compiled for itself, so its types are those of its calls.
    """
    return _njit(inline="always", error_model="numpy")(function)


def address_for(function: Any, *signature: Any) -> int:
    """Return where a `deferred` function is that takes arguments of some types.

    Examples
    --------
    >>> address_for(deferred(lambda count: None), INT) > 0
    True
    """
    if signature not in function.overloads:
        kept = function._cache if isinstance(function._cache, KeptFunction) else nullcontext()
        register = _typeinfer.register_dispatcher
        with pause_collection(), tell_of_compiling(), kept, register(function):
            function.compile(signature)
    code = function.overloads[signature]
    found: int = code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)
    return found
