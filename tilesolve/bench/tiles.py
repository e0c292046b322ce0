"""A study of one problem's tiles: how good the solver's plan is, and how well the model ranks.

The solver's plan, the best tiles of its runners-up, and random plans that keep all limits are run
in turns, and their times are compared with the predicted ones. Half of the random plans have the
solver's loops and tiles near to its own: tiles from anywhere are seldom good.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log, nan

import numpy as np

from tilesolve.bench.oracle import Array, differing, digest, drawn, expected, places, wrong
from tilesolve.bench.sweep import Effort, Progress, flushed
from tilesolve.bench.worker import timer
from tilesolve.boxes import unfuse
from tilesolve.choices import choices
from tilesolve.contractions.errors import BenchmarkError, SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine import Machine
from tilesolve.movement import price
from tilesolve.packing.buffers import allocate
from tilesolve.planning import Plan, plan
from tilesolve.program import Choice, Setting
from tilesolve.relaxation import relax
from tilesolve.repair import Chain, feasible, nest_of, repair
from tilesolve.report import duration

RUNNERS_UP = 4
"""Other choices of loops that are tried with the tiles that suit them best."""

RANDOM = 30
"""Random plans of a study."""

NEAR = 2.5
"""Factor by which tiles of nearby plans differ from the solver's at most."""

DRAWS = 100_000
"""Random tiles that are drawn at most until enough of them keep the limits."""

HOPELESS = 8.0
"""Times the solver's plan that a run may take before one run of it is enough."""

SOLVER = "solver"


@dataclass(frozen=True, slots=True)
class Trial:
    """One plan of a study.

    Parameters
    ----------
    kind
        ``solver``, ``runner-up``, ``nearby`` or ``random``.
    plan
        What was run.
    seconds
        Of each round.

    Examples
    --------
    >>> Trial("solver", plan("ik-ij-jk", 64, "i7-6700k", cache=False), (1.0, 3.0)).median
    2.0
    """

    kind: str
    plan: Plan
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Study:
    """What a study found.

    Parameters
    ----------
    name
        Of the problem.
    trials
        The solver's plan first.

    Examples
    --------
    >>> found = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
    >>> study = Study("x", (Trial("solver", found, (1.1,)), Trial("random", found, (1.0,))))
    >>> study.rank, round(study.excess, 3)
    (2, 0.1)
    """

    name: str
    trials: tuple[Trial, ...]

    @property
    def fastest(self) -> float:
        """The least median of all."""
        return min(trial.median for trial in self.trials)

    @property
    def rank(self) -> int:
        """Where the solver's plan stands among all, 1 for the fastest."""
        return 1 + sum(trial.median < self.trials[0].median for trial in self.trials)

    @property
    def excess(self) -> float:
        """By which share the solver's plan is slower than the fastest."""
        return self.trials[0].median / self.fastest - 1

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured times; NaN for too few plans."""
        from scipy.stats import spearmanr

        predicted = [trial.plan.seconds for trial in self.trials]
        if len(set(predicted)) < 3:
            return nan
        return float(spearmanr(predicted, [trial.median for trial in self.trials]).statistic)


def study(
    name: str,
    problem: Problem,
    machine: Machine,
    effort: Effort,
    progress: Progress,
    *,
    count: int = RANDOM,
    seed: int = 1,
) -> Study:
    """Run the plans of a study in turns.

    Raises
    ------
    BenchmarkError
        If a plan gives a wrong result, or too few random tiles keep the limits.

    Examples
    --------
    >>> matmul = Problem.of("ik-ij-jk", 60)
    >>> found = study("matmul", matmul, Machine.load("i7-6700k"), Effort(repeat=1),
    ...               lambda *_: None, count=3)
    >>> found.trials[0].kind, found.trials[-1].kind, 1 <= found.rank <= len(found.trials)
    ('solver', 'random', True)
    """
    best = plan(problem, machine=machine, threads=effort.threads)
    plans = [(SOLVER, best)]
    plans += [("runner-up", other) for other in runners_up(best)]
    plans += [("nearby", other) for other in random_plans(best, count // 2, seed, near=True)]
    plans += [("random", other) for other in random_plans(best, count - count // 2, seed)]
    times = _timed(name, problem, [p for _, p in plans], machine, effort, progress)
    return Study(
        name,
        tuple(Trial(kind, p, tuple(t)) for (kind, p), t in zip(plans, times, strict=True)),
    )


def _timed(
    name: str,
    problem: Problem,
    plans: Sequence[Plan],
    machine: Machine,
    effort: Effort,
    progress: Progress,
) -> list[list[float]]:
    """Return the times of each plan, once its result is known to be right."""
    first, second, out = drawn(problem)
    at = places(problem)
    values, slack = expected(problem, (first, second), at)
    right = None
    for number, found in enumerate(plans):
        progress(number / len(plans) / (1 + effort.repeat), f"{name}: checking plan {number + 1}")
        out.fill(np.nan)
        found(first, second, out)
        fault = wrong(out[tuple(at.T)], values, slack)
        sums = digest(out)
        right = sums if right is None else right
        if fault or any(differing(problem, [right, sums])):
            raise BenchmarkError(f"{name}: plan {number + 1} gives another result: {fault}")
    trash = allocate(flushed(machine))
    timers = [timer(_run(found, first, second, out), trash) for found in plans]
    times: list[list[float]] = [[] for _ in plans]
    for turn in range(effort.repeat):
        for number, timed in enumerate(timers):
            if turn and times[number][0] > HOPELESS * times[0][0]:
                continue
            done = (turn + 1 + number / len(plans)) / (1 + effort.repeat)
            progress(done, f"{name}: round {turn + 1}, plan {number + 1} of {len(plans)}")
            times[number].append(timed())
    progress(1.0, "")
    return times


def _run(found: Plan, first: Array, second: Array, out: Array) -> Callable[[], object]:
    return lambda: found(first, second, out)


def runners_up(best: Plan) -> list[Plan]:
    """Return the plans of other choices of loops, each with the tiles that the solver gives it.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> best.choice in [other.choice for other in runners_up(best)]
    False
    """
    setting = best.setting
    found: list[Plan] = []
    for optimum in relax(setting).optima:
        if optimum.choice == best.choice or len(found) == RUNNERS_UP:
            continue
        try:
            tiles = repair(setting, optimum.choice, optimum.tiles)
        except SolverError:  # this choice has no tiles that fit
            continue
        found.append(variant(best, setting, optimum.choice, dict(tiles.chains), copied=False))
    return found


def random_plans(best: Plan, count: int, seed: int = 1, *, near: bool = False) -> list[Plan]:
    """Return different plans with tiles drawn at random that keep all limits.

    Tiles are multiples of the nearer ones, even in their logarithms. An operand that the given
    plan reads in place is read in place by half of them.

    Parameters
    ----------
    best
        The plan to vary.
    count, seed
        How many, and where the draw begins.
    near
        Whether loops are those of the given plan, and tiles like its own; else any.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> first, second = random_plans(best, 2)
    >>> first.nest != second.nest, random_plans(best, 1)[0].nest == first.nest
    (True, True)
    """
    draw = random.Random(seed)
    setting = best.setting
    every = choices(setting)
    found: dict[object, Plan] = {}
    for _ in range(DRAWS):
        if len(found) == count:
            return list(found.values())
        choice = best.choice if near else draw.choice(every)
        around = dict(best.classes) if near else {}
        chains = {
            i: _chain(draw, setting, choice, i, around.get(i))
            for i in setting.fused.problem.spec.letters
        }
        if feasible(setting, choice, chains):
            made = variant(best, setting, choice, chains, copied=draw.random() < 0.5)
            found[made.nest] = made
    raise BenchmarkError(
        f"only {len(found)} different tilings of {best.problem} were found, {count} are wanted"
    )


def _chain(
    draw: random.Random, setting: Setting, choice: Choice, index: str, around: Chain | None
) -> Chain:
    """Return random tiles of one index, nearest level first; near to others if there are any."""
    extent, inner = setting.fused.problem.sizes[index], setting.smallest(index)
    chain: Chain = ()
    for level in range(1, setting.levels + 1):
        if level == 1 or choice[level - 2] is not None:
            low, high = 0.0, log(max(1.0, extent / inner))
            if around is not None:
                middle = log(max(1.0, around[level - 1] / inner))
                low, high = max(low, middle - log(NEAR)), min(high, middle + log(NEAR))
            inner = min(extent, inner * round(exp(draw.uniform(low, high))))
        chain = (*chain, inner)
    return chain


def variant(
    best: Plan, setting: Setting, choice: Choice, chains: dict[str, Chain], *, copied: bool
) -> Plan:
    """Return a plan with other loops and tiles.

    Parameters
    ----------
    best
        The plan to vary.
    setting
        What it was solved for.
    choice, chains
        The loops around each tile, and the tiles of each class.
    copied
        Whether both operands are packed; else those that are in the given plan.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> same = variant(best, best.setting, best.choice, dict(best.classes), copied=False)
    >>> same.seconds == best.seconds
    True
    """
    tiles = nest_of(setting, choice, chains)
    packed = tiles.packed if copied else best.nest.packed
    machine, share = best.machine, best.share
    vectors = max(1, lanes(share.dtype, machine.vector_bits))
    with_copies = replace(tiles, packed=packed)
    nest = unfuse(share, setting.fused, with_copies, machine.memory.line, vectors)
    cost = price(share, nest, machine, microkernel=best.microkernel, threads=best.threads)
    made = tuple((index, chains[index]) for index, _ in best.classes)
    return replace(best, choice=choice, classes=made, nest=nest, price=cost)


COLUMNS = {
    "rank": "right",
    "plan": "left",
    "around the tiles": "left",
    "tiles": "left",
    "packed": "left",
    "predicted": "right",
    "measured": "right",
    "of the fastest": "right",
}
"""Headers of a study's table, and the side on which cells stand."""


def rows(found: Study) -> list[tuple[str, ...]]:
    """Return the cells of a study's table, the fastest plan first.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
    >>> rows(Study("x", (Trial("solver", best, (1.0,)),)))[0][:2]
    ('1', 'solver')
    """
    ranked = sorted(found.trials, key=lambda trial: trial.median)
    return [
        (
            str(at),
            trial.kind,
            " ".join(first or "-" for first in trial.plan.choice),
            " ".join(f"{i}:{','.join(map(str, chain))}" for i, chain in trial.plan.classes),
            " ".join(level or "-" for level in trial.plan.nest.packed) or "-",
            duration(trial.plan.seconds),
            duration(trial.median),
            f"{trial.median / found.fastest:.2f}",
        )
        for at, trial in enumerate(ranked, start=1)
    ]


def summary(found: Study) -> str:
    """Return a study in a line.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
    >>> summary(Study("x", (Trial("solver", best, (1.0,)),)))
    "x: the solver's plan is number 1 of 1, 0.0 % slower than the fastest; rank correlation nan"
    """
    return (
        f"{found.name}: the solver's plan is number {found.rank} of {len(found.trials)}, "
        f"{found.excess:.1%} slower than the fastest; rank correlation {found.correlation:.2f}"
    ).replace("%", " %")


def overall(studies: Sequence[Study]) -> str:
    """Return many studies in a line.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
    >>> overall([Study("x", (Trial("solver", best, (1.0,)),))])
    "1 cases: the solver's plan is 0.0 % slower than the fastest in the median, 0.0 % at worst"
    """
    excesses = [found.excess for found in studies]
    return (
        f"{len(studies)} cases: the solver's plan is {statistics.median(excesses):.1%} slower "
        f"than the fastest in the median, {max(excesses):.1%} at worst"
    ).replace("%", " %")
