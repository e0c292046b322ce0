"""Which worker computes which chunk, step by step, and which blocks of operands move for it.

It is a value without Dask: graphs are built of it, and `moved` counts its transfers one by one, so
that the model's bytes can be held against them for any number of workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise, product
from math import ceil, prod

from tilesolve.constants.network import LEAST_PIECE, SNAP_SHARE, TASK_SECONDS
from tilesolve.planning.network import Division
from tilesolve.planning.worker_cuts import Cut, comes_back, held_results

Box = tuple[tuple[int, int], ...]
"""Where a part of a tensor begins and ends along each axis."""


@dataclass(frozen=True, slots=True)
class Block:
    """A tile of an operand, 1 or 2; `visit` counts how often loops have come back to it."""

    operand: int
    box: Box
    visit: int


@dataclass(frozen=True, slots=True)
class Task:
    """A chunk of C from a worker's tiles, added to what the worker's step before has of it.

    `boxes` are those of C, A and B, `bounds` where letters are cut to read blocks in place.
    """

    worker: int
    step: int
    part: int
    boxes: tuple[Box, Box, Box]
    blocks: tuple[Block, Block]
    bounds: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Schedule:
    """All tasks of a division.

    Parameters
    ----------
    division
        How workers divide a contraction.
    edges
        By letter, where chunks of operands begin: tiles end there, too, so that these are read in
        place.

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
    def cuts(self) -> dict[str, tuple[tuple[tuple[int, ...], ...], ...]]:
        """By letter its shares, of each the tiles, of each where chunks begin and end."""
        return {i: self._cut(i, cut) for i, cut in self._cut_tiles().items()}

    def _cut_tiles(self) -> dict[str, Cut]:
        """Share the tiles of a class among its letters, so that few chunks are in use at once.

        Tiles of outer letters are runs of chunks; the innermost one is cut as often as it takes.
        """
        division, found = self.division, dict[str, Cut]()
        for one in division.problem.classes:
            letters = [i for i in division.loops if i in one.letters]
            left = prod(division.cut[i].tiles for i in letters)
            while letters:
                letter = letters.pop()
                cut, inner = division.cut[letter], prod(map(self._share, letters))
                runs = (len(self.edges.get(letter, ())) + 1) // cut.workers
                tiles = max(min(left, runs), ceil(left / inner)) if letters else left
                found[letter] = replace(cut, tiles=min(tiles, self._share(letter)))
                left = ceil(left / tiles)
        return {i: found[i] for i, _ in division.cuts}

    def _share(self, letter: str) -> int:
        """Return the extent of a letter in the shortest share."""
        return max(1, self.division.problem.sizes[letter] // self.division.cut[letter].workers)

    def _cut(self, letter: str, cut: Cut) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Cut one letter."""
        extent, edges = self.division.problem.sizes[letter], self.edges.get(letter, frozenset())
        size = extent / cut.workers / cut.tiles
        inner = Cut(cut.workers).bounds(extent)[1:-1]
        near = SNAP_SHARE * extent / cut.workers
        shares = pairwise((0, *(_snap(at, edges, near) for at in inner), extent))
        return tuple(
            tuple(
                _cut_span(tile, edges, size / cut.chunks, cut.chunks)
                for tile in pairwise(_cut_span(share, edges, size, cut.tiles))
            )
            for share in shares
        )

    def bounds(self, letter: str) -> list[int]:
        """Return where chunks of a letter begin and end."""
        return sorted({at for share in self.cuts[letter] for at in chain(*share)})

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return prod(len(self.bounds(i)) - 1 for i in self.cuts)

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
        """Bytes of C on a worker: of a tile, or of its share, and of chunks that come or leave."""
        division, sizes = self.division, dict[str, tuple[int, int, int]]()
        for i, shares in self.cuts.items():
            tiles = [tile for share in shares for tile in share]
            sizes[i] = (
                max(share[-1][-1] - share[0][0] for share in shares),
                max(tile[-1] - tile[0] for tile in tiles),
                max(end - begin for tile in tiles for begin, end in pairwise(tile)),
            )
        letters = division.problem.spec.output.letters
        share, tile, chunk = (prod(sizes[i][at] for i in letters) for at in range(3))
        given = division.problem, division.cut, division.order, division.cluster.threads
        held = held_results(*given, division.keeps, (share, tile, chunk))
        return held * division.problem.itemsize

    def size(self, box: Box) -> int:
        """Return the bytes of a part of a tensor."""
        return prod(end - begin for begin, end in box) * self.division.problem.itemsize

    def moved(self) -> tuple[int, int, int]:
        """Return the bytes of C, A and B that cross the network, counted task by task."""
        sizes = [self.moved_results, 0, 0]
        for block, users in self.users.items():
            sizes[block.operand] += (len(users) - 1) * self.size(block.box)
        return sizes[0], sizes[1], sizes[2]

    @property
    def moved_results(self) -> int:
        """The bytes of C that are added to those of another worker."""
        parts = {(task.boxes[0], task.part) for task in self.tasks}
        return sum(self.size(box) for box, part in parts if part)

    def _own(self, number: int) -> Iterator[Task]:
        """Yield the tasks of one worker."""
        division = self.division
        spec = division.problem.spec
        place, rest = {}, number
        for letter, one in reversed(division.cuts):
            rest, place[letter] = divmod(rest, one.workers)
        summed = [i for i in place if i not in spec.output.letters]
        part = 0
        for letter in summed:
            part = part * division.cut[letter].workers + place[letter]
        visits = tuple(_Visits(division, one.letters) for one in spec.operands)
        loops, own = division.loops[::-1], {i: cut[place[i]] for i, cut in self.cuts.items()}
        for step, tiles in enumerate(product(*(own[i] for i in loops))):
            bounds = dict(zip(loops, tiles, strict=True))
            blocks = []
            for operand, tensor in enumerate(spec.operands):
                box = tuple((bounds[i][0], bounds[i][-1]) for i in tensor.letters)
                blocks.append(Block(1 + operand, box, visits[operand].count(box)))
            for spans in product(*(pairwise(bounds[i]) for i in place)):
                here = dict(zip(place, spans, strict=True))
                c, a, b = (tuple(here[i] for i in one.letters) for one in spec.tensors)
                own_blocks = blocks[0], blocks[1]
                yield Task(number, step, part, (c, a, b), own_blocks, self._cut_task(here))

    def _cut_task(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, ...]]:
        """Cut a task's letters at chunks' ends, unless the parts of a class are short then."""
        found: dict[str, tuple[int, ...]] = {}
        for one in self.division.problem.classes:
            cut = {
                i: (begin, *sorted(at for at in self.edges.get(i, ()) if begin < at < end), end)
                for i, (begin, end) in ((i, spans[i]) for i in one.letters)
            }
            longest = prod(max(b - a for a, b in pairwise(own)) for own in cut.values())
            found |= cut if longest >= LEAST_PIECE else {i: spans[i] for i in one.letters}
        return found


class _Visits:
    """Counts how often a worker's loops have come back to tiles of an operand that are not kept."""

    def __init__(self, division: Division, letters: tuple[str, ...]) -> None:
        kept = division.keeps.blocks
        order = division.problem, division.cut, division.order
        self.counts = not kept and comes_back(*order, letters)
        self.latest: Box | None = None
        self.visits: dict[Box, int] = {}

    def count(self, box: Box) -> int:
        """Return how often the loops have come back to a tile."""
        if self.counts and self.latest != box:
            self.latest = box
            self.visits[box] = self.visits.get(box, -1) + 1
        return self.visits.get(box, 0)


def _cut_span(
    span: tuple[int, int], edges: Collection[int], size: float, count: int
) -> tuple[int, ...]:
    """Return bounds of parts of about a size: whole runs of chunks, or equal parts of a chunk.

    Parts have few different lengths then, each of which needs an expression.

    Examples
    --------
    >>> _cut_span((0, 100), {20, 40, 60, 80}, 41, 3), _cut_span((0, 100), {40, 80}, 25, 4)
    ((0, 40, 80, 100), (0, 20, 40, 60, 80, 100))
    """
    if count == 1:
        return span
    fine = [span[0]]
    for begin, end in pairwise(sorted({*span, *(at for at in edges if span[0] < at < span[1])})):
        parts = Cut(tiles=max(1, min(end - begin, round((end - begin) / max(1, size)))))
        fine += [begin + at for at in parts.bounds(end - begin)[1:]]
    found = [span[0]]
    for at, end in pairwise(fine):
        if end - found[-1] > (1 + SNAP_SHARE) * size and at > found[-1]:
            found.append(at)
    return (*found, span[1])


def _snap(at: int, edges: Collection[int], most: float) -> int:
    """Return the nearest edge if it is near, else the number itself."""
    near = min(edges, key=lambda one: abs(one - at), default=at)
    return near if abs(near - at) <= most else at
