"""Sums of monomials in named symbols: what the movement model is written in.

A `Signomial` adds, multiplies and evaluates; with positive coefficients only it is a
posynomial, whose logarithm is convex in the logarithms of its symbols. That convexity is what
makes a contraction's program a geometric one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

Powers = tuple[tuple[str, int], ...]
"""A monomial's symbols and their nonzero powers, sorted by symbol."""


@dataclass(frozen=True, slots=True)
class Signomial:
    """A sum of terms ``coefficient × product of symbols to integer powers``.

    Examples
    --------
    >>> x, y = Signomial.symbol("x"), Signomial.symbol("y")
    >>> print((x + 1) * y / x)
    y + y/x
    >>> ((x + 1) * y / x).at({"x": 2.0, "y": 4.0})
    6.0
    """

    terms: tuple[tuple[Powers, float], ...]

    @classmethod
    @lru_cache(maxsize=512)
    def symbol(cls, name: str) -> Signomial:
        """Return the signomial that is one symbol.

        Examples
        --------
        >>> print(Signomial.symbol("T1_m"))
        T1_m
        """
        return cls(((((name, 1),), 1.0),))

    @classmethod
    def constant(cls, value: float) -> Signomial:
        """Return a constant.

        Examples
        --------
        >>> print(Signomial.constant(3) - 2)
        1
        """
        return _sum((((), float(value)),) if value else ())

    @classmethod
    def of(cls, value: Signomial | float) -> Signomial:
        """Return a signomial as it is, and a number as a constant."""
        return value if isinstance(value, Signomial) else cls.constant(value)

    def __add__(self, other: Signomial | float) -> Signomial:
        own = self.terms
        if isinstance(other, Signomial):
            more = other.terms
        elif not other:
            return self
        else:
            more = (((), float(other)),)
        if not more or not own:
            return self if own else _sum(more)
        sums = dict(own)
        for powers, coefficient in more:
            sums[powers] = sums.get(powers, 0.0) + coefficient
        return _sum(tuple(sorted([(p, c) for p, c in sums.items() if c])))

    __radd__ = __add__

    def __sub__(self, other: Signomial | float) -> Signomial:
        return self + Signomial.of(other) * -1

    def __mul__(self, other: Signomial | float) -> Signomial:
        own = self.terms
        if not isinstance(other, Signomial):
            if other == 1:
                return self
            return _sum(tuple([(p, c * other) for p, c in own]) if other else ())
        more = other.terms
        if len(own) == len(more) == 1:
            ((left, a),), ((right, b),) = own, more
            return _sum(((_merge(left, right), a * b),))
        if len(own) == 1 or len(more) == 1:  # no two products have the same powers
            pairs = [(_merge(left, right), a * b) for left, a in own for right, b in more]
        else:
            product: dict[Powers, float] = {}
            for left, a in own:
                for right, b in more:
                    powers = _merge(left, right)
                    product[powers] = product.get(powers, 0.0) + a * b
            pairs = list(product.items())
        return _sum(tuple(sorted([(p, c) for p, c in pairs if c])))

    __rmul__ = __mul__

    def __truediv__(self, other: Signomial | float) -> Signomial:
        """Divide by a monomial; a sum in the denominator is no signomial."""
        divisor = Signomial.of(other)
        if len(divisor.terms) != 1:
            raise ValueError(f"only a monomial divides a signomial, not {divisor}")
        ((powers, coefficient),) = divisor.terms
        return self * _sum(((tuple([(s, -p) for s, p in powers]), 1 / coefficient),))

    def __rtruediv__(self, other: float) -> Signomial:
        return Signomial.constant(other) / self

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that occur."""
        return frozenset(symbol for powers, _ in self.terms for symbol, _ in powers)

    def at(self, values: Mapping[str, float]) -> float:
        """Evaluate with a value for every symbol.

        Examples
        --------
        >>> Signomial.symbol("x").at({"x": 0.5})
        0.5
        """
        total = 0.0
        for powers, coefficient in self.terms:
            for symbol, power in powers:
                coefficient *= values[symbol] ** power
            total += coefficient
        return total

    def substitute(self, values: Mapping[str, float]) -> Signomial:
        """Return the signomial with some symbols replaced by positive numbers.

        Examples
        --------
        >>> print((Signomial.symbol("x") * Signomial.symbol("y")).substitute({"x": 3}))
        3·y
        """
        total: dict[Powers, float] = {}
        for powers, coefficient in self.terms:
            for symbol, power in powers:
                if symbol in values:
                    coefficient *= values[symbol] ** power
            rest = tuple((s, p) for s, p in powers if s not in values)
            total[rest] = total.get(rest, 0.0) + coefficient
        return Signomial(tuple(sorted((p, c) for p, c in total.items() if c)))

    def rename(self, names: Mapping[str, str]) -> Signomial:
        """Return the signomial with some symbols renamed; two may become one.

        Examples
        --------
        >>> x, y = Signomial.symbol("x"), Signomial.symbol("y")
        >>> print((x / y).rename({"x": "y"}))
        1
        """
        total: dict[Powers, float] = {}
        for powers, coefficient in self.terms:
            renamed: Powers = ()
            for symbol, power in powers:
                renamed = _merge(renamed, ((names.get(symbol, symbol), power),))
            total[renamed] = total.get(renamed, 0.0) + coefficient
        return Signomial(tuple(sorted((p, c) for p, c in total.items() if c)))

    def __str__(self) -> str:
        return " + ".join(_text(p, c) for p, c in reversed(self.terms)).replace("+ -", "- ") or "0"


def _sum(terms: tuple[tuple[Powers, float], ...]) -> Signomial:
    """Return a signomial of some terms, in half the time that a frozen dataclass takes."""
    found = object.__new__(Signomial)
    _set_terms(found, terms)
    return found


_set_terms = Signomial.__dict__["terms"].__set__


@lru_cache(maxsize=4096)
def _merge(left: Powers, right: Powers) -> Powers:
    if not left or not right:
        return left or right
    powers = dict(left)
    for symbol, power in right:
        powers[symbol] = powers.get(symbol, 0) + power
    return tuple(sorted((s, p) for s, p in powers.items() if p))


def _text(powers: Powers, coefficient: float) -> str:
    above = [symbol if p == 1 else f"{symbol}^{p}" for symbol, p in powers if p > 0]
    below = [symbol if p == -1 else f"{symbol}^{-p}" for symbol, p in powers if p < 0]
    if coefficient != 1 or not above:
        above.insert(0, f"{coefficient:g}")
    over = "·".join(above)
    return "/".join([over, *below])
