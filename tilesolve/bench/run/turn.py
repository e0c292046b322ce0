"""The arithmetic peak beside the runs: what the cores reach in the very minutes of a sweep.

It is measured right before and right after each run, on the same cores and in the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import harmonic_mean

from tilesolve.calibration.peak_rate import PeakMeter

PEAK_SHARE = 0.02
"""Time for measuring the peak before a run, and again after it, as a share of the run's."""

LEAST_PEAK_SECONDS = 5e-3
"""Least seconds for measuring the peak once."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One timed run.

    `peak` is the flop/s that its cores reached around it; None where that was not measured.
    """

    seconds: float
    peak: float | None = None


def measure_peak_around(
    timed: Callable[[], float], measured: PeakMeter, last: float
) -> Callable[[], Turn]:
    """Return a function that times a run and measures the peak around it.

    `timed` empties the caches, runs and returns the seconds. `last` is the seconds of an
    earlier run, which say how long to measure the peak.

    Examples
    --------
    >>> around = []
    >>> run = measure_peak_around(lambda: 4.0, lambda seconds: around.append(seconds) or 2.0, 1.0)
    >>> run(), around
    (Turn(seconds=4.0, peak=2.0), [0.02, 0.02])
    """
    length = max(LEAST_PEAK_SECONDS, PEAK_SHARE * last)

    def run() -> Turn:
        before = measured(length)
        seconds = timed()
        return Turn(seconds, harmonic_mean([before, measured(length)]))

    return run
