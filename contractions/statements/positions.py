"""Positions in text: which names are letters, and which operations make one of letters."""

from __future__ import annotations

import ast
import operator
from cmath import isfinite
from collections.abc import Sequence

from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Number, Position, Term


def list_letters(node: ast.AST) -> set[str]:
    """Return the names that stand in subscripts, but for those of arrays, calls and periods."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Subscript):
            arrays = {
                x.value.id
                for x in ast.walk(one.slice)
                if isinstance(x, ast.Subscript) and isinstance(x.value, ast.Name)
            }
            periods = {
                id(x.right)
                for x in ast.walk(one.slice)
                if isinstance(x, ast.BinOp) and isinstance(x.op, ast.Mod)
            }
            periods |= {id(x.func) for x in ast.walk(one.slice) if isinstance(x, ast.Call)}
            names = [x for x in ast.walk(one.slice) if isinstance(x, ast.Name)]
            found |= {x.id for x in names if id(x) not in periods} - arrays
    return found


def _power(base: complex, exponent: complex) -> complex:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 64:
        raise DtypeError(f"the number {base} ** {exponent} does not fit 64 bits")
    return base**exponent


_PYTHONS = {
    **{"add": operator.add, "subtract": operator.sub, "multiply": operator.mul},
    **{"true_divide": operator.truediv, "floor_divide": operator.floordiv, "power": _power},
}
"""Python's own operations of numbers as they are written."""


def fold_numbers(name: str, terms: Sequence[Term]) -> Number | None:
    """Return an operation of numbers as they are written as one number, as Python does.

    Examples
    --------
    >>> fold_numbers("subtract", [Number(5), Number(2)])
    Number(value=3)
    """
    values = [one.value for one in terms if isinstance(one, Number)]
    plain = all(type(one) in (int, float, complex) for one in values)
    if name not in _PYTHONS or len(values) < len(terms) or not plain:
        return None
    try:
        found = _PYTHONS[name](*values)
        return Number(found) if isfinite(found) else None
    except ArithmeticError:
        return None


def fold_positions(name: str, terms: Sequence[Term]) -> Position | None:
    """Return an operation of letters and integers as one position, where it is one."""
    if name not in ("add", "subtract", "multiply", "negative", "floor_divide"):
        return None
    values: list[Affine | int] = []
    for term in terms:
        if isinstance(term, Position):
            values.append(term.position)
        elif isinstance(term, Number) and type(term.value) is int:
            values.append(term.value)
        else:
            return None
    if all(isinstance(value, int) for value in values):
        return None
    try:
        return Position(_fold(name, values))
    except (SpecError, TypeError):
        return None


def _fold(name: str, values: Sequence[Affine | int]) -> Affine:
    first, last = values[0], values[-1]
    match name:
        case "add":
            return first + last  # type: ignore[return-value]
        case "subtract":
            return first - last  # type: ignore[return-value]
        case "negative":
            return -first  # type: ignore[return-value]
        case "multiply":
            return first * last  # type: ignore[operator, return-value]
    return first // last  # type: ignore[operator, return-value]
