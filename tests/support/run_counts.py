"""Runs that simulated caches miss, tile by tile of the first cache: the oracle of their count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilesolve.contractions.problem import Problem
from tilesolve.model.nest import Nest
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.simulation.cache_simulator import Caches, CacheShape, access, caches, lean

LINE = 16
"""Bytes of a line: two elements, so that small tiles have whole ones."""

SPECS = ("mn-mk-kn", "ab-acd-dbc", "ij-ji", "h-[h+r]-r", "bi-bij-bj")


@st.composite
def tiled_nests(draw: st.DrawFn) -> tuple[Problem, Nest, int]:
    """Draw a nest of one tile, whose rows are whole lines, and the bytes of a cache for it."""
    spec = draw(st.sampled_from(SPECS))
    letters = Problem.of(spec, 1).spec.letters
    tile = {i: draw(st.sampled_from((2, 4, 8))) for i in letters}
    problem = Problem.of(spec, {i: side * draw(st.integers(1, 4)) for i, side in tile.items()})
    inner, outer = ("".join(draw(st.permutations(letters))) for _ in range(2))
    bands = [("register", inner, 1), ("L1", inner, tile), ("memory", outer, dict(problem.sizes))]
    touched = sum(Problem.of(spec, tile).bytes)
    return problem, Nest.of(problem, bands), 1 << (4 * touched - 1).bit_length()


@lean
def _mark_misses(
    state: Caches,
    addresses: NDArray[np.int64],
    owners: NDArray[np.int64],
    missed: NDArray[np.int64],
) -> None:
    """Touch addresses, and write down which of them each level misses."""
    for at in range(addresses.size):
        for level in range(len(missed)):
            missed[level, at] = -state.misses[level, owners[at]]
        access(state, addresses[at], owners[at])
        for level in range(len(missed)):
            missed[level, at] += state.misses[level, owners[at]]


def _tiles(problem: Problem, nest: Nest) -> Iterator[dict[str, range]]:
    tile, outer = dict(nest.bands[-2].box), nest.bands[-1].order[::-1]
    for corner in product(*(range(0, problem.sizes[i], tile[i]) for i in outer)):
        yield {i: range(at, at + tile[i]) for i, at in zip(outer, corner, strict=True)}


def count_missed(
    problem: Problem, nest: Nest, capacities: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the runs and the lines that each level misses of each tensor.

    Lines side by side that one tile misses are a run. It goes on from the tile before where that
    missed a single run, which ended there.
    """
    pages = [-(-size // PAGE_BYTES) + 1 for size in problem.bytes]
    starts = PAGE_BYTES * np.cumsum([0, *pages])
    tensors = len(problem.spec.tensors)
    state = caches([CacheShape(size, LINE) for size in capacities], int(starts[-1]), tensors)
    found = np.zeros((len(capacities), tensors), np.int64)
    last: dict[tuple[int, int], int | None] = {}
    inner = nest.bands[-2].order[::-1]
    for box in _tiles(problem, nest):
        points = np.array(list(product(*(box[i] for i in inner))))
        strides = np.array([[problem.strides(t).get(i, 0) for i in inner] for t in range(tensors)])
        places = (points @ strides.T + starts[:-1]).ravel()
        owners = np.tile(np.arange(tensors), len(points))
        missed = np.zeros((len(capacities), places.size), np.int64)
        _mark_misses(state, places, owners, missed)
        for level, tensor in np.ndindex(found.shape):
            lines = np.unique(places[(missed[level] > 0) & (owners == tensor)] // LINE)
            if lines.size:
                pieces = 1 + np.count_nonzero(np.diff(lines) > 1)
                found[level, tensor] += pieces - (last.get((level, tensor)) == lines[0] - 1)
                last[level, tensor] = int(lines[-1]) if pieces == 1 else None
    return found, state.misses
