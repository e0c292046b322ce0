"""What users name a problem by: a spec and sizes, or the problem itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec

Sizes = Mapping[str, int] | str | int
"""Extents as `Problem.of` takes them."""


def problem_of(
    spec: Spec | str | Problem, sizes: Sizes | None, dtype: npt.DTypeLike = "float64"
) -> Problem:
    """Return the problem that the arguments of `plan` name.

    Examples
    --------
    >>> str(problem_of("ik-ij-jk", 8))
    'ik-ij-jk i=8 k=8 j=8 float64'
    """
    if isinstance(spec, Problem):
        if sizes is not None:
            raise SizeError("a Problem has its sizes already; do not give any beside it")
        return spec
    if sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    return Problem.of(spec, sizes, dtype)
