"""A study of how well prices order random tiles of nests that sum, all of which are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tilesolve.bench.procedure import Procedure
from tilesolve.bench.run.nest_oracle import draw_nest, draw_output, find_nest_outliers
from tilesolve.bench.run.oracle import sum_parts
from tilesolve.bench.run.sweep import (
    SPARE_BYTES,
    count_steps,
    describe_lack,
    share_progress,
)
from tilesolve.bench.run.timed_plans import HOPELESS_RATIO
from tilesolve.bench.run.worker import make_timer
from tilesolve.constants.policy import NEST_WHOLE_EXTENT
from tilesolve.contractions.statements.nest_suites import NestCase
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.nests.choices import NestChoice
from tilesolve.nests.classify import NestClass, tile_class
from tilesolve.nests.draws import draw_tilings, price_choices
from tilesolve.nests.planning import plan_nest
from tilesolve.nests.running import NestRunner
from tilesolve.packing.buffers import allocate
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.studies.tiled import (
    DRAWN,
    PLANNED,
    PRICE,
    SHARES,
    TiledNest,
    TiledNests,
    Tiling,
)

RANDOM_TILINGS = 30
"""Random tilings of a nest, unless another number is asked for."""

DIVISOR = 2
"""What the suite's extents are divided by, so that a run takes milliseconds; but for those of
letters that are too small for tiles."""

TILING_SECONDS = 0.3
"""Estimated seconds to make, check and time one of a nest's tilings."""

Choices = tuple[NestChoice, ...]


def shrink_case(case: NestCase) -> NestCase:
    """Return a nest with extents as they are studied.

    Examples
    --------
    >>> from tilesolve.contractions.statements.nest_suites import nest_suite
    >>> shrink_case(nest_suite("nests")["convlayer"]).sizes[2:]
    (('y', 127), ('x', 127), ('c', 32), ('r', 3), ('s', 3))
    """
    small = [(x, n if n <= NEST_WHOLE_EXTENT else -(-n // DIVISOR)) for x, n in case.sizes]
    return replace(case, sizes=tuple(small))


def find_temporal(nests: Mapping[str, NestCase]) -> dict[str, NestCase]:
    """Return the nests that use elements again, with extents as they are studied."""
    return {
        name: shrink_case(case)
        for name, case in nests.items()
        if any(tile_class(one) is NestClass.TEMPORAL for one in case.computation.stages)
    }


def study_nests(
    nests: Mapping[str, NestCase],
    machine: Machine,
    procedure: Procedure,
    start: TiledNests,
    keep: Callable[[TiledNests], None],
    progress: Progress,
) -> TiledNests:
    """Draw and run tilings of the nests that are not there yet, and return all studies.

    Parameters
    ----------
    nests
        By name, with extents as they are studied.
    machine, procedure
        What tiles are priced for, and how runs are timed.
    start
        What has been done before; its conditions say how many tilings there are.
    keep
        Called with all studies after each one.
    progress
        Called often; an exception that it raises ends the study.
    """
    count, found = start.conditions.plans or RANDOM_TILINGS, start
    waiting = {name: one for name, one in nests.items() if not start.has(name, one)}
    shares = estimate_tilings(waiting, count)
    for name, tell in share_progress(progress, shares):
        found = found.with_case(study_nest(waiting[name], machine, procedure, count, tell))
        keep(found)
    progress(1.0, "")
    return found


def estimate_tilings(nests: Mapping[str, NestCase], count: int) -> dict[str, float]:
    """Estimate the seconds that each nest takes."""
    return dict.fromkeys(nests, TILING_SECONDS * (len(SHARES) + count))


def study_nest(
    nest: NestCase, machine: Machine, procedure: Procedure, count: int, progress: Progress
) -> TiledNest:
    """Draw and run tilings of one nest; what cannot be run says why."""
    computation, threads = nest.computation, procedure.threads
    needed = sum(array.bytes for array in computation.arrays)
    if lack := describe_lack(needed + count_flush_bytes(machine) + SPARE_BYTES):
        return TiledNest(nest, skipped=lack)
    progress(0.0, "drawing tiles")
    chosen = [
        (
            PLANNED if name == PRICE else name,
            plan_nest(
                computation,
                machine,
                threads,
                route="nest",
                later=share,
            ),
        )
        for name, share in SHARES.items()
    ]
    drawn = draw_tilings(computation, machine, threads, count=count)
    chosen += [(DRAWN, one) for one in drawn]
    different = {_key(choices): choices for _, choices in chosen}
    step = count_steps(progress, len(different) * (1 + procedure.repeat))
    timed = time_choices(nest, list(different.values()), machine, procedure, step)
    if isinstance(timed, str):
        return TiledNest(nest, fault=timed)
    times = dict(zip(different, timed, strict=True))
    return TiledNest(
        nest,
        tuple(
            Tiling(
                kind,
                "; ".join(" ".join(item.name for item in one.loops.items) for one in choices),
                {
                    name: price_choices(choices, machine, threads, later=share)
                    for name, share in SHARES.items()
                },
                tuple(times[_key(choices)]),
            )
            for kind, choices in chosen
        ),
    )


def _key(choices: Choices) -> tuple[object, ...]:
    return tuple(one.loops for one in choices)


def time_choices(
    nest: NestCase,
    several: Sequence[Choices],
    machine: Machine,
    procedure: Procedure,
    step: Callable[[str], None],
) -> list[list[float]] | str:
    """Return the times of several ways to compute a nest, or how the result of one is wrong.

    A run that checks the result comes first. Those that take more than `HOPELESS_RATIO` times as
    long as the first are timed once, the others in rounds.
    """
    computation, params = nest.computation, dict(nest.params)
    arrays, out = draw_nest(computation), draw_output(computation)
    inputs = [arrays[name] for name in computation.inputs]
    trash = allocate(count_flush_bytes(machine))
    timers, digests = [], []
    times: list[list[float]] = []
    for number, choices in enumerate(several, start=1):
        step(f"tiling {number} of {len(several)} makes ready")
        runner = NestRunner(computation, choices, machine, procedure.threads)
        run = partial(runner.compute, inputs, params, out)
        run()
        digests.append(sum_parts(out))
        timers.append(make_timer(run, trash))
    for number, off in enumerate(find_nest_outliers(computation, digests), start=1):
        if off:
            return f"tiling {number} gives another result than most"
    for timed in timers:
        times.append([timed()])
    due = {n: t for n, t in enumerate(times) if t[0] <= HOPELESS_RATIO * times[0][0]}
    while waiting := procedure.pick_due(due):
        for number in waiting:
            step(f"round {len(times[number]) + 1}, tiling {number + 1} of {len(several)}")
            times[number].append(timers[number]())
    return times
