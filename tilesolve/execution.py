"""Running plans: what is checked, which memory is used, and who computes which part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.packing.buffers import HUGE, allocate
from tilesolve.task import Task, Visit

if TYPE_CHECKING:
    from tilesolve.planning import Plan

Array = npt.NDArray[Any]

OVERLAP_WORK = 10_000
"""Effort to prove that two arrays share no element before they count as overlapping."""

LAYOUTS = 64
"""Combinations of strides that a plan remembers what to do for."""


def execute(
    plan: Plan,
    operands: Sequence[npt.ArrayLike],
    out: Array | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
) -> Array:
    """Compute ``alpha * contraction + beta * out`` by a plan; see `Plan.__call__`.

    Examples
    --------
    >>> from tilesolve import plan
    >>> found = plan("ik-ij-jk", "i=2 j=3 k=2", "i7-6700k", cache=False)
    >>> execute(found, (np.ones((2, 3)), np.ones((3, 2)))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    given = _checked_operands(plan.problem, operands)
    target = _checked_output(plan.problem, given, out, beta)
    for name, factor in (("alpha", alpha), ("beta", beta)):
        _check_factor(plan.problem, name, factor)
    if target.size:
        arrays = (target, *given)
        tasks = _tasks(plan, arrays)
        if len(tasks) == 1:
            tasks[0].run(arrays, alpha, beta)
        else:
            pool = _pool(plan.threads)
            jobs = [pool.submit(task.run, arrays, alpha, beta) for task in tasks]
            for job in jobs:
                job.result()
    return target


def visited(plan: Plan) -> list[Visit]:
    """Run a plan on zeros and return what each microkernel call really covered.

    Returns
    -------
    list
        For each call the indices of every letter that it covered, and its row of the trace; see
        `kernels.state.TRACE`.

    Examples
    --------
    >>> from tilesolve import plan
    >>> found = plan("ik-ij-jk", 8, "i7-6700k", cache=False)
    >>> sum(len(call["i"]) * len(call["k"]) * len(call["j"]) for call, _ in visited(found))
    512
    """
    arrays = tuple(np.zeros(shape, plan.problem.dtype) for shape in plan.problem.shapes)
    return [call for task in _tasks(plan, arrays) for call in task.visited(arrays)]


# Checks


def _checked_operands(problem: Problem, operands: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
    if len(problem.spec.operands) != 2:
        raise PlanError(
            f"{str(problem.spec)!r} has {len(problem.spec.operands)} operands; plans of two can "
            "be run"
        )
    given = problem.check_operands(*operands)
    for name, array in zip(problem.spec.names[1:], given, strict=True):
        _check_dtype(problem, f"operand {name}", array)
    return given


def _check_dtype(problem: Problem, name: str, array: Array) -> None:
    if array.dtype != np.dtype(problem.dtype):
        raise DtypeError(
            f"{name} of {str(problem.spec)!r} is {array.dtype}, the plan's dtype is {problem.dtype}"
        )


def _checked_output(
    problem: Problem, operands: Sequence[Array], out: Array | None, beta: complex
) -> Array:
    spec, shape = problem.spec, problem.shapes[0]
    name = f"out ({spec.names[0]}) of {str(spec)!r}"
    if out is None:
        if beta != 0:
            raise PlanError(f"beta is {beta}: there is no out to multiply by it")
        return _empty(shape, problem)
    if not isinstance(out, np.ndarray):
        raise DtypeError(f"{name} must be a numpy array, got {type(out).__name__}")
    if out.shape != shape:
        for letter, have, want in zip(spec.output.letters, out.shape, shape, strict=False):
            if have != want and len(out.shape) == len(shape):
                raise SizeError(f"{name} has {have} for {letter!r}, the plan {want}")
        raise SizeError(f"{name} has the shape {out.shape}, the plan {shape}")
    _check_dtype(problem, "out", out)
    if not out.flags.writeable:
        raise PlanError(f"{name} is read-only")
    shared = (n > 1 and not step for n, step in zip(out.shape, out.strides, strict=True))
    if out.size and any(shared):
        raise PlanError(f"{name} has elements that share memory: a stride of it is 0")
    for other, array in zip(spec.names[1:], operands, strict=True):
        if _overlap(out, array):
            raise PlanError(f"{name} shares memory with operand {other}")
    return out


def _overlap(out: Array, array: Array) -> bool:
    if not np.may_share_memory(out, array):
        return False
    try:
        return np.shares_memory(out, array, max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _check_factor(problem: Problem, name: str, factor: complex) -> None:
    number = np.asarray(factor)
    if number.ndim or number.dtype.kind not in "buifc":
        raise DtypeError(f"{name} must be a number, got {factor!r}")
    if number.dtype.kind == "c" and number.imag != 0 and not problem.dtype.startswith("complex"):
        raise DtypeError(f"{name} is {factor}, the plan's dtype is {problem.dtype}")


def _empty(shape: tuple[int, ...], problem: Problem) -> Array:
    size = prod(shape) * problem.itemsize
    if size < HUGE:
        return np.empty(shape, problem.dtype)
    return allocate(size).view(problem.dtype).reshape(shape)


# Tasks


def _tasks(plan: Plan, arrays: Sequence[Array]) -> list[Task]:
    """Return what each thread does, worked out once for a plan and the strides of its arrays."""
    strides = tuple(array.strides for array in arrays)
    tasks = plan.tasks.get(strides)
    if tasks is None:
        if len(plan.tasks) >= LAYOUTS:
            plan.tasks.clear()
        tasks = plan.tasks[strides] = [Task.of(plan, *part, strides) for part in _parts(plan)]
    return tasks


def _parts(plan: Plan) -> list[tuple[Problem, dict[str, int]]]:
    """Return what each thread computes: a problem, and where its letters begin."""
    split = plan.split
    if split is None:
        return [(plan.problem, {})]
    whole, step = plan.problem.sizes[split], plan.share.sizes[split]
    found = []
    for begin in range(0, whole, max(1, step)):
        sizes = {**plan.problem.sizes, split: min(step, whole - begin)}
        found.append((Problem.of(plan.problem.spec, sizes, plan.problem.dtype), {split: begin}))
    return found


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tilesolve")


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
