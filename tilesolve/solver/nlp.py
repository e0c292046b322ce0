"""A program of exponentials as pynumero's `NLP`, with exact derivatives."""

from __future__ import annotations

import numpy as np
from pyomo.contrib.pynumero.interfaces.nlp import NLP
from scipy.sparse import coo_matrix

from tilesolve.solver.exponentials import Program, Vector


class ExponentialNLP(NLP):  # type: ignore[misc]
    """A `Program` as pynumero sees one, with exact first and second derivatives.

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

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> from tilesolve.solver.from_pyomo import extract
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(initialize=0)
    >>> model.cost = pyo.Objective(expr=pyo.exp(2 * model.x))
    >>> nlp = ExponentialNLP(extract(model), logarithms=False)
    >>> nlp.evaluate_grad_objective(), nlp.evaluate_hessian_lag().toarray()
    (array([2.]), array([[4.]]))
    """

    def __init__(self, program: Program, *, logarithms: bool = True) -> None:
        super().__init__()
        self.program = program
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
        self._lower = np.where(constant, -np.inf, least - moved[1:])
        self._upper = np.where(constant, np.inf, most - moved[1:])
        self._exponents = np.vstack([program.exponents, np.zeros(self.n_primals())])
        self._offsets = np.append(program.offsets, 0.0)
        occurs = (self._parts != 0) @ (self._exponents != 0).astype(float)
        above, below = np.split(occurs, 2)
        self._jacobian_at = _Places((above + below + np.abs(program.linear))[1:])
        self._hessian_at = _Places(occurs.T @ occurs)
        self._weights = np.zeros(len(parts))
        self._weights[0] = program.sense
        self.set_primals(program.start)

    def n_primals(self) -> int:
        """Return the number of variables."""
        return len(self.program.variables)

    def primals_names(self) -> list[str]:
        """Return the names of the variables."""
        return list(self.program.variables)

    def n_constraints(self) -> int:
        """Return the number of constraints."""
        return len(self.program.constraints)

    def constraint_names(self) -> list[str]:
        """Return the names of the constraints."""
        return list(self.program.constraints)

    def nnz_jacobian(self) -> int:
        """Return the number of entries of the Jacobian that may not be zero."""
        return self._jacobian_at.flat.size

    def nnz_hessian_lag(self) -> int:
        """Return the number of entries, of both triangles, that may not be zero."""
        return self._hessian_at.flat.size

    def primals_lb(self) -> Vector:
        """Return the variables' lower bounds."""
        return self.program.lower.copy()

    def primals_ub(self) -> Vector:
        """Return the variables' upper bounds."""
        return self.program.upper.copy()

    def constraints_lb(self) -> Vector:
        """Return the constraints' lower bounds."""
        return self._lower.copy()

    def constraints_ub(self) -> Vector:
        """Return the constraints' upper bounds."""
        return self._upper.copy()

    def init_primals(self) -> Vector:
        """Return the program's start."""
        return self.program.start.copy()

    def init_duals(self) -> Vector:
        """Return zeros: IPOPT estimates the multipliers itself."""
        return np.zeros(self.n_constraints())

    def create_new_vector(self, vector_type: str) -> Vector:
        """Return zeros for the ``"primals"``, the ``"constraints"`` or the ``"duals"``."""
        sizes = {"primals": self.n_primals(), "constraints": self.n_constraints()}
        return np.zeros({**sizes, "duals": self.n_constraints()}[vector_type])

    def set_primals(self, primals: Vector) -> None:
        """Move to a point, and compute all functions there."""
        self._primals = np.array(primals, dtype=float)
        self._slopes: tuple[Vector, Vector] | None = None
        # Far trial points may overflow; IPOPT sees the infinity and takes a shorter step.
        with np.errstate(all="ignore"):
            self._exponentials = np.exp(self._exponents @ self._primals + self._offsets)
            sums = self._parts @ self._exponentials
            self._scales = np.where(self._logs, sums, 1.0)
            above, below = np.where(self._logs, np.log(sums), sums).reshape(2, -1)
            self._values = above - below + self.program.linear @ self._primals

    def get_primals(self) -> Vector:
        """Return the point."""
        return self._primals.copy()

    def set_duals(self, duals: Vector) -> None:
        """Set the constraints' weights in the Lagrangian."""
        self._weights[1:] = duals

    def get_duals(self) -> Vector:
        """Return the constraints' weights in the Lagrangian."""
        return self._weights[1:].copy()

    def set_obj_factor(self, obj_factor: float) -> None:
        """Set the objective's weight in the Lagrangian."""
        self._weights[0] = self.program.sense * obj_factor

    def get_obj_factor(self) -> float:
        """Return the objective's weight in the Lagrangian."""
        return float(self.program.sense * self._weights[0])

    def get_obj_scaling(self) -> None:
        """Return None: IPOPT scales by the gradients at the start."""

    def get_primals_scaling(self) -> None:
        """Return None: logarithms of tile sizes are of one magnitude."""

    def get_constraints_scaling(self) -> None:
        """Return None: IPOPT scales by the gradients at the start."""

    def evaluate_objective(self) -> float:
        """Return the objective to minimise."""
        return float(self.program.sense * self._values[0])

    def evaluate_constraints(self, out: Vector | None = None) -> Vector:
        """Return the constraints' bodies."""
        return _into(out, self._values[1:])

    def evaluate_grad_objective(self, out: Vector | None = None) -> Vector:
        """Return the gradient of the objective to minimise."""
        return _into(out, self.program.sense * self._gradients()[1][0])

    def evaluate_jacobian(self, out: coo_matrix | None = None) -> coo_matrix:
        """Return the constraints' derivatives."""
        return self._jacobian_at.matrix(self._gradients()[1][1:], out)

    def evaluate_hessian_lag(self, out: coo_matrix | None = None) -> coo_matrix:
        """Return the Lagrangian's second derivatives, both triangles."""
        weights = np.concatenate([self._weights, -self._weights])
        curved = ((weights / self._scales) @ self._parts) * self._exponentials
        found = (self._exponents.T * curved) @ self._exponents
        slopes = self._gradients()[0]
        # (log P)'' = P''/P - (P'/P)(P'/P)ᵀ
        found -= (slopes.T * (weights * self._logs)) @ slopes
        return self._hessian_at.matrix(found, out)

    def report_solver_status(self, status_code: int, status_message: str) -> None:
        """Take no note: `solve` returns the status, or raises it."""

    def multipliers(self) -> Vector:
        """Return the rates at which the program's optimum grows with its bounds, from the duals.

        Where a constraint is ``log P - log Q <= 0`` for ``P <= Q``, its dual is per relative
        change of ``P``; where the objective is a logarithm, it is of a relative change too.
        """
        scales = self._scales[: len(self._weights)]
        return np.asarray(-self.program.sense * self._weights[1:] * (scales[0] / scales[1:]))

    def _gradients(self) -> tuple[Vector, Vector]:
        """Return the derivatives of both parts of the functions and of the functions."""
        if self._slopes is None:
            with np.errstate(all="ignore"):
                parts = (self._parts * self._exponentials) @ self._exponents
                parts /= self._scales[:, None]
                above, below = parts.reshape(2, -1, self._primals.size)
                self._slopes = parts, above - below + self.program.linear
        return self._slopes


class _Places:
    """The entries of a matrix that may not be zero."""

    def __init__(self, pattern: Vector) -> None:
        self.shape = pattern.shape
        self.flat = np.flatnonzero(pattern)

    def matrix(self, dense: Vector, out: coo_matrix | None) -> coo_matrix:
        """Return these entries of a dense matrix as a sparse one."""
        entries = dense.take(self.flat)
        if out is None:
            return coo_matrix((entries, np.divmod(self.flat, self.shape[1])), shape=self.shape)
        out.data[:] = entries
        return out


def _into(out: Vector | None, found: Vector) -> Vector:
    if out is None:
        return found.copy()
    out[:] = found
    return out
