"""Plans of one problem in turns: checked, then timed in rounds, hopeless ones once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from tilesolve.bench.case import find_outliers, sum_parts
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.procedure import LONG_SECONDS, Procedure
from tilesolve.bench.run.made import Timer
from tilesolve.bench.run.worker import make_timer
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.packing.buffers import allocate
from tilesolve.plans.plan import Plan, plan
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.running.execution import Layout
from tilesolve.system.cancellation import NEVER_SECONDS, deadline

HOPELESS_RATIO = 3.0
"""A plan that takes more than so many times as long as the first one has one round. Its first run
is ended when it has taken longer than that and than `LONG_SECONDS`."""


def time_plans(
    problem: Problem,
    plans: Sequence[Plan],
    procedure: Procedure,
    step: Callable[[str], None],
) -> tuple[list[list[float]], set[int]]:
    """Return the times of each plan, and the numbers of those whose only run was ended.

    Each runs once before, untimed, as a first run may compile; results are checked then, but for
    runs that are ended. A small problem loads the kernels before, as the first plan would wait for
    them otherwise; and each plan those that only it needs, so that no run is ended while they are
    compiled. Every other round goes in reverse.

    All plans compute `problem`. A plan that is hopeless beside the first one, see
    `HOPELESS_RATIO`, runs once. `step` is told of each run before it.

    Raises
    ------
    BenchmarkError
        If a plan gives a wrong result.
    """
    machine, threads = plans[0].machine, plans[0].threads
    case = ContractionCase("", problem)
    small = case.shrink()
    plan(small.work, machine=machine, threads=threads)(*small.draw())
    first, second, out = case.draw()
    expected = case.expect((first, second))
    trash = allocate(count_flush_bytes(machine))
    timers = [make_timer(partial(found, first, second, out), trash) for found in plans]
    times: list[list[float]] = []
    right, limit = None, NEVER_SECONDS
    ended: set[int] = set()
    for number, timed in enumerate(timers, start=1):
        step(f"checking plan {number} of {len(plans)}")
        out.fill(np.nan)
        Layout.of(plans[number - 1].solution, first, second, out)  # loads its kernels
        with deadline(limit) as met:
            seconds = timed()
        if met():
            ended.add(number - 1)
            times.append([seconds])
            continue
        if number == 1:
            limit = max(LONG_SECONDS, HOPELESS_RATIO * seconds)
        times.append([])
        fault = expected.describe_fault(out)
        sums = sum_parts(out)
        right = sums if right is None else right
        if fault or any(find_outliers(case, [right, sums])):
            what = fault or "its sums are not those of plan 1"
            raise BenchmarkError(f"plan {number} gives another result: {what}")

    take_turns(timers, times, procedure, step, f"plan {{}} of {len(plans)}", ended)
    return times, ended


def take_turns(
    timers: Sequence[Timer],
    times: Sequence[list[float]],
    procedure: Procedure,
    step: Callable[[str], None],
    named: str,
    ended: Collection[int] = (),
) -> None:
    """Time several runs in rounds, every other one in reverse, and hopeless ones once.

    Others are hopeless beside the first one, see `HOPELESS_RATIO`. New seconds are added to
    `times`. `step` is told of each run before it; `named` is the name of a run, with a place for
    its number; the numbers in `ended` are not timed again.
    """

    def hopeless(number: int) -> bool:
        if number in ended or not times[0] or not times[number]:
            return number in ended
        return times[number][0] > HOPELESS_RATIO * times[0][0]

    while waiting := procedure.pick_due({n: t for n, t in enumerate(times) if not hopeless(n)}):
        for number in waiting if len(times[0]) % 2 == 0 else reversed(waiting):
            if not hopeless(number):  # now that the first one has run
                step(f"round {len(times[number]) + 1}, {named.format(number + 1)}")
                times[number].append(timers[number]())
