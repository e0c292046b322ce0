"""The continuous optimum over all choices of innermost loops.

Choices are bounded by small programs, solved best bound first, and dropped when their bound
shows that they cannot win; the best one is then refined level by level (section 3.4, Eq. 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilesolve.constants.policy import (
    IDLE_SHARE,
    INTERIOR_GAP,
    ROUNDED_OPTIMA,
    ROUNDING,
    SCREENED_CHOICES,
    SOLVER_TOLERANCE,
    TIE_WEIGHT,
)
from tilesolve.contractions.errors import SolverError
from tilesolve.planning.geometric.integers import single_tile
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.optima import Optimum, optimum
from tilesolve.planning.geometric.program import Formulation, bounding, formulate
from tilesolve.planning.setting import Choice, RuledOut, Setting
from tilesolve.solver.duality import find_dual_bound


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
    ruled_out
        The choices that were pruned, and why.
    by_ipopt
        Programs that IPOPT was asked for: those whose interior point did not arrive, of choices, of
        bounds and of refinements.

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
    ruled_out: tuple[RuledOut, ...] = ()
    by_ipopt: int = 0

    @property
    def best(self) -> Optimum:
        """The best choice."""
        return self.optima[0]

    @property
    def solved(self) -> int:
        """Number of choices whose program was solved."""
        return len(self.optima)


def relax(
    setting: Setting, *, starts: int = 1, convex: bool = True, thorough: bool = False
) -> Relaxation:
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
    thorough
        Whether to solve those choices, too, that are proved to be worse than enough others.
    """
    if not setting.levels:
        only = optimum(formulate(setting, ()), ())
        return Relaxation((only,), 1, 0, 1, by_ipopt=only.by_ipopt)
    waiting = sorted(list_choices(setting), key=_count_repeats)
    search = _Search(setting, starts, convex, thorough)
    if (whole := single_tile(setting, waiting[0])) is not None:
        for choice in waiting:  # no loop runs: each choice is as fast as any
            if not search.optima:
                search.attempt(choice)
        others = tuple(waiting[len(search.failed) + 1 :])
        search.stopped = [RuledOut(others, whole.seconds, None, waiting[0])]
    else:
        search.run(waiting)
    optima, failed = search.optima, search.failed
    if not optima:
        raise next(iter(failed.values()))
    optima.sort(key=lambda found: found.score)
    refined = refine(setting, optima[0], convex=convex)
    letters = sum(len(group) for _, group in setting.fused.groups)
    return Relaxation(
        (refined, *optima[1:]),
        len(waiting),
        len(waiting) - len(optima) - len(failed),
        letters**setting.levels,
        search.list_ruled_out(),
        search.by_ipopt + refined.by_ipopt - optima[0].by_ipopt,
    )


@dataclass(slots=True)
class _Search:
    """The choices of a setting as they are solved.

    Some fail, and some are stopped whose own program shows that they are not needed. By a level and
    the loops around its tile, `floors` are what these take, as a solver says, `bounds` what that is
    proved to be, and `beaten` the choices that this rules out.
    """

    setting: Setting
    starts: int
    convex: bool
    thorough: bool
    optima: list[Optimum] = field(default_factory=list)
    failed: dict[Choice, SolverError] = field(default_factory=dict)
    stopped: list[RuledOut] = field(default_factory=list)
    floors: dict[tuple[int, str], Optimum] = field(default_factory=dict)
    bounds: dict[tuple[int, str], RuledOut] = field(default_factory=dict)
    beaten: dict[tuple[int, str], list[Choice]] = field(default_factory=dict)
    by_ipopt: int = 0

    def run(self, waiting: Sequence[Choice]) -> None:
        """Solve all choices that may be the best."""
        levels = self.setting.levels
        waiting = sorted(waiting, key=lambda choice: self.floor(levels, choice[-1] or "").seconds)
        for choice in waiting:
            if not (self.optima and self.is_beaten(choice)):
                self.attempt(choice)
        if self.optima:
            self.solve_ties(waiting)

    def solve_ties(self, waiting: Sequence[Choice]) -> None:
        """Settle what the longest time leaves open.

        Many choices share the longest time, often the arithmetic's. Of those that differ from the
        best one at one level, the few are solved whose times are shortest at the best one's tiles.
        """
        setting, best = self.setting, min(self.optima, key=lambda found: found.score)
        tried = {one.choice for one in self.optima} | {one.loops for one in self.stopped}
        known = set(waiting)
        near = [
            choice
            for at in range(setting.levels)
            for other in dict.fromkeys(choice[at] for choice in waiting)
            if (choice := (*best.choice[:at], other, *best.choice[at + 1 :])) in known - tried
        ]
        ranked = sorted(near, key=lambda choice: _score_at(formulate(setting, choice), best.tiles))
        for choice in ranked[:SCREENED_CHOICES]:
            self.attempt(choice)

    def attempt(self, choice: Choice) -> None:
        """Solve one choice: there is an optimum, or a reason why there is none or none is needed.

        None is needed that scores worse than all that may be made integer, and is not the fastest.
        """
        limit, scores = None, sorted(one.score for one in self.optima)
        if self.convex and not self.thorough and len(scores) >= ROUNDED_OPTIMA:
            fastest = min(one.seconds for one in self.optima)
            limit = max(scores[ROUNDED_OPTIMA - 1], fastest * (1 + TIE_WEIGHT))
        program = formulate(self.setting, choice)
        try:
            found = optimum(program, choice, starts=self.starts, limit=limit)
        except SolverError as error:  # IPOPT's: it was asked, too
            self.failed[choice] = error
            self.by_ipopt += 1
            return
        self.by_ipopt += found.by_ipopt
        if limit is not None and found.bound > limit:
            self.stopped.append(_rule_out(program, found, 0, found.bound / (1 + TIE_WEIGHT)))
        else:
            self.optima.append(found)

    def is_beaten(self, choice: Choice) -> bool:
        """Return whether some level's loops alone keep a choice from being faster."""
        limit = min(one.seconds for one in self.optima) * (1 - SOLVER_TOLERANCE)
        for level, first in sorted(enumerate(choice, start=1), reverse=True):
            if first is None:
                continue
            known = self.floors.get((level, first))
            if known is not None and known.seconds <= limit:
                continue
            if self.bound(level, first, limit) > limit:
                self.beaten.setdefault((level, first), []).append(choice)
                return True
        return False

    def floor(self, level: int, first: str) -> Optimum:
        """Return what loops around a level's tile take, as the solver says.

        Of loops that take as long the other times count, too.
        """
        if (level, first) not in self.floors:
            program = replace(bounding(self.setting, level, first), weight=TIE_WEIGHT)
            self.floors[level, first] = found = optimum(program, (first,))
            self.by_ipopt += found.by_ipopt
        return self.floors[level, first]

    def bound(self, level: int, first: str, limit: float) -> float:
        """Return seconds that no choice with these loops around a level's tile is faster than.

        They are the most that there are, or more than a limit: if the multipliers of `floor` prove
        that, no other program is solved.
        """
        if (level, first) not in self.bounds:
            program, found = bounding(self.setting, level, first), self.floor(level, first)
            seconds = found.seconds
            if self.convex:
                sizes = {x: found.tiles[x] for x in program.variables}
                seconds = find_dual_bound(program, sizes, found.multipliers)
                found = replace(found, bound=seconds)
                if seconds <= limit:
                    found = optimum(program, (first,), limit=limit)
                    seconds = found.bound
                    self.by_ipopt += found.by_ipopt
            self.bounds[level, first] = _rule_out(program, found, level, seconds)
        return self.bounds[level, first].seconds

    def list_ruled_out(self) -> tuple[RuledOut, ...]:
        """Return the choices that were pruned; one that was tried even so is none of them."""
        tried = {one.choice for one in self.optima} | {one.loops for one in self.stopped}
        tried |= set(self.failed)
        found = [
            replace(self.bounds[at], choices=left)
            for at, choices in self.beaten.items()
            if (left := tuple(one for one in choices if one not in tried))
        ]
        return (*found, *(one for one in self.stopped if one.choices))


def _rule_out(program: Formulation, found: Optimum, level: int, seconds: float) -> RuledOut:
    """Return what a program shows, of one choice if its level is 0."""
    proves = found.bound > -inf
    sizes = ((x, found.tiles[x]) for x in program.variables if proves)
    multipliers = ((x, m) for x, m in found.multipliers.items() if proves and -m > INTERIOR_GAP)
    choices = () if level else (found.choice,)
    return RuledOut(choices, seconds, level, found.choice, tuple(sizes), tuple(multipliers))


def _score_at(program: Formulation, tiles: Mapping[str, float]) -> float:
    """Return what a choice's optimum scores at most: its times at given tiles."""
    times = [amount.at(tiles) for amount in program.times.values()]
    return max(times) + TIE_WEIGHT * sum(times) / len(times)


def _count_repeats(choice: Choice) -> int:
    """Rank choices of equal bound: every level with a tile and loops of its own first."""
    return len(choice) - len({first for first in choice if first is not None})


def refine(setting: Setting, found: Optimum, *, convex: bool = True) -> Optimum:
    """Solve the levels in the order of their tightness (Eq. 6).

    The times that hold the longest one up are kept where they are, and the longest of the
    others is minimised, until only idle levels are left. Affine subscripts make the program
    nonconvex: where IPOPT then fails from a point that keeps all bounds, that point stays.
    """
    program = formulate(setting, found.choice)
    held: dict[str, float] = {}
    latest, asked = found, found.by_ipopt
    while True:
        open_times = {n: s for n, s in latest.times.items() if n not in held}
        longest = max(open_times.values(), default=0.0)
        if longest <= IDLE_SHARE * found.seconds:
            return replace(found, tiles=latest.tiles, times=latest.times, by_ipopt=asked)
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
                asked += latest.by_ipopt
            except SolverError:
                if convex:
                    raise
                return replace(found, tiles=latest.tiles, times=latest.times, by_ipopt=asked + 1)
