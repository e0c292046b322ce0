"""Bytes that every level moves, for one nest or for many of the same loop order at once.

Sizes are numbers or arrays of them: the integer repair prices thousands of tilings with the
very code that prices one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.nest import Output, tile_counts
from tilesolve.walk import Rule, walk

PACK_TRAFFIC = 3
"""Times a packed byte crosses each level up to its buffer: source in, buffer in, buffer out."""

Sizes = Any
"""A float, or an array with one entry per nest."""


@dataclass(frozen=True, slots=True)
class Store:
    """A place that holds a working set, and the level that refills it.

    Parameters
    ----------
    name
        The register file or a cache.
    capacity
        Bytes that a working set may take in it.
    line
        Bytes of the unit it is filled by.
    server
        The next level out, whose bandwidth the refills take.
    bandwidth
        Bytes per second of the server.
    ways
        Associativity; None where it is unknown, full or not a cache's.
    """

    name: str
    capacity: float
    line: int
    server: str
    bandwidth: float
    ways: int | None = None


@dataclass(frozen=True, slots=True)
class Tiling:
    """Loops from the statement outwards, with sizes that may be arrays.

    Parameters
    ----------
    bands
        Level and loop order (innermost first) of each band, innermost band first.
    boxes
        For each band the tile of each letter; the last is the whole problem.
    packed
        For each operand the level that its packed copy lives in; None: read in place.
    output
        How C is written.
    """

    bands: tuple[tuple[str, tuple[str, ...]], ...]
    boxes: tuple[Mapping[str, Sizes], ...]
    packed: tuple[str | None, ...]
    output: Output


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What a tiling moves.

    Parameters
    ----------
    moved
        For each store the bytes of each tensor that come in: its misses.
    volumes
        The same both ways and with packing.
    packing
        The part of the volumes that packing causes.
    packed
        Elements of each tensor that are packed, repetitions counted.
    calls
        Boxes of the first band: calls of the microkernel.
    """

    moved: tuple[tuple[Sizes, ...], ...]
    volumes: tuple[tuple[Sizes, ...], ...]
    packing: tuple[tuple[Sizes, ...], ...]
    packed: tuple[Sizes, ...]
    calls: Sizes


def footprint(problem: Problem, tensor: Tensor, box: Mapping[str, Sizes], line: int) -> Sizes:
    """Return the bytes of a tensor that a box of iterations touches, in whole lines.

    A line of one byte counts elements: what a packed copy or a register takes. Runs along the
    unit-stride subscript start anywhere in a line, so that each takes most of one line more
    than its bytes (section 5.4).

    Examples
    --------
    >>> problem = Problem.of("hk-[h+r]-rk", "h=8,r=3,k=10")
    >>> footprint(problem, problem.spec.operands[0], {"h": 4, "r": 3, "k": 10}, 1)
    48.0
    """
    sides = []
    for subscript in tensor.subscripts:
        if len(subscript.terms) == 1:
            sides.append(box[subscript.terms[0][1]])
        else:
            reach = 1 + sum(c * (box[letter] - 1) for c, letter in subscript.terms)
            sides.append(_least(reach, prod(box[letter] for letter in subscript.letters)))
    elements: Sizes = float(problem.itemsize)
    for side in sides:
        elements = elements * side
    if sum(len(s.terms) for s in tensor.subscripts) > len(tensor.letters):  # a diagonal
        elements = _least(elements, problem.itemsize * prod(box[i] for i in tensor.letters))
    if line <= problem.itemsize:
        return elements
    run: Sizes = float(problem.itemsize)
    contiguous: Any = True
    for side, extent in zip(reversed(sides), reversed(tensor.shape(problem.sizes)), strict=True):
        run = run * (side * contiguous + (1 - contiguous))
        contiguous = contiguous & (side >= extent)
    return elements / run * (run + (line - problem.itemsize) * (1 - contiguous))


def _least(a: Sizes, b: Sizes) -> Sizes:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


class _Path:
    """A tiling's loops, innermost first, and the boxes between them."""

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        counts = {
            letter: tile_counts([box[letter] for box in tiling.boxes]) for letter in problem.sizes
        }
        self.problem = problem
        self.loops: list[tuple[str, Sizes]] = []
        self.runs: list[Any] = []
        self.through: dict[str, int] = {}
        self.calls = prod(counts[letter][0] for letter in counts)
        box: dict[str, Sizes] = dict.fromkeys(problem.sizes, 1.0)
        self._largest, self._mean = [box], [box]
        for at, ((level, order), tile) in enumerate(zip(tiling.bands, tiling.boxes, strict=True)):
            for letter in order:
                extent = problem.sizes[letter]
                inner = counts[letter][at - 1] if at else extent
                trips = inner / counts[letter][at]
                runs = trips > 1
                if not np.any(runs):
                    continue
                self.loops.append((letter, trips))
                self.runs.append(runs)
                self._largest.append({**self._largest[-1], letter: tile[letter]})
                self._mean.append({**self._mean[-1], letter: extent / counts[letter][at]})
            self.through[level] = len(self.loops)
        self._known: dict[tuple[int, int, bool], list[Sizes]] = {}

    def footprints(self, lines: Sequence[int], *, largest: bool = False) -> list[list[Sizes]]:
        """Return each tensor's footprint at the statement and after each loop.

        Largest boxes decide what fits, mean ones how much moves.
        """
        return [self._steps(t, line, largest) for t, line in enumerate(lines)]

    def _steps(self, t: int, line: int, largest: bool) -> list[Sizes]:
        key = (t, line, largest)
        if key not in self._known:
            tensor = self.problem.spec.tensors[t]
            boxes = self._largest if largest else self._mean
            steps = [footprint(self.problem, tensor, boxes[0], line)]
            for (letter, _), box in zip(self.loops, boxes[1:], strict=True):
                touched = letter in tensor.letters
                steps.append(footprint(self.problem, tensor, box, line) if touched else steps[-1])
            self._known[key] = steps
        return self._known[key]


def traffic(
    problem: Problem, tiling: Tiling, places: Sequence[Store], rule: Rule = "distance"
) -> Traffic:
    """Return the bytes that a tiling moves into each of the stores.

    A packed operand is read from its copy in all stores nearer than the copy's; its own store
    and those beyond see the source, line by line. A copy is made again whenever a loop above
    its tile has moved to another one (Eqs 11-14): the walk for a store that holds just the
    copy's tile.

    Parameters
    ----------
    problem
        The contraction or convolution.
    tiling
        One nest, or many of the same order.
    places
        The register file and the caches, nearest first.
    rule
        When a tensor outlives a loop that does not index it; see `walk`.
    """
    path = _Path(problem, tiling)
    tensors, names = problem.spec.tensors, [place.name for place in places]
    copies = [0, *(names.index(level) if level else 0 for level in tiling.packed)]
    elements = path.footprints([1] * len(tensors))
    packed: list[Sizes] = [0.0] * len(tensors)
    for t, at in enumerate(copies):
        if at:
            inside = path.through[names[at]]
            packed[t] = walk(tensors, path.loops, elements, inside.__ge__, runs=path.runs)[t]
    moved, volumes, packing = [], [], []
    for at, place in enumerate(places):
        # The working set of a copy's own store holds the copy; what comes in is the source.
        largest = path.footprints([1 if at <= c else place.line for c in copies], largest=True)
        mean = path.footprints([1 if at < c else place.line for c in copies])
        fits = [sum(sizes) <= place.capacity for sizes in zip(*largest, strict=True)]
        came = walk(tensors, path.loops, mean, fits.__getitem__, rule, path.runs)
        # A first write needs no read in registers; past them it does unless it is streamed.
        unread = tiling.output == "stream" or (tiling.output == "store" and at == 0)
        written = 2 * came[0] - (mean[0][-1] if unread else 0.0)
        crossings = 2 if at == 0 else PACK_TRAFFIC
        extra = [crossings * packed[t] if at < c else 0.0 for t, c in enumerate(copies)]
        moved.append(tuple(came))
        packing.append(tuple(extra))
        volumes.append(tuple(a + b for a, b in zip([written, *came[1:]], extra, strict=True)))
    count = tuple(size / problem.itemsize for size in packed)
    return Traffic(tuple(moved), tuple(volumes), tuple(packing), count, path.calls)
