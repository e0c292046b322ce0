"""Programs whose functions are sums of exponentials of linear forms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

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
    >>> from tilesolve.solver.from_pyomo import read
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(bounds=(0, 2))
    >>> model.cost = pyo.Objective(expr=3 * pyo.exp(-2 * model.x) + model.x)
    >>> program = read(model)[0]
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
        for one in fields(self):
            array = getattr(self, one.name)
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


@dataclass(slots=True)
class Sum:
    """A function ``constant + linear·x + Σ coefficient · exp(row·x + offset)`` as it is written.

    Rows and linear parts are by the numbers of variables.

    Examples
    --------
    >>> found = Sum(1.0)
    >>> found.add_exponential(2.0, {0: 3.0}, 0.0)
    >>> found.is_constant
    False
    """

    constant: float = 0.0
    linear: dict[int, float] = field(default_factory=dict)
    terms: list[tuple[float, dict[int, float], float]] = field(default_factory=list)

    @property
    def is_constant(self) -> bool:
        """Whether no variable is in it."""
        return not self.terms and not any(self.linear.values())

    def add_exponential(self, coefficient: float, row: dict[int, float], offset: float) -> None:
        """Add one exponential; without a variable in it, it is a constant.

        Raises
        ------
        OverflowError
            If the coefficient is not finite.
        """
        if not math.isfinite(coefficient):
            raise OverflowError
        if not coefficient:
            return
        if any(row.values()):
            self.terms.append((coefficient, row, offset))
        else:
            self.constant += coefficient * math.exp(offset)


class Bounded(NamedTuple):
    """The name of a variable or a constraint, and its bounds."""

    name: str
    lower: float
    upper: float


def assemble(
    functions: Sequence[Sum],
    variables: Sequence[Bounded],
    constraints: Sequence[Bounded],
    start: Sequence[float],
    sense: int = 1,
) -> Program:
    """Return the program of an objective and of constraints, in this order.

    Parameters
    ----------
    functions
        The objective, then the body of each constraint.
    variables, constraints
        Their names and bounds.
    start
        A value for each variable; where it is none, the middle of the bounds. It is moved into
        them.
    sense
        1 to minimise the objective, -1 to maximise it.

    Examples
    --------
    >>> cost, room = Sum(), Sum()
    >>> cost.add_exponential(3.0, {0: -2.0}, 0.0)
    >>> room.add_exponential(1.0, {0: 1.0}, 0.0)
    >>> x, fits = Bounded("x", 0.0, 2.0), Bounded("fits", -math.inf, 4.0)
    >>> program = assemble([cost, room], [x], [fits], [math.nan])
    >>> program.start, program.exponents.tolist()
    (array([1.]), [[-2.0], [1.0]])
    """
    columns: dict[tuple[tuple[tuple[int, float], ...], float], int] = {}
    entries: list[tuple[int, int, float]] = []
    linear = np.zeros((len(functions), len(variables)))
    for number, function in enumerate(functions):
        for variable, coefficient in function.linear.items():
            linear[number, variable] = coefficient
        for coefficient, row, offset in function.terms:
            key = tuple(sorted(item for item in row.items() if item[1])), offset
            entries.append((number, columns.setdefault(key, len(columns)), coefficient))
    coefficients = np.zeros((len(functions), len(columns)))
    for number, column, coefficient in entries:
        coefficients[number, column] += coefficient
    exponents = np.zeros((len(columns), len(variables)))
    for column, (powers, _) in enumerate(columns):
        for variable, power in powers:
            exponents[column, variable] = power
    lower, upper = (np.array([one[at] for one in variables], dtype=float) for at in (1, 2))
    least, most = (np.array([one[at] for one in constraints], dtype=float) for at in (1, 2))
    return Program(
        variables=tuple(one.name for one in variables),
        lower=lower,
        upper=upper,
        start=_within(np.array(start, dtype=float), lower, upper),
        constraints=tuple(one.name for one in constraints),
        constraint_lower=least,
        constraint_upper=most,
        sense=sense,
        coefficients=coefficients,
        exponents=exponents,
        offsets=np.array([offset for _, offset in columns], dtype=float),
        linear=linear,
        constants=np.array([function.constant for function in functions]),
    )


def _within(start: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return a start within bounds, in their middle where there is none."""
    low = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0))
    high = np.where(np.isfinite(upper), upper, low)
    given = np.where(np.isfinite(start), start, (low + high) / 2)
    return np.minimum(np.maximum(given, lower), upper)
