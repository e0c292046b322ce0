"""Pairings: what a contraction does with pairs of elements in place of multiplying and adding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.operations import check_reduction
from tilesolve.contractions.statements.terms import Apply, Cast, Choose, Number, Param, Term
from tilesolve.contractions.statements.values import replace_terms

FIRST, SECOND = Param("a"), Param("b")
"""What stands for the elements of the first and of the second operand."""

MAX_OPERATIONS = 6
"""Operations of a term at most: the code of a tile repeats them for each of its vectors."""

_ARITHMETIC = ("add", "subtract", "multiply", "minimum", "maximum", "absolute", "negative")
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


@dataclass(frozen=True, slots=True)
class Pairing:
    """A term of two elements, and the operation that puts its values together.

    Parameters
    ----------
    reduction
        One of the operations that may run over letters, by numpy's name.
    term
        Of `FIRST` and `SECOND`, in the operands' dtype.

    Examples
    --------
    >>> pairing = Pairing("maximum", FIRST - 2 * SECOND)
    >>> str(pairing), Pairing.parse(str(pairing)) == pairing, str(pairing.of_operand(1))
    ('maximum(a - 2 * b)', True, 'maximum(b - 2 * a)')
    """

    reduction: str
    term: Term

    def __post_init__(self) -> None:
        check_reduction(self.reduction)
        check_kind(self.term, Term, "term of a Pairing", "a Term", SpecError)
        for one in self.term.all:
            named = isinstance(one, Apply) and one.name in (*_ARITHMETIC, *_COMPARISONS)
            if not (named or isinstance(one, Cast | Choose | Number) or one in (FIRST, SECOND)):
                raise SpecError(f"{one} is nothing that register tiles compute of two elements")
        if self.term.work > MAX_OPERATIONS:
            raise SpecError(f"{self.term} has more than {MAX_OPERATIONS} operations")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` writes.

        Raises
        ------
        SpecError
            If the text is something else.
        """
        from tilesolve.contractions.statements.parse import parse_stages

        reduction, _, rest = text.partition("(")
        (stage,) = parse_stages(f"pair[i] = {rest.removesuffix(')')}")
        return cls(reduction, stage.term)

    @property
    def adds(self) -> bool:
        """Whether values are added up, so that they can be scaled, and added to others."""
        return self.reduction == "add"

    @property
    def instructions(self) -> int:
        """How many instructions two vectors take; a product that is added is one with its sum.

        Examples
        --------
        >>> texts = "add(a * b)", "add((a - b) * (a - b))", "maximum(abs(a - b))"
        >>> [Pairing.parse(text).instructions for text in texts]
        [1, 2, 3]
        """
        fused = self.adds and isinstance(self.term, Apply) and self.term.name == "multiply"
        return self.term.work + 1 - fused

    def of_operand(self, first: int) -> Self:
        """Return the pairing where an operand, number 0 or 1, comes first."""
        if first == 0:
            return self
        return type(self)(self.reduction, replace_terms(self.term, {FIRST: SECOND, SECOND: FIRST}))

    def __str__(self) -> str:
        return f"{self.reduction}({self.term})"
