"""Running plans: checks, buffers, threads, and the calls of the macrokernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilesolve.code_store import kernels
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.kernels import macrokernel, packers
from tilesolve.kernels.code import MOST_COLUMNS, MOST_VECTORS, Family
from tilesolve.kernels.macrokernel import TRACE, S
from tilesolve.kernels.microkernel import FIELDS, Mode
from tilesolve.packing.buffers import GUARD, allocate, borrowed
from tilesolve.schedule import Schedule

if TYPE_CHECKING:
    from tilesolve.planning import Plan

Array = npt.NDArray[Any]
_NO_TRACE = np.zeros((0, TRACE), np.int64)


def roles_of(problem: Problem, rows: str | None) -> tuple[int, tuple[tuple[str, ...], ...]]:
    """Return which operand has the rows (1 or 2), and the letters of each role."""
    spec = problem.spec
    has = [set(tensor.letters) for tensor in spec.tensors]
    first = 2 if rows is not None and rows in has[2] and rows not in has[1] else 1
    second = 3 - first
    groups: tuple[list[str], ...] = ([], [], [], [])
    for letter in problem.sizes:
        if letter not in has[0]:
            role = 2
        elif letter in has[1] and letter in has[2]:
            role = 3
        else:
            role = 0 if letter in has[first] else 1
        groups[role].append(letter)
    del second
    return first, tuple(tuple(group) for group in groups)


def strides_of(tensor: Tensor, array: Array) -> dict[str, int]:
    """Return the bytes between neighbours along each letter of a tensor."""
    found: dict[str, int] = {}
    for subscript, stride in zip(tensor.subscripts, array.strides, strict=True):
        for factor, letter in subscript.terms:
            found[letter] = found.get(letter, 0) + factor * stride
    return found


def run(
    plan: Plan,
    operands: Sequence[Array],
    out: Array,
    alpha: complex = 1,
    beta: complex = 0,
    trace: list[Any] | None = None,
) -> None:
    problem = plan.share
    if out.size == 0:
        return
    first, roles = roles_of(
        problem,
        plan.setting.fused.letters(plan.setting.fused.rows)[0] if plan.setting.fused.rows else None,
    )
    order = (first - 1, 2 - first)
    arrays = (out, operands[order[0]], operands[order[1]])
    tensors = (problem.spec.output, *(problem.spec.operands[i] for i in order))
    strides = [strides_of(t, a) for t, a in zip(tensors, arrays, strict=True)]
    copies = tuple(plan.nest.packed[i] if plan.nest.packed else None for i in order)
    family = Family.of(problem.dtype, plan.machine.vector_bits, plan.machine.vector_registers)
    schedule = Schedule(problem, plan.nest, family, strides, roles, copies)
    walk(schedule, arrays, alpha, beta, plan.output == "stream", trace)


def walk(schedule, arrays, alpha, beta, stream, trace=None):
    family = schedule.family
    loaded = kernels(family)
    dtype = np.dtype(schedule.problem.dtype)
    s = np.zeros(S.SIZE, np.int64)
    for shape in family.shapes:
        at = (
            ((0 if shape.packed else 1) * MOST_VECTORS + shape.vectors - 1) * MOST_COLUMNS
            + shape.columns
            - 1
        )
        s[S.KERNELS + at] = loaded.address(shape.name)
    for side, strip in enumerate(family.strips):
        for number, kind in enumerate(packers.KINDS):
            if True:
                s[S.PACKERS + 4 * side + number] = loaded.address(strip.name(kind))
    s[S.TOP] = schedule.top
    for level, order in enumerate(schedule.orders):
        s[S.ORDERS + 4 * level : S.ORDERS + 4 * level + 4] = order
    for side in (0, 1):
        s[S.LEVEL + side] = schedule.packed[side]
        s[S.WAY + side] = schedule.ways[side]
        s[S.STEP + side] = schedule.step(side)
        s[S.GROUP + side] = (family.lanes, family.group)[side]
    put(s, S.FRAME + FIELDS.index("alpha"), alpha, dtype)
    put(s, S.BETA, beta, dtype)
    put(s, S.BETA + 2, 1, dtype)
    adds = beta != 0
    s[S.LATER], s[S.LATER + 1] = Mode.ADD, Mode.SCATTER_ADD
    boxes = list(schedule.boxes())
    sizes = []
    for side in (0, 1):
        need = max(
            box.groups[side] * box.sums[side] * box.batches[side] for _, _, box in boxes
        ) * schedule.step(side)
        sizes.append(need + GUARD)
    longest = max(len(box.axes[2].offsets[0]) for _, _, box in boxes)
    table = np.zeros((2, 64), np.int64)
    steps = np.arange(longest + 1)[None, :] * np.array([[schedule.step(0)], [schedule.step(1)]])
    steps = np.ascontiguousarray(steps)
    with borrowed(sizes) as buffers:
        for side in (0, 1):
            s[S.BUFFER + side] = buffers[side].ctypes.data
            s[S.PLACED_ROWS + side] = table[side].ctypes.data
            s[S.PLACED_SUMS + side] = steps[side].ctypes.data
        for _, corner, box in boxes:
            base = [
                a.ctypes.data + sum(st.get(l, 0) * at for l, at in corner.items())
                for a, st in zip(arrays, schedule.strides)
            ]
            s[S.OUTPUT], s[S.SOURCE], s[S.SOURCE + 1] = base
            s[S.FIRST] = all(corner.get(i, 0) == 0 for i in schedule.roles[2])
            single = len(box.axes[2].bounds[0]) == 2
            streaming = stream and box.aligned and base[0] % (family.bits // 8) == 0
            s[S.MODE] = Mode.ADD if adds else Mode.STREAM if streaming else Mode.STORE
            s[S.MODE + 1] = Mode.SCATTER_ADD if adds else Mode.SCATTER
            for role, t in enumerate(box.tables):
                s[S.TABLES + role] = t.ctypes.data
            s[S.CELLS] = len(box.axes[0].bounds[0]) - 1
            s[S.CELLS + 1] = len(box.axes[1].bounds[0]) - 1
            s[S.CALLS] = 0
            traced = _NO_TRACE
            if trace is not None:
                count = 1
                for axis in box.axes:
                    count *= len(axis.bounds[0]) - 1
                traced = np.zeros((count, TRACE), np.int64)
            macrokernel.run(s, *box.tables, traced)
            if trace is not None:
                trace.append((corner, box, traced[: s[S.CALLS]]))


def put(s, field, value, dtype):
    real = np.zeros(2, dtype.char.lower() if dtype.kind == "c" else dtype)
    real[0] = np.real(value)
    raw = s.view(np.uint8)
    size = real.itemsize
    raw[8 * field : 8 * field + size] = real[:1].view(np.uint8)
    real[0] = np.imag(value)
    raw[8 * field + 8 : 8 * field + 8 + size] = real[:1].view(np.uint8)
