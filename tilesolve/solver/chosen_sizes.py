"""The best of listed sizes, proved by SCIP.

In logarithms a choice among sizes is linear in binary variables, so that the program of
posynomials stays convex: SCIP solves it to proven optimality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from tilesolve.contractions.errors import SolverError
from tilesolve.solver.posynomial import Posynomials

Option = Mapping[str, float]
"""Sizes by symbol."""


def choose_sizes(
    program: Posynomials, options: Sequence[Sequence[Option]], limit: float
) -> tuple[dict[str, float], float]:
    """Return the best sizes, and a bound in seconds that none are better than.

    Parameters
    ----------
    program
        The program, whose longest time is minimised.
    options
        For each group of symbols the sizes that they may have together.
    limit
        Seconds that SCIP may take.

    Raises
    ------
    SolverError
        If SCIP is missing, or proves nothing in that time.
    """
    import pyomo.environ as pyo

    model = program.model()
    model.pick = pyo.Var(
        [(group, at) for group, found in enumerate(options) for at in range(len(found))],
        domain=pyo.Binary,
    )
    model.one = pyo.Constraint(
        range(len(options)),
        rule=lambda m, group: sum(m.pick[group, at] for at in range(len(options[group]))) == 1,
    )
    model.is_tile = pyo.ConstraintList()
    for group, found in enumerate(options):
        for symbol in found[0]:
            logs = [log(sizes[symbol]) for sizes in found]
            picked = sum(size * model.pick[group, at] for at, size in enumerate(logs))
            model.is_tile.add(model.tile[symbol] == picked)
    bound = _solve(model, limit)
    best = {symbol: exp(pyo.value(model.tile[symbol])) for symbol in program.variables}
    return best, bound * program.unit


def _solve(model: Any, limit: float) -> float:  # noqa: ANN401 - Pyomo has no types
    """Solve with SCIP and return the proven bound on the longest time, in the model's unit."""
    import pyomo.environ as pyo
    from pyomo.contrib.solver.common.factory import SolverFactory
    from pyomo.contrib.solver.common.results import TerminationCondition

    model.objective.deactivate()
    model.shortest = pyo.Objective(expr=model.time)
    solver = SolverFactory("scip_direct")
    if not solver.available():
        raise SolverError("SCIP is missing: pip install 'tilesolve[certify]'")
    results = solver.solve(
        model,
        time_limit=limit,
        rel_gap=1e-4,
        load_solutions=False,  # there may be none
        raise_exception_on_nonoptimal_result=False,
    )
    if results.termination_condition != TerminationCondition.convergenceCriteriaSatisfied:
        raise SolverError(f"SCIP proved nothing in {limit:g} s: {results.termination_condition}")
    results.solution_loader.load_vars()
    return exp(results.objective_bound)
