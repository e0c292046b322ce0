"""Window copies of a thread's boxes: their layout, and what each box is copied from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import ROWS, shared_lane
from tilesolve.kernels.runtime import state as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.kernels.runtime.copy_windows import copy_windows
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import buffer_bytes
from tilesolve.packing.windows import WindowCopy
from tilesolve.planning.layout_policy import LayoutPolicy, Strides
from tilesolve.running.schedule import Boxes, Schedule


def lay_out_windows(
    whole: Problem, part: Problem, policy: LayoutPolicy, steps: Sequence[tuple[int, ...]]
) -> tuple[WindowCopy | None, WindowCopy | None]:
    """Return how the rows' and the columns' operand are copied; None for one that is not.

    Parameters
    ----------
    whole
        The problem, whose padding counts.
    part
        What the thread computes.
    policy
        How.
    steps
        Bytes between neighbours along each axis of the output and the operands.
    """
    box = dict(policy.nest.bands[policy.top].box)
    sizes = {letter: max(1, min(box[letter], extent)) for letter, extent in part.sizes.items()}
    found: list[WindowCopy | None] = []
    for number, wanted in zip(_numbers(policy), policy.windows, strict=True):
        copy = WindowCopy.of(
            whole.spec.tensors[number],
            whole.shape(number),
            [one for one in whole.padding if one.tensor == number],
            steps[number],
            sizes,
            whole.itemsize,
            shared_lane(part),
        )
        found.append(copy if wanted else None)
    return found[0], found[1]


def copier(windows: Sequence[WindowCopy | None]) -> int:
    """Return the address of what makes copies, which is compiled where there are some; else 0."""
    return address(copy_windows) if any(windows) else 0


def place_copies(
    state: Integers, schedule: Schedule, boxes: Boxes, windows: Sequence[WindowCopy | None]
) -> int:
    """Put where copies are in the workspace into a state, and return their bytes."""
    policy, taken = schedule.policy, 0
    for side, copy in enumerate(windows):
        segment = boxes.segment_bytes(side, schedule.step(side))
        if side == ROWS:
            state[fields.PREFETCHES_PANELS] = segment > policy.near_copy_bytes
        state[fields.COPY + side] = taken
        taken += 0 if policy.prepared[side] else segment
        state[fields.WINDOW_COPY + side] = taken
        taken += buffer_bytes(copy.size_bytes) if copy else 0
    return taken


def read_strides(
    policy: LayoutPolicy, windows: Sequence[WindowCopy | None]
) -> tuple[Strides, Strides, Strides]:
    """Return the bytes along each letter as calls see them: those of copies where there are some.

    Of the output, the rows' operand and the columns' one.
    """
    output, *given = policy.strides
    rows, columns = (
        own
        if copy is None
        else {i: -step if i in policy.last else step for i, step in copy.strides.items()}
        for own, copy in zip(given, windows, strict=True)
    )
    return output, rows, columns


def window_records(
    copy: WindowCopy,
    boxes: Boxes,
    part: Problem,
    policy: LayoutPolicy,
    start: Mapping[str, int],
) -> Integers:
    """Return what each box of a part is copied from, see `window_fields`."""
    kinds = [[sizes[letter] for letter in part.sizes] for sizes in boxes.sizes]
    of_boxes = np.array(kinds, np.int64)[boxes.kinds]
    sizes = {letter: of_boxes[:, at] for at, letter in enumerate(part.sizes)}
    begins = {}
    for at, letter in enumerate(part.sizes):
        first = boxes.corners[:, at]
        if letter in policy.last:
            first = policy.last[letter] - first - sizes[letter] + 1
        begins[letter] = first + start.get(letter, 0)
    return copy.records(begins, sizes, policy.last)


def _numbers(policy: LayoutPolicy) -> tuple[int, int]:
    """Return the positions of the rows' and the columns' operand among the tensors."""
    return 1 + policy.rows_operand, 2 - policy.rows_operand
