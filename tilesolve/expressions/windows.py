"""Einsums with affine subscripts: by a plan of the whole, or by numpy's loops over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilesolve.contractions.errors import MemoryLimitError, SpecError
from tilesolve.contractions.problem import OPERAND_DTYPES, Problem
from tilesolve.contractions.spec import Spec, Tensor
from tilesolve.contractions.subscripts import Subscripts
from tilesolve.expressions import dispatch
from tilesolve.expressions.contraction_order import ExpressionStep
from tilesolve.expressions.dispatch import Options, Request
from tilesolve.expressions.expression import Expression
from tilesolve.expressions.planned import Planned
from tilesolve.expressions.step_kernels import Kernel, Loops, Preparation, Zeros
from tilesolve.packing.memory_overlap import Array
from tilesolve.plans.copy_sizes import block_bytes, copy_bytes
from tilesolve.plans.plan import plan
from tilesolve.system.checks import common_dtype
from tilesolve.system.result_buffers import is_new_aligned


@dataclass(frozen=True, slots=True)
class Windows:
    """A contraction by numpy's loops over views of its operands that have an axis a letter.

    Examples
    --------
    >>> from tilesolve.contractions.spec import Spec
    >>> spec = Spec.parse("[h+r],r->h")
    >>> loops = Loops.of(("hr", "r"), "h", np.dtype(float))
    >>> mean = Windows("[h+r],r->h", loops, spec.operands, {"h": 3, "r": 2})
    >>> mean(np.arange(4.0), np.full(2, 0.5)).tolist()
    [0.5, 1.5, 2.5]
    """

    text: str
    loops: Loops
    tensors: tuple[Tensor, ...]
    sizes: dict[str, int]
    route: str = "loops"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it."""
        views = []
        for tensor, array in zip(self.tensors, arrays, strict=True):
            steps = tensor.strides(array.strides)
            shape = [self.sizes[x] for x in tensor.letters]
            strides = [steps[x] for x in tensor.letters]
            views.append(as_strided(array, shape, strides, writeable=False))
        return self.loops(*views, out=out)


def compile_windows(
    spec: Spec,
    subscripts: Subscripts,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any] | None,
    options: Options,
) -> Expression:
    """Return the expression of one or two operands, some of whose subscripts are affine.

    Raises
    ------
    SpecError
        If there are more operands, or more letters than numpy's loops take.
    MemoryLimitError
        If it takes more than the limit.

    Examples
    --------
    >>> from tilesolve.contractions.subscripts import read
    >>> form = read("c[h+r],kcr->kh", [2, 3])
    >>> found = compile_windows(
    ...     form.spec, form, [(2, 9), (4, 2, 3)], [np.dtype(float)] * 2, None, Options()
    ... )
    >>> found.shape, found.steps[0].kernel.route
    ((4, 7), 'loops')
    """
    if len(shapes) > 2:
        raise SpecError(
            f"{subscripts.text!r} has affine subscripts and {len(shapes)} operands; "
            "with such subscripts einsum takes one or two"
        )
    sizes = subscripts.sizes(shapes)
    common = common_dtype(dtypes) if dtype is None else dtype
    shape = tuple(sizes[x] for x in subscripts.output)
    kernel, why, copies = _kernel(spec, subscripts, sizes, shape, common, options)
    prepared = tuple(
        Preparation(f"{letters}->{letters}", None, "", (), common) if given != common else None
        for letters, given in zip(subscripts.indices, dtypes, strict=True)
        if kernel.route == "plan"
    ) or (None,) * len(shapes)
    work = dispatch.flops(subscripts.indices, subscripts.output, sizes, common)
    takes = tuple(range(len(shapes)))
    step = ExpressionStep(takes, kernel, why, work, prod(shape) * common.itemsize, copies)
    peak = copies + sum(
        prod(of) * common.itemsize
        for of, needs in zip(shapes, prepared, strict=True)
        if needs is not None
    )
    limit = inf if options.memory_limit is None else options.memory_limit
    if peak > limit:
        raise MemoryLimitError(
            f"{subscripts.text!r} needs {peak} bytes beside its operands and its result, "
            f"memory_limit is {options.memory_limit}"
        )
    given = tuple(shapes), tuple(dtypes), shape, common
    return Expression(subscripts, *given, prepared, (step,), None, peak)


def _kernel(
    spec: Spec,
    subscripts: Subscripts,
    sizes: dict[str, int],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    options: Options,
) -> tuple[Kernel, str, int]:
    """Return what computes it, why that, and the bytes of its copies."""
    text = str(subscripts)
    if 0 in sizes.values():
        return Zeros(text, shape, dtype), "an extent is 0", 0
    work = dispatch.flops(subscripts.indices, subscripts.output, sizes, dtype)
    why = "numpy's loops over windows: "
    if len(spec.operands) < 2 or dtype.name not in OPERAND_DTYPES:
        why += "one operand" if len(spec.operands) < 2 else f"{dtype} is computed by numpy"
    else:
        request = Request(sizes, dtype, options)
        if work >= request.plan_flops:
            problem = Problem.of(spec, sizes, dtype)
            aligned = options.aligned_output and is_new_aligned(problem.bytes[0])
            found = plan(problem, threads=options.threads, aligned_output=aligned)
            planned = Planned(text, found)
            solution = planned.plan.solution
            copies = (sum(copy_bytes(solution)) + block_bytes(solution)) * solution.threads
            return planned, f"{work:.3g} flops", copies
        why += f"{work:.3g} flops, plans take from {request.plan_flops:.3g}"
    if len(sizes) > len(ascii_letters):
        raise SpecError(
            f"{subscripts.text!r} has {len(sizes)} letters; without a plan it may have "
            f"{len(ascii_letters)}"
        )
    loops = Loops.of(subscripts.indices, subscripts.output, dtype)
    return Windows(text, loops, spec.operands, sizes), why, 0
