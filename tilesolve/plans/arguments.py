"""What users name a problem by: a spec and sizes, or the problem itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy.typing as npt

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec

Sizes = Mapping[str, int] | str | int
"""Extents as `Problem.of` takes them."""


def problem_of(
    spec: Spec | str | Problem,
    sizes: Sizes | None,
    dtype: npt.DTypeLike = "float64",
    constant: str = "",
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
        found = spec
    elif sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    else:
        found = Problem.of(spec, sizes, dtype)
    if not constant:
        return found
    names = found.spec.names[1:]
    for name in constant:
        if name not in names:
            raise SizeError(
                f"operand {name!r} cannot be constant: {str(found.spec)!r} has {', '.join(names)}"
            )
    positions = (1 + names.index(name) for name in constant)
    return replace(found, constant=(*found.constant, *positions))
