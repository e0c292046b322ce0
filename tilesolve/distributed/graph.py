"""From a schedule to a Dask graph: loads, blocks, steps, sums, and what holds loads back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import Array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from tilesolve.constants.network import BLOCK_INSTANCES
from tilesolve.distributed import blocks
from tilesolve.distributed.placement import PREFIX
from tilesolve.distributed.sources import Chunk, Source
from tilesolve.planning.network import Division
from tilesolve.planning.worker_schedule import Block, Box, Schedule
from tilesolve.planning.worker_schedule import Task as Step
from tilesolve.system.units import format_duration, format_size, format_volume

Key = tuple[Any, ...]


class Part(NamedTuple):
    """A chunk of a source on one visit of the loops."""

    operand: int
    visit: tuple[int, ...]
    chunk: Chunk


class Promise(NamedTuple):
    """What a contraction in a graph is to take.

    Parameters
    ----------
    division
        Its plan: `print(...)` of `tilesolve.plan(..., workers=...)` shows one.
    sent
        Bytes of C, A and B that workers send: what the plan moves, and what chunks of operands that
        lie otherwise move besides.
    peak
        Bytes of blocks on one worker at any time, at most.
    rechunked
        Those bytes that move because chunks of operands lie otherwise than the plan wants.
    """

    division: Division
    sent: tuple[int, ...]
    peak: int
    rechunked: float

    def __str__(self) -> str:
        workers, cluster = self.division.workers, self.division.cluster
        sent, rechunked = (
            f"{format_volume(one)}, {format_duration(one / workers / cluster.bandwidth)}"
            for one in (sum(self.sent), self.rechunked)
        )
        return (
            f"{self.division.problem.spec} on {workers} of {cluster.workers} workers\n"
            f"sent: {sent} of each worker\n"
            f"of that for chunks that lie otherwise: {rechunked}\n"
            f"blocks of a worker: {format_size(self.peak)} at most"
        )


class PlacedLayer(MaterializedLayer):  # type: ignore[misc]  # Dask has no types here
    """Tasks of one division, the worker of each chunk of the result, and what was promised."""

    def __init__(self, tasks: dict[Key, Task], places: dict[Chunk, str], promise: Promise) -> None:
        super().__init__(tasks)
        self.places, self.promise = places, promise


class Writer:
    """Writes the tasks of a schedule, and counts in `sent` what of C, A and B moves.

    A chunk of a source is made or read by the worker that uses most of it, and sends others what
    they use. Without addresses one process runs all; the token tells graphs apart.
    """

    def __init__(
        self, schedule: Schedule, sources: Sequence[Source], addresses: Sequence[str], token: str
    ) -> None:
        division, chunks = schedule.division, [source.array.chunks for source in sources]
        self.schedule, self.sources, self.addresses = schedule, sources, addresses
        self.token = tokenize(
            token, schedule.shares, schedule.cuts, division.order, division.keeps, chunks
        )
        self.sent = [schedule.moved_results, 0, 0]
        self.tasks: dict[Key, Task] = {}
        self._spans: list[tuple[int, int, int, int]] = []
        self._made: dict[tuple[Block, int], list[tuple[Box, TaskRef]]] = {}
        uses: dict[Part, list[tuple[Block, Box]]] = {}
        for block in schedule.users:
            for chunk, box in sources[block.operand - 1].pieces(block.box):
                part = Part(block.operand, block.visit, chunk)
                uses.setdefault(part, []).append((block, box))
        for part, own in uses.items():
            self._write_part(part, own)

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
        copies = self.schedule.division.cluster.threads * max(
            map(self._copied, self.schedule.tasks)
        )
        return most + copies + self.schedule.held

    @property
    def seconds(self) -> float:
        """What moving blocks and scheduling tasks takes a worker, before steps are written."""
        return self.schedule.seconds(sum(self.sent), self.schedule.count + len(self.tasks))

    def place(self, worker: int) -> str:
        """Return the address of a worker; none stands for any."""
        return self.addresses[worker] if worker >= 0 and self.addresses else ""

    def add(
        self, kind: str, worker: int, where: Sequence[Any], function: Any, *given: Any
    ) -> TaskRef:
        """Add a task and return a reference to it."""
        key = (f"{PREFIX}-{kind}-{self.token}", self.place(worker), *where)
        self.tasks[key] = Task(key, function, *given)
        return TaskRef(key)

    def write(self, text: str, name: str, dtype: np.dtype[Any]) -> PlacedLayer:
        """Return all tasks, with finished chunks under a name."""
        letters = self.schedule.division.problem.spec.output.letters
        starts = [{at: n for n, at in enumerate(self.schedule.bounds(i))} for i in letters]
        latest: dict[tuple[Chunk, Chunk], tuple[TaskRef, int]] = {}
        steps: dict[tuple[int, int], list[TaskRef]] = {}
        ends: dict[tuple[Chunk, int], int] = {}
        for task in self.schedule.tasks:
            chunk = tuple(own[at] for own, (at, _) in zip(starts, task.boxes[0], strict=True))
            before, _ = latest.get((chunk, task.part), (None, 0))
            sides = [self._given(task, side) for side in (0, 1)]
            boxes = tuple([box for box, _ in own] for own in sides)
            arrays = (reference for own in sides for _, reference in own)
            given = text, dtype.name, task.boxes[0], task.bounds, boxes, before, *arrays
            where = task.step, *task.part, *chunk
            reference = self.add("step", task.worker, where, blocks.contract, *given)
            latest[chunk, task.part] = reference, task.worker
            ends[chunk, task.worker] = task.step
            steps.setdefault((task.worker, task.step), []).append(reference)
        parts: dict[Chunk, list[tuple[TaskRef, int]]] = {}
        for (chunk, _), made_part in latest.items():
            parts.setdefault(chunk, []).append(made_part)
        places = dict[Chunk, str]()
        for chunk, own in parts.items():
            turn, key = sum(chunk) % len(own), (name, *chunk)
            (whole, root), added = self._sum(chunk, own[turn:] + own[:turn])
            places[chunk] = self.place(root)
            if len(own) > 1:
                added = [self.add("left", root, chunk, blocks.done, whole, *added)]
                # Nobody goes on while others have not added what they left: all are at it
                # in the same step, unless shares differ.
                for _, worker in own if self.schedule.division.sharing.even else ():
                    steps.setdefault((worker, ends[chunk, worker] + 1), []).extend(added)
            self.tasks[key] = Task(key, blocks.finish, dtype, whole, *added)
        for worker, count in self.schedule.steps.items():
            for step in range(-1, count):
                waited = steps.get((worker, step), [])
                self.add("done", worker, (worker, step), blocks.done, *waited)
        more = float(sum(self.sent) - sum(self.schedule.moved()))
        promise = Promise(self.schedule.division, tuple(self.sent), self.peak, more)
        return PlacedLayer(self.tasks, places, promise)

    def _given(self, task: Step, side: int) -> list[tuple[Box, TaskRef]]:
        """Return what a step reads of an operand, and where that lies."""
        return [
            (box, reference)
            for box, reference in self._made[task.blocks[side], task.worker]
            if all(
                a < d and c < b for (a, b), (c, d) in zip(box, task.boxes[1 + side], strict=True)
            )
        ]

    def _copied(self, task: Step) -> int:
        """Return the bytes of blocks that a step puts together, or converts to sums' dtype."""
        found, schedule = 0, self.schedule
        for side, tensor in enumerate(self.schedule.division.problem.spec.operands):
            cuts = [task.bounds[i] for i in tensor.letters]
            parts = prod(len(own) - 1 for own in cuts)
            if schedule.sum_element > schedule.element or len(self._given(task, side)) > parts:
                longest = prod(max(b - a for a, b in pairwise(own)) for own in cuts)
                found += schedule.sum_element * longest
        return found

    def _sum(
        self, chunk: Chunk, found: list[tuple[TaskRef, int]]
    ) -> tuple[tuple[TaskRef, int], list[TaskRef]]:
        """Return the sum of parts, in pairs that the first one's worker adds, and what ends adding.

        Two tasks need what is sent: one alone would take it in, and Dask would count no bytes.
        """
        level, added = 0, []
        while len(found) > 1:
            left = []
            for (one, worker), *others in (found[at : at + 2] for at in range(0, len(found), 2)):
                where = level, *chunk
                for other, sender in others:
                    sent = self.add("part", sender, where, blocks.finish, None, other)
                    one = self.add("sum", worker, where, blocks.add, one, sent)
                    added.append(self.add("added", worker, where, blocks.done, sent))
                left.append((one, worker))
            found, level = left, level + 1
        return found[0], added

    def _done(self, worker: int, step: int) -> TaskRef:
        """Return what is there once a worker has made a step."""
        return TaskRef((f"{PREFIX}-done-{self.token}", self.place(worker), worker, step))

    def _control(self, step: int, workers: Iterable[int]) -> Iterator[TaskRef]:
        """Yield what loads for a step wait for: that earlier blocks are left behind.

        There is always something, so that Dask makes no load one with what reads it.
        """
        for worker in workers:
            last = self.schedule.steps[worker] - 1
            yield self._done(worker, max(-1, min(last, step - BLOCK_INSTANCES + 1)))

    def _stay(self, worker: int, size: int, first: int, last: int) -> None:
        """Note what stays on a worker from when it may be loaded for a step, to another step."""
        if worker >= 0:
            self._spans.append((worker, size, max(0, first - BLOCK_INSTANCES + 1), last))

    def _find_home(self, part: Part, own: list[tuple[Block, Box]]) -> int:
        """Return the worker that has a chunk of a source: that uses most of it, if made here.

        It is -1 where none of them has it.
        """
        source, weights = self.sources[part.operand - 1], dict[int, int]()
        if not source.nodes:
            place = source.places.get(part.chunk, "")
            return self.addresses.index(place) if place in self.addresses else -1
        for block, box in own:
            for worker in self.schedule.users[block]:
                weights[worker] = weights.get(worker, 0) + self.schedule.size(box)
        most = [one for one, weight in weights.items() if weight == max(weights.values())]
        return most[sum(part.chunk) % len(most)]

    def _write_part(self, part: Part, own: list[tuple[Block, Box]]) -> None:
        """Write what makes a chunk of a source, and sends it to its users."""
        schedule, source = self.schedule, self.sources[part.operand - 1]
        home = self._find_home(part, own)
        whole, where = source.box(part.chunk), (part.operand, *part.visit, *part.chunk)
        first = min(schedule.spans[block][0] for block, _ in own)
        if home >= 0:
            last = max(schedule.spans[block][1] for block, _ in own)
            self._stay(home, schedule.size(whole), first, last)
        reference = TaskRef((source.array.name, *part.chunk))
        if source.nodes:
            users = dict.fromkeys(one for block, _ in own for one in schedule.users[block])
            given = source.nodes[part.chunk], reference.key, *self._control(first, users)
            reference = self.add("load", home, where, blocks.load, *given)
        for block, box in own:
            self._send(block, box, whole, home, reference, where)

    def _send(
        self,
        block: Block,
        box: Box,
        whole: Box,
        home: int,
        reference: TaskRef,
        where: tuple[Any, ...],
    ) -> None:
        """Write what takes a part of a chunk to the workers that use it in a block."""
        (first, last), size = self.schedule.spans[block], self.schedule.size(box)
        users, sent = self.schedule.users[block], reference
        control, at = list(self._control(first, users)), [at for span in box for at in span]
        if box != whole and set(users) != {home}:
            self._stay(home, size, first, first)
            given = reference, blocks.slices(box, whole), *control
            sent = self.add("cut", home, (*where, *at), blocks.take, *given)
        for worker in users:
            found = whole, reference
            if worker != home:
                # A task of its own, as Dask drops what two workers have, and sends it again.
                self.sent[block.operand] += size
                self._stay(worker, size, first, last)
                given = sent, (), *control
                found = box, self.add("take", worker, (worker, *where, *at), blocks.take, *given)
            self._made.setdefault((block, worker), []).append(found)


def make_array(writer: Writer, text: str, dtype: np.dtype[Any]) -> Array:
    """Return the lazy result of a schedule."""
    name = f"contracted-{writer.token}"
    held = [source.array for source in writer.sources if not source.nodes]
    graph = HighLevelGraph.from_collections(
        name, writer.write(text, name, dtype), dependencies=held
    )
    schedule = writer.schedule
    output = schedule.division.problem.spec.output.letters
    chunks = tuple(tuple(b - a for a, b in pairwise(schedule.bounds(i))) for i in output)
    return Array(graph, name, chunks, dtype=dtype)
