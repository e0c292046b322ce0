"""What follows a sum within a statement, as the epilogue of the contraction that the sum is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tilesolve.contractions.epilogue import Operation
from tilesolve.contractions.statements.activations import ACTIVATIONS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Term

_FUNCTIONS = ("tanh", *ACTIVATIONS)


@dataclass(frozen=True, slots=True)
class FollowedSum:
    """A term as a sum, and operations on what it gives.

    Parameters
    ----------
    inner
        The term that has the sum.
    operations
        In order; operands have the letters of the statement.
    operands
        The element that each operation with an operand reads.
    """

    inner: Term
    operations: tuple[Operation, ...] = ()
    operands: tuple[Read, ...] = ()


def find_followed_sum(stage: Stage) -> FollowedSum:
    """Return what follows the sum of a statement, from the outermost operation inwards.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("C[i,j] = max(sum(A[i,k] * B[k,j], k) + b[j], 0)")
    >>> found = find_followed_sum(stage)
    >>> print(found.inner, *found.operations)
    sum(A[i,k] * B[k,j], k) +j relu
    """
    found = FollowedSum(stage.term)
    while (outer := _take_outermost(stage, found.inner)) is not None:
        found = FollowedSum(
            outer.inner,
            (*outer.operations, *found.operations),
            (*outer.operands, *found.operands),
        )
    return found


def _take_outermost(stage: Stage, term: Term) -> FollowedSum | None:
    """Return a term without its outermost operations; None if no epilogue has them."""
    if not isinstance(term, Apply):
        return None
    if term.name in _FUNCTIONS:
        return FollowedSum(term.arguments[0], (Operation(term.name.replace("_", "-")),))
    if term.name == "add":
        return _take_operands(stage, term)
    if len(term.arguments) != 2:
        return None
    inner, other = term.arguments
    if isinstance(inner, Number | Read):
        inner, other = other, inner
    if term.name == "multiply" and isinstance(other, Read) and _is_operand(stage, other):
        return FollowedSum(inner, (_operation("*", other),), (other,))
    if term.name in ("maximum", "minimum") and isinstance(other, Number):
        operation = _limit(term.name, float(other.value.real))
        return None if operation is None else FollowedSum(inner, (operation,))
    return None


def _take_operands(stage: Stage, term: Term) -> FollowedSum | None:
    """Return a sum of terms without the elements of other arrays; None if there are none."""
    added = list(list_addends(term))
    operands = tuple(x for x in added if isinstance(x, Read) and _is_operand(stage, x))
    rest = [x for x in added if x not in operands]
    if not operands or not rest:
        return None
    inner = rest[0]
    for one in rest[1:]:
        inner = inner + one
    return FollowedSum(inner, tuple(_operation("+", one) for one in operands), operands)


def list_addends(term: Term) -> Iterator[Term]:
    """Yield what a term adds up: the term itself if it is no sum of others.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> print(*list_addends(Param("x") + 1 + Param("y")))
    x 1 y
    """
    if isinstance(term, Apply) and term.name == "add":
        for one in term.arguments:
            yield from list_addends(one)
    else:
        yield term


def _is_operand(stage: Stage, read: Read) -> bool:
    """Return whether an element is one for each of some letters of the output."""
    letters = _letters(read)
    if read.array == stage.name or letters is None:
        return False
    return len(set(letters)) == len(letters) and set(letters) <= set(stage.output)


def _letters(read: Read) -> tuple[str, ...] | None:
    """Return the letters that an element moves along, one an axis that it moves along."""
    found: list[str] = []
    for one in read.subscripts:
        if not isinstance(one, Affine) or one.divisor > 1 or len(one.terms) > 1:
            return None
        if any(factor < 1 for factor, _ in one.terms):
            return None
        found += one.letters
    return tuple(found)


def _operation(name: str, operand: Read) -> Operation:
    return Operation(name, _letters(operand) or ())


def _limit(name: str, number: float) -> Operation | None:
    """Return a limit as an operation; None for a number that text does not hold."""
    if float(f"{number:g}") != number:
        return None
    if name == "minimum":
        return Operation("clip", numbers=(-inf, number))
    return Operation("clip", numbers=(number, inf)) if number else Operation("relu")
