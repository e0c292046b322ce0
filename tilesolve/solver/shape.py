"""Programs of signomials as arrays: sums of exponentials in logarithms of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Powers, Signomial

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A program as arrays: sums of exponentials, one after another, times first.

    Parameters
    ----------
    names
        Of the variables that occur.
    low, high
        Logarithms of their bounds.
    powers, logs
        Of each term.
    begins, sums
        The first term of each sum, and the sum of each term.
    saved
        What each sum's constant takes off: it is added to what bounds the sum.
    less_powers, less_logs
        Of each term that a sum takes off, which is added to what bounds it, too.
    less
        The sum of each of these terms.
    bounds
        What each sum may be at most; NaN where the variable time bounds it.
    opens
        Which sums are minimised.
    pairs
        A row for each two variables of which the first may not exceed the second: 1 and -1.
    constraints
        The name of each sum's constraint, and of each pair's.
    unit, weight
        As the program has them.
    """

    names: tuple[str, ...]
    low: Vector
    high: Vector
    powers: Vector
    logs: Vector
    begins: NDArray[np.intp]
    sums: NDArray[np.intp]
    saved: Vector
    less_powers: Vector
    less_logs: Vector
    less: NDArray[np.intp]
    bounds: Vector
    opens: NDArray[np.bool_]
    pairs: Vector
    constraints: tuple[str, ...]
    unit: float
    weight: float | None

    @classmethod
    def of(cls, program: Posynomials, held: Mapping[str, float]) -> Shape | None:
        """Return the arrays; None where a sum has no terms, or times that are added save some."""
        sums: list[tuple[str, Signomial, float, float]] = []
        share = 1 / program.unit
        for name, time in program.times.items():
            if name not in held:
                sums.append((f"longest[{name}]", time, share, np.nan))
            elif time.symbols:
                sums.append((f"held[{name}]", time, share, held[name] / program.unit))
        sums += [(f"limit[{name}]", limit, 1.0, 1.0) for name, limit in program.limits.items()]
        occurring = {x for _, one, *_ in sums for powers, _ in one.terms for x, _ in powers}
        occurring.update(*program.nested)
        names = tuple(name for name in program.variables if name in occurring)
        at = {name: number for number, name in enumerate(names)}
        more, less = _Terms(at), _Terms(at)
        begins: list[int] = []
        saved: list[float] = []
        for number, (_, one, scale, _) in enumerate(sums):
            begins.append(len(more.logs))
            saved.append(0.0)
            for symbols, given in one.terms:
                coefficient = given * scale
                if not abs(coefficient) < np.inf:
                    return None
                if coefficient > 0:
                    more.add(number, symbols, coefficient)
                elif symbols:
                    less.add(number, symbols, -coefficient)
                else:
                    saved[-1] = -coefficient
            if len(more.logs) == begins[-1]:
                return None
        if program.weight is None and less.logs:
            return None
        if not sums or not names:
            return None
        sides = np.log([program.variables[name] for name in names])
        bounds = np.array([bound for *_, bound in sums])
        pairs = np.zeros((len(program.nested), len(names)))
        for row, (lower, upper) in zip(pairs, program.nested, strict=True):
            row[at[lower]], row[at[upper]] = 1.0, -1.0
        nested = tuple(f"nested[{one},{other}]" for one, other in program.nested)
        return cls(
            names,
            sides[:, 0],
            sides[:, 1],
            np.array(more.powers),
            np.array(more.logs),
            np.array(begins),
            np.array(more.sums),
            np.array(saved),
            np.array(less.powers).reshape(-1, len(names)),
            np.array(less.logs),
            np.array(less.sums, np.intp),
            bounds,
            np.isnan(bounds),
            pairs,
            (*(name for name, *_ in sums), *nested),
            program.unit,
            program.weight,
        )

    def sums_at(self, x: Vector) -> tuple[Vector, Vector]:
        """Return each sum and each term."""
        parts = np.exp(self.powers @ x + self.logs)
        return np.add.reduceat(parts, self.begins), parts


class _Terms:
    """Terms of sums as they are collected."""

    def __init__(self, at: Mapping[str, int]) -> None:
        """Begin with the number of each variable."""
        self.at = at
        self.powers: list[list[float]] = []
        self.logs: list[float] = []
        self.sums: list[int] = []

    def add(self, number: int, symbols: Powers, coefficient: float) -> None:
        """Add a term of a sum, given its number."""
        row = [0.0] * len(self.at)
        for symbol, power in symbols:
            row[self.at[symbol]] = power
        self.powers.append(row)
        self.logs.append(log(coefficient))
        self.sums.append(number)
