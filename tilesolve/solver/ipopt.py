"""Solving with IPOPT, through cyipopt, and checking the point that comes back.

Pyomo's own way to IPOPT needs the ASL library; `ExponentialNLP` does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tilesolve.contractions.errors import MemoryLimitError, SolverError, TilesolveError
from tilesolve.solver.exponentials import Program, Vector
from tilesolve.solver.nlp import ExponentialNLP
from tilesolve.system.loading import lacks_memory
from tilesolve.system.workers import run_unheard

OPTIONS: Mapping[str, str | int | float] = {
    "print_level": 0,
    "sb": "yes",
    "max_iter": 300,
    "tol": 1e-7,
    "mu_strategy": "adaptive",
    "alpha_for_y": "bound-mult",
    "fast_step_computation": "yes",
    "mumps_mem_percent": 5,
}
"""IPOPT's options in `solve`, where the caller does not say otherwise.

The adaptive barrier takes a fifth fewer steps than the monotone one. With it, multipliers that
follow the primal step led 2 in 1000 feasible programs to be called infeasible; with
``alpha_for_y`` as here none of 6000 was. The last two make a step cheaper.
"""

_STATUS = {
    0: "optimal",
    1: "acceptable",
    2: "infeasible",
    3: "search direction too small",
    4: "diverging",
    5: "stopped",
    -1: "too many iterations",
    -2: "restoration failed",
    -3: "error in step computation",
    -4: "too much CPU time",
    -5: "too much time",
    -10: "too few degrees of freedom",
    -11: "invalid program",
    -12: "invalid option",
    -13: "invalid number",
}


@dataclass(frozen=True, slots=True)
class Solution:
    """A point that IPOPT found and that was checked.

    Parameters
    ----------
    status, message
        ``"optimal"`` or ``"acceptable"`` (IPOPT's weaker tolerance), and IPOPT's own words.
    objective
        The objective as the model writes it, also where it is maximised.
    values
        The variables by name.
    multipliers
        By constraint, how much ``objective`` grows per unit by which its active bound grows;
        0 where no bound is active. So relaxing ``<=`` has a multiplier of at most 0 where the
        objective is minimised, of at least 0 where it is maximised. (IPOPT's own multiplier
        has the opposite sign in a minimisation.)
    violation
        By how much the worst bound is missed, relative to what it bounds (see
        `Program.violations`).
    iterations, seconds
        Of all starts together; the time includes reading the model.
    objectives
        Where each start that converged arrived.
    failures
        What IPOPT said of each start that did not.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var()
    >>> model.least = pyo.Constraint(expr=pyo.exp(model.x) >= 4)
    >>> model.cost = pyo.Objective(expr=3 * pyo.exp(model.x))
    >>> solution = solve(model)
    >>> round(solution.objective, 3), round(solution.multipliers["least"], 3)
    (12.0, 3.0)
    """

    status: str
    message: str
    objective: float
    values: Mapping[str, float]
    multipliers: Mapping[str, float]
    violation: float
    iterations: int
    seconds: float
    objectives: tuple[float, ...]
    failures: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """The difference between the worst and the best start that converged."""
        return max(self.objectives) - min(self.objectives)


def solve(
    problem: Any,  # noqa: ANN401 - a Program, or a Pyomo model, which has no type
    starts: Iterable[Mapping[str, float]] | None = None,
    options: Mapping[str, str | int | float] | None = None,
    *,
    tolerance: float = 1e-6,
) -> Solution:
    """Minimise (or maximise) with IPOPT, and check the point that it returns.

    Parameters
    ----------
    problem
        A Pyomo model, whose variables then take the solution's values, or a `Program`.
    starts
        Points to start from, by variable name; a variable that is left out starts where the
        model has it, one that the program does not need is passed over. All are tried and the
        best result kept: a convex program needs one.
    options
        IPOPT's, over those in `OPTIONS`.
    tolerance
        The largest violation (see `Program.violations`) of a point that is accepted.

    Raises
    ------
    SolverError
        If IPOPT is missing, or reaches no point that satisfies the program; the message has
        its status, its own words and the worst bound.

    Examples
    --------
    >>> import pyomo.environ as pyo
    >>> model = pyo.ConcreteModel()
    >>> model.x = pyo.Var(["m", "n"], bounds=(0, 10))
    >>> model.fits = pyo.Constraint(expr=sum(pyo.exp(model.x[i]) for i in "mn") <= 200)
    >>> model.reuse = pyo.Objective(expr=model.x["m"] + model.x["n"], sense=pyo.maximize)
    >>> solution = solve(model)
    >>> solution.status, round(pyo.exp(model.x["m"].value), 3)
    ('optimal', 100.0)
    """
    began = perf_counter()
    model: Any = None
    program, variables = problem, list[Any]()
    if not isinstance(problem, Program):
        from tilesolve.solver.from_pyomo import read  # Pyomo takes a while

        model, (program, variables) = problem, read(problem)
    given = [{}] if starts is None else starts
    points = [_point(program, model, start) for start in given]
    if not points:
        raise SolverError("there is no point to start from")
    tries = [_try(program, point, {**OPTIONS, **(options or {})}, tolerance) for point in points]
    good = [found for found in tries if not found.failure]
    failures = tuple(found.failure for found in tries if found.failure)
    if not good:
        raise SolverError("; then ".join(dict.fromkeys(failures)))
    best = min(good, key=lambda found: program.sense * found.objective)
    for variable, number in zip(variables, best.x, strict=False):
        variable.set_value(float(number), skip_validation=True)
    return Solution(
        status=best.status,
        message=best.message,
        objective=best.objective,
        values=dict(zip(program.variables, best.x.tolist(), strict=True)),
        multipliers=dict(zip(program.constraints, best.multipliers.tolist(), strict=True)),
        violation=best.violation,
        iterations=sum(found.iterations for found in tries),
        seconds=perf_counter() - began,
        objectives=tuple(found.objective for found in good),
        failures=failures,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Try:
    """Where one start arrived; ``failure`` says why that cannot be accepted."""

    status: str
    message: str
    x: Vector
    objective: float
    multipliers: Vector
    violation: float
    iterations: int
    failure: str


def _point(
    program: Program,
    model: Any,  # noqa: ANN401 - the Pyomo model of the program, or None
    start: Mapping[str, float],
) -> Vector:
    """Return a start as a vector; variables that the program does not need are left out."""
    at = {name: index for index, name in enumerate(program.variables)}
    point = program.start.copy()
    for name, number in start.items():
        if name in at:
            point[at[name]] = number
        elif model is None or model.find_component(name) is None:
            raise SolverError(f"the start names {name!r}, which is not a variable")
    if not np.isfinite(point).all():
        raise SolverError(f"the start {dict(start)} is not finite")
    return point


def _try(
    program: Program, start: Vector, options: Mapping[str, str | int | float], tolerance: float
) -> _Try:
    """Solve from one point."""
    if (program.lower == program.upper).all():
        # IPOPT refuses a program without freedom; there is only this point to check.
        x, duals = program.lower, np.zeros(len(program.constraints))
        code, message, iterations = 0, "No variable is free.", 0
    else:
        x, duals, code, message, iterations = run_unheard(partial(_ipopt, program, start, options))
        x = np.clip(x, program.lower, program.upper)
    missed = program.violations(x)
    violation = float(missed.max(initial=0.0))
    status = _STATUS.get(code, f"status {code}")
    failure = ""
    if code not in (0, 1) or not violation <= tolerance:
        failure = f"IPOPT's status is {status!r}: {message}"
        if not violation <= tolerance:
            worst = (*program.variables, *program.constraints)[int(np.argmax(missed))]
            failure += f" The bounds of {worst!r} are missed by {violation:.2g} of its size."
    return _Try(
        status, message, x, float(program.values(x)[0]), duals, violation, iterations, failure
    )


def _explain(error: ImportError) -> TilesolveError:
    """Return what a user can do about IPOPT that cannot be loaded."""
    if lacks_memory(error):
        return MemoryLimitError(f"no memory is left to load IPOPT: {error}")
    again = "" if isinstance(error, ModuleNotFoundError) else "--force-reinstall "
    return SolverError(
        f"IPOPT cannot be loaded ({error}): pip install {again}cyipopt-wheels, "
        "then let 'tilesolve doctor' check it"
    )


def _ipopt(
    program: Program, start: Vector, options: Mapping[str, str | int | float]
) -> tuple[Vector, Vector, int, str, int]:
    """Return IPOPT's point, the multipliers, its status, its message and its iterations."""
    try:
        import cyipopt
    except ImportError as error:
        raise _explain(error) from error
    nlp = ExponentialNLP(program)
    solver = cyipopt.Problem(
        n=len(program.variables),
        m=len(program.constraints),
        problem_obj=nlp,
        lb=program.lower,
        ub=program.upper,
        cl=nlp.lower,
        cu=nlp.upper,
    )
    try:
        for name, setting in options.items():
            try:
                solver.add_option(name, setting)
            except TypeError:
                raise SolverError(f"IPOPT has no option {name!r} for {setting!r}") from None
        x, info = solver.solve(start)
    finally:
        solver.close()
    message = info["status_msg"]
    said = message.decode() if isinstance(message, bytes) else str(message)
    return x, nlp.multipliers(x, info["mult_g"]), int(info["status"]), said, nlp.steps
