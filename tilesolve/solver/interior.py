"""Many convex programs at once: a primal-dual interior point, and bounds that need no trust in it.

In logarithms of sizes a program of posynomials is convex. Programs of a plan are small and many:
each step here is a few operations on arrays that have all of them. What does not converge is left
to IPOPT, and what does is held to a bound by weak duality, which is right whatever the steps did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import (
    INTERIOR_CENTRING,
    INTERIOR_MARGIN,
    INTERIOR_REACH,
    INTERIOR_RESIDUAL,
    INTERIOR_RIDGE,
    INTERIOR_SHARE,
    INTERIOR_STEPS,
    INTERIOR_TOLERANCE,
)
from tilesolve.solver.exponentials import Program, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Where a program's steps arrived.

    Parameters
    ----------
    values
        The variables by name.
    multipliers
        By constraint, how much the objective grows per unit by which its bound grows.
    objective
        At that point, which keeps all limits.
    bound
        What the objective is nowhere less than.
    """

    values: dict[str, float]
    multipliers: dict[str, float]
    objective: float
    bound: float


def is_convex(program: Program) -> bool:
    """Return whether a program is one of posynomials that are bounded by monomials from above.

    Examples
    --------
    >>> from tilesolve.solver.posynomial import Posynomials
    >>> from tilesolve.solver.signomials import Signomial
    >>> x = Signomial.symbol("x")
    >>> found = [Posynomials(variables={"x": (1, 9)}, times={"t": t}) for t in (x + 1, x - 1)]
    >>> [is_convex(one.arrays()) for one in found]
    [True, False]
    """
    coefficients, linear = program.coefficients, program.linear
    above = np.asarray((coefficients > 0).any(axis=1) | (_moved(program) > 0))
    below = (coefficients < 0).sum(axis=1)
    plain = np.asarray(~linear.any(axis=1))
    sums: NDArray[np.bool_] = np.asarray(plain & above & (below + (_moved(program) < 0) == 1))
    sums[0] = plain[0] and above[0] and below[0] == 0 and program.constants[0] >= 0
    lines: NDArray[np.bool_] = np.asarray(~plain & ~(coefficients != 0).any(axis=1))
    lines[0] = False
    bounded = np.isneginf(program.constraint_lower) & np.isfinite(program.constraint_upper)
    return bool(program.sense == 1 and np.all(sums | lines) and bounded.all())


def minimise(programs: Sequence[Program]) -> list[Point | None]:
    """Return where each of some convex programs has its minimum; None where that is not proved.

    Examples
    --------
    >>> from tilesolve.solver.posynomial import Posynomials
    >>> from tilesolve.solver.signomials import Signomial
    >>> x = Signomial.symbol("x")
    >>> times = {"up": x, "down": Signomial.constant(4) / x}
    >>> program = Posynomials(variables={"x": (0.1, 9)}, times=times).arrays()
    >>> (found,) = minimise([program])
    >>> round(found.objective, 4), round(found.bound, 4)
    (2.0, 2.0)
    """
    if not programs:
        return []
    stack = _Stack(programs)
    state = _State(stack)
    with np.errstate(all="ignore"):  # what overflows is proved by no bound
        for _ in range(INTERIOR_STEPS):
            if not state.step():
                break
    return [stack.point(at, state) for at in range(len(programs))]


class _Stack:
    """Programs as rows of logarithms of sums of exponentials, padded to the same shape.

    Row 0 of each is the objective; the others must not exceed 0.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        rows = [_rows(one) for one in programs]
        count = len(programs)
        high = max(len(one) for one in rows)
        wide = max(len(logs) for one in rows for logs, _ in one)
        self.variables = max(1, *(len(one.variables) for one in programs))
        self.logs = np.full((count, high, wide), -np.inf)
        self.exponents = np.zeros((count, high, wide, self.variables))
        self.rows = np.zeros((count, high), bool)
        self.lower = np.zeros((count, self.variables))
        self.upper = np.zeros((count, self.variables))
        self.start = np.zeros((count, self.variables))
        for at, (program, own) in enumerate(zip(programs, rows, strict=True)):
            size = len(program.variables)
            self.lower[at, :size], self.upper[at, :size] = program.lower, program.upper
            self.start[at, :size] = program.start
            self.rows[at, : len(own)] = True
            for row, (logs, exponents) in enumerate(own):
                self.logs[at, row, : len(logs)] = logs
                self.exponents[at, row, : len(logs), :size] = exponents
        # What is no row of a program is one of zeros: its logarithm is that of one term.
        self.logs[~self.rows, 0] = 0.0
        flat = self.exponents.reshape(count, high * wide, self.variables)
        self.flat, self.turned = flat, np.ascontiguousarray(flat.transpose(0, 2, 1))

    def at(self, x: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the values of all rows, the share of each term, and the gradients."""
        terms = self.logs + (self.flat @ x[:, :, None]).reshape(self.logs.shape)
        top = terms.max(axis=2)
        shares = np.exp(terms - top[:, :, None])
        sums = shares.sum(axis=2)
        shares /= sums[:, :, None]
        slopes = (shares[:, :, None, :] @ self.exponents)[:, :, 0, :]
        return top + np.log(sums), shares, slopes

    def curvature(self, weights: Vector, shares: Vector, slopes: Vector) -> Vector:
        """Return the second derivatives of the weighted sum of all rows."""
        weighted = (weights[:, :, None] * shares).reshape(len(weights), 1, -1)
        found: Vector = (self.turned * weighted) @ self.flat
        found -= (slopes * weights[:, :, None]).transpose(0, 2, 1) @ slopes
        return found

    def point(self, at: int, state: _State) -> Point | None:
        """Return the point of one program, if its bound proves that it is the minimum."""
        program, x = self.programs[at], state.x[at]
        values, shares, slopes = (part[at] for part in state.here)
        duals = np.append(1.0, np.where(self.rows[at, 1:], state.duals[at], 0.0))
        size = len(program.variables)
        if not np.isfinite(x).all() or (values[1:] > INTERIOR_TOLERANCE).any():
            return None
        bound = self._bound(at, x, values, shares, slopes, duals)
        if not values[0] - bound <= INTERIOR_TOLERANCE:
            return None
        objective = float(np.exp(values[0]))
        return Point(
            dict(zip(program.variables, x[:size].tolist(), strict=True)),
            dict(
                zip(
                    program.constraints,
                    _rates(program, x[:size], duals[1:], objective).tolist(),
                    strict=True,
                )
            ),
            objective,
            float(np.exp(bound)),
        )

    def _bound(
        self, at: int, x: Vector, values: Vector, shares: Vector, slopes: Vector, duals: Vector
    ) -> float:
        """Return what the logarithm of the objective is nowhere less than, by weak duality.

        A logarithm of a sum is no less than its tangent. Weighted by any duals, tangents are a
        line, whose least value within the bounds stands at a corner.
        """
        lower, upper = self.lower[at], self.upper[at]
        free = np.isinf(lower) | np.isinf(upper)
        # The one free variable is the longest time: what bounds it must balance it exactly.
        for variable in np.flatnonzero(free):
            pulls = slopes[1:, variable] * duals[1:]
            pulled = pulls < 0
            total = pulls[pulled].sum()
            rest = slopes[0, variable] + pulls[~pulled].sum()
            if total == 0 or rest < 0:
                return -np.inf
            duals[1:][pulled] *= rest / -total
        line = duals @ slopes
        level = float(duals @ values - line @ x)
        line = np.where(free, 0.0, line)
        corner = np.where(line > 0, lower, upper)
        return level + float(line @ np.where(free, 0.0, corner))


class _State:
    """Where all programs are: points, slacks of limits and of bounds, and their duals."""

    def __init__(self, stack: _Stack) -> None:
        self.stack = stack
        self.x = stack.start.copy()
        self.here = stack.at(self.x)
        self.low, self.high = np.isfinite(stack.lower), np.isfinite(stack.upper)
        fixed = stack.lower == stack.upper
        self.low &= ~fixed
        self.high &= ~fixed
        self.fixed = fixed
        self.active = np.concatenate([stack.rows[:, 1:], self.low, self.high], axis=1)
        self.counts = np.maximum(self.active.sum(axis=1), 1)
        excess = self._excess()
        self.slacks = np.where(self.active, np.maximum(-excess, INTERIOR_MARGIN), 1.0)
        self.forces = np.where(self.active, INTERIOR_CENTRING / self.slacks, 0.0)
        self.open = np.ones(len(self.x), bool)

    @property
    def duals(self) -> Vector:
        """The duals of the limits."""
        return self.forces[:, : self.stack.rows.shape[1] - 1]

    def _excess(self) -> Vector:
        """Return by how much limits and bounds are exceeded."""
        stack = self.stack
        found = [
            self.here[0][:, 1:],
            np.where(self.low, stack.lower - self.x, -1.0),
            np.where(self.high, self.x - stack.upper, -1.0),
        ]
        return np.concatenate(found, axis=1)

    def step(self) -> bool:
        """Take a Newton step in each program that is not done; return whether there is one."""
        stack, limits = self.stack, self.stack.rows.shape[1] - 1
        size = stack.variables
        _, shares, slopes = self.here
        excess = self._excess()
        rates = slopes[:, 1:]
        complement = self.slacks * self.forces
        centre = np.where(self.active, complement, 0.0).sum(axis=1) / self.counts
        own, lower, upper = np.split(self.forces, [limits, limits + size], axis=1)
        gradient = slopes[:, 0] + (own[:, None, :] @ rates)[:, 0] - lower + upper
        gradient = np.where(self.fixed, 0.0, gradient)
        missed = np.where(self.active, excess + self.slacks, 0.0)
        worst = np.maximum(np.abs(gradient).max(axis=1), np.abs(missed).max(axis=1))
        self.open &= ~(np.maximum(worst, centre * self.counts) <= INTERIOR_RESIDUAL)
        self.open &= np.isfinite(worst)
        if not self.open.any():
            return False
        aim = INTERIOR_CENTRING * centre[:, None]
        stiff = np.where(self.active, self.forces / self.slacks, 0.0)
        push = np.where(self.active, aim / self.slacks + stiff * missed - self.forces, 0.0)
        stiff_rows, stiff_low, stiff_high = np.split(stiff, [limits, limits + size], axis=1)
        push_rows, push_low, push_high = np.split(push, [limits, limits + size], axis=1)
        weights = np.concatenate([np.ones((len(self.x), 1)), own], axis=1)
        matrix = stack.curvature(weights, shares, slopes)
        matrix += (rates * stiff_rows[:, :, None]).transpose(0, 2, 1) @ rates
        diagonal = np.einsum("bii->bi", matrix)
        diagonal += stiff_low + stiff_high + INTERIOR_RIDGE
        matrix[self.fixed[:, :, None] | self.fixed[:, None, :]] = 0.0
        diagonal[self.fixed] = 1.0
        right = -gradient - (push_rows[:, None, :] @ rates)[:, 0] + push_low - push_high
        right = np.where(self.fixed, 0.0, right)
        self.open &= np.isfinite(matrix).all(axis=(1, 2)) & np.isfinite(right).all(axis=1)
        matrix[~self.open], right[~self.open] = np.eye(size), 0.0
        move = _solve(matrix, right)
        self.open &= np.isfinite(move).all(axis=1)
        move[~self.open] = 0.0
        along = np.concatenate([(rates @ move[:, :, None])[:, :, 0], -move, move], axis=1)
        slack_move = np.where(self.active, -missed - along, 0.0)
        force_move = np.where(
            self.active, aim / self.slacks - self.forces - stiff * slack_move, 0.0
        )
        farthest = np.maximum(np.abs(move).max(axis=1), INTERIOR_REACH)
        length = np.minimum(_longest(self.slacks, slack_move), INTERIOR_REACH / farthest)
        other = _longest(self.forces, force_move)
        length, other = (np.where(self.open, one, 0.0)[:, None] for one in (length, other))
        self.x = self.x + length * move
        self.slacks = self.slacks + length * slack_move
        self.forces = self.forces + other * force_move
        self.here = stack.at(self.x)
        return True


def _solve(matrices: Vector, right: Vector) -> Vector:
    """Return the solution of each system of equations; what has none is not a number."""
    try:
        return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full_like(right, np.nan)
        pairs = zip(matrices, right, strict=True)
        return np.concatenate([_solve(one[None], other[None]) for one, other in pairs])


def _longest(values: Vector, moves: Vector) -> Vector:
    """Return how much of moves leaves all values positive, one at most."""
    most = np.where(moves < 0, -INTERIOR_SHARE * values / moves, np.inf)
    found: Vector = np.minimum(most.min(axis=1), 1.0)
    return found


def _moved(program: Program) -> Vector:
    """Return the constants of all functions, with the upper bounds of constraints taken off."""
    found: Vector = program.constants - np.append(0.0, program.constraint_upper)
    return found


def _rows(program: Program) -> list[tuple[Vector, Vector]]:
    """Return logarithms of coefficients and exponents of each function, over what bounds it."""
    constants, found = _moved(program), []
    for row, (coefficients, linear) in enumerate(
        zip(program.coefficients, program.linear, strict=True)
    ):
        if linear.any():
            found.append((np.array([constants[row]]), linear[None, :]))
            continue
        terms = np.flatnonzero(coefficients > 0)
        logs = np.log(coefficients[terms]) + program.offsets[terms]
        exponents = program.exponents[terms]
        if constants[row] > 0:
            logs = np.append(logs, np.log(constants[row]))
            exponents = np.vstack([exponents, np.zeros(exponents.shape[1])])
        if constants[row] < 0:
            logs = logs - np.log(-constants[row])
        for below in np.flatnonzero(coefficients < 0):
            logs = logs - np.log(-coefficients[below]) - program.offsets[below]
            exponents = exponents - program.exponents[below]
        found.append((logs, exponents))
    return found


def _rates(program: Program, x: Vector, duals: Vector, objective: float) -> Vector:
    """Return the rates at which the objective grows with the bounds, from duals of logarithms."""
    exponentials = np.exp(program.exponents @ x + program.offsets)
    above = np.maximum(program.coefficients[1:], 0.0) @ exponentials
    above += np.maximum(_moved(program)[1:], 0.0)
    lines = program.linear[1:].any(axis=1)
    found: Vector = -duals[: len(program.constraints)] * objective / np.where(lines, 1.0, above)
    return found
