"""A primal-dual interior point for programs of signomials, with nothing to load and to compile.

In logarithms of sizes limits of posynomials are convex, and so are times that are bounded by a
variable one. What signomials take off is added to what bounds them. Each step is Newton's on the
equations of optimality with a share of the present gap in the place of zero, solved for the
variables alone; what is concave is left out of it where it would lead to no minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log

import numpy as np

from tilesolve.constants.policy import (
    INTERIOR_ENDLESS,
    INTERIOR_GAP,
    INTERIOR_INSIDE,
    INTERIOR_LEAST_GAP,
    INTERIOR_PROOF_STEPS,
    INTERIOR_REACH,
    INTERIOR_RESIDUAL,
    INTERIOR_SHARES,
    INTERIOR_SLACK,
    INTERIOR_STEPS,
    INTERIOR_WHOLE_STEP,
)
from tilesolve.solver.duality import bound_at
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.shape import Shape, Vector


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least of a program.

    Parameters
    ----------
    sizes
        Of each variable that the program needs.
    multipliers
        By constraint, how much the objective grows per unit by which its bound grows; as
        `ipopt.Solution` has them.
    steps
        How many were made.
    bound
        What no sizes cost less than, as the point and the multipliers prove; without a limit
        that is not asked for.
    """

    sizes: Mapping[str, float]
    multipliers: Mapping[str, float]
    steps: int
    bound: float = -inf


def find_least(
    program: Posynomials,
    held: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
    limit: float | None = None,
) -> Optimum | None:
    """Return an optimum of a program, a local one if it is not convex; None where none is reached.

    Parameters
    ----------
    program
        What is minimised. Where the sum of times is, no coefficient but a constant is negative.
    held
        Seconds that some times may take, instead of being minimised.
    start
        Sizes to begin at; between their bounds if None.
    limit
        Seconds: where it is proved that all sizes cost more, the point so far is returned. It needs
        coefficients that are not negative.

    Examples
    --------
    >>> from tilesolve.solver.signomials import Signomial
    >>> x, y = Signomial.symbol("x"), Signomial.symbol("y")
    >>> sides = {"x": (1.0, 9.0), "y": (1.0, 9.0)}
    >>> times = {"rows": 8 / x, "columns": 8 / y}
    >>> program = Posynomials(variables=sides, times=times, limits={"room": x * y * 0.25})
    >>> found = find_least(program)
    >>> {name: round(size, 4) for name, size in found.sizes.items()}
    {'x': 2.0, 'y': 2.0}
    >>> stopped = find_least(program, limit=3.0)
    >>> stopped.steps < found.steps, 3.0 < stopped.bound <= 4.0
    (True, True)
    """
    shape = Shape.of(program, held or {})
    if shape is None or (shape.low == shape.high).any():  # a size that is given has no inside
        return None
    return _Newton(shape, start or {}).run(limit)


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """What a program is like at a point.

    Parameters
    ----------
    objective, gradient
        Of what is minimised.
    limits, slopes
        What may not exceed 0, and its gradients: sums, pairs, lower bounds, upper bounds.
    hessian
        Of the objective and of the limits, each times its multiplier, as far as it is convex.
    concave
        The rest of it; None for none.
    """

    objective: float
    gradient: Vector
    limits: Vector
    slopes: Vector
    hessian: Vector
    concave: Vector | None


class _Newton:
    """The iterates: logarithms of sizes and the longest time, slacks, and multipliers."""

    def __init__(self, shape: Shape, start: Mapping[str, float]) -> None:
        self.shape, self.timed = shape, shape.weight is not None
        middle = shape.low + (shape.high - shape.low) / 2
        given = [
            log(start[x]) if x in start else at for x, at in zip(shape.names, middle, strict=True)
        ]
        # Bounds are kept strictly from the beginning on; limits need not be.
        inside = INTERIOR_INSIDE * (shape.high - shape.low)
        self.x = np.clip(given, shape.low + inside, shape.high - inside)
        self.powers, low, high = shape.powers, shape.low, shape.high
        if self.timed:
            longest = (self._sums()[0] - shape.saved)[shape.opens].max()
            self.x = np.append(self.x, 2 * max(longest, INTERIOR_INSIDE))
            self.powers = np.column_stack([shape.powers, np.zeros(len(shape.powers))])
            self.less_powers = np.column_stack([shape.less_powers, 0.0 * shape.less_logs])
            low, high = np.append(low, 0.0), np.append(high, INTERIOR_ENDLESS)
        self.opens = shape.opens * 1.0
        self.room = np.where(shape.opens, 0.0, shape.bounds) + shape.saved
        """What bounds each sum, beside the time where that is what is minimised."""
        self.rows = np.flatnonzero(~shape.opens | self.timed)
        each, count = np.eye(len(self.x)), len(shape.pairs)
        pairs = shape.pairs @ each[: len(shape.names)]
        self.lines = np.vstack([pairs, -each, each])
        self.ends = np.concatenate([np.zeros(count), -low, high])
        count += len(self.rows)
        self.duals = np.zeros(len(self.rows) + len(self.lines))
        self.slacks = -self._look().limits
        self.slacks[:count] = np.maximum(self.slacks[:count], INTERIOR_SLACK)
        self.duals = 1 / self.slacks

    def run(self, limit: float | None) -> Optimum | None:
        """Make steps until the equations hold; None if they do not in the end."""
        most = inf if limit is None else limit
        share = INTERIOR_SHARES[0]
        with np.errstate(all="ignore"):
            for step in range(INTERIOR_STEPS):
                look = self._look()
                missed, gap = look.limits + self.slacks, float(self.slacks @ self.duals)
                wrong = look.gradient + self.duals @ look.slopes
                if (
                    gap <= INTERIOR_GAP * max(look.objective, 1.0)
                    and abs(missed).max() <= INTERIOR_RESIDUAL
                    and abs(wrong).max() <= INTERIOR_RESIDUAL * (1 + abs(look.gradient).max())
                ):
                    return self._optimum(step, -inf if limit is None else self._prove())
                looks = most < inf and step and step % INTERIOR_PROOF_STEPS == 0
                if looks and (sure := self._prove()) > most:
                    return self._optimum(step, sure)
                # A gap that closes before limits are met would hold back all further steps.
                aim = max(share * gap, INTERIOR_LEAST_GAP) / len(self.slacks)
                ratios = self.duals / self.slacks
                matrix = _make_convex(
                    look.hessian + (look.slopes.T * ratios) @ look.slopes, look.concave
                )
                side = -look.gradient - (aim / self.slacks + ratios * missed) @ look.slopes
                try:
                    move: Vector = np.asarray(np.linalg.solve(matrix, side), np.float64)
                except np.linalg.LinAlgError:
                    return None
                if not np.isfinite(move).all():
                    return None
                share = INTERIOR_SHARES[self._go(move, look, missed, aim) < INTERIOR_WHOLE_STEP]
        return None

    def _go(self, move: Vector, look: _Look, missed: Vector, aim: float) -> float:
        """Move as far as all stays positive; return the share of the step."""
        slacks = -missed - look.slopes @ move
        duals = (aim - self.duals * slacks) / self.slacks - self.duals
        far, dual = _reach(self.slacks, slacks), _reach(self.duals, duals)
        self.x = self.x + far * move
        self.slacks = self.slacks + far * slacks
        self.duals = self.duals + dual * duals
        return min(far, dual)

    def _sums(self) -> tuple[Vector, Vector, Vector]:
        """Return each sum, the gradient of its logarithm, and each term's share of it."""
        return self.shape.sums_at(self.powers, self.x)

    def _look(self) -> _Look:
        """Return what the program is like at the present point."""
        shape, rows = self.shape, self.rows
        totals, sums, shares = self._sums()
        room = self.room + self.opens * (self.x[-1] if self.timed else 1.0)
        weights = np.zeros(len(totals))  # of each logarithm of a sum
        weights[rows] = self.duals[: len(rows)]
        # Each open sum is at most the time, and all of them together count a little beside it; or
        # the logarithm of their sum is minimised.
        extra = totals * self.opens
        scale = 1 / extra.sum() if shape.weight is None else shape.weight / self.opens.sum()
        extra *= scale
        gradient = extra @ sums
        hessian = (self.powers.T * ((weights + extra)[shape.sums] * shares)) @ self.powers
        hessian -= (sums.T * weights) @ sums
        objective, concave = 1.0, None
        if not self.timed:
            hessian -= np.outer(gradient, gradient)
        elif not len(shape.less_logs):
            objective, gradient[-1] = float(self.x[-1] + extra.sum()), 1.0
            sums[:, -1] = -self.opens / room
            hessian[-1, -1] = weights @ sums[:, -1] ** 2
        else:
            parts = np.exp(self.less_powers @ self.x + shape.less_logs)
            saved, slopes = shape.less @ parts, (shape.less * parts) @ self.less_powers
            room = room + saved
            objective = float(self.x[-1] + extra.sum() - scale * self.opens @ saved)
            gradient -= scale * self.opens @ slopes
            gradient[-1], slopes[:, -1] = 1.0, self.opens
            slopes /= room[:, None]
            hessian += (slopes.T * weights) @ slopes
            curved = ((weights / room + scale * self.opens) @ shape.less) * parts
            concave = -(self.less_powers.T * curved) @ self.less_powers
            sums -= slopes
        limits = np.concatenate([np.log(totals / room)[rows], self.lines @ self.x - self.ends])
        bounded = np.concatenate([sums[rows], self.lines])
        return _Look(objective, gradient, limits, bounded, hessian, concave)

    def _prove(self) -> float:
        """Return what no sizes cost less than, as this point and its multipliers prove."""
        shape = self.shape
        return bound_at(shape, self.x[: len(shape.names)], self._multipliers()) * shape.unit

    def _multipliers(self) -> Vector:
        """Return how much less it costs per unit of each constraint's bound, of sums as they are.

        The present multipliers are those of their logarithms.
        """
        shape, count = self.shape, len(self.rows)
        totals = self._sums()[0]
        whole = 1.0 if self.timed else totals[shape.opens].sum()
        found = np.zeros(len(shape.constraints))
        found[self.rows] = self.duals[:count] * whole / totals[self.rows]
        found[len(totals) :] = self.duals[count : count + len(shape.pairs)] * whole
        return found

    def _optimum(self, steps: int, bound: float) -> Optimum:
        """Return the point, with multipliers of sums as they are, not of their logarithms."""
        shape = self.shape
        sizes = np.clip(np.exp(self.x[: len(shape.names)]), np.exp(shape.low), np.exp(shape.high))
        return Optimum(
            dict(zip(shape.names, sizes.tolist(), strict=True)),
            dict(zip(shape.constraints, (-self._multipliers()).tolist(), strict=True)),
            steps,
            bound,
        )


def _make_convex(matrix: Vector, concave: Vector | None) -> Vector:
    """Return a matrix with its concave part where that leaves it convex, else without it."""
    if concave is None:
        return matrix
    try:
        np.linalg.cholesky(matrix + concave)
    except np.linalg.LinAlgError:
        return matrix
    return matrix + concave


def _reach(values: Vector, steps: Vector) -> float:
    """Return the share of steps, one at most, that leaves all values some of what they have."""
    worst = float((-steps / values).max())
    return min(1.0, INTERIOR_REACH / worst) if worst > 0 else 1.0
