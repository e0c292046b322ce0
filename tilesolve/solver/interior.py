"""A primal-dual interior point for programs of signomials.

In logarithms of sizes limits of posynomials are convex, and so are times that are bounded by a
variable one. What signomials take off is added to what bounds them. Each step is Newton's on the
equations of optimality with a share of the present gap in the place of zero, solved for the
variables alone; what is concave is left out of it where it would lead to no minimum. Steps are
compiled code, see `interior_steps`.
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
from tilesolve.kernels.runtime import interior_fields as fields
from tilesolve.packing.sizes import WORD_BYTES
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
        low, high = shape.low, shape.high
        if self.timed:
            longest = (shape.sums_at(shape.powers, self.x)[0] - shape.saved)[shape.opens].max()
            self.x = np.append(self.x, 2 * max(longest, INTERIOR_INSIDE))
            low, high = np.append(low, 0.0), np.append(high, INTERIOR_ENDLESS)
        self.rows = np.flatnonzero(~shape.opens | self.timed)
        each = np.eye(len(self.x))
        pairs = shape.pairs @ each[: len(shape.names)]
        ends = np.concatenate([np.zeros(len(pairs)), -low, high])
        count, free = len(self.rows) + len(ends), len(self.rows) + len(pairs)
        self.slacks, self.duals, limits = np.zeros(count), np.zeros(count), np.zeros(count)
        self.totals, self.slopes = np.zeros(len(shape.begins)), np.zeros((count, len(self.x)))
        self.slopes[len(self.rows) :] = np.vstack([pairs, -each, each])
        self.arrays = {
            fields.X: self.x,
            fields.SLACKS: self.slacks,
            fields.DUALS: self.duals,
            fields.TOTALS: self.totals,
            fields.LIMITS: limits,
            fields.LIMIT_SLOPES: self.slopes,
            fields.ROW_SUMS: self.rows,
            fields.ENDS: ends,
        }
        self._describe()
        from tilesolve.kernels.runtime import interior_steps  # loads the compiler's binding

        interior_steps.look(self.fields.ctypes.data)
        self.slacks[:] = -limits
        self.slacks[:free] = np.maximum(self.slacks[:free], INTERIOR_SLACK)
        self.duals[:] = 1 / self.slacks

    def _describe(self) -> None:
        """Write the fields of the program, and those of what is worked out."""
        shape, n = self.shape, len(self.x)
        sums, terms, less = len(shape.begins), len(shape.logs), len(shape.less_logs)
        time = np.zeros((terms + less, n - len(shape.names)))
        powers = np.hstack([np.vstack([shape.powers, shape.less_powers]), time])
        scale = (shape.weight or 0.0) / shape.opens.sum()
        options = INTERIOR_GAP, INTERIOR_LEAST_GAP, INTERIOR_RESIDUAL, INTERIOR_REACH
        self.arrays |= {
            fields.POWERS: powers,
            fields.LOGS: shape.logs,
            fields.SUM_OF: shape.sums,
            fields.OPENS: shape.opens * 1.0,
            fields.BOUNDS: np.where(shape.opens, 0.0, shape.bounds) + shape.saved,
            fields.LESS_POWERS: powers[terms:],
            fields.LESS_LOGS: shape.less_logs,
            fields.LESS_OF: shape.less.argmax(axis=0),
            fields.OPTIONS: np.array([*options, INTERIOR_WHOLE_STEP, *INTERIOR_SHARES, scale]),
            fields.SHARE: np.array(INTERIOR_SHARES[:1]),
        }
        counts = n, terms, sums, len(self.rows), len(self.slacks) - len(self.rows), less
        self.fields = np.zeros(fields.SIZE, np.int64)
        self.fields[: fields.STEP] = *counts, self.timed
        for field, array in self.arrays.items():
            self.fields[field] = array.ctypes.data
        each = {fields.SHARES: terms, fields.GRADIENT: n, fields.MOVE: n, fields.PARTS: less}
        each |= dict.fromkeys((fields.SLOPES, fields.FALLS), sums * n)
        each |= dict.fromkeys((fields.ROOM, fields.WEIGHTS, fields.EXTRA), sums)
        each |= dict.fromkeys((fields.HESSIAN, fields.CONCAVE, fields.MATRIX), n * n)
        each |= dict.fromkeys(
            (fields.SLACK_MOVES, fields.DUAL_MOVES, fields.MISSED), len(self.slacks)
        )
        self.work = np.zeros(sum(each.values()))
        ends = self.work.ctypes.data + WORD_BYTES * np.cumsum([0, *each.values()])
        self.fields[list(each)] = ends[:-1]

    def run(self, limit: float | None) -> Optimum | None:
        """Make steps until the equations hold; None if they do not in the end."""
        from tilesolve.kernels.runtime import interior_steps

        pause = INTERIOR_STEPS if limit is None else INTERIOR_PROOF_STEPS
        for last in range(pause, INTERIOR_STEPS + 1, pause):
            found = interior_steps.take_steps(self.fields.ctypes.data, last)
            if found < 0:
                return None
            sure = -inf if limit is None else self._prove()
            if found or (limit is not None and sure > limit):
                return self._optimum(sure)
        return None

    def _prove(self) -> float:
        """Return what no sizes cost less than, as this point and its multipliers prove."""
        shape = self.shape
        with np.errstate(all="ignore"):
            found = bound_at(shape, self.x[: len(shape.names)], self._multipliers())
        return found * shape.unit

    def _multipliers(self) -> Vector:
        """Return how much less it costs per unit of each constraint's bound, of sums as they are.

        The present multipliers are those of their logarithms.
        """
        shape, count = self.shape, len(self.rows)
        whole = 1.0 if self.timed else self.totals[shape.opens].sum()
        found = np.zeros(len(shape.constraints))
        found[self.rows] = self.duals[:count] * whole / self.totals[self.rows]
        found[len(self.totals) :] = self.duals[count : count + len(shape.pairs)] * whole
        return found

    def _optimum(self, bound: float) -> Optimum:
        """Return the point, with multipliers of sums as they are, not of their logarithms."""
        shape = self.shape
        sizes = np.clip(np.exp(self.x[: len(shape.names)]), np.exp(shape.low), np.exp(shape.high))
        return Optimum(
            dict(zip(shape.names, sizes.tolist(), strict=True)),
            dict(zip(shape.constraints, (-self._multipliers()).tolist(), strict=True)),
            int(self.fields[fields.STEP]),
            bound,
        )
