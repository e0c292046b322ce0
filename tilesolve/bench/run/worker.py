"""The process of one contender: prepares, has its result checked, then times runs on request.

It talks over the connection of the file descriptor that is its first argument; the second is the
parent's number. It answers an `Order` with None when all is compiled, then with `Ready`; and each
None that follows with the `Turn` of one run. Any answer may be the text of an error in its place.
It ends when the connection does.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilesolve.bench.case import NUMPY_OFFSET_BYTES, Array, Case, sum_parts
from tilesolve.bench.results.sweeps import Figures
from tilesolve.bench.run.made import Made, Run, Timer
from tilesolve.bench.run.turn import Turn, measure_peak_around
from tilesolve.calibration.peak_rate import peak_meter
from tilesolve.machine.model import Machine
from tilesolve.packing.buffers import allocate
from tilesolve.packing.sizes import PAGE_BYTES

COMMAND = f"from {__name__} import main; main()"
"""What Python is told to run, so that a worker can import what lies in the folder it starts in."""

CHANGED = "changed the operands"
"""How a result is wrong whose maker wrote where it may only read."""

NOT_READY = "nothing was made ready"
"""The answer to who asks for a run first."""

COLD_RUNS = 3
"""Runs of a plan after the caches were written over, where its rounds are not such."""

WARM_SECONDS = 4e-3
"""Of runs one after another, where a clock does not tell the time of one."""

WARM_TRIES = 2
"""Rows of such runs; the last one counts."""

PR_SET_PDEATHSIG = 1
"""Linux's number of the request for a signal when the parent ends: even a peer that hangs ends."""


@dataclass(frozen=True, slots=True)
class Order:
    """The case that a worker computes, and how.

    Parameters
    ----------
    case
        What is computed.
    machine, threads
        Further arguments of the maker.
    maker
        ``module:function``.
    flush
        Bytes that are written before each timed run, so that caches hold nothing of the last.
    core
        The core to stay on; None for any.
    paced
        Whether to measure the arithmetic peak around each run.
    offset
        Bytes from the beginning of a line to where arrays begin.
    """

    case: Case[Any]
    machine: Machine
    threads: int
    maker: str
    flush: int
    core: int | None = None
    paced: bool = False
    offset: int = NUMPY_OFFSET_BYTES

    def make(self, case: Case[Any], arrays: list[Array]) -> Made:
        """Have a case made ready, with its arrays, the one for the result last."""
        module, _, function = self.maker.partition(":")
        maker = getattr(importlib.import_module(module), function)
        *operands, out = arrays
        found = maker(case.work, self.machine, self.threads, operands, out)
        return found if isinstance(found, Made) else Made(found)


@dataclass(frozen=True, slots=True)
class Ready:
    """The results of a worker's preparation and of its first run.

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
    figures
        The figures predicted for a plan; None for others.
    """

    preparation: float
    seconds: float
    digest: Array
    problem: str
    memory: int | None
    figures: Figures | None = None


def get_ready(
    order: Order, tell: Callable[[], None] = lambda: None
) -> tuple[Ready, Callable[[], Turn]]:
    """Compute an order's case once, and return what was found and how to time a run.

    `tell` is called when all is planned and compiled.
    """
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    case = order.case
    fault = check_small(replace(order, case=case.shrink()))
    arrays = case.draw(order.offset)
    *operands, _ = arrays
    expected = case.expect(operands)
    before = [sum_parts(array) for array in operands]
    trash = hold_trash(order.flush)
    touch_memory(case.bytes)
    held = _reset_peak()
    begin = time.perf_counter()
    made = order.make(case, arrays)
    preparation = time.perf_counter() - begin
    if made.load is not None:
        made.load()
    tell()
    results: list[Any] = []
    seconds = make_timer(lambda: results.append(made.run()), trash)()
    most = _read_memory("VmHWM")
    memory = None if held is None or most is None else max(0, most - held)
    result = np.asarray(results[0])
    fault = fault or expected.describe_fault(result)
    if not fault and not all(map(np.array_equal, before, map(sum_parts, operands))):
        fault = CHANGED
    cold = make_timer(made.run, trash, case.bytes if memory is None else memory, arrays)
    timed = make_warm_timer(made.run) if case.WARM else cold
    figures = made.describe(timed) if made.describe else None
    if case.WARM and figures is not None:
        figures = replace(figures, cold=median(cold() for _ in range(COLD_RUNS)))
    found = Ready(preparation, seconds, sum_parts(result), fault, memory, figures)
    if order.paced:
        meter = peak_meter(order.machine, case.dtype, order.threads)
        return found, measure_peak_around(timed, meter, seconds)
    return found, lambda: Turn(timed())


@lru_cache(maxsize=1)
def check_small(order: Order) -> str:
    """Return how the result of a small case is wrong; it is computed once in a process."""
    arrays = order.case.draw(order.offset)
    expected = order.case.expect(arrays[:-1])
    return expected.describe_fault(np.asarray(order.make(order.case, arrays).run()))


@lru_cache(maxsize=1)
def hold_trash(size: int) -> Array:
    """Return so many bytes to write between runs: the same for all cases of a process."""
    trash = allocate(size)
    trash.fill(0)  # its pages are none that the first run takes
    return trash


def touch_memory(size: int) -> None:
    """Take so many bytes, write them and give them back.

    The system then has them at hand for copies that a run makes. A virtual machine has to ask its
    host for memory that was never written: that took half a second of a first run of 0.4 s.
    """
    allocate(size).fill(0)


def make_timer(run: Run, trash: Array, copies: int = 0, arrays: Sequence[Array] = ()) -> Timer:
    """Return a function that writes all of an array, then times a run in seconds.

    Memory for so many bytes of copies is touched first, and so is each page of a run's arrays: the
    host of a virtual machine may have to find them anew. See ``docs/decisions/031-calibration.md``.
    """
    pages = [array.reshape(-1).view(np.uint8)[::PAGE_BYTES] for array in arrays]

    def timed() -> float:
        touch_memory(copies)
        for each in pages:
            np.add(each, 0, out=each)
        np.add(trash, 1, out=trash)
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


def make_warm_timer(run: Run) -> Timer:
    """Return a function that times one of several runs in a row, after others.

    How many there are follows from some in a row, too: a single one takes several times as long.
    """
    once = make_timer(run, np.zeros(0, np.uint8))

    def timed() -> float:
        once()
        seconds, count = once(), 2
        for _ in range(WARM_TRIES):
            if count == 1:
                break
            count = 1 + int(WARM_SECONDS / seconds)
            start = time.perf_counter()
            for _ in range(count):
                run()
            seconds = (time.perf_counter() - start) / count
        return seconds

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
            order: Order | None = connection.recv()
            answer: object
            try:
                if order is not None:
                    timed = None  # what the last order took is free for this one
                    answer, timed = get_ready(order, partial(connection.send, None))
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
