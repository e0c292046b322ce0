"""What a CPU's ways cost: one value, field by field with its unit, its meaning and its probe.

A machine file may give any of them in ``[costs]``; what it leaves out has the default. What stands
behind the defaults is in ``docs/decisions/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, NamedTuple

from tilesolve.contractions.errors import MachineError


def _cost(default: float, unit: str, meaning: str, probe: str = "") -> Any:  # noqa: ANN401
    """Return a dataclass field with what people need to know of it."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning, "probe": probe})


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one CPU, as plans count with them.

    Examples
    --------
    >>> Costs().pack_cycles
    2.5
    """

    # Calls of the microkernel, and packing
    call_cycles: float = _cost(60.0, "cycles/call", "a call besides its arithmetic", "kernels")
    tile_cycles: float = _cost(5.0, "cycles/tile", "the macrokernel's walk to the next tile")
    accumulate_cycles: float = _cost(80.0, "cycles/tile", "adding a tile to C, which lies in L2")
    pack_cycles: float = _cost(2.5, "cycles/element", "packing an element, from wherever it lies")
    near_share: float = _cost(
        0.4, "ratio", "of the costs of packing and of reading in place, where L2 holds all tensors"
    )
    transposed_pack_cycles: float = _cost(
        0.15, "cycles/element", "packing transposed rows, more for each further vector of rows"
    )
    late_line_cycles: float = _cost(
        10.0, "cycles/line", "packing a line that could not be prefetched, more than another"
    )
    # Reading operands in place
    in_place_rows_cycles: float = _cost(
        1.25, "cycles/element", "reading rows in place, each time an element enters L2"
    )
    in_place_columns_cycles: float = _cost(
        0.6, "cycles/element", "reading columns in place, each time an element enters L1"
    )
    in_place_rows_slowdown: float = _cost(
        1.3, "ratio", "of steps that read rows in place, with fewer than 32 registers", "kernels"
    )
    in_place_columns_slowdown: float = _cost(
        1.25, "ratio", "of steps that read columns in place", "kernels"
    )
    broadcast_cycles: float = _cost(
        0.35, "cycles/element", "reading an element of columns in place once more"
    )
    # Memory
    page_visit_seconds: float = _cost(15e-9, "s/visit", "going to another page of an operand")
    tlb_pages: float = _cost(2048.0, "pages", "whose addresses a core keeps translated")
    scattered_store_slowdown: float = _cost(
        2.5, "ratio", "of non-temporal stores line by line, to those in order"
    )
    scattered_line_share: float = _cost(
        0.7, "ratio", "of the speed of stores in runs, from which on C's lines may lie anywhere"
    )
    aliased_store_lines: float = _cost(
        8.0, "lines", "in a row whose places in pages count for non-temporal stores"
    )
    aliased_store_limit: float = _cost(
        1.25, "ratio", "of aliased non-temporal stores, from which on C goes through the caches"
    )
    prefetch_gain_limit: float = _cost(
        0.98, "ratio", "of a call's time, below which it prefetches rows of the next tile"
    )
    level_overlap: float = _cost(
        0.9, "ratio", "of the time of other levels that shows beside the slowest one"
    )
    feeding_ratio: float = _cost(
        1.4, "ratio", "of a cache's bandwidth to a register tile's need, from which on it feeds it"
    )
    # Shares of caches
    private_share: float = _cost(0.6, "ratio", "of a core's own cache beyond L1, for tiles")
    shared_share: float = _cost(0.3, "ratio", "of a cache that cores share, for tiles")
    streaming_share: float = _cost(0.5, "ratio", "of the last cache, where C passes it by")
    prefetch_share: float = _cost(0.9, "ratio", "of L2, for a copy and the lines of the next one")
    kept_share: float = _cost(0.5, "ratio", "of L2, in which a copy stays while much passes by")
    last_cache_bytes_per_core: float = _cost(
        float(1 << 24), "bytes", "of the last cache, at most, that a core may count on"
    )
    # Prefetching of what is packed next
    aliased_pages_ratio: float = _cost(
        2.0, "ratio", "of lines at one place in pages that evict each other, to those that stay"
    )
    prefetch_lines_per_page: float = _cost(
        8.0, "lines/page", "from which on hardware helps to prefetch a block"
    )
    prefetch_least_share: float = _cost(
        0.05, "ratio", "of a block's arithmetic that reading it takes, below which none is needed"
    )
    near_l3_memory_ratio: float = _cost(
        2.5, "ratio", "of an L3's bandwidth to memory's, from which on it counts as near"
    )
    near_l3_l2_ratio: float = _cost(
        0.6, "ratio", "of its bandwidth to L2's, which it must have, too"
    )
    whole_vector_fmas: float = _cost(
        1.5, "FMAs/cycle", "from which on whole vectors have two units, and halves gain nothing"
    )
    # Transposes
    transpose_near_share: float = _cost(
        0.25, "ratio", "of a near L3, for the source and the target of a transpose"
    )
    transpose_last_share: float = _cost(0.5, "ratio", "of another last cache, for the same")
    transpose_run_bytes: float = _cost(
        2048.0, "bytes", "of the target that a tile of a transpose has side by side, about"
    )
    transpose_long_run_bytes: float = _cost(
        float(1 << 15), "bytes", "of a run at most that holds all rows of a tile of a transpose"
    )
    transpose_tile_bytes: float = _cost(float(1 << 20), "bytes", "of a tile of a transpose, about")
    transpose_staging_bytes: float = _cost(
        5.0 * (1 << 12), "bytes", "of rows in the staging buffer of a transpose, about"
    )
    transpose_source_bytes: float = _cost(
        float(1 << 14), "bytes", "of rows that share lines of the source and stay in L1, about"
    )
    transpose_group_bytes: float = _cost(
        512.0, "bytes", "of rows that are transposed at once, without the staging buffer, about"
    )
    transpose_element_bytes: float = _cost(
        128.0, "bytes", "that stay together, from which on no staging buffer is needed"
    )
    transpose_aliased_lines: float = _cost(
        4.0, "lines/way", "of a set that the source of whole lines may have, of L2 or else L1"
    )
    transpose_block_lines: float = _cost(
        8.0, "lines", "at one place in pages that L1 holds: the side of a block then"
    )
    transpose_small_block_slowdown: float = _cost(
        2.0, "ratio", "of rows that are transposed by smaller blocks"
    )
    transpose_row_slowdown: float = _cost(4.0, "ratio", "of rows that are transposed one by one")
    # Einsum: who computes a contraction
    einsum_loop_products: float = _cost(
        float(1 << 13),
        "products",
        "up to which numpy's loops are fastest, for all operands at once",
    )
    einsum_kernel_flops: float = _cost(
        float(1 << 22), "flops", "of a matrix product from which on plans are as fast as BLAS"
    )
    einsum_plan_flops: float = _cost(
        float(1 << 27), "flops", "of a matrix product from which on a call of einsum plans it"
    )
    einsum_layout_flops: float = _cost(
        1e9, "flops", "of two planned steps from which on layouts between them are compared"
    )
    einsum_transpose_bytes: float = _cost(
        float(1 << 22), "bytes", "of a copy in another order from which on numpy does not make it"
    )
    einsum_batch_extent: float = _cost(
        8.0, "elements", "of a batch that comes last, from which on it is transposed to the front"
    )

    def __post_init__(self) -> None:
        for known in fields(self):
            value = getattr(self, known.name)
            if type(value) not in (int, float) or not (isfinite(value) and value > 0):
                raise MachineError(f"costs: {known.name} must be a positive number, got {value!r}")


DEFAULT_COSTS = Costs()
"""What holds where a machine file says nothing."""


class Described(NamedTuple):
    """A cost as it is shown: what it is called, its value, its unit, its meaning and its probe.

    Examples
    --------
    >>> described(Costs())[0].unit
    'cycles/call'
    """

    name: str
    value: float
    unit: str
    meaning: str
    probe: str


def described(costs: Costs) -> tuple[Described, ...]:
    """Return every cost with what people need to know of it.

    Examples
    --------
    >>> [one.name for one in described(Costs())][:2]
    ['call_cycles', 'tile_cycles']
    """
    return tuple(
        Described(known.name, getattr(costs, known.name), **known.metadata)
        for known in fields(costs)
    )
