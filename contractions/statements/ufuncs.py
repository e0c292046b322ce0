"""NumPy's functions of elements as operations of terms, where they are called otherwise."""

from __future__ import annotations

from functools import reduce
from itertools import repeat
from operator import mul
from typing import TypeVar

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.operations import OPERATIONS
from tilesolve.contractions.statements.terms import Term, apply

_T = TypeVar("_T")

MOST_FACTORS = 8
"""How many factors a power may have."""

_NAMES = {"divide": "true_divide", "fabs": "absolute"}
"""What operations are called whose function has another name."""

_LOGICAL = {
    "logical_and": "bitwise_and",
    "logical_or": "bitwise_or",
    "logical_xor": "not_equal",
    "logical_not": "invert",
}
"""What functions of truth values are of such alone."""


def apply_ufunc(name: str, *terms: Term) -> Term:
    """Return what a function of elements is of terms, given NumPy's name of it.

    Raises
    ------
    SpecError
        If terms have no such operation.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> print(apply_ufunc("divide", Param("x"), Param("y")), apply_ufunc("square", Param("x")))
    x / y x * x
    """
    name = _NAMES.get(name, name)
    if name in OPERATIONS:
        return apply(name, *terms)
    if name in _LOGICAL:
        return apply(_LOGICAL[name], *(apply("not_equal", one, 0) for one in terms))
    match name:
        case "square":
            return raise_to(terms[0], 2)
        case "positive":
            return terms[0]
        case "isfinite":
            return apply("less", apply("absolute", terms[0]), float("inf"))
        case "isinf":
            return apply("equal", apply("absolute", terms[0]), float("inf"))
        case "isnan":
            return apply("not_equal", *terms, *terms)
    raise SpecError(f"terms have no operation {name!r}")


def raise_to(value: _T, power: int) -> _T:
    """Return a product of equal factors.

    Raises
    ------
    SpecError
        If it would have none, or too many.
    """
    if power not in range(1, MOST_FACTORS + 1):
        raise SpecError(f"a power of {power!r} is no product of at most {MOST_FACTORS} factors")
    return reduce(mul, repeat(value, int(power)))
