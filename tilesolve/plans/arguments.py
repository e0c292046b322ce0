"""What users name a problem by: a spec and sizes, shapes or arrays, or the problem itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

import numpy.typing as npt

from tilesolve.contractions.argument_kinds import check_kind, read_flag
from tilesolve.contractions.convolution_arguments import read_shape
from tilesolve.contractions.epilogue import Epilogue, EpilogueArgument
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError, SpecError
from tilesolve.contractions.inference import infer
from tilesolve.contractions.problem import Problem, dtype_name
from tilesolve.contractions.spec import Spec
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.planning.demand import Demand
from tilesolve.system.checks import check_tries

Sizes = Mapping[str, int] | str | int
"""Extents as `Problem.of` takes them."""

Tensors = Sequence[Any]
"""A shape, or an array that has one, for each operand; or for each tensor as the spec writes them.
"""


def read_sizes(
    spec: Spec | str | Problem,
    sizes: Sizes | Tensors | None,
    dtype: npt.DTypeLike | None,
    kind: type[Problem] = Problem,
) -> tuple[Sizes | None, str | None]:
    """Return the extents and the dtype that the arguments of `plan` name; None is what is missing.

    Examples
    --------
    >>> read_sizes("ij,jk->ik", [(2, 3), (3, 4)], None)
    ({'i': 2, 'j': 3, 'k': 4}, None)
    >>> read_sizes("ij,jk->ik", [(2, 3), (4, 5)], None)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: the extents of 'j' in 'ij,jk->ik' disagree: \
3 on axis 1 of operand A, 4 on axis 0 of operand B
    """
    name = None if dtype is None else dtype_name(dtype, kind.TAKEN)
    if isinstance(spec, Problem):
        if sizes is not None:
            raise SizeError("a Problem has its sizes already; do not give any beside it")
        if name not in (None, spec.dtype):
            raise DtypeError(f"a Problem has its dtype already, {spec.dtype}; got dtype {name}")
        return None, name
    check_kind(spec, (Spec, str), "spec", "a Spec, a Problem or text", SpecError)
    if sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    if getattr(sizes, "shape", None):
        raise SizeError(
            "sizes is a single array: give all operands as one sequence, such as plan(spec, (A, B))"
        )
    if isinstance(sizes, list | tuple):
        parsed = spec if isinstance(spec, Spec) else Spec.parse(spec)
        return _read_tensors(parsed, sizes, name, kind)
    return sizes, name  # type: ignore[return-value]  # what is neither is refused by Problem.of


def _read_tensors(
    spec: Spec, tensors: Tensors, dtype: str | None, kind: type[Problem]
) -> tuple[dict[str, int], str | None]:
    """Return the extents of all letters, and the dtype that arrays have if none is asked for."""
    _check_two_operands(spec)
    names = list(spec.names[1:])
    if len(tensors) == len(spec.tensors):
        names.insert(0 if spec.form == "tccg" else len(names), spec.names[0])
    elif len(tensors) != len(names):
        raise SizeError(
            f"sizes has {len(tensors)} entries: give a shape or an array for each of the "
            f"{len(names)} operands of {str(spec)!r}, or for each of its tensors"
        )
    shapes = {
        name: _shape_of(f"{name} of {str(spec)!r}", one)
        for name, one in zip(names, tensors, strict=True)
    }
    sizes = infer(spec, [shapes[name] for name in spec.names[1:]], shapes.get(spec.names[0]))
    if dtype is not None:
        return sizes, dtype
    found = {
        name: dtype_name(one.dtype, kind.TAKEN)
        for name, one in zip(names, tensors, strict=True)
        if hasattr(one, "dtype")
    }
    if len(set(found.values())) > 1:
        told = ", ".join(f"{name} is {one}" for name, one in found.items())
        raise DtypeError(f"the arrays of {str(spec)!r} have different dtypes: {told}")
    return sizes, next(iter(found.values()), None)


def _shape_of(name: str, one: Any) -> tuple[int, ...]:  # noqa: ANN401 - a shape or what has one
    shape = getattr(one, "shape", one)
    if not isinstance(shape, list | tuple):
        raise SizeError(
            f"sizes has {one!r} for {name}, which is no shape and no array; shapes are given as "
            "one sequence, such as ((2, 3), (3, 4))"
        )
    return read_shape(name, shape)


def read_demand(
    accumulate: object,
    epilogue: EpilogueArgument,
    strategy: str,
    scheme: Scheme | str | None,
    tries: int,
) -> Demand:
    """Return what the arguments of `plan` ask for beside a problem.

    Examples
    --------
    >>> read_demand(True, "relu", "solver", None, 1).overwrite
    False
    """
    chain = Epilogue.of(epilogue)
    check_kind(strategy, str, "strategy", "the name of one", PlanError)
    check_kind(scheme, (Scheme, str, NoneType), "scheme", "a Scheme or text", PlanError)
    return Demand(
        not read_flag(accumulate, "accumulate", PlanError),
        chain if chain.operations else None,
        strategy,
        Scheme.of(scheme) if isinstance(scheme, str) else scheme,
        check_tries(tries),
    )


def problem_of(
    spec: Spec | str | Problem,
    sizes: Sizes | None,
    dtype: str | None = None,
    constant: str = "",
    *,
    aligned_output: bool = False,
    kind: type[Problem] = Problem,
) -> Problem:
    """Return the problem that the arguments of `plan` name, as `read_sizes` gives them.

    Examples
    --------
    >>> str(problem_of("ik-ij-jk", 8))
    'ik-ij-jk i=8 k=8 j=8 float64'
    """
    if isinstance(spec, Problem):
        found = spec
    elif sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    else:
        found = kind.of(spec, sizes, dtype or "float64")
    _check_two_operands(found.spec)
    if aligned_output:
        found = replace(found, aligned_output=True)
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


def _check_two_operands(spec: Spec) -> None:
    count = len(spec.operands)
    if count != 2:
        many = "1 operand" if count == 1 else f"{count} operands"
        raise PlanError(
            f"{str(spec)!r} has {many}, a plan has two, as 'ij,jk->ik' has; "
            "tilesolve.expression takes any number"
        )
