"""Stages as Halide's functions, with a schedule, or as one of its autoschedulers plans them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError, PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine
from tilesolve.pipelines.halide import write_make

PLUGINS = {"Mullapudi2016": "autoschedule_mullapudi2016", "Adams2019": "autoschedule_adams2019"}
"""The autoschedulers and the libraries that have them."""

SLIDING: dict[str, tuple[str, ...]] = {
    "blur": ("rows",),
    "unsharp": ("gray", "across", "ratio"),
    "harris": ("g", "ix", "iy"),
}
"""Stages that are kept while rows of the last one are computed, as Halide's examples have them."""

STRIP_ROWS = 32
"""Rows of the last stage that a thread computes by a schedule made by hand."""


class Narrow:
    """Halide with positions of 32 bits; those within borders are the likely ones."""

    def __init__(self, halide: Any) -> None:  # noqa: ANN401 - Halide has no types
        self._halide, self._zero = halide, halide.i32(0)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._halide, name)

    def Int(self, bits: int) -> Any:  # noqa: ANN401, N802 - as Halide's
        """Return a type of integers."""
        return self._halide.Int(min(bits, 32))

    def i64(self, value: int) -> Any:  # noqa: ANN401
        """Return a number."""
        return self._halide.i32(value) if value else self._zero

    def max(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        """Return the greater one."""
        return self._halide.max(self._halide.likely(one) if other is self._zero else one, other)


def write_stages(computation: Computation, schedule: Sequence[str] = ()) -> str:
    """Return the text of stages for Halide.

    Raises
    ------
    BenchmarkError
        If they are not written.
    """
    try:
        return write_make([(one, computation) for one in computation.stages], computation, schedule)
    except PlanError as error:
        raise BenchmarkError(str(error)) from error


def write_schedule(computation: Computation, sliding: Sequence[str], lanes: int) -> list[str]:
    """Return a schedule as experts write it: strips of rows, in which some stages slide.

    Examples
    --------
    >>> from tilesolve.bench.pipelines import CASES
    >>> print(*write_schedule(CASES["blur"].computation, SLIDING["blur"], 8), sep=chr(10))
    strip, row = hl.Var(), hl.Var()
    f_blur.split(v_y2, strip, row, 32).parallel(strip).vectorize(v_x2, 8)
    f_rows.store_at(f_blur, strip).compute_at(f_blur, row).vectorize(v_x1, 8)
    """
    *others, root = computation.stages
    *outer, down, across = (f"v_{letter}" for letter in root.output)
    name, lines = f"f_{root.name}", ["strip, row = hl.Var(), hl.Var()"]
    lines.append(f"{name}.split({down}, strip, row, {STRIP_ROWS}).parallel(strip)")
    lines[-1] += f".vectorize({across}, {lanes})"
    for channel in outer:
        bound = f"{name}.bound({channel}, 0, {computation.sizes[channel[2:]]})"
        lines.append(f"{bound}.reorder({channel}, {across}, row, strip).unroll({channel})")
    for stage in others:
        if stage.name in sliding:
            kept = f"f_{stage.name}.store_at({name}, strip).compute_at({name}, row)"
            lines.append(f"{kept}.vectorize(v_{stage.output[-1]}, {lanes})")
    return lines


def make_halide(
    text: str,
    scheduler: str,
    machine: Machine,
    threads: int,
    arrays: Mapping[str, Array],
    params: Mapping[str, float],
    out: Array,
    *,
    narrow: bool = False,
) -> Callable[[], Array]:
    """Return a run of what a text makes, as Halide compiles it.

    Parameters
    ----------
    text
        As `write_stages` gives it.
    scheduler
        The autoscheduler; if empty, the text has a schedule.
    narrow
        Whether positions have 32 bits.
    """
    import halide as hl

    os.environ["HL_NUM_THREADS"] = str(threads)
    scope: dict[str, Any] = {}
    exec(text, scope)
    if narrow:
        scope["hl"] = Narrow(hl)
        arrays = {
            x: one.astype("int32") if one.dtype == "int64" else one for x, one in arrays.items()
        }
    pipeline = scope["make"](arrays, params)
    target = hl.get_jit_target_from_environment()
    if scheduler:
        hl.load_plugin(PLUGINS[scheduler])
        asked = {"parallelism": str(threads)}
        if scheduler == "Mullapudi2016":
            last = max(level.capacity or 0 for level in machine.levels)
            asked["last_level_cache_size"] = str(last)
        pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, asked))
    pipeline.compile_jit(target)
    result = hl.Buffer(out)
    held = dict(arrays)  # Halide's buffers do not keep what they are made of

    def run() -> Array:
        assert held
        pipeline.realize(result)
        return out

    return run
