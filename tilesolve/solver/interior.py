"""A primal-dual interior point for programs of signomials.

In logarithms of sizes limits of posynomials are convex, and so are times that are bounded by a
variable one. What signomials take off is added to what bounds them. Each step is Newton's on the
equations of optimality with a share of the present gap in the place of zero, solved for the
variables alone; what is concave is left out of it where it would lead to no minimum. Steps are
compiled code, see `interior_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
        self.shape, self.timed, names = shape, shape.weight is not None, len(shape.names)
        low, high = shape.low, shape.high
        x = low + (high - low) / 2
        for number, name in enumerate(shape.names):
            if name in start:
                x[number] = log(start[name])
        # Bounds are kept strictly from the beginning on; limits need not be.
        inside = INTERIOR_INSIDE * (high - low)
        x = np.minimum(np.maximum(x, low + inside), high - inside)
        self.rows = np.flatnonzero(~shape.opens | self.timed)
        n, rows, pairs = names + self.timed, len(self.rows), len(shape.pairs)
        lines = pairs + 2 * n
        arrays = self._describe(n, rows, lines)
        arrays[fields.X][:names] = x
        ends, slopes = arrays[fields.ENDS], arrays[fields.LIMIT_SLOPES].reshape(-1, n)
        ends[pairs : pairs + names], ends[pairs + n : pairs + n + names] = -low, high
        if self.timed:
            longest = (shape.sums_at(x)[0] - shape.saved)[shape.opens].max()
            arrays[fields.X][names] = 2 * max(longest, INTERIOR_INSIDE)
            ends[-1] = INTERIOR_ENDLESS
        slopes[rows : rows + pairs, :names] = shape.pairs
        each = np.arange(n)
        slopes[rows + pairs + each, each], slopes[rows + pairs + n + each, each] = -1, 1
        self.x, self.totals, self.duals = (
            arrays[field] for field in (fields.X, fields.TOTALS, fields.DUALS)
        )
        from tilesolve.kernels.runtime import interior_steps  # loads the compiler's binding

        interior_steps.look(self.fields.ctypes.data)
        slacks, free = arrays[fields.SLACKS], rows + pairs
        slacks[:] = -arrays[fields.LIMITS]
        slacks[:free] = np.maximum(slacks[:free], INTERIOR_SLACK)
        self.duals[:] = 1 / slacks

    def _describe(self, n: int, rows: int, lines: int) -> dict[int, Vector]:
        """Write the fields of a program of `n` variables, and return the arrays of numbers."""
        shape, limits = self.shape, rows + lines
        sums, terms, less = len(shape.begins), len(shape.logs), len(shape.less_logs)
        scale = (shape.weight or 0.0) / shape.opens.sum()
        options = INTERIOR_GAP, INTERIOR_LEAST_GAP, INTERIOR_RESIDUAL, INTERIOR_REACH
        given: dict[int, Sequence[float] | Vector] = {
            fields.LOGS: shape.logs,
            fields.OPENS: shape.opens.astype(np.float64),
            fields.BOUNDS: np.where(shape.opens, 0.0, shape.bounds) + shape.saved,
            fields.LESS_LOGS: shape.less_logs,
            fields.OPTIONS: (*options, INTERIOR_WHOLE_STEP, *INTERIOR_SHARES, scale),
            fields.SHARE: INTERIOR_SHARES[:1],
        }
        sizes = {field: len(array) for field, array in given.items()}
        sizes |= {fields.POWERS: terms * n, fields.LESS_POWERS: less * n, fields.ENDS: lines}
        sizes |= {fields.LIMIT_SLOPES: limits * n, fields.SHARES: terms, fields.PARTS: less}
        sizes |= dict.fromkeys((fields.X, fields.GRADIENT, fields.MOVE), n)
        sizes |= dict.fromkeys((fields.SLOPES, fields.FALLS), sums * n)
        sizes |= dict.fromkeys((fields.TOTALS, fields.ROOM, fields.WEIGHTS, fields.EXTRA), sums)
        sizes |= dict.fromkeys((fields.HESSIAN, fields.CONCAVE, fields.MATRIX), n * n)
        sizes |= dict.fromkeys((fields.SLACKS, fields.DUALS, fields.LIMITS), limits)
        sizes |= dict.fromkeys((fields.SLACK_MOVES, fields.DUAL_MOVES, fields.MISSED), limits)
        ends = [*accumulate(sizes.values(), initial=0)]
        reals = np.zeros(ends[-1])
        arrays = {
            field: reals[begin:end]
            for field, begin, end in zip(sizes, ends[:-1], ends[1:], strict=True)
        }
        for field, array in given.items():
            arrays[field][:] = array
        names = len(shape.names)
        arrays[fields.POWERS].reshape(-1, n)[:, :names] = shape.powers
        arrays[fields.LESS_POWERS].reshape(-1, n)[:, :names] = shape.less_powers
        integers = np.concatenate([self.rows, shape.sums, shape.less])
        self.kept = reals, integers  # as long as there are fields with their addresses
        self.fields = np.zeros(fields.SIZE, np.int64)
        self.fields[: fields.STEP] = n, terms, sums, rows, lines, less, self.timed
        self.fields[[*sizes]] = reals.ctypes.data + WORD_BYTES * np.array(ends[:-1])
        begins = np.array([0, rows, rows + terms])
        self.fields[[fields.ROW_SUMS, fields.SUM_OF, fields.LESS_OF]] = (
            integers.ctypes.data + WORD_BYTES * begins
        )
        return arrays

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
        sizes, low, high = map(np.exp, (self.x[: len(shape.names)], shape.low, shape.high))
        sizes = np.minimum(np.maximum(sizes, low), high)
        return Optimum(
            dict(zip(shape.names, sizes.tolist(), strict=True)),
            dict(zip(shape.constraints, (-self._multipliers()).tolist(), strict=True)),
            int(self.fields[fields.STEP]),
            bound,
        )
