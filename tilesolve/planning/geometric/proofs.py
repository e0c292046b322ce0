"""Proofs that choices are ruled out: checked by arithmetic, whatever the solver did."""

from __future__ import annotations

from collections.abc import Iterable

from tilesolve.constants.policy import ROUNDING, TIE_WEIGHT
from tilesolve.contractions.errors import SolverError
from tilesolve.planning.geometric.integers import single_tile
from tilesolve.planning.geometric.program import bounding, formulate
from tilesolve.planning.setting import Choice, RuledOut, Setting
from tilesolve.solver.duality import find_dual_bound


def check_ruled_out(setting: Setting, one: RuledOut) -> float:
    """Return seconds that choices are proved to take no less than.

    Parameters
    ----------
    setting
        What they are choices for.
    one
        Some that were ruled out, with a proof.

    Raises
    ------
    SolverError
        If they are not proved to take as long as it says.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.planning.demand import Demand
    >>> from tilesolve.planning.geometric.strategy import setting_for
    >>> from tilesolve.planning.solve import solve
    >>> found = solve(Problem.of("ik-ij-jk", 512), Machine.load("e5-2680v4"), 1, Demand())
    >>> one = found.search.ruled_out[0]
    >>> round(check_ruled_out(setting_for(found), one) / one.seconds, 6)
    1.0
    """
    shown = _prove(setting, one)
    if not shown >= one.seconds * (1 - ROUNDING):
        raise SolverError(
            f"{len(one.choices)} choices of loops are not ruled out: they are proved to take "
            f"{shown:.4g} s, not {one.seconds:.4g} s"
        )
    return shown


def list_proved(
    setting: Setting, ruled_out: Iterable[RuledOut]
) -> tuple[tuple[Choice, float], ...]:
    """Return each choice that is ruled out with a proof, and the seconds that are proved."""
    proved = [one for one in ruled_out if one.level is None or one.multipliers]
    found = [(one.choices, check_ruled_out(setting, one)) for one in proved]
    return tuple((choice, seconds) for choices, seconds in found for choice in choices)


def _prove(setting: Setting, one: RuledOut) -> float:
    """Return the seconds that are proved."""
    if one.level is None:
        whole = single_tile(setting, one.loops)
        return 0.0 if whole is None else whole.seconds
    first = one.loops[0]
    if one.level and first is not None:
        program = bounding(setting, one.level, first)
    else:
        program = formulate(setting, one.loops)
    sizes, multipliers = program.whole(dict(one.sizes)), dict(one.multipliers)
    found = find_dual_bound(program, sizes, multipliers)
    return found if one.level else found / (1 + TIE_WEIGHT)
