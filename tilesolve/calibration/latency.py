"""Latencies of levels: a pointer chase through a block that each of them holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilesolve.calibration.measure import REACH_RATIO
from tilesolve.calibration.staircase import NOISE_RATIO
from tilesolve.kernels.progress import Progress
from tilesolve.machine.level import Source
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

CHASE_ROUNDS = 7
"""Times that each chase is timed; the fastest counts, as others were disturbed."""

CHASE_RATIO = 3.0
"""A block to the nearer cache at most: the sooner a chase comes back, the less of it other cores
have driven out of a shared cache meanwhile."""

LEAST_LOADS = 1 << 16
"""Loads of one timing at least; a block of more lines, but for memory's, is gone through once."""

SEED = 1
"""Of the random orders of lines."""


def measure_latencies(
    machine: Machine, crew: PinnedThreads, limit: int, progress: Progress
) -> tuple[Machine, tuple[str, ...]]:
    """Return a machine with the latencies of the levels whose bandwidth was measured, and notes.

    Latencies out of order by more than noise are left out, and a note says so.

    `machine` is this computer with the capacities that serve, `limit` the bytes that a block
    may take. The first member of `crew` loads.
    """
    found: list[float | None] = []
    for level, size in zip(machine.levels, chase_sizes(machine, limit), strict=True):
        progress(1.0, f"latency, {level.name}")
        found.append(_time_loads(crew, size, whole=level.capacity is not None) if size else None)
    known = [(level.name, x) for level, x in zip(machine.levels, found, strict=True) if x]
    for (near, least), (far, most) in pairwise(known):
        if least > NOISE_RATIO * most:
            note = f"{far} seems to answer sooner than the nearer {near}: no latency is kept."
            return machine, (note,)
    levels = tuple(
        replace(level, latency=latency)
        for level, latency in zip(machine.levels, found, strict=True)
    )
    sources: dict[str, Source] = {f"{name}.latency": "measured" for name, _ in known}
    return machine.replace(
        levels=levels, sources=tuple((dict(machine.sources) | sources).items())
    ), ()


def chase_sizes(machine: Machine, limit: int) -> list[int]:
    """Return for each level the bytes of a block that it holds, and no nearer one; 0 for none.

    There is none where the level was not measured, or a nearer cache holds as much.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> machine = machine.replace(sources=tuple((f"{x.name}.bandwidth", "measured")
    ...     for x in machine.levels))
    >>> chase_sizes(machine, 2**30)
    [16384, 98304, 786432, 33554432]
    """
    from tilesolve.packing.sizes import PAGE_BYTES

    sizes, nearer = [], 0
    for level in machine.levels:
        usable = level.usable
        if usable is None:
            size = REACH_RATIO * nearer
        else:
            size = min((nearer + usable) / 2, CHASE_RATIO * nearer or usable)
        pages = int(min(size, limit)) // PAGE_BYTES * PAGE_BYTES
        measured = machine.source(f"{level.name}.bandwidth") == "measured"
        sizes.append(pages if measured and pages > nearer else 0)
        nearer = max(nearer, level.capacity or 0)
    return sizes


def _time_loads(crew: PinnedThreads, size: int, *, whole: bool) -> float:
    """Return the seconds of a load from a block: after all of it was loaded, or of its next part.

    A timing that goes on where the last one ended finds no line of memory in a cache.
    """
    from tilesolve.constants.tuning import CHASE_LOADS
    from tilesolve.kernels.probes.latency import chase, link_lines
    from tilesolve.packing.sizes import LINE_BYTES

    run = chase()
    (found,) = crew.each(lambda _: _linked_block(size, link_lines), 1)
    block, start = found
    places = [start]
    loads = max(LEAST_LOADS, block.size // LINE_BYTES) if whole else LEAST_LOADS
    trips = -(-loads // CHASE_LOADS)

    def call(_member: int, passes: int) -> None:
        places[0] = run(places[0], passes * trips)

    seconds: Sequence[float] = [crew.seconds(call, 1, 1) for _ in range(CHASE_ROUNDS)]
    return min(seconds) / (trips * CHASE_LOADS)


def _linked_block(
    size: int, link: Callable[[NDArray[np.uint8], int], int]
) -> tuple[NDArray[np.uint8], int]:
    from tilesolve.kernels.probes.bandwidth import block_of_ones

    block = block_of_ones(size)
    return block, link(block, SEED)
