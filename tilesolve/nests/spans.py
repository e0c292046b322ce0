"""Spans: values of a letter of a stage that a box of other letters needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from tilesolve.contractions.statements.affine import Affine, Box
from tilesolve.model.access import Size
from tilesolve.nests.subscript_ends import Ends


@dataclass(frozen=True, slots=True)
class Span:
    """Values of a letter of a stage: those that a box needs, as far as there are any.

    Parameters
    ----------
    low, high
        The first value, in the first values of the box's letters; the last one, in their last
        values. Both grow alike.
    extent
        Of the letter.

    Examples
    --------
    >>> y = Affine.letter("y")
    >>> half = Span((y - 1) // 2, (y + 1) // 2, 100)
    >>> half.letter, half.scale, half.overlap, half.interval({"y": (8, 11)})
    ('y', Fraction(1, 2), 2, (3, 6))
    """

    low: Affine
    high: Affine
    extent: int

    @classmethod
    def whole(cls, extent: int) -> Span:
        """Return all values of a letter."""
        return cls(Affine.number(0), Affine.number(extent - 1), extent)

    @property
    def letter(self) -> str | None:
        """The letter of the root that it follows; None where it follows none, or several."""
        return self.low.letters[0] if len(self.low.letters) == 1 else None

    @property
    def scale(self) -> Fraction:
        """How many values it moves on by for one of the letter that it follows."""
        return Fraction(sum(factor for factor, _ in self.low.terms), self.low.divisor)

    @property
    def overlap(self) -> int:
        """How many values a tile needs beyond its share, if it begins at a multiple of divisors."""
        first = dict.fromkeys(self.low.letters, 0)
        last = dict.fromkeys(self.low.letters, self.period - 1)
        reached = int(self.high.at(last)) - int(self.low.at(first)) + 1
        return max(int(reached - self.scale * self.period), 0)

    @property
    def period(self) -> int:
        """How far the root goes until ends lie as before."""
        return lcm(self.low.divisor, self.high.divisor)

    def size(self, tiles: Mapping[str, Size]) -> Size:
        """Return how many values tiles of the root need: the scale times the tile, and overlap.

        Tiles are numbers, arrays or symbols. Symbols give a posynomial.

        Examples
        --------
        >>> from tilesolve.solver.signomials import Signomial
        >>> x = Affine.letter("x")
        >>> print(Span(x, x + 2, 64).size({"x": Signomial.symbol("T")}))
        T + 2
        """
        grown = [(Fraction(factor, self.low.divisor), x) for factor, x in self.low.terms]
        return sum((float(factor) * tiles[x] for factor, x in grown), start=float(self.overlap))

    def interval(self, box: Box) -> tuple[int, int]:
        """Return the first and the last value that a box needs; the last is less for none."""
        low, high = self.low.interval(box)[0], self.high.interval(box)[1]
        return max(low, 0), min(high, self.extent - 1)

    def lengths(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return how many values boxes need, given arrays of their letters' ends."""
        low, high = self.low.at(first), self.high.at(last)
        return np.maximum(np.minimum(high, self.extent - 1) - np.maximum(low, 0) + 1, 0)


def span_of(ends: Ends, extent: int) -> Span:
    """Return ends as a span; all there is where they are not known, or do not grow alike."""
    whole = Span.whole(extent)
    low = whole.low if ends.low is None else ends.low
    high = whole.high if ends.high is None else ends.high
    alike = Fraction(1, low.divisor), Fraction(1, high.divisor)
    slopes = [
        {x: factor * share for factor, x in one.terms}
        for one, share in zip((low, high), alike, strict=True)
    ]
    if slopes[0] != slopes[1] or any(one < 0 for one in slopes[0].values()):
        return whole
    return Span(low, high, extent)


def follow(span: Span, consumer: Mapping[str, Span], extent: int) -> Span:
    """Return a span of a consumer's letters in those of the root."""
    ends = {x: Ends(one.low, one.high) for x, one in consumer.items()}
    return span_of(Ends(span.low, span.high).within(ends), extent)


def hull(spans: Sequence[Span], extent: int) -> Span:
    """Return what holds several spans: all there is where they do not move alike."""
    low = extreme_of([one.low for one in spans], min)
    high = extreme_of([one.high for one in spans], max)
    if low is None or high is None:
        return Span.whole(extent)
    return Span(low, high, extent)


def extreme_of(
    positions: Sequence[Affine], choose: Callable[[Iterable[int]], int]
) -> Affine | None:
    """Return the least or greatest of positions that differ in their offsets; None if in more."""
    divisor = lcm(*(one.divisor for one in positions))
    wide = [(one, divisor // one.divisor) for one in positions]
    slopes = {tuple((factor * k, x) for factor, x in one.terms) for one, k in wide}
    if len(slopes) > 1:
        return None
    return Affine.of(slopes.pop(), choose(one.offset * k for one, k in wide), divisor)
