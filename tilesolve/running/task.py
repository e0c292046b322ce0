"""Tasks: what one thread does for a solution and given strides, worked out once and repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from tilesolve.constants.tuning import MAX_TILE_COLUMNS, MAX_TILE_VECTORS, WIDE_VECTOR_BITS
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, shared_lane
from tilesolve.kernels.codegen import pack
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.codegen.shape import Mode
from tilesolve.kernels.codegen.unrolling import stores_lines
from tilesolve.kernels.runtime import box_fields, call_fields, macrokernel
from tilesolve.kernels.runtime import state as fields
from tilesolve.kernels.runtime.boxes import pack_boxes
from tilesolve.kernels.runtime.compiled import address
from tilesolve.machine.kernel_cache import family_of, is_being_made, load_kernels
from tilesolve.packing.buffers import Bytes, workspace
from tilesolve.packing.distinct_rows import number_rows
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offset_tables import TileLayout
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import buffer_bytes, panel_bytes
from tilesolve.planning.layout_policy import Strides, contiguous_letter, policy_of
from tilesolve.planning.solution import Solution
from tilesolve.running.epilogue_tables import EpilogueTables
from tilesolve.running.runs_of_c import find_lead
from tilesolve.running.schedule import Boxes, Schedule
from tilesolve.running.sum_block import SumBlock
from tilesolve.running.window_copies import (
    copier,
    lay_out_windows,
    place_copies,
    read_strides,
    window_records,
)
from tilesolve.system import cancellation

Visit = tuple[dict[str, tuple[int, ...]], Integers]
"""The indices of each letter that a call covered, and its row of the trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One thread's part of a solution, for arrays of given strides.

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
    records
        Of each operand's window copy, see `window_fields`; nothing where it has none.
    epilogue
        What the pass over C reads; None if there is none.
    prepared_bytes
        Bytes of both operands' prepared copies; 0 for none.
    workspace_bytes
        Bytes of the copies of both operands that each run makes, and of the block of sums.
    sums_at
        Bytes from the workspace's beginning to that block.
    """

    schedule: Schedule
    start: dict[str, int]
    boxes: Boxes
    steps: Integers
    state: Integers
    sums: Integers
    words: Integers
    records: tuple[Integers | None, ...]
    epilogue: EpilogueTables | None
    prepared_bytes: tuple[int, int]
    workspace_bytes: int
    sums_at: int

    @classmethod
    def of(
        cls,
        solution: Solution,
        problem: Problem,
        start: dict[str, int],
        strides: Sequence[tuple[int, ...]],
        prepared: Sequence[int] = (),
        operands: Sequence[Strides] = (),
        place: int = 0,
    ) -> Task:
        """Return the task of a part of a solution's problem.

        Parameters
        ----------
        solution
            What is run.
        problem, start
            The part, and where its letters begin.
        strides
            Of the output and the operands.
        prepared
            The numbers of operands with prepared copies.
        operands
            Bytes along each letter, of each of the epilogue's operands.
        place
            Bytes from a line's beginning to where the output begins.
        """
        tensors = solution.problem.spec.tensors
        given = [tensor.strides(steps) for tensor, steps in zip(tensors, strides, strict=True)]
        policy = policy_of(solution, problem, given, prepared)
        pairing = problem.pairing and str(problem.pairing.of_operand(policy.rows_operand))
        family = family_of(problem.dtype, solution.machine, pairing or "")
        windows = lay_out_windows(solution.problem, problem, policy, strides)
        block = SumBlock.of(problem, policy)
        output, *read = read_strides(policy, windows)
        output = block.strides if block else output
        lead = find_lead(problem, policy, output, family.lanes, place)
        schedule = Schedule(problem, policy, family, (output, read[0], read[1]), block, lead)
        boxes = schedule.boxes()
        records = [
            None if copy is None else window_records(copy, boxes, problem, policy, start)
            for copy in windows
        ]
        longest = max(box.axes[SUMS].size for box in boxes.tables)
        sizes = np.array([schedule.step(ROWS), schedule.step(COLUMNS)])
        sums = np.ascontiguousarray(sizes[:, None] * np.arange(longest + 1))
        state = _state(schedule, boxes)
        state[fields.COPY_WINDOWS] = copier(windows)
        rows = policy.rows_operand
        in_order = given[0], given[1 + rows], given[2 - rows]
        bases = [_distance(start, of) + _distance(policy.last, of) for of in in_order]
        for side, copy in enumerate(windows):
            bases[1 + side] *= copy is None  # records count from the array's first element
        bases[0] *= block is None
        state[fields.BASES : fields.BASES + 3] = bases
        for side, row in enumerate(sums):
            state[fields.PACKED_SUM_OFFSETS + side] = row.ctypes.data
        taken = place_copies(state, schedule, boxes, windows)
        sums_at, taken = taken, taken + (buffer_bytes(block.size_bytes) if block else 0)
        steps, ready = tabulate_boxes(schedule, boxes, records)
        epilogue = None
        if solution.epilogue is not None or block:
            given_last = [*operands, given[0]] if block else operands
            epilogue = EpilogueTables.of(solution.epilogue, schedule, boxes, start, given_last)
            add_epilogue(state, steps, epilogue)
        words = np.array([state.ctypes.data, steps.ctypes.data, len(boxes), rows], np.int64)
        return cls(
            schedule,
            start,
            boxes,
            steps,
            state,
            sums,
            words,
            tuple(records),
            epilogue,
            ready,
            taken,
            sums_at,
        )

    def another(self) -> Task:
        """Return the same task, which may read other prepared copies."""
        state, words = self.state.copy(), self.words.copy()
        words[call_fields.STATE] = state.ctypes.data
        return replace(self, state=state, words=words)

    def prepare(self, side: int, address: int, copy: Bytes) -> None:
        """Make the prepared copy of an operand whose array is at an address."""
        pack_boxes(self.words.ctypes.data, side, address, copy.ctypes.data)

    def prepared_key(self, side: int) -> bytes:
        """Return what tells the prepared copies of an operand apart that tasks read."""
        found = hashlib.sha256(self.state[fields.BASES + 1 + side].tobytes())
        steps = self.steps.reshape(-1, box_fields.SIZE)
        for field in (box_fields.OFFSETS + 1, box_fields.PREPARED, box_fields.PREPARED_PANEL):
            found.update(steps[:, field + side].tobytes())
        for box in self.boxes.tables:
            for role in (side, SUMS, BATCHES):
                found.update(box.tables[role].tobytes())
        return found.digest()

    def use_prepared(self, side: int, copy: Bytes) -> None:
        """Have runs read a prepared copy."""
        self.state[fields.PREPARED_COPY + side] = copy.ctypes.data

    def run(
        self,
        arrays: Sequence[Array],
        alpha: complex,
        beta: complex,
        operands: Integers | None = None,
        trace: Integers | None = None,
    ) -> int:
        """Compute the part and return how many calls of a microkernel that took.

        `operands` are the addresses of the epilogue's.
        """
        memory, words = workspace(self.workspace_bytes), self.words
        if self.schedule.block is not None:
            out, *others = arrays
            known = () if operands is None else operands
            operands = np.array([*known, out.ctypes.data], np.int64)
            arrays = (memory.bytes[self.sums_at :], *others)
            adding = self._adding(beta.real) if beta else None
            words, beta = (adding[-1] if adding else words), 0
        calls: int = macrokernel.run(
            words.ctypes.data,
            *map(id, arrays),
            memory.address,
            0 if operands is None else operands.ctypes.data,
            0 if trace is None else trace.ctypes.data,
            cancellation.stop_address(),
            alpha.real,
            alpha.imag,
            beta.real,
            beta.imag,
        )
        return calls

    def _adding(self, beta: float) -> tuple[Integers, Integers, Integers]:
        """Return a program that adds so much of C to the sums, and state and words with it."""
        assert self.epilogue is not None
        program = self.epilogue.adding_program(self.schedule.problem.dtype, beta)
        state, words = self.state.copy(), self.words.copy()
        state[fields.EPILOGUE_PROGRAM] = program.ctypes.data
        words[call_fields.STATE] = state.ctypes.data
        return program, state, words

    def trace(self, arrays: Sequence[Array]) -> list[Visit]:
        """Run the task and return what each call covered."""
        boxes, names = self.boxes, tuple(self.schedule.problem.sizes)
        calls = np.array(
            [prod(box.register_tiles(role) for role in range(4)) for box in boxes.tables]
        )
        trace = np.zeros((int(calls[boxes.kinds].sum()), fields.TRACE_WORDS), np.int64)
        letters = [
            [self.schedule.indices(role, sizes) for role in range(4)] for sizes in boxes.sizes
        ]
        found = []
        for row in trace[: self.run(arrays, 1, 0, trace=trace)]:
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


def _distance(corner: Mapping[str, int], strides: Mapping[str, int]) -> int:
    """Return the bytes from a tensor's first element to the one at a corner."""
    return sum(strides.get(letter, 0) * at for letter, at in corner.items())


def tabulate_boxes(
    schedule: Schedule, boxes: Boxes, records: Sequence[Integers | None]
) -> tuple[Integers, tuple[int, int]]:
    """Return a row of `box_fields` for each box, in a row, and the bytes of prepared copies."""
    stages = schedule.policy.stages_output
    letters = tuple(schedule.problem.sizes)
    kinds = np.zeros((len(boxes.tables), box_fields.SIZE), np.int64)
    for row, box in zip(kinds, boxes.tables, strict=True):
        row[box_fields.TABLES : box_fields.TABLES + len(box.tables)] = [
            t.ctypes.data for t in box.tables
        ]
        row[box_fields.TILES : box_fields.TILES + 2] = (
            box.register_tiles(ROWS),
            box.register_tiles(COLUMNS),
        )
        row[box_fields.VECTOR_PLACES] = box.vector_places
        row[box_fields.LEAD_BYTES] = schedule.lead * schedule.element
        row[box_fields.STREAMS_PIECES] = box.leaves_in_pieces(stages)
        row[box_fields.STAGED] = box.is_staged(stages)
    rows = kinds[boxes.kinds]
    tensors = schedule.corner_strides
    strides = np.array([[of.get(i, 0) for i in letters] for of in tensors], np.int64)
    offsets = boxes.corners @ strides.reshape(len(tensors), len(letters)).T
    rows[:, box_fields.OFFSETS : box_fields.OFFSETS + len(schedule.strides)] = offsets
    for kind in range(len(kinds)):
        alike = np.flatnonzero(boxes.kinds == kind)
        rows[alike[:-1], box_fields.NEXT_OUTPUT] = np.diff(offsets[alike, 0])
    sums = [at for at, letter in enumerate(letters) if letter in schedule.roles[SUMS]]
    rows[:, box_fields.HAS_FIRST_SUM] = ~boxes.corners[:, sums].any(axis=1)
    sizes = np.array([[of[letter] for letter in letters] for of in boxes.sizes], np.int64)
    ends = boxes.corners + sizes.reshape(len(boxes.sizes), len(letters))[boxes.kinds]
    extents = np.array([schedule.problem.sizes[letter] for letter in letters], np.int64)
    rows[:, box_fields.HAS_LAST_SUM] = (ends == extents)[:, sums].all(axis=1)
    counts = np.array([box.axes[SUMS].size for box in boxes.tables], np.int64)
    rows[:, box_fields.SUM_COUNT] = counts[boxes.kinds]
    ready = [0, 0]
    for side, record in enumerate(records):
        # A copy stays good while the operand's elements and their order do.
        kept = rows[
            :,
            [
                box_fields.OFFSETS + 1 + side,
                *(box_fields.TABLES + r for r in (side, SUMS, BATCHES)),
            ],
        ]
        if record is not None:
            size = record.itemsize * record.shape[1]
            places = record.ctypes.data + size * np.arange(len(rows))
            rows[:, box_fields.WINDOWS + side] = places
            kept = np.hstack([kept, record])
        if schedule.policy.prepared[side]:
            ready[side] = _place_prepared(rows, schedule, boxes, side, kept)
        rows[:, box_fields.CHANGED + side] = 1
        rows[1:, box_fields.CHANGED + side] = np.any(kept[1:] != kept[:-1], axis=1)
        fresh = np.flatnonzero(rows[:, box_fields.CHANGED + side])
        numbers = np.arange(len(rows))
        following = np.append(fresh, 0)[np.searchsorted(fresh, numbers, side="right")]
        rows[:, box_fields.NEXT_CHANGE + side] = np.maximum(0, following - numbers)
    return rows.ravel(), (ready[0], ready[1])


def _place_prepared(
    rows: Integers, schedule: Schedule, boxes: Boxes, side: int, kept: Integers
) -> int:
    """Set the fields of an operand's prepared copy, and return its bytes.

    It has the micro-panels of each box, one after the other; boxes that have the same of the
    operand share them.
    """
    step = schedule.step(side)
    panels = np.array([panel_bytes(box.sums[side], step) for box in boxes.tables])[boxes.kinds]
    counts = np.array([box.panels[side] for box in boxes.tables])[boxes.kinds]
    batches = np.array([box.batches[side] for box in boxes.tables])[boxes.kinds]
    rows[:, box_fields.PREPARED_PANEL + side] = panels
    rows[:, box_fields.PREPARED_BATCH + side] = panels * counts
    first, same = number_rows(kept)
    sizes = np.array([buffer_bytes(int(size)) for size in (panels * counts * batches)[first]])
    ends = np.cumsum(sizes)
    rows[:, box_fields.PREPARED + side] = (ends - sizes)[same]
    rows[first, box_fields.PREPARES + side] = 1
    return int(ends[-1])


def add_epilogue(state: Integers, steps: Integers, tables: EpilogueTables) -> None:
    """Tell runs of the pass over C; what is compiled for it is loaded where it is needed."""
    from tilesolve.kernels.runtime.epilogues import pass_over

    state[fields.EPILOGUE] = address(pass_over)
    state[fields.EPILOGUE_PROGRAM] = tables.program.ctypes.data
    state[fields.OPERAND_COUNT] = tables.records.shape[1]
    size = tables.records.itemsize * prod(tables.records.shape[1:])
    places = tables.records.ctypes.data + size * np.arange(len(tables.records))
    steps.reshape(-1, box_fields.SIZE)[:, box_fields.OPERANDS] = places
    if tables.in_kernels:
        tables.in_kernels.tell(state, tables.later)


def _add_turning(state: Integers) -> None:
    """Have runs turn tiles on their way to C; what does so is loaded where it is needed."""
    from tilesolve.kernels.runtime.transposed_output import addresses

    state[fields.LAY_OUT_TRANSPOSED : fields.KERNELS] = addresses()


def _state(schedule: Schedule, boxes: Boxes) -> Integers:
    """Return the state of a run before its addresses and factors are known."""
    family, dtype, policy = schedule.family, schedule.problem.dtype, schedule.policy
    if shared_lane(schedule.problem):
        family = replace(family, lanewise=True)
    elif policy.mixes:
        family = replace(family, mixed=not schedule.packed[COLUMNS])
    part = policy.reads_panels
    # There are too many pairings to compile more than is run, and all others take seconds.
    if family.pairing or is_being_made(family, packed=part):
        high, wide = zip(*(box.tile_sides for box in boxes.tables), strict=True)
        sides = tuple(product(sorted(set().union(*high)), sorted(set().union(*wide))))
        family = replace(family, only=sides)
    state = _kernel_addresses(family, part).copy()
    if contiguous_letter(schedule.problem, schedule.strides[0]) in schedule.roles.columns:
        _add_turning(state)
    state[fields.TOP] = schedule.top
    for level, band in enumerate(policy.nest.bands[: schedule.top + 1]):
        at = fields.ORDERS + 4 * level
        state[at : at + 4] = policy.runner.order(band.order)
    for side in (ROWS, COLUMNS):
        state[fields.PACKED_LEVEL + side] = (
            fields.PREPARED_LEVEL if policy.prepared[side] else schedule.packed[side]
        )
        state[fields.PACK_KIND + side] = schedule.pack_kinds[side]
        state[fields.STEP_BYTES + side] = schedule.step(side)
        state[fields.GROUP + side] = schedule.group(side)
    state[fields.SINGLE] = summed_dtype(dtype) in ("float32", "complex64")
    state[fields.NON_TEMPORAL_BYTES] = family.bits // 8 if policy.non_temporal else 0
    state[fields.PREFETCHES_NEXT_TILE] = policy.prefetches_next_rows
    state[fields.PREFETCHED : fields.PREFETCHED + 2] = policy.prefetched
    state[fields.WHOLE_MODE] = Mode.STORE
    state[fields.FIRST_MODES + TileLayout.SCATTERED] = Mode.SCATTER
    state[fields.FIRST_MODES + TileLayout.PART] = Mode.PART
    later = Mode.SCATTER_ADD, Mode.PART_ADD, Mode.ADD
    state[fields.LATER_MODES : fields.LATER_MODES + len(TileLayout)] = later
    return state


def _addresses_of_kinds(state: Integers) -> Integers:
    """Return the part of a state that has the microkernels' addresses: by kind, rows, columns."""
    return state[fields.KERNELS :].reshape(fields.KERNEL_KINDS, MAX_TILE_VECTORS, MAX_TILE_COLUMNS)


@lru_cache(maxsize=32)
def _kernel_addresses(family: Family, packed: bool) -> Integers:
    """Return a state that knows where code is, and what ends a run, no more.

    The macrokernel calls kernels of one part alone: which, follows from what is packed.
    """
    state = np.zeros(fields.SIZE, np.int64)
    state[fields.STOP] = cancellation.CANCEL_ADDRESS
    state[fields.PACK_SEGMENT : fields.COPY_WINDOWS] = macrokernel.addresses()
    loaded = load_kernels(family, packed=packed)  # another process may make them meanwhile
    addresses = _addresses_of_kinds(state)
    whole = fields.MIXED if family.mixed else fields.PACKED if packed else fields.IN_PLACE
    storing = [one for one in family.part(packed=packed) if stores_lines(one)]
    state[fields.STORING_VECTORS] = min((s.vectors * s.columns for s in storing), default=0)
    state[fields.LISTS_BY_VECTORS] = family.bits >= WIDE_VECTOR_BITS
    for shape in family.part(packed=packed):
        kind = fields.HALVED if shape.halved else whole
        addresses[kind, shape.vectors - 1, shape.columns - 1] = loaded.address(shape.name)
    if not packed:  # they serve packed rows, too, where mixed kernels would gain nothing
        addresses[fields.MIXED] = addresses[fields.IN_PLACE]
    if not (packed and family.halved):
        addresses[fields.HALVED] = addresses[whole]
    for side, strip in enumerate(family.micro_panels):
        at = fields.PACKERS + len(pack.KINDS) * side
        state[at : at + len(pack.KINDS)] = [loaded.address(strip.name(one)) for one in pack.KINDS]
    return state
