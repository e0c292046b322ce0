"""Promotion: the dtypes that operations take their arguments in, by numpy's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesolve.contractions.errors import DtypeError
from tilesolve.contractions.statements.operations import (
    OPERATIONS,
    Kind,
    is_complex,
    named_kind,
    result_dtype,
)
from tilesolve.contractions.statements.powers import MOST_FACTORS
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Dtypes, Number, Position, Term


def argument_dtypes(term: Apply, kinds: Sequence[Any]) -> list[str]:
    """Return the dtypes that an operation takes its arguments in, by numpy's promotion.

    Raises
    ------
    DtypeError
        If a written number does not fit the dtype of the other argument, or is a negative power of
        an integer.

    Examples
    --------
    >>> argument_dtypes(Apply("less", (Number(1), Number(2))), ["uint8", "int32"])
    ['int32', 'int32']
    """
    given: list[Any] = [
        np.dtype(bool if kind is bool else kind) if kind is bool or isinstance(kind, str) else kind
        for kind in kinds
    ]
    if not any(isinstance(kind, np.dtype) for kind in given):
        given = [np.dtype(named_kind(kind)) for kind in given]
    operation = OPERATIONS[term.name]
    found = [one.name for one in operation.function.resolve_dtypes((*given, None))[:-1]]
    if term.name == "power" and np.dtype(found[0]).kind in "iu":
        exponent = term.arguments[1]
        if isinstance(exponent, Number) and exponent.value.real < 0:
            raise DtypeError(f"{term} is a negative power of an integer; write float64(…)")
    if term.name == "power" and is_complex(*found):
        exponent = term.arguments[1]
        if not (isinstance(exponent, Number) and exponent.value in range(1, MOST_FACTORS + 1)):
            raise DtypeError(f"{term} is no product: complex numbers have no other powers")
    for at, one in enumerate(term.arguments):
        if isinstance(one, Number) and type(one.value) is int and not _fits(one.value, found[at]):
            wide = [name if name == "uint64" else "int64" for name in found]
            if operation.compares and _fits(one.value, wide[at]):
                return wide
            raise DtypeError(f"the number {one} of {term} does not fit {found[at]}")
    return found


def widest_bytes(stage: Stage, dtypes: Mapping[str, str], letter: str = "") -> int:
    """Return the bytes of the widest number that a stage takes: a vector has as many of these.

    Of vectors along a letter, numbers that are the same for all points are left out.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[x] = 0.5 * A[x] + 3")
    >>> widest_bytes(stage, {"o": "uint8", "A": "float32"})
    4
    """
    # A reduction that is all of the term runs in the dtype of the array.
    terms = stage.term.all[1:] if stage.reduction else stage.term.all
    kinds, varies = list_kinds(terms, dtypes), list_varying(terms, letter)
    along = [one for one in terms if varies[id(one)]] or terms
    found = [kinds[id(one)] for one in along if not isinstance(one, Number | Position)]
    named = [dtypes[stage.name], *(kind for kind in found if isinstance(kind, str))]
    return max(np.dtype(kind).itemsize for kind in named)


def list_kinds(terms: Sequence[Term], dtypes: Dtypes) -> dict[int, Kind]:
    """Return the dtype of each term by its identity, given a term's `all`, or what is within it.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> terms = parse_stages("o[x] = A[x] + B[x]")[0].term.all
    >>> list(list_kinds(terms, {"A": "float32", "B": "float64"}).values())
    ['float64', 'float32', 'float64']
    """
    kinds = dict[int, Kind]()
    for one in reversed(terms):  # what an operation is made of stands behind it
        if isinstance(one, Apply):
            kinds[id(one)] = result_dtype(one.name, [kinds[id(part)] for part in one.parts])
        else:
            kinds[id(one)] = one.kind(dtypes)
    return kinds


def list_varying(terms: Sequence[Term], letter: str) -> dict[int, bool]:
    """Return whether each term depends on a letter, by its identity; `terms` as for `list_kinds`.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> terms = parse_stages("o[y,x] = A[y] + B[x]")[0].term.all
    >>> list(list_varying(terms, "y").values())
    [False, True, True]
    """
    varies = dict[int, bool]()
    for one in reversed(terms):
        if isinstance(one, Apply):
            varies[id(one)] = any(varies[id(part)] for part in one.parts)
        else:
            varies[id(one)] = letter in one.letters
    return varies


def _fits(value: int, dtype: str) -> bool:
    if np.dtype(dtype).kind not in "iu":
        return True
    ends = np.iinfo(dtype)
    return int(ends.min) <= value <= int(ends.max)
