"""Calibration: micro-benchmarks of this computer, and the machine that they add up to.

The benchmark is the paper's (section 6.2): load, FMA, store over a block without reuse, for blocks
from under half of L1 to several times the last cache. Read-only sweeps, non-temporal stores and the
arithmetic peak are measured beside it, and the same with all cores at once; then the latency of
loads, and the time of runs of lines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tilesolve.calibration.cost_probes import (
    FULL_REPEATS,
    FULL_SECONDS,
    QUICK_REPEATS,
    QUICK_SECONDS,
    Bench,
    measure_costs,
)
from tilesolve.calibration.latency import measure_latencies
from tilesolve.calibration.measure import MeasuringTime, Probe, add_rounds, block_sizes, make_probes
from tilesolve.calibration.readings import MOST_SPREAD, Reading
from tilesolve.calibration.runs import RunTimes, measure_runs
from tilesolve.calibration.staircase import (
    BEYOND_RATIO,
    LARGEST_RATIO,
    NOISE_RATIO,
    Curve,
    Plateau,
    Sample,
    capacity_of,
    find_plateaus,
    median_within,
    order_bandwidths,
)
from tilesolve.contractions.errors import CalibrationError, MachineError
from tilesolve.kernels.progress import Progress, silent
from tilesolve.machine.costs import COST_NAMES
from tilesolve.machine.level import Level, Peak, Source
from tilesolve.machine.model import Machine
from tilesolve.system.free_memory import read_free_memory
from tilesolve.system.pinned_threads import PinnedThreads

FULL = MeasuringTime(seconds=90.0, call=4e-3, density=6)
QUICK = MeasuringTime(seconds=4.5, call=1e-3, density=4)

REPEATS = 2
"""Times that contradictory measurements go on, for a third of the time each, before an error."""

MEMORY_SHARE = 1 / 4
"""Part of the free memory that blocks may take by default."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, and the machine it makes.

    Parameters
    ----------
    machine
        Ready to be saved and planned for.
    plateaus
        The levels as the load-FMA-store curve shows them.
    curves
        Every curve that was measured.
    notes
        Sentences that a reader of the figures should know.
    elapsed
        Seconds that it took.
    runs
        The times of runs of lines at each measured level; empty after a quick calibration.
    costs
        What was measured of the costs that plans count with.

    Examples
    --------
    >>> found = calibrate(quick=True, seconds=0.1, max_bytes=3 * 2**14)
    >>> [plateau.name for plateau in found.plateaus if plateau.samples]
    ['L1']
    """

    machine: Machine
    plateaus: tuple[Plateau, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]
    elapsed: float
    runs: tuple[RunTimes, ...] = ()
    costs: tuple[Reading, ...] = ()

    def curve(self, kernel: str, cores: int = 1) -> Curve | None:
        """Return one of the curves; None if it was not measured."""
        return _pick(self.curves, kernel, cores)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``--json`` prints them."""
        return {
            "machine": asdict(self.machine) | {"sources": dict(self.machine.sources)},
            "spread": {p.name: p.spread for p in self.plateaus if p.samples},
            "curves": [
                {
                    "kernel": curve.kernel,
                    "cores": curve.cores,
                    "samples": [
                        {
                            "block": sample.block,
                            "best": sample.best,
                            "median": median(sample.rates),
                            "rounds": len(sample.rates),
                        }
                        for sample in curve.samples
                    ],
                }
                for curve in self.curves
            ],
            "runs": [one.to_dict() for one in self.runs],
            "costs": [one.to_dict() for one in self.costs],
            "notes": list(self.notes),
            "elapsed": self.elapsed,
        }


def calibrate(
    *,
    quick: bool = False,
    progress: Progress | None = None,
    max_bytes: int | None = None,
    seconds: float | None = None,
) -> Calibration:
    """Measure this computer; nothing is written.

    Parameters
    ----------
    quick
        Settle for fewer rounds and sizes, and no runs of lines: done within 20 seconds instead of 3
        minutes.
    progress
        Called often with the fraction that is done and a description of the work; an exception that
        it raises ends the calibration.
    max_bytes
        The largest block of one core, and the most that all cores' blocks take together; a
        quarter of the free memory by default. A level that they do not reach keeps its assumed
        bandwidth.
    seconds
        Time for the rounds, instead of what `quick` gives them.

    Raises
    ------
    CalibrationError
        If a farther level stays faster than a nearer one, or memory is too short for any block.

    Examples
    --------
    >>> found = calibrate(quick=True, seconds=0.1, max_bytes=3 * 2**14)
    >>> found.machine.source("L1.bandwidth"), found.machine.source("memory.bandwidth")
    ('measured', 'assumed')
    """
    begin = time.monotonic()
    tell = progress or silent
    effort = QUICK if quick else FULL
    if seconds is not None:
        effort = replace(effort, seconds=seconds)
    tell(0.0, "detecting the machine")
    base = Machine.detect()
    limit = int(read_free_memory() * MEMORY_SHARE) if max_bytes is None else max_bytes
    sizes = block_sizes(base, limit, effort.density)
    with PinnedThreads(base.cores) as crew:
        tell(0.0, "compiling the kernels")
        rates: dict[Probe, list[float]] = {probe: [] for probe in make_probes(base, crew, *sizes)}
        add_rounds(rates, crew, effort, tell)
        for repeat in range(REPEATS + 1):
            try:
                machine, levels, notes = evaluate(base, rates)
                steady = all(level.spread <= MOST_SPREAD for level in levels if level.samples)
                if repeat == REPEATS or (steady and all(peak.flops_all for peak in machine.peaks)):
                    break
            except CalibrationError as error:
                if repeat == REPEATS:
                    raise CalibrationError(
                        f"{error}, after {repeat} repetitions; other programs may be using this "
                        "computer: try again when it is idle"
                    ) from None
            add_rounds(rates, crew, replace(effort, seconds=effort.seconds / 3), tell)
        machine, more = measure_latencies(machine, crew, limit, tell)
        notes = (*notes, *more)
        runs: tuple[RunTimes, ...] = ()
        if not quick:
            machine, runs, more = measure_runs(machine, crew, limit, tell)
            notes = (*notes, *more)
        how = (QUICK_REPEATS, QUICK_SECONDS) if quick else (FULL_REPEATS, FULL_SECONDS)
        machine, costs, more = measure_costs(Bench.of(machine, crew, limit), *how, tell)
        notes = (*notes, *more)
    if repeat:
        notes = (*notes, f"It took {repeat + 1} measurements.")
    tell(1.0, "done")
    elapsed = time.monotonic() - begin
    return Calibration(machine, levels, _curves(rates), notes, elapsed, runs, costs)


def keep_others(machine: Machine, path: Path) -> Machine:
    """Return a calibrated machine with the microkernels, costs and sources that its file holds.

    Costs that were probed now are as found, but for those that somebody gave. A file that is
    missing, damaged or of another CPU holds nothing that counts.
    """
    try:
        old = Machine.load(path) if path.is_file() else None
    except MachineError:  # a damaged file is what calibrating mends
        old = None
    if old is None or old.fingerprint != machine.fingerprint:
        return machine
    sources, costs = dict(machine.sources), old.costs
    for name in COST_NAMES:
        figure, before = f"costs.{name}", old.source(f"costs.{name}")
        if figure in sources and before != "given":
            costs = replace(costs, **{name: getattr(machine.costs, name)})
        elif figure in dict(old.sources) or figure in sources:
            sources[figure] = before
    return machine.replace(catalogues=old.catalogues, costs=costs, sources=tuple(sources.items()))


def evaluate(
    base: Machine, rates: Mapping[Probe, Sequence[float]]
) -> tuple[Machine, tuple[Plateau, ...], tuple[str, ...]]:
    """Return the machine that the measured rates make, its levels on the curve, and notes.

    `base` is the machine as detected; `rates` has what each round of a probe measured.

    Raises
    ------
    CalibrationError
        If a farther level seems faster than a nearer one by more than noise.

    Examples
    --------
    >>> machine = Machine.detect()
    >>> with PinnedThreads(machine.cores) as crew:
    ...     rates = {probe: [] for probe in make_probes(machine, crew, [16384], [])}
    ...     add_rounds(rates, crew, MeasuringTime(0.01, 1e-4, 1), lambda fraction, what: None)
    >>> evaluate(machine, rates)[0].source("frequency")
    'measured'
    """
    curves = _curves(rates)
    levels, found, sources, notes = _levels(base, curves)
    notes += [
        f"Rounds in {level.name} stay {level.spread:.0%} behind the best: something else used it."
        for level in found
        if level.samples and level.spread > MOST_SPREAD
    ]
    machine = base.replace(
        levels=levels,
        **_arithmetic(base, rates),
        sources=tuple((dict(base.sources) | sources | _MEASURED).items()),
    )
    notes += [
        f"All cores seemed to be faster together than one by one ({peak.dtype} at {peak.bits} "
        "bits): that peak is not kept."
        for peak in machine.peaks
        if peak.flops_all is None
    ]
    return machine, found, tuple(notes)


_MEASURED: dict[str, Source] = dict.fromkeys(
    ("frequency", "fma_latency", "fma_rate", "peak"), "measured"
)


def _curves(rates: Mapping[Probe, Sequence[float]]) -> tuple[Curve, ...]:
    """Return the sweeps among the probes as curves."""
    samples: dict[tuple[str, int], list[Sample]] = {}
    for probe, found in rates.items():
        if probe.block:
            sample = Sample(probe.block, tuple(found))
            samples.setdefault((probe.kernel, probe.cores), []).append(sample)
    return tuple(
        Curve(kernel, cores, tuple(sorted(points, key=lambda sample: sample.block)))
        for (kernel, cores), points in samples.items()
    )


def _pick(curves: Sequence[Curve], kernel: str, cores: int) -> Curve | None:
    return next((c for c in curves if (c.kernel, c.cores) == (kernel, cores)), None)


def _samples(curves: Sequence[Curve], kernel: str, cores: int) -> tuple[Sample, ...]:
    curve = _pick(curves, kernel, cores)
    return curve.samples if curve else ()


def _levels(
    base: Machine, curves: Sequence[Curve]
) -> tuple[tuple[Level, ...], tuple[Plateau, ...], dict[str, Source], list[str]]:
    """Return the levels, their places on the curve, the figures' sources, and notes."""
    guessed = [c.name for c in base.caches if base.source(f"{c.name}.capacity") == "assumed"]
    found = find_plateaus(_samples(curves, "sweep", 1), base.caches, guessed)
    # Where stores are the limit, two levels can be equally fast and yet differ in loads.
    loads = find_plateaus(_samples(curves, "read", 1), base.caches, guessed)
    bandwidths = _fill_gaps(base.levels, order_bandwidths(found))
    levels: list[Level] = []
    sources: dict[str, Source] = {}
    notes = []
    for level, plateau, load, bandwidth in zip(base.levels, found, loads, bandwidths, strict=True):
        name = level.name
        changes: dict[str, Any] = {"bandwidth": bandwidth}
        if plateau.samples:
            sources[f"{name}.bandwidth"] = "measured"
            changes |= _other_rates(base, levels, level, plateau, bandwidth, curves)
        else:
            sources[f"{name}.bandwidth"] = "assumed"
            notes.append(f"The blocks did not reach {name}: its bandwidth is assumed.")
        edge = plateau.edge or load.edge
        if level.capacity is not None and plateau.samples:
            if edge is None:
                notes.append(f"No step shows where {name} ends: all of it is assumed to serve.")
            elif plateau.edge is None:
                notes.append(f"Only the read-only sweep shows where {name} ends.")
        if edge is not None and name in guessed:
            changes |= {"capacity": edge, "effective": 1.0}
            sources[f"{name}.capacity"] = "measured"
        elif edge is not None:
            changes["effective"] = edge / capacity_of(level)
        if level.capacity is not None:
            sources[f"{name}.effective"] = "assumed" if edge is None else "measured"
        levels.append(replace(level, **changes))
        for figure in ("read", "stream", "bandwidth_all"):
            if getattr(levels[-1], figure) is not None:
                sources[f"{name}.{figure}"] = "measured"
    return tuple(levels), found, sources, notes


def _other_rates(
    base: Machine,
    nearer: Sequence[Level],
    level: Level,
    plateau: Plateau,
    bandwidth: float,
    curves: Sequence[Curve],
) -> dict[str, float | None]:
    """Return a level's other bandwidths: of loads, non-temporal stores, and all cores."""
    blocks = [sample.block for sample in plateau.samples]
    team = _samples(curves, "sweep", base.cores)
    if level.capacity is None:
        low, high = team[-1].block / LARGEST_RATIO if team else 0.0, math.inf
    else:  # together the cores share a cache, so each has a part of it, and all of its own ones
        low = BEYOND_RATIO * sum(capacity_of(c) / min(c.shared_by, base.cores) for c in nearer)
        high = max(blocks) / min(level.shared_by, base.cores)
    # Cores of virtual machines are moved: they share a way to memory at one time, and have one each
    # at another. That is no noise.
    together = median_within(team, low, high, usual=level.capacity is None)
    return {
        "read": median_within(_samples(curves, "read", 1), min(blocks), max(blocks)),
        "stream": median_within(_samples(curves, "stream", 1), min(blocks), max(blocks)),
        "bandwidth_all": bandwidth if base.cores == 1 else together,
    }


def _fill_gaps(levels: Sequence[Level], measured: Sequence[float | None]) -> list[float]:
    """Return bandwidths with gaps filled by assumed ones, in order with the measured ones."""
    filled: list[float] = []
    for n, (level, value) in enumerate(zip(levels, measured, strict=True)):
        if value is None:
            farther = max((v for v in measured[n:] if v is not None), default=0.0)
            value = max(farther, min([level.bandwidth, *filled]))
        filled.append(value)
    return filled


def _arithmetic(base: Machine, rates: Mapping[Probe, Sequence[float]]) -> dict[str, Any]:
    """Return the machine's frequency, and what its vector units do."""
    best = {
        (probe.kernel, probe.dtype, probe.bits, probe.cores): max(found)
        for probe, found in rates.items()
        if not probe.block
    }
    frequency = best["cycles", "int64", 64, 1]
    width = base.vector_bits
    # The chain starts an FMA when the one before is through, the peak as often as it can.
    chain = best["chain", "float64", width, 1]
    latency = max(1, round(2 * (width // 64) * frequency / chain))
    peaks = []
    for (kernel, dtype, bits, cores), flops in best.items():
        if kernel == "fma" and cores == 1:
            every = best["fma", dtype, bits, base.cores]
            possible = every <= NOISE_RATIO * base.cores * flops
            peaks.append(Peak(dtype, bits, flops, every if possible else None))
    return {
        "frequency": frequency,
        "fma_latency": latency,
        "fma_rate": round(best["fma", "float64", width, 1] / chain / latency, 2),
        "peaks": tuple(peaks),
    }
