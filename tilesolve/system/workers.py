"""Threads that share the work of one call.

An interrupt may come between any two steps of Python code in the main thread, also amid Python's
own executors, whose locks stay locked then. So jobs go through a queue and a lock
that are C code each.
"""

from __future__ import annotations

import ctypes
import os
import threading
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TypeVar

from tilesolve.system.cancellation import Stop

Job = Callable[[], object]
"""What one thread does."""

_Result = TypeVar("_Result")


def run_together(jobs: Sequence[Job], *, long: bool = False) -> None:
    """Run some jobs at once, the first one in the calling thread.

    While Python shuts down and starts no threads, the calling thread runs the others, too.

    Python tells of interrupts in the main thread alone, and not while that is in compiled code.
    So the main thread leaves long jobs to others and waits. An exception of a signal's handler
    there ends the jobs (see `cancellation.stop_address`), and is raised once none of them runs.

    `long` says whether jobs take so long that an interrupt has to end them.

    Examples
    --------
    >>> done = []
    >>> run_together([lambda: done.append(1), lambda: done.append(2)])
    >>> sorted(done)
    [1, 2]
    """
    waits = long and threading.current_thread() is threading.main_thread()
    if len(jobs) == 1 and not waits:
        jobs[0]()
        return
    own = 0 if waits else 1
    errors: list[BaseException] = []
    with Stop() as stop:
        try:
            shared = _Shared(stop, len(jobs) - own, errors)
            team = _WATCHED if waits else _HELPING
            taken = team.give([partial(shared.run, job) for job in jobs[own:]])
            for job in (*jobs[:own], *jobs[own + taken :]):
                try:
                    job()
                except Exception as error:
                    errors.append(error)
            if taken:
                shared.done.acquire()
        except BaseException:  # an interrupt, mostly
            stop.end()
            raise
    if errors:
        raise errors[0]


def run_unheard(job: Callable[[], _Result]) -> _Result:
    """Return what a job returns, with no handler of a signal run amid it.

    A handler that raises in a function which a C library called may leave the library with half an
    answer, which it takes for a whole one. So another thread runs the job where the main one would;
    see `run_together` for signals. A job of more than a moment looks at
    `cancellation.is_stopped`.

    Raises
    ------
    TimeoutError
        If a `cancellation.deadline` was over before the job began.
    """
    found: list[_Result] = []
    run_together([lambda: found.append(job())], long=True)
    if not found:
        raise TimeoutError("a deadline was over before the job began")
    return found[0]


def offer(job: Job, threads: int) -> None:
    """Have so many other threads run a job once each: they may come late, or never.

    What a job raises is lost.
    """
    _HELPING.give([partial(_try, job)] * threads)


def _try(job: Job) -> None:
    with suppress(Exception):
        job()


class _Shared:
    """Jobs of one call that other threads run."""

    __slots__ = ("_count", "_ends", "_errors", "_stop", "done")

    def __init__(self, stop: Stop, jobs: int, errors: list[BaseException]) -> None:
        self._stop, self._count, self._errors = stop, jobs, errors
        self._ends = count(1)
        self.done = threading.Lock()
        self.done.acquire()  # until the last one ends

    def run(self, job: Job) -> None:
        """Run one of the jobs."""
        try:
            self._stop.run(job)
        except BaseException as error:
            self._errors.append(error)
        finally:
            if next(self._ends) == self._count:
                self.done.release()


class _Team:
    """Threads that take what is in a queue.

    `helps` says whether the thread that gives them jobs goes on with work of its own.
    """

    def __init__(self, *, helps: bool = True) -> None:
        self._helps = helps
        self._renew()
        os.register_at_fork(after_in_child=self._renew)  # a child has none of its parent's threads

    def _renew(self) -> None:
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self._size = 0
        self._threads: list[int] = []
        self._left: tuple[int, int] | None = None

    def give(self, jobs: Sequence[Job]) -> int:
        """Give each job to a thread; return how many were given, all or none."""
        try:
            while self._size < len(jobs):
                start_new_thread(self._take_jobs, (self._queue,))
                self._size += 1
        except RuntimeError:  # Python is shutting down, and starts no threads any more
            return 0
        if self._helps and _find_core is not None:
            self._leave(_find_core())
        for job in jobs:
            self._queue.put(job)
        return len(jobs)

    def _leave(self, core: int) -> None:
        """Keep the threads off the core of the calling thread.

        The system wakes a thread on the core that wakes it, and moves it milliseconds later. See
        docs/decisions/033.
        """
        threads = tuple(self._threads)
        if self._left == (core, len(threads)):
            return
        others = os.sched_getaffinity(0) - {core}
        for thread in threads if others else ():
            with suppress(OSError):  # some systems do not allow that
                os.sched_setaffinity(thread, others)
        self._left = core, len(threads)

    def _take_jobs(self, queue: SimpleQueue[Job]) -> None:
        self._threads.append(threading.get_native_id())
        while True:
            queue.get()()


_find_core: Callable[[], int] | None = None
"""Returns the number of the core that the calling thread is on."""
if hasattr(os, "sched_setaffinity"):
    _find_core = getattr(ctypes.CDLL(None), "sched_getcpu", None)

_HELPING = _Team()
"""Threads that help with calls of any thread."""

_WATCHED = _Team(helps=False)
"""Threads that run what the main thread waits for: it holds up no calls of others."""
