"""What a CPU's operations cost beyond bandwidth and arithmetic: one value, field by field.

Each field has a unit, a meaning, a default, bounds and the command that measures it, if there is
one. A machine file gives any of them in ``[costs]``; others have their defaults, whose measurements
stand in ``docs/decisions/030-costs.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, NamedTuple

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.level import check_positive


def _cost(
    default: float, unit: str, meaning: str, probe: str = "", least: float = 0.0, most: float = inf
) -> Any:  # noqa: ANN401 - a dataclass field passes for any type
    """Return a dataclass field with what is known of a cost."""
    known = {"unit": unit, "meaning": meaning, "probe": probe, "least": least, "most": most}
    return field(default=default, metadata=known)


def _share(default: float, meaning: str, probe: str = "") -> Any:  # noqa: ANN401 - see `_cost`
    """Return a field that is part of a whole."""
    return _cost(default, "share", meaning, probe, most=1.0)


def _slowdown(default: float, meaning: str, probe: str = "") -> Any:  # noqa: ANN401 - see `_cost`
    """Return a field that tells how many times as long something takes."""
    return _cost(default, "times", meaning, probe, least=1.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one CPU, as plans count with them.

    Raises
    ------
    MachineError
        If a cost is no number, or outside its bounds.

    Examples
    --------
    >>> Costs().pack_cycles
    1.0
    >>> Costs(private_share=2.0)
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: costs: private_share must be at most 1, got 2.0
    """

    # Calls of the microkernel, and packing
    call_cycles: float = _cost(
        60.0, "cycles/call", "call of a microkernel besides its arithmetic", "calibrate"
    )
    tile_cycles: float = _cost(
        5.0, "cycles/tile", "walk of the macrokernel to the next register tile"
    )
    call_run_cycles: float = _cost(
        200.0, "cycles/run", "preparing calls for a run of register tiles alike", "calibrate"
    )
    halved_change_cycles: float = _cost(
        0.5, "cycles/change", "going from whole vectors to halved ones, or back, in a step"
    )
    accumulate_cycles: float = _cost(
        80.0,
        "cycles/tile",
        "adding a register tile to C, at least, where C lies in L2",
        "calibrate",
    )
    pack_cycles: float = _cost(
        1.0, "cycles/element", "packing an element that is near, or comes in time", "calibrate"
    )
    single_pack_cycles: float = _cost(
        2.0, "cycles/element", "packing an element by itself, beyond one in a vector", "calibrate"
    )
    window_cycles: float = _cost(
        0.3, "cycles/element", "copying an element of a box's windows, zeros included", "calibrate"
    )
    lanewise_slowdown: float = _slowdown(
        2.0,
        "inner loop where vectors multiply vectors, along a letter that all tensors have",
        "calibrate",
    )
    scattered_store_cycles: float = _cost(
        2.0, "cycles/element", "writing an element of C by itself: nothing lies beside it"
    )
    turned_store_cycles: float = _cost(
        0.6, "cycles/element", "writing an element of C where columns lie side by side, not rows"
    )
    epilogue_cycles: float = _cost(
        0.15, "cycles/element", "one step of an epilogue on an element of C", "calibrate"
    )
    near_share: float = _share(
        0.4,
        "of the cost of reading in place that is left where L2 holds all tensors",
        "calibrate",
    )
    transposed_pack_cycles: float = _cost(
        0.15, "cycles/element", "packing transposed rows, for each vector of rows but the first"
    )
    late_line_cycles: float = _cost(
        10.0, "cycles/line", "packing a line that comes late, beyond one in time", "calibrate"
    )
    # Reading operands in place
    in_place_rows_cycles: float = _cost(
        1.25, "cycles/element", "reading rows in place, each time an element enters L2"
    )
    in_place_columns_cycles: float = _cost(
        0.6, "cycles/element", "reading columns in place, each time an element enters L1"
    )
    in_place_rows_slowdown: float = _slowdown(
        1.3, "steps of k that read rows in place, with fewer than 32 registers", "kernels"
    )
    in_place_columns_slowdown: float = _slowdown(
        1.25, "steps of k that read columns in place", "kernels"
    )
    broadcast_cycles: float = _cost(
        0.35, "cycles/element", "reading an element of columns in place once more"
    )
    contraction_seconds: float = _cost(
        0.4e-6, "s/run", "run of a contraction besides its calls and packing", "calibrate"
    )
    # Statements
    statement_seconds: float = _cost(
        0.2e-6, "s/call", "call of a plan of statements besides what it computes", "calibrate"
    )
    cold_statement_seconds: float = _cost(
        40e-6, "s/call", "such a call where caches hold nothing of it: code comes from memory, too"
    )
    threads_seconds: float = _cost(
        20e-6, "s/call", "call by several threads besides what they compute", "calibrate"
    )
    cold_threads_seconds: float = _cost(
        200e-6, "s/call", "such a call where cores of other threads slept meanwhile", "calibrate"
    )
    cold_work_seconds: float = _cost(
        3e-6, "s/work", "work of a network besides what it computes: its code comes from far caches"
    )
    gather_cycles: float = _cost(
        1.0,
        "cycles/element",
        "loading an element by itself, such as at a computed position",
        "calibrate",
    )
    update_cycles: float = _cost(
        1.75, "cycles/element", "adding to an element at such a position", "calibrate"
    )
    operation_share: float = _share(
        0.73, "of an FMA's time that another operation takes, among others"
    )
    split_slowdown: float = _slowdown(1.5, "loads and stores of vectors across the end of a line")
    # Memory
    page_visit_seconds: float = _cost(15e-9, "s/visit", "going to another page of an operand")
    tlb_pages: float = _cost(2048.0, "pages", "pages that a core's TLB holds", least=1.0)
    part_line_seconds: float = _cost(
        8e-9, "s/run", "run of C amid lines whose end lines are completed later, beyond its bytes"
    )
    read_line_seconds: float = _cost(
        10e-9, "s/line", "writing a line of an array that another core has read, in a network"
    )
    cached_store_slowdown: float = _slowdown(
        1.5, "storing lines of C through the caches, in runs, beside past them", "calibrate"
    )
    aliased_store_slowdown: float = _slowdown(
        1.0, "short calls whose non-temporal stores have 4 KiB aliasing", "kernels"
    )
    prefetch_gain_ratio: float = _cost(
        0.9, "ratio", "time of short calls that prefetch rows of C, to others", "kernels"
    )
    shared_line_cycles: float = _cost(
        70.0, "cycles/row", "line that two rows of a nest share, where they go past the caches"
    )
    level_overlap: float = _share(
        0.25, "of the time of other levels that shows beside the slowest one's"
    )
    # Shares of caches
    private_share: float = _share(0.6, "of a core's own cache beyond L1, for tiles")
    shared_share: float = _share(0.3, "of a cache that cores share, for tiles")
    streaming_share: float = _share(0.5, "of the last cache, for tiles under non-temporal stores")
    prefetch_share: float = _share(0.9, "of L2, for a packed copy and the lines of the next one")
    kept_share: float = _share(0.5, "of L2, in which a packed copy stays while much passes by")
    last_cache_bytes_per_core: float = _cost(
        float(1 << 24), "bytes", "last cache that a core may count on, at most", least=1.0
    )
    # Transposes
    transpose_small_block_slowdown: float = _slowdown(
        2.0, "rows that are transposed by smaller blocks"
    )
    transpose_row_slowdown: float = _slowdown(4.0, "rows that are transposed one by one")

    def __post_init__(self) -> None:
        for known in fields(self):
            value = getattr(self, known.name)
            check_positive("costs", known.name, value)
            least, most = known.metadata["least"], known.metadata["most"]
            if not least <= value <= most:
                bound = f"at least {least:g}" if value < least else f"at most {most:g}"
                raise MachineError(f"costs: {known.name} must be {bound}, got {value!r}")

    def __hash__(self) -> int:
        # Plans are looked up by their machine: all fields would take as long as the rest of it.
        return hash((self.pack_cycles, self.private_share, self.level_overlap))


DEFAULT_COSTS = Costs()
"""What holds where a machine file says nothing."""

COST_NAMES = tuple(known.name for known in fields(Costs))
"""The fields of `Costs`, in order."""

MEASURED_RATIOS = (
    "in_place_rows_slowdown",
    "in_place_columns_slowdown",
    "aliased_store_slowdown",
    "prefetch_gain_ratio",
)
"""Costs that a catalogue of measured microkernels has in fields of the same name."""


def changed_costs(costs: Costs) -> dict[str, float]:
    """Return the costs that differ from their default.

    Examples
    --------
    >>> changed_costs(Costs(pack_cycles=3.0))
    {'pack_cycles': 3.0}
    """
    pairs = {name: getattr(costs, name) for name in COST_NAMES}
    return {name: cost for name, cost in pairs.items() if cost != getattr(DEFAULT_COSTS, name)}


def measured_costs(catalogues: Iterable[Catalogue], name: str) -> dict[str, float]:
    """Return what catalogues have of a cost, by dtype."""
    if name not in MEASURED_RATIOS:
        return {}
    ratios = {found.dtype: getattr(found, name) for found in catalogues}
    return {dtype: ratio for dtype, ratio in ratios.items() if ratio is not None}


class CostDescription(NamedTuple):
    """A cost with what is known of it; see `Costs`.

    `probe` is the subcommand that measures the cost; it is empty where none does.
    """

    name: str
    value: float
    unit: str
    meaning: str
    probe: str


def describe_costs(costs: Costs) -> tuple[CostDescription, ...]:
    """Return every cost with its unit, its meaning and the command that measures it.

    Examples
    --------
    >>> [one.name for one in describe_costs(Costs())][:2]
    ['call_cycles', 'tile_cycles']
    """
    return tuple(
        CostDescription(
            known.name,
            getattr(costs, known.name),
            *(known.metadata[what] for what in ("unit", "meaning", "probe")),
        )
        for known in fields(costs)
    )
