"""The continuous optimum over all choices of innermost loops.

Choices are bounded by small programs, solved best bound first, and dropped when their bound
shows that they cannot win; the best one is then refined level by level (section 3.4, Eq. 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from typing import TYPE_CHECKING, Any

from tilesolve.constants.policy import (
    IDLE_SHARE,
    ROUNDING,
    SCREENED_CHOICES,
    SOLVER_TOLERANCE,
    START_SHARES,
    TIE_WEIGHT,
)
from tilesolve.contractions.errors import SolverError
from tilesolve.planning.geometric.integers import single_tile
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.program import Formulation, bounding, formulate
from tilesolve.planning.setting import Choice, Setting
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
        Whether IPOPT found it: of a program whose interior point did not arrive.

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
    by_ipopt: bool = False

    @property
    def seconds(self) -> float:
        """The longest time."""
        return max(self.times.values())

    @property
    def score(self) -> float:
        """What optima are compared by: the longest time, with a small weight on all others."""
        return self.seconds + TIE_WEIGHT * sum(self.times.values()) / len(self.times)


@dataclass(frozen=True, slots=True)
class Relaxation:
    """What the search over choices found.

    Parameters
    ----------
    optima
        The solved choices, best first; the first one refined level by level.
    considered, pruned
        Number of choices, and of those that a bound ruled out.
    permutations
        Loop permutations that the choices stand for, in the paper's count.

    Examples
    --------
    >>> only = Optimum(("M",), {"T1_M": 8.0}, {"L1": 1.0, "compute": 2.0}, {}, {})
    >>> Relaxation((only,), considered=4, pruned=3, permutations=3).solved
    1
    """

    optima: tuple[Optimum, ...]
    considered: int
    pruned: int
    permutations: int

    @property
    def best(self) -> Optimum:
        """The best choice."""
        return self.optima[0]

    @property
    def solved(self) -> int:
        """Number of choices whose program was solved."""
        return len(self.optima)

    @property
    def by_ipopt(self) -> int:
        """Number of those that IPOPT solved."""
        return sum(one.by_ipopt for one in self.optima)


def relax(setting: Setting, *, starts: int = 1, convex: bool = True) -> Relaxation:
    """Return the continuous optimum over all choices of innermost loops.

    Parameters
    ----------
    setting
        The problem and the machine.
    starts
        Points to start from. One is enough for a contraction, whose program is convex;
        a convolution's is not.
    convex
        Whether it is.
    """
    if not setting.levels:
        only = optimum(formulate(setting, ()), ())
        return Relaxation((only,), 1, 0, 1)
    waiting = sorted(list_choices(setting), key=_count_repeats)
    optima: list[Optimum] = []
    failed: list[SolverError] = []
    if single_tile(setting, waiting[0]) is not None:  # no loop runs: each choice is as fast as any
        for choice in waiting:
            if not optima:
                _attempt(setting, choice, optima, failed, starts)
    else:
        _search(setting, waiting, optima, failed, starts)
    if not optima:
        raise failed[0]
    optima.sort(key=lambda found: found.score)
    refined = refine(setting, optima[0], convex=convex)
    letters = sum(len(group) for _, group in setting.fused.groups)
    return Relaxation(
        (refined, *optima[1:]),
        len(waiting),
        len(waiting) - len(optima) - len(failed),
        letters**setting.levels,
    )


def _search(
    setting: Setting,
    waiting: Sequence[Choice],
    optima: list[Optimum],
    failed: list[SolverError],
    starts: int,
) -> None:
    """Solve all choices that may be the best."""
    bound = cache(lambda level, first: _lower_bound(setting, level, first))
    floor = {first: bound(setting.levels, first) for first in {choice[-1] for choice in waiting}}
    waiting = sorted(waiting, key=lambda choice: floor[choice[-1]])
    for choice in waiting:
        best = min((o.seconds for o in optima), default=float("inf"))
        if not (optima and _is_beaten(choice, best, bound)):
            _attempt(setting, choice, optima, failed, starts)
    if optima:
        solve_ties(setting, waiting, optima, failed, starts)


def solve_ties(
    setting: Setting,
    waiting: Sequence[Choice],
    optima: list[Optimum],
    failed: list[SolverError],
    starts: int,
) -> None:
    """Settle what the longest time leaves open, adding the choices that this solves.

    Many choices share the longest time, often the arithmetic's. Of those that differ from the
    best one at one level, the few are solved whose times are shortest at the best one's tiles.
    """
    best = min(optima, key=lambda found: found.score)
    tried, known = {found.choice for found in optima}, set(waiting)
    near = [
        choice
        for at in range(setting.levels)
        for other in dict.fromkeys(choice[at] for choice in waiting)
        if (choice := (*best.choice[:at], other, *best.choice[at + 1 :])) in known - tried
    ]
    ranked = sorted(near, key=lambda choice: _score_at(formulate(setting, choice), best.tiles))
    for choice in ranked[:SCREENED_CHOICES]:
        _attempt(setting, choice, optima, failed, starts)


def _score_at(program: Formulation, tiles: Mapping[str, float]) -> float:
    """Return what a choice's optimum scores at most: its times at given tiles."""
    times = [amount.at(tiles) for amount in program.times.values()]
    return max(times) + TIE_WEIGHT * sum(times) / len(times)


def _attempt(
    setting: Setting,
    choice: Choice,
    optima: list[Optimum],
    failed: list[SolverError],
    starts: int,
) -> None:
    """Solve one choice and add its optimum, or the reason why there is none."""
    try:
        optima.append(optimum(formulate(setting, choice), choice, starts=starts))
    except SolverError as error:
        failed.append(error)


def _count_repeats(choice: Choice) -> int:
    """Rank choices of equal bound: every level with a tile and loops of its own first."""
    return len(choice) - len({first for first in choice if first is not None})


def _is_beaten(choice: Choice, best: float, bound: Any) -> bool:  # noqa: ANN401
    """Return whether some level's loops alone keep a choice from being faster."""
    return any(
        first is not None and bound(level, first) > best * (1 - SOLVER_TOLERANCE)
        for level, first in sorted(enumerate(choice, start=1), reverse=True)
    )


def _lower_bound(setting: Setting, level: int, first: str) -> float:
    """Return seconds that no choice with these loops around a level's tile is faster than."""
    return optimum(bounding(setting, level, first), (first,)).seconds


def optimum(
    program: Formulation,
    choice: Choice,
    *,
    held: Mapping[str, float] | None = None,
    starts: int = 1,
    near: Mapping[str, float] | None = None,
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
        )
    points = list(_start_points(program, starts, near)) if starts > 1 else [near or {}]
    found = [find_least(program, held, point) for point in points]
    reached = [one for one in found if one is not None]
    if len(reached) == len(found):
        costs = [_cost(program, one.sizes, held or {}) for one in reached]
        least = reached[costs.index(min(costs))]
        sizes, multipliers = least.sizes, least.multipliers
        spread = max(costs) / min(costs) - 1
    else:
        sizes, multipliers, spread = _solve_by_ipopt(program, held, starts, near)
    values = program.whole(sizes)
    times = {name: amount.at(values) for name, amount in program.times.items()}
    return Optimum(
        choice,
        program.tiles(values),
        times,
        multipliers,
        _elasticities(times, multipliers, program.unit),
        spread,
        by_ipopt=len(reached) < len(found),
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


def refine(setting: Setting, found: Optimum, *, convex: bool = True) -> Optimum:
    """Solve the levels in the order of their tightness (Eq. 6).

    The times that hold the longest one up are kept where they are, and the longest of the
    others is minimised, until only idle levels are left. Affine subscripts make the program
    nonconvex: where IPOPT then fails from a point that keeps all bounds, that point stays.
    """
    program = formulate(setting, found.choice)
    held: dict[str, float] = {}
    latest = found
    while True:
        open_times = {n: s for n, s in latest.times.items() if n not in held}
        longest = max(open_times.values(), default=0.0)
        if longest <= IDLE_SHARE * found.seconds:
            return replace(found, tiles=latest.tiles, times=latest.times)
        tight = {
            name
            for name in open_times
            if latest.multipliers.get(f"longest[{name}]", 0.0) < -SOLVER_TOLERANCE
            or open_times[name] == longest
        }
        held |= {name: open_times[name] * (1 + ROUNDING) for name in tight}
        if len(held) < len(program.times):
            try:
                latest = optimum(program, found.choice, held=held, near=latest.tiles)
            except SolverError:
                if convex:
                    raise
                return replace(found, tiles=latest.tiles, times=latest.times)
