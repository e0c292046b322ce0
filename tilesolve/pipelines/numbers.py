"""Numbers of Python's and NumPy's as terms, and terms in other dtypes, as NumPy converts them."""

from __future__ import annotations

from collections.abc import Sequence
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


def typed(value: Any, others: Sequence[Any]) -> Any:
    """Return a number that terms write as several in the dtype that it takes beside others."""
    if type(value) is not float or (value == value and value):
        return value
    kind = np.result_type(*(getattr(one, "dtype", one) for one in others))
    return np.zeros((), kind).real.dtype.type(value)


def python_kind(kind: Any) -> Any:
    """Return a dtype as NumPy asks for it: Python's numbers are of their types."""
    return kind if kind in (int, float, complex) else np.dtype(kind)


def compare_outside(function: np.ufunc, given: Sequence[Any]) -> bool | None:
    """Return what comparing integers with a number gives that is larger, or smaller, than all.

    None if it is no such comparison.

    Examples
    --------
    >>> compare_outside(np.greater, (np.zeros(3, "uint64"), -1))
    True
    """
    kinds = [one.dtype for one in given if hasattr(one, "dtype")]
    if function.nout != 1 or function.types[0][-1] != "?" or len(given) != 2 or len(kinds) != 1:
        return None
    (number,) = (one for one in given if not hasattr(one, "dtype"))
    if type(number) is not int or kinds[0].kind not in "iu":
        return None
    ends = np.iinfo(kinds[0])
    if ends.min <= number <= ends.max:
        return None
    one = kinds[0].type(0)
    return bool(function(*(one if hasattr(x, "dtype") else x for x in given)))
