"""Calls of which a layer is made: nests and products of arrays that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tilesolve.nests.calls import Out
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.packing.memory_overlap import Array
from tilesolve.plans.plan import Plan
from tilesolve.running.prepared import Prepared
from tilesolve.running.repeat_call import Argument
from tilesolve.running.task import Task
from tilesolve.system.workers import run_together

Step = Callable[[], object]
"""Computes a part of a layer."""


class LayerCall(Protocol):
    """A call of a plan."""

    def bind(self) -> Step:
        """Return what makes it."""

    @property
    def is_written(self) -> bool:
        """Whether `write` writes all of it."""

    def write(self, tasks: TaskWriter) -> None:
        """Write it down."""


@dataclass(frozen=True, slots=True, eq=False)
class NestCall:
    """A call of a nest."""

    plan: NestPlan
    arrays: Sequence[Array]
    out: Out

    @property
    def is_written(self) -> bool:
        """Whether `write` writes all of it."""
        return True

    def bind(self) -> Step:
        """Return what makes it."""
        return self.plan.bind(*self.arrays, out=self.out)

    def write(self, tasks: TaskWriter) -> None:
        """Write it down."""
        self.plan.executor.write_call(tasks, self.arrays, self.out)


@dataclass(frozen=True, slots=True, eq=False)
class ProductCall:
    """A call of a contraction with prepared weights."""

    plan: Plan
    first: Array
    weights: Prepared
    out: Array

    @property
    def _parts(self) -> list[Task] | None:
        return self.plan.executor.list_tasks(self.out, self.first, self.weights, ())

    @property
    def is_written(self) -> bool:
        """Whether `write` writes all of it."""
        return self._parts is not None

    def bind(self) -> Step:
        """Return what makes it."""
        found, first, weights, out = self.plan, self.first, self.weights, self.out
        found(first, weights, out)
        recent = found.executor.recall(Argument(out, out), Argument(first, first), weights, ())
        if recent is None:
            return lambda: found(first, weights, out)
        return lambda: recent.run(out, 1.0, 0.0, first)

    def write(self, tasks: TaskWriter) -> None:
        """Write it down."""
        parts = self._parts
        assert parts is not None
        self.weights.drop_array()
        tasks.write_product(parts, (self.out, self.first, self.weights.like), (), 0.0)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls one after another, and then lanes side by side, each in a thread."""

    first: Sequence[LayerCall]
    lanes: Sequence[Sequence[LayerCall]]

    def bind(self) -> list[Step]:
        """Return what makes them."""
        first = [one.bind() for one in self.first]
        lanes = [[one.bind() for one in lane] for lane in self.lanes]
        if len(lanes) == 1:
            return [*first, *lanes[0]]
        jobs = [partial(_run_steps, lane) for lane in lanes]
        return [*first, partial(run_together, jobs)]

    def write(self, tasks: TaskWriter) -> bool:
        """Write them down; return whether that can be done: else nothing is written."""
        every = [*self.first, *(one for lane in self.lanes for one in lane)]
        if not all(one.is_written for one in every):
            return False
        _write_all(self.first, tasks)
        if len(self.lanes) == 1:
            _write_all(self.lanes[0], tasks)
        else:
            tasks.write_stage(partial(_write_all, lane, tasks) for lane in self.lanes)
        return True


def _write_all(calls: Sequence[LayerCall], tasks: TaskWriter) -> None:
    for one in calls:
        one.write(tasks)


def _run_steps(steps: Sequence[Step]) -> None:
    for step in steps:
        step()
