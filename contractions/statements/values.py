"""Terms by their parts: what numpy makes of the values of these, and others in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.operations import OPERATIONS
from tilesolve.contractions.statements.terms import Apply, Cast, Choose, Number, Term


def combine(term: Term, value: Callable[[Term], Any]) -> Any:  # noqa: ANN401 - array or number
    """Return what numpy makes of the values of a term's parts.

    Parameters
    ----------
    term
        A number, a cast, a choice or an operation.
    value
        Returns the value of a part.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> combine(Param("x") * Param("y"), {Param("x"): 3.0, Param("y"): 2.0}.__getitem__)
    np.float64(6.0)
    """
    match term:
        case Number(value=number):
            return number
        case Cast(dtype=dtype, term=inner):
            return np.asarray(value(inner)).astype(dtype)[()]
        case Choose(test=test, yes=yes, no=no):
            return np.where(value(test), value(yes), value(no))
        case Apply(name=name, arguments=arguments):
            return OPERATIONS[name].function(*map(value, arguments))
    raise SpecError(f"{term!r} has no value by itself")


def replace_terms(term: Term, replaced: Mapping[Term, Term]) -> Term:
    """Return a term in which others stand in the place of some.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> print(replace_terms(Param("x") + 1, {Param("x"): Param("y") * 2}))
    y * 2 + 1
    """
    if term in replaced:
        return replaced[term]
    parts = [replace_terms(part, replaced) for part in term.parts]
    return term.rebuilt(parts) if parts else term


def converted(term: Term, dtype: str) -> Term:
    """Return a term in another dtype; of two numbers, the one that is chosen has it from the start.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> print(converted(Choose(Param("a") > 0, Number(255), Number(0)), "uint8"))
    where(a > 0, uint8(255), uint8(0))
    """
    if isinstance(term, Choose) and isinstance(term.yes, Number) and isinstance(term.no, Number):
        return replace(term, yes=Cast(dtype, term.yes), no=Cast(dtype, term.no))
    return Cast(dtype, term)
