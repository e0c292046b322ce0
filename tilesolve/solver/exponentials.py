"""Programs whose functions are sums of exponentials of linear forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import CONSTANT_ROUNDING
from tilesolve.contractions.errors import SolverError

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Functions ``k + L x + C exp(A x + b)`` with bounds on them and on ``x``.

    Row 0 of ``coefficients``, ``linear`` and ``constants`` is the objective as the model
    writes it, row ``1 + i`` is constraint ``i``. An exponential that several functions share
    is stored, and computed, once.

    Parameters
    ----------
    variables, lower, upper, start
        Names of the variables, their bounds, and a point inside them to start from.
    constraints, constraint_lower, constraint_upper
        Names of the constraints and the bounds on their bodies.
    sense
        1 to minimise the objective, -1 to maximise it.
    coefficients, exponents, offsets
        ``C`` (functions × exponentials), ``A`` (exponentials × variables) and ``b``.
    linear, constants
        ``L`` (functions × variables) and ``k``.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> from tilesolve.solver.from_pyomo import extract
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(bounds=(0, 2))
    >>> model.cost = pyo.Objective(expr=3 * pyo.exp(-2 * model.x) + model.x)
    >>> program = extract(model)
    >>> program.coefficients, program.exponents
    (array([[3.]]), array([[-2.]]))
    >>> program.values([0.0])
    array([3.])
    """

    variables: tuple[str, ...]
    lower: Vector
    upper: Vector
    start: Vector
    constraints: tuple[str, ...]
    constraint_lower: Vector
    constraint_upper: Vector
    sense: int
    coefficients: Vector
    exponents: Vector
    offsets: Vector
    linear: Vector
    constants: Vector

    def __post_init__(self) -> None:
        for field in fields(self):
            array = getattr(self, field.name)
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        for kind, names, low, high in (
            ("variable", self.variables, self.lower, self.upper),
            ("constraint", self.constraints, self.constraint_lower, self.constraint_upper),
        ):
            for name, least, most in zip(names, low, high, strict=True):
                if not least <= most:
                    raise SolverError(f"{kind} {name!r} is bounded by {least:g} and {most:g}")
        entries = (self.coefficients, self.exponents, self.offsets, self.linear, self.constants)
        if not all(np.isfinite(array).all() for array in entries):
            raise SolverError("a coefficient or an exponent of the program overflows")
        missed = self.violations(self.start)[len(self.variables) :]
        for at in np.flatnonzero(self.is_constant[1:] & (missed > CONSTANT_ROUNDING)):
            raise SolverError(
                f"constraint {self.constraints[at]!r} is infeasible whatever the variables: "
                f"{self.constants[1 + at]:g} is not within {self.constraint_lower[at]:g} "
                f"and {self.constraint_upper[at]:g}"
            )

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Which functions have no variable in them."""
        varies = np.column_stack([self.coefficients, self.linear]).any(axis=1)
        return np.logical_not(varies)

    def values(self, x: Iterable[float]) -> Vector:
        """Return the objective and then every constraint's body at a point."""
        point = np.asarray(x, dtype=float)
        with np.errstate(over="ignore", invalid="ignore"):
            exponentials = np.exp(self.exponents @ point + self.offsets)
            found: Vector = self.constants + self.linear @ point + self.coefficients @ exponentials
        return found

    def violations(self, x: Iterable[float]) -> Vector:
        """Return by how much a point misses the bounds of each variable, then constraint.

        A miss counts relative to the bound and to the sum of the magnitudes of what is
        bounded, and to 1 where that has a linear part: a tile size in logarithms is of order
        1, while a sum of exponentials may have any magnitude.
        """
        point = np.asarray(x, dtype=float)
        lower = np.concatenate([self.lower, self.constraint_lower])
        upper = np.concatenate([self.upper, self.constraint_upper])
        with np.errstate(over="ignore", invalid="ignore"):
            body = np.concatenate([point, self.values(point)[1:]])
            sizes = np.abs(self.constants) + np.abs(self.linear) @ np.abs(point)
            sizes += np.abs(self.coefficients) @ np.exp(self.exponents @ point + self.offsets)
            floor = np.concatenate([np.ones(point.size), self.linear[1:].any(axis=1)])
            sizes = np.maximum(np.concatenate([np.abs(point), sizes[1:]]), floor)
            missed = np.zeros(body.size)
            for bound, miss in ((lower, lower - body), (upper, body - upper)):
                held = np.isfinite(bound)
                size = np.maximum(np.abs(bound[held]), sizes[held])
                missed[held] = np.maximum(missed[held], miss[held] / np.where(size > 0, size, 1.0))
        return missed
