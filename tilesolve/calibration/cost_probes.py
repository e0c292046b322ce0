"""Probes of the costs that plans count with: one table, from figures to what measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType

from tilesolve.calibration import plan_runs, statement_runs
from tilesolve.calibration.measure import FMA_SCALE, FMA_SHIFT
from tilesolve.calibration.part_lines import make_part_probe, make_slowdown_probe
from tilesolve.calibration.plan_runs import PlanRuns
from tilesolve.calibration.readings import Reading, keep_readings, take_readings
from tilesolve.calibration.statement_runs import StatementRuns
from tilesolve.kernels.progress import Progress
from tilesolve.machine.impossible import peak_of
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.system.pinned_threads import PinnedThreads

QUICK_REPEATS, FULL_REPEATS = 12, 45
"""Times that each cost is measured."""

QUICK_SECONDS, FULL_SECONDS = 4.0, 60.0
"""Time for all of it."""

PACE_SHARE = 1 / 4
"""Part of the second cache that is swept to tell the present speed."""

PACE_BYTES = 1 << 24
"""Bytes of such a sweep, about."""

PACE_TURNS = 3
"""Sweeps of which the fastest counts."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where costs are measured: the machine as calibrated so far, its threads, bytes of a block."""

    machine: Machine
    crew: PinnedThreads
    limit: int
    runs: PlanRuns
    statements: StatementRuns

    @classmethod
    def of(cls, machine: Machine, crew: PinnedThreads, limit: int) -> Bench:
        """Return a bench whose plans are judged by a machine's peak and clock."""
        peak = peak_of(machine.peaks, "float64", machine.vector_bits)
        runs = PlanRuns(machine.frequency, peak, limit)
        return cls(machine, crew, limit, runs, StatementRuns(machine.frequency))


MakeProbe = Callable[[Bench], Callable[[], float] | None]
"""Prepares what measures a figure; None where this computer, or its memory, is too small."""

COST_PROBES: Mapping[str, MakeProbe] = MappingProxyType(
    {
        "memory.part": lambda at: make_part_probe(at.machine, at.crew, at.limit),
        "costs.cached_store_slowdown": lambda at: make_slowdown_probe(
            at.machine, at.crew, at.limit
        ),
        "costs.call_cycles": lambda at: plan_runs.make_call_probe(at.runs),
        "costs.call_run_cycles": lambda at: plan_runs.make_run_probe(at.runs),
        "costs.accumulate_cycles": lambda at: plan_runs.make_accumulate_probe(at.runs),
        "costs.pack_cycles": lambda at: plan_runs.make_pack_probe(at.runs),
        "costs.single_pack_cycles": lambda at: plan_runs.make_single_probe(at.runs),
        "costs.near_share": lambda at: plan_runs.make_near_probe(at.runs),
        "costs.late_line_cycles": lambda at: plan_runs.make_late_probe(at.runs),
        "costs.window_cycles": lambda at: plan_runs.make_window_probe(at.runs),
        "costs.lanewise_slowdown": lambda at: plan_runs.make_lanewise_probe(at.runs),
        "costs.epilogue_cycles": lambda at: plan_runs.make_epilogue_probe(at.runs),
        "costs.contraction_seconds": lambda at: statement_runs.make_contraction_probe(
            at.statements, at.runs
        ),
        "costs.statement_seconds": lambda at: statement_runs.make_statement_probe(at.statements),
        "costs.threads_seconds": lambda at: statement_runs.make_threads_probe(at.statements),
        "costs.cold_threads_seconds": lambda at: statement_runs.make_cold_threads_probe(
            at.statements
        ),
        "costs.gather_cycles": lambda at: statement_runs.make_gather_probe(at.statements),
        "costs.update_cycles": lambda at: statement_runs.make_update_probe(at.statements),
    }
)
"""What measures each figure."""


def measure_costs(
    bench: Bench, repeats: int, seconds: float, progress: Progress
) -> tuple[Machine, tuple[Reading, ...], tuple[str, ...]]:
    """Return the bench's machine with the costs that were measured, readings, and notes.

    Costs that are no measurement keep their default, and a note names them.
    """
    progress(1.0, "preparing the costs' probes")
    made = {figure: make(bench) for figure, make in COST_PROBES.items()}
    probes = {figure: probe for figure, probe in made.items() if probe is not None}
    readings = take_readings(probes, repeats, _make_pace(bench), progress, seconds)
    machine, notes = keep_readings(bench.machine, readings)
    return machine, readings, notes


def _make_pace(bench: Bench) -> Callable[[], float]:
    """Return what tells the present speed of a core and of its second cache, by a sweep there."""
    from tilesolve.kernels.probes.bandwidth import block_of_ones, sweep

    caches = bench.machine.caches[:2]
    size = int(PACE_SHARE * min(bench.limit, *(cache.capacity or 0 for cache in caches[-1:])))
    block = block_of_ones(max(PAGE_BYTES, size // PAGE_BYTES * PAGE_BYTES))
    run = sweep("float64", bench.machine.vector_bits)

    def measure() -> float:
        passes, rates = -(-PACE_BYTES // block.size), []
        for _ in range(PACE_TURNS):  # in the first one the block comes from where it was
            begin = perf_counter()
            run(block, passes, FMA_SCALE, FMA_SHIFT)
            rates.append(passes * block.size / (perf_counter() - begin))
        return max(rates)

    return measure
