"""Steps of epilogues: functions of a block of C, each compiled for a dtype when it is first used.

They are written for a run: a pointer to it, its count, the address of the operand at its first
element, bytes from one element of the operand to the next, and two numbers. A block is several
runs, so many bytes apart in C and in the operand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tilesolve.contractions.elementwise import Elementwise
from tilesolve.contractions.errors import PlanError
from tilesolve.kernels.runtime import smooth_functions as smooth
from tilesolve.kernels.runtime.deferred import (
    INT,
    REAL,
    address_for,
    code_address,
    deferred,
    inlined,
)

_intrinsic: Any = intrinsic  # numba's types do not describe it well
_njit: Any = njit

_NUMBERS = {
    "float32": types.float32,
    "float64": types.float64,
    "complex64": types.complex64,
    "complex128": types.complex128,
}


@_intrinsic
def _at(_context, place, like):
    """Return an address as a pointer of the type of another one."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(like))

    return like(place, like), generate


@_intrinsic
def like(_context, value, like):
    """Return a double in the precision of a pointer's real numbers."""
    kind = like.dtype

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.fptrunc(args[0], ir.FloatType()) if kind == types.float32 else args[0]

    return kind(value, like), generate


@_intrinsic
def _distance_is_size(_context, distance, like):
    """Return whether a number of bytes is that of a pointer's numbers."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        size = context.get_abi_sizeof(context.get_data_type(like.dtype))
        return builder.icmp_signed("==", args[0], args[0].type(size))

    return types.boolean(distance, like), generate


@_intrinsic
def _moved(_context, p, distance):
    """Return a pointer to what is so many bytes behind another one."""

    def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        place = builder.ptrtoint(args[0], ir.IntType(64))
        return builder.inttoptr(builder.add(place, args[1]), args[0].type)

    return p(p, distance), generate


def _of_blocks(step: Any) -> Callable[..., None]:
    """Return what applies a step of a run to each run of a block."""
    run = _njit(inline="always", error_model="numpy")(step)

    def block(p, count, high, pitch, place, distance, apart, first, second):
        for row in range(high):
            run(_moved(p, row * pitch), count, place + row * apart, distance, first, second)

    block.__qualname__ = step.__qualname__
    return block


def as_step(function: Any) -> Any:
    """Make a function of a run one of a block, compiled when it is first used."""
    return deferred(_of_blocks(function))


@as_step
def _multiply(p, count, place, distance, first, second):
    """Multiply by an operand."""
    q = _at(place, p)
    if _distance_is_size(distance, p):
        for at in range(count):
            p[at] *= q[at]
    elif distance == 0:
        factor = q[0]
        for at in range(count):
            p[at] *= factor
    else:
        for at in range(count):
            p[at] *= _at(place + at * distance, p)[0]


@as_step
def _add(p, count, place, distance, first, second):
    """Add an operand."""
    q = _at(place, p)
    if _distance_is_size(distance, p):
        for at in range(count):
            p[at] += q[at]
    elif distance == 0:
        summand = q[0]
        for at in range(count):
            p[at] += summand
    else:
        for at in range(count):
            p[at] += _at(place + at * distance, p)[0]


@inlined
def rectified(x, zero, high):
    """Return a number, or the bound that it is beyond; what is no number stays so."""
    x = zero if x <= zero else x
    return high if x > high else x


@as_step
def _add_and_rectify(p, count, place, distance, first, second):
    """Add an operand, then have nothing below zero or above a number, in one pass."""
    zero, high, q = like(0.0, p), like(first, p), _at(place, p)
    if _distance_is_size(distance, p):
        for at in range(count):
            p[at] = rectified(p[at] + q[at], zero, high)
    elif distance == 0:
        summand = q[0]
        for at in range(count):
            p[at] = rectified(p[at] + summand, zero, high)
    else:
        for at in range(count):
            p[at] = rectified(p[at] + _at(place + at * distance, p)[0], zero, high)


@as_step
def _rectify(p, count, place, distance, first, second):
    """Have nothing below zero or above a number; what is no number stays so."""
    zero, high = like(0.0, p), like(first, p)
    for at in range(count):
        p[at] = rectified(p[at], zero, high)


@as_step
def _clip(p, count, place, distance, first, second):
    """Have nothing below one number or above another; what is no number stays so."""
    low, high = like(first, p), like(second, p)
    for at in range(count):
        x = p[at]
        x = low if x < low else x
        p[at] = high if x > high else x


@as_step
def _leak(p, count, place, distance, first, second):
    """Multiply what is below zero by a slope."""
    zero, slope = like(0.0, p), like(first, p)
    for at in range(count):
        x = p[at]
        p[at] = x * slope if x < zero else x


@as_step
def _sigmoid(p, count, place, distance, first, second):
    for at in range(count):
        p[at] = smooth.sigmoid(p[at])


@as_step
def _tanh(p, count, place, distance, first, second):
    for at in range(count):
        p[at] = smooth.tanh(p[at])


@as_step
def _silu(p, count, place, distance, first, second):
    for at in range(count):
        p[at] = smooth.silu(p[at])


@as_step
def _gelu(p, count, place, distance, first, second):
    for at in range(count):
        p[at] = like(smooth.gelu(float(p[at])), p)


@as_step
def _gelu_tanh(p, count, place, distance, first, second):
    for at in range(count):
        p[at] = like(smooth.gelu_tanh(float(p[at])), p)


_STEPS: dict[str, Callable[..., None]] = {
    "*": _multiply,
    "+": _add,
    "+ relu": _add_and_rectify,
    "+ relu6": _add_and_rectify,
    "relu": _rectify,
    "relu6": _rectify,
    "clip": _clip,
    "leaky": _leak,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
}


def step_address(name: str, dtype: str) -> int:
    """Return where the code of an operation is, or of two that are one step, for a dtype.

    Examples
    --------
    >>> step_address("leaky", "float64") == step_address("leaky", "float64") > 0
    True
    """
    return address_for(_STEPS[name], *signature(_NUMBERS[dtype]))


@cache
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
    kind: Any = _NUMBERS[dtype]
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

    def step(p, count, place, distance, first, second):
        for at in range(count):
            p[at] = kind(scalar(p[at]))

    compiled = _njit(error_model="numpy", nogil=True, no_cpython_wrapper=True)(_of_blocks(step))
    compiled.compile(signature(kind))
    _kept.append(compiled)
    return code_address(compiled, signature(kind))


_kept: list[Any] = []
"""What addresses of functions of one's own point into."""


def signature(kind: Any) -> tuple[Any, ...]:
    """Return what a step takes, for runs of numbers of a type."""
    return types.CPointer(kind), INT, INT, INT, INT, INT, INT, REAL, REAL
