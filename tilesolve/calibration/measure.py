"""Timing the micro-benchmarks: which kernels on which blocks, round after round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tilesolve.calibration.staircase import capacity_of
from tilesolve.contractions.errors import CalibrationError
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

FIRST_BLOCK_SHARE = 3 / 8
"""The smallest block, as a fraction of L1: under half of it."""

REACH_RATIO, GUESSED_REACH_RATIO = 4.0, 8.0
"""The largest block to the last cache; more if its capacity is only a guess. A last cache still
serves part of a block of twice its size; see ``docs/decisions/031-calibration.md``."""

LEAST_ROUNDS = 2
"""Rounds that count at least, however little time there is. One more before them warms the cores up
and tells how many passes fill a timing."""

TEAM_TIMING_RATIO = 10
"""A timing of all cores to one of a single core, as threads do not start at the same instant; more
beyond 20 cores."""

PASS_TRIPS = 64
"""Trips of one pass of a kernel that has no block."""

FMA_SCALE, FMA_SHIFT = 0.5, 1.0
"""Factor and addend of the FMAs: their fixed point is 2, so no value overflows or fades."""


@dataclass(frozen=True, slots=True)
class MeasuringTime:
    """How long to measure.

    `seconds` are those of all rounds, `call` those of one timing, and `density` the block sizes
    per doubling, of which all cores at once get half.
    """

    seconds: float
    call: float
    density: int


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """One thing to time.

    Parameters
    ----------
    kernel
        ``"sweep"``, ``"read"``, ``"stream"``, ``"fma"``, ``"chain"`` (one FMA after the other) or
        ``"cycles"``.
    cores
        How many run it at once.
    block
        Bytes that each of them sweeps; 0 for a kernel that only computes.
    dtype, bits
        Of the vectors.
    work
        Work of one core in one pass: bytes, flops, or cycles.
    call
        ``call(member, passes)`` runs it.

    Examples
    --------
    >>> Probe("read", 1, 4096, "float64", 512, 4096.0, lambda member, passes: None).title
    'read, one core, 4 KiB'
    """

    kernel: str
    cores: int
    block: int
    dtype: str
    bits: int
    work: float
    call: Callable[[int, int], object]

    @property
    def title(self) -> str:
        """What it measures, in a few words."""
        where = "all cores" if self.cores > 1 else "one core"
        if self.block:
            return f"{self.kernel}, {where}, {self.block >> 10} KiB"
        return f"{self.kernel}, {where}, {self.dtype} at {self.bits} bits"


def block_sizes(machine: Machine, limit: int, density: int) -> tuple[list[int], list[int]]:
    """Return the block sizes of one core alone, and those of each core when all work at once.

    `limit` bounds the bytes of one core's block, and those of all cores' blocks together;
    `density` is the sizes per doubling.

    Examples
    --------
    >>> alone, together = block_sizes(Machine.load("i7-6700k"), 2**30, 1)
    >>> alone[0], alone[-1], together[-1]
    (12288, 33554432, 9568256)
    """
    nearest, last = machine.first_cache, machine.last_cache
    if nearest is None or last is None:
        raise CalibrationError(f"machine {machine.name!r} has no cache whose blocks could grow")
    first = int(FIRST_BLOCK_SHARE * capacity_of(nearest))
    if limit < first:
        raise CalibrationError(
            f"blocks may take {limit} bytes, but {nearest.name} alone needs {first}"
        )
    reach = (
        GUESSED_REACH_RATIO if machine.source(f"{last.name}.capacity") == "assumed" else REACH_RATIO
    )
    alone = _geometric(first, min(limit, reach * capacity_of(last)), density)
    # Together the cores fill a shared cache sooner, but they also have all their own ones.
    shares = sum(capacity_of(c) / min(c.shared_by, machine.cores) for c in machine.caches)
    top = min(limit / machine.cores, REACH_RATIO * shares)
    if machine.cores == 1 or top < first:
        return alone, []
    return alone, _geometric(first, top, density / 2)


def _geometric(first: int, last: float, density: float) -> list[int]:
    """Return sizes that grow by equal factors, each a whole number of the kernels' steps."""
    from tilesolve.constants.tuning import SWEEP_BYTES

    steps = max(1, math.ceil(density * math.log2(last / first)))
    exact = (first * (last / first) ** (n / steps) for n in range(steps + 1))
    return sorted({math.ceil(round(size, 3) / SWEEP_BYTES) * SWEEP_BYTES for size in exact})


def make_probes(
    machine: Machine, crew: PinnedThreads, alone: list[int], together: list[int]
) -> list[Probe]:
    """Compile the kernels, allocate the blocks, and return all there is to time.

    Examples
    --------
    >>> machine = Machine.detect()
    >>> with PinnedThreads(machine.cores) as crew:
    ...     found = make_probes(machine, crew, [16384, 32768], [])
    >>> [probe.block for probe in found if probe.kernel == "read"]
    [16384, 32768]
    """
    return [*_sweeps(machine, crew, alone, together), *_arithmetic(machine)]


def _sweeps(
    machine: Machine, crew: PinnedThreads, alone: list[int], together: list[int]
) -> list[Probe]:
    from tilesolve.kernels.probes import bandwidth as kernels

    bits = machine.vector_bits
    sweep, read, stream = kernels.sweep("float64", bits), kernels.read(bits), kernels.stream(bits)
    moves: dict[str, tuple[int, Callable[[Any, int], object]]] = {
        "sweep": (2, lambda block, passes: sweep(block, passes, FMA_SCALE, FMA_SHIFT)),
        "read": (1, lambda block, passes: read(block, passes)),
        "stream": (1, lambda block, passes: stream(block, passes, FMA_SHIFT)),
    }
    # Each core touches its own pages first, so that they come to lie in the memory next to it.
    largest = [max([*alone, *together]), *[max(together, default=0)] * (machine.cores - 1)]
    members = machine.cores if together else 1
    buffers = crew.each(lambda member: kernels.block_of_ones(largest[member]), members)

    def probe(kernel: str, cores: int, size: int) -> Probe:
        weight, run = moves[kernel]
        views = [buffer[:size] for buffer in buffers]
        return Probe(
            kernel,
            cores,
            size,
            "float64",
            bits,
            weight * size,
            lambda member, passes: run(views[member], passes),
        )

    return [
        *(probe("sweep", 1, size) for size in alone),
        *(probe("read", 1, size) for size in alone),
        *(probe("stream", 1, size) for size in alone[::-4]),
        *(probe("sweep", machine.cores, size) for size in together),
    ]


def _arithmetic(machine: Machine) -> list[Probe]:
    from tilesolve.constants.tuning import CHAIN_OPERATIONS
    from tilesolve.kernels.probes import bandwidth as kernels

    clock = kernels.cycles()
    widths = [bits for bits in (128, 256, 512) if bits <= machine.vector_bits]
    kinds = [(dtype, bits) for dtype in ("float64", "float32") for bits in widths]
    return [
        Probe(
            "cycles",
            1,
            0,
            "int64",
            64,
            float(CHAIN_OPERATIONS * PASS_TRIPS),
            lambda _member, passes: clock(passes * PASS_TRIPS, 1, 3, 5),
        ),
        _fma("chain", 1, "float64", machine.vector_bits, 1),
        *(
            peak_probe(machine, dtype, bits, cores)
            for cores in sorted({1, machine.cores})
            for dtype, bits in kinds
        ),
    ]


def peak_probe(machine: Machine, dtype: str, bits: int, cores: int) -> Probe:
    """Return the probe of the arithmetic peak, compiled.

    Examples
    --------
    >>> probe = peak_probe(Machine.detect(), "float32", 128, 1)
    >>> probe.title
    'fma, one core, float32 at 128 bits'
    """
    # Two registers hold the factors; latency times rate is 8 to 16 on CPUs so far.
    many = 24 if machine.vector_registers >= 32 else 12
    return _fma("fma", cores, dtype, bits, many)


def _fma(kernel: str, cores: int, dtype: str, bits: int, accumulators: int) -> Probe:
    from tilesolve.kernels.dtypes import lanes
    from tilesolve.kernels.probes import bandwidth as kernels

    run = kernels.multiply_adds(dtype, bits, accumulators)
    flops = 2.0 * lanes(dtype, bits) * accumulators * PASS_TRIPS
    call = lambda _member, passes: run(passes * PASS_TRIPS, FMA_SCALE, FMA_SHIFT)  # noqa: E731
    return Probe(kernel, cores, 0, dtype, bits, flops, call)


def add_rounds(
    rates: dict[Probe, list[float]], crew: PinnedThreads, effort: MeasuringTime, progress: Progress
) -> None:
    """Time every probe in turn, again and again, and add each rate to its probe's list.

    Interleaved rounds spread a disturbance over all probes rather than spoil one. At least
    `LEAST_ROUNDS` rounds are added, then as many as the effort's time allows.

    Examples
    --------
    >>> probe = Probe("none", 1, 0, "", 0, 1.0, lambda member, passes: time.sleep(1e-5 * passes))
    >>> rates: dict[Probe, list[float]] = {probe: []}
    >>> with PinnedThreads(1) as crew:
    ...     add_rounds(rates, crew, MeasuringTime(1e-3, 1e-4, 1), lambda fraction, what: None)
    >>> len(rates[probe]) >= LEAST_ROUNDS
    True
    """
    start = time.monotonic()
    needed = len(rates) * (LEAST_ROUNDS + 1)
    done = 0
    guesses: dict[Probe, float] = {}
    for turn in count():
        for probe, found in rates.items():
            spent = (time.monotonic() - start) / effort.seconds
            if turn > LEAST_ROUNDS and spent >= 1:
                return
            progress(min(spent, done / needed, 1.0), probe.title)
            rate = _rate(crew, probe, effort.call, guesses.get(probe, 0.0))
            guesses[probe] = rate
            if turn:
                found.append(rate)
            done += 1


def _rate(crew: PinnedThreads, probe: Probe, call: float, guess: float) -> float:
    """Return what all cores of a probe do per second together; `guess` sets the first length."""
    patience = max(TEAM_TIMING_RATIO, probe.cores / 2) if probe.cores > 1 else 1
    work = probe.work * probe.cores
    passes = math.ceil(call * patience * guess / work) or 1
    while True:
        seconds = crew.seconds(probe.call, passes, probe.cores)
        if seconds >= call * patience / 4:
            return work * passes / seconds
        passes = math.ceil(passes * min(call * patience / max(seconds, 1e-9), 1000.0))
