"""The loops of a plan as they run, as text."""

from __future__ import annotations

from collections.abc import Iterator

from tilesolve.contractions.roles import COLUMNS, ROWS
from tilesolve.planning.layout_policy import LayoutPolicy
from tilesolve.planning.solution import Solution


def list_loops(solution: Solution, policy: LayoutPolicy) -> Iterator[str]:
    """Yield the loops of a thread, outermost first, and where copies are made.

    Parameters
    ----------
    solution
        What was found.
    policy
        How it runs for some arrays.

    Examples
    --------
    >>> from tilesolve.planning.layout_policy import policy_of
    >>> from tilesolve.plans.plan import plan
    >>> solution = plan("ij-ik-kj", 500, "i7-6700k", cache=False).solution
    >>> strides = [solution.problem.strides(tensor) for tensor in range(3)]
    >>> loops = list_loops(solution, policy_of(solution, solution.problem, strides))
    >>> [line.split()[0] for line in loops][-1]
    'for'
    """
    bands, names = policy.nest.bands, policy.nest.names
    depth = 1
    if solution.split is not None:
        step = solution.share.sizes[solution.split]
        yield f"{_pad(depth)}for {solution.split} by {step}: parts of threads"
        depth += 1
    for at in reversed(range(1, len(bands))):
        for copy in _copies(solution, policy, at):
            yield f"{_pad(depth)}{copy} {names[at]}"
        band, inner = bands[at], bands[at - 1]
        loops = [f"{i} by {inner[i]}" for i in reversed(band.order) if band[i] > inner[i]]
        if loops:
            inside = f"tiles of {names[at - 1]}" if at > 1 else "calls"
            yield f"{_pad(depth)}for {', '.join(loops)}: {inside}"
            depth += 1
        elif at == 1:
            yield f"{_pad(depth)}one call"


def _pad(depth: int) -> str:
    return "  " * depth


def _copies(solution: Solution, policy: LayoutPolicy, at: int) -> Iterator[str]:
    """Yield what is copied for each tile of a band."""
    spec, first = solution.problem.spec, policy.rows_operand
    sides = (ROWS, COLUMNS) if first == 0 else (COLUMNS, ROWS)
    for operand, side in enumerate(sides):
        name = f"{spec.names[operand + 1]} ({spec.operands[operand]})"
        if policy.windows[side] and at == policy.top:
            yield f"windows of {name} into"
        if policy.packed[side] == at and not policy.prepared[side]:
            yield f"{name} packed into"
