"""Costs of statements, measured by running plans of them: calls, and computed positions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tilesolve.calibration.plan_runs import (
    Measure,
    PlanRuns,
    TimedRun,
    fastest,
    measure_difference,
)
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine

POINTS, PLACES = 4096, 1024
"""Elements that are computed, and those at computed positions: all in near caches."""

SEED = 7
"""Of the positions."""

TINY = 8
"""Elements of a statement that takes no time beside its call."""

COLD_BYTES, PAUSE_SECONDS, PAUSES = 1 << 26, 0.03, 3
"""Bytes that one thread writes, again and again so long, while the cores of others sleep; and times
of that, of which the median counts."""

CALLED = "o[i] = A[i] + 1"
LOADED = "o[i] = T[v[i]]"
LOADED_TWICE = "o[i] = T[v[i]] + T[w[i]]"
UPDATED = "h[v[i]] += A[i]"


class StatementRuns:
    """Plans of statements on this computer, each with arrays of its own.

    Parameters
    ----------
    frequency
        Cycles in a second.
    """

    def __init__(self, frequency: float) -> None:
        self.frequency = frequency
        self._machine = Machine.detect()
        self.cores = self._machine.cores
        self.ready = cache(self._ready)

    def _ready(self, text: str, points: int, threads: int = 1) -> TimedRun:
        """Return a plan that has run once: in float32, at positions of int64."""
        from tilesolve.nests.plan import nest

        shapes = {"A": (points,), "T": (PLACES,), "h": (PLACES,), "v": (points,), "w": (points,)}
        used = {name: shape for name, shape in shapes.items() if f"{name}[" in text}
        dtypes = {name: "int64" if name in "vw" else "float32" for name in used if name != "h"}
        sizes = {**used, "i": points}
        machine = self._machine
        plan = nest(text, sizes, dtypes, machine=machine, threads=threads, cache=False)
        drawn = _draw(used, dtypes)
        arrays, out = [drawn[name] for name in plan.inputs], plan(**drawn)
        return TimedRun(lambda: plan(*arrays, out=out))


def _draw(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Return arrays whose integers are positions."""
    rng = np.random.default_rng(SEED)
    return {
        name: rng.integers(0, PLACES, shapes[name]).astype(dtype) for name, dtype in dtypes.items()
    }


def make_statement_probe(runs: StatementRuns) -> Measure:
    """Return what measures the seconds of a call besides what it computes."""
    run = runs.ready(CALLED, TINY)
    return lambda: fastest(run)[0]


def make_contraction_probe(runs: StatementRuns, plans: PlanRuns) -> Measure | None:
    """Return what measures the seconds of a tiny product beyond those of such a call."""
    found = plans.ready(Problem.of("mn-mk-kn", TINY))
    return None if found is None else measure_difference(runs.ready(CALLED, TINY), found, 1.0)


def make_threads_probe(runs: StatementRuns) -> Measure | None:
    """Return what measures the seconds of a call by two threads, right behind another one."""
    if runs.cores == 1:
        return None
    run = runs.ready(CALLED, POINTS, 2)
    return lambda: run.seconds()


def make_cold_threads_probe(runs: StatementRuns) -> Measure | None:
    """Return what measures the same where one thread worked alone before, on other arrays."""
    if runs.cores == 1:
        return None
    run, others = runs.ready(CALLED, POINTS, 2).run, np.zeros(COLD_BYTES, np.uint8)

    def time_cold() -> float:
        begin = perf_counter()
        while perf_counter() - begin < PAUSE_SECONDS:
            np.add(others, 1, out=others)
        begin = perf_counter()
        run()
        return perf_counter() - begin

    return lambda: median(time_cold() for _ in range(PAUSES))


def make_gather_probe(runs: StatementRuns) -> Measure:
    """Return what measures the cycles of loading an element by itself: of a second one."""
    pair = runs.ready(LOADED, POINTS), runs.ready(LOADED_TWICE, POINTS)
    return measure_difference(*pair, runs.frequency / POINTS)


def make_update_probe(runs: StatementRuns) -> Measure:
    """Return what measures the cycles of adding to an element: of those of a second half."""
    half = POINTS // 2
    pair = runs.ready(UPDATED, half), runs.ready(UPDATED, POINTS)
    return measure_difference(*pair, runs.frequency / half)
