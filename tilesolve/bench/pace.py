"""The arithmetic peak beside the runs: what cores reach in the very minutes of a sweep.

Clocks change with the load of all cores, and a virtual machine's with its neighbours': a peak that
was calibrated in a quiet minute can be out of reach by a tenth in the next one, and by a half where
another's thread takes turns on the same core. So registers are multiplied right before and right
after each run, on the cores of the run and in its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import harmonic_mean

from tilesolve.crew import Crew
from tilesolve.kernels.dtypes import real_of
from tilesolve.machine import Machine
from tilesolve.measurement import multiply_adds

SHARE = 0.02
"""Of a run's seconds: how long its peak is measured before it, and again after it."""

LEAST = 5e-3
"""Seconds that this takes at least."""

Pace = Callable[[float], float]
"""Computes for so many seconds, about, and returns the flop/s of all threads together."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One timed run.

    Parameters
    ----------
    seconds
        That it took.
    peak
        Flop/s that its cores reached around it; None where that was not measured.

    Examples
    --------
    >>> Turn(0.5).peak
    """

    seconds: float
    peak: float | None = None


def pace(machine: Machine, dtype: str, threads: int) -> Pace:
    """Return what measures the peak of arithmetic.

    One thread computes where it is called, so that a run on the same thread has the same core.

    Parameters
    ----------
    machine
        Whose vectors are multiplied, or this computer's where those are narrower.
    dtype
        Of a problem; complex numbers count by their parts.
    threads
        How many compute together.

    Examples
    --------
    >>> pace(Machine.detect(), "complex128", 1)(1e-3) > 0
    True
    """
    here = Machine.detect()
    if machine.vector_bits > here.vector_bits:  # wider ones would be done in pieces, and spilled
        machine = here
    probe = multiply_adds(machine, real_of(dtype), machine.vector_bits, threads)
    peak = machine.peak(dtype)

    def measured(seconds: float) -> float:
        passes = max(1, round(seconds * peak / probe.work))
        if threads > 1:
            with Crew(threads) as crew:
                return threads * probe.work * passes / crew.seconds(probe.call, passes, threads)
        start = time.perf_counter()
        probe.call(0, passes)
        return probe.work * passes / (time.perf_counter() - start)

    return measured


def beside(timed: Callable[[], float], measured: Pace, last: float) -> Callable[[], Turn]:
    """Return what times runs and measures the peak around each of them.

    Parameters
    ----------
    timed
        Runs and returns the seconds; empties the caches before.
    measured
        The peak.
    last
        Seconds of a run before, from which is known how long to measure.

    Examples
    --------
    >>> around = []
    >>> run = beside(lambda: 4.0, lambda seconds: around.append(seconds) or 2.0, 1.0)
    >>> run(), around
    (Turn(seconds=4.0, peak=2.0), [0.02, 0.02])
    """
    length = max(LEAST, SHARE * last)

    def run() -> Turn:
        before = measured(length)
        seconds = timed()
        return Turn(seconds, harmonic_mean([before, measured(length)]))

    return run
