"""What the arithmetic of a nest takes: its innermost steps, with ragged ends as code runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine
from tilesolve.nests.loops import LoopItem
from tilesolve.nests.programs import LoopNest


def lanes_of(dtype: str, machine: Machine) -> int:
    """Return the elements of a vector.

    Examples
    --------
    >>> lanes_of("int32", Machine.load("i7-6700k"))
    8
    """
    return max(machine.vector_bits // (8 * np.dtype(dtype).itemsize), 1)


def count_trips(extent: int, steps: Sequence[int], lanes: int = 1) -> int:
    """Return how often the innermost of a letter's loops comes round, tiles at ends cut short.

    Parameters
    ----------
    extent
        Of the letter.
    steps
        Of its loops, outermost first.
    lanes
        Values that the innermost one takes at once; the last vector of a tile may have fewer.

    Examples
    --------
    >>> [count_trips(10, steps) for steps in ([], [4], [4, 3])], count_trips(10, [6, 1], 4)
    ([1, 3, 5], 3)
    """
    if not steps:
        return 1
    first, *rest = steps
    if not rest:
        return ceil(extent / (first * lanes))
    whole, left = divmod(extent, first)
    last = count_trips(left, rest, lanes) if left else 0
    return whole * count_trips(first, rest, lanes) + last


def arithmetic_seconds(
    computation: Computation, nest: LoopNest, machine: Machine, threads: int = 1
) -> float:
    """Return what one of some threads takes for its points, were all they need in L1.

    A vector of sums takes a slot for each two operations. Sums that registers hold wait for the
    ones before: a step takes as long as an addition does at least. Each time that others are held
    is like a call of a microkernel, and each time that a vector loop begins like a walk to the next
    tile.

    Parameters
    ----------
    computation, nest
        A statement, without its region, and its loops.
    machine, threads
        Who computes.
    """
    (stage,) = computation.stages
    dtype = computation.output.dtype
    lanes, real = lanes_of(dtype, machine), np.dtype(dtype).itemsize == np.dtype("float64").itemsize
    slot = 2 * lanes * threads / machine.peak("float64" if real else "float32", threads)
    work = max(stage.term.work, 1) / 2 * slot
    trips = _Trips(nest, computation.sizes, lanes)
    cycle, costs = 1 / machine.frequency, machine.costs
    if not nest.held:
        starts = trips.count([one for one in nest.items if one.letter != trips.vector])
        seconds = trips.count(nest.items) * work + starts * costs.tile_cycles * cycle
        return seconds * trips.share_of_thread(threads)
    outer = nest.items[: -nest.held]
    sums = trips.held([one for one in nest.items[-nest.held :] if one.letter in stage.output])
    blocks = trips.count([one for one in outer if one.letter in stage.output])
    steps = blocks * trips.count([one for one in nest.items if one.letter in stage.summed])
    calls, call = trips.count(outer), costs.call_cycles * cycle
    if trips.vector in stage.summed:
        steps += calls  # what is left behind whole vectors
        call += sums * 2 * log2(lanes) * slot  # lanes are put together
    seconds = steps * max(sums * work, machine.fma_latency * cycle) + calls * call
    return seconds * trips.share_of_thread(threads)


@dataclass(frozen=True, slots=True)
class _Trips:
    """How often loops of a nest come round."""

    nest: LoopNest
    extents: Mapping[str, int]
    lanes: int

    @property
    def vector(self) -> str | None:
        """The letter along which vectors lie."""
        return next((item.letter for item in self.nest.items if item.kind == "vector"), None)

    def count(self, items: Sequence[LoopItem]) -> int:
        """Return how often the innermost of some loops comes round, others left out."""
        return prod(
            count_trips(
                self.extents[letter],
                [one.step for one in items if one.letter == letter],
                self.lanes if LoopItem(letter, 1, "vector") in items else 1,
            )
            for letter in dict.fromkeys(one.letter for one in items)
        )

    def held(self, items: Sequence[LoopItem]) -> int:
        """Return how many vectors of sums some innermost loops of the output hold."""
        found = 1
        for one in items:
            around = [item.step for item in self.nest.items if item.letter == one.letter][:-1]
            side = min([self.extents[one.letter], *around])
            found *= ceil(side / self.lanes) if one.kind == "vector" else side
        return found

    def share_of_thread(self, threads: int) -> float:
        """Return the share of all trips that the busiest of some threads has."""
        divided = [item for item in self.nest.items if item.kind == "threads"]
        trips = self.count(divided)
        return ceil(trips / threads) / trips if divided else 1.0
