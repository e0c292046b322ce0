"""What a solution uses again: within a thread, and among threads."""

from __future__ import annotations

from tilesolve.model.working_sets import Reuse, find_reuses, find_shared
from tilesolve.planning.solution import Solution


def reuses_of(solution: Solution) -> tuple[Reuse, ...]:
    """Return the reuses of a solution, innermost loop first, see `find_reuses`.

    Raises
    ------
    ModelError
        If windows share elements and islpy is missing.
    PlanError
        If windows share elements of register tiles of chosen sizes.
    """
    share, machine, threads = solution.share, solution.machine, solution.threads
    found = find_reuses(share, solution.nest, machine, threads)
    if solution.split is None:
        return found
    return (*found, *find_shared(solution.problem, solution.split, threads, machine))
