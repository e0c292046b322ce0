"""Blocks of sums: where products of halves are added up in float32, until they are rounded.

C is rounded once, when its last products are added. Until then calls write its sums to a block in
the workspace, and a pass over what has all of them rounds them into C: the last step of the
epilogue (`epilogue_tables`). The block has the tile of the nearest band that sums are whole in, and
the next tile takes its place; it has all of C only where the box of a walk has but a part of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import COLUMNS
from tilesolve.packing.offsets import RoleAxis
from tilesolve.packing.sizes import LINE_BYTES, PANEL_GAP_BYTES
from tilesolve.planning.layout_policy import LayoutPolicy, Strides, letter_of_row_vectors


@dataclass(frozen=True, slots=True)
class SumBlock:
    """The block of one thread.

    Parameters
    ----------
    band
        The number of the band whose tiles it has; None for all of C.
    strides
        Bytes along each letter of the output.
    size_bytes
        Bytes that it takes.
    """

    band: int | None
    strides: Strides
    size_bytes: int

    @classmethod
    def of(cls, problem: Problem, policy: LayoutPolicy) -> Self | None:
        """Return the block of a part that is run in some way; None if its sums are C itself."""
        if not is_half(problem.dtype):
            return None
        bands, roles = policy.nest.bands, policy.roles
        whole = (
            at
            for at in range(1, policy.top + 1)
            if all(bands[at][i] >= problem.sizes[i] for i in roles.sums)
        )
        band = next(whole, None)
        sides = dict(problem.sizes)
        if band is not None:
            sides = {i: min(bands[band][i], extent) for i, extent in sides.items()}
        lane = letter_of_row_vectors(problem, roles, policy.strides[0])
        rows = sorted(roles.rows, key=lambda letter: letter != lane)
        strides, pitch = {}, problem.sum_itemsize
        for role, letters in enumerate((rows, roles.columns, roles.batches)):
            if role == COLUMNS:
                pitch += -pitch % LINE_BYTES
                pitch += PANEL_GAP_BYTES * (pitch % (2 * PANEL_GAP_BYTES) == 0)
            for letter in letters:
                strides[letter] = pitch
                pitch *= max(1, sides[letter])
        return cls(band, strides, pitch)

    @property
    def corner_strides(self) -> Strides:
        """Bytes that the block's beginning is away from a box's along each letter."""
        return self.strides if self.band is None else {}

    def place(self, axis: RoleAxis) -> RoleAxis:
        """Return an axis with offsets in the block, which each tile of the band begins anew."""
        if self.band is None:
            return axis
        found, *others = axis.offsets
        found = found.copy()
        for segment in range(len(axis.bounds[self.band]) - 1):
            low, high = axis.range(self.band, segment)
            if high > low:
                found[low:high] -= found[low]
        return replace(axis, offsets=(found, others[0], others[1]))
