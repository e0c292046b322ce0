"""Where tasks run: their keys name a worker, and a plugin of Dask's scheduler sends them there.

Annotations of layers would be the usual way, but Dask drops them when it fuses tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

PREFIX = "tilesolve"
"""Keys of tasks with a place begin with this; the worker's address comes second."""


class Placement(SchedulerPlugin):  # type: ignore[misc]  # Dask has no types here
    """Sends tasks to the worker that their key names, and anywhere once that one is gone."""

    name = PREFIX
    idempotent = True

    def update_graph(self, scheduler: Scheduler, *, tasks: Iterable[Any], **more: Any) -> None:
        """Place the tasks of a new graph, and what needs tasks of one worker only with these."""
        del more
        for key in tasks:
            task = scheduler.tasks.get(key)
            found = {_place(key)}
            if task is not None and found == {None}:
                found = {_place(one.key) for one in task.dependencies}
            if task is not None and len(found) == 1 and found <= scheduler.workers.keys():
                task.worker_restrictions = found

    def remove_worker(self, scheduler: Scheduler, worker: str, **more: Any) -> None:
        """Let tasks of a worker that is gone run anywhere."""
        del more
        waiting = {}
        for task in scheduler.tasks.values():
            if task.worker_restrictions == {worker}:
                task.worker_restrictions = None
                if task.state == "no-worker":
                    waiting[task.key] = "waiting"
        scheduler.transitions(waiting, f"{PREFIX}-{worker}")


def _place(key: Any) -> str | None:
    """Return the worker that a key names."""
    placed = isinstance(key, tuple) and str(key[0]).startswith(PREFIX)
    return str(key[1]) if placed else None
