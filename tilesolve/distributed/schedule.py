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
    def bounds(self) -> dict[str, tuple[int, ...]]:
        """Where the chunks of each letter begin and end."""
        return {letter: tuple(sorted({0, *ends})) for letter, (ends, _) in self._cut.items()}

    @cached_property
    def _cut(self) -> dict[str, tuple[list[int], list[range]]]:
        """The ends of the chunks of each letter, and the numbers of those in each tile."""
        division = self.division
        output, found = division.problem.spec.output.letters, {}
        for letter, cut in division.cuts:
            extent, edges = division.problem.sizes[letter], self.edges.get(letter, frozenset())
            tiles = Cut(cut.workers, cut.tiles).bounds(extent)
            size = tiles[1] - tiles[0]
            grid = _split(Cut(cut.workers).bounds(extent), edges, size)
            near = [_nearest(grid, at) for at in tiles]
            tiles = tuple(near) if len(set(near)) == len(near) else tiles
            ends: list[int] = []
            numbers = []
            for span in pairwise(tiles):
                inner = _split(span, edges, size if letter not in output else size / cut.chunks)
                numbers.append(range(len(ends), len(ends) + len(inner) - 1))
                ends += inner[1:]
            found[letter] = ends, numbers
        return found

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, worker by worker, in the order of its steps."""
        return tuple(task for number in range(self.division.workers) for task in self._own(number))

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

    @cached_property
    def stretch(self) -> float:
        """How much larger the largest tile of C is than where all are as large."""
        found = 1.0
        for letter in self.division.problem.spec.output.letters:
            ends, numbers = self._cut[letter]
            sizes = [ends[one.stop - 1] - [0, *ends][one.start] for one in numbers]
            found *= max(sizes) * len(sizes) / sum(sizes)
        return found

    def size(self, tensor: int, chunk: Chunk) -> int:
        """Return the bytes of a chunk of a tensor."""
        return prod(self.shape(tensor, chunk)) * self.division.problem.itemsize

    def shape(self, tensor: int, chunk: Chunk) -> tuple[int, ...]:
        """Return the shape of a chunk of a tensor."""
        return tuple(end - begin for begin, end in self.box(tensor, chunk))

    def box(self, tensor: int, chunk: Chunk) -> tuple[tuple[int, int], ...]:
        """Return where a chunk of a tensor begins and ends along each axis."""
        letters = self.division.problem.spec.tensors[tensor].letters
        bounds = self.bounds
        return tuple(
            (bounds[i][at], bounds[i][at + 1]) for i, at in zip(letters, chunk, strict=True)
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
        spec, cut = division.problem.spec, division.cut
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
        for step, at in enumerate(product(*(range(cut[i].tiles) for i in outer))):
            tile = dict(zip(outer, at, strict=True))
            visit = [0, self._visit(1, tile, latest, visits), self._visit(2, tile, latest, visits)]
            ranges = [self._cut[i][1][place[i] * cut[i].tiles + tile[i]] for i in place]
            for inner in product(*ranges):
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


def _nearest(grid: Sequence[int], at: int) -> int:
    """Return the number that is nearest to one."""
    return min(grid, key=lambda one: abs(one - at))
