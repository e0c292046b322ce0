"""Regions in pieces: what ``or`` and ``!=`` join, and where periodic positions begin anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Box, Condition
from tilesolve.contractions.statements.operations import SEARCHES
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Param, Position, Read, Term

Piece = tuple[Condition, ...]
"""Conditions that all hold in a part of a region."""


def negate(condition: Condition) -> Condition:
    """Return the condition that holds where another one does not.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> print(negate(Condition(i - j)))
    j > i
    """
    return Condition(-condition.position - 1)


def intersect(pieces: Iterable[Piece], others: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the pieces of what lies in both of two regions: an empty one where that is nothing."""
    found = [tuple(dict.fromkeys((*one, *other))) for one in pieces for other in others]
    return tuple(one for one in found if not _is_empty(one)) or tuple(found[:1])


def unite(regions: Iterable[Sequence[Piece]]) -> tuple[Piece, ...]:
    """Return the pieces of what lies in any of some regions, none of them in another one.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> for piece in unite([[(Condition(i - 3),)], [(Condition(j - 5),)]]):
    ...     print(*piece, sep=" and ")
    i >= 3
    j >= 5 and 2 >= i
    """
    found: tuple[Piece, ...] = ()
    for region in regions:
        rest = tuple(region)
        for piece in found:
            outside = [(*piece[:at], negate(condition)) for at, condition in enumerate(piece)]
            rest = tuple(one for one in intersect(rest, outside) if not _is_empty(one))
        found += rest
    return found


def _is_empty(piece: Piece) -> bool:
    """Return whether two of some conditions rule each other out."""
    sums = (one.position + other.position for one, other in combinations(piece, 2))
    return any(not one.letters and one.offset < 0 for one in sums)


def write_pieces(
    stage: Stage, pieces: Sequence[tuple[Piece, Term]], names: set[str]
) -> list[Stage]:
    """Return statements that compute one in each of some pieces, each piece by a term of its own.

    Pieces that leave out elements compute these one after another. Of those that leave out summands
    of the same elements, each computes an array of its own, and another statement combines them.

    Parameters
    ----------
    stage
        The statement, with the conditions that hold in all pieces.
    pieces
        Conditions, and the term that is computed where they hold.
    names
        Of arrays: others are made, and added here.

    Raises
    ------
    SpecError
        If values for the same element would begin anew.
    """
    if len(pieces) == 1:
        ((piece, term),) = pieces
        return [replace(stage, term=term, where=(*stage.where, *piece))]
    groups: dict[frozenset[Condition], list[Stage]] = {}
    for piece, term in pieces:
        one = replace(stage, term=term, where=(*stage.where, *piece))
        groups.setdefault(frozenset(one.bounds), []).append(one)
    if (
        stage.update is not None
        or stage.sequence
        or not all(_is_empty((*one, *other)) for one, other in combinations(groups, 2))
    ):
        raise SpecError(
            f"{stage} begins anew in each piece of a region that 'or', '!=' or '%' cuts; "
            "sum up where(…, …, 0)"
        )
    found: list[Stage] = []
    for group in groups.values():
        found += group if len(group) == 1 else _combine(group, names)
    return [found[0], *(_goes_on(one, stage.name) for one in found[1:])]


def _goes_on(stage: Stage, name: str) -> Stage:
    """Return a statement that computes further elements of an array as no ``+=``."""
    return replace(stage, augmented=False) if stage.name == name else stage


def _combine(group: Sequence[Stage], names: set[str]) -> list[Stage]:
    """Return statements that sum up pieces, and put them together."""
    stage = group[0]
    if stage.reduction is None or stage.reduction.name in SEARCHES:
        raise SpecError(
            f"{stage} is no sum as a whole, in a region that 'or' or '!=' cuts; "
            "make the sum a statement of its own"
        )
    found: list[Stage] = []
    parts: list[Term] = []
    for one in group:
        name = f"{stage.name}_{len(found) + 1}"
        while name in names:
            name += "_"
        names.add(name)
        found.append(replace(one, name=name))
        parts.append(Read(name, stage.axes))
    operation = stage.reduction.name
    total = reduce(lambda one, other: Apply(operation, (one, other)), parts)
    return [*found, replace(stage, term=total, where=stage.bounds, augmented=False)]


def greatest_remainder(position: Affine, period: int, box: Box) -> int:
    """Return the greatest remainder that a position leaves in a box.

    Examples
    --------
    >>> i = Affine.letter("i")
    >>> greatest_remainder(i + 1, 5, {"i": (0, 9)}), greatest_remainder(i + 1, 5, {"i": (0, 2)})
    (4, 3)
    """
    low, high = position.interval(box)
    return high % period if low // period == high // period else period - 1


def find_period(subscript: Affine | Term) -> tuple[Affine, Number | Param] | None:
    """Return the position and the period of a subscript such as ``(i+1) % n``; None of others.

    Examples
    --------
    >>> position, period = find_period(Position(Affine.letter("i") + 1) % 5)
    >>> print(position, period)
    i+1 5
    """
    match subscript:
        case Apply(name="remainder", arguments=(Position(position), Param() as period)):
            return position, period
        case Apply(name="remainder", arguments=(Position(position), Number(value) as period)):
            return (position, period) if type(value) is int and value > 0 else None
    return None


_LIMITS = {"minimum", "maximum", "remainder"}
_SUMS = {"add", "subtract", "multiply", "floor_divide"}


def is_limited(subscript: Term) -> bool:
    """Return whether a subscript is made of positions between limits, such as ``min(i+1, 9)``.

    Examples
    --------
    >>> i = Position(Affine.letter("i"))
    >>> limited = Apply("minimum", (i, Number(9)))
    >>> is_limited(limited), is_limited(2 * limited - 1), is_limited(limited * limited)
    (True, True, False)
    """
    names: set[str] = set()
    for one in subscript.all:
        if isinstance(one, Apply):
            numbers = [x for x in one.arguments if isinstance(x, Number)]
            if one.name in ("multiply", "floor_divide") and not numbers:
                return False
            names.add(one.name)
        elif not isinstance(one, Number | Position):
            return False
    return bool(names & _LIMITS) and names <= _LIMITS | _SUMS
