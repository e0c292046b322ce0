"""Weak duality: what no sizes of a program go below, whatever the solver did.

The logarithm of a posynomial is at least ``sum(d * (a·x + log(c / d)))`` for any shares ``d`` of
its terms that add up to one. So any point and any multipliers give a bound that is linear in the
logarithms of sizes, whose least value over their bounds is read off by signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from sys import float_info

from tilesolve.contractions.errors import SolverError
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial


def find_dual_bound(
    program: Posynomials, point: Mapping[str, float], multipliers: Mapping[str, float]
) -> float:
    """Return seconds that no sizes within a program's bounds and limits take less than.

    It is tight where the point and the multipliers are the optimum's, and infinite where they prove
    that no sizes keep the limits.

    Parameters
    ----------
    program
        One that minimises the sum of its times. But for a constant in that, no coefficient is
        negative.
    point
        A size for each variable.
    multipliers
        By constraint, as `ipopt.Solution` has them; those that are missing are 0.

    Raises
    ------
    SolverError
        If a coefficient is negative.

    Examples
    --------
    >>> x, y = Signomial.symbol("x"), Signomial.symbol("y")
    >>> sides = {"x": (1.0, 9.0), "y": (1.0, 9.0)}
    >>> times, limits = {"cost": 8 / x + 8 / y}, {"room": x * y * 0.25}
    >>> program = Posynomials(variables=sides, times=times, limits=limits, weight=None)
    >>> multipliers = {"limit[room]": -4.0}
    >>> at_optimum = find_dual_bound(program, {"x": 2.0, "y": 2.0}, multipliers)
    >>> elsewhere = find_dual_bound(program, {"x": 1.0, "y": 2.0}, multipliers)
    >>> round(at_optimum, 6), elsewhere < 8
    (8.0, True)
    """
    objective = sum(program.times.values(), Signomial.constant(0))
    saved = min(0.0, dict(objective.terms).get((), 0.0))
    objective = objective - saved
    value = objective.at(point)
    if not objective.terms:
        return saved
    line = _Line(dict.fromkeys(program.variables, 0.0), point)
    line.add(objective, 1.0)
    for name, limit in program.limits.items():
        weight = -multipliers.get(f"limit[{name}]", 0.0) * program.unit / value
        if weight > 0:
            line.add(limit, weight * limit.at(point))
    for one, other in program.nested:
        weight = max(0.0, -multipliers.get(f"nested[{one},{other}]", 0.0) * program.unit / value)
        line.slopes[one] += weight
        line.slopes[other] -= weight
    least = line.least(program.variables)
    return saved + (exp(least) if least < log(float_info.max) else inf)


class _Line:
    """A bound that is linear in the logarithms of sizes."""

    def __init__(self, slopes: dict[str, float], point: Mapping[str, float]) -> None:
        self.slopes, self.point, self.constant = slopes, point, 0.0

    def add(self, amount: Signomial, weight: float) -> None:
        """Add a multiple of the bound on a posynomial's logarithm, with its shares at the point."""
        parts = [Signomial((term,)).at(self.point) for term in amount.terms]
        for (powers, coefficient), part in zip(amount.terms, parts, strict=True):
            if coefficient < 0:
                raise SolverError(f"a sum with a negative coefficient has no bound: {amount}")
            share = part / sum(parts)
            self.constant += weight * share * log(coefficient / share) if share else 0.0
            for symbol, power in powers:
                self.slopes[symbol] += weight * share * power

    def least(self, bounds: Mapping[str, tuple[float, float]]) -> float:
        """Return the least value between bounds of sizes."""
        ends = (log(bounds[name][slope < 0]) * slope for name, slope in self.slopes.items())
        return sum(ends, start=self.constant)
