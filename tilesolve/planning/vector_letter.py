"""The letter that vectors lie along: the output's last one, unless another one costs less.

Windows are read as vectors only from micro-panels, which repeat what windows share. Where vectors
lie along the letter of the other operand, windows are read element by element, from where they lie,
and the output is written across its rows instead. Vectors along a letter that all tensors have
multiply vectors, at about half of the speed: from where they lie, if all tensors end with it.
"""

from __future__ import annotations

from math import ceil, prod

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, Roles, lane_is_last, shared_lane
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import uses_half_vectors
from tilesolve.machine.model import Machine
from tilesolve.model.copies import panel_tensor


def choose_vector_letter(problem: Problem, machine: Machine) -> str | None:
    """Return the letter that vectors lie along; None for the output's last one.

    Examples
    --------
    >>> machine = Machine.load("e5-2680v4")
    >>> layer = "khw-c[h+r][w+s]-kcrs"
    >>> choose_vector_letter(Problem.of(layer, "k=64 h=14 w=14 c=64 r=3 s=3"), machine)
    'k'
    >>> choose_vector_letter(Problem.of(layer, "k=8 h=64 w=64 c=1 r=1 s=1"), machine)
    >>> choose_vector_letter(Problem.of("ik-ij-jk", 64), machine)
    >>> choose_vector_letter(Problem.of("chw-c[h+r][w+s]-crs", "c=64 h=9 w=9 r=3 s=3"), machine)
    'c'
    """
    spec, output = problem.spec, problem.spec.output.letters
    affine = {i for t in spec.operands for s in t.subscripts if not s.plain for i in s.letters}
    if shared_lane(problem):
        return _letter_of_one(problem, machine)
    if len(spec.operands) != 2 or not output or output[-1] not in affine:
        return None
    roles = Roles.of_spec(spec)
    last = roles.number(output[-1])
    if last == BATCHES:
        return None
    others = [
        i
        for i in (*roles.rows, *roles.columns)
        if roles.number(i) != last and i not in affine and problem.sizes[i] > 1
    ]
    cycles: dict[str | None, float] = {None: _cycles(problem, machine, None)}
    if others:
        # What is contiguous in the other operand, and comes last there, fills vectors best.
        other = max(others, key=lambda i: (problem.sizes[i], output.index(i)))
        cycles[other] = _cycles(problem, machine, other)
    for letter in roles.batches:
        if shared_lane(problem.with_vector(letter)) and problem.sizes[letter] > 1:
            cycles[letter] = _shared_cycles(problem.with_vector(letter), machine)
    return min(cycles, key=cycles.__getitem__)


def _letter_of_one(problem: Problem, machine: Machine) -> str | None:
    """Return a letter of one operand that vectors had better lie along than the shared lane.

    Both operands are packed then, which vectors that multiply vectors are not.
    """
    costs, spec = machine.costs, problem.spec
    best = longest_letter_of_one(problem)
    if best is None:
        return None
    packed = sum(prod(panel_tensor(spec, at).shape(problem.sizes)) for at in (1, 2))
    apart = _arithmetic_cycles(problem, machine, best) + costs.pack_cycles * packed
    apart += costs.scattered_store_cycles * prod(problem.shape(0))
    return best if apart < _shared_cycles(problem, machine) else None


def _shared_cycles(problem: Problem, machine: Machine) -> float:
    """Return the cycles of vectors that multiply vectors, and of laying out what is no vector."""
    costs = machine.costs
    found = costs.lanewise_slowdown * _arithmetic_cycles(problem, machine, str(problem.lane))
    for tensor, each in enumerate((costs.turned_store_cycles, *[costs.pack_cycles] * 2)):
        if not lane_is_last(problem, tensor) and tensor not in problem.constant:
            found += each * prod(problem.shape(tensor))
    return found


def longest_letter_of_one(problem: Problem) -> str | None:
    """Return the longest letter of the output that one operand alone has.

    Examples
    --------
    >>> longest_letter_of_one(Problem.of("hwc-[h+r][w+s]c-rsc", "h=9 w=7 c=40 r=3 s=3"))
    'h'
    """
    spec, sizes = problem.spec, problem.sizes
    roles = Roles.of(spec.output.letters, [t.letters for t in spec.operands], order=spec.letters)
    free = [i for i in (*roles.rows, *roles.columns) if sizes[i] > 1]
    return max(free, key=lambda i: (sizes[i], spec.output.letters.index(i)), default=None)


def _arithmetic_cycles(problem: Problem, machine: Machine, lane: str) -> float:
    """Return the cycles of arithmetic at the peak with vectors along a letter."""
    sizes = problem.sizes
    group = lanes(problem.dtype, machine.vector_bits)
    if uses_half_vectors(machine, problem.dtype):
        group = max(1, group // 2)
    filled = ceil(sizes[lane] / group) * group / max(1, sizes[lane])
    return filled * problem.flops / machine.peak(problem.dtype) * machine.frequency


def _cycles(problem: Problem, machine: Machine, vector: str | None) -> float:
    """Return the cycles of arithmetic, of packing what is read as vectors, and of writing."""
    roles, sizes, costs = Roles.of_spec(problem.spec), problem.sizes, machine.costs
    lane = vector or problem.spec.output.letters[-1]
    arithmetic = _arithmetic_cycles(problem, machine, lane)
    if vector is not None:
        return arithmetic + costs.turned_store_cycles * prod(problem.shape(0))
    packed = prod(sizes[i] for i in (*roles[roles.number(lane)], *roles.sums, *roles.batches))
    return arithmetic + costs.pack_cycles * packed
