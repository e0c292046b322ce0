"""A study of one problem's tiles: how good the solver's plan is, and how well the model ranks.

The solver's plan, the best tiles of other loops, and random plans that keep all limits run in
turns, and their times are compared with the predicted ones. Half of the random plans have the
solver's loops and tiles similar to its own, as arbitrary tiles are seldom good.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log

from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.run.sweep import count_steps
from tilesolve.bench.run.timed_plans import time_plans
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.model.lines import bytes_at_ends
from tilesolve.model.price import compute_price
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.strategy import alternatives
from tilesolve.planning.geometric.tilings import Chain, feasible, nest_of
from tilesolve.planning.letter_boxes import box_letters
from tilesolve.planning.runner import Runner
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.waiting import nearest_tile
from tilesolve.plans.plan import Plan, plan
from tilesolve.studies.method import Method
from tilesolve.studies.plan_tile_results import SOLVER, Studies, Study, make_trial, report_studies

RUNNER_UP_PLANS = 4
"""Most plans of other loops, each with its best tiles, that a study runs."""

RANDOM_PLANS = 30
"""Random plans of a study, unless another number is asked for."""

NEARBY_FACTOR = 2.5
"""Greatest ratio of a tile of a nearby plan to the solver's, and of the solver's to it."""

MOST_DRAWS = 100_000
"""Most tilings that are drawn to find enough that keep the limits."""

CHECK_SECONDS = 0.2
"""Estimated seconds to make and check a plan."""

SEED = 1
"""Of the draw of random plans."""


def study_problem(
    case: ContractionCase, machine: Machine, procedure: Procedure, count: int, tell: Progress
) -> Study:
    """Run the plans of a study in turns; too few of them are no fault.

    Raises
    ------
    BenchmarkError
        If a plan gives a wrong result.
    """
    problem = case.work
    best = plan(problem, machine=machine, threads=procedure.threads)
    try:
        plans = list(vary_plan(best, count, SEED))
    except BenchmarkError as error:
        return Study(case, skipped=str(error))
    rounds = procedure.estimate_rounds(problem, machine, len(plans))
    step = count_steps(tell, len(plans) * (1 + rounds))
    times, ended = time_plans(problem, [p for _, p in plans], procedure, step)
    trials = tuple(
        make_trial(kind, p, times[number], ended=number in ended)
        for number, (kind, p) in enumerate(plans)
    )
    return Study(case, trials)


def vary_plan(best: Plan, count: int, seed: int) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of a study, and the kind of each."""
    yield SOLVER, best
    yield from (("runner-up", other) for other in solve_runners_up(best)[:count])
    near = draw_plans(best, count // 2, seed, near=True)
    yield from (("nearby", other) for other in near)
    yield from (("random", other) for other in draw_plans(best, count - count // 2, seed))


def solve_runners_up(best: Plan) -> list[Plan]:
    """Return the plans of other choices of loops, each with the tiles that the solver gives it."""
    found: dict[Choice, Plan] = {}
    for one in alternatives(best.solution):
        if one.choice != best.choice:
            found.setdefault(one.choice, Plan(one))
    return list(found.values())[:RUNNER_UP_PLANS]


def draw_plans(best: Plan, count: int, seed: int = 1, *, near: bool = False) -> list[Plan]:
    """Return different plans with tiles drawn at random that keep all limits.

    Each tile is a multiple of the nearer one; the logarithm of the ratio is uniform. Half of the
    plans pack both operands, the others pack the operands that the given plan packs.

    If `near`, loops are the given plan's, and tiles differ from its own by `NEARBY_FACTOR` at
    most; else both are arbitrary.
    """
    draw = random.Random(seed)
    setting = best.setting
    every = list_choices(setting)
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
    """Return random tiles of one index, nearest level first; similar to others if given."""
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

    `setting` is the setting that the best plan was solved in; `choice` has the loops around each
    tile, `chains` the tiles of each class. If `copied`, both operands are packed; else the operands
    that the best plan packs.
    """
    tiles = nest_of(setting, choice, chains)
    source = tiles if copied else best.nest
    machine, share = best.machine, best.share
    vectors = lanes(share.dtype, machine.vector_bits)
    with_copies = replace(tiles, packed=source.packed, kinds=source.kinds)
    line, aliased = machine.memory.line, machine.avoids_aliased_stores(share.dtype)
    nest = box_letters(
        share,
        setting.fused,
        with_copies,
        line,
        vectors,
        avoids_aliased_stores=aliased,
        tlb_pages=machine.costs.tlb_pages,
        ends=bytes_at_ends(machine) if with_copies.output == "stream" else 0.0,
    )
    nearest, nest = tuple(nearest_tile(nest).items()), Runner.of(share, machine).form(nest)
    cost = compute_price(share, nest, machine, microkernel=best.microkernel, threads=best.threads)
    made = tuple((index, chains[index]) for index, _ in best.classes)
    tiled = replace(best.solution, choice=choice, classes=made, nearest=nearest)
    return Plan(replace(tiled, nest=nest, cost=cost))


METHOD = Method(
    Studies,
    study_problem,
    report_studies,
    RANDOM_PLANS,
    lambda count: 1 + min(count, RUNNER_UP_PLANS) + count,
    CHECK_SECONDS,
    "tiles ",
)
