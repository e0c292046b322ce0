"""Works as one task list: threads run all of them in one call, with no Python in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from time import perf_counter

import numpy as np

from tilesolve.constants.nests import NETWORK_SHARED_SECONDS, NETWORK_SHARED_ZEROS
from tilesolve.constants.policy import LONG_SECONDS
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.kernels.runtime.task_list import run_stages
from tilesolve.nests.running import NestLayout, run_part, view_located
from tilesolve.nests.stage_team import StageTeam
from tilesolve.nests.task_writer import Located, TaskStage, TaskWriter
from tilesolve.networks.build import Program
from tilesolve.networks.works import (
    BorderWork,
    Held,
    LayerWork,
    Locate,
    PipelineWork,
    Step,
    WinogradWork,
    Work,
)
from tilesolve.packing.buffers import allocate
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import WORD_BYTES
from tilesolve.system.workers import run_together

_NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class Run:
    """What runs without Python: stages from one to another; or what Python does instead."""

    first: int
    last: int
    seconds: float
    step: Step | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaskProgram:
    """Works that are written down for arrays that stay where they are.

    Parameters
    ----------
    layout
        All instructions.
    team
        What threads share.
    times
        When a run began, and when each of its stages ended, if that is wanted.
    shared
        The arrays between statements.
    threads
        How many run them.
    by_work
        What each work runs.
    runs
        What all of them run.
    """

    layout: NestLayout
    team: StageTeam
    times: Integers
    shared: Array
    threads: int
    by_work: list[list[Run]]
    runs: list[Run]

    @classmethod
    def of(cls, program: Program, locate: Locate, threads: int) -> TaskProgram:
        """Write works down, given where their arrays lie."""
        tasks, ends, shared_bytes = TaskWriter(), [0], 1
        predicted = [one or 0.0 for one in program.predicted]
        for work, seconds in zip(program.works, predicted, strict=True):
            tasks.alone = seconds < NETWORK_SHARED_SECONDS
            _write(tasks, work, locate, threads)
            ends.append(len(tasks.stages))
            shared_bytes = max(shared_bytes, tasks.shared_bytes)
            tasks.shared_bytes = 0  # works follow each other, and share it
        address(run_stages)  # what is compiled, is so before the first call
        layout = NestLayout.of(tasks, (), merge=False)
        shared = allocate(shared_bytes)
        times = np.zeros((len(layout.stages) + 1, fields.TIME_WORDS), np.int64)
        view = partial(view_located, _slots(shared))
        by_work = [
            list(_divide(layout.stages, first, last, seconds, view))
            for seconds, first, last in zip(predicted, ends, ends[1:], strict=False)
        ]
        runs = list(_join([run for one in by_work for run in one]))
        return cls(layout, layout.team, times, shared, threads, by_work, runs)

    def run(self, runs: Sequence[Run], held: Held) -> None:
        """Run what was written, in order."""
        for one in runs:
            if one.step is not None:
                one.step(held)
            else:
                self._run_stages(one)

    def measure(self, runs: Sequence[Run], held: Held) -> Iterator[tuple[int, float]]:
        """Run what was written; yield the seconds of each stage, with its number."""
        for one in runs:
            begin = perf_counter()
            if one.step is not None:
                one.step(held)
                yield one.first, perf_counter() - begin
                continue
            self.team.words[fields.TEAM_TIMES] = self.times.ctypes.data
            try:
                self._run_stages(one)
            finally:
                self.team.words[fields.TEAM_TIMES] = 0
            seconds, parts = self.times[: one.last - one.first + 1].T
            taken = np.diff(seconds) + np.diff(parts) / _NANOSECONDS
            yield from zip(range(one.first, one.last), taken.tolist(), strict=True)

    def _run_stages(self, run: Run) -> None:
        """Run stages by all threads."""
        count = self.team.begin(run.first, run.last, self.threads)
        jobs = [partial(self._run_part, run, own) for own in range(count)]
        run_together(jobs, long=run.seconds >= LONG_SECONDS)

    def _run_part(self, run: Run, own: int) -> None:
        """Run stages as one of the threads."""
        run_part(self.layout, self.team, (run.first, run.last), own, _slots(self.shared))


def _slots(shared: Array) -> Integers:
    slots = np.zeros(fields.GIVEN, np.int64)
    slots[fields.SHARED] = shared.ctypes.data
    return slots


def _divide(
    stages: Sequence[TaskStage],
    first: int,
    last: int,
    seconds: float,
    view: Callable[[Located], Array],
) -> Iterator[Run]:
    """Yield what some stages are, those without Python together."""
    at = first
    for is_python, group in groupby(stages[first:last], lambda one: one.job is not None):
        several = list(group)
        if is_python:
            for job in (one.job for one in several):
                assert job is not None
                yield Run(at, at + 1, 0.0, partial(job, view))
                at += 1
        else:
            yield Run(at, at + len(several), seconds)
            at += len(several)


def _join(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield runs, those behind each other that need no Python as one."""
    for is_python, group in groupby(runs, lambda one: one.step is not None):
        several = list(group)
        if is_python:
            yield from several
        else:
            yield Run(several[0].first, several[-1].last, sum(one.seconds for one in several))


def _write(tasks: TaskWriter, work: Work, locate: Locate, threads: int) -> None:
    """Write a work: as tasks, or as what Python does."""
    written = False
    if isinstance(work, LayerWork):
        residual = None if work.residual is None else locate(work.residual)
        written = work.layer.write(tasks, locate(work.x), locate(work.out), residual)
    elif isinstance(work, WinogradWork):
        written = work.write(tasks, locate)
    elif isinstance(work, PipelineWork):
        given, outs = (
            [locate(one).transpose(one.order) for one in places]
            for places in (work.inputs, work.outputs)
        )
        written = work.function.write_call(tasks, given, outs)
    elif isinstance(work, BorderWork):
        written = _write_border(tasks, work, locate, threads)
    if not written:
        step = work.bind(locate)
        tasks.write_job(lambda _, held: step(held))  # type: ignore[arg-type]


def _write_border(tasks: TaskWriter, work: BorderWork, locate: Locate, threads: int) -> bool:
    """Write zeros around images, run by run, if these are whole words.

    Each thread writes those of the part of memory that it will read.
    """
    whole = locate(work.place).transpose(work.place.order)
    inner = (slice(low, -high or None) for low, high in work.ends)
    is_border = np.ones(work.place.shape, np.bool_)
    is_border[tuple(inner)] = False
    row = np.concatenate([[False], is_border.transpose(work.place.order).ravel(), [False]])
    begins, ends = np.flatnonzero(np.diff(row.astype(np.int8))).reshape(-1, 2).T * whole.itemsize
    words = np.concatenate([begins, ends])
    if not whole.flags.c_contiguous or (words % WORD_BYTES).any():
        return False
    base, count = whole.ctypes.data, whole.nbytes // WORD_BYTES
    cuts = [WORD_BYTES * (count * at // threads) for at in range(threads + 1)]

    def clear(low: int, high: int) -> None:
        lows, highs = np.maximum(begins, low), np.minimum(ends, high)
        for begin, end in np.stack([lows, highs], 1)[lows < highs].tolist():
            tasks.clear(Located.rows((fields.ZERO, base + begin), (end - begin,), np.dtype("u1")))

    tasks.alone = int(np.sum(ends - begins)) < NETWORK_SHARED_ZEROS
    tasks.write_stage(partial(clear, *part) for part in pairwise(cuts))
    return True
