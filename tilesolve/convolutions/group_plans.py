"""Plans of layers of small groups, and how calls run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from tilesolve.contractions.half_precision import array_dtype
from tilesolve.convolutions.layer_plans import LayerRequest
from tilesolve.convolutions.small_groups import GroupStatements, has_small_groups
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.aligned_arrays import empty
from tilesolve.system.checks import check_tries
from tilesolve.system.result_buffers import new_result

Constants = Mapping[str, Array]
"""Filters and a bias by the names that statements have for them."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """The plan of a layer of small groups.

    Parameters
    ----------
    statements
        What it computes.
    nest, inputs
        How, and the names of the arrays that it reads, in their order.
    frames
        Images with zeros around them that no call uses now: calls write within the zeros.
    """

    statements: GroupStatements
    nest: NestPlan
    inputs: tuple[str, ...]
    frames: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, request: LayerRequest, last: bool, residual: str) -> Self | None:
        """Return the plan with vectors along channels or pixels; None if there is none."""
        layer = request.convolution
        statements = GroupStatements(layer, request.activation, last, request.has_bias, residual)
        stages = statements.stages
        if stages is None:
            return None
        found = nest(
            stages,
            statements.sizes,
            layer.dtype,
            machine=request.machine,
            threads=request.threads,
            outputs=("O", "P") if statements.is_padded else ("O",),
            cache=request.cache,
        )
        return cls(statements, found, found.inputs)

    def constants(self, weights: Array, bias: Array | None) -> Constants:
        """Return filters and bias as calls take them."""
        found = {"F": _aligned(self.statements.filters(weights))}
        if bias is not None:
            found["B"] = _aligned(self.statements.split(bias, last=True))
        return found

    def run(self, x: Array, constants: Constants, residual: Array | None, out: Array) -> None:
        """Compute a layer of arrays that were checked."""
        arrays, results = self._line_up(x, constants, residual, out)
        frame = self._take_frame()
        self.nest(*arrays, out=results if frame is None else (results, frame))
        if frame is not None:
            self.frames.append(frame)

    def repeat(
        self, x: Array, constants: Constants, residual: Array | None, out: Array
    ) -> Array | None:
        """Compute a layer of arrays that nobody looked at; None if they are not like others."""
        arrays, results = self._line_up(x, constants, residual, out)
        frame = self._take_frame()
        outs = results if frame is None else (results, frame)
        done = self.nest.executor.repeat(arrays, {}, outs)
        if frame is not None:
            self.frames.append(frame)
        return None if done is None else out

    def write(
        self,
        tasks: TaskWriter,
        x: Array,
        constants: Constants,
        residual: Array | None,
        out: Array,
    ) -> None:
        """Write down a call on arrays that stay where they are.

        Calls of one list have the same frame where theirs are alike, which is in a cache then.
        """
        arrays, results = self._line_up(x, constants, residual, out)
        one = self.statements
        key = one.frame_shape, one.last, one.layer.padding, one.layer.dtype
        frame = tasks.frames[key] if key in tasks.frames else self._take_frame()
        if frame is not None:
            tasks.frames[key] = frame
        outs = results if frame is None else (results, frame)
        self.nest.executor.write_call(tasks, arrays, outs)

    def _line_up(
        self, x: Array, constants: Constants, residual: Array | None, out: Array
    ) -> tuple[list[Array], Array]:
        """Return the inputs in order, and where the result goes."""
        view = self.statements.view_results
        known = {"X": x, **constants}
        results = view(out)
        if residual is not None:
            known[self.statements.residual] = results if residual is out else view(residual)
        return [known[name] for name in self.inputs], results

    def _take_frame(self) -> Array | None:
        """Return images with zeros around them, if the layer has such."""
        if not self.statements.is_padded:
            return None
        try:
            return self.frames.pop()
        except IndexError:
            found = empty(self.statements.frame_shape, self.statements.layer.dtype)
            found[...] = 0
            return found


def _aligned(array: Array) -> Array:
    """Return a copy of an array in C order that begins with a line."""
    found = empty(array.shape, array.dtype)
    found[...] = array
    return found


@dataclass(frozen=True, slots=True, eq=False)
class GroupCall:
    """What computes at once for calls of a layer that are like one that has run."""

    plan: GroupPlan
    constants: Constants
    shape: tuple[int, ...]

    def run(self, out: object, alpha: float, beta: float, *given: object) -> Array | None:
        """Return what the layer gives, if its arrays are like others; see `RepeatCall.run`."""
        if out is None:
            out = new_result(self.shape, array_dtype(self.plan.statements.layer.dtype))
        x, residual = (*given, None)[:2]
        if type(x) is not np.ndarray or type(out) is not np.ndarray or residual is out:
            return None
        if (residual is not None) != bool(self.plan.statements.residual):
            return None
        if residual is not None and type(residual) is not np.ndarray:
            return None
        if out.shape != self.shape or (residual is not None and residual.shape != self.shape):
            return None
        return self.plan.repeat(x, self.constants, residual, out)


@dataclass(slots=True, eq=False)
class GroupPlans:
    """The plans of a layer of small groups: of calls whose residual is what `out` holds, too."""

    request: LayerRequest
    plan: GroupPlan
    _adding: GroupPlan | None = None

    @classmethod
    def of(cls, request: LayerRequest) -> Self | None:
        """Return the plan of the least price; None of other layers."""
        layer = request.convolution
        solved = isinstance(request.strategy, str) and request.strategy == "solver"
        if not solved or not has_small_groups(layer):
            return None
        check_tries(request.tries)
        residual = "R" if request.has_residual else ""
        across = layer.layout == "NHWC" or layer.stride[-1] > 1  # pixels of a vector lie apart
        ways = [True] if across else [True, False]
        found = [plan for last in ways if (plan := GroupPlan.of(request, last, residual))]
        return cls(request, min(found, key=lambda one: one.nest.seconds)) if found else None

    def made(self, adds: bool) -> GroupPlan:
        """Return the plan of calls whose residual is another array, or what `out` holds."""
        if not adds:
            return self.plan
        if self._adding is None:
            self._adding = GroupPlan.of(self.request, self.plan.statements.last, "O")
            assert self._adding is not None
        return self._adding
