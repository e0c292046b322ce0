"""From a schedule to a Dask graph: loads, blocks, steps, sums, and what holds loads back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import Array
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from tilesolve.constants.network import BLOCK_INSTANCES
from tilesolve.distributed import blocks
from tilesolve.distributed.placement import PREFIX
from tilesolve.distributed.schedule import Block, Chunk, Schedule
from tilesolve.distributed.sources import Piece, Source

Key = tuple[Any, ...]


class Part(NamedTuple):
    """A chunk of a source on one visit of the loops."""

    operand: int
    visit: int
    chunk: Chunk


class PlacedLayer(MaterializedLayer):
    """Tasks of one division, the worker of each chunk of the result, and what was promised."""

    def __init__(self, tasks: dict[Key, Task], places: dict[Chunk, str], writer: Writer) -> None:
        super().__init__(tasks)
        self.places, self.division = places, writer.schedule.division
        self.sent, self.peak = writer.sent, writer.peak


@dataclass
class Writer:
    """Writes the tasks of a schedule, and counts what moves and stays.

    A block is put together by each worker that uses it, of pieces that are sent there; where it
    lies in one chunk, that chunk is read in place.

    Parameters
    ----------
    schedule
        What is computed where.
    sources
        The operands.
    addresses
        Of the workers; none where one process runs all.
    token
        What makes keys of this graph differ from others.
    reloads
        Whether chunks that can be made anywhere are made again in each step, not kept.
    sent
        Bytes of C, A and B that move.
    """

    schedule: Schedule
    sources: Sequence[Source]
    addresses: Sequence[str]
    token: str
    reloads: bool = False
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    tasks: dict[Key, Task] = field(default_factory=dict)
    _spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    _made: dict[tuple[Block, int], tuple[Any, Any]] = field(init=False)

    def address(self, worker: int) -> str:
        """Return the address of a worker."""
        return self.addresses[worker % len(self.addresses)] if self.addresses else ""

    def part(self, block: Block, piece: Piece) -> Part:
        """Return the chunk of a source that a piece is of."""
        first, _ = self.schedule.spans[block]
        return Part(block.operand, first if self.reloads else block.visit, piece.chunk)

    @cached_property
    def pieces(self) -> dict[Block, list[Piece]]:
        """The pieces of each block."""
        return {
            block: list(
                self.sources[block.operand - 1].pieces(
                    self.schedule.box(block.operand, block.chunk)
                )
            )
            for block in self.schedule.users
        }

    @cached_property
    def homes(self) -> dict[Part, int]:
        """The worker that has each chunk of a source: that uses most of it, if it is made here.

        It is -1 where none of them has it.
        """
        known = {self.address(worker): worker for worker in range(self.schedule.division.workers)}
        weights: dict[Part, dict[int, float]] = {}
        for block, pieces in self.pieces.items():
            users = self.schedule.users[block]
            for piece in pieces:
                own = weights.setdefault(self.part(block, piece), {})
                for worker in users:
                    own[worker] = own.get(worker, 0.0) + piece.elements
        found = {}
        for part, own in weights.items():
            source = self.sources[part.operand - 1]
            if source.nodes:
                most = [worker for worker, weight in own.items() if weight == max(own.values())]
                found[part] = most[sum(part.chunk) % len(most)]
            else:
                found[part] = known.get(source.places.get(part.chunk, ""), -1)
        return found

    @property
    def peak(self) -> int:
        """Bytes of blocks on one worker at most: what is promised."""
        changes: dict[tuple[int, int], int] = {}
        for worker, size, first, last in self._spans:
            for at, change in ((first, size), (last + 1, -size)):
                changes[worker, at] = changes.get((worker, at), 0) + change
        held, most = dict[int, int](), 0
        for worker, at in sorted(changes, key=lambda one: one[1]):
            held[worker] = held.get(worker, 0) + changes[worker, at]
            most = max(most, held[worker])
        return most + self.schedule.division.parts[0]

    def add(
        self, kind: str, worker: int, where: Sequence[int], function: Any, *given: Any
    ) -> TaskRef:
        """Add a task and return a reference to it."""
        place = self.address(worker) if worker >= 0 else ""
        key = (f"{PREFIX}-{kind}-{self.token}", place, *where)
        self.tasks[key] = Task(key, function, *given)
        return TaskRef(key)

    def __post_init__(self) -> None:
        loads = self._write_loads()
        self._made = {
            (block, worker): self._write_block(block, worker, loads)
            for block, users in self.schedule.users.items()
            for worker in users
        }
        parts = {(task.chunk, task.part) for task in self.schedule.tasks}
        self.sent[0] = sum(self.schedule.size(0, chunk) for chunk, part in parts if part)

    def write(self, text: str, name: str, dtype: np.dtype[Any]) -> PlacedLayer:
        """Return all tasks, with finished chunks under a name."""
        latest: dict[tuple[Chunk, int], tuple[TaskRef, int]] = {}
        steps: dict[tuple[int, int], list[TaskRef]] = {}
        for task in self.schedule.tasks:
            at, where = (task.chunk, task.part), (task.step, task.part, *task.chunk)
            (one, first), (other, second) = (
                self._made[block, task.worker] for block in task.blocks
            )
            before = latest[at][0] if at in latest else None
            given = text, dtype.name, (first, second), one, other, before
            reference = self.add("step", task.worker, where, blocks.contract, *given)
            latest[at] = reference, task.worker
            steps.setdefault((task.worker, task.step), []).append(reference)
        for (worker, step), found in steps.items():
            self.add("done", worker, (worker, step), blocks.done, *found)
        parts: dict[Chunk, list[tuple[TaskRef, int]]] = {}
        for (chunk, _), made_part in latest.items():
            parts.setdefault(chunk, []).append(made_part)
        places, last = dict[Chunk, str](), max(step for _, step in steps)
        for chunk, own in parts.items():
            turn, key = sum(chunk) % len(own), (name, *chunk)
            whole, root = self._sum(chunk, own[turn:] + own[:turn])
            self.tasks[key] = Task(key, blocks.finish, dtype, whole, self._done(root, last))
            places[chunk] = self.address(root)
        return PlacedLayer(self.tasks, places, self)

    def _sum(self, chunk: Chunk, found: list[tuple[TaskRef, int]]) -> tuple[TaskRef, int]:
        """Return the sum of parts: in pairs, each of which the first one's worker adds."""
        level = 0
        while len(found) > 1:
            pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
            found = [
                (
                    self.add(
                        "sum", one[0][1], (level, at, *chunk), blocks.add, one[0][0], one[1][0]
                    ),
                    one[0][1],
                )
                if len(one) > 1
                else one[0]
                for at, one in enumerate(pairs)
            ]
            level += 1
        return found[0]

    def _done(self, worker: int, step: int) -> TaskRef:
        """Return what is there once a worker has made a step."""
        return TaskRef((f"{PREFIX}-done-{self.token}", self.address(worker), worker, step))

    def _control(self, step: int, workers: Sequence[int]) -> Iterator[TaskRef]:
        """Yield what loads for a step wait for: that earlier blocks are left behind."""
        step -= BLOCK_INSTANCES - 1
        for worker in workers if step >= 0 else ():
            yield self._done(worker, step)

    def _stay(self, worker: int, size: int, first: int, last: int) -> None:
        """Note what stays on a worker from when it may be loaded for a step, to another step."""
        self._spans.append((worker, size, max(0, first - BLOCK_INSTANCES + 1), last))

    def _write_loads(self) -> dict[Part, Any]:
        """Return a reference to each chunk of a source; those that can be made anywhere are."""
        schedule, found = self.schedule, dict[Part, Any]()
        users: dict[Part, dict[int, None]] = {}
        spans: dict[Part, list[int]] = {}
        for block, pieces in self.pieces.items():
            for piece in pieces:
                part = self.part(block, piece)
                users.setdefault(part, {}).update(dict.fromkeys(schedule.users[block]))
                spans.setdefault(part, []).extend(schedule.spans[block])
        for part, home in self.homes.items():
            source, (first, last) = (
                self.sources[part.operand - 1],
                (min(spans[part]), max(spans[part])),
            )
            found[part] = TaskRef(source.key(part.chunk))
            if home >= 0:
                self._stay(home, source.size(part.chunk), first, last)
            if source.nodes:
                nodes, control = source.nodes[part.chunk], self._control(first, list(users[part]))
                where = (part.operand, part.visit, *part.chunk)
                given = nodes, source.key(part.chunk), *control
                found[part] = self.add("load", home, where, blocks.load, *given)
        return found

    def _write_block(self, block: Block, worker: int, loads: Mapping[Part, Any]) -> tuple[Any, Any]:
        """Return what a worker reads a block from, and the part of it; None for all."""
        schedule, source = self.schedule, self.sources[block.operand - 1]
        first, last = schedule.spans[block]
        size, where = (
            schedule.size(block.operand, block.chunk),
            (block.operand, block.visit, *block.chunk),
        )
        pieces, given = self.pieces[block], []
        for piece in pieces:
            part = self.part(block, piece)
            home, taken = self.homes[part], piece.elements * source.array.dtype.itemsize
            reference, box = loads[part], piece.source
            if home != worker:
                self.sent[block.operand] += taken
                if not piece.whole:
                    control = self._control(first, schedule.users[block])
                    number = (*where, *piece.chunk)
                    reference = self.add("cut", home, number, blocks.cut, reference, box, *control)
                    box = tuple(slice(stop.stop - stop.start) for stop in box)
                    self._stay(home, taken, first, first)
                self._stay(worker, taken, first, last if len(pieces) == 1 else first)
            given.append((reference, box, piece.target))
        if len(given) == 1:
            reference, box, _ = given[0]
            return reference, None if pieces[0].whole else box
        self._stay(worker, size, first, last)
        places = [(one, other) for _, one, other in given]
        control = self._control(first, schedule.users[block])
        shape = schedule.shape(block.operand, block.chunk)
        given_all = shape, source.array.dtype, places, *(one for one, _, _ in given), *control
        return self.add("block", worker, (worker, *where), blocks.assemble, *given_all), None


def make_array(writer: Writer, text: str, dtype: np.dtype[Any]) -> Array:
    """Return the lazy result of a schedule."""
    name = f"contracted-{writer.token}"
    held = [source.array for source in writer.sources if not source.nodes]
    graph = HighLevelGraph.from_collections(
        name, writer.write(text, name, dtype), dependencies=held
    )
    division, bounds = writer.schedule.division, writer.schedule.bounds
    output = division.problem.spec.output.letters
    chunks = tuple(tuple(end - begin for begin, end in pairwise(bounds[i])) for i in output)
    return Array(graph, name, chunks, dtype=dtype)
