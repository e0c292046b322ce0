"""Costs of statements, measured by running plans of them: calls, and computed positions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tilesolve.calibration.plan_runs import Measure, TimedRun, fastest, measure_difference
from tilesolve.machine.model import Machine

POINTS, PLACES = 4096, 1024
"""Elements that are computed, and those at computed positions: all in near caches."""

SEED = 7
"""Of the positions."""

TINY = 8
"""Elements of a statement that takes no time beside its call."""

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
        self.ready = cache(self._ready)

    def _ready(self, text: str, points: int) -> TimedRun:
        """Return a plan that has run once: in float32, at positions of int64."""
        from tilesolve.nests.plan import nest

        shapes = {"A": (points,), "T": (PLACES,), "h": (PLACES,), "v": (points,), "w": (points,)}
        used = {name: shape for name, shape in shapes.items() if f"{name}[" in text}
        dtypes = {name: "int64" if name in "vw" else "float32" for name in used if name != "h"}
        plan = nest(text, {**used, "i": points}, dtypes, machine=self._machine, cache=False)
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


def make_gather_probe(runs: StatementRuns) -> Measure:
    """Return what measures the cycles of loading an element by itself: of a second one."""
    pair = runs.ready(LOADED, POINTS), runs.ready(LOADED_TWICE, POINTS)
    return measure_difference(*pair, runs.frequency / POINTS)


def make_update_probe(runs: StatementRuns) -> Measure:
    """Return what measures the cycles of adding to an element: of those of a second half."""
    half = POINTS // 2
    pair = runs.ready(UPDATED, half), runs.ready(UPDATED, POINTS)
    return measure_difference(*pair, runs.frequency / half)
