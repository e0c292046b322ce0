"""How long packing takes while a solution runs."""

from __future__ import annotations

from collections.abc import Callable

from tilesolve.kernels.probes.packing_time import start_timing, stop_timing
from tilesolve.running.execution import Executor


def time_packing(executor: Executor, run: Callable[[], object]) -> float:
    """Return the seconds of packing in a run for arrays like those of runs before.

    Of several threads it is their mean. A clock is read before and after each copy, in this run
    alone; copies made before all calls are no part of it.
    """
    tasks = [task for layout in executor.layouts.values() for task in layout.tasks]
    watches = [start_timing(task.state) for task in tasks]
    try:
        run()
    finally:
        spent = [stop_timing(task.state, watch) for task, watch in zip(tasks, watches, strict=True)]
    return sum(spent) / executor.solution.threads
