"""Epilogues computed by NumPy: what kernels are held to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.epilogue_terms import FIRST, OPERAND, SECOND, SUM, list_steps
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.statements.terms import Term
from tilesolve.contractions.statements.values import combine


def evaluate_term(term: Term, known: Mapping[Term, Any]) -> Any:
    """Return what numpy makes of a term, given the values of what it reads.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Param
    >>> x = Param("x")
    >>> evaluate_term(x * x + 1, {x: np.array([1.0, 2.0])}).tolist()
    [2.0, 5.0]
    """
    return known[term] if term in known else combine(term, lambda one: evaluate_term(one, known))


def apply_epilogue(
    epilogue: Epilogue,
    problem: Problem,
    result: npt.NDArray[Any],
    operands: Sequence[npt.ArrayLike],
) -> npt.NDArray[Any]:
    """Return what a chain makes of a problem's result, with NumPy, in the result's dtype.

    Raises
    ------
    SizeError
        If there are not as many operands as the chain takes, or one has another shape.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", "m=1 n=2 k=3")
    >>> apply_epilogue(Epilogue.parse("+n relu"), problem, np.array([[1.0, -5.0]]), [[1.0, 2.0]])
    array([[2., 0.]])
    """
    if len(operands) != len(epilogue.operands):
        raise SizeError(
            f"epilogue {str(epilogue)!r} takes {len(epilogue.operands)} operands, "
            f"got {len(operands)}"
        )
    given = iter(zip(operands, epilogue.shapes(problem), strict=True))
    for one in epilogue.operations:
        (step,) = list_steps(Epilogue((one,)))
        if one.function is not None:
            result = np.vectorize(one.function.function, otypes=[result.dtype])(result)
            continue
        numbers = map(result.dtype.type, one.numbers)
        known: dict[Term, Any] = {SUM: result, **dict(zip((FIRST, SECOND), numbers, strict=False))}
        if one.takes_operand:
            known[OPERAND] = _spread(problem, one, *next(given))
        result = evaluate_term(step.term, known)
    return result


def _spread(
    problem: Problem, one: Operation, operand: npt.ArrayLike, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return an operand with the axes of the output, of one element where it has none."""
    array, output = np.asarray(operand), problem.spec.output.letters
    if array.shape != shape:
        raise SizeError(
            f"the operand of epilogue {str(one)!r} must have shape {shape}, got {array.shape}"
        )
    order = sorted(range(array.ndim), key=lambda at: output.index(one.letters[at]))
    wide = tuple(problem.sizes[i] if i in one.letters else 1 for i in output)
    return array.transpose(order).reshape(wide)
