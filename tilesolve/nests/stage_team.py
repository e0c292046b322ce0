"""Stages of a call: threads run all of them in one call of compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.task_list import help_team
from tilesolve.nests.task_writer import TaskStage
from tilesolve.packing.buffers import workspace
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import WORD_BYTES
from tilesolve.system.workers import offer

_LIBRARY = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, eq=False)
class StageTeam:
    """What the threads of a call share; a call has one of its own as long as it runs.

    Parameters
    ----------
    table
        A row of `task_fields` for each stage.
    marks
        Which tasks are taken, and how many of each stage are done.
    words
        Of the team, see `task_fields`.
    """

    table: Integers
    marks: Integers
    words: Integers

    @classmethod
    def of(cls, stages: Sequence[TaskStage], address: int) -> Self:
        """Return a team for stages, given the address of the addresses of their tasks."""
        tasks = max((one.last for one in stages), default=0)
        marks = np.zeros(tasks + len(stages), np.int64)
        table = np.zeros((len(stages), fields.STAGE_WORDS), np.int64)
        for at, (row, stage) in enumerate(zip(table, stages, strict=True)):
            row[fields.STAGE_TASKS] = address + WORD_BYTES * stage.first
            row[fields.STAGE_COUNT] = stage.last - stage.first
            row[fields.STAGE_TAKEN] = marks.ctypes.data + WORD_BYTES * stage.first
            row[fields.STAGE_DONE] = marks.ctypes.data + WORD_BYTES * (tasks + at)
        words = np.zeros(fields.TEAM_WORDS, np.int64)
        words[fields.TEAM_YIELD] = _GIVE_WAY
        words[fields.TEAM_CLOCK] = _address(_LIBRARY.clock_gettime)
        return cls(table, marks, words)

    def copy(self) -> Self:
        """Return a team for a call beside others, which has marks of its own."""
        table, marks = self.table.copy(), self.marks.copy()
        moved = marks.ctypes.data - self.marks.ctypes.data
        table[:, [fields.STAGE_TAKEN, fields.STAGE_DONE]] += moved
        return type(self)(table, marks, self.words.copy())

    def describe(self, threads: int) -> Integers:
        """Return what a fast call's team of so many threads begins with, as `task_fields.TEAM`."""
        words, table = self.words.copy(), self.table.copy()
        words[fields.TEAM_SIZE] = threads
        table[:, [fields.STAGE_TAKEN, fields.STAGE_DONE]] -= self.marks.ctypes.data
        return np.concatenate([words, table.ravel()])

    def count(self, threads: int, first: int = 0, last: int | None = None) -> int:
        """Return how many threads run some of the stages at most."""
        return min(threads, int(self.table[first:last, fields.STAGE_COUNT].max(initial=1)))

    def begin(self, first: int, last: int, threads: int) -> int:
        """Return how many threads run some of the stages, of which nothing is done yet."""
        self.marks.fill(0)
        count = self.count(threads, first, last)
        self.words[fields.TEAM_SIZE], self.words[fields.TEAM_BROKEN] = count, 0
        return count


class Gate:
    """What threads meet at that may help with a call; nobody knows yet whether it is a fast one.

    Parameters
    ----------
    helpers
        How many other threads are asked to help.
    size
        Bytes of the workspace that each of them needs.
    """

    __slots__ = ("_words", "address")

    def __init__(self, helpers: int, size: int) -> None:
        self._words = (ctypes.c_int64 * fields.GATE_WORDS)()
        self.address = ctypes.addressof(self._words)
        offer(partial(self._help, size), helpers)

    def _help(self, size: int) -> None:
        help_team(self.address, workspace(size).address, _GIVE_WAY)

    def close(self) -> None:
        """Tell all that there is nothing to help with."""
        self._words[fields.GATE] = fields.CLOSED


def _address(function: Any) -> int:  # noqa: ANN401 - one of ctypes'
    """Return where a function of C is."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


_GIVE_WAY = _address(_LIBRARY.sched_yield)
"""What lets other threads run."""
