"""The letter that vectors lie along: the output's last one, unless another one costs less.

Windows are read as vectors only from micro-panels, which repeat what windows share. Where vectors
lie along the letter of the other operand, windows are read element by element, from where they lie,
and the output is written across its rows instead.
"""

from __future__ import annotations

from math import ceil, prod

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, Roles
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.model import Machine


def vector_letter(problem: Problem, machine: Machine) -> str | None:
    """Return the letter that vectors lie along; None for the output's last one.

    Examples
    --------
    >>> machine = Machine.load("e5-2680v4")
    >>> layer = "khw-c[h+r][w+s]-kcrs"
    >>> vector_letter(Problem.of(layer, "k=64 h=14 w=14 c=64 r=3 s=3"), machine)
    'k'
    >>> vector_letter(Problem.of(layer, "k=2 h=64 w=64 c=1 r=1 s=2"), machine)
    >>> vector_letter(Problem.of("ik-ij-jk", 64), machine)
    """
    spec, output = problem.spec, problem.spec.output.letters
    affine = {i for t in spec.operands for s in t.subscripts if not s.plain for i in s.letters}
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
    if not others:
        return None
    # What is contiguous in the other operand, and comes last there, fills vectors best.
    other = max(others, key=lambda i: (problem.sizes[i], output.index(i)))
    return other if _cycles(problem, machine, other) < _cycles(problem, machine, None) else None


def _cycles(problem: Problem, machine: Machine, vector: str | None) -> float:
    """Return the cycles of arithmetic, of packing what is read as vectors, and of writing."""
    roles, sizes, costs = Roles.of_spec(problem.spec), problem.sizes, machine.costs
    lane = vector or problem.spec.output.letters[-1]
    group = lanes(problem.dtype, machine.vector_bits)
    if machine.uses_half_vectors(problem.dtype):
        group = max(1, group // 2)
    filled = ceil(sizes[lane] / group) * group / max(1, sizes[lane])
    arithmetic = filled * problem.flops / machine.peak(problem.dtype) * machine.frequency
    if vector is not None:
        return arithmetic + costs.scattered_store_cycles * prod(problem.shape(0))
    packed = prod(sizes[i] for i in (*roles[roles.number(lane)], *roles.sums, *roles.batches))
    return arithmetic + costs.pack_cycles * packed
