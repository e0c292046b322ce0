"""The runs of elements that a box has in memory, and the pages that they lie in."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.packing.sizes import PAGE_BYTES


def pages_of(strides: Mapping[str, int], sides: Mapping[str, int]) -> float:
    """Return how many pages a box touches on average over the places where it may begin.

    Elements that are less than a page apart make runs; pages that two runs share count twice.

    Examples
    --------
    Eight rows in pages of their own, each of half a page:

    >>> pages_of({"m": 8192, "k": 8}, {"m": 8, "k": 256})
    11.984375
    """
    run, apart = _run(strides, sides, PAGE_BYTES)
    return prod(side for _, side in apart) * (1 + (run - 1) / PAGE_BYTES)


def runs_of(strides: Mapping[str, int], sides: Mapping[str, int], gap: int) -> int:
    """Return how many runs a box has: elements that are less than a gap apart make runs.

    Examples
    --------
    >>> runs_of({"m": 8192, "k": 8}, {"m": 8, "k": 256}, 64)
    8
    """
    return prod(side for _, side in _run(strides, sides, gap)[1])


def lines_by_place(
    strides: Mapping[str, int], sides: Mapping[str, int], line: int
) -> NDArray[np.int64]:
    """Return how many lines of a box are at each place in pages.

    Elements that are less than a line apart make runs; lines that two runs share count twice.

    Examples
    --------
    Of eight rows of four lines, each in a page of its own, the lines are at four places:

    >>> lines_by_place({"m": 4096, "k": 8}, {"m": 8, "k": 32}, 64).tolist()[:6]
    [8, 8, 8, 8, 0, 0]
    """
    places, (run, apart) = max(1, PAGE_BYTES // line), _run(strides, sides, line)
    unit = gcd(PAGE_BYTES, *(stride for stride, _ in apart))  # of which all starts are multiples
    starts = np.bincount([0], minlength=PAGE_BYTES // unit)
    for stride, side in apart:  # from each start so far as many: a convolution around the page
        others = np.bincount(
            stride * np.arange(side) % PAGE_BYTES // unit, minlength=PAGE_BYTES // unit
        )
        spectrum = np.fft.rfft(starts) * np.fft.rfft(others)
        starts = np.rint(np.fft.irfft(spectrum, PAGE_BYTES // unit)).astype(np.int64)
    found = np.flatnonzero(starts)
    begins, counts = found * unit, starts[found]
    lines = (begins % line + run - 1) // line + 1
    around = int(np.sum(counts * (lines // places)))
    number = np.arange(places)
    at = (begins[:, None] // line + number) % places
    last = counts[:, None] * (number < lines[:, None] % places)
    return around + np.bincount(at.ravel(), last.ravel(), places).astype(np.int64)


def has_aliased_lines(strides: Mapping[str, int], sides: Mapping[str, int], line: int) -> bool:
    """Return whether two lines of a box alias: have the same address modulo 4 KiB.

    Examples
    --------
    >>> [has_aliased_lines({"m": stride, "k": 8}, {"m": 6, "k": 8}, 64) for stride in (4096, 4160)]
    [True, False]
    """
    return bool(lines_by_place(strides, sides, line).max() > 1)


def _run(
    strides: Mapping[str, int], sides: Mapping[str, int], gap: int
) -> tuple[int, list[tuple[int, int]]]:
    """Return the bytes of each run of a box, and the strides and sides between runs."""
    run = 1
    steps = sorted([(abs(stride), max(1, sides[i])) for i, stride in strides.items()])
    for at, (stride, side) in enumerate(steps):
        if stride >= run + gap:
            return run, steps[at:]
        run += stride * (side - 1)
    return run, []
