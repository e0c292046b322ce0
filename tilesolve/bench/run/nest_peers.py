"""Who computes nests: for each peer a function that prepares one.

Such a maker is given the nest, the machine, the number of threads, inputs in the order of the
statements, and an array for the result, which its run returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tilesolve.bench.case import Array, place_array
from tilesolve.bench.results.sweeps import Figures
from tilesolve.bench.run.halide_nests import make_halide, write_stages
from tilesolve.bench.run.made import Made, Run, Timer
from tilesolve.bench.run.numba_nests import make_numba
from tilesolve.bench.run.numpy_nests import make_numpy
from tilesolve.contractions.statements.nest_suites import NestCase
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.model.starts import Start
    from tilesolve.nests.plan import NestPlan
    from tilesolve.nests.request import NestMode, Route

OUT_OFFSETS = (0, 16, 40)
"""Bytes from the beginning of a line to where arrays for results begin."""

OUT_ROUNDS = 5
"""Rounds of calls with and without an array for the result."""

Operands = Sequence[Array]


def _solve(
    nest: NestCase,
    machine: Machine,
    threads: int,
    mode: NestMode = "default",
    route: Route | None = None,
    start: Start = "cold",
) -> NestPlan:
    """Return a plan of ours, made anew: for caches that are written over before, as most are."""
    from tilesolve.nests.plan import NestPlan
    from tilesolve.nests.planning import solve_nest
    from tilesolve.nests.request import NestRequest

    request = NestRequest(nest.computation, machine, threads, mode, route, start=start)
    return NestPlan(solve_nest(request))


def run_plan(made: NestPlan, nest: NestCase, operands: Operands, out: Array) -> Made:
    """Return a run of a plan of ours, and what the plan says."""
    params, figures = dict(nest.params), Figures(predicted=made.seconds, how=made.how)
    return Made(
        partial(made, *operands, out=out, **params),
        lambda _: figures,
        lambda: made.executor.load(operands, params, out),
    )


def tilesolve(
    nest: NestCase,
    machine: Machine,
    threads: int,
    operands: Operands,
    out: Array,
    mode: NestMode = "default",
    route: Route | None = None,
) -> Made:
    """Make ready a nest of ours, by the fastest route."""
    return run_plan(_solve(nest, machine, threads, mode, route), nest, operands, out)


thesis = partial(tilesolve, mode="thesis", route="nest")
"""Makes ready a nest by the printed formulas."""

baseline = partial(tilesolve, mode="plain", route="nest")
"""Makes ready a nest of ours with threads outside, vectors inside, and nothing else."""


def tilesolve_outs(
    nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array
) -> Made:
    """Make ready the same; figures say what calls take with `out` over those without."""
    made, params = _solve(nest, machine, threads, start="warm"), dict(nest.params)
    runs = [partial(made, *operands, out=out, **params)]

    def describe(timed: Timer) -> Figures:
        others = [place_array(out.shape, out.dtype.name, offset) for offset in OUT_OFFSETS]
        for one in others:
            one.fill(0)
        times: list[list[float]] = [[] for _ in (None, *others)]
        for _ in range(OUT_ROUNDS):
            for target, found in zip((None, *others), times, strict=True):
                runs[0] = partial(made, *operands, out=target, **params)
                found.append(timed())
        runs[0] = partial(made, *operands, out=out, **params)
        without, *given = map(min, times)
        outs = tuple(seconds / without for seconds in given)
        cold = made.predict("cold")
        return Figures(predicted=made.seconds, how=made.how, predicted_cold=cold, outs=outs)

    return Made(
        lambda: runs[0](),
        describe,
        lambda: made.executor.load(operands, params, out),
    )


def numba(nest: NestCase, _: Machine, threads: int, operands: Operands, out: Array) -> Run:
    """Make ready the obvious loops."""
    return make_numba(
        nest.computation, threads, name_inputs(nest, operands), dict(nest.params), out
    )


def halide(
    nest: NestCase,
    machine: Machine,
    threads: int,
    operands: Operands,
    out: Array,
    scheduler: str = "Mullapudi2016",
) -> Run:
    """Make ready what a scheduler of Halide plans."""
    arrays, text = name_inputs(nest, operands), write_stages(nest.computation)
    return make_halide(text, scheduler, machine, threads, arrays, dict(nest.params), out)


halide_adams = partial(halide, scheduler="Adams2019")
"""Makes ready what Halide's scheduler of 2019 plans."""


def numpy(nest: NestCase, _: Machine, __: int, operands: Operands, out: Array) -> Run:
    """Make ready what a user of NumPy writes."""
    return make_numpy(nest.computation, name_inputs(nest, operands), dict(nest.params), out)


def name_inputs(nest: NestCase, operands: Operands) -> dict[str, Array]:
    """Return inputs by name."""
    return dict(zip(nest.computation.inputs, operands, strict=True))
