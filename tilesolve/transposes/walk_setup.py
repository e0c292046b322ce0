"""Walks: the tables by which compiled code copies one strided array to another.

The source of the rows that follow is prefetched while blocks are transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from math import prod

import numpy as np

from tilesolve.constants import policy
from tilesolve.kernels.ir.transpose_blocks import BLOCK_KINDS, LISTED_KINDS
from tilesolve.kernels.runtime import transpose_walk
from tilesolve.kernels.runtime import walk_fields as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array, data_pointer_address
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES
from tilesolve.system.cancellation import stop_address
from tilesolve.system.workers import run_together
from tilesolve.transposes.limits import Limits, limits_in_force
from tilesolve.transposes.solution import (
    Strides,
    TransposeSolution,
    choose_stores,
    solve_transpose,
)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """How arrays of given strides are copied.

    Compiled code reads `table`, see `kernels.runtime.walk_fields`. The workspace holds the
    staging buffer, ends of runs that are kept, and offsets. `parts` are the trips of the
    outermost loop that each thread does.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> found = walk_between((3, 2), target.strides, source.T.strides, 8, 1, limits_in_force())
    >>> found.run(target, source.T)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    table: Integers
    address: int
    workspace_bytes: int
    parts: tuple[tuple[int, int], ...]

    def run(self, target: Array, source: Array) -> None:
        """Copy one array to the other."""
        jobs = [partial(self._run_part, target, source, *part) for part in self.parts]
        run_together(jobs, long=target.nbytes >= policy.LONG_COPY_BYTES)

    def _run_part(self, target: Array, source: Array, first: int, last: int) -> None:
        # A store that crosses pages is slow: the staging buffer begins with a page.
        memory = workspace(self.workspace_bytes + PAGE_BYTES)
        buffer = memory.address + -memory.address % PAGE_BYTES
        transpose_walk.run(
            self.address,
            data_pointer_address(target),
            data_pointer_address(source),
            buffer,
            first,
            last,
            stop_address(),
        )


def copy_strided(target: Array, source: Array, threads: int) -> None:
    """Copy an array that is not empty to another one of the same shape and dtype.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> copy_strided(target, source.T, 1)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    limits = limits_in_force()
    streamed, held = choose_stores(target.nbytes, limits)
    aligned = streamed and target.ctypes.data % LINE_BYTES == 0
    found = walk_between(
        source.shape,
        target.strides,
        source.strides,
        source.itemsize,
        threads,
        limits,
        streamed=streamed,
        aligned=aligned,
        held=held,
    )
    found.run(target, source)


@lru_cache(maxsize=256)
def walk_between(
    shape: tuple[int, ...],
    target_strides: Strides,
    source_strides: Strides,
    itemsize: int,
    threads: int,
    limits: Limits,
    *,
    streamed: bool = False,
    aligned: bool = False,
    held: bool = False,
) -> Walk:
    """Return the walk between arrays that are not empty; see `solve_transpose`.

    Examples
    --------
    >>> len(walk_between((400, 300), (2400, 8), (8, 3200), 8, 2, limits_in_force()).parts)
    2
    """
    solution = solve_transpose(
        shape,
        target_strides,
        source_strides,
        itemsize,
        threads,
        limits,
        streamed=streamed,
        aligned=aligned,
        held=held,
    )
    trips = solution.axes[solution.loops[0]].trips
    bounds = [trips * part // threads for part in range(threads + 1)]
    parts = tuple((low, high) for low, high in pairwise(bounds) if low < high)
    table = _table_of(solution)
    return Walk(table, table.ctypes.data, _workspace_bytes(solution, table.itemsize), parts)


def _table_of(solution: TransposeSolution) -> Integers:
    """Return the table that compiled code reads, see `kernels.runtime.walk_fields`."""
    walk, staging, sides = np.zeros(fields.SIZE, np.int64), solution.staging, solution.sides
    staging_bytes, kept_bytes = _staging_bytes(solution), solution.kept_bytes
    kinds = [_block_kind(solution, side) if side else 0 for side in sides]
    walk[fields.ELEMENT_BYTES] = solution.element
    walk[fields.COLUMNS], walk[fields.ROWS] = solution.columns, solution.rows
    blocks = np.stack([sides, kinds], axis=1).ravel()
    walk[fields.BLOCKS : fields.BLOCKS + len(blocks)] = blocks
    walk[fields.NON_TEMPORAL] = solution.streamed
    walk[fields.WHOLE], walk[fields.LISTED] = solution.whole, solution.listed
    walk[fields.START : fields.START + 2] = solution.begin
    walk[fields.RUN], walk[fields.RUN_AXIS] = staging.run
    walk[fields.GROUP] = staging.group
    walk[fields.PREFETCHES_NEXT_ROWS] = staging.prefetches_rows or not sides[0]
    walk[fields.JOINED], walk[fields.FILL_BYTES] = staging.joined, staging.piece
    walk[fields.KEPT] = kept_bytes and staging_bytes
    walk[fields.OFFSETS] = staging_bytes + kept_bytes
    walk[fields.TILE_FUNCTION] = address(transpose_walk.transpose_whole_tile)
    for at, (axis, step) in enumerate(zip(solution.axes, staging.steps, strict=True)):
        words = (axis.extent, axis.tile, axis.trips, axis.target_step, axis.source_step, step)
        first = fields.AXES + fields.AXIS_WORDS * at
        walk[first : first + fields.AXIS_WORDS] = words
    lists = (
        (fields.LOOPS, solution.loops),
        (fields.OUTER, staging.outer),
        (fields.INNER, staging.inner),
        (fields.FILLS, solution.fills),
    )
    for number, (field, members) in enumerate(lists):
        walk[fields.COUNTS + number] = len(members)
        walk[field : field + len(members)] = members
    return walk


def _staging_bytes(solution: TransposeSolution) -> int:
    """Return the bytes of the staging buffer, in whole lines."""
    return solution.staging.nbytes + -solution.staging.nbytes % LINE_BYTES


def _workspace_bytes(solution: TransposeSolution, word: int) -> int:
    """Return the bytes of all that one thread needs, offsets being words of so many bytes."""
    positions = prod(solution.axes[at].tile for at in solution.fills)
    columns = solution.axes[solution.columns].tile if solution.listed else 2
    return (
        _staging_bytes(solution) + solution.kept_bytes + word * positions * columns + 2 * LINE_BYTES
    )


def _block_kind(solution: TransposeSolution, side: int) -> int:
    """Return the number of blocks."""
    element = solution.element
    if solution.listed:
        return LISTED_KINDS.index((element, side))
    return BLOCK_KINDS.index((element, side, solution.whole and side * element == LINE_BYTES))
