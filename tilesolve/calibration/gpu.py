"""Calibration of a GPU: what its driver tells, and bandwidths that are measured.

It has not been run on a card.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilesolve.gpu.card import Card
from tilesolve.gpu.launches import Launch
from tilesolve.kernels.gpu.sweeping import SWEEP, SWEEP_THREADS, Sweep
from tilesolve.machine.device import Device

TOLD = {
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "blocks": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "block_threads": "MAX_THREADS_PER_BLOCK",
    "shared_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_reserved": "RESERVED_SHARED_MEMORY_PER_BLOCK",
}
"""Figures of a device that its driver tells, by its names of them."""

SHARED_BYTES = 128
"""What a multiprocessor moves to or from shared memory in a cycle."""

READ_BYTES = 2**32
"""What is read to measure a bandwidth, at least."""


def calibrate_gpu(card: Card) -> Device:
    """Return the GPU of this computer as a device.

    Figures of units, latencies and peaks are those of the device that comes with the package and is
    nearest, peaks in the ratio of multiprocessors and clocks.
    """
    known = card.nearest()
    figures: dict[str, Any] = {name: card.attribute(asked) for name, asked in TOLD.items()}
    frequency = 1e3 * card.attribute("CLOCK_RATE")
    warps = card.attribute("MAX_THREADS_PER_MULTIPROCESSOR") // card.attribute("WARP_SIZE")
    capacity = card.attribute("L2_CACHE_SIZE")
    cycles = figures["multiprocessors"] * frequency
    shared, near, far = known.levels
    levels = (
        replace(
            shared,
            capacity=card.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            bandwidth=SHARED_BYTES * cycles,
        ),
        replace(near, capacity=capacity, bandwidth=measure_reads(card, capacity // 4)),
        replace(far, bandwidth=measure_reads(card, max(16 * capacity, READ_BYTES // 4))),
    )
    ratio = cycles / (known.multiprocessors * known.frequency)
    peaks = tuple((kind, rate * ratio) for kind, rate in known.peaks)
    name = card.name.lower().replace(" ", "-")
    figures |= {"name": name, "capability": card.capability, "frequency": frequency}
    figures |= {"host_bandwidth": measure_copies(card), "measured": ("L2", "memory", "host")}
    return replace(known, **figures, warps=warps, levels=levels, peaks=peaks)


def measure_copies(card: Card) -> float:
    """Return the bytes a second at which an array of NumPy's is copied to the device."""
    array = np.zeros(READ_BYTES // 16, np.uint8)
    return array.nbytes / card.time(lambda: card.upload(array), 3)


def measure_reads(card: Card, size: int) -> float:
    """Return the bytes a second at which all multiprocessors read so many bytes again and again."""
    blocks = 8 * card.attribute("MULTIPROCESSOR_COUNT")
    threads, chunks = blocks * SWEEP_THREADS, size // 16
    times = max(1, READ_BYTES // size)
    one = Launch(Sweep(), SWEEP, (blocks, 1, 1), SWEEP_THREADS, 0, ())
    source, output = (card.device.allocate(x, stream=card.stream) for x in (size, 4 * threads))
    addresses = [np.uint64(int(buffer.handle)) for buffer in (source, output)]
    given = [*addresses, *map(np.uint32, (chunks, times, threads))]
    kernel = card.load(one, card.capability)
    seconds = card.time(lambda: card.start(kernel, one, given, card.stream), 3)
    return times * chunks * 16 / seconds
