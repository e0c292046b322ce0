"""Ends of subscripts: the least and the greatest position that a box of letters reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import lcm

from tilesolve.contractions.statements.affine import Affine, Box
from tilesolve.contractions.statements.terms import Apply, Cast, Number, Position, Term


@dataclass(frozen=True, slots=True)
class Ends:
    """The least and the greatest value of a position, as positions; None for one not known.

    `low` is taken at the first values of its letters, `high` at their last ones.
    """

    low: Affine | None = None
    high: Affine | None = None

    @classmethod
    def numbers(cls, low: int, high: int) -> Ends:
        """Return ends that are the same everywhere."""
        return cls(Affine.number(low), Affine.number(high))

    def within(self, letters: Mapping[str, Ends]) -> Ends:
        """Return the ends where some letters have ends themselves.

        Examples
        --------
        >>> y, r = Affine.letter("y"), Affine.letter("r")
        >>> found = Ends(2 * y + r, 2 * y + r).within({"r": Ends.numbers(0, 2)})
        >>> print(found.low, found.high)
        2*y 2*y+2
        >>> found = found.within({"y": Ends(y // 2, (y + 1) // 2)})
        >>> print(found.low, found.high)
        y-1 y+3
        """
        return Ends(_put(self.low, letters, least=True), _put(self.high, letters, least=False))

    def along(self, other: Ends, box: Box) -> Ends:
        """Return ends that move as others do, and in a box are no further within than these.

        Examples
        --------
        >>> y = Affine.letter("y")
        >>> first = Ends.numbers(0, 0).along(Ends(y - 2, y - 2), {"y": (0, 2)})
        >>> print(first.low, first.high)
        y-2 y
        """
        if None in (self.low, self.high, other.low, other.high):
            return Ends()
        return Ends(
            _along(self.low, other.low, box, least=True),
            _along(self.high, other.low, box, least=False),
        )


def subscript_ends(subscript: Affine | Term, box: Box) -> Ends:
    """Return the ends of a subscript, in its letters.

    A computed one has the ends that `min`, `max` and remainders give it. Where these cut off a
    position, the end is one that is never inside of the true one.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import apply
    >>> y, letters = Affine.letter("y"), {"y": (0, 13)}
    >>> ends = subscript_ends(apply("minimum", apply("maximum", y - 2, 0), 9), letters)
    >>> print(ends.low, ends.high)
    y-4 y
    >>> print(subscript_ends(apply("remainder", y + 1, 14), letters).high)
    13
    """
    if isinstance(subscript, Affine):
        return Ends(subscript, subscript)
    match subscript:
        case Position(position=position):
            return Ends(position, position)
        case Number(value=value) if isinstance(value, int):
            return Ends.numbers(value, value)
        case Cast(dtype="int64", term=term):
            return subscript_ends(term, box)
        case Apply(name=name, arguments=(first, Number(value=int() as value))):
            return _apply(name, subscript_ends(first, box), value, box)
        case Apply(name="add" | "minimum" | "maximum", arguments=(Number() as one, other)):
            return subscript_ends(Apply(subscript.name, (other, one)), box)
    return Ends()


def _apply(name: str, ends: Ends, value: int, box: Box) -> Ends:
    """Return the ends of an operation with a number."""
    low, high = ends.low, ends.high
    match name:
        case "minimum":
            return Ends(_lowered(low, value, box), _cut(high, value, min))
        case "maximum":
            return Ends(_cut(low, value, max), _raised(high, value, box))
        case "add":
            return Ends(low and low + value, high and high + value)
        case "subtract":
            return Ends(low and low - value, high and high - value)
        case "floor_divide" if value > 0:
            return Ends(low and low // value, high and high // value)
        case "multiply" if value > 0 and low and high and low.divisor == high.divisor == 1:
            return Ends(low * value, high * value)
        case "remainder" if value > 0:
            return Ends.numbers(0, value - 1)
    return Ends()


def _cut(end: Affine | None, value: int, choose: Callable[[int, int], int]) -> Affine:
    """Return an end that a number cuts off, if it is one itself; else it is kept as it is."""
    if end is None:
        return Affine.number(value)
    return end if end.terms else Affine.number(choose(end.offset, value))


def _lowered(end: Affine | None, value: int, box: Box) -> Affine | None:
    """Return an end so low that it is at no place above a number that cuts it off."""
    return None if end is None else end - max(end.interval(box)[1] - value, 0)


def _raised(end: Affine | None, value: int, box: Box) -> Affine | None:
    """Return an end so high that it is at no place below a number that cuts it off."""
    return None if end is None else end + max(value - end.interval(box)[0], 0)


def _along(end: Affine | None, other: Affine | None, box: Box, *, least: bool) -> Affine:
    """Return a position that moves as another one does, and is no further within than an end."""
    assert end is not None
    assert other is not None
    if (end.terms, end.divisor) == (other.terms, other.divisor):
        return end
    common = lcm(end.divisor, other.divisor)
    share, others = common // end.divisor, common // other.divisor
    terms = [(share * factor, x) for factor, x in end.terms]
    terms += [(-others * factor, x) for factor, x in other.terms]
    apart = Affine.of(terms, share * end.offset - others * other.offset, common).interval(box)
    return other + (apart[0] if least else apart[1] + (other.divisor > 1))


def _put(end: Affine | None, letters: Mapping[str, Ends], *, least: bool) -> Affine | None:
    """Return an end with the ends of letters in their places; None if one is not known.

    A quotient that is multiplied, or added to another one, is taken as its bound without rounding.
    """
    if end is None:
        return None
    parts: list[tuple[int, Affine]] = []
    for factor, letter in end.terms:
        ends = letters.get(letter)
        if ends is None:
            parts.append((factor, Affine.letter(letter)))
            continue
        one = ends.low if least == (factor > 0) else ends.high
        if one is None or (factor < 0 and one.terms):
            return None
        parts.append((factor, one))
    common = lcm(*(one.divisor for _, one in parts))
    quotients = [(factor, one) for factor, one in parts if one.divisor > 1]
    exact = len(quotients) == 1 and quotients[0][0] == 1
    total = Affine.number(common * end.offset)
    for factor, one in parts:
        share = factor * (common // one.divisor)
        total = total + share * Affine(one.terms, one.offset)
        if least and one.divisor > 1 and not exact:
            total = total - share * (one.divisor - 1)
    return total // (common * end.divisor)
