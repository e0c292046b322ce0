"""How much memory a solution's packed copies take."""

from __future__ import annotations

from math import ceil, prod

from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.roles import Roles
from tilesolve.kernels.dtypes import lanes, panel_columns
from tilesolve.packing.sizes import buffer_bytes, packed_bytes
from tilesolve.packing.windows import WindowCopy
from tilesolve.planning.layout_policy import policy_of
from tilesolve.planning.solution import Solution


def copy_bytes(solution: Solution) -> tuple[int, ...]:
    """Return for each operand the bytes that its packed copy takes at most, in each thread.

    A copy holds one tile of the level it lives in, whose register tiles are filled up to whole
    micro-panels. An operand that the solution reads in place, but whose strides forbid that, is not
    counted: it is packed tile by tile for the nearest cache.
    """
    roles = Roles.of_problem(solution.share)
    windows = _window_bytes(solution)
    register, *tiles = solution.nest.bands
    machine, dtype = solution.machine, solution.problem.dtype
    # Either operand may have the rows.
    widths = lanes(dtype, machine.vector_bits), panel_columns(dtype, machine.vector_registers)
    found = []
    operands = solution.problem.spec.operands
    for at, (tensor, level) in enumerate(zip(operands, solution.nest.packed, strict=True)):
        if level is None or solution.nest.kind(at) == "windows":
            found.append(windows[at])
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
                width * solution.problem.sum_itemsize,
            )
            for width in widths
        )
        found.append(buffer_bytes(max(sizes)) + windows[at])
    return tuple(found)


def block_bytes(solution: Solution) -> int:
    """Return the bytes of the sums of halves until they are rounded, in each thread: 0 of others.

    Examples
    --------
    >>> from tilesolve import plan
    >>> block_bytes(plan("ij-ik-kj", 8, "i7-6700k").solution)
    0
    """
    problem = solution.problem
    if not is_half(problem.dtype) or not all(problem.sizes.values()):
        return 0
    from tilesolve.running.sum_block import SumBlock

    part, _ = solution.parts[0]
    strides = [problem.strides(tensor) for tensor in range(3)]
    block = SumBlock.of(part, policy_of(solution, part, strides))
    return buffer_bytes(block.size_bytes) if block else 0


def _window_bytes(solution: Solution) -> list[int]:
    """Return for each operand the bytes of its window copies, for arrays in C order."""
    problem, nest = solution.problem, solution.nest
    levels = [band.level for band in nest.bands]
    outermost = max((levels.index(level) for level in nest.packed if level), default=0)
    box = dict(nest.bands[outermost].box)
    padded, found = {one.tensor for one in problem.padding}, []
    for at, tensor in enumerate(problem.spec.operands, start=1):
        shape, size = problem.shape(at), 0
        if at in padded or nest.kind(at - 1) == "windows":
            steps = [problem.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
            own = [one for one in problem.padding if one.tensor == at]
            copy = WindowCopy.of(tensor, shape, own, steps, box, problem.itemsize)
            size = buffer_bytes(copy.size_bytes)
        found.append(size)
    return found
