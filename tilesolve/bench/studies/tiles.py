"""A study of one problem's tiles: how good the solver's plan is, and how well the model ranks.

The solver's plan, the best tiles of its runners-up, and random plans that keep all limits are run
in turns, and their times are compared with the predicted ones. Half of the random plans have the
solver's loops and tiles near to its own: tiles from anywhere are seldom good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from tilesolve.bench.effort import LONG, Effort
from tilesolve.bench.run.oracle import (
    Array,
    differing,
    digest,
    drawn,
    expected,
    places,
    tiny,
    wrong,
)
from tilesolve.bench.run.sweep import SPARE, flushed, lacking, shares, steps
from tilesolve.bench.run.worker import timer
from tilesolve.bench.studies.studies import SOLVER, Studies, Study, trial
from tilesolve.contractions.errors import BenchmarkError, SolverError, TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.model.price import price
from tilesolve.packing.buffers import allocate
from tilesolve.planning.geometric.integers import repair
from tilesolve.planning.geometric.loop_choices import choices
from tilesolve.planning.geometric.program import Choice, Setting
from tilesolve.planning.geometric.relaxation import relax
from tilesolve.planning.geometric.tilings import Chain, feasible, nest_of
from tilesolve.planning.letter_boxes import unfuse
from tilesolve.plans.plan import Plan, plan
from tilesolve.system.cancellation import NEVER_SECONDS, deadline

RUNNERS_UP = 4
"""Other choices of loops that are tried with the tiles that suit them best."""

RANDOM = 30
"""Random plans of a study."""

NEAR = 2.5
"""Factor by which tiles of nearby plans differ from the solver's at most."""

DRAWS = 100_000
"""Random tiles that are drawn at most until enough of them keep the limits."""

HOPELESS = 3.0
"""Times the solver's plan that a run may take, or be predicted to, before one of it is enough. A
run that takes longer than that and than `LONG` is ended."""

CHECKING = 0.2
"""Seconds that a plan takes to be made and checked, about."""


def studies(
    problems: Mapping[str, Problem],
    machine: Machine,
    effort: Effort,
    start: Studies,
    keep: Callable[[Studies], None],
    progress: Progress,
) -> Studies:
    """Study the problems that are not there yet, and return all studies.

    Parameters
    ----------
    problems
        By name.
    machine, effort
        What plans are made for, and how is measured.
    start
        What has been done before; its settings say how many random plans there are.
    keep
        Called with all studies after each one.
    progress
        Called often; an exception that it raises ends the studies.

    Examples
    --------
    >>> from tilesolve.bench.results.provenance import settings
    >>> machine, effort = Machine.load("i7-6700k"), Effort(repeat=1)
    >>> start = Studies(settings("mine", None, (), machine, effort, plans=2), {}, "", ())
    >>> found = studies({"tiny": Problem.of("ik-ij-jk", 60)}, machine, effort, start,
    ...                 lambda _: None, lambda *_: None)
    >>> found.cases[0].name, len(found.cases[0].trials) >= 3
    ('tiny', True)
    """
    count = start.settings.plans or RANDOM
    waiting = {n: p for n, p in problems.items() if not start.done(n, p)}
    found = start
    for name, tell in shares(progress, weights(waiting, machine, effort, count)):
        problem = waiting[name]
        try:
            case = study(name, problem, machine, effort, tell, count=count)
        except BenchmarkError as error:
            case = Study(name, problem, fault=str(error))
        found = found.added(case)
        keep(found)
    progress(1.0, "")
    return found


def weights(
    problems: Mapping[str, Problem], machine: Machine, effort: Effort, count: int
) -> dict[str, float]:
    """Return the seconds that each study takes, about.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> few, many = (weights({"x": Problem.of("ik-ij-jk", 60)}, machine, Effort(), n)["x"]
    ...              for n in (3, 30))
    >>> few < many
    True
    """
    runners = 1 + min(count, RUNNERS_UP) + count
    return {
        name: CHECKING
        if lacking(needed(problem, machine))
        else effort.expected(problem, machine, runners, CHECKING)
        for name, problem in problems.items()
    }


def needed(problem: Problem, machine: Machine) -> int:
    """Return the bytes that a study takes.

    Examples
    --------
    >>> needed(Problem.of("ik-ij-jk", 100), Machine.load("i7-6700k"))
    285452672
    """
    return sum(problem.bytes) + flushed(machine) + SPARE


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
    """Run the plans of a study in turns; say why, where that cannot be done.

    Raises
    ------
    BenchmarkError
        If a plan gives a wrong result.

    Examples
    --------
    >>> matmul = Problem.of("ik-ij-jk", 60)
    >>> found = study("matmul", matmul, Machine.load("i7-6700k"), Effort(repeat=1),
    ...               lambda *_: None, count=3)
    >>> found.trials[0].kind, found.trials[-1].kind, 1 <= found.rank <= len(found.trials)
    ('solver', 'random', True)
    """
    progress(0.0, "planning")
    if lack := lacking(needed(problem, machine)):
        return Study(name, problem, skipped=lack)
    try:
        best = plan(problem, machine=machine, threads=effort.threads)
        plans = list(varied(best, count, seed))
    except TilesolveError as error:
        return Study(name, problem, skipped=str(error))
    step = steps(progress, len(plans) * (1 + effort.rounds(problem, machine, len(plans))))
    times, ended = _timed(problem, [p for _, p in plans], effort, step)
    trials = tuple(
        trial(kind, p, times[number], ended=number in ended)
        for number, (kind, p) in enumerate(plans)
    )
    return Study(name, problem, trials)


def varied(best: Plan, count: int, seed: int) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of a study, and the kind of each.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> [kind for kind, _ in varied(best, 2, 1)][-2:]
    ['nearby', 'random']
    """
    yield SOLVER, best
    yield from (("runner-up", other) for other in runners_up(best)[:count])
    near = random_plans(best, count // 2, seed, near=True)
    yield from (("nearby", other) for other in near)
    yield from (("random", other) for other in random_plans(best, count - count // 2, seed))


def _timed(
    problem: Problem,
    plans: Sequence[Plan],
    effort: Effort,
    step: Callable[[str], None],
) -> tuple[list[list[float]], set[int]]:
    """Return the times of each plan, once its result is known to be right.

    Kernels are loaded before: the first plan, which is the solver's, would wait for them. A run
    that takes far longer than that plan's is ended; what it computed is not looked at. The numbers
    of these plans are returned, too.
    """
    machine, threads = plans[0].machine, plans[0].threads
    small = tiny(problem)
    plan(small, machine=machine, threads=threads)(*drawn(small))
    first, second, out = drawn(problem)
    at = places(problem)
    values, slack = expected(problem, (first, second), at)
    trash = allocate(flushed(machine))
    timers = [timer(_run(found, first, second, out), trash) for found in plans]
    times: list[list[float]] = []
    right, limit = None, NEVER_SECONDS
    ended: set[int] = set()
    for number, timed in enumerate(timers, start=1):
        step(f"checking plan {number} of {len(plans)}")
        out.fill(np.nan)
        with deadline(limit) as met:
            seconds = timed()
        if met():
            ended.add(number - 1)
            times.append([seconds])
            continue
        if number == 1:
            limit = max(LONG, HOPELESS * seconds)
        times.append(effort.first(seconds))
        fault = wrong(out[tuple(at.T)], values, slack)
        sums = digest(out)
        right = sums if right is None else right
        if fault or any(differing(problem, [right, sums])):
            what = fault or "its sums are not those of plan 1"
            raise BenchmarkError(f"plan {number} gives another result: {what}")

    def hopeless(number: int) -> bool:
        if number in ended or not times[0] or not times[number]:
            return number in ended
        return (
            times[number][0] > HOPELESS * times[0][0]
            or plans[number].seconds > HOPELESS * plans[0].seconds
        )

    while waiting := effort.due({n: t for n, t in enumerate(times) if not hopeless(n)}):
        for number in waiting:
            if not hopeless(number):  # now that the solver's plan has run
                turn = len(times[number]) + 1
                step(f"round {turn}, plan {number + 1} of {len(plans)}")
                times[number].append(timers[number]())
    return times, ended


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
    vectors = lanes(share.dtype, machine.vector_bits)
    with_copies = replace(tiles, packed=packed)
    line, hinders = machine.memory.line, machine.avoids_aliased_stores(share.dtype)
    nest = unfuse(share, setting.fused, with_copies, line, vectors, hinders=hinders)
    cost = price(share, nest, machine, microkernel=best.microkernel, threads=best.threads)
    made = tuple((index, chains[index]) for index, _ in best.classes)
    return replace(best, choice=choice, classes=made, nest=nest, price=cost)
