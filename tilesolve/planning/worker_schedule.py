"""Which worker computes which chunk, step by step, and which blocks of operands move for it.

It is a value without Dask: graphs are built of it, and `moved` counts its transfers one by one, so
that the model's bytes can be held against them for any number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from math import ceil, prod
from typing import NamedTuple

from tilesolve.constants.network import LEAST_PIECE, SNAP_SHARE, TASK_SECONDS
from tilesolve.planning.network import Division
from tilesolve.planning.worker_cuts import even_bounds, held_results
from tilesolve.planning.worker_shares import Span

Box = tuple[Span, ...]
"""Where a part of a tensor begins and ends along each axis."""

Bounds = tuple[int, ...]
"""Where parts of a letter begin and end."""


class Block(NamedTuple):
    """A tile of an operand, 1 or 2; `visit` tells for which turn of the loops around it comes."""

    operand: int
    box: Box
    visit: tuple[int, ...]


class Task(NamedTuple):
    """A chunk of C from a worker's tiles, added to what the worker's step before has of it.

    `part` says of which part of the sums it is, `boxes` are those of C, A and B, and `bounds` where
    letters are cut to read blocks in place.
    """

    worker: int
    step: int
    part: tuple[int, ...]
    boxes: tuple[Box, Box, Box]
    blocks: tuple[Block, Block]
    bounds: Mapping[str, Bounds]


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
    element, sum_element
        Bytes of an element of operands, and of sums; the problem's if 0.

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
    element: int = 0
    sum_element: int = 0

    @cached_property
    def shares(self) -> tuple[dict[str, Span], ...]:
        """By worker and letter the share, which ends where a chunk does that ends nearby."""
        shares, ends = self.division.sharing.shares(self.division.problem.sizes), {}
        for i, cut in self.division.cuts:
            edges, near = self.edges.get(i, ()), SNAP_SHARE * cut.share
            extent = self.division.problem.sizes[i]
            for at in {at for own in shares for at in own[i]}:
                ends[i, at] = at if at in (0, extent) else _snap(at, edges, near)
        return tuple(
            {i: (ends[i, begin], ends[i, end]) for i, (begin, end) in own.items()} for own in shares
        )

    @cached_property
    def cuts(self) -> dict[str, dict[Span, tuple[Bounds, ...]]]:
        """By letter and share the tiles, of each where chunks begin and end.

        Chunks of C end where those of any worker do.
        """
        tiles = self._count_tiles()
        found = {
            i: {one[i]: self._cut(i, one[i], tiles[i], cut.chunks) for one in self.shares}
            for i, cut in self.division.cuts
        }
        for i in self.division.problem.spec.output.letters:
            ends = _ends(found[i])
            for share, own in found[i].items():
                found[i][share] = tuple(_within(ends, (tile[0], tile[-1])) for tile in own)
        return found

    def _count_tiles(self) -> dict[str, int]:
        """Share the tiles of a class among its letters, so that few chunks are in use at once.

        Tiles of outer letters are runs of chunks; the innermost one is cut as often as it takes.
        """
        division, found = self.division, dict[str, int]()
        shortest = {
            i: max(1, min(own[i][1] - own[i][0] for own in self.shares)) for i, _ in division.cuts
        }
        for one in division.problem.classes:
            letters = [i for i in division.loops if i in one.letters]
            left = prod(division.cut[i].tiles for i in letters)
            while letters:
                letter = letters.pop()
                inner = prod(shortest[i] for i in letters)
                runs = (len(self.edges.get(letter, ())) + 1) // division.cut[letter].workers
                tiles = max(min(left, runs), ceil(left / inner)) if letters else left
                found[letter] = min(tiles, shortest[letter])
                left = ceil(left / found[letter])
        return found

    def _cut(self, letter: str, share: Span, tiles: int, chunks: int) -> tuple[Bounds, ...]:
        """Cut one letter of a share."""
        edges, size = self.edges.get(letter, ()), (share[1] - share[0]) / tiles
        return tuple(
            _cut_span(tile, edges, size / chunks, chunks)
            for tile in pairwise(_cut_span(share, edges, size, tiles))
        )

    def bounds(self, letter: str) -> list[int]:
        """Return where chunks of a letter begin and end."""
        return _ends(self.cuts[letter])

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return sum(
            prod(sum(len(tile) - 1 for tile in self.cuts[i][span]) for i, span in own.items())
            for own in self.shares
        )

    def seconds(self, moved: float, tasks: int) -> float:
        """Return what moving so many bytes and scheduling so many tasks takes a worker at least."""
        moving = moved / self.division.cluster.bandwidth
        return (moving + TASK_SECONDS * tasks) / self.division.workers

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, worker by worker, in the order of its steps."""
        return tuple(task for worker in range(len(self.shares)) for task in self._own(worker))

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
    def spans(self) -> dict[Block, Span]:
        """The first and the last step in which each block is used."""
        found: dict[Block, Span] = {}
        for task in self.tasks:
            for block in task.blocks:
                first, last = found.get(block, (task.step, task.step))
                found[block] = min(first, task.step), max(last, task.step)
        return found

    @property
    def held(self) -> int:
        """Bytes of C on a worker: of a tile, or of its share, and of chunks that come or leave."""
        division, most = self.division, 0
        output = division.problem.spec.output.letters
        for spans in {tuple(own[i] for i in output) for own in self.shares}:
            cuts = [self.cuts[i][span] for i, span in zip(output, spans, strict=True)]
            sizes = (
                prod(end - begin for begin, end in spans),
                prod(max(tile[-1] - tile[0] for tile in own) for own in cuts),
                prod(max(b - a for tile in own for a, b in pairwise(tile)) for own in cuts),
            )
            given = division.problem, division.cut, division.order, division.cluster.threads
            most = max(most, held_results(*given, division.keeps, sizes))
        return most * (self.sum_element or division.problem.sum_itemsize)

    def size(self, box: Box) -> int:
        """Return the bytes of a part of an operand."""
        element = self.element or self.division.problem.itemsize
        return element * prod(end - begin for begin, end in box)

    def moved(self) -> tuple[int, int, int]:
        """Return the bytes of C, A and B that cross the network, counted part by part.

        One of the workers that use a part of an operand has it.
        """
        sizes, users = [self.moved_results, 0, 0], Counter[Block]()
        for operand in (1, 2):
            own = {block: workers for block, workers in self.users.items() if block[0] == operand}
            axes = zip(*(block.box for block in own), strict=True)
            ends = [sorted({at for span in spans for at in span}) for spans in axes]
            for block, workers in own.items():
                spans = (_within(*pair) for pair in zip(ends, block.box, strict=True))
                for part in product(*map(pairwise, spans)):
                    users[block._replace(box=part)] += len(workers)
        for (operand, part, _), count in users.items():
            sizes[operand] += (count - 1) * self.size(part)
        return sizes[0], sizes[1], sizes[2]

    @property
    def moved_results(self) -> int:
        """The bytes of C that are added to those of another worker."""
        parts = {(task.boxes[0], task.part) for task in self.tasks}
        element = self.sum_element or self.division.problem.sum_itemsize
        moved = (box for box, part in parts if any(part))
        return element * sum(prod(end - begin for begin, end in box) for box in moved)

    def _own(self, worker: int) -> Iterator[Task]:
        """Yield the tasks of one worker."""
        division, share = self.division, self.shares[worker]
        spec, loops = division.problem.spec, division.loops[::-1]
        part = tuple(share[i][0] for i in share if i not in spec.output.letters)
        cuts = [self.cuts[i][share[i]] for i in loops]
        around = [self._list_around(one.letters, share) for one in spec.operands]
        for step, numbers in enumerate(product(*(range(len(own)) for own in cuts))):
            turn = dict(zip(loops, numbers, strict=True))
            bounds = {i: own[turn[i]] for i, own in zip(loops, cuts, strict=True)}
            first, second = (
                Block(
                    1 + at,
                    tuple((bounds[i][0], bounds[i][-1]) for i in spec.operands[at].letters),
                    tuple(turn[i] for i in around[at]),
                )
                for at in (0, 1)
            )
            for spans in product(*(pairwise(bounds[i]) for i in share)):
                here = dict(zip(share, spans, strict=True))
                c, a, b = (tuple(here[i] for i in one.letters) for one in spec.tensors)
                cut = self._cut_task(here)
                yield Task(worker, step, part, (c, a, b), (first, second), cut)

    def _list_around(self, letters: Collection[str], share: Mapping[str, Span]) -> list[str]:
        """Return the loops that come back to tiles of an operand that do not stay, if any."""
        loops = list(self.division.loops)
        while loops and not (loops[0] in letters and len(self.cuts[loops[0]][share[loops[0]]]) > 1):
            loops.pop(0)
        return [] if self.division.keeps.blocks else [i for i in loops if i not in letters]

    def _cut_task(self, spans: Mapping[str, Span]) -> dict[str, Bounds]:
        """Cut a task's letters at chunks' ends, unless the parts of a class are short then."""
        found: dict[str, Bounds] = {}
        for one in self.division.problem.classes:
            cut = {i: _within(sorted(self.edges.get(i, ())), spans[i]) for i in one.letters}
            longest = prod(max(b - a for a, b in pairwise(own)) for own in cut.values())
            found |= cut if longest >= LEAST_PIECE else {i: spans[i] for i in one.letters}
        return found


def _ends(cuts: Mapping[Span, Collection[Bounds]]) -> list[int]:
    """Return where chunks of a letter begin and end."""
    return sorted({at for tiles in cuts.values() for tile in tiles for at in tile})


def _within(ends: Collection[int], span: Span) -> Bounds:
    """Return where a span begins and ends, and which ends lie within it."""
    return (span[0], *(at for at in ends if span[0] < at < span[1]), span[1])


def _cut_span(span: Span, edges: Collection[int], size: float, count: int) -> Bounds:
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
    for begin, end in pairwise(_within(sorted(edges), span)):
        parts = max(1, min(end - begin, round((end - begin) / max(1, size))))
        fine += [begin + at for at in even_bounds(end - begin, parts)[1:]]
    found = [span[0]]
    for at, end in pairwise(fine):
        if end - found[-1] > (1 + SNAP_SHARE) * size and at > found[-1]:
            found.append(at)
    return (*found, span[1])


def _snap(at: int, edges: Collection[int], most: float) -> int:
    """Return the nearest edge if it is near, else the number itself."""
    near = min(edges, key=lambda one: abs(one - at), default=at)
    return near if abs(near - at) <= most else at
