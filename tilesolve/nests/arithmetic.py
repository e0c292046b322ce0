"""What the arithmetic of a nest takes: its innermost steps, with ragged ends as code runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from tilesolve.constants.policy import NEST_OPERATIONS
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.promotion import widest_bytes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Term
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Buffer, Loop, LoopTree, list_loops
from tilesolve.model.nest import tile_counts
from tilesolve.nests.loops import step_of
from tilesolve.nests.programs import holds_sums, walks_vectors


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


def points_of_vector(stage: Stage, dtypes: Mapping[str, str], machine: Machine) -> int:
    """Return how many points of a stage are computed at once: as its widest numbers let it."""
    return max(machine.vector_bits // (8 * widest_bytes(stage, dtypes)), 1)


def arithmetic_seconds(computation: Computation, tree: LoopTree, machine: Machine) -> float:
    """Return what one of the threads takes for its points, were all they need in L1.

    A vector of sums takes a slot for each two operations; functions are several. Sums that
    registers hold wait for the ones before: a step takes as long as an addition does at least. Each
    time that others are held is like a call of a microkernel, and each time that a vector loop
    begins like a walk to the next tile.

    Parameters
    ----------
    computation, tree
        A statement, without its region, and its loops.
    machine
        Who computes.
    """
    (stage,) = computation.stages
    lanes = points_of_vector(stage, computation.dtypes, machine)
    slot = slot_seconds(stage, computation.dtypes, machine, tree.threads)
    work = max(count_operations(stage.term), 1) / 2 * slot
    trips = _Trips(stage, tree, computation.sizes, lanes)
    cycle, costs = 1 / machine.frequency, machine.costs
    (outer, held), vector = trips.divide(), tree.letter_of("vector")
    if not held:
        starts = trips.count([one for one in outer if one.letter != vector])
        seconds = trips.count(outer) * work + starts * costs.tile_cycles * cycle
        return seconds * trips.share_of_thread()
    sums = trips.held([one for one in held if one.letter in stage.output])
    blocks = trips.count([one for one in outer if one.letter in stage.output])
    steps = blocks * trips.count([one for one in (*outer, *held) if one.letter in stage.summed])
    calls, call = trips.count(outer), costs.call_cycles * cycle
    if vector in stage.summed:
        steps += calls  # what is left behind whole vectors
        call += sums * 2 * log2(lanes) * slot  # lanes are put together
    seconds = steps * max(sums * work, machine.fma_latency * cycle) + calls * call
    return seconds * trips.share_of_thread()


def count_operations(term: Term) -> int:
    """Return how many additions a point takes as long as, each different operation once."""
    functions = {one for one in term.all if isinstance(one, Apply) and one.name in NEST_OPERATIONS}
    return term.work + sum(NEST_OPERATIONS[one.name] - 1 for one in functions)


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

    def share_of_thread(self) -> float:
        """Return the share of all trips that the busiest thread has."""
        divided = [loop for loop in self.tree.loops if loop.kind == "threads"]
        trips = self.count(divided)
        return ceil(trips / self.tree.threads) / trips if divided else 1.0
