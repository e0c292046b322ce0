"""Schedules: a policy for given strides as tables for the macrokernel.

In a band the loops of one role follow each other, and are walked together; see `Runner`.
Each tensor's address is a sum of one offset per role, and a tile of any level is a range of each
role's offsets. A *box* is the largest tile that is tabulated at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.constants import tuning
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.codegen.unrolling import prefetches_columns_of_c
from tilesolve.kernels.runtime.state import (
    KIND_COPY,
    KIND_GATHER,
    KIND_TRANSPOSE_ROWS,
    KIND_TRANSPOSE_SUMS,
)
from tilesolve.model.nest import Nest
from tilesolve.packing import table_fields
from tilesolve.packing.distinct_rows import number_rows
from tilesolve.packing.offset_tables import TileLayout, TransposedBlocks, offset_table
from tilesolve.packing.offsets import Integers, RoleAxis, RoleTile, build_axis
from tilesolve.packing.sizes import ALIGNMENT_BYTES, buffer_bytes, packed_bytes
from tilesolve.planning.layout_policy import (
    LayoutPolicy,
    Strides,
    contiguous_letter,
    letter_of_row_vectors,
)
from tilesolve.running.runs_of_c import mean_run_bytes, runs_of_tile
from tilesolve.running.sum_block import SumBlock

Known = dict[tuple[int, int, tuple[int, ...]], tuple[RoleAxis, Integers]]


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The tables of one box, and what they mean for the run.

    Parameters
    ----------
    axes
        One per role.
    tables
        The same for the macrokernel.
    panels, sums, batches
        The largest packed segment of each operand: its micro-panels, steps of k and batches.
    vector_places
        How many bytes the vectors of C are away from the box's first element, by bitwise or.
    has_long_runs
        Whether calls write C in runs that are long enough to go past the caches in parts of lines.
    is_whole
        Whether all register tiles are whole vectors side by side in C: no line is written by masks.
    tile_runs
        How many runs of C a register tile is: so many lines are written in part at once.
    fetches_columns
        Whether calls, of short sums, prefetch columns of C that they write through the caches.
    """

    axes: tuple[RoleAxis, ...]
    tables: tuple[Integers, ...]
    panels: tuple[int, int]
    sums: tuple[int, int]
    batches: tuple[int, int]
    vector_places: int
    has_long_runs: bool
    is_whole: bool
    tile_runs: int
    fetches_columns: bool

    def leaves_in_pieces(self, stages: bool) -> bool:
        """Return whether C leaves straight from registers in pieces of lines where they allow it.

        Long sums, and tiles of many runs, go through the staging buffer if there is one.
        """
        short = self.axes[SUMS].size < tuning.MIN_STEPS_TO_PREFETCH_C
        few = self.tile_runs <= tuning.MAX_RUNS_IN_PIECES or not stages
        return self.has_long_runs and self.is_whole and short and few

    def is_staged(self, stages: bool) -> bool:
        """Return whether what cannot leave straight from registers goes through the staging buffer.

        Tiles of many runs that end amid vectors take longer to stage than the caches take, and so
        do short sums, which cannot hide it, if the caches get lines before they are written.
        """
        few = self.is_whole or self.tile_runs <= tuning.MAX_RUNS_IN_PIECES
        return stages and self.has_long_runs and few and not self.fetches_columns

    def segment_bytes(self, side: int, step: int) -> int:
        """Return the most bytes of a packed segment of an operand, given those of one k."""
        return packed_bytes(self.panels[side], self.batches[side], self.sums[side], step)

    @property
    def tile_sides(self) -> tuple[set[int], set[int]]:
        """The vectors, and the columns, that its register tiles have."""
        rows = self.tables[ROWS]
        high = rows[rows[table_fields.GROUPS] :][: self.register_tiles(ROWS) + 1]
        wide = self.axes[COLUMNS].bounds[0]
        return set(np.diff(high).tolist()), set(np.diff(wide).tolist())

    def register_tiles(self, role: int) -> int:
        """Return how many register tiles a role has."""
        return len(self.axes[role].bounds[0]) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The boxes of a schedule, in the order in which they are walked.

    Many are alike, and share tables.

    Parameters
    ----------
    corners
        A row for each box: where each letter of the problem begins in it.
    kinds
        For each box the number of its kind.
    sizes
        The iterations of each letter, one mapping per kind.
    tables
        What the macrokernel reads, per kind.
    """

    corners: Integers
    kinds: Integers
    sizes: tuple[dict[str, int], ...]
    tables: tuple[Box, ...]

    def __len__(self) -> int:
        return len(self.kinds)

    def segment_bytes(self, side: int, step: int) -> int:
        """Return the bytes of a buffer for the largest packed segment of an operand."""
        return buffer_bytes(max(box.segment_bytes(side, step) for box in self.tables))


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """How one problem with given strides is walked.

    Parameters
    ----------
    problem
        The share of one thread.
    policy
        What was decided for these strides.
    family
        The kernels that are used.
    strides
        Bytes along each letter, of the output, the rows' operand and the columns' one as calls
        read it: of its window copy, if it has one.
    block
        Where calls write sums, if not to the output.
    lead
        Rows before C's first whole line, see `runs_of_c.find_lead`.

    Raises
    ------
    PlanError
        If more bands than can be run are inside of a copy's tile, or of the nearest one.
    """

    problem: Problem
    policy: LayoutPolicy
    family: Family
    strides: tuple[Strides, Strides, Strides]
    block: SumBlock | None = None
    lead: int = 0

    def __post_init__(self) -> None:
        if self.top >= tuning.MAX_LEVELS:
            raise PlanError(
                f"a copy's tile has {self.top} bands of loops: at most {tuning.MAX_LEVELS - 1} "
                "can be run"
            )

    @property
    def nest(self) -> Nest:
        """The loops and tiles, as they are run."""
        return self.policy.nest

    @property
    def roles(self) -> Roles:
        """The letters of rows, columns, sums and batches."""
        return self.policy.roles

    @property
    def packed(self) -> tuple[int, int]:
        """The number of the band that has the rows' and the columns' copy; 0: read in place."""
        return self.policy.packed

    @property
    def top(self) -> int:
        """The number of the band whose tile is a box, which is tabulated at once."""
        return self.policy.top

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return self.problem.itemsize

    @property
    def pack_kinds(self) -> tuple[int, int]:
        """The packing kernel of each operand."""
        return self._pack_kind(ROWS), self._pack_kind(COLUMNS)

    def lane(self, side: int) -> str | None:
        """Return the letter that runs along the lanes of packed rows or columns.

        For columns it is their operand's contiguous letter, if a register tile has a micro-panel's
        width of it; else the innermost letter of which a register tile has several.
        """
        if side == ROWS:
            return letter_of_row_vectors(self.problem, self.roles, self.policy.strides[0])
        columns = [i for i in self.roles.columns if self.problem.sizes[i] > 1]
        preferred = contiguous_letter(self.problem, self.strides[2])
        register = self.nest.bands[0]
        if preferred in columns and register[preferred] >= self.family.group:
            return preferred
        inner = [i for i in register.order if i in columns]
        return next((i for i in inner if register[i] > 1), next(iter(inner), None))

    @property
    def _parts(self) -> int:
        """Parts of vectors that rows are cut along: halves where kernels leave out empty ones."""
        return 2 if self.family.halved else 1

    def _axis(
        self, role: int, tiles: Sequence[RoleTile], strides: Sequence[Strides], parts: int
    ) -> RoleAxis:
        """Return the axis of a box: rows are cut along so many parts of vectors."""
        lane = self.lane(ROWS) if role == ROWS else None
        lanes = {lane: self.family.lanes} if lane else {}
        lead = self.lead if role == ROWS else 0
        return build_axis(tiles, strides, lanes, parts, self.nest.sequences, lead)

    def _pack_kind(self, side: int) -> int:
        unit = contiguous_letter(self.problem, self.strides[1 + side])
        if unit is None:
            return KIND_GATHER
        if unit in self.roles[SUMS]:
            return KIND_TRANSPOSE_SUMS
        if unit == self.lane(side):
            return KIND_COPY
        return KIND_TRANSPOSE_ROWS if unit in self.roles[side] else KIND_GATHER

    # Boxes

    def boxes(self) -> Boxes:
        """Return the sizes, the corners and the tables of all boxes, in the nest's order."""
        corners, sizes = self._walk(len(self.nest.bands) - 1, tuple(self.problem.sizes.values()))
        firsts, at = number_rows(sizes)
        kinds = sizes[firsts].tolist()
        named = tuple(dict(zip(self.problem.sizes, kind, strict=True)) for kind in kinds)
        known: Known = {}
        boxes = tuple(self._box(of, known) for of in named)
        return Boxes(corners, at, named, boxes)

    def _walk(self, level: int, sizes: tuple[int, ...]) -> tuple[Integers, Integers]:
        """Return where the boxes of a level's tile begin, and their sizes."""
        if level == self.top:
            return np.zeros((1, len(sizes)), np.int64), np.array([sizes], np.int64)
        order = self.nest.bands[level].order[::-1]
        extents = dict(zip(self.problem.sizes, sizes, strict=True))
        cells = {letter: self._cut(level, letter, extents[letter]) for letter in order}
        begins = [np.cumsum(cells[letter]) - cells[letter] for letter in order]
        grids = (np.meshgrid(*of, indexing="ij") for of in (begins, cells.values()))
        starts, cut = (
            np.stack([grid[order.index(letter)].ravel() for letter in self.problem.sizes], axis=1)
            for grid in grids
        )
        if level - 1 == self.top:
            return starts, cut
        firsts, at = number_rows(cut)
        walks = [self._walk(level - 1, tuple(kind)) for kind in cut[firsts].tolist()]
        within = [walks[kind] for kind in at]
        corners = [start + walk[0] for start, walk in zip(starts, within, strict=True)]
        return np.concatenate(corners), np.concatenate([walk[1] for walk in within])

    def _cut(self, level: int, letter: str, size: int) -> Integers:
        """Return the sizes of the nearer level's tiles in a level's tile of some size."""
        sequence = self.nest.sequences.get(letter)
        if sequence is not None:
            return np.array(sequence.cut(level, size), np.int64)
        side = self.nest.bands[level - 1][letter]
        return np.minimum(side, size - np.arange(0, max(1, size), side))

    def _tiles(self, role: int, sizes: Mapping[str, int]) -> list[RoleTile]:
        members = self.roles[role]
        tiles = []
        for at, band in enumerate(self.nest.bands[: self.top + 1]):
            order = tuple(letter for letter in band.order if letter in members)
            if at == 0 and role in (ROWS, COLUMNS):
                lane = self.lane(role)
                order = tuple(sorted(order, key=lambda letter: letter != lane))
            box = dict(sizes) if at == self.top else {i: min(band[i], sizes[i]) for i in order}
            if at == 0:
                box = self.policy.runner.register_box(role, order, box, band)
            tiles.append(RoleTile(order, tuple(box[i] for i in order)))
        return tiles

    def _box(self, sizes: Mapping[str, int], known: Known) -> Box:
        """Return a box's tables; it shares those of a role with boxes that have as much of it.

        Long runs that go past the caches are of whole vectors.
        """
        axes, tables = self._axes(sizes, known, 1 if self.policy.non_temporal else self._parts)
        if not self._has_long_runs(axes):
            axes, tables = self._axes(sizes, known, self._parts)
        segments = [self._largest_segment(side, axes, tables) for side in (ROWS, COLUMNS)]
        panels, sums, batches = zip(*segments, strict=True)
        stored = _array(tables[ROWS], table_fields.STORED, table_fields.ALIKE)
        return Box(
            tuple(axes),
            tuple(tables),
            panels,
            sums,
            batches,
            self._vector_places(axes, tables),
            self._has_long_runs(axes),
            bool(np.all(stored == TileLayout.WHOLE)),
            runs_of_tile(axes, self.problem.sum_itemsize),
            self._fetches_columns(axes[SUMS].size),
        )

    def _axes(
        self, sizes: Mapping[str, int], known: Known, parts: int
    ) -> tuple[list[RoleAxis], list[Integers]]:
        """Return the axes of a box and their tables, rows cut along parts of vectors."""
        axes, tables = [], []
        for role, letters in enumerate(self.roles):
            key = (role, parts, tuple(sizes[letter] for letter in letters))
            if key not in known:
                axis = self._axis(role, self._tiles(role, sizes), self.strides, parts)
                axis = self.block.place(axis) if self.block else axis
                known[key] = axis, self._table(role, axis)
            axes.append(known[key][0])
            tables.append(known[key][1])
        return axes, tables

    def _fetches_columns(self, steps: int) -> bool:
        """Return whether calls for so many sums at most prefetch columns of C."""
        kernel = Shape(
            self.problem.dtype, self.family.bits, 1, 1, 1, packed=self.policy.reads_panels
        )
        return steps < tuning.MIN_STEPS_TO_PREFETCH_C and prefetches_columns_of_c(kernel)

    def _has_long_runs(self, axes: Sequence[RoleAxis]) -> bool:
        return mean_run_bytes(axes, self.problem.sum_itemsize) >= tuning.MIN_STAGED_RUN_BYTES

    def _largest_segment(
        self, side: int, axes: Sequence[RoleAxis], tables: Sequence[Integers]
    ) -> tuple[int, int, int]:
        """Return the most micro-panels, steps of k and batches that an operand's copy has."""
        level = self.packed[side]
        if not level:
            return 0, 0, 1
        groups = tables[side][tables[side][table_fields.GROUPS] :]
        panels = [0]
        for segment in range(len(axes[side].bounds[level]) - 1):
            low, high = axes[side].register_tiles(level, segment)
            panels.append(int(groups[high] - groups[low]))
        sums, batches = (_longest(axes[role], level) for role in (SUMS, BATCHES))
        return max(panels), sums, max(1, batches)

    def _table(self, role: int, axis: RoleAxis) -> Integers:
        """Return what the macrokernel reads of an axis."""
        blocks: list[TransposedBlocks | None] = [None, None]
        for side in (ROWS, COLUMNS):
            transposed = {KIND_TRANSPOSE_SUMS: SUMS, KIND_TRANSPOSE_ROWS: side}.get(
                self.pack_kinds[side]
            )
            if self.packed[side] and transposed == role:
                steps = self.strides[1 + side].values()
                whole_lines = all(
                    step % ALIGNMENT_BYTES == 0 for step in steps if step != self.element
                )
                blocks[side] = TransposedBlocks(
                    self.packed[side], self.group(side), self.element, whole_lines
                )
        if role not in (ROWS, COLUMNS):
            return offset_table(axis, transposed=blocks)
        return offset_table(
            axis,
            operand=1 + role,
            group=self.group(role),
            element=self.element,
            written=self.problem.sum_itemsize,
            transposed=blocks,
        )

    def _vector_places(self, axes: Sequence[RoleAxis], tables: Sequence[Integers]) -> int:
        starts = _array(tables[ROWS], table_fields.GROUP_STARTS, table_fields.GROUP_COUNTS)
        if self.lead:  # other tiles than whole ones are stored by masks
            groups = np.diff(_array(tables[ROWS], table_fields.GROUPS, table_fields.GROUP_STARTS))
            stored = _array(tables[ROWS], table_fields.STORED, table_fields.ALIKE)
            starts = starts[np.repeat(stored == TileLayout.WHOLE, groups)]
        rows = axes[ROWS].offsets[0][starts] - self.lead * self.element
        every = rows, axes[COLUMNS].offsets[0], axes[BATCHES].offsets[0]
        return int(np.bitwise_or.reduce(np.concatenate(every)))

    def group(self, side: int) -> int:
        """Return the rows or columns of one micro-panel."""
        return (self.family.lanes, self.family.group)[side]

    def step(self, side: int) -> int:
        """Return the bytes of one step of k of a micro-panel."""
        return self.group(side) * self.problem.sum_itemsize

    @property
    def corner_strides(self) -> tuple[Strides, Strides, Strides]:
        """Bytes that tensors' parts are away from their beginning for each index of a corner."""
        output = self.block.corner_strides if self.block else self.strides[0]
        return output, *self.strides[1:]

    def indices(self, role: int, sizes: Mapping[str, int]) -> dict[str, Integers]:
        """Return each letter's index in the order in which a box is walked."""
        return {letter: self.offsets(role, sizes, {letter: 1}) for letter in self.roles[role]}

    def offsets(self, role: int, sizes: Mapping[str, int], of: Strides) -> Integers:
        """Return the offsets of a role's indices in a tensor, in the order of a box's walk."""
        return self._axis(role, self._tiles(role, sizes), (of, of, of), self._parts).offsets[0]


def _longest(axis: RoleAxis, level: int) -> int:
    """Return the most indices that a segment of a level has."""
    ranges = (axis.range(level, segment) for segment in range(len(axis.bounds[level]) - 1))
    return max((last - first for first, last in ranges), default=0)


def _array(found: Integers, begin: int, end: int) -> Integers:
    """Return the part of a table between two fields' data."""
    return found[found[begin] : found[end]]
