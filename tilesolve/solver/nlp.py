"""A program of exponentials as cyipopt takes problems, with exact derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.solver.exponentials import Program, Vector
from tilesolve.system.cancellation import is_stopped

Places = NDArray[np.intp]
"""Rows, or columns, of a matrix's entries."""


class ExponentialNLP:
    """A `Program` as cyipopt takes problems, with exact first and second derivatives.

    With ``e = exp(A x + b)`` the functions are ``C e``, their Jacobian is ``C diag(e) A``, and
    the Hessian of the Lagrangian with weights ``w`` is ``Aᵀ diag(wᵀC ∘ e) A``: one vector of
    exponentials per point serves all three. An objective that is maximised is handed over with
    its sign changed.

    A constraint ``P <= Q`` (or ``P == Q``) between sums of positive terms is handed over as
    ``log P - log Q <= 0``, and a positive objective as its logarithm. That is the convex form
    of a geometric program, indifferent to the units of bytes and seconds: without it
    IPOPT took several times the steps, and gave up on a third of the programs or more.

    Parameters
    ----------
    program
        What to minimise or maximise.
    logarithms
        False hands over every function as it is.

    Attributes
    ----------
    lower, upper
        Bounds on the constraints as they are handed over.
    steps
        How many IPOPT has taken.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> from tilesolve.solver.from_pyomo import read
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(initialize=0)
    >>> model.cost = pyo.Objective(expr=pyo.exp(2 * model.x))
    >>> nlp = ExponentialNLP(read(model)[0], logarithms=False)
    >>> nlp.gradient(np.zeros(1)), nlp.hessian(np.zeros(1), np.zeros(0), 1.0)
    (array([2.]), array([4.]))
    """

    def __init__(self, program: Program, *, logarithms: bool = True) -> None:
        self.program = program
        self.steps = 0
        least, most = program.constraint_lower, program.constraint_upper
        bound = np.where(np.isfinite(most), most, np.where(np.isfinite(least), least, 0.0))
        moved = np.append(0.0, bound)
        # What functions add and what they subtract; a constant is one more exponential.
        parts = np.column_stack([program.coefficients, program.constants - moved])
        one_sided = (least == most) | (np.isfinite(least) != np.isfinite(most))
        subtracts = np.asarray((parts < 0).any(axis=1))
        logs = logarithms & ~program.linear.any(axis=1) & (parts > 0).any(axis=1)
        logs &= np.append(~subtracts[0], one_sided & subtracts[1:])
        moved[~logs] = 0.0
        parts[:, -1] = program.constants - moved
        self._parts = np.vstack([np.maximum(parts, 0.0), np.maximum(-parts, 0.0)])
        self._parts[len(parts), -1] += logs[0]  # log P is log P - log 1
        self._logs = np.tile(logs, 2)
        # IPOPT would take a row without variables for a dependent one: such a row is free.
        constant = program.is_constant[1:]
        self.lower = np.where(constant, -np.inf, least - moved[1:])
        self.upper = np.where(constant, np.inf, most - moved[1:])
        self._exponents = np.vstack([program.exponents, np.zeros(len(program.variables))])
        self._offsets = np.append(program.offsets, 0.0)
        occurs = (self._parts != 0) @ (self._exponents != 0).astype(float)
        above, below = np.split(occurs, 2)
        self._jacobian_at = _places((above + below + np.abs(program.linear))[1:])
        self._hessian_at = _places(np.tril(occurs.T @ occurs))
        self._point = np.full(1 + len(program.variables), np.nan)  # equal to no point
        self._slopes: tuple[Vector, Vector] | None = None
        self._move(program.start)

    def objective(self, x: Vector) -> float:
        """Return the objective to minimise."""
        self._move(x)
        return float(self.program.sense * self._values[0])

    def gradient(self, x: Vector) -> Vector:
        """Return the gradient of the objective to minimise."""
        self._move(x)
        return np.asarray(self.program.sense * self._gradients()[1][0])

    def constraints(self, x: Vector) -> Vector:
        """Return the constraints' bodies."""
        self._move(x)
        found: Vector = self._values[1:]
        return found

    def jacobianstructure(self) -> tuple[Places, Places]:
        """Return the rows and columns of the Jacobian's entries that may not be zero."""
        return self._jacobian_at

    def jacobian(self, x: Vector) -> Vector:
        """Return these entries of the constraints' derivatives."""
        self._move(x)
        found: Vector = self._gradients()[1][1:][self._jacobian_at]
        return found

    def hessianstructure(self) -> tuple[Places, Places]:
        """Return the rows and columns of the Hessian's lower triangle that may not be zero."""
        return self._hessian_at

    def hessian(self, x: Vector, duals: Vector, factor: float) -> Vector:
        """Return these entries of the second derivatives of the Lagrangian.

        Parameters
        ----------
        x
            Where.
        duals
            The constraints' weights.
        factor
            That of the objective to minimise.
        """
        self._move(x)
        own = np.append(self.program.sense * factor, duals)
        weights = np.concatenate([own, -own])
        curved = ((weights / self._scales) @ self._parts) * self._exponentials
        found: Vector = (self._exponents.T * curved) @ self._exponents
        slopes = self._gradients()[0]
        # (log P)'' = P''/P - (P'/P)(P'/P)ᵀ
        found -= (slopes.T * (weights * self._logs)) @ slopes
        return found[self._hessian_at]

    def intermediate(self, *progress: Any) -> bool:  # noqa: ANN401 - as cyipopt calls it
        """Note the number of steps; return whether to go on."""
        self.steps = int(progress[1])
        return not is_stopped()

    def multipliers(self, x: Vector, duals: Vector) -> Vector:
        """Return the rates at which the program's optimum grows with its bounds, from the duals.

        Where a constraint is ``log P - log Q <= 0`` for ``P <= Q``, its dual is per relative
        change of ``P``; where the objective is a logarithm, it is of a relative change too.
        """
        self._move(x)
        scales = self._scales[: 1 + len(duals)]
        with np.errstate(all="ignore"):  # where it failed, the point may be far off
            return np.asarray(-self.program.sense * duals * (scales[0] / scales[1:]))

    def _move(self, x: Vector) -> None:
        """Move to a point, and compute all functions there, unless it was the last one."""
        if np.array_equal(x, self._point):
            return
        self._point = np.array(x, dtype=float)
        self._slopes = None
        # Far trial points may overflow; IPOPT sees the infinity and takes a shorter step.
        with np.errstate(all="ignore"):
            self._exponentials = np.exp(self._exponents @ self._point + self._offsets)
            sums = self._parts @ self._exponentials
            self._scales = np.where(self._logs, sums, 1.0)
            above, below = np.where(self._logs, np.log(sums), sums).reshape(2, -1)
            self._values = above - below + self.program.linear @ self._point

    def _gradients(self) -> tuple[Vector, Vector]:
        """Return the derivatives of both parts of the functions and of the functions."""
        if self._slopes is None:
            with np.errstate(all="ignore"):
                parts = (self._parts * self._exponentials) @ self._exponents
                parts /= self._scales[:, None]
                above, below = parts.reshape(2, -1, self._point.size)
                self._slopes = parts, above - below + self.program.linear
        return self._slopes


def _places(pattern: Vector) -> tuple[Places, Places]:
    """Return the rows and columns of the entries of a matrix that may not be zero."""
    rows, columns = np.nonzero(pattern)
    return rows, columns
