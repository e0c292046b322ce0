"""What the arithmetic of a nest takes: its innermost steps, with ragged ends as code runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod
from types import MappingProxyType

import numpy as np

from tilesolve.constants import tuning
from tilesolve.constants.nests import (
    NEST_OPERATIONS,
    NEST_UPDATE_ADDITIONS,
    NEST_WHOLE_UPDATE_SHARE,
)
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.promotion import widest_bytes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Read
from tilesolve.kernels.programs.known_positions import list_spread
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Buffer, Loop, LoopTree, list_loops
from tilesolve.model.nest import tile_counts
from tilesolve.nests.loops import step_of
from tilesolve.nests.operations import EXTREMES, count_operations
from tilesolve.nests.programs import holds_sums, walks_vectors
from tilesolve.packing.sizes import LINE_BYTES


def lanes_of(dtype: str, machine: Machine) -> int:
    """Return the elements of a vector.

    Examples
    --------
    >>> lanes_of("int32", Machine.load("i7-6700k"))
    8
    """
    return max(machine.vector_bits // (8 * np.dtype(dtype).itemsize), 1)


def slot_seconds(stage: Stage, dtypes: Mapping[str, str], machine: Machine, threads: int) -> float:
    """Return what two operations of a vector take, whatever numbers it has."""
    kind = "float64" if widest_bytes(stage, dtypes) > np.dtype("float32").itemsize else "float32"
    return 2 * lanes_of(kind, machine) * threads / machine.peak(kind, threads)


def short_share(dtype: str, extent: int, machine: Machine) -> float:
    """Return the time of vectors as short as an extent over that of whole ones, where measured.

    Examples
    --------
    >>> from tilesolve.machine.level import Peak
    >>> machine = Machine.load("i7-6700k").replace(vector_bits=512)
    >>> machine = machine.replace(peaks=[Peak("float32", n, 128e9) for n in (256, 512)])
    >>> [short_share("float32", extent, machine) for extent in (4, 7, 8, 9)]
    [1.0, 0.5, 0.5, 1.0]
    """
    lanes, bits = lanes_of(dtype, machine), machine.vector_bits
    used = bits * (1 << max(extent - 1, 0).bit_length()) // lanes
    rates = {peak.bits: peak.flops for peak in machine.peaks if peak.dtype == dtype}
    if used >= bits or bits not in rates or used not in rates:
        return 1.0
    return min(used / bits * rates[bits] / rates[used], 1.0)


def points_of_vector(stage: Stage, dtypes: Mapping[str, str], machine: Machine) -> int:
    """Return how many points of a stage are computed at once: as its widest numbers let it."""
    return max(machine.vector_bits // (8 * widest_bytes(stage, dtypes)), 1)


def step_seconds(
    stage: Stage,
    dtypes: Mapping[str, str],
    machine: Machine,
    threads: int,
    vector: str | None,
    rows: Mapping[str, int] = MappingProxyType({}),
) -> float:
    """Return what a vector of points along a letter takes, or a single point without one.

    Elements at computed positions are loaded one by one, and those that an update adds to wait for
    the ones before. `rows` are those that are written out around vectors, see `count_operations`.
    """
    slot = slot_seconds(stage, dtypes, machine, threads)
    terms = (stage.term, *stage.target.parts)
    count = max(sum(count_operations(one, dtypes, vector, rows) for one in terms), 1)
    if stage.update is not None:  # a vector has its line's end amid it
        updates = machine.costs.update_cycles * (2 if vector else 1)
        return max(count / 2 * slot, updates / machine.frequency)
    lanes = points_of_vector(stage, dtypes, machine) if vector else 1
    gathered = [one for one in stage.reads if _is_gathered(one, vector)]
    picked = [one for one in gathered if vector and _is_picked(one, dtypes, machine)]
    gathers = (len(gathered) - len(picked)) * lanes
    seconds = (count + NEST_OPERATIONS["pick_bytes"] * len(picked)) / 2 * slot
    return seconds + gathers * machine.costs.gather_cycles / machine.frequency


def _is_gathered(read: Read, vector: str | None) -> bool:
    """Return whether positions of a read are computed for each point of a vector by itself."""
    computed = [one for one in read.subscripts if not isinstance(one, Affine)]
    return any(vector is None or vector in one.letters for one in computed)


def _is_picked(read: Read, dtypes: Mapping[str, str], machine: Machine) -> bool:
    """Return whether bytes are picked out of a table that stays in registers."""
    (place,) = read.parts if len(read.subscripts) == 1 else (read,)
    small = np.dtype(dtypes[read.array]).itemsize == 1 and place.kind(dtypes) == "uint8"
    return small and machine.vector_bits >= 8 * LINE_BYTES  # AVX-512 has instructions for it


def arithmetic_seconds(computation: Computation, tree: LoopTree, machine: Machine) -> float:
    """Return what one of the threads takes for its points, were all they need in L1.

    A vector of sums takes a slot for each two operations; functions are several. Sums that
    registers hold wait for the ones before: a step takes as long as an addition does at least. Each
    time that others are held, and each time that an innermost loop begins, is like a walk to the
    next tile.

    Parameters
    ----------
    computation, tree
        A statement, without its region, and its loops.
    machine
        Who computes.
    """
    (stage,) = computation.stages
    vector, dtypes = tree.letter_of("vector"), computation.dtypes
    lanes = points_of_vector(stage, dtypes, machine) if vector else 1
    trips = _Trips(stage, tree, computation.sizes, lanes)
    work = step_seconds(stage, dtypes, machine, tree.threads, vector, trips.written_out())
    cycle = 1 / machine.frequency
    if stage.sequence and not vector:  # an element waits for the one before it
        work = max(work, _count_waiting(stage) * machine.fma_latency * cycle)
    whole = np.dtype(computation.output.dtype).kind in "biu"
    if stage.update is not None and whole and not vector:
        work *= NEST_WHOLE_UPDATE_SHARE
    if stage.update is not None and not any(list_spread(computation)):
        # Of one element several wait for what the last one stored.
        places = prod(computation.output.shape[: -1 if vector else None])
        wait = NEST_UPDATE_ADDITIONS * machine.fma_latency * cycle
        work = max(work, wait / max(places, 1))
    if vector and stage.reduction is None:
        work *= short_share(computation.output.dtype, computation.sizes[vector], machine)
    start = machine.costs.tile_cycles * cycle
    outer, held = trips.divide()
    slot = slot_seconds(stage, dtypes, machine, tree.threads)
    if not held:
        work += _transposing_seconds(stage, tree, lanes, slot)
        last = vector or (outer[-1].letter if outer else None)
        around = [one for one in outer if one.letter != last and one.kind != "unrolled"]
        starts = trips.count(around)
        return (trips.count(outer) * work + starts * start) * trips.share_of_thread()
    sums = trips.held([one for one in held if one.letter in stage.output])
    blocks = trips.count([one for one in outer if one.letter in stage.output])
    steps = blocks * trips.count([one for one in (*outer, *held) if one.letter in stage.summed])
    calls = trips.count(outer)
    if vector in stage.summed:
        used = min(lanes, computation.sizes[vector])
        start += sums * ceil(log2(used)) * _joining_seconds(stage, computation, slot)
    latency = (1 if whole else machine.fma_latency) / trips.sums_in_turn(sums)
    seconds = steps * max(sums * work, latency * cycle) + calls * start
    return seconds * trips.share_of_thread()


def _count_waiting(stage: Stage) -> int:
    """Return how many operations of an element wait for another one of its array.

    A product that is added to something is none by itself.
    """
    applied = [one for one in stage.term.all if isinstance(one, Apply)]
    names = [x.name for x in applied if any(read.array == stage.name for read in x.reads)]
    return len(names) - min(names.count("multiply"), names.count("add") + names.count("subtract"))


def _joining_seconds(stage: Stage, computation: Computation, slot: float) -> float:
    """Return what it takes to put the halves of a vector of sums together: a shuffle besides."""
    assert stage.reduction is not None
    name, kept = stage.reduction.name, computation.output.dtype.startswith("f")
    return (1 + (NEST_OPERATIONS[name] if kept and name in EXTREMES else 1)) / 2 * slot


def _transposing_seconds(stage: Stage, tree: LoopTree, lanes: int, slot: float) -> float:
    """Return what a vector takes to be put together from rows that are written out around it.

    Channels are taken out of pixels, and put together to them, with a shuffle for each further
    vector of these.
    """
    vector, accesses = tree.letter_of("vector"), tree.works[0].accesses
    rows = {loop.letter for loop in tree.loops if loop.kind == "unrolled"}
    pixels = {one.array: one.pixels(vector) for one in accesses}
    crossed = [
        one
        for one in accesses
        if vector in one.letters and vector not in one.contiguous and rows & set(one.contiguous)
        if not pixels[one.array]
    ]
    touched = (stage.target, *stage.reads)
    taken = sum(max(pixels[element.array] - 1, 0) for element in touched)
    return 0.0 if stage.reduction is not None else (len(crossed) * log2(lanes) + taken) * slot


@dataclass(frozen=True, slots=True)
class _Trips:
    """How often loops of a tree come round."""

    stage: Stage
    tree: LoopTree
    extents: Mapping[str, int]
    lanes: int

    def divide(self) -> tuple[list[Loop], list[Loop]]:
        """Return the loops outside of those over which registers hold sums, and these."""
        bodies = [one.body for one in list_nodes(self.tree.body) if isinstance(one, Buffer)]
        held = [one for body in bodies if holds_sums(self.stage, body) for one in list_loops(body)]
        outer = self.tree.loops[: len(self.tree.loops) - len(held)]
        return [one for one in outer if not walks_vectors(self.stage, one)], held

    def written_out(self) -> dict[str, int]:
        """Return how many rows of each letter are written out around vectors."""
        found = {}
        for loop in self.tree.loops:
            if loop.kind == "unrolled":
                found[loop.letter] = self.held([loop])
        return found

    def count(self, loops: Sequence[Loop]) -> int:
        """Return how often the innermost of some loops comes round, others left out.

        Tiles at ends are cut short, and the last vector of a tile may have fewer elements.
        """
        sizes = {one.letter: [self.extents[one.letter]] for one in loops}
        for one in loops:
            sizes[one.letter].insert(0, step_of(one) * (self.lanes if one.kind == "vector" else 1))
        return prod(tile_counts(found)[0] for found in sizes.values())

    def held(self, loops: Sequence[Loop]) -> int:
        """Return how many vectors of sums some innermost loops of the output hold."""
        found = 1
        for one in loops:
            around = [step_of(loop) for loop in self.tree.loops if loop.letter == one.letter][:-1]
            side = min([self.extents[one.letter], *around])
            found *= ceil(side / self.lanes) if one.kind == "vector" else side
        return found

    def sums_in_turn(self, held: int) -> int:
        """Return how many vectors in turn have sums of their own, where so many are held."""
        vectors = [one for one in self.tree.loops if one.kind == "vector"]
        several = max(tuning.INDEPENDENT_SUMS // held, 1)
        summed = bool(vectors) and vectors[0].letter in self.stage.summed
        return several if summed and self.held(vectors) >= several else 1

    def share_of_thread(self) -> float:
        """Return the share of all trips that the busiest thread has."""
        divided = [loop for loop in self.tree.loops if loop.kind == "threads"]
        trips = self.count(divided)
        return ceil(trips / self.tree.threads) / trips if divided else 1.0
