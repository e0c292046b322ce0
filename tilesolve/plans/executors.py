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

        if solution.problem.pairing is None:
            family = family_of(solution.problem.dtype, solution.machine)
            start_compiling(family, packed=_packs_columns(solution))
        from tilesolve.running.execution import Executor

        _executor_types.append(Executor)
    return _executor_types[0](solution)


def _packs_columns(solution: Solution) -> bool:
    """Return whether what vectors do not lie along is packed.

    Then kernels read copies alone, as long rows are mostly packed, too: where arrays lie decides
    that, and is not known yet.
    """
    operands = zip(solution.problem.spec.operands, solution.nest.packed, strict=True)
    return all(
        level is not None for tensor, level in operands if solution.vector not in tensor.letters
    )
