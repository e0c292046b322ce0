"""Weak duality: what no sizes of a program go below, whatever the solver did.

The logarithm of a posynomial is convex in the logarithms of sizes: it is nowhere below its tangent
at any point. The longest of some times is at least any mean of them. So any point and any
multipliers give a bound that is linear in the logarithms of sizes, whose least value over their
bounds is read off by signs. What rounding may have added to it is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, inf, isnan, log
from sys import float_info

import numpy as np

from tilesolve.constants.policy import EXACT_ROUNDING
from tilesolve.contractions.errors import SolverError
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.shape import Shape, Vector
from tilesolve.solver.signomials import Signomial


def find_dual_bound(
    program: Posynomials, point: Mapping[str, float], multipliers: Mapping[str, float]
) -> float:
    """Return what no sizes within a program's bounds and limits cost less than, in seconds.

    It is tight where the point and the multipliers are the optimum's, and infinite where they prove
    that no sizes keep the limits.

    Parameters
    ----------
    program
        Its cost is the sum of its times, or the longest one and the weight times the mean of all.
        No coefficient but a constant is negative.
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
    >>> from tilesolve.solver.signomials import Signomial
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
    if not any(time.symbols for time in program.times.values()):
        times = [time.at({}) for time in program.times.values()]
        rounded = EXACT_ROUNDING * sum(map(abs, times))
        if program.weight is None:
            return sum(times) - rounded
        return max(times) + program.weight * sum(times) / len(times) - rounded
    if program.weight is None:
        program = replace(
            program, times={"all": sum(program.times.values(), start=Signomial.constant(0))}
        )
    shape = Shape.of(program, {})
    if shape is None or len(shape.less_logs):
        raise SolverError(f"a sum with a negative coefficient has no bound: {program.times}")
    given = np.maximum([-multipliers.get(name, 0.0) for name in shape.constraints], 0.0)
    x = np.log([point[name] for name in shape.names])
    with np.errstate(over="ignore", invalid="ignore"):  # of multipliers far apart
        return bound_at(shape, x, given) * program.unit


def bound_at(shape: Shape, x: Vector, multipliers: Vector) -> float:
    """Return what no sizes cost less than, in the program's unit.

    Parameters
    ----------
    shape
        The program; nothing is taken off its sums but constants.
    x
        Logarithms of its sizes: any within bounds.
    multipliers
        Of its constraints, in order: how much less it costs per unit by which a bound grows. Any
        that are not negative.
    """
    totals, parts = shape.sums_at(x)
    shares = parts / totals[shape.sums]
    slopes = np.add.reduceat(shares[:, None] * shape.powers, shape.begins, axis=0)
    opens, times = shape.opens, shape.opens * 1.0
    if shape.weight is not None:
        count, whole = times.sum(), multipliers[: len(totals)] @ times
        multipliers = multipliers / whole if whole > 0 else multipliers
        longest = multipliers[: len(totals)] if whole > 0 else times / count
        times = times * (longest + shape.weight / count)
    cost = float(times @ totals)
    weights = np.where(opens, times, multipliers[: len(totals)]) * totals / cost
    missed = np.where(opens, 0.0, np.log(totals / np.where(opens, 1.0, shape.bounds + shape.saved)))
    pairs = multipliers[len(totals) :] / cost
    # The sum of the tangents at the point, each times what it weighs, and its least value.
    slope = weights @ slopes + pairs @ shape.pairs
    least = log(cost) + weights @ missed + pairs @ (shape.pairs @ x)
    least += slope @ (np.where(slope > 0, shape.low, shape.high) - x)
    # Each term's logarithm is rounded, at the point and at the bounds.
    far = np.maximum(abs(shape.low), abs(shape.high))
    terms = abs(shape.logs) + abs(shape.powers) @ far
    rounded = (weights[shape.sums] * shares) @ terms + pairs @ (abs(shape.pairs) @ far)
    least -= EXACT_ROUNDING * (1.0 + abs(log(cost)) + weights @ (1.0 + abs(missed)) + rounded)
    if isnan(least):  # of multipliers that overflow
        return -inf
    lowest = exp(least) if least < log(float_info.max) else inf
    return lowest - (1 + EXACT_ROUNDING) * float(times @ shape.saved)
