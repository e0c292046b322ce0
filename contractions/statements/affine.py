"""Positions along an axis: sums of letters with factors, an offset and a divisor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tilesolve.contractions.errors import SpecError

Box = Mapping[str, tuple[int, int]]
"""The first and the last value of each letter."""


@dataclass(frozen=True, slots=True)
class Affine:
    """The integer ``⌊(Σ factor · letter + offset) / divisor⌋``.

    `terms` are pairs of a factor and a letter, in the order of the letters; `Affine.of` makes
    them so. `divisor` is positive.

    Examples
    --------
    >>> y = Affine.letter("y")
    >>> position = (2 * y - 1) // 4
    >>> print(position, position.at({"y": 5}), position.interval({"y": (0, 9)}))
    (2*y-1)//4 2 (-1, 4)
    """

    terms: tuple[tuple[int, str], ...] = ()
    offset: int = 0
    divisor: int = 1

    @classmethod
    def of(cls, terms: Iterable[tuple[int, str]], offset: int = 0, divisor: int = 1) -> Self:
        """Return a position in its one form: letters in order, each once, none with factor 0."""
        sums: dict[str, int] = {}
        for factor, letter in terms:
            sums[letter] = sums.get(letter, 0) + factor
        if divisor < 1:
            raise SpecError(f"a position is divided by a positive integer, not by {divisor}")
        kept = tuple((sums[letter], letter) for letter in sorted(sums) if sums[letter])
        if divisor > 1 and not any(factor % divisor for factor, _ in kept):
            kept = tuple((factor // divisor, letter) for factor, letter in kept)
            offset, divisor = offset // divisor, 1
        return cls(kept, offset, divisor)

    @classmethod
    def letter(cls, name: str) -> Self:
        """Return the position that a letter names by itself."""
        return cls(((1, name),))

    @classmethod
    def number(cls, value: int) -> Self:
        """Return a position that is the same everywhere."""
        return cls((), value)

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that it depends on."""
        return tuple(letter for _, letter in self.terms)

    @property
    def plain(self) -> str | None:
        """The letter that it is; None if it is anything else."""
        if len(self.terms) == 1 and self.terms[0][0] == 1 and not self.offset and self.divisor == 1:
            return self.terms[0][1]
        return None

    def factor(self, letter: str) -> int:
        """Return the factor of a letter, before the division."""
        return next((factor for factor, one in self.terms if one == letter), 0)

    def at(self, point: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the kind that it is given
        """Return its value where letters have some values: integers or arrays of them."""
        total = sum((factor * point[letter] for factor, letter in self.terms), start=self.offset)
        return total // self.divisor if self.divisor > 1 else total

    def interval(self, box: Box) -> tuple[int, int]:
        """Return its least and its greatest value in a box."""
        ends = [(factor * box[letter][0], factor * box[letter][1]) for factor, letter in self.terms]
        low, high = sum(map(min, ends)), sum(map(max, ends))
        return (low + self.offset) // self.divisor, (high + self.offset) // self.divisor

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine.of(self.terms, self.offset + other * self.divisor, self.divisor)
        if not isinstance(other, Affine):
            return NotImplemented
        if self.divisor > 1 and other.divisor > 1:
            raise SpecError(f"{self} + {other} adds two quotients: no position is made of it")
        mine, others = other.divisor, self.divisor
        terms = [(mine * factor, letter) for factor, letter in self.terms]
        terms += [(others * factor, letter) for factor, letter in other.terms]
        return Affine.of(
            terms, mine * self.offset + others * other.offset, self.divisor * other.divisor
        )

    def __radd__(self, other: int) -> Affine:
        return self + other

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    def __mul__(self, factor: int) -> Affine:
        if not isinstance(factor, int):
            return NotImplemented
        if factor == 1:
            return self
        if self.divisor > 1:
            raise SpecError(f"{factor} * ({self}) multiplies a quotient: no position is made of it")
        return Affine.of([(factor * c, x) for c, x in self.terms], factor * self.offset)

    def __rmul__(self, factor: int) -> Affine:
        return self * factor

    def __floordiv__(self, divisor: int) -> Affine:
        if not isinstance(divisor, int):
            return NotImplemented
        if divisor < 1:
            raise SpecError(f"{self} // {divisor}: a position is divided by a positive integer")
        return Affine.of(self.terms, self.offset, self.divisor * divisor)

    def __str__(self) -> str:
        text = ""
        for factor, letter in self.terms:
            sign = "-" if factor < 0 else "+" if text else ""
            text += sign + (letter if abs(factor) == 1 else f"{abs(factor)}*{letter}")
        if self.offset or not text:
            text += f"{self.offset:+d}" if text else str(self.offset)
        if self.divisor == 1:
            return text
        return f"{text if text.isidentifier() else f'({text})'}//{self.divisor}"


@dataclass(frozen=True, slots=True)
class Condition:
    """That a position is not negative: a side of the region in which a nest computes.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> print(Condition(i - j), Condition(i - j).holds({"i": 2, "j": 3}))
    i >= j False
    """

    position: Affine

    def __post_init__(self) -> None:
        if not isinstance(self.position, Affine) or self.position.divisor != 1:
            raise SpecError(f"a condition compares sums of letters, not {self.position}")

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that it depends on."""
        return self.position.letters

    def holds(self, point: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
        """Return whether it holds where letters have some values: integers or arrays of them."""
        return self.position.at(point) >= 0

    def __str__(self) -> str:
        left = [(c, x) for c, x in self.position.terms if c > 0]
        right = [(-c, x) for c, x in self.position.terms if c < 0]
        offset, sign = self.position.offset, ">="
        if offset == -1:
            offset, sign = 0, ">"
        sides = Affine.of(left, max(offset, 0)), Affine.of(right, max(-offset, 0))
        return f"{sides[0]} {sign} {sides[1]}"


def least_value(position: Affine, box: Box, conditions: Iterable[Condition] = ()) -> int:
    """Return a bound from below of a position in the part of a box where conditions hold.

    It is the least value itself where no condition, or one of them with a small factor, decides.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> square = {"i": (0, 9), "j": (0, 9)}
    >>> least_value(i - j, square), least_value(i - j, square, [Condition(i - j)])
    (-9, 0)
    """
    found = position.interval(box)[0]
    whole = Affine(position.terms, position.offset)
    for condition in conditions:
        for factor in {abs(c) for c, x in whole.terms if x in condition.letters}:
            rest = whole - factor * condition.position
            found = max(found, rest.interval(box)[0] // position.divisor)
    return found


def greatest_value(position: Affine, box: Box, conditions: Iterable[Condition] = ()) -> int:
    """Return a bound from above of a position in the part of a box where conditions hold.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> square = {"i": (0, 9), "j": (0, 9)}
    >>> greatest_value(i - j + 1, square), greatest_value(i - j, square, [Condition(j - i)])
    (10, 0)
    """
    found = position.interval(box)[1]
    whole = Affine(position.terms, position.offset)
    for condition in conditions:
        for factor in {abs(c) for c, x in whole.terms if x in condition.letters}:
            rest = whole + factor * condition.position
            found = min(found, rest.interval(box)[1] // position.divisor)
    return found
