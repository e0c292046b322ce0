"""Steps of epilogues that are no terms: functions that numba compiles, in each process anew.

They are called as all steps are, see `codegen.epilogue_steps`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilesolve.contractions.elementwise import Elementwise
from tilesolve.contractions.errors import PlanError
from tilesolve.kernels.garbage import pause_collection
from tilesolve.system.first_use import tell_of_compiling

_intrinsic: Any = intrinsic
_njit: Any = numba.njit  # numba's types describe none of these well
_cfunc: Any = numba.cfunc

_NUMBERS = {"float32": types.float32, "float64": types.float64}


@_intrinsic
def _moved(_context, p, distance):
    """Return a pointer to what is so many bytes behind another one."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        place = builder.ptrtoint(args[0], ir.IntType(64))
        return builder.inttoptr(builder.add(place, args[1]), args[0].type)

    return p(p, distance), generate


def own_step_address(function: Elementwise, dtype: str) -> int:
    """Return where the code of a function of one's own is, for runs of numbers of a dtype.

    Raises
    ------
    PlanError
        If numba cannot compile it, or what it returns is no real number.

    Examples
    --------
    >>> own_step_address(Elementwise(lambda x: (x, x)), "float32")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: elementwise function '<lambda>' returns \
UniTuple(float32 x 2) for float32, it must return a real number
    """
    address: int = _compile_step(function, dtype).address
    return address


@cache
def _compile_step(function: Elementwise, dtype: str) -> Any:
    """Return a step as numba compiles it: the code is there as long as this is."""
    kind: Any = _NUMBERS[dtype]
    scalar = _compile_scalar(function, dtype, kind)

    def step(p, count, high, pitch, place, distance, apart, first, second):
        for row in range(high):
            run = _moved(p, row * pitch)
            for at in range(count):
                run[at] = kind(scalar(run[at]))

    signature = types.void(types.CPointer(kind), *[types.int64] * 6, *[types.float64] * 2)
    with pause_collection(), tell_of_compiling():
        return _cfunc(signature, error_model="numpy")(step)


def _compile_scalar(function: Elementwise, dtype: str, kind: Any) -> Any:
    """Return a function of one's own as numba compiles it, for one number."""
    scalar = _njit(error_model="numpy", nogil=True)(function.python)
    try:
        scalar.compile((kind,))
    except Exception as error:  # numba raises errors of many kinds
        reason = " ".join(str(error).split())
        raise PlanError(
            f"{function} cannot be compiled for {dtype}: {type(error).__name__}: {reason}"
        ) from error
    (found,) = scalar.nopython_signatures
    if not isinstance(found.return_type, types.Integer | types.Float | types.Boolean):
        raise PlanError(
            f"{function} returns {found.return_type} for {dtype}, it must return a real number"
        )
    return scalar
