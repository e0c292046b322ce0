"""Checks of operands and of `out`, which come before anything is computed or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import DtypeError, MachineError, PlanError, SizeError
from tilesolve.packing.memory_overlap import Array, overlap, overlaps_itself


def check_output(
    out: object, letters: str, shape: tuple[int, ...], operands: Sequence[Array], text: str
) -> Array:
    """Return `out` as a plain array, whatever subclass it is of, if a result may be written to it.

    Parameters
    ----------
    out
        What the user gave.
    letters, shape
        Of the result.
    operands
        What may share no memory with it.
    text
        What is computed, for the messages.

    Raises
    ------
    DtypeError
        If it is no array.
    SizeError
        If it has another shape.
    PlanError
        If it is read-only, or overlaps itself or an operand.

    Examples
    --------
    >>> check_output(np.zeros((2, 3)), "ij", (2, 4), [], "ji->ij")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: out of 'ji->ij' has 3 for 'j' on axis 1, \
the result has 4
    """
    name = f"out of {text!r}"
    if not isinstance(out, np.ndarray):
        raise DtypeError(f"{name} must be a numpy array, got {type(out).__name__}")
    if out.shape != shape:
        if out.ndim == len(shape):
            axis = next(at for at, extent in enumerate(shape) if out.shape[at] != extent)
            raise SizeError(
                f"{name} has {out.shape[axis]} for {letters[axis]!r} on axis {axis}, "
                f"the result has {shape[axis]}"
            )
        raise SizeError(f"{name} has the shape {out.shape}, the result has {shape}")
    if not out.flags.writeable:
        raise PlanError(f"{name} is read-only")
    if overlaps_itself(out):
        raise PlanError(f"{name} has elements that share memory: its strides are {out.strides}")
    for number, array in enumerate(operands):
        if overlap(out, array):
            raise PlanError(f"{name} shares memory with operand {number}")
    return np.asarray(out)


def check_threads(value: object) -> int:
    """Return a number of threads if it is one.

    Examples
    --------
    >>> check_threads(np.int64(2))
    2
    >>> check_threads(0)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.MachineError: threads must be a positive integer, got 0
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1:
        return int(value)
    raise MachineError(f"threads must be a positive integer, got {value!r}")


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that numpy promotes all to, in the machine's byte order.

    Examples
    --------
    >>> common_dtype([np.dtype("f4"), np.dtype("i4")])
    dtype('float64')
    """
    return np.result_type(*dtypes).newbyteorder("=")


def as_dtype(value: npt.DTypeLike, name: str) -> np.dtype[Any]:
    """Return a dtype, if it is one of numbers or truth values.

    Examples
    --------
    >>> as_dtype("f4", "dtype")
    dtype('float32')
    >>> as_dtype(object, "operand 0")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 0 is object; einsum takes numbers and booleans
    """
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError, SyntaxError) as error:
        raise DtypeError(f"{name} is {value!r}, which numpy does not know") from error
    if dtype.kind not in "biufc":
        raise DtypeError(f"{name} is {dtype}; einsum takes numbers and booleans")
    return dtype


def as_array(value: npt.ArrayLike, number: int) -> Array:
    """Return an operand as an array.

    Examples
    --------
    >>> as_array([[1, 2], [3]], 1)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 1 is no array: setting an array element \
with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected \
shape was (2,) + inhomogeneous part.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"operand {number} is no array: {error}") from error
    if array.dtype.kind not in "biufc":
        what = f"{array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DtypeError(f"operand {number} is {what}; einsum takes numbers and booleans")
    return array
