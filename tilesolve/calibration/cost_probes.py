"""Probes of the costs that plans count with: one table, from figures to what measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilesolve.calibration.part_lines import make_part_probe
from tilesolve.calibration.readings import Reading, keep_readings, take_readings
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.system.pinned_threads import PinnedThreads

QUICK_REPEATS, FULL_REPEATS = 9, 21
"""Times that each cost is measured."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where costs are measured: the machine as calibrated so far, its threads, bytes of a block."""

    machine: Machine
    crew: PinnedThreads
    limit: int


MakeProbe = Callable[[Bench], Callable[[], float] | None]
"""Prepares what measures a figure once; None where this computer, or its memory, is too small."""

COST_PROBES: Mapping[str, MakeProbe] = MappingProxyType(
    {"memory.part": lambda bench: make_part_probe(bench.machine, bench.crew, bench.limit)}
)
"""What measures each figure."""


def measure_costs(
    bench: Bench, repeats: int, progress: Progress
) -> tuple[Machine, tuple[Reading, ...], tuple[str, ...]]:
    """Return the bench's machine with the costs that were measured, readings, and notes.

    Costs that are no measurement keep their default, and a note names them.
    """
    progress(1.0, "preparing the costs' probes")
    made = {figure: make(bench) for figure, make in COST_PROBES.items()}
    probes = {figure: probe for figure, probe in made.items() if probe is not None}
    readings = take_readings(probes, repeats, progress)
    machine, notes = keep_readings(bench.machine, readings)
    return machine, readings, notes
