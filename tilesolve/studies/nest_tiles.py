"""A study of how well prices order random tiles of nests that sum, all of which are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tilesolve.bench.case import find_outliers, sum_parts
from tilesolve.bench.nests import NestCase, find_nests
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.run.sweep import count_steps
from tilesolve.bench.run.timed_plans import take_turns
from tilesolve.bench.run.worker import make_timer
from tilesolve.constants.nests import NEST_WHOLE_EXTENT
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.nests.classify import NestClass, tile_class
from tilesolve.nests.draws import draw_tilings
from tilesolve.nests.planning import plan_loops
from tilesolve.nests.request import NestRequest
from tilesolve.nests.running import NestRunner
from tilesolve.nests.solutions import LoopSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.packing.buffers import allocate
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.studies.method import Method
from tilesolve.studies.nest_tile_results import (
    DRAWN,
    PLANNED,
    SHARES,
    TiledNest,
    TiledNests,
    Tiling,
    report_tilings,
)

RANDOM_TILINGS = 30
"""Random tilings of a nest, unless another number is asked for."""

DIVISOR = 2
"""What the suite's extents are divided by, so that a run takes milliseconds; but for those of
letters that are too small for tiles."""

TILING_SECONDS = 0.3
"""Estimated seconds to make, check and time one of a nest's tilings."""

Choices = tuple[LoopSolution, ...]


def shrink_case(case: NestCase) -> NestCase:
    """Return a nest with extents as they are studied.

    Examples
    --------
    >>> shrink_case(find_nests("nests")["convlayer"]).work.sizes[2:]
    (('y', 127), ('x', 127), ('c', 32), ('r', 3), ('s', 3))
    """
    nest = case.work
    small = [(x, n if n <= NEST_WHOLE_EXTENT else -(-n // DIVISOR)) for x, n in nest.sizes]
    return replace(case, work=replace(nest, sizes=tuple(small)))


def find_temporal(job: Job) -> dict[str, NestCase]:
    """Return the nests that use elements again, with extents as they are studied."""
    return {
        name: shrink_case(case)
        for name, case in find_nests(job.suite, chosen=job.chosen).items()
        if any(tile_class(one) is NestClass.TEMPORAL for one in case.work.computation.stages)
    }


def study_nest(
    case: NestCase, machine: Machine, procedure: Procedure, count: int, tell: Progress
) -> TiledNest:
    """Draw and run tilings of one nest.

    Raises
    ------
    BenchmarkError
        If one gives another result than most.
    """
    request = NestRequest(case.work.computation, machine, procedure.threads, start="cold")
    chosen = [(PLANNED, plan_loops(request))]
    chosen += [(name, plan_loops(replace(request, later=one))) for name, one in SHARES.items()]
    drawn = draw_tilings(request, count=count)
    chosen += [(DRAWN, one) for one in drawn]
    different = {_key(choices): choices for _, choices in chosen}
    step = count_steps(tell, len(different) * (1 + procedure.repeat))
    timed = time_choices(case, list(different.values()), machine, procedure, step)
    times = dict(zip(different, timed, strict=True))
    return TiledNest(
        case,
        tuple(
            Tiling(
                kind,
                "; ".join(" ".join(item.name for item in one.loops.loops) for one in choices),
                sum(one.score for one in choices),
                tuple(times[_key(choices)]),
            )
            for kind, choices in chosen
        ),
    )


def _key(choices: Choices) -> tuple[object, ...]:
    return tuple(one.loops for one in choices)


def time_choices(
    case: NestCase,
    several: Sequence[Choices],
    machine: Machine,
    procedure: Procedure,
    step: Callable[[str], None],
) -> list[list[float]]:
    """Return the times of several ways to compute a nest.

    A run that checks the result comes first. They take turns then.

    Raises
    ------
    BenchmarkError
        If one gives another result than most.
    """
    *inputs, out = case.draw()
    computation, params = case.work.computation, dict(case.work.params)
    trash = allocate(count_flush_bytes(machine))
    timers, digests = [], []
    for number, choices in enumerate(several, start=1):
        step(f"tiling {number} of {len(several)} makes ready")
        request = NestRequest(computation, machine, procedure.threads, start="cold")
        runner = NestRunner(SolvedNest(request, tuple(choices)))
        run = partial(runner.compute, inputs, params, out)
        run()
        digests.append(sum_parts(out))
        timers.append(make_timer(run, trash))
    for number, off in enumerate(find_outliers(case, digests), start=1):
        if off:
            raise BenchmarkError(f"tiling {number} gives another result than most")
    times = [[timed()] for timed in timers]
    take_turns(timers, times, procedure, step, f"tiling {{}} of {len(several)}")
    return times


METHOD = Method(
    TiledNests,
    study_nest,
    report_tilings,
    RANDOM_TILINGS,
    lambda count: len(SHARES) + count,
    TILING_SECONDS,
    "tilings ",
    find_temporal,
)
