"""Sums in dtypes that are narrower than their results, but have all values that occur."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilesolve.constants.nests import NEST_NARROW_TERMS
from tilesolve.contractions.problem import PAIRED_DTYPES
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Cast, Read, Reduce
from tilesolve.nests.split import new_name

_ON_BITS = {
    **{name: name for name in ("add", "minimum", "maximum")},
    "bitwise_and": "minimum",
    "bitwise_or": "maximum",
}
"""What reductions of comparisons are on ones and zeros."""


def count_in_reals(computation: Computation) -> Computation | None:
    """Return a statement that reduces comparisons of floating-point numbers as two.

    The first one reduces ones and zeros in the dtype of these numbers, as register tiles do, and
    the second one casts what it finds. None where the statement is another one, or where the dtype
    does not have all counts.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("C[i,j] = sum(A[i,k] == B[j,k], k)")
    >>> for stage in count_in_reals(bind_stages(stages, 8, "float32")).stages:
    ...     print(stage)
    C_count[i,j] = sum(float32(A[i,k] == B[j,k]), k)
    C[i,j] = int64(C_count[i,j])
    """
    (stage,), dtypes = computation.stages, computation.dtypes
    reduced, kinds = stage.term, {dtypes[read.array] for read in stage.reads}
    if not isinstance(reduced, Reduce) or stage.where or stage.update is not None:
        return None
    name = _ON_BITS.get(reduced.name)
    if name is None or len(kinds) != 1 or reduced.term.kind(dtypes) != "bool":
        return None
    (dtype,) = kinds
    if dtype not in PAIRED_DTYPES or not 0 < _count(computation, reduced) < 1 / np.finfo(dtype).eps:
        return None
    return _as_two(computation, Reduce(name, reduced.over, Cast(dtype, reduced.term)), dtype)


def sum_narrowly(computation: Computation) -> Computation | None:
    """Return a statement that adds up short integers or comparisons as two, the first one narrow.

    NumPy's sums of them are of 64 bits, of which a vector has few. None where no narrower dtype
    has all values of the sum, or a sum is too short to pay for the second statement.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("C[i,j] = sum(A[i,k] == B[j,k], k)")
    >>> for stage in sum_narrowly(bind_stages(stages, 400, "int8")).stages:
    ...     print(stage)
    C_count[i,j] = sum(uint16(A[i,k] == B[j,k]), k)
    C[i,j] = int64(C_count[i,j])
    """
    (stage,), dtypes = computation.stages, computation.dtypes
    reduced = stage.reduction
    if reduced is None or reduced.name != "add" or stage.augmented or stage.update is not None:
        return None
    count, kind = _count(computation, reduced), named_kind(reduced.term.kind(dtypes))
    if count < NEST_NARROW_TERMS or np.dtype(kind).kind not in "biu":
        return None
    if np.dtype(dtypes[stage.name]).kind not in "iu":
        return None
    least = max(np.dtype(dtypes[read.array]).itemsize for read in reduced.term.reads)
    greatest = 1 if kind == "bool" else max(abs(int(end)) for end in _ends(kind))
    names: Sequence[str] = ("int8", "int16", "int32")
    if np.dtype(kind).kind != "i":
        names = ("uint8", "uint16", "uint32")
    for dtype in names:
        size = np.dtype(dtype).itemsize
        if size >= least and count * greatest <= _ends(dtype)[1]:
            if size >= np.dtype(dtypes[stage.name]).itemsize:
                return None
            narrow = Reduce("add", reduced.over, Cast(dtype, reduced.term))
            return _as_two(computation, narrow, dtype)
    return None


def _ends(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a dtype."""
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _count(computation: Computation, reduced: Reduce) -> int:
    """Return how many terms a reduction has, at most."""
    return prod(computation.sizes[letter] for letter in reduced.over)


def _as_two(computation: Computation, reduced: Reduce, dtype: str) -> Computation:
    """Return a statement as one that reduces in a dtype, and one that casts what it finds."""
    (stage,), dtypes = computation.stages, dict(computation.dtypes)
    count, whole = new_name(f"{stage.name}_count", set(dtypes)), dtypes[stage.name]
    axes = tuple(Affine.letter(x) for x in stage.output)
    made = (
        Stage(count, axes, reduced, dtype, stage.where),
        Stage(stage.name, axes, Cast(whole, Read(count, axes)), whole, stage.bounds),
    )
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages(made, computation.sizes, {**dtypes, count: dtype}, shapes)
