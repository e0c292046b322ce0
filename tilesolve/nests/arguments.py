"""What users name a nest by: statements, and sizes, shapes or arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import check_kind, check_kinds
from tilesolve.contractions.convolution_arguments import read_shape
from tilesolve.contractions.dtype_names import find_dtype
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.inference import read_extents
from tilesolve.contractions.statements.affine import Condition
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.extents import Shape
from tilesolve.contractions.statements.operations import DTYPES
from tilesolve.contractions.statements.parse import parse_region, parse_stages, put_in_region
from tilesolve.contractions.statements.pieces import find_period
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Number, Param, Term
from tilesolve.contractions.statements.values import replace_terms

Statement = str | Stage | Sequence[Stage]
"""What is computed: text, or stages."""

Region = str | Condition | Sequence[str | Condition]
"""Where the last statement computes."""

NestSizes = Mapping[str, Any] | str | int | None
"""Extents of letters, or by the names of arrays their shapes, or arrays that have one."""

NestDtype = npt.DTypeLike | Mapping[str, npt.DTypeLike]
"""Of all arrays, or of each by its name."""


def read_computation(
    statement: Statement,
    sizes: NestSizes,
    dtype: NestDtype | None,
    where: Region = (),
    outputs: Sequence[str] = (),
) -> Computation:
    """Return the computation that the arguments of `nest` name.

    Examples
    --------
    >>> print(read_computation("out[x] = A[x] + A[x+1]", {"A": (5,)}, "float32"))
    out[x] = A[x] + A[x+1]  x=4 float32
    """
    stages = read_stages(statement, where)
    letters: Mapping[str, int] | int = {}
    shapes: dict[str, Shape] = {}
    dtypes: dict[str, str] = {}
    if isinstance(sizes, str):
        letters = read_extents(sizes)
    elif isinstance(sizes, Mapping):
        arrays = {read.array for stage in stages for read in (stage.target, *stage.reads)}
        for name, value in sizes.items():
            if name in arrays:
                shape: Any = getattr(value, "shape", value)
                shapes[name] = read_shape(name, shape)
                if hasattr(value, "dtype"):
                    dtypes[name] = nest_dtype(value.dtype, name)
        letters = {name: value for name, value in sizes.items() if name not in arrays}
    elif sizes is not None:
        check_kind(sizes, int, "sizes", "extents, shapes or arrays by name, or a number", SizeError)
        letters = sizes
    stages, letters = _with_sizes(stages, letters, shapes)
    check_kinds(outputs, str, "outputs", "names of arrays", SpecError)
    kinds = _read_dtypes(stages, dtype, dtypes)
    return bind_stages(stages, letters, kinds, shapes, tuple(outputs))


def read_stages(statement: Statement, where: Region) -> tuple[Stage, ...]:
    """Return the stages, the last one in a region."""
    pieces = parse_region([where] if isinstance(where, Condition) else where)
    if isinstance(statement, str):
        stages = parse_stages(statement)
    else:
        given = (statement,) if isinstance(statement, Stage) else statement
        check_kind(given, Sequence, "statement", "text or stages", SpecError)
        for one in given:
            check_kind(one, Stage, "statement", "text or stages", SpecError)
        stages = tuple(given)
    return put_in_region(stages, pieces)


def _with_sizes(
    stages: Sequence[Stage], sizes: Mapping[str, int] | int, shapes: Mapping[str, Shape]
) -> tuple[tuple[Stage, ...], Mapping[str, int] | int]:
    """Return stages with numbers for names that sizes have and that are no letters, and the rest.

    A period of which no size is given is the extent of its axis.
    """
    params = {name for stage in stages for name in stage.params}
    given = sizes if isinstance(sizes, Mapping) else {}
    known: dict[str, Any] = {name: given[name] for name in params if name in given}
    for read in (read for stage in stages for read in (stage.target, *stage.reads)):
        for axis, subscript in enumerate(read.subscripts):
            _, period = find_period(subscript) or (None, None)
            if isinstance(period, Param) and period.name not in known:
                if read.array not in shapes and isinstance(sizes, Mapping):
                    raise SizeError(f"no size for {period}, the period of {read}")
                extent = shapes[read.array][axis] if read.array in shapes else sizes
                known[period.name] = extent
    for name, value in known.items():
        check_kind(value, int, f"the size {name}", "a whole number", SizeError)
    numbers: dict[Term, Term] = {Param(name): Number(int(n)) for name, n in known.items()}
    found = tuple(
        replace(
            one,
            axes=tuple(replace_terms(x, numbers) if isinstance(x, Term) else x for x in one.axes),
            term=replace_terms(one.term, numbers),
        )
        for one in stages
    )
    if not isinstance(sizes, Mapping):
        return found, sizes
    return found, {name: n for name, n in sizes.items() if name not in known}


def _read_dtypes(
    stages: Sequence[Stage], dtype: NestDtype | None, known: Mapping[str, str]
) -> str | dict[str, str]:
    """Return the dtype of all arrays and parameters, or of each by name."""
    if isinstance(dtype, Mapping):
        return dict(known) | {name: nest_dtype(kind, name) for name, kind in dtype.items()}
    if dtype is None and not known:
        return "float64"
    if dtype is not None:
        return nest_dtype(dtype, "all arrays")
    names = dict.fromkeys(
        [read.array for stage in stages for read in stage.reads]
        + [name for stage in stages for name in stage.params]
    )
    made = {stage.name for stage in stages}
    kinds = dict.fromkeys(known.values())
    if len(kinds) > 1:
        return dict(known)
    common = next(iter(kinds))
    return {name: known.get(name, common) for name in names if name not in made or name in known}


def nest_dtype(dtype: Any, name: str) -> str:  # noqa: ANN401 - whatever numpy takes for one
    """Return the name of a dtype that nests compute in.

    Examples
    --------
    >>> nest_dtype("torch.float", "A"), nest_dtype(bool, "B")
    ('float32', 'bool')
    """
    if isinstance(dtype, np.ndarray):
        raise DtypeError(f"the dtype of {name} is an array")
    try:
        found = find_dtype(dtype)
    except TypeError as error:
        raise DtypeError(f"the dtype of {name}: {error}") from error
    if found.name not in DTYPES or not found.isnative:
        raise DtypeError(f"nests compute in {', '.join(DTYPES)}, not in {found} ({name})")
    return found.name
