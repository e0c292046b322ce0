"""Calls of traced functions like a recent one: compiled code tells them, and computes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.plan import PipelinePlan
from tilesolve.pipelines.tracing import Trace

Repeat = Callable[[Sequence[Any], Any], Array | None]
"""Takes what a function is given by position, and an output or None. Returns the result; None if
the call is another."""


def repeat_recent(trace: Trace, plan: PipelinePlan, names: Sequence[str]) -> Repeat | None:
    """Return what computes calls like the one that ran; None where more is to be done.

    There is more where arguments are no arrays or not read, results are several, numbers or
    arguments, or Python computes a part.

    Parameters
    ----------
    trace
        Of the function.
    plan
        Of what it computes; it has run.
    names
        Of the arguments, which are arrays by position.
    """
    recent, constants = plan.executor.quick, trace.graph.constants
    inputs, results = plan.inputs, trace.results
    lone = trace.returned is None and not trace.checked and len(results) == 1 and results[0].shape
    if recent is None or not lone or results[0].argument or plan.params:
        return None
    if not names or {*names} != {*inputs} - constants.keys():
        return None
    order = [names.index(name) if name in names else len(names) for name in inputs]
    held = [constants.get(name) for name in inputs]
    size, count, call, new = recent.needs_bytes, len(names), recent.call, recent.new
    straight = order == [*range(count)]

    def repeat(given: Sequence[Any], out: Any) -> Array | None:
        if len(given) != count:
            return None
        arrays = given
        if not straight:
            arrays = [given[at] if at < count else x for at, x in zip(order, held, strict=True)]
        memory = workspace(size).bytes if size else None
        return call(memory, new() if out is None else out, *arrays)

    return repeat
