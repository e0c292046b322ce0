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

from tilesolve.bench.procedure import LONG_SECONDS, Procedure
from tilesolve.bench.run.oracle import (
    Array,
    compute_elements,
    describe_fault,
    draw_arrays,
    find_outliers,
    pick_elements,
    shrink,
    sum_parts,
)
from tilesolve.bench.run.sweep import (
    SPARE_BYTES,
    count_flush_bytes,
    count_steps,
    describe_lack,
    share_progress,
)
from tilesolve.bench.run.worker import make_timer
from tilesolve.bench.studies.trials import SOLVER, Studies, Study, make_trial
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

RUNNER_UP_PLANS = 4
"""Other choices of loops that are tried with the tiles that suit them best."""

RANDOM_PLANS = 30
"""Random plans of a study."""

NEARBY_FACTOR = 2.5
"""Factor by which tiles of nearby plans differ from the solver's at most."""

MOST_DRAWS = 100_000
"""Random tiles that are drawn at most until enough of them keep the limits."""

HOPELESS_RATIO = 3.0
"""Times the solver's plan that a run may take, or be predicted to, before one of it is enough. A
run that takes longer than that and than `LONG` is ended."""

CHECK_SECONDS = 0.2
"""Seconds that a plan takes to be made and checked, about."""


def study_problems(
    problems: Mapping[str, Problem],
    machine: Machine,
    procedure: Procedure,
    start: Studies,
    keep: Callable[[Studies], None],
    progress: Progress,
) -> Studies:
    """Study the problems that are not there yet, and return all studies.

    Parameters
    ----------
    problems
        By name.
    machine, procedure
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
    >>> machine, procedure = Machine.load("i7-6700k"), Procedure(repeat=1)
    >>> start = Studies(settings("mine", None, (), machine, procedure, plans=2), {}, "", ())
    >>> found = studies({"tiny": Problem.of("ik-ij-jk", 60)}, machine, procedure, start,
    ...                 lambda _: None, lambda *_: None)
    >>> found.cases[0].name, len(found.cases[0].trials) >= 3
    ('tiny', True)
    """
    count = start.conditions.plans or RANDOM_PLANS
    waiting = {n: p for n, p in problems.items() if not start.has(n, p)}
    found = start
    for name, tell in share_progress(
        progress, estimate_studies(waiting, machine, procedure, count)
    ):
        problem = waiting[name]
        try:
            case = study_problem(name, problem, machine, procedure, tell, count=count)
        except BenchmarkError as error:
            case = Study(name, problem, fault=str(error))
        found = found.with_case(case)
        keep(found)
    progress(1.0, "")
    return found


def estimate_studies(
    problems: Mapping[str, Problem], machine: Machine, procedure: Procedure, count: int
) -> dict[str, float]:
    """Return the seconds that each study takes, about.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> few, many = (weights({"x": Problem.of("ik-ij-jk", 60)}, machine, Procedure(), n)["x"]
    ...              for n in (3, 30))
    >>> few < many
    True
    """
    runners = 1 + min(count, RUNNER_UP_PLANS) + count
    return {
        name: CHECK_SECONDS
        if describe_lack(count_study_bytes(problem, machine))
        else procedure.estimate_seconds(problem, machine, runners, CHECK_SECONDS)
        for name, problem in problems.items()
    }


def count_study_bytes(problem: Problem, machine: Machine) -> int:
    """Return the bytes that a study takes.

    Examples
    --------
    >>> needed(Problem.of("ik-ij-jk", 100), Machine.load("i7-6700k"))
    285452672
    """
    return sum(problem.bytes) + count_flush_bytes(machine) + SPARE_BYTES


def study_problem(
    name: str,
    problem: Problem,
    machine: Machine,
    procedure: Procedure,
    progress: Progress,
    *,
    count: int = RANDOM_PLANS,
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
    >>> found = study("matmul", matmul, Machine.load("i7-6700k"), Procedure(repeat=1),
    ...               lambda *_: None, count=3)
    >>> found.trials[0].kind, found.trials[-1].kind, 1 <= found.rank <= len(found.trials)
    ('solver', 'random', True)
    """
    progress(0.0, "planning")
    if lack := describe_lack(count_study_bytes(problem, machine)):
        return Study(name, problem, skipped=lack)
    try:
        best = plan(problem, machine=machine, threads=procedure.threads)
        plans = list(vary_plan(best, count, seed))
    except TilesolveError as error:
        return Study(name, problem, skipped=str(error))
    step = count_steps(
        progress, len(plans) * (1 + procedure.estimate_rounds(problem, machine, len(plans)))
    )
    times, ended = _time_plans(problem, [p for _, p in plans], procedure, step)
    trials = tuple(
        make_trial(kind, p, times[number], ended=number in ended)
        for number, (kind, p) in enumerate(plans)
    )
    return Study(name, problem, trials)


def vary_plan(best: Plan, count: int, seed: int) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of a study, and the kind of each.

    Examples
    --------
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> [kind for kind, _ in varied(best, 2, 1)][-2:]
    ['nearby', 'random']
    """
    yield SOLVER, best
    yield from (("runner-up", other) for other in solve_runners_up(best)[:count])
    near = draw_plans(best, count // 2, seed, near=True)
    yield from (("nearby", other) for other in near)
    yield from (("random", other) for other in draw_plans(best, count - count // 2, seed))


def _time_plans(
    problem: Problem,
    plans: Sequence[Plan],
    procedure: Procedure,
    step: Callable[[str], None],
) -> tuple[list[list[float]], set[int]]:
    """Return the times of each plan, once its result is known to be right.

    Kernels are loaded before: the first plan, which is the solver's, would wait for them. A run
    that takes far longer than that plan's is ended; what it computed is not looked at. The numbers
    of these plans are returned, too.
    """
    machine, threads = plans[0].machine, plans[0].threads
    small = shrink(problem)
    plan(small, machine=machine, threads=threads)(*draw_arrays(small))
    first, second, out = draw_arrays(problem)
    at = pick_elements(problem)
    values, slack = compute_elements(problem, (first, second), at)
    trash = allocate(count_flush_bytes(machine))
    timers = [make_timer(_bind_run(found, first, second, out), trash) for found in plans]
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
            limit = max(LONG_SECONDS, HOPELESS_RATIO * seconds)
        times.append(procedure.first_rounds(seconds))
        fault = describe_fault(out[tuple(at.T)], values, slack)
        sums = sum_parts(out)
        right = sums if right is None else right
        if fault or any(find_outliers(problem, [right, sums])):
            what = fault or "its sums are not those of plan 1"
            raise BenchmarkError(f"plan {number} gives another result: {what}")

    def hopeless(number: int) -> bool:
        if number in ended or not times[0] or not times[number]:
            return number in ended
        return (
            times[number][0] > HOPELESS_RATIO * times[0][0]
            or plans[number].seconds > HOPELESS_RATIO * plans[0].seconds
        )

    while waiting := procedure.pick_due({n: t for n, t in enumerate(times) if not hopeless(n)}):
        for number in waiting:
            if not hopeless(number):  # now that the solver's plan has run
                turn = len(times[number]) + 1
                step(f"round {turn}, plan {number + 1} of {len(plans)}")
                times[number].append(timers[number]())
    return times, ended


def _bind_run(found: Plan, first: Array, second: Array, out: Array) -> Callable[[], object]:
    return lambda: found(first, second, out)


def solve_runners_up(best: Plan) -> list[Plan]:
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
        if optimum.choice == best.choice or len(found) == RUNNER_UP_PLANS:
            continue
        try:
            tiles = repair(setting, optimum.choice, optimum.tiles)
        except SolverError:  # this choice has no tiles that fit
            continue
        found.append(change_tiles(best, setting, optimum.choice, dict(tiles.chains), copied=False))
    return found


def draw_plans(best: Plan, count: int, seed: int = 1, *, near: bool = False) -> list[Plan]:
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
    for _ in range(MOST_DRAWS):
        if len(found) == count:
            return list(found.values())
        choice = best.choice if near else draw.choice(every)
        around = dict(best.classes) if near else {}
        chains = {
            i: _draw_chain(draw, setting, choice, i, around.get(i))
            for i in setting.fused.problem.spec.letters
        }
        if feasible(setting, choice, chains):
            made = change_tiles(best, setting, choice, chains, copied=draw.random() < 0.5)
            found[made.nest] = made
    raise BenchmarkError(
        f"only {len(found)} different tilings of {best.problem} were found, {count} are wanted"
    )


def _draw_chain(
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
                low, high = (
                    max(low, middle - log(NEARBY_FACTOR)),
                    min(high, middle + log(NEARBY_FACTOR)),
                )
            inner = min(extent, inner * round(exp(draw.uniform(low, high))))
        chain = (*chain, inner)
    return chain


def change_tiles(
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
