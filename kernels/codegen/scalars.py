"""Numbers of translated functions: their types, and Python's arithmetic on them.

A value is one of LLVM, or a Python number that is known before code runs, or a tuple of values.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tilesolve.kernels.ir import arithmetic
from tilesolve.kernels.ir.arithmetic import BIT
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.vectors import extreme

INT = ir.IntType(64)
REAL = ir.DoubleType()
POINTER = INT.as_pointer()
REALS = REAL.as_pointer()
PAIR = ir.LiteralStructType([INT, INT])
VOID = ir.VoidType()


def as_value(builder: ir.IRBuilder, value: Any, kind: ir.Type | None = None) -> Any:
    """Return a number as a value of a type; without one, bits become integers.

    Raises
    ------
    TypeError
        If it is no number, or one of another type.
    """
    if isinstance(value, tuple):
        return tuple(as_value(builder, one) for one in value)
    if isinstance(value, int | float):
        if kind is None:
            kind = REAL if isinstance(value, float) else INT
        value = kind(float(value) if kind == REAL else int(value))
    elif not isinstance(value, ir.Value):
        raise TypeError(f"{value!r} is no number")
    elif value.type == BIT:
        value = builder.zext(value, INT)
    if kind is not None and value.type != kind:
        raise TypeError(f"{value.type} where {kind} was expected")
    return value


def as_bit(builder: ir.IRBuilder, value: Any) -> ir.Value:
    """Return whether a number is another one than zero."""
    if not isinstance(value, ir.Value):
        return BIT(bool(value))
    return value if value.type == BIT else compare(builder, ast.NotEq, value, 0)


def compare(builder: ir.IRBuilder, kind: type, first: Any, second: Any) -> Any:
    """Return whether a comparison is true."""
    if kind not in _COMPARISONS:
        raise TypeError(f"{kind.__name__} cannot be translated")
    sign, known = _COMPARISONS[kind]
    if not isinstance(first, ir.Value) and not isinstance(second, ir.Value):
        return known(first, second)
    one, other = (as_value(builder, value) for value in (first, second))
    wanted, dtype = (REAL, "float64") if REAL in (one.type, other.type) else (one.type, "int64")
    values = [as_value(builder, value, wanted) for value in (first, second)]
    return arithmetic.compare(builder, sign, (dtype, dtype), values)


def operate(builder: ir.IRBuilder, kind: type, first: Any, second: Any) -> Any:
    """Return the result of an operation on two integers, or on two doubles."""
    if not isinstance(first, ir.Value) and not isinstance(second, ir.Value):
        operations: dict[type, Callable[..., Any]] = _KNOWN
        values: list[Any] = [first, second]
    else:
        kinds = [as_value(builder, value).type for value in (first, second)]
        wanted, operations = (REAL, _OF_REALS) if REAL in kinds else (INT, _OPERATIONS)
        values = [builder, *(as_value(builder, value, wanted) for value in (first, second))]
    if kind not in operations:
        raise TypeError(f"{kind.__name__} cannot be translated")
    return operations[kind](*values)


def smaller(builder: ir.IRBuilder, first: Any, second: Any, *, largest: bool = False) -> Any:
    """Return the smaller of two integers, or the larger."""
    if not isinstance(first, ir.Value) and not isinstance(second, ir.Value):
        return max(first, second) if largest else min(first, second)
    one, other = (as_value(builder, value, INT) for value in (first, second))
    return extreme(builder, ">" if largest else "<", one, other)


def _divide(builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
    return divide_down(builder, first, second)[0]


def _remainder(builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
    return divide_down(builder, first, second)[1]


_COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}

_KNOWN: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

_OPERATIONS: dict[type, Callable[..., ir.Value]] = {
    ast.Add: ir.IRBuilder.add,
    ast.Sub: ir.IRBuilder.sub,
    ast.Mult: ir.IRBuilder.mul,
    ast.FloorDiv: _divide,
    ast.Mod: _remainder,
    ast.BitAnd: ir.IRBuilder.and_,
    ast.BitOr: ir.IRBuilder.or_,
    ast.LShift: ir.IRBuilder.shl,
    ast.RShift: ir.IRBuilder.ashr,
}

_OF_REALS: dict[type, Callable[..., ir.Value]] = {
    ast.Add: ir.IRBuilder.fadd,
    ast.Sub: ir.IRBuilder.fsub,
    ast.Mult: ir.IRBuilder.fmul,
    ast.Div: ir.IRBuilder.fdiv,
}
