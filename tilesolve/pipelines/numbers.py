"""Numbers of Python's and NumPy's as terms, and terms in other dtypes, as NumPy converts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesolve.contractions.errors import DtypeError, TraceError
from tilesolve.contractions.statements.operations import check_parts
from tilesolve.contractions.statements.terms import Cast, Number, Term, apply


def number(value: complex) -> Term:
    """Return a number of Python's as a term."""
    if value != value and isinstance(value, complex):
        raise TraceError(f"it has the constant {value}, which is no number; an array may have it")
    if value != value:
        infinite = Number(float("inf"))
        return infinite - infinite
    if isinstance(value, float) and not value and np.signbit(value):
        return -Number(0.0)  # numbers that are equal have one plan
    return Number(value)


def filling(value: Any, kind: str) -> Term:
    """Return a number as an element of an array of some dtype."""
    one = np.zeros((), kind)
    try:
        one[...] = value
    except (OverflowError, TypeError) as error:
        raise DtypeError(f"{value!r} does not fit {kind}") from error
    return Cast(kind, number(one.item()))


def cast(term: Term, kind: str, wanted: str) -> Term:
    """Return a term in another dtype, as NumPy converts it."""
    if kind == wanted:
        return term
    check_parts(kind, wanted, "it")
    return apply("not_equal", term, 0) if wanted == "bool" else Cast(wanted, term)
