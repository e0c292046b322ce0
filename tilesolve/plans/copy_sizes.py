"""How much memory a solution's packed copies take."""

from __future__ import annotations

from math import ceil, prod

from tilesolve.contractions.roles import Roles
from tilesolve.kernels.dtypes import lanes, panel_columns
from tilesolve.packing.sizes import buffer_bytes, packed_bytes
from tilesolve.planning.solution import Solution


def copy_bytes(solution: Solution) -> tuple[int, ...]:
    """Return for each operand the bytes that its packed copy takes at most, in each thread.

    A copy holds one tile of the level it lives in, whose register tiles are filled up to whole
    micro-panels. An operand that the solution reads in place, but whose strides forbid that, is not
    counted: it is packed tile by tile for the nearest cache.
    """
    roles = Roles.of_spec(solution.problem.spec)
    register, *tiles = solution.nest.bands
    machine, dtype = solution.machine, solution.problem.dtype
    # Either operand may have the rows.
    widths = lanes(dtype, machine.vector_bits), panel_columns(dtype, machine.vector_registers)
    found = []
    operands = solution.problem.spec.operands
    for tensor, level in zip(operands, solution.nest.packed, strict=True):
        if level is None:
            found.append(0)
            continue
        own = set(tensor.letters).difference(roles.sums, roles.batches)
        tile = next(band for band in tiles if band.level == level)
        register_tiles = prod(ceil(tile[i] / register[i]) for i in own)
        batches = prod(tile[i] for i in roles.batches)
        # A micro-panel has all of k, even for an operand that does not depend on some of it.
        sums = prod(tile[i] for i in roles.sums)
        side = prod(register[i] for i in own)
        sizes = (
            packed_bytes(
                register_tiles * ceil(side / width),
                batches,
                sums,
                width * solution.problem.itemsize,
            )
            for width in widths
        )
        found.append(buffer_bytes(max(sizes)))
    return tuple(found)
