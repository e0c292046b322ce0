"""Transposes: copies of arrays with their axes in another order."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.machine.detect import default_threads
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_apart, check_output, check_threads
from tilesolve.system.result_buffers import new_result
from tilesolve.transposes.walk_setup import copy_strided


def transpose(
    a: npt.ArrayLike,
    axes: Sequence[int] | None = None,
    out: Array | None = None,
    *,
    threads: int | None = None,
) -> Array:
    """Return a copy of an array with its axes in another order.

    Parameters
    ----------
    a
        Any array of any strides; it is not modified.
    axes
        For each axis of the result the one of `a` that becomes it; if None, they are reversed.
    out
        Where the result goes, of any strides; a new C-contiguous array if None.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.

    Returns
    -------
    numpy.ndarray
        `out`, or the new array.

    Raises
    ------
    SizeError
        If `axes` is not a permutation, or the shape of `out` not the result's.
    DtypeError
        If the dtypes differ, or elements are references to objects.
    PlanError
        If `out` is read-only, or overlaps itself or `a`.
    MachineError
        If `threads` is no positive integer.

    Examples
    --------
    >>> transpose(np.arange(6).reshape(1, 2, 3), (2, 0, 1)).tolist()
    [[[0, 3]], [[1, 4]], [[2, 5]]]
    """
    source = read_array(a, "a")
    transposed = source.transpose(_checked_axes(source, axes))
    if source.dtype.hasobject:
        raise DtypeError(
            f"elements of dtype {source.dtype} are references, which are not transposed"
        )
    shared = default_threads() if threads is None else check_threads(threads)
    if out is None:
        out = target = new_result(transposed.shape, source.dtype)
    else:
        shape, dtype = transposed.shape, transposed.dtype
        target = check_output(out, "out", shape, dtype=dtype, whose="the array's dtype")
        if np.may_share_memory(target, transposed):
            check_apart(target, "out", {"the array": transposed})
    if transposed.nbytes:
        copy_strided(target, transposed, shared)
    return out


def _checked_axes(array: Array, axes: Sequence[int] | None) -> Sequence[int] | None:
    if axes is None:
        return None
    try:
        chosen = [operator.index(axis) for axis in axes]
    except TypeError:
        raise SizeError(f"axes must be integers, got {axes!r}") from None
    n = array.ndim
    if sorted(axis + n if axis < 0 else axis for axis in chosen) != list(range(n)):
        raise SizeError(f"axes {tuple(chosen)} are no permutation of the array's {n}")
    return chosen
