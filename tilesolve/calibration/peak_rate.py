"""The peak of arithmetic at this moment: what flop/s the cores reach.

Clocks change with the load of all cores, and a virtual machine's with its neighbours', so a
calibrated peak can be out of reach; see ``docs/decisions/031-calibration.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tilesolve.calibration.measure import peak_probe
from tilesolve.kernels.dtypes import real_of
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

PeakMeter = Callable[[float], float]
"""Computes for so many seconds, about, and returns the flop/s of all threads together."""


def peak_meter(machine: Machine, dtype: str, threads: int) -> PeakMeter:
    """Return a function that measures the peak of arithmetic.

    A single thread computes in the calling one, so that both have the same core.

    The machine's vectors are multiplied, or this computer's where those are narrower. Complex
    numbers count by their parts.
    """
    here = Machine.detect()
    if machine.vector_bits > here.vector_bits:  # wider ones would be done in pieces, and spilled
        machine = here
    probe = peak_probe(machine, real_of(dtype), machine.vector_bits, threads)
    peak = machine.peak(dtype)

    def measure(seconds: float) -> float:
        passes = max(1, round(seconds * peak / probe.work))
        if threads > 1:
            with PinnedThreads(threads) as crew:
                return threads * probe.work * passes / crew.seconds(probe.call, passes, threads)
        start = time.perf_counter()
        probe.call(0, passes)
        return probe.work * passes / (time.perf_counter() - start)

    return measure
