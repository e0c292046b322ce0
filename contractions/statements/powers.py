"""Powers with small exponents as products, which other code recognises and registers share."""

from __future__ import annotations

import numpy as np

from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.terms import Apply, Dtypes, Number, Term

MOST_FACTORS = 8
"""Products of more factors lose more digits than `power` does."""


def expand_powers(term: Term, dtypes: Dtypes) -> Term:
    """Return a term with products, roots and quotients in place of its simplest powers.

    The dtype stays the same.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> x, n = Param("x"), Param("n")
    >>> print(expand_powers(x**3 + x**0.5 + x**n, {"x": "float32", "n": "float32"}))
    x * x * x + sqrt(x) + x ** n
    """
    if not any(isinstance(one, Apply) and one.name == "power" for one in term.all):
        return term
    parts = [expand_powers(part, dtypes) for part in term.parts]
    term = term.rebuilt(parts) if parts else term
    if not isinstance(term, Apply) or term.name != "power":
        return term
    base, exponent = term.arguments
    kind, found = named_kind(base.kind(dtypes)), named_kind(term.kind(dtypes))
    if not isinstance(exponent, Number) or kind != found:
        return term
    value = exponent.value
    if value == 0.5 and np.dtype(kind).kind == "f":
        return Apply("sqrt", (base,))
    if value == -1 and np.dtype(kind).kind == "f":
        return Number(1.0) / base
    if value in range(1, MOST_FACTORS + 1):
        return _multiply(base, int(value.real))
    return term


def _multiply(base: Term, times: int) -> Term:
    """Return a product of equal factors, as squares of squares."""
    if times == 1:
        return base
    half = _multiply(base, times // 2)
    return half * half * base if times % 2 else half * half
