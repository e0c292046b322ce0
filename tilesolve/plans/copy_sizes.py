"""How much memory a plan's packed copies take."""

from __future__ import annotations

from math import ceil, prod

from tilesolve.contractions.roles import Roles
from tilesolve.kernels.dtypes import lanes, panel_columns
from tilesolve.packing.sizes import ALIGNMENT_BYTES, GUARD_BYTES, PANEL_GAP_BYTES
from tilesolve.planning.solution import Solution


def copy_bytes(solution: Solution) -> tuple[int, ...]:
    """Return for each operand the bytes that its packed copy takes at most, in each thread.

    A copy holds one tile of the level it lives in, whose cells are filled up to whole groups. It
    holds for operands that can be read in place where the plan wants that: one whose strides
    forbid it is packed tile by tile for the nearest cache.
    """
    roles = Roles.of_spec(solution.problem.spec)
    cell, *tiles = solution.nest.bands
    machine, dtype = solution.machine, solution.problem.dtype
    # Either operand may have the rows.
    groups = (
        lanes(dtype, machine.vector_bits),
        panel_columns(dtype, machine.vector_registers),
    )
    found = []
    operands = solution.problem.spec.operands
    for tensor, level in zip(operands, solution.nest.packed, strict=True):
        if level is None:
            found.append(0)
            continue
        own = set(tensor.letters).difference(roles.sums, roles.batches)
        tile = next(band for band in tiles if band.level == level)
        cells = prod(ceil(tile[i] / cell[i]) for i in own) * prod(tile[i] for i in roles.batches)
        strips = [ceil(prod(cell[i] for i in own) / group) for group in groups]
        filled = max(n * group for n, group in zip(strips, groups, strict=True))
        # A strip has all of k, even for an operand that does not depend on some of it.
        sums = prod(tile[i] for i in roles.sums)
        size = (
            cells * (filled * sums * solution.problem.itemsize + max(strips) * PANEL_GAP_BYTES)
            + GUARD_BYTES
        )
        found.append(size + -size % ALIGNMENT_BYTES)
    return tuple(found)
