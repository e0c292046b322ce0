"""Positions in text: which names are letters, and which operations make one of letters."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Number, Position, Term


def list_letters(node: ast.AST) -> set[str]:
    """Return the names that stand in subscripts, but for those of arrays and periods."""
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
            names = [x for x in ast.walk(one.slice) if isinstance(x, ast.Name)]
            found |= {x.id for x in names if id(x) not in periods} - arrays
    return found


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
