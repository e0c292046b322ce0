"""From a schedule to a Dask graph: blocks, steps, sums, and what holds loads back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import Array
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from tilesolve.constants.network import BLOCK_INSTANCES
from tilesolve.distributed import blocks
from tilesolve.distributed.placement import PREFIX
from tilesolve.distributed.schedule import Block, Chunk, Schedule
from tilesolve.distributed.sources import Piece, Source
from tilesolve.planning.network import Division

Key = tuple[Any, ...]


class PlacedLayer(MaterializedLayer):
    """Tasks of one division, and the worker that each chunk of the result is left on."""

    def __init__(
        self, tasks: dict[Key, Task], division: Division, places: dict[Chunk, str]
    ) -> None:
        super().__init__(tasks)
        self.division, self.places = division, places


@dataclass
class Writer:
    """Writes the tasks of a schedule.

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
    """

    schedule: Schedule
    sources: Sequence[Source]
    addresses: Sequence[str]
    token: str
    tasks: dict[Key, Task] = field(default_factory=dict)
    _loads: dict[Key, tuple[TaskRef, str]] = field(default_factory=dict)

    def address(self, worker: int) -> str:
        """Return the address of a worker."""
        return self.addresses[worker % len(self.addresses)] if self.addresses else ""

    def add(
        self, kind: str, address: str, where: Sequence[int], function: Any, *given: Any
    ) -> TaskRef:
        """Add a task and return a reference to it."""
        key = (f"{PREFIX}-{kind}-{self.token}", address, *where)
        self.tasks[key] = Task(key, function, *given)
        return TaskRef(key)

    def write(
        self, text: str, name: str, dtype: np.dtype[Any]
    ) -> tuple[dict[Key, Task], dict[Chunk, str]]:
        """Return all tasks, with finished chunks under a name, and where these are."""
        schedule = self.schedule
        made = {
            block: self._write_block(block)
            for block in sorted(schedule.users, key=schedule.first_steps.__getitem__)
        }
        latest: dict[tuple[Chunk, int], TaskRef] = {}
        steps: dict[tuple[int, int], list[TaskRef]] = {}
        owner: dict[tuple[Chunk, int], int] = {}
        for task in schedule.tasks:
            at = task.chunk, task.part
            given = [made[block] for block in task.blocks]
            where = (task.step, task.part, *task.chunk)
            latest[at] = self.add(
                "step",
                self.address(task.worker),
                where,
                blocks.contract,
                text,
                dtype.name,
                *given,
                latest.get(at),
            )
            owner[at] = task.worker
            steps.setdefault((task.worker, task.step), []).append(latest[at])
        for (worker, step), found in steps.items():
            self.add("done", self.address(worker), (worker, step), blocks.done, *found)
        last = max(step for _, step in steps)
        parts: dict[Chunk, list[int]] = {}
        for chunk, part in latest:
            parts.setdefault(chunk, []).append(part)
        places: dict[Chunk, str] = {}
        for chunk, found_parts in parts.items():
            turn = sum(chunk) % len(found_parts)
            order = found_parts[turn:] + found_parts[:turn]
            whole = self._sum(chunk, [(latest[chunk, one], owner[chunk, one]) for one in order])
            root = owner[chunk, order[0]]
            places[chunk] = self.address(root)
            key = (name, *chunk)
            self.tasks[key] = Task(key, blocks.finish, dtype, whole, self._done(root, last))
        return self.tasks, places

    def _sum(self, chunk: Chunk, found: list[tuple[TaskRef, int]]) -> TaskRef:
        """Return the sum of parts: in pairs, each of which the first one's worker adds."""
        level = 0
        while len(found) > 1:
            pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
            found = [
                (
                    self.add(
                        "sum",
                        self.address(pair[0][1]),
                        (level, at, *chunk),
                        blocks.add,
                        *(one for one, _ in pair),
                    ),
                    pair[0][1],
                )
                if len(pair) > 1
                else pair[0]
                for at, pair in enumerate(pairs)
            ]
            level += 1
        return found[0][0]

    def _done(self, worker: int, step: int) -> TaskRef:
        """Return what is there once a worker has made a step."""
        return TaskRef((f"{PREFIX}-done-{self.token}", self.address(worker), worker, step))

    def _control(self, block: Block) -> Iterator[TaskRef]:
        """Yield what a block waits for: that earlier ones of its operand are left behind."""
        step = self.schedule.first_steps[block] - BLOCK_INSTANCES + 1
        for worker in self.schedule.users[block] if step >= 0 else ():
            yield self._done(worker, step)

    def _write_block(self, block: Block) -> TaskRef:
        """Add the tasks of a block, and return a reference to it."""
        schedule, source = self.schedule, self.sources[block.operand - 1]
        box = schedule.box(block.operand, block.chunk)
        pieces, control = list(source.pieces(box)), list(self._control(block))
        owner = self._owner(block, pieces)
        where = (block.operand, block.visit, *block.chunk)
        if len(pieces) == 1 and pieces[0].whole:
            return self._find(block, pieces[0], owner, control)[0]
        given = []
        for piece in pieces:
            found, place = self._find(block, piece, owner, control)
            if piece.whole or place == owner:
                given.append((found, piece.source, piece.target))
                continue
            number = (*where, *piece.chunk)
            part = self.add("cut", place, number, blocks.cut, found, piece.source, *control)
            given.append((part, tuple(slice(None) for _ in box), piece.target))
        shape, dtype = schedule.shape(block.operand, block.chunk), source.array.dtype
        places = [(one, other) for _, one, other in given]
        references = [one for one, _, _ in given]
        return self.add(
            "block", owner, where, blocks.assemble, shape, dtype, places, *references, *control
        )

    def _owner(self, block: Block, pieces: Sequence[Piece]) -> str:
        """Return the address of the user that makes a block: the one that holds most of it."""
        source, users = self.sources[block.operand - 1], self.schedule.users[block]
        first = self.address(self.schedule.owner(block))
        weights = dict.fromkeys((first, *map(self.address, users)), 0)
        for piece in pieces:
            place = source.places.get(piece.chunk, "")
            if place in weights:
                weights[place] += int(np.prod([one.stop - one.start for one in piece.source]))
        return max(weights, key=weights.__getitem__)

    def _find(
        self, block: Block, piece: Piece, owner: str, control: Sequence[TaskRef]
    ) -> tuple[TaskRef, str]:
        """Return a chunk of a source and where it is; what can be made anywhere is made here."""
        source = self.sources[block.operand - 1]
        if not source.nodes:
            return TaskRef(source.key(piece.chunk)), source.places.get(piece.chunk, "")
        at = (block.operand, block.visit, *piece.chunk)
        if at not in self._loads:
            nodes, key = source.nodes[piece.chunk], source.key(piece.chunk)
            self._loads[at] = self.add("load", owner, at, blocks.load, nodes, key, *control), owner
        return self._loads[at]


def make_array(
    schedule: Schedule,
    sources: Sequence[Source],
    addresses: Sequence[str],
    text: str,
    dtype: np.dtype[Any],
    token: str,
) -> Array:
    """Return the lazy result of a schedule."""
    name = f"contracted-{token}"
    writer = Writer(schedule, sources, addresses, token)
    tasks, places = writer.write(text, name, dtype)
    layer = PlacedLayer(tasks, schedule.division, places)
    held = [source.array for source in sources if not source.nodes]
    graph = HighLevelGraph.from_collections(name, layer, dependencies=held)
    output = schedule.division.problem.spec.output.letters
    bounds = [schedule.bounds[i] for i in output]
    chunks = tuple(tuple(end - begin for begin, end in pairwise(one)) for one in bounds)
    return Array(graph, name, chunks, dtype=dtype)
