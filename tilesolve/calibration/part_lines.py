"""What runs of C cost that begin and end amid lines: see `Level.part`, and of the caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

from tilesolve.calibration.measure import FMA_SHIFT, REACH_RATIO
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

RUN_BYTES = (64, 192, 1024)
"""Runs that are timed: what a register tile stores side by side."""

PIECES, COLUMNS = 9, 72
"""Runs of a column of C, and columns of a box, of which the first runs are stored before others."""

TIMED_BYTES = 1 << 24
"""Bytes of one timing; other ones each time."""

TURNS = 6
"""Timings of each kind, in turns; the fastest counts, as others were disturbed."""


def make_part_probe(
    machine: Machine, crew: PinnedThreads, limit: int
) -> Callable[[], float] | None:
    """Return what measures the seconds of a run beyond its bytes; None if blocks are too small.

    The excess grows with the run; that of the middle one counts, so that a run is at most about
    twice as dear, or half, as is said.
    """

    def excess(best: dict[int, float]) -> float:
        return median(best[run] - run * best[0] for run in RUN_BYTES)

    return _make_probe(machine, crew, limit, excess)


def make_slowdown_probe(
    machine: Machine, crew: PinnedThreads, limit: int
) -> Callable[[], float] | None:
    """Return what measures how many times as long bytes of runs take through the caches."""
    short, *_, long = RUN_BYTES

    def slowdown(best: dict[int, float]) -> float:
        return (best[long] - best[short]) / (long - short) / best[0]

    return _make_probe(machine, crew, limit, slowdown)


def _make_probe(
    machine: Machine, crew: PinnedThreads, limit: int, figure: Callable[[dict[int, float]], float]
) -> Callable[[], float] | None:
    """Return what measures a figure of the least seconds of a byte and of runs.

    It stores runs of several lengths through the caches as tiles of C are stored, and blocks by
    non-temporal stores in order, which is what bytes take, under 0.
    """
    from tilesolve.kernels.probes.bandwidth import block_of_ones, stream
    from tilesolve.kernels.probes.part_lines import store_runs, tile_order
    from tilesolve.packing.sizes import LINE_BYTES

    size = int(REACH_RATIO * machine.last_cache_bytes)
    part = TIMED_BYTES
    if min(size, limit) < 2 * part:
        return None
    count = min(size, limit) // part
    (block,) = crew.each(lambda _: block_of_ones(count * part), 1)
    parts: Iterator[Any] = cycle([block[n * part : (n + 1) * part] for n in range(count)])
    # The last run ends a little behind a part; so the last boxes of a part are left out.
    orders = {run: tile_order(part - LINE_BYTES, run, PIECES, COLUMNS) for run in RUN_BYTES}
    kernels = {run: store_runs(machine.vector_bits, run) for run in RUN_BYTES}
    plain = stream(machine.vector_bits)

    def store(_member: int) -> dict[int, float]:
        """Return the seconds of a byte in order, under 0, and of a run by its bytes."""
        begin = perf_counter()
        plain(next(parts), 1, FMA_SHIFT)
        found = {0: (perf_counter() - begin) / part}
        for run, kernel in kernels.items():
            begin = perf_counter()
            kernel(next(parts), orders[run], FMA_SHIFT)
            found[run] = (perf_counter() - begin) / orders[run].size
        return found

    def measure() -> float:
        turns = [crew.each(store, 1)[0] for _ in range(TURNS)]
        return figure({kind: min(turn[kind] for turn in turns) for kind in turns[0]})

    return measure
