"""What runs plans: code that planning alone does not load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesolve.planning.solution import Solution

if TYPE_CHECKING:
    from tilesolve.running.execution import Executor

_executor_types: list[type[Executor]] = []
"""What runs plans, once a plan has run."""


def make_executor(solution: Solution) -> Executor:
    """Return what runs a solution; its code is loaded when the first one is made.

    It may have to be compiled, and so may the plan's kernels: both at once where cores are free.
    """
    if not _executor_types:
        from tilesolve.machine.kernel_cache import family_of, start_compiling

        start_compiling(family_of(solution.problem.dtype, solution.machine))
        from tilesolve.running.execution import Executor

        _executor_types.append(Executor)
    return _executor_types[0](solution)
