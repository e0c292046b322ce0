"""Starts of levels: what a run of lines takes beyond its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.calibration.latency import chase_sizes
from tilesolve.kernels.progress import Progress
from tilesolve.machine.level import Level, Source
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

RUN_LINES = (1, 2, 4, 8, 16, 32, 64)
"""Lines of the runs that are timed, up to a page, which hardware prefetchers end with."""

REPEATS = 7
"""Times that all of it is measured. One more before them warms the core up."""

TURNS = 4
"""Timings of each kind in a repeat; the fastest counts, as others were disturbed."""

TIMED_LINES = 1 << 17
"""Lines of one timing at least; in memory as many, and other ones each time."""

MOST_SPREAD = 0.2
"""How far the starts of the repeats may lie apart, as a share of what a run's first line takes; one
that spreads by more is not kept. See ``docs/decisions/032-starts-of-runs.md``."""

SEED = 1
"""Of the random orders of runs."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What runs take at one level: `runs` has for each repeat the seconds of a run by its lines.

    Examples
    --------
    >>> found = RunTimes("L2", ({1: 5e-9, 2: 6e-9, 4: 8e-9},))
    >>> round(found.start * 1e9, 2), round(found.line * 1e9, 2), round(found.residual, 2)
    (4.0, 1.0, 0.0)
    """

    level: str
    runs: tuple[Mapping[int, float], ...]

    @property
    def starts(self) -> tuple[float, ...]:
        """The start that each repeat shows, the least first; noise can make it negative."""
        return tuple(sorted(fit_run(times)[0] for times in self.runs))

    @property
    def start(self) -> float:
        """The median of them."""
        return median(self.starts)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest of them, but for one at each end where there are enough."""
        found = self.starts[1:-1] or self.starts
        return found[0], found[-1]

    @property
    def line(self) -> float:
        """The seconds of each line beside it, as the median of the repeats."""
        return median(fit_run(times)[1] for times in self.runs)

    @property
    def spread(self) -> float:
        """How far the ends lie apart, as a share of what a run's first line takes."""
        low, high = self.ends
        return (high - low) / (max(self.start, 0.0) + self.line)

    @property
    def residual(self) -> float:
        """By which share of a run's time the fit misses the median time most."""
        times = {lines: median(one[lines] for one in self.runs) for lines in self.runs[0]}
        start, line = fit_run(times)
        return max(abs(start + line * lines - found) / found for lines, found in times.items())

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, with the fit and how well it holds."""
        names = ("level", "start", "line", "spread", "residual", "starts")
        found = {name: getattr(self, name) for name in names}
        return found | {"runs": [dict(x) for x in self.runs]}


def fit_run(times: Mapping[int, float]) -> tuple[float, float]:
    """Return start and seconds of a line of the straight line through the seconds of runs.

    Relative errors count, so that short runs do as much as long ones.

    Examples
    --------
    >>> start, line = fit_run({1: 5.0, 2: 7.0, 64: 131.0})
    >>> round(start, 3), round(line, 3)
    (3.0, 2.0)
    """
    found = np.array(list(times.values()))
    line, start = np.polyfit(np.array(list(times)), found, 1, w=1 / found)
    return float(start), float(line)


def measure_runs(
    machine: Machine, crew: PinnedThreads, limit: int, progress: Progress
) -> tuple[Machine, tuple[RunTimes, ...], tuple[str, ...]]:
    """Return a machine with starts of the levels that were measured, times, and notes.

    A start that spreads over its repeats is not kept, and a note says so.

    `machine` is this computer with the capacities that serve, `limit` the bytes that a block
    may take. The first member of `crew` loads.
    """
    from tilesolve.kernels.probes.bandwidth import block_of_ones

    sizes = dict(zip(machine.levels, chase_sizes(machine, limit), strict=True))
    (blocks,) = crew.each(
        lambda _: [_Block(machine, level, block_of_ones(n)) for level, n in sizes.items() if n], 1
    )
    found: list[list[dict[int, float]]] = [[] for _ in blocks]
    for repeat in range(REPEATS + 1):
        for block, runs in zip(blocks, found, strict=True):
            progress(1.0, f"runs of lines, {block.level.name}")
            times = {lines: block.time_runs(crew, lines) for lines in RUN_LINES}
            if repeat:
                runs.append(times)
    pairs = zip(blocks, found, strict=True)
    return keep_runs(machine, [RunTimes(block.level.name, tuple(runs)) for block, runs in pairs])


def keep_runs(
    machine: Machine, times: Sequence[RunTimes]
) -> tuple[Machine, tuple[RunTimes, ...], tuple[str, ...]]:
    """Return a machine with what holds of the times, these, and notes on what does not.

    Examples
    --------
    >>> wild = RunTimes("L2", ({1: 5e-9, 2: 6e-9}, {1: 9e-9, 2: 10e-9}))
    >>> machine, _, notes = keep_runs(Machine.load("i7-6700k"), [wild])
    >>> machine.level("L2").start is None, len(notes)
    (True, 1)
    """
    by_name = {one.level: one for one in times}
    sources: dict[str, Source] = {}
    notes, levels = [], []
    for level in machine.levels:
        changes: dict[str, Any] = {}
        if one := by_name.get(level.name):
            if one.start > 0 and one.spread <= MOST_SPREAD:
                changes["start"] = one.start
                sources[f"{level.name}.start"] = "measured"
            else:
                low, high = (f"{end * 1e9:.3g}" for end in one.ends)
                notes.append(
                    f"Starts of runs in {level.name} took {low} to {high} ns: none is kept."
                )
        levels.append(replace(level, **changes))
    kept = machine.replace(
        levels=tuple(levels), sources=tuple((dict(machine.sources) | sources).items())
    )
    return kept, tuple(times), tuple(notes)


class _Block:
    """Memory that shows one level; that of memory is gone through part by part."""

    def __init__(self, machine: Machine, level: Level, block: NDArray[np.uint8]) -> None:
        from tilesolve.packing.sizes import LINE_BYTES

        self.level, self.bits = level, machine.vector_bits
        self.line = LINE_BYTES
        part = block.size
        if level.capacity is None:
            part = min(part, TIMED_LINES * LINE_BYTES)
        self.size = part
        ends = range(part, block.size + 1, part)
        # Before a part comes again, more was loaded than all caches hold.
        self.parts: Iterator[NDArray[np.uint8]] = cycle([block[end - part : end] for end in ends])

    def time_runs(self, crew: PinnedThreads, lines: int) -> float:
        """Return the seconds of a run of so many lines."""
        from tilesolve.kernels.probes.runs import shuffle_runs

        return lines * self._seconds(crew, shuffle_runs(self.size, lines, SEED), lines)

    def _seconds(self, crew: PinnedThreads, offsets: NDArray[np.int64], lines: int) -> float:
        """Return the seconds of a line, in the fastest of some timings."""
        from tilesolve.kernels.probes.runs import runs

        run, loaded = runs(self.bits, lines), offsets.size * lines
        passes = 1 if self.level.capacity is None else -(-TIMED_LINES // loaded)

        def call(_member: int, times: int) -> None:
            run(next(self.parts), offsets, times)

        found = [crew.seconds(call, passes, 1) for _ in range(TURNS)]
        return min(found) / (passes * loaded)
