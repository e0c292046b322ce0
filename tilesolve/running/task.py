"""Tasks: what one thread does for a plan and given strides, worked out once and then repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import MappingProxyType

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles
from tilesolve.kernels.codegen import pack
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.runtime import box_fields, macrokernel
from tilesolve.kernels.runtime import state as fields
from tilesolve.kernels.tuning import MAX_TILE_COLUMNS, MAX_TILE_VECTORS
from tilesolve.machine.kernel_cache import family_of, load_kernels
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offset_tables import TileLayout
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import ALIGNMENT_BYTES, GUARD_BYTES
from tilesolve.planning.prefetch import exceeds_second_cache, should_prefetch, third_cache_feeds
from tilesolve.planning.register_tile import fits_second_cache, stores_alias
from tilesolve.planning.solution import Solution
from tilesolve.running.schedule import Boxes, Schedule
from tilesolve.system import cancellation

Visit = tuple[dict[str, tuple[int, ...]], Integers]
"""The indices of each letter that a call covered, and its row of the trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One thread's part of a plan, for arrays of given strides.

    Parameters
    ----------
    schedule
        How the part is walked.
    start
        Where each letter of the part begins.
    boxes
        Sizes, corner and tables of every box.
    steps
        The same for the macrokernel.
    state
        The state before a run, see `kernels.runtime.state`.
    sums
        Offsets of packed k for both operands.
    words
        What a run is told, see `call_fields`.
    room
        Bytes of the packed copies of both operands.
    """

    schedule: Schedule
    start: dict[str, int]
    boxes: Boxes
    steps: Integers
    state: Integers
    sums: Integers
    words: Integers
    room: int

    @classmethod
    def of(
        cls,
        solution: Solution,
        problem: Problem,
        start: dict[str, int],
        strides: Sequence[tuple[int, ...]],
        packed: Mapping[int, str] = MappingProxyType({}),
    ) -> Task:
        """Return the task of a part of a plan's problem.

        Operands are packed as the plan says, and those that are named besides in the given level.
        """
        fused = solution.fused
        rows = fused.letters(fused.rows)[0] if fused.rows else None
        first = int(rows in Roles.of_spec(problem.spec).columns)
        roles = Roles.of_spec(problem.spec, rows=first)
        order = (0, 1 + first, 2 - first)
        given = [problem.spec.tensors[i].strides(strides[i]) for i in order]
        ends = _backwards(problem, given)
        steps = [{i: -step if i in ends else step for i, step in of.items()} for of in given]
        copies = [
            packed.get(at, level) for at, level in enumerate(solution.nest.packed or (None, None))
        ]
        machine = solution.machine
        schedule = Schedule.of(
            problem,
            solution.nest,
            family_of(problem.dtype, machine),
            steps,
            roles,
            (copies[first], copies[1 - first]),
        )
        boxes = schedule.boxes()
        longest = max(box.axes[SUMS].size for box in boxes.tables)
        sizes = np.array([schedule.step(ROWS), schedule.step(COLUMNS)])
        sums = np.ascontiguousarray(sizes[:, None] * np.arange(longest + 1))
        cell = dict(solution.nest.bands[0].box)
        streams = solution.output == "stream" and not stores_alias(problem, machine, steps[0], cell)
        state = _state(schedule, stream=streams)
        state[fields.PREFETCHES_NEXT_TILE] = machine.prefetches_next_rows(problem.dtype)
        # Kernels that read in place ask for no lines, and what is near need not be asked for.
        if all(schedule.packed) and not fits_second_cache(problem, machine):
            for side, level in enumerate(schedule.packed):
                box = Problem.of(problem.spec, dict(schedule.nest.bands[level].box), problem.dtype)
                state[fields.PREFETCHED + side] = should_prefetch(steps[1 + side], box, machine)
        bases = [_distance(start, of) + _distance(ends, of) for of in given]
        state[fields.BASES : fields.BASES + 3] = bases
        for side, row in enumerate(sums):
            state[fields.PACKED_SUM_OFFSETS + side] = row.ctypes.data
        taken = 0
        for side in (ROWS, COLUMNS):
            state[fields.COPY + side] = taken
            step = schedule.step(side)
            taken += max(box.copy_bytes(side, step) for box in boxes.tables) + GUARD_BYTES
            taken += -taken % ALIGNMENT_BYTES
        state[fields.PREFETCHES_PANELS] = exceeds_second_cache(
            int(state[fields.COPY + COLUMNS]), machine
        )
        rows = _rows(schedule, boxes, gathers=not third_cache_feeds(machine))
        call = [state.ctypes.data, rows.ctypes.data, len(boxes), first]
        words = np.array(call, np.int64)
        return cls(schedule, start, boxes, rows, state, sums, words, taken)

    def run(
        self, arrays: Sequence[Array], alpha: complex, beta: complex, trace: Integers | None = None
    ) -> int:
        """Compute the part and return how many calls of a microkernel that took."""
        memory = workspace(self.room)
        calls: int = macrokernel.run(
            self.words.ctypes.data,
            *map(id, arrays),
            memory.address,
            0 if trace is None else trace.ctypes.data,
            alpha.real,
            alpha.imag,
            beta.real,
            beta.imag,
        )
        return calls

    def visited(self, arrays: Sequence[Array]) -> list[Visit]:
        """Run the task and return what each call covered."""
        boxes, names = self.boxes, tuple(self.schedule.problem.sizes)
        calls = np.array([prod(box.cells(role) for role in range(4)) for box in boxes.tables])
        trace = np.zeros((int(calls[boxes.kinds].sum()), fields.TRACE_WORDS), np.int64)
        letters = [
            [self.schedule.indices(role, sizes) for role in range(4)] for sizes in boxes.sizes
        ]
        found = []
        for row in trace[: self.run(arrays, 1, 0, trace)]:
            corner = dict(zip(names, boxes.corners[row[9]].tolist(), strict=True))
            covered: dict[str, tuple[int, ...]] = {}
            ranges = ((row[0], row[1]), (row[2], row[3]), (row[4], row[5]), (row[6], 1))
            for table, (first, count) in zip(letters[boxes.kinds[row[9]]], ranges, strict=True):
                for letter, values in table.items():
                    begin = corner.get(letter, 0) + self.start.get(letter, 0)
                    covered[letter] = tuple(
                        sorted({int(x) + begin for x in values[first : first + count]})
                    )
            found.append((covered, row))
        return found


def in_place(solution: Solution) -> dict[int, str]:
    """Return which operands had better be packed if they begin amid a line, and in which level.

    A plan reads them where they lie: the elements of a line are then met together, often for the
    only time. Amid a line they are parts of two, and each line is fetched twice where the nearest
    cache cannot keep it (measured on a Granite Rapids: `abc-bda-dc` takes 115 instead of 43 ms). So
    they are packed where that happens to each element once, and the second cache holds not all.
    """
    problem, bands = solution.share, solution.nest.bands
    if fits_second_cache(problem, solution.machine):
        return {}
    found = {}
    for at, copy in enumerate(solution.nest.packed or (None, None)):
        own = problem.spec.operands[at].letters
        others = [letter for letter in problem.sizes if letter not in own]
        once = [band for band in bands[1:-1] if all(band[i] >= problem.sizes[i] for i in others)]
        if copy is None and once:
            found[at] = once[0].level
    return found


def _backwards(problem: Problem, strides: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the letters that are walked from their ends, and these.

    They are those that are contiguous backwards, in the first of the tensors that have them side
    by side: packing copies and turns what is contiguous, and gathers the rest one by one.
    """
    found = {}
    for letter, extent in problem.sizes.items():
        steps = (of.get(letter, 0) for of in strides)
        beside = next((step for step in steps if abs(step) == problem.itemsize), 0)
        if extent > 1 and beside < 0:
            found[letter] = extent - 1
    return found


def _distance(corner: Mapping[str, int], strides: Mapping[str, int]) -> int:
    """Return the bytes from a tensor's first element to the one at a corner."""
    return sum(strides.get(letter, 0) * at for letter, at in corner.items())


def _rows(schedule: Schedule, boxes: Boxes, *, gathers: bool) -> Integers:
    """Return a row of `box_fields` for each box, one after the other.

    Where a third cache is near, C that does not lie in whole lines had better not be gathered on
    its way past the caches (measured on a Zen 3: `abcd-dbea-ec` takes 169 ms so, and 126 through
    them).
    """
    letters = tuple(schedule.problem.sizes)
    kinds = np.zeros((len(boxes.tables), box_fields.SIZE), np.int64)
    for row, box in zip(kinds, boxes.tables, strict=True):
        row[box_fields.TABLES : box_fields.TABLES + len(box.tables)] = [
            t.ctypes.data for t in box.tables
        ]
        row[box_fields.TILES : box_fields.TILES + 2] = box.cells(ROWS), box.cells(COLUMNS)
        row[box_fields.ALIGNED], row[box_fields.STAGED] = box.aligned, box.long and gathers
    rows = kinds[boxes.kinds]
    strides = np.array([[of.get(i, 0) for i in letters] for of in schedule.strides], np.int64)
    offsets = boxes.corners @ strides.reshape(len(schedule.strides), len(letters)).T
    rows[:, box_fields.OFFSETS : box_fields.OFFSETS + len(schedule.strides)] = offsets
    sums = [at for at, letter in enumerate(letters) if letter in schedule.roles[SUMS]]
    rows[:, box_fields.HAS_FIRST_SUM] = ~boxes.corners[:, sums].any(axis=1)
    for side in (ROWS, COLUMNS):
        # A copy stays good while the operand's elements and their order do.
        kept = [
            box_fields.OFFSETS + 1 + side,
            *(box_fields.TABLES + r for r in (side, SUMS, BATCHES)),
        ]
        rows[:, box_fields.CHANGED + side] = 1
        rows[1:, box_fields.CHANGED + side] = np.any(rows[1:, kept] != rows[:-1, kept], axis=1)
        fresh = np.flatnonzero(rows[:, box_fields.CHANGED + side])
        numbers = np.arange(len(rows))
        following = np.append(fresh, 0)[np.searchsorted(fresh, numbers, side="right")]
        rows[:, box_fields.NEXT_CHANGE + side] = np.maximum(0, following - numbers)
    return rows.ravel()


def _state(schedule: Schedule, *, stream: bool) -> Integers:
    """Return the state of a run before its addresses and factors are known."""
    family, dtype = schedule.family, schedule.problem.dtype
    state = _kernel_addresses(family).copy()
    state[fields.TOP] = schedule.top
    for level, order in enumerate(schedule.run.orders[: schedule.top + 1]):
        state[fields.ORDERS + 4 * level : fields.ORDERS + 4 * level + 4] = order
    for side in (ROWS, COLUMNS):
        state[fields.PACKED_LEVEL + side] = schedule.packed[side]
        state[fields.PACK_KIND + side] = schedule.ways[side]
        state[fields.STEP_BYTES + side] = schedule.step(side)
        state[fields.GROUP + side] = schedule.group(side)
    state[fields.SINGLE] = dtype in ("float32", "complex64")
    state[fields.NON_TEMPORAL_BYTES] = family.bits // 8 if stream else 0
    state[fields.WHOLE_MODE] = Mode.STORE
    state[fields.FIRST_MODES + TileLayout.SCATTERED] = Mode.SCATTER
    state[fields.FIRST_MODES + TileLayout.PART] = Mode.PART
    later = Mode.SCATTER_ADD, Mode.PART_ADD, Mode.ADD
    state[fields.LATER_MODES : fields.LATER_MODES + len(TileLayout)] = later
    return state


@lru_cache(maxsize=32)
def _kernel_addresses(family: Family) -> Integers:
    """Return a state that knows where code is, and what ends a run, no more."""
    loaded = load_kernels(family)
    state = np.zeros(fields.SIZE, np.int64)
    state[fields.STOP] = cancellation.CANCEL_ADDRESS
    state[fields.PACK_SEGMENT : fields.KERNELS] = macrokernel.ADDRESSES
    addresses = state[fields.KERNELS :].reshape(
        fields.KERNEL_KINDS, MAX_TILE_VECTORS, MAX_TILE_COLUMNS
    )
    for shape in family.shapes:
        kind = fields.HALVED if shape.halved else fields.PACKED if shape.packed else fields.IN_PLACE
        addresses[kind, shape.vectors - 1, shape.columns - 1] = loaded.address(shape.name)
    if not family.halved:
        addresses[fields.HALVED] = addresses[fields.PACKED]
    for side, strip in enumerate(family.micro_panels):
        for number, kind_of_packer in enumerate(pack.KINDS):
            at = fields.PACKERS + len(pack.KINDS) * side + number
            state[at] = loaded.address(strip.name(kind_of_packer))
    return state
