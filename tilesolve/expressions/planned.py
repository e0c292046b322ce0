"""Steps of an expression that plans compute: by one for the place where an output begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilesolve.expressions.step_kernels import copy_array
from tilesolve.packing.memory_overlap import Array
from tilesolve.plans.plan import Plan, plan_amid_lines
from tilesolve.running.prepared import Prepared
from tilesolve.system.result_buffers import begins_with_line


@dataclass(frozen=True, slots=True)
class Planned:
    """A contraction of two arrays by a plan, which new results and outputs at lines have.

    Parameters
    ----------
    text
        As einsum writes it.
    plan
        The plan that runs.
    axes
        Where the plan has another order of axes than the step, that order: of the axes of each
        operand, and, for the step's result, of the axes of the plan's. An array is copied for it
        only if its last axis is contiguous.
    amid
        The plan for outputs that begin amid a line, once there was one and it is another.

    Examples
    --------
    >>> from tilesolve import plan
    >>> step = Planned("ik,kj->ij", plan("ik,kj->ij", 4, "i7-6700k"))
    >>> step(np.eye(4), np.eye(4)).tolist() == np.eye(4).tolist()
    True
    """

    text: str
    plan: Plan
    axes: tuple[tuple[int, ...] | None, ...] = (None, None, None)
    amid: list[Plan] = field(default_factory=list, repr=False, compare=False)
    route = "plan"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it."""
        return self.product([self.lay_out(side, array) for side, array in enumerate(arrays)], out)

    def product(self, operands: Sequence[Array | Prepared], out: Array | None) -> Array:
        """Compute it for operands as the plan takes them."""
        first, second = operands
        target, axes = self.find_target(out), self.axes[2]
        product = self.plan_for(target)(first, second, out=target)
        if axes is None:
            return product
        if out is not None and target is not None:
            return out
        product = product.transpose(axes)
        return product if out is None else copy_array(product, out, self.plan.threads)

    def find_target(self, out: Array | None) -> Array | None:
        """Return what the plan writes to: an output with the plan's axes; None for a new array."""
        axes = self.axes[2]
        if out is None or axes is None:
            return out
        return None if _has_contiguous_last(out) else out.transpose(np.argsort(axes))

    def plan_for(self, target: Array | None) -> Plan:
        """Return the plan that writes to a target, by where that begins."""
        found = self.plan
        if target is None or found.output != "stream" or not found.problem.aligned_output:
            return found
        if begins_with_line(target):
            return found
        if not self.amid:
            self.amid.append(plan_amid_lines(found))
        return self.amid[0]

    def lay_out(self, side: int, array: Array) -> Array:
        """Return an operand as the plan takes it."""
        axes = self.axes[side]
        if axes is None:
            return array
        view = array.transpose(axes)
        if not _has_contiguous_last(array):
            return view
        return copy_array(view, np.empty(view.shape, view.dtype), self.plan.threads)


def _has_contiguous_last(array: Array) -> bool:
    """Return whether the last axis is contiguous, as in C order."""
    return array.strides[-1] == array.itemsize
