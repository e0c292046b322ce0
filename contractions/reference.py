"""The slow and obvious evaluation that every other result is held to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor

MAX_LETTERS = 52
"""Distinct letters that numpy's einsum can tell apart."""

MAX_OPERANDS = 31
"""Operands that every supported numpy's einsum can take at once."""


def reference(
    problem: Problem, *arrays: npt.ArrayLike
) -> npt.NDArray[np.float64] | npt.NDArray[np.complex128]:
    """Evaluate a problem on its operands, slowly.

    Each operand is first gathered into an array with one axis for each of its letters, which
    settles strides, sums of letters and diagonals. numpy's einsum, unoptimised, multiplies and
    sums those.

    Parameters
    ----------
    problem
        What to compute.
    arrays
        One per operand, of the problem's shapes; numbers of any kind that float64, or
        complex128 for a complex problem, can hold.

    Returns
    -------
    numpy.ndarray
        The output in float64, or complex128 for a complex problem.

    Examples
    --------
    >>> problem = Problem.of("h-[2h+r]-r", "h=3 r=2")
    >>> reference(problem, [1, 2, 3, 4, 5, 6], [10, 1])
    array([12., 34., 56.])
    """
    check_kind(problem, Problem, "problem", "a Problem", SpecError)
    spec = problem.spec
    if len(spec.letters) > MAX_LETTERS or len(spec.operands) > MAX_OPERANDS:
        raise SpecError(
            f"the reference evaluates up to {MAX_LETTERS} letters and {MAX_OPERANDS} operands; "
            f"{str(spec)!r} has {len(spec.letters)} and {len(spec.operands)}"
        )
    kind = np.dtype("complex128" if problem.dtype.startswith("complex") else "float64")
    given = problem.check_operands(*arrays)
    number = {letter: i for i, letter in enumerate(spec.letters)}
    sublists: list[Any] = []  # an array and the numbers of its letters, for each operand
    for at, (name, tensor) in enumerate(zip(spec.names[1:], spec.operands, strict=True), 1):
        array = _padded(problem, at, given[at - 1])
        if not np.can_cast(array.dtype, kind, "same_kind"):
            raise DtypeError(
                f"operand {name} of {str(spec)!r} is {array.dtype}, which numpy "
                f"does not turn into {kind}"
            )
        gathered = _gather(problem, tensor, array).astype(kind)
        sublists += [gathered, [number[letter] for letter in tensor.letters]]
    output = [number[letter] for letter in spec.output.letters]
    result = np.einsum(*sublists, output, optimize=False)
    return np.asarray(result, dtype=kind)


def _padded(problem: Problem, at: int, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return a tensor's array with its zeros."""
    ends = [(0, 0)] * array.ndim
    for one in problem.padding:
        if one.tensor == at:
            ends[one.axis] = (one.before, one.after)
    return np.pad(array, ends) if any(map(any, ends)) else array


def _gather(
    problem: Problem, tensor: Tensor, array: npt.NDArray[np.generic]
) -> npt.NDArray[np.generic]:
    """Return the elements of an operand with one axis for each of its distinct letters."""
    letters = tensor.letters
    grid = dict(zip(letters, np.ix_(*(np.arange(problem.sizes[x]) for x in letters)), strict=True))
    positions = tuple(sum(c * grid[x] for c, x in sub.terms) for sub in tensor.subscripts)
    gathered: npt.NDArray[np.generic] = np.asarray(array[positions])
    return gathered
