"""Pipelines of functions of arrays as they lie in a program's memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TilesolveError
from tilesolve.machine.model import Machine
from tilesolve.networks.groups import Group
from tilesolve.networks.places import Place
from tilesolve.networks.works import CopyBody, CopyWork, PipelineWork, Work
from tilesolve.pipelines.front import PipelineFunction, pipeline


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A pipeline, and its predicted seconds; infinite ones and the reason if it has no plan."""

    function: PipelineFunction
    seconds: float
    reason: str = ""


@dataclass(slots=True, eq=False)
class Planner:
    """Plans pipelines for a machine; those of equal functions are one."""

    machine: Machine | str | None
    threads: int | None
    _functions: dict[Hashable, PipelineFunction] = field(default_factory=dict)

    def function(self, body: Callable[..., Any]) -> PipelineFunction:
        """Return what plans a function for each shape."""
        found = self._functions.get(body)
        if found is None:
            found = pipeline(body, machine=self.machine, threads=self.threads)
            self._functions[body] = found
        return found

    def plan(
        self, group: Group, inputs: Sequence[Place], outs: Sequence[Place]
    ) -> tuple[Planned, bool]:
        """Return what computes nodes, and whether their last operand is copied to C order before.

        That is so for products whose rows would be read across memory, where it is faster.
        """
        inputs = [one.wide for one in inputs]
        found = self._plan(group.body(inputs, outs), inputs)
        if group.nodes[0].kind != "MatMul" or found.reason:
            return found, False
        *others, last = inputs
        if last.straight.order == last.order:
            return found, False
        copied = [*others, last.straight]
        other = self._plan(group.body(copied, outs), copied)
        turns = self._plan_copy(last, last.straight).seconds + other.seconds < found.seconds
        return (other if turns else found), turns

    def copy(self, source: Place, out: Place) -> Work:
        """Return what copies an array, which may have another dtype then."""
        found = self._plan_copy(source, out)
        if found.reason or source.dtype != out.dtype:
            return CopyWork((), source, out)
        return PipelineWork((), found.function, [source], [out], found.seconds)

    def _plan_copy(self, source: Place, out: Place) -> Planned:
        order = tuple(source.order.index(axis) for axis in out.order)
        return self._plan(CopyBody(order), [source])

    def _plan(self, body: Callable[..., Any], places: Sequence[Place]) -> Planned:
        """Return the plan of a function of arrays in the order of memory."""
        function = self.function(body)
        given = [
            np.broadcast_to(np.zeros((), one.dtype), [one.shape[axis] for axis in one.order])
            for one in places
        ]
        try:
            return Planned(function, function.plan(*given).solution.work_seconds)
        except (TilesolveError, ValueError, TypeError, IndexError, AttributeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Planned(function, inf, reason)
