"""The continuous optimum of one choice of innermost loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import TYPE_CHECKING

from tilesolve.constants.policy import START_SHARES, TIE_WEIGHT
from tilesolve.planning.geometric.program import Formulation
from tilesolve.planning.setting import Choice
from tilesolve.solver.duality import find_dual_bound
from tilesolve.solver.interior import find_least
from tilesolve.system.loading import load_module

if TYPE_CHECKING:
    from tilesolve.solver.ipopt import Solution


@dataclass(frozen=True, slots=True)
class Optimum:
    """The continuous optimum of one choice of innermost loops.

    Parameters
    ----------
    choice
        For each cache the loops around its tile, innermost first; None: no tile of its own.
    tiles
        Every tile size by symbol.
    times
        Seconds of each server and of the arithmetic.
    multipliers
        For each constraint by how much the objective grows with its bound.
    elasticities
        By how many percent the longest time falls per percent more of each resource.
    spread
        Relative difference between the best and the worst of several starts; 0 for one.
    by_ipopt
        Programs that IPOPT solved for it: those whose interior point did not arrive.
    bound
        What no tiles are proved to cost less than, where a limit was given.

    Examples
    --------
    >>> found = Optimum(("M",), {"T1_M": 8.0}, {"L1": 1.0, "compute": 2.0}, {}, {})
    >>> found.seconds, found.score > found.seconds
    (2.0, True)
    """

    choice: Choice
    tiles: Mapping[str, float]
    times: Mapping[str, float]
    multipliers: Mapping[str, float]
    elasticities: Mapping[str, float]
    spread: float = 0.0
    by_ipopt: int = 0
    bound: float = -inf

    @property
    def seconds(self) -> float:
        """The longest time."""
        return max(self.times.values())

    @property
    def score(self) -> float:
        """What optima are compared by: the longest time, with a small weight on all others."""
        return self.seconds + TIE_WEIGHT * sum(self.times.values()) / len(self.times)


def optimum(
    program: Formulation,
    choice: Choice,
    *,
    held: Mapping[str, float] | None = None,
    starts: int = 1,
    near: Mapping[str, float] | None = None,
    limit: float | None = None,
) -> Optimum:
    """Solve one program.

    Parameters
    ----------
    program
        The program in symbols.
    choice
        The choice that it belongs to.
    held
        Seconds that some times may take instead of being minimised.
    starts
        Points to start from.
    near
        Tile sizes to start from.
    limit
        What it may be proved to cost more than, before it is solved; for one start.
    """
    if not program.variables:
        times = {name: amount.at({}) for name, amount in program.times.items()}
        longest = max(times, key=times.__getitem__)
        return Optimum(
            choice,
            program.tiles({}),
            times,
            {f"longest[{longest}]": -1.0},
            _elasticities(times, {f"longest[{longest}]": -1.0}, program.unit),
            bound=-inf if limit is None else find_dual_bound(program, {}, {}),
        )
    points = list(_start_points(program, starts, near)) if starts > 1 else [near or {}]
    found = [find_least(program, held, point, limit) for point in points]
    reached = [one for one in found if one is not None]
    if len(reached) == len(found):
        costs = [_cost(program, one.sizes, held or {}) for one in reached]
        least = reached[costs.index(min(costs))]
        sizes, multipliers = least.sizes, least.multipliers
        spread, bound = max(costs) / min(costs) - 1, least.bound
        values = program.whole(sizes)
    else:
        sizes, multipliers, spread = _solve_by_ipopt(program, held, starts, near)
        values = program.whole(sizes)
        bound = -inf if limit is None else find_dual_bound(program, values, multipliers)
    times = {name: amount.at(values) for name, amount in program.times.items()}
    return Optimum(
        choice,
        program.tiles(values),
        times,
        multipliers,
        _elasticities(times, multipliers, program.unit),
        spread,
        by_ipopt=int(len(reached) < len(found)),
        bound=bound,
    )


def _cost(program: Formulation, sizes: Mapping[str, float], held: Mapping[str, float]) -> float:
    """Return what a program minimises."""
    values = program.whole(sizes)
    times = [amount.at(values) for name, amount in program.times.items() if name not in held]
    return max(times) + (program.weight or 0.0) * sum(times) / len(times)


def _solve_by_ipopt(
    program: Formulation,
    held: Mapping[str, float] | None,
    starts: int,
    near: Mapping[str, float] | None,
) -> tuple[dict[str, float], dict[str, float], float]:
    """Return sizes, multipliers, and by how much the starts differ, relative to the best one."""
    arrays = program.arrays(held)
    spots = [
        {f"tile[{x}]": log(size) for x, size in point.items() if f"tile[{x}]" in arrays.variables}
        for point in _start_points(program, starts, near)
    ]
    ipopt = load_module("tilesolve.solver.ipopt")  # and IPOPT, which takes a while
    solution: Solution = ipopt.solve(arrays, starts=spots)
    places = {f"tile[{x}]": x for x in program.variables}
    sizes = {places[name]: exp(at) for name, at in solution.values.items() if name in places}
    return sizes, dict(solution.multipliers), solution.spread / solution.objective


def _elasticities(
    times: Mapping[str, float], multipliers: Mapping[str, float], unit: float
) -> dict[str, float]:
    """Return what one percent more of each resource takes off the longest time, in percent.

    A faster level makes its own time shorter, a larger one relaxes the limits on its tile. A higher
    peak leaves calls and packing as they are: of their time only the bare arithmetic gets shorter.
    """
    longest = max(times.values())
    found = {}
    for name, seconds in times.items():
        scaled = unit if name == "compute" else seconds
        gain = max(0.0, -multipliers.get(f"longest[{name}]", 0.0)) * scaled / longest
        found[name if name == "compute" else f"{name.lower()}_bandwidth"] = gain
    for name, multiplier in multipliers.items():
        if name.startswith("limit["):
            key = f"{name[6:-1].split('_')[1].lower()}_capacity"
            found[key] = found.get(key, 0.0) + max(0.0, -multiplier) * unit / longest
    return found


def _start_points(
    program: Formulation, count: int, near: Mapping[str, float] | None
) -> Iterable[Mapping[str, float]]:
    """Yield points between the smallest tiles and the whole problem."""
    for at in range(count):
        share = START_SHARES[at % len(START_SHARES)]
        yield {
            symbol: near[symbol] if near and at == 0 else low * (high / low) ** share
            for symbol, (low, high) in program.variables.items()
        }
