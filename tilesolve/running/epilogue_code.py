"""Code of an epilogue's steps: whether there can be any, and where it is once it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.contractions.problem import Problem

if TYPE_CHECKING:
    from tilesolve.contractions.epilogue_terms import Step


def check_epilogue(epilogue: Epilogue | None, problem: Problem) -> None:
    """Raise an error unless a chain can follow a problem, and its own functions can be compiled.

    Raises
    ------
    SpecError, DtypeError
        As `Epilogue.check` does.
    PlanError
        If numba cannot compile a function, or what it returns is no real number.
    """
    if epilogue is None:
        return
    epilogue.check(problem)
    if any(one.function is not None for one in epilogue.operations):
        from tilesolve.contractions.epilogue_terms import list_steps

        for step in list_steps(epilogue):
            if step.function is not None:
                code_address(step, problem.dtype)


def code_address(step: Step, dtype: str) -> int:
    """Return where the code of a step is; it is loaded, or compiled, when that is asked."""
    if step.function is None:
        from tilesolve.kernels.runtime.epilogue_steps import step_address

        return step_address(step.term, dtype)
    from tilesolve.kernels.runtime.own_steps import own_step_address  # loads numba

    return own_step_address(step.function, summed_dtype(dtype))
