"""Threads that are pinned to a core each, run a kernel together and time it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


class PinnedThreads:
    """Threads that stay on their cores; the calling thread is not pinned.

    Parameters
    ----------
    size
        How many threads. Each is pinned to a core where the system can do that.

    Examples
    --------
    >>> with PinnedThreads(2) as crew:
    ...     crew.each(lambda member: member * 10, 2)
    [0, 10]
    """

    def __init__(self, size: int) -> None:
        cpus = _one_cpu_per_core() or [None]
        self._threads = [
            ThreadPoolExecutor(1, initializer=_pin, initargs=(cpus[member % len(cpus)],))
            for member in range(size)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)

    def each(self, job: Callable[[int], T], members: int) -> list[T]:
        """Run ``job(member)`` on each of the first members, and return what they return."""
        futures = [self._threads[member].submit(job, member) for member in range(members)]
        return [future.result() for future in futures]

    def seconds(self, call: Callable[[int, int], object], passes: int, members: int) -> float:
        """Time a kernel that the first members run at once.

        ``call(member, passes)`` leaves the GIL to the others while it works. It runs once
        with one pass before, so that caches hold what they can; then `passes` of it are
        timed.

        Returns
        -------
        float
            Seconds from the first start to the last end.
        """
        barrier = Barrier(members)

        def job(member: int) -> tuple[int, int]:
            try:
                call(member, 1)
                barrier.wait()
            except BaseException:
                barrier.abort()
                raise
            start = time.perf_counter_ns()
            call(member, passes)
            return start, time.perf_counter_ns()

        try:
            spans = self.each(job, members)
        except BaseException:
            barrier.abort()
            raise
        return (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9


def _one_cpu_per_core() -> list[int | None]:
    """Return logical CPUs that this process may use, of each core only one; none if unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    chosen: dict[str, int | None] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            core = Path(_TOPOLOGY.format(cpu)).read_text(encoding="ascii")
        except OSError:
            core = str(cpu)
        chosen.setdefault(core, cpu)
    return list(chosen.values())


def _pin(cpu: int | None) -> None:
    """Keep the calling thread on one logical CPU, where the system allows it."""
    if cpu is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})
