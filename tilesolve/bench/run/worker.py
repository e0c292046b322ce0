"""The process of one contender: prepares, has its result checked, then times runs on request.

It talks over the connection of the file descriptor that is its first argument; the second is the
parent's number. It answers an `Order` with `Ready`, and each None that follows with the `Turn` of
one run; either with the text of an error if there was one. It ends when the connection does.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilesolve.bench.run.oracle import (
    compute_elements,
    describe_fault,
    draw_arrays,
    pick_elements,
    shrink,
    sum_parts,
)
from tilesolve.bench.run.turn import Turn, measure_peak_around
from tilesolve.calibration.peak_rate import peak_meter
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.packing.buffers import allocate

COMMAND = f"from {__name__} import main; main()"
"""What Python is told to run, so that a worker can import what lies in the folder it starts in."""

CHANGED = "changed the operands"
"""How a result is wrong whose maker wrote where it may only read."""

NOT_READY = "nothing was made ready"
"""The answer to who asks for a run first."""

Run = Callable[[], Any]

PR_SET_PDEATHSIG = 1
"""Linux's number of the request for a signal when the parent ends: even a peer that hangs ends."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to compute.

    Parameters
    ----------
    problem, machine, threads
        What the maker is given.
    maker
        ``module:function``.
    flush
        Bytes that are written before each timed run, so that caches hold nothing of the last.
    core
        The core to stay on; None for any.
    paced
        Whether to measure the arithmetic peak around each run.
    """

    problem: Problem
    machine: Machine
    threads: int
    maker: str
    flush: int
    core: int | None = None
    paced: bool = False

    def get_ready(self) -> tuple[Ready, Callable[[], Turn]]:
        """Compute the problem once, and return what was found and how to time a run."""
        return get_ready(self)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a worker found in preparation and in its first run.

    Parameters
    ----------
    preparation
        Seconds of preparation.
    seconds
        Of the first run, whose result was checked.
    digest
        Sums of parts of the result, which are compared among contenders.
    problem
        How the result is wrong; empty if it is right.
    memory
        Bytes that the first run took beside the tensors; None if the system does not say.
    """

    preparation: float
    seconds: float
    digest: npt.NDArray[Any]
    problem: str
    memory: int | None


class Prepares(Protocol):
    """What a worker can be sent."""

    def get_ready(self) -> tuple[Ready, Callable[[], Turn]]:
        """Compute once, and return what was found and how to time a run."""


def get_ready(order: Order) -> tuple[Ready, Callable[[], Turn]]:
    """Compute an order's problem once, and return what was found and how to time a run."""
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    module, _, function = order.maker.partition(":")
    make = getattr(importlib.import_module(module), function)
    problem, given = order.problem, (order.machine, order.threads)
    small = shrink(problem)
    *operands, out = draw_arrays(small)
    make(small, *given, operands, out)()

    *operands, out = draw_arrays(problem)
    at = pick_elements(problem)
    values, slack = compute_elements(problem, operands, at)
    trash = hold_trash(order.flush)
    first = run_first(lambda: make(problem, *given, operands, out), trash)
    fault = describe_fault(np.asarray(first.result)[tuple(at.T)], values, slack)
    if not fault and not np.array_equal(compute_elements(problem, operands, at)[0], values):
        fault = CHANGED
    digest = sum_parts(np.asarray(first.result))
    found = Ready(first.preparation, first.seconds, digest, fault, first.memory)
    timed = make_timer(first.run, trash)
    if order.paced:
        return found, measure_peak_around(
            timed, peak_meter(order.machine, problem.dtype, order.threads), first.seconds
        )
    return found, lambda: Turn(timed())


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What was prepared, and its first run.

    Parameters
    ----------
    run
        What was prepared.
    preparation, seconds
        Seconds of preparation, and of the run.
    result
        Of the run.
    memory
        Bytes that both took; None if the system does not say.
    """

    run: Run
    preparation: float
    seconds: float
    result: Any
    memory: int | None


def run_first(make: Callable[[], Run], trash: npt.NDArray[Any]) -> FirstRun:
    """Prepare and run once, with empty caches."""
    before = _reset_peak()
    start = time.perf_counter()
    run = make()
    preparation = time.perf_counter() - start
    results: list[Any] = []
    seconds = make_timer(lambda: results.append(run()), trash)()
    memory = _read_memory("VmHWM")
    taken = None if before is None or memory is None else max(0, memory - before)
    return FirstRun(run, preparation, seconds, results[0], taken)


@lru_cache(maxsize=1)
def hold_trash(size: int) -> npt.NDArray[Any]:
    """Return so many bytes to write between runs: the same for all cases of a process."""
    trash = allocate(size)
    trash.fill(0)  # its pages are none that the first run takes
    return trash


def make_timer(run: Callable[[], object], trash: npt.NDArray[Any]) -> Callable[[], float]:
    """Return a function that writes all of an array, then times a run in seconds."""

    def timed() -> float:
        np.add(trash, 1, out=trash)
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


def _read_memory(what: str) -> int | None:
    """Return one of the sizes of this process, in bytes."""
    with suppress(OSError):
        text = Path("/proc/self/status").read_text(encoding="ascii")
        if found := re.search(rf"^{what}:\s+([0-9]+) kB$", text, re.MULTILINE):
            return int(found[1]) * 1024
    return None


def _reset_peak() -> int | None:
    """Make the peak of this process's memory what it takes now; return that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _read_memory("VmHWM")


def serve(connection: Connection) -> None:
    """Answer until the other side hangs up."""
    timed: Callable[[], Turn] | None = None
    with suppress(EOFError, OSError):
        while True:
            order: Prepares | None = connection.recv()
            answer: object
            try:
                if order is not None:
                    timed = None  # what the last order took is free for this one
                    answer, timed = order.get_ready()
                else:
                    answer = timed() if timed is not None else NOT_READY
            except Exception as error:  # whatever a peer raises is an answer, too
                answer = f"{type(error).__name__}: {error}"
            connection.send(answer)


def main() -> None:
    """Serve on the connection that the command line names, for as long as the parent lives."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(sys.argv[2]):  # it may have ended before it was asked for
        serve(Connection(int(sys.argv[1])))
