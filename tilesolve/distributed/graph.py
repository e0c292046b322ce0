"""From a schedule to a Dask graph: loads, blocks, steps, sums, and what holds loads back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import Array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from tilesolve.constants.network import BLOCK_INSTANCES, TASK_SECONDS
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


class PlacedLayer(MaterializedLayer):  # type: ignore[misc]  # Dask has no types here
    """Tasks of one division, the worker of each chunk of the result, and what was promised."""

    def __init__(self, tasks: dict[Key, Task], places: dict[Chunk, str], writer: Writer) -> None:
        super().__init__(tasks)
        self.places, self.division = places, writer.schedule.division
        self.sent, self.peak = writer.sent, writer.peak


@dataclass
class Writer:
    """Writes the tasks of a schedule, and counts what moves and stays.

    A block lies in one chunk of a source: it is read there, and sent to others that use it.

    Parameters
    ----------
    schedule
        What is computed where.
    sources
        The operands.
    addresses
        Of the workers; none where one process runs all.
    token
        What operands and workers make keys of this graph differ by from others'.
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

    def part(self, block: Block) -> Part:
        """Return the chunk of a source that a block lies in."""
        first, _ = self.schedule.spans[block]
        visit = first if self.reloads else block.visit
        return Part(block.operand, visit, self.pieces[block].chunk)

    @cached_property
    def pieces(self) -> dict[Block, Piece]:
        """What each block is of its chunk."""
        return {
            one: self.sources[one.operand - 1].piece(self.schedule.box(one.operand, one.chunk))
            for one in self.schedule.users
        }

    @cached_property
    def parts(self) -> dict[Part, list[Block]]:
        """The blocks of each chunk of a source."""
        found: dict[Part, list[Block]] = {}
        for block in self.schedule.users:
            found.setdefault(self.part(block), []).append(block)
        return found

    @cached_property
    def homes(self) -> dict[Part, int]:
        """The worker that has each chunk of a source: that uses most of it, if it is made here.

        It is -1 where none of them has it.
        """
        schedule, found = self.schedule, {}
        known = {self.address(worker): worker for worker in range(schedule.division.workers)}
        for part, own in self.parts.items():
            source, weights = self.sources[part.operand - 1], dict[int, int]()
            for block in own:
                for worker in schedule.users[block]:
                    size = schedule.size(block.operand, block.chunk)
                    weights[worker] = weights.get(worker, 0) + size
            most = [one for one, weight in weights.items() if weight == max(weights.values())]
            turn = most[sum(part.chunk) % len(most)]
            place = source.places.get(part.chunk, "")
            found[part] = turn if source.nodes else known.get(place, -1)
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
        return most + self.schedule.held

    @property
    def seconds(self) -> float:
        """What moving blocks and scheduling tasks takes a worker, before steps are written."""
        division = self.schedule.division
        moving = sum(self.sent) / division.cluster.bandwidth
        return (moving + TASK_SECONDS * (self.schedule.count + len(self.tasks))) / division.workers

    def add(
        self, kind: str, worker: int, where: Sequence[int], function: Any, *given: Any
    ) -> TaskRef:
        """Add a task and return a reference to it."""
        place = self.address(worker) if worker >= 0 else ""
        key = (f"{PREFIX}-{kind}-{self.token}", place, *where)
        self.tasks[key] = Task(key, function, *given)
        return TaskRef(key)

    def __post_init__(self) -> None:
        division, chunks = self.schedule.division, [source.chunks for source in self.sources]
        given = self.token, self.schedule.cuts, division.order, division.keeps, chunks
        self.token = tokenize(*given, self.reloads)
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
            at, where = (
                (task.chunk, task.part),
                (task.part, *task.blocks[0].chunk, *task.blocks[1].chunk),
            )
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
        places = dict[Chunk, str]()
        for chunk, own in parts.items():
            turn, key = sum(chunk) % len(own), (name, *chunk)
            whole, root = self._sum(chunk, own[turn:] + own[:turn])
            self.tasks[key] = Task(key, blocks.finish, dtype, whole, self._done(root))
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

    def _done(self, worker: int, step: int | None = None) -> TaskRef:
        """Return what is there once a worker has made a step, or its last."""
        last = self.schedule.steps[worker] - 1
        step = last if step is None else min(step, last)
        return TaskRef((f"{PREFIX}-done-{self.token}", self.address(worker), worker, step))

    def _control(self, step: int, workers: Iterable[int]) -> Iterator[TaskRef]:
        """Yield what loads for a step wait for: that earlier blocks are left behind."""
        step -= BLOCK_INSTANCES - 1
        for worker in workers if step >= 0 else ():
            yield self._done(worker, step)

    def _stay(self, worker: int, size: int, first: int, last: int) -> None:
        """Note what stays on a worker from when it may be loaded for a step, to another step."""
        self._spans.append((worker, size, max(0, first - BLOCK_INSTANCES + 1), last))

    def _write_loads(self) -> dict[Part, TaskRef]:
        """Return a reference to each chunk of a source; those that can be made anywhere are."""
        schedule, found = self.schedule, dict[Part, TaskRef]()
        for part, own in self.parts.items():
            source, home = self.sources[part.operand - 1], self.homes[part]
            first = min(schedule.spans[block][0] for block in own)
            last = max(schedule.spans[block][1] for block in own)
            if home >= 0:
                self._stay(home, source.size(part.chunk), first, last)
            if source.nodes:
                self._stay(home, source.passing(part.chunk), first, first)
                users = dict.fromkeys(one for block in own for one in schedule.users[block])
                where = (part.operand, part.visit, *part.chunk)
                given = source.nodes[part.chunk], source.boxes(part.chunk)
                control = self._control(first, users)
                found[part] = self.add("load", home, where, blocks.load, *given, *control)
            else:
                found[part] = TaskRef((source.array.name, *part.chunk))
        return found

    def _write_block(
        self, block: Block, worker: int, loads: Mapping[Part, TaskRef]
    ) -> tuple[TaskRef, tuple[slice, ...] | None]:
        """Return what a worker reads a block from, and which part of it; None for all."""
        schedule, piece, part = self.schedule, self.pieces[block], self.part(block)
        home, size = self.homes[part], schedule.size(block.operand, block.chunk)
        if home == worker:
            return loads[part], None if piece.whole else piece.box
        (first, last), reference = schedule.spans[block], loads[part]
        where = (block.operand, block.visit, *block.chunk)
        control = list(self._control(first, schedule.users[block]))
        self.sent[block.operand] += size
        self._stay(worker, size, first, last)
        if not piece.whole:
            self._stay(home, size, first, first)
            reference = self.add("cut", home, where, blocks.cut, reference, piece.box, *control)
        # A task of its own, as Dask drops what two workers have, and sends it again. It waits for
        # one of its worker's, so that it is not made one with the cut.
        begun = self.add("begin", worker, (worker,), blocks.done)
        given = reference, (), begun, *control
        return self.add("take", worker, (worker, *where), blocks.cut, *given), None


def make_array(writer: Writer, text: str, dtype: np.dtype[Any]) -> Array:
    """Return the lazy result of a schedule."""
    name = f"contracted-{writer.token}"
    held = [source.array for source in writer.sources if not source.nodes]
    graph = HighLevelGraph.from_collections(
        name, writer.write(text, name, dtype), dependencies=held
    )
    schedule = writer.schedule
    output = schedule.division.problem.spec.output.letters
    chunks = tuple(
        tuple(end - begin for begin, end in pairwise(schedule.cuts[i].bounds)) for i in output
    )
    return Array(graph, name, chunks, dtype=dtype)
