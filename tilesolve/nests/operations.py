"""Operations: as how many additions a point of a statement takes, beside its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby, pairwise
from math import prod
from operator import itemgetter
from types import MappingProxyType

import numpy as np

from tilesolve.constants.nests import (
    NEST_OPERATIONS,
    NEST_SINGLE_OPERATIONS,
)
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import Kind, named_kind
from tilesolve.contractions.statements.promotion import list_kinds, list_varying
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.kernels.ir.reciprocals import find_reciprocal

EXTREMES = ("minimum", "maximum")
"""Operations that take longer where numbers may be none."""


def count_operations(
    term: Term,
    dtypes: Mapping[str, str],
    vector: str | None = None,
    rows: Mapping[str, int] = MappingProxyType({}),
) -> float:
    """Return how many additions a point takes as long as, each different operation once.

    Parameters
    ----------
    term, dtypes
        What is computed.
    vector
        The letter along which vectors lie: what is the same for all points of one is computed
        before.
    rows
        How many points of other letters are written out around a vector: what several of them
        have in common is computed once.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[y,x] = (A[y,x] + A[y,x+1]) * (A[y+1,x] + A[y+1,x+1]) * B[x]")
    >>> dtypes = {"A": "float32", "B": "float32"}
    >>> [count_operations(stage.term, dtypes, "x", {"y": rows}) for rows in (1, 4)]
    [4.0, 3.25]
    """
    whole = _Forms("").read(term)
    shares = [(_Forms(letter).read(term), count) for letter, count in rows.items()]
    every = term.all
    kinds, varies = list_kinds(every, dtypes), list_varying(every, vector or "")
    applied = (one for one in every if isinstance(one, Apply | Choose | Reduce))
    different = {whole.places[id(one)][0]: one for one in applied}.values()
    return sum(
        _operations(one, dtypes, kinds) * prod(form.share(one, count) for form, count in shares)
        for one in different
        if vector is None or isinstance(one, Reduce) or varies[id(one)]
    )


@dataclass(slots=True)
class _Forms:
    """The parts of a term by their form, which is the same wherever they lie along a letter.

    Parameters
    ----------
    letter
        It.
    numbers
        Of each form.
    places
        The form of each part, by its identity, and how far along it lies; None where the letter
        does not move it.
    found
        How far along all parts of a form lie.
    """

    letter: str
    numbers: dict[object, int] = field(default_factory=dict)
    places: dict[int, tuple[int, Fraction | None]] = field(default_factory=dict)
    found: dict[int, set[Fraction | None]] = field(default_factory=dict)

    def read(self, term: Term) -> _Forms:
        """Take in a term, which has to live as long as this does."""
        self._place(term)
        return self

    def share(self, term: Term, count: int) -> float:
        """Return the share of points that compute a part anew where so many are written out."""
        number, _ = self.places[id(term)]
        different = self.found[number]
        apart = sorted((one % 1, one) for one in different if one is not None)
        if not apart:
            return 1 / count
        computed = 0.0
        for _, alike in groupby(apart, key=itemgetter(0)):  # those parts of a step apart share none
            pairs = pairwise(place for _, place in alike)
            computed += count + sum(min(float(other - one), count) for one, other in pairs)
        return computed / (count * len(different))

    def _place(self, term: Term) -> tuple[int, Fraction | None]:
        own = [self._of(one) for one in _list_positions(term)]
        found = [*own, *(self._place(one) for one in term.parts)]
        base = min((at for _, at in found if at is not None), default=None)
        form = tuple((one, at if at is None or base is None else at - base) for one, at in found)
        key = type(term), _name(term), form
        number = self.numbers.setdefault(key, len(self.numbers))
        self.places[id(term)] = number, base
        self.found.setdefault(number, set()).add(base)
        return number, base

    def _of(self, position: Affine) -> tuple[object, Fraction | None]:
        """Return a position's form, and how far along it lies; 0 where steps are not equal."""
        factor = position.factor(self.letter)
        if not factor:
            return position, None
        if factor < 0 or position.divisor > 1:
            return position, Fraction(0)
        return position.terms, Fraction(position.offset, factor)


def _list_positions(term: Term) -> Iterable[Affine]:
    """Return the positions that a term itself has, known beforehand."""
    if isinstance(term, Position):
        return (term.position,)
    places = term.subscripts if isinstance(term, Read) else ()
    return (one for one in places if isinstance(one, Affine))


def _name(term: Term) -> object:
    """Return what tells a term from others with the same parts."""
    match term:
        case Read(array=name) | Apply(name=name) | Cast(dtype=name):
            return name
        case Reduce(name=name, over=over):
            return name, over
    return None if term.parts or isinstance(term, Position) else term


def _operations(one: Term, dtypes: Mapping[str, str], kinds: Mapping[int, Kind]) -> int:
    """Return how many additions an operation by itself takes as long as, given dtypes of terms.

    A sum of numbers that are narrower than it widens them.
    """
    if isinstance(one, Choose):
        return 1
    assert isinstance(one, Apply | Reduce)
    kind = np.dtype(named_kind(kinds[id(one)]))
    count = NEST_OPERATIONS.get(one.name, 1)
    if kind == np.float32:
        count = NEST_SINGLE_OPERATIONS.get(one.name, count)
    if one.name in EXTREMES:
        simple = any(isinstance(part, Number) for part in one.parts)
        return count // (1 + simple) if kind.kind == "f" else 1
    if isinstance(one, Reduce):
        return 1 + (np.dtype(named_kind(one.term.kind(dtypes))) != kind)
    if one.name == "true_divide" and _multiplies(one.arguments[1], kind):
        return NEST_OPERATIONS["divide_by_number"]
    return count


def _multiplies(divisor: Term, kind: np.dtype[np.generic]) -> bool:
    """Return whether code multiplies by the reciprocal of a number in place of dividing by it."""
    while isinstance(divisor, Cast):
        divisor = divisor.term
    if not isinstance(divisor, Number) or isinstance(divisor.value, complex) or kind.kind != "f":
        return False
    return find_reciprocal(float(divisor.value), kind.type) is not None
