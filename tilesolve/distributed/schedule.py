"""Which worker computes which chunk, step by step, and which blocks of operands move for it.

It is a value without Dask: graphs are built of it, and `moved` counts its transfers one by one, so
that the model's bytes can be held against them for any number of workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from tilesolve.constants.network import SNAP_SHARE, TASK_SECONDS
from tilesolve.planning.network import Division
from tilesolve.planning.worker_cuts import Cut, comes_back

Chunk = tuple[int, ...]
"""Numbers of a chunk along the letters of a tensor."""


@dataclass(frozen=True, slots=True)
class Block:
    """A chunk of an operand, 1 or 2; `visit` counts how often loops have come back to it."""

    operand: int
    chunk: Chunk
    visit: int


@dataclass(frozen=True, slots=True)
class Task:
    """One contraction of two blocks, added to what the worker's step before has of the chunk."""

    worker: int
    step: int
    part: int
    chunk: Chunk
    blocks: tuple[Block, Block]


class Chunks(NamedTuple):
    """Where the chunks of a letter begin and end, and which are in each tile of each worker."""

    bounds: tuple[int, ...]
    tiles: tuple[tuple[range, ...], ...]

    def largest(self, kind: str) -> int:
        """Return the length of the longest share, tile or chunk."""
        if kind == "share":
            spans = [range(one[0].start, one[-1].stop) for one in self.tiles]
        elif kind == "tile":
            spans = [tile for one in self.tiles for tile in one]
        else:
            spans = [range(at, at + 1) for at in range(len(self.bounds) - 1)]
        return max(self.bounds[one.stop] - self.bounds[one.start] for one in spans)


@dataclass(frozen=True)
class Schedule:
    """All tasks of a division.

    Parameters
    ----------
    division
        How workers divide a contraction.
    edges
        By letter, where chunks of operands begin: blocks are cut there, too, so that each lies in
        one chunk.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.machine.cluster import Cluster
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.planning.network import divide
    >>> problem, cluster = Problem.of("ij-ik-kj", 4096), Cluster(4, 10**9, 1e9)
    >>> found = divide(problem, Machine.load("i7-6700k"), cluster)
    >>> sum(Schedule(found).moved()) == found.price.volume
    True
    """

    division: Division
    edges: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @cached_property
    def cuts(self) -> dict[str, Chunks]:
        """How each letter is cut: where chunks of operands begin, if these are no larger."""
        output = self.division.problem.spec.output.letters
        found = {i: self._cut(i, cut, 1) for i, cut in self.division.cuts}
        chunks = prod(max(len(tile) for one in found[i].tiles for tile in one) for i in output)
        for letter, cut in self.division.cuts:
            if letter in output and cut.chunks > chunks:
                found[letter] = self._cut(letter, cut, cut.chunks)
        return found

    def _cut(self, letter: str, cut: Cut, chunks: int) -> Chunks:
        """Cut one letter into shares, tiles, and so many chunks of a tile."""
        extent, edges = self.division.problem.sizes[letter], self.edges.get(letter, frozenset())
        size = max(1.0, extent / cut.workers / cut.tiles)
        near = SNAP_SHARE * extent / cut.workers
        inner = Cut(cut.workers).bounds(extent)[1:-1]
        bounds, shares = [0], []
        for share in pairwise((0, *(_snap(at, edges, near) for at in inner), extent)):
            tiles = [share] if cut.tiles == 1 else _join(_split(share, edges, size), size)
            numbers = []
            for tile in tiles:
                own = _split(tile, edges, size / chunks)
                numbers.append(range(len(bounds) - 1, len(bounds) + len(own) - 2))
                bounds += own[1:]
            shares.append(tuple(numbers))
        return Chunks(tuple(bounds), tuple(shares))

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return prod(len(one.bounds) - 1 for one in self.cuts.values())

    @property
    def seconds(self) -> float:
        """What moving blocks and scheduling tasks takes a worker at least."""
        moving = self.division.price.volume / self.division.cluster.bandwidth
        return (moving + TASK_SECONDS * self.count) / self.division.workers

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, worker by worker, in the order of its steps."""
        return tuple(task for number in range(self.division.workers) for task in self._own(number))

    @cached_property
    def steps(self) -> dict[int, int]:
        """How many steps each worker has."""
        return {task.worker: task.step + 1 for task in self.tasks}

    @cached_property
    def users(self) -> dict[Block, tuple[int, ...]]:
        """The workers that use each block."""
        found: dict[Block, dict[int, None]] = {}
        for task in self.tasks:
            for block in task.blocks:
                found.setdefault(block, {})[task.worker] = None
        return {block: tuple(workers) for block, workers in found.items()}

    @cached_property
    def spans(self) -> dict[Block, tuple[int, int]]:
        """The first and the last step in which each block is used."""
        found: dict[Block, tuple[int, int]] = {}
        for task in self.tasks:
            for block in task.blocks:
                first, last = found.get(block, (task.step, task.step))
                found[block] = min(first, task.step), max(last, task.step)
        return found

    @property
    def held(self) -> int:
        """Bytes of C on a worker: of a tile, or all of its share, and of chunks that change."""
        division = self.division
        letters = division.problem.spec.output.letters
        back = comes_back(division.problem, division.cut, division.order, letters)
        stays = back or division.keeps.results
        tile, chunk = (
            prod(self.cuts[i].largest(kind) for i in letters)
            for kind in ("share" if stays else "tile", "chunk")
        )
        added = any(len(one.bounds) > 2 for i, one in self.cuts.items() if i not in letters)
        changing = (1 + added) * division.cluster.threads * chunk
        return (tile + changing) * division.problem.itemsize

    def size(self, tensor: int, chunk: Chunk) -> int:
        """Return the bytes of a chunk of a tensor."""
        return prod(self.shape(tensor, chunk)) * self.division.problem.itemsize

    def shape(self, tensor: int, chunk: Chunk) -> tuple[int, ...]:
        """Return the shape of a chunk of a tensor."""
        return tuple(end - begin for begin, end in self.box(tensor, chunk))

    def box(self, tensor: int, chunk: Chunk) -> tuple[tuple[int, int], ...]:
        """Return where a chunk of a tensor begins and ends along each axis."""
        letters = self.division.problem.spec.tensors[tensor].letters
        cuts = self.cuts
        return tuple(
            (cuts[i].bounds[at], cuts[i].bounds[at + 1])
            for i, at in zip(letters, chunk, strict=True)
        )

    def moved(self) -> tuple[int, int, int]:
        """Return the bytes of C, A and B that cross the network, counted task by task."""
        sizes = [0, 0, 0]
        for block, users in self.users.items():
            sizes[block.operand] += (len(users) - 1) * self.size(block.operand, block.chunk)
        parts: dict[Chunk, set[int]] = {}
        for task in self.tasks:
            parts.setdefault(task.chunk, set()).add(task.part)
        for chunk, found in parts.items():
            sizes[0] += (len(found) - 1) * self.size(0, chunk)
        return sizes[0], sizes[1], sizes[2]

    def _own(self, number: int) -> Iterator[Task]:
        """Yield the tasks of one worker."""
        division = self.division
        spec = division.problem.spec
        place, rest = {}, number
        for letter, one in reversed(division.cuts):
            rest, place[letter] = divmod(rest, one.workers)
        part = 0
        for letter, one in division.cuts:
            if letter not in spec.output.letters:
                part = part * one.workers + place[letter]
        outer = division.loops[::-1]
        visits: dict[tuple[int, Chunk], int] = {}
        latest: dict[int, Chunk] = {}
        own = {i: cut.tiles[place[i]] for i, cut in self.cuts.items()}
        for step, at in enumerate(product(*(range(len(own[i])) for i in outer))):
            tile = dict(zip(outer, at, strict=True))
            visit = [0, self._visit(1, tile, latest, visits), self._visit(2, tile, latest, visits)]
            for inner in product(*(own[i][tile[i]] for i in place)):
                here = dict(zip(place, inner, strict=True))
                chunk, *operands = (tuple(here[i] for i in one.letters) for one in spec.tensors)
                blocks = Block(1, operands[0], visit[1]), Block(2, operands[1], visit[2])
                yield Task(number, step, part, chunk, blocks)

    def _visit(
        self,
        operand: int,
        tile: Mapping[str, int],
        latest: dict[int, Chunk],
        visits: dict[tuple[int, Chunk], int],
    ) -> int:
        """Return how often the loops have come back to an operand's tile, where it is not kept."""
        division = self.division
        letters: Sequence[str] = division.problem.spec.tensors[operand].letters
        if division.keeps.blocks or not comes_back(
            division.problem, division.cut, division.order, letters
        ):
            return 0
        here = tuple(tile[i] for i in letters)
        if latest.get(operand) != here:
            latest[operand] = here
            visits[operand, here] = visits.get((operand, here), -1) + 1
        return visits[operand, here]


def _split(bounds: Sequence[int], edges: Collection[int], size: float) -> list[int]:
    """Return bounds and edges between them, with equal parts of about a size between these.

    Parts have few different lengths then, each of which needs an expression.

    Examples
    --------
    >>> _split((0, 100), {40, 80}, 25)
    [0, 20, 40, 60, 80, 100]
    """
    own = sorted({*bounds, *(one for one in edges if bounds[0] < one < bounds[-1])})
    found = own[:1]
    for begin, end in pairwise(own):
        parts = Cut(1, 1, max(1, min(end - begin, round((end - begin) / max(1, size)))))
        found += [begin + one for one in parts.bounds(end - begin)[1:]]
    return found


def _join(bounds: Sequence[int], size: float) -> list[tuple[int, int]]:
    """Return spans of neighbouring parts that together are about as long as a size.

    Examples
    --------
    >>> _join((0, 20, 40, 60, 80, 100), 41)
    [(0, 40), (40, 80), (80, 100)]
    """
    found, begin = [], bounds[0]
    for at, end in pairwise(bounds):
        if end - begin > (1 + SNAP_SHARE) * size and at > begin:
            found.append((begin, at))
            begin = at
    return [*found, (begin, bounds[-1])]


def _snap(at: int, edges: Collection[int], most: float) -> int:
    """Return the nearest edge if it is near, else the number itself."""
    near = min(edges, key=lambda one: abs(one - at), default=at)
    return near if abs(near - at) <= most else at
