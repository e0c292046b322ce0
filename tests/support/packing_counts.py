"""How many elements a run of a solution packs, counted while it runs."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from math import prod

import numpy as np

from tilesolve.contractions.roles import BATCHES, SUMS
from tilesolve.kernels.runtime import state
from tilesolve.packing import window_fields
from tilesolve.running.execution import Layout
from tilesolve.running.prepared import Prepared

_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_PACK_SEGMENT = ctypes.CFUNCTYPE(_INT, _ADDRESS, *[_INT] * 4, *[_ADDRESS] * 3)
_COPY_WINDOWS = ctypes.CFUNCTYPE(None, *[_INT] * 4)


def count_packed(solution, operands):
    """Return for each operand the elements put into micro-panels, and those into window copies.

    Constant operands are prepared before, and do not count.
    """
    problem = solution.problem
    names = problem.spec.names[1:]
    ready = [Prepared.of(solution, names[at - 1], operands[at - 1]) for at in problem.constant]
    out = np.zeros(problem.shape(0), problem.dtype)
    micro_panels, windows = [0, 0], [0, 0]
    for task in Layout.of(solution, *operands, out, prepared=ready).tasks:
        with _counting(task, micro_panels, windows):
            task.run((out, *operands), 1, 0)
    return micro_panels, windows, out


@contextmanager
def _counting(task, micro_panels, windows):
    """Have a task's runs add to counts, through functions called in the place of compiled ones."""
    fields, schedule = task.state, task.schedule
    first = schedule.policy.rows_operand
    packing = _PACK_SEGMENT(int(fields[state.PACK_SEGMENT]))
    copying = _COPY_WINDOWS(int(fields[state.COPY_WINDOWS]))
    records = {
        int(record.ctypes.data) + at * record.strides[0]: (side, row)
        for side, record in enumerate(task.records)
        if record is not None
        for at, row in enumerate(record)
    }

    def pack(s, side, x, k, b, *tables):
        done = packing(s, side, x, k, b, *tables)
        if done:
            now = np.ctypeslib.as_array((_INT * state.SIZE).from_address(s))
            level = int(now[state.PACKED_LEVEL + side])
            axes = task.boxes.tables[task.boxes.kinds[now[state.BOX]]].axes
            ranges = [
                axes[role].range(level, at) for role, at in ((side, x), (SUMS, k), (BATCHES, b))
            ]
            micro_panels[side ^ first] += prod(end - begin for begin, end in ranges)
        return done

    def copy(s, source, target, record):
        side, row = records[record]
        axes = row[window_fields.SIZE :].reshape(-1, window_fields.AXIS_WORDS)
        places = axes[:, [window_fields.BEFORE, window_fields.COUNT, window_fields.AFTER]]
        unit = row[window_fields.UNIT_BYTES] // schedule.element
        windows[side ^ first] += int(unit * places.sum(axis=1).prod())
        copying(s, source, target, record)

    counted = _PACK_SEGMENT(pack), _COPY_WINDOWS(copy)
    kept = fields.copy()
    fields[[state.PACK_SEGMENT, state.COPY_WINDOWS]] = [
        ctypes.cast(one, _ADDRESS).value for one in counted
    ]
    yield
    fields[:] = kept
