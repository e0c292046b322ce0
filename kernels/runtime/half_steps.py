"""Steps of epilogues with operands of halves, and those that read and write C of halves.

C's sums are float32 until the last step rounds them. See `epilogue_steps` for what a step is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilesolve.contractions.half_precision import HALF_DTYPES
from tilesolve.kernels.ir import half_precision
from tilesolve.kernels.runtime import epilogue_steps
from tilesolve.kernels.runtime.deferred import address_for
from tilesolve.kernels.runtime.epilogue_steps import as_step, like, rectified, signature

_intrinsic: Any = intrinsic  # numba's types do not describe it well

HALF_BYTES = 2
"""Bytes of a half."""


@_intrinsic
def _as_halves(_context, place):
    """Return an address as a pointer to halves."""
    kind = types.CPointer(types.int16)

    def generate(context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(place), generate


def _converters(dtype: str) -> tuple[Any, Any]:
    """Return what compiled functions widen a half with, and round a float32 with."""

    @_intrinsic
    def widen(_context, bits):
        def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
            return half_precision.widen(builder, args[0], dtype)

        return types.float32(bits), generate

    @_intrinsic
    def round_off(_context, value):
        def generate(_context: Any, builder: ir.IRBuilder, _: Any, args: Any) -> ir.Value:
            return half_precision.round_to_half(builder, args[0], dtype)

        return types.int16(value), generate

    return widen, round_off


def _operand_steps(widen: Any) -> dict[str, Any]:
    """Return the steps that read an operand of halves."""

    def multiply(p, count, place, distance, first, second):
        """Multiply by an operand."""
        q = _as_halves(place)
        if distance == HALF_BYTES:
            for at in range(count):
                p[at] *= widen(q[at])
        elif distance == 0:
            factor = widen(q[0])
            for at in range(count):
                p[at] *= factor
        else:
            for at in range(count):
                p[at] *= widen(_as_halves(place + at * distance)[0])

    def add(p, count, place, distance, first, second):
        """Add an operand."""
        q = _as_halves(place)
        if distance == HALF_BYTES:
            for at in range(count):
                p[at] += widen(q[at])
        elif distance == 0:
            summand = widen(q[0])
            for at in range(count):
                p[at] += summand
        else:
            for at in range(count):
                p[at] += widen(_as_halves(place + at * distance)[0])

    def add_and_rectify(p, count, place, distance, first, second):
        """Add an operand, then have nothing below zero or above a number, in one pass."""
        zero, high, q = like(0.0, p), like(first, p), _as_halves(place)
        if distance == HALF_BYTES:
            for at in range(count):
                p[at] = rectified(p[at] + widen(q[at]), zero, high)
        elif distance == 0:
            summand = widen(q[0])
            for at in range(count):
                p[at] = rectified(p[at] + summand, zero, high)
        else:
            for at in range(count):
                summand = widen(_as_halves(place + at * distance)[0])
                p[at] = rectified(p[at] + summand, zero, high)

    return {"*": multiply, "+": add, "+ relu": add_and_rectify, "+ relu6": add_and_rectify}


def _output_steps(widen: Any, round_off: Any) -> dict[str, Any]:
    """Return the steps that read and write C."""

    def add_multiple(p, count, place, distance, first, second):
        """Add a multiple of C."""
        q, factor = _as_halves(place), like(first, p)
        if distance == HALF_BYTES:
            for at in range(count):
                p[at] += factor * widen(q[at])
        else:
            for at in range(count):
                p[at] += factor * widen(_as_halves(place + at * distance)[0])

    def write(p, count, place, distance, first, second):
        """Round what is computed to C."""
        q = _as_halves(place)
        if distance == HALF_BYTES:
            for at in range(count):
                q[at] = round_off(p[at])
        else:
            for at in range(count):
                _as_halves(place + at * distance)[0] = round_off(p[at])

    return {ADD_MULTIPLE: add_multiple, WRITE: write}


def _steps_of(dtype: str) -> dict[str, Callable[..., None]]:
    """Return the steps of a dtype by their names."""
    widen, round_off = _converters(dtype)
    found = _operand_steps(widen) | _output_steps(widen, round_off)
    return {name: _named(function, dtype) for name, function in found.items()}


def _named(function: Any, dtype: str) -> Any:
    """Return a function as a step, under a name that says what it is of."""
    function.__qualname__ = f"{function.__name__}_{dtype}"
    return as_step(function)


ADD_MULTIPLE, WRITE = "add a multiple of C", "write C"
"""The steps that C itself is the operand of."""

_STEPS = {dtype: _steps_of(dtype) for dtype in HALF_DTYPES}


def half_step_address(name: str, dtype: str) -> int:
    """Return where the code of an operation is, or of two that are one step, for a dtype.

    Examples
    --------
    >>> half_step_address("+", "float16") != half_step_address("+", "bfloat16")
    True
    """
    step = _STEPS[dtype].get(name)
    if step is None:
        return epilogue_steps.step_address(name, "float32")
    return address_for(step, *signature(types.float32))
