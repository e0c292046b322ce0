"""Scans: a term put together from the first value of a letter on, such as a cumulative sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.operations import Kind, reduced_dtype
from tilesolve.contractions.statements.terms import Dtypes, Term

SCANS = {"cumsum": "add", "cumprod": "multiply", "cummin": "minimum", "cummax": "maximum"}
"""Scans by what text calls them, and their operations."""


@dataclass(frozen=True, slots=True)
class Scan(Term):
    """A term at all values of a letter up to the one that it has, put together by an operation.

    Examples
    --------
    >>> from tilesolve.contractions.statements.affine import Affine
    >>> from tilesolve.contractions.statements.terms import Read
    >>> k = Affine.letter("k")
    >>> print(Scan("cumsum", "k", Read("A", (k,))))
    cumsum(A[k], k)
    """

    name: str
    letter: str
    term: Term

    def __post_init__(self) -> None:
        if self.name not in SCANS:
            raise SpecError(f"no scan {self.name!r}; there are {', '.join(SCANS)}")
        if self.letter not in self.term.letters:
            raise SpecError(f"{self} runs along a letter of its term: that has no {self.letter!r}")

    @property
    def operation(self) -> str:
        """What puts values together."""
        return SCANS[self.name]

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return (self.term,)

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values: that of numpy's `cumsum` and the like."""
        return reduced_dtype(self.operation, self.term.kind(dtypes))

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        return Scan(self.name, self.letter, *parts)

    def __str__(self) -> str:
        return f"{self.name}({self.term}, {self.letter})"
