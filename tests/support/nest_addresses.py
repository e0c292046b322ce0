"""The addresses that a nest of loops touches, and what simulated caches miss of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from simulation_cases import access_all

from tilesolve.contractions.statements.computation import Computation
from tilesolve.model.loop_tree import Loop, LoopTree
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.simulation.cache_simulator import CacheShape, caches

Ints = NDArray[np.int64]


def count_misses(addresses: Ints, shapes: Sequence[CacheShape]) -> list[int]:
    """Return the lines that caches miss."""
    state = caches(shapes, int(addresses.max(initial=0)) + 1)
    access_all(state, addresses, np.zeros_like(addresses))
    return [int(misses) for misses in state.misses[:, 0]]


def with_gaps(computation: Computation, gap: int) -> Computation:
    """Return a computation whose arrays have so many more elements in each row than it touches."""
    arrays = (
        replace(one, shape=(*one.shape[:-1], one.shape[-1] + gap)) for one in computation.arrays
    )
    return replace(computation, arrays=tuple(arrays))


def trace_nest(computation: Computation, tree: LoopTree) -> Ints:
    """Return the addresses that a nest touches: at each point those of its reads, then its output.

    Arrays begin on pages.
    """
    (stage,) = computation.stages
    bases, at = {}, 0
    for array in computation.arrays:
        bases[array.name] = at
        at += (-(-array.bytes // PAGE_BYTES) + 1) * PAGE_BYTES
    found = []
    box = {x: (0, n) for x, n in computation.sizes.items()}
    for point in _points(tree.loops, box):
        columns = []
        for read in (*stage.reads, stage.target):
            array = computation.array(read.array)
            place: Ints = np.zeros(1, np.int64)
            for subscript, extent in zip(read.subscripts, array.shape, strict=True):
                place = place * extent + sum(c * point[x] for c, x in subscript.terms)
                place = place + subscript.offset
            columns.append(bases[array.name] + place * np.dtype(array.dtype).itemsize)
        found.append(np.stack(np.broadcast_arrays(*columns), axis=-1).ravel())
    return np.concatenate(found)


def _points(loops: Sequence[Loop], box: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, Ints]]:
    """Yield the points of a nest in order, those of loops without tiles as arrays."""
    if all(loop.single for loop in loops):
        letters = [loop.letter for loop in loops]
        grid = np.meshgrid(*(np.arange(*box[x]) for x in letters), indexing="ij")
        yield {x: one.ravel() for x, one in zip(letters, grid, strict=True)} | {
            x: np.array([low]) for x, (low, _) in box.items() if x not in letters
        }
        return
    first, *rest = loops
    low, high = box[first.letter]
    for start in range(low, high, first.step):
        yield from _points(rest, {**box, first.letter: (start, min(start + first.step, high))})
