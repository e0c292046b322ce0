"""Threads that share the work of one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache


def run_together(jobs: Sequence[Callable[[], object]]) -> None:
    """Run some jobs at once, the first one in the calling thread.

    While Python shuts down and starts no threads, the calling thread runs the others, too.

    Examples
    --------
    >>> done = []
    >>> run_together([lambda: done.append(1), lambda: done.append(2)])
    >>> sorted(done)
    [1, 2]
    """
    first, *others = jobs
    futures = []
    try:
        for job in others:
            futures.append(_pool(len(others)).submit(job))
    except RuntimeError:  # Python is shutting down, and starts no threads any more
        pass
    try:
        first()
        for job in others[len(futures) :]:
            job()
    finally:
        wait(futures)  # no job runs on once an error is seen
        for future in futures:
            future.result()


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tilesolve")


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
