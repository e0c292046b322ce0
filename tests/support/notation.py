"""Stages written in Python: letters, arrays and sums as values with operators."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import CALLS
from tilesolve.contractions.statements.terms import Choose, Read, Reduce, Term, apply, as_term


@dataclass(frozen=True, slots=True)
class Array:
    """An array by name; subscripts make an element of it.

    Examples
    --------
    >>> x, y = axes("x y")
    >>> print(Array("A")[y, x + 1] / 2)
    A[y,x+1] / 2
    """

    name: str

    def __getitem__(self, subscripts: object) -> Read:
        given = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        found: list[Affine | Term] = []
        for one in given:
            if isinstance(one, int) and not isinstance(one, bool):
                found.append(Affine.number(one))
            elif isinstance(one, Affine | Term):
                found.append(one)
            else:
                raise SpecError(f"a subscript of {self.name} is {one!r:.60}, not a position")
        return Read(self.name, tuple(found))


def axes(names: str) -> tuple[Affine, ...]:
    """Return the letters of a text.

    Examples
    --------
    >>> i, j = axes("i j")
    >>> print(2 * i - j + 1)
    2*i-j+1
    """
    letters = names.replace(",", " ").split()
    for letter in letters:
        if not letter.isidentifier():
            raise SpecError(f"a letter is an identifier, not {letter!r}")
    return tuple(map(Affine.letter, letters))


def total(term: object, *over: Affine) -> Reduce:
    """Return the sum of a term over letters.

    Examples
    --------
    >>> i, k = axes("i k")
    >>> print(total(Array("A")[i, k], k))
    sum(A[i,k], k)
    """
    letters = []
    for one in over:
        if not isinstance(one, Affine) or one.plain is None:
            raise SpecError(f"a sum runs over letters, not over {one}")
        letters.append(one.plain)
    return Reduce("add", tuple(letters), as_term(term))


def where(test: object, yes: object, no: object) -> Choose:
    """Return one of two terms, by a comparison.

    Examples
    --------
    >>> (x,) = axes("x")
    >>> print(where(Array("A")[x] > 0, Array("A")[x], 0))
    where(A[x] > 0, A[x], 0)
    """
    return Choose(as_term(test), as_term(yes), as_term(no))


def call(name: str, *arguments: object) -> Term:
    """Return a function of terms: ``min``, ``max``, ``abs``, ``sqrt``, ``exp``, ``log`` and more.

    Examples
    --------
    >>> (x,) = axes("x")
    >>> print(call("sqrt", Array("A")[x]))
    sqrt(A[x])
    """
    if name not in CALLS:
        raise SpecError(f"no function {name!r}; there are {', '.join(CALLS)}")
    return apply(CALLS[name].name, *arguments)
