"""Stages as Halide's functions, which one of its autoschedulers plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError, PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine
from tilesolve.pipelines.halide import write_make

PLUGINS = {"Mullapudi2016": "autoschedule_mullapudi2016", "Adams2019": "autoschedule_adams2019"}
"""The autoschedulers and the libraries that have them."""


def make_halide(
    scheduler: str,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Mapping[str, Array],
    params: Mapping[str, float],
    out: Array,
) -> Callable[[], Array]:
    """Return a run of a computation as Halide compiled it by the schedule of an autoscheduler."""
    import halide as hl

    os.environ["HL_NUM_THREADS"] = str(threads)
    hl.load_plugin(PLUGINS[scheduler])
    try:
        text = write_make([(one, computation) for one in computation.stages], computation)
    except PlanError as error:
        raise BenchmarkError(str(error)) from error
    scope: dict[str, Any] = {}
    exec(text, scope)
    pipeline = scope["make"](arrays, params)
    target = hl.get_jit_target_from_environment()
    asked = {"parallelism": str(threads)}
    if scheduler == "Mullapudi2016":
        asked["last_level_cache_size"] = str(max(level.capacity or 0 for level in machine.levels))
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, asked))
    pipeline.compile_jit(target)
    result = hl.Buffer(out)
    held = dict(arrays)  # Halide's buffers do not keep what they are made of

    def run() -> Array:
        assert held
        pipeline.realize(result)
        return out

    return run
