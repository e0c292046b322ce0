"""Running plans: what is checked, which memory is used, and who computes which part."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.code_store import kernels
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.kernels import macrokernel, packers
from tilesolve.kernels.code import MOST_COLUMNS, MOST_VECTORS, Family
from tilesolve.kernels.macrokernel import BATCHES, COLUMNS, ROWS, SUMS, TRACE, WIDEST, S
from tilesolve.kernels.microkernel import FIELDS, Mode
from tilesolve.packing.axes import Integers
from tilesolve.packing.buffers import GUARD, HUGE, allocate, borrowed
from tilesolve.schedule import Schedule

if TYPE_CHECKING:
    from tilesolve.planning import Plan

Array = npt.NDArray[Any]

OVERLAP_WORK = 10_000
"""Effort to prove that two arrays share no element before they count as overlapping."""

_NO_TRACE = np.zeros((0, TRACE), np.int64)


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
        parts = list(_parts(plan))
        if len(parts) == 1:
            _compute(plan, *parts[0], (target, *given), alpha, beta)
        else:
            jobs = [
                _pool(plan.threads).submit(
                    _compute, plan, problem, start, (target, *given), alpha, beta
                )
                for problem, start in parts
            ]
            for job in jobs:
                job.result()
    return target


def visited(plan: Plan) -> list[tuple[dict[str, tuple[int, ...]], Integers]]:
    """Run a plan on zeros and return what each microkernel call really covered.

    Returns
    -------
    list
        For each call the indices of every letter that it covered, and its row of the trace; see
        `macrokernel.TRACE`.

    Examples
    --------
    >>> from tilesolve import plan
    >>> found = plan("ik-ij-jk", 8, "i7-6700k", cache=False)
    >>> sum(len(call["i"]) * len(call["k"]) * len(call["j"]) for call, _ in visited(found))
    512
    """
    calls = []
    for problem, start in _parts(plan):
        arrays = tuple(np.zeros(shape, plan.problem.dtype) for shape in plan.problem.shapes)
        traces: list[tuple[Schedule, dict[str, int], dict[str, int], Integers]] = []
        _compute(plan, problem, start, arrays, 1, 0, traces)
        for schedule, sizes, corner, rows in traces:
            letters = [schedule.indices(role, sizes) for role in range(4)]
            for row in rows:
                found: dict[str, tuple[int, ...]] = {}
                ranges = ((row[0], row[1]), (row[2], row[3]), (row[4], row[5]), (row[6], 1))
                for table, (first, count) in zip(letters, ranges, strict=True):
                    for letter, values in table.items():
                        begin = corner.get(letter, 0) + start.get(letter, 0)
                        covered = sorted({int(x) + begin for x in values[first : first + count]})
                        found[letter] = tuple(covered)
                calls.append((found, row))
    return calls


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


# Parts


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


def _strides(tensor: Tensor, array: Array) -> dict[str, int]:
    """Return the bytes between neighbours along each letter of a tensor."""
    found: dict[str, int] = {}
    for subscript, stride in zip(tensor.subscripts, array.strides, strict=True):
        for factor, letter in subscript.terms:
            found[letter] = found.get(letter, 0) + factor * stride
    return found


def _roles(problem: Problem, rows: str | None) -> tuple[int, tuple[tuple[str, ...], ...]]:
    """Return which operand has the rows, 0 or 1, and the letters of each role."""
    output, *operands = (set(tensor.letters) for tensor in problem.spec.tensors)
    first = 1 if rows in operands[1] and rows not in operands[0] else 0
    groups: tuple[list[str], ...] = ([], [], [], [])
    for letter in problem.sizes:
        if letter not in output:
            role = SUMS
        elif letter in operands[0] and letter in operands[1]:
            role = BATCHES
        else:
            role = ROWS if letter in operands[first] else COLUMNS
        groups[role].append(letter)
    return first, tuple(tuple(group) for group in groups)


@lru_cache(maxsize=256)
def _schedule(
    plan: Plan,
    problem: Problem,
    strides: tuple[tuple[tuple[str, int], ...], ...],
    first: int,
    roles: tuple[tuple[str, ...], ...],
) -> Schedule:
    packed = plan.nest.packed or (None, None)
    machine = plan.machine
    return Schedule(
        problem,
        plan.nest,
        Family.of(problem.dtype, machine.vector_bits, machine.vector_registers),
        tuple(dict(pairs) for pairs in strides),
        roles,
        (packed[first], packed[1 - first]),
    )


def _compute(
    plan: Plan,
    problem: Problem,
    start: Mapping[str, int],
    arrays: Sequence[Array],
    alpha: complex,
    beta: complex,
    traces: list[Any] | None = None,
) -> None:
    """Compute one part of a problem."""
    fused = plan.setting.fused
    first, roles = _roles(problem, fused.letters(fused.rows)[0] if fused.rows else None)
    order = (0, 1 + first, 2 - first)
    strides = [_strides(problem.spec.tensors[i], arrays[i]) for i in order]
    pairs = tuple(tuple(of.items()) for of in strides)
    schedule = _schedule(plan, problem, pairs, first, roles)
    bases = [
        arrays[i].ctypes.data + sum(of.get(letter, 0) * at for letter, at in start.items())
        for i, of in zip(order, strides, strict=True)
    ]
    _walk(schedule, bases, alpha, beta, plan.output == "stream", traces)


# One thread's work


def _walk(
    schedule: Schedule,
    bases: Sequence[int],
    alpha: complex,
    beta: complex,
    stream: bool,
    traces: list[Any] | None,
) -> None:
    """Compute a problem box by box; `bases` are addresses of C and of both operands."""
    state, family = _state(schedule, alpha, beta), schedule.family
    boxes = list(schedule.boxes())
    widest = [max(box.elements(side) for *_, box in boxes) for side in (ROWS, COLUMNS)]
    longest = max(box.axes[SUMS].size for *_, box in boxes)
    indices = np.zeros((2, WIDEST), np.int64)
    steps = np.array([schedule.step(ROWS), schedule.step(COLUMNS)])[:, None]
    sums = np.ascontiguousarray(steps * np.arange(longest + 1))
    sizes = [count * schedule.step(side) + GUARD for side, count in enumerate(widest)]
    with borrowed(sizes) as buffers:
        for side in (ROWS, COLUMNS):
            state[S.BUFFER + side] = buffers[side].ctypes.data
            state[S.PLACED_ROWS + side] = indices[side].ctypes.data
            state[S.PLACED_SUMS + side] = sums[side].ctypes.data
        for box_sizes, corner, box in boxes:
            for number, (base, of) in enumerate(zip(bases, schedule.strides, strict=True)):
                at = base + sum(of.get(letter, 0) * i for letter, i in corner.items())
                state[S.OUTPUT if number == 0 else S.SOURCE + number - 1] = at
            state[S.FIRST] = all(corner.get(i, 0) == 0 for i in schedule.roles[SUMS])
            aligned = box.aligned and state[S.OUTPUT] % (family.bits // 8) == 0
            if beta != 0:
                state[S.MODE], state[S.MODE + 1] = Mode.ADD, Mode.SCATTER_ADD
            else:
                state[S.MODE] = Mode.STREAM if stream and aligned else Mode.STORE
                state[S.MODE + 1] = Mode.SCATTER
            for role, found in enumerate(box.tables):
                state[S.TABLES + role] = found.ctypes.data
            for side in (ROWS, COLUMNS):
                state[S.CELLS + side] = box.cells(side)
            state[S.CALLS] = 0
            calls = prod(box.cells(role) for role in range(4))
            trace = _NO_TRACE if traces is None else np.zeros((calls, TRACE), np.int64)
            macrokernel.run(state, *box.tables, trace)
            if traces is not None:
                traces.append((schedule, box_sizes, corner, trace[: state[S.CALLS]]))


def _state(schedule: Schedule, alpha: complex, beta: complex) -> Integers:
    """Return the state of a run, but for what differs from box to box."""
    family, dtype = schedule.family, schedule.problem.dtype
    state = _kernel_addresses(family).copy()
    state[S.TOP] = schedule.top
    for level, order in enumerate(schedule.orders):
        state[S.ORDERS + 4 * level : S.ORDERS + 4 * level + 4] = order
    for side in (ROWS, COLUMNS):
        state[S.LEVEL + side] = schedule.packed[side]
        state[S.WAY + side] = schedule.ways[side]
        state[S.STEP + side] = schedule.step(side)
        state[S.GROUP + side] = schedule.group(side)
    _put(state, S.FRAME + FIELDS.index("alpha"), alpha, dtype)
    _put(state, S.BETA, beta, dtype)
    _put(state, S.BETA + 2, 1, dtype)
    state[S.LATER], state[S.LATER + 1] = Mode.ADD, Mode.SCATTER_ADD
    return state


@lru_cache(maxsize=32)
def _kernel_addresses(family: Family) -> Integers:
    """Return a state that knows where a family's kernels are, and nothing else."""
    loaded = kernels(family)
    state = np.zeros(S.SIZE, np.int64)
    for shape in family.shapes:
        kind = 0 if shape.packed else 1
        at = (kind * MOST_VECTORS + shape.vectors - 1) * MOST_COLUMNS + shape.columns - 1
        state[S.KERNELS + at] = loaded.address(shape.name)
    for side, strip in enumerate(family.strips):
        for number, kind_of_packer in enumerate(packers.KINDS):
            at = S.PACKERS + len(packers.KINDS) * side + number
            state[at] = loaded.address(strip.name(kind_of_packer))
    return state


def _put(state: Integers, field: int, value: complex, dtype: str) -> None:
    """Write a number into a field, and its imaginary part into the next one."""
    parts = np.zeros(2, np.zeros(0, dtype).real.dtype)
    parts[0], parts[1] = np.real(value), np.imag(value)
    raw = state[field : field + 2].view(np.uint8)
    size = parts.itemsize
    raw[:size], raw[8 : 8 + size] = parts[:1].view(np.uint8), parts[1:].view(np.uint8)
