"""Checks of operands and of `out`, which come before anything is computed or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array, view_output
from tilesolve.contractions.dtype_names import find_dtype, written_name
from tilesolve.contractions.errors import DtypeError, MachineError, PlanError, SizeError
from tilesolve.contractions.half_precision import array_dtype, is_half
from tilesolve.packing.memory_overlap import Array, overlap, overlaps_itself

MAX_THREADS = 8192
"""The most threads that share work: more than the cores of any one computer."""


def check_output(
    out: object,
    name: str,
    shape: tuple[int, ...],
    *,
    letters: str = "",
    dtype: np.dtype[Any] | None = None,
    whose: str = "the plan's dtype",
    operands: Mapping[str, Array] = MappingProxyType({}),
) -> Array:
    """Return `out` as a plain array, if a result may be written to it.

    It may be of a subclass, or a tensor that exports its memory.

    Parameters
    ----------
    out
        The user's argument.
    name
        Its name in messages.
    shape, letters
        Of the result, and the letter of each axis if axes have letters.
    dtype, whose
        The dtype that it must have, if any, and its name in messages.
    operands
        Arrays that may share no memory with it, by name.

    Raises
    ------
    DtypeError
        If it is no array, or of another dtype.
    SizeError
        If it has another shape.
    PlanError
        If it is read-only, or overlaps itself or an operand.

    Examples
    --------
    >>> check_output(np.zeros((2, 3)), "out of 'ji->ij'", (2, 4), letters="ij")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: out of 'ji->ij' has 3 for 'j' on axis 1, \
the result has 4
    """
    if not isinstance(out, np.ndarray):
        out = view_output(out, name)
    if out.shape != shape:
        if letters and out.ndim == len(shape):
            axis = next(at for at, extent in enumerate(shape) if out.shape[at] != extent)
            raise SizeError(
                f"{name} has {out.shape[axis]} for {letters[axis]!r} on axis {axis}, "
                f"the result has {shape[axis]}"
            )
        raise SizeError(f"{name} has the shape {out.shape}, the result has {shape}")
    # Small calls pass here: a check that holds calls no function.
    if dtype is not None and out.dtype != dtype:
        check_dtype(out, name, dtype, whose)
    if not out.flags.writeable:
        check_writable(out, name)
    if not out.flags.forc and overlaps_itself(out):
        raise PlanError(f"{name} has elements that share memory: its strides are {out.strides}")
    if operands:
        check_apart(out, name, operands)
    return out if type(out) is np.ndarray else np.asarray(out)


def check_writable(out: Array, name: str) -> None:
    """Raise an error if an array cannot be written to."""
    if not out.flags.writeable:
        raise PlanError(f"{name} is read-only")


def check_dtype(
    array: Array, name: str, dtype: np.dtype[Any], whose: str = "the plan's dtype"
) -> None:
    """Raise an error if an array has another dtype."""
    if array.dtype != dtype:
        raise DtypeError(f"{name} is {array.dtype}, {whose} is {dtype}")


def check_apart(out: Array, name: str, operands: Mapping[str, Array]) -> None:
    """Raise an error if an output shares memory with an operand; operands are given by name."""
    for operand, array in operands.items():
        if overlap(out, array):
            raise PlanError(f"{name} shares memory with {operand}")


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
        if value > MAX_THREADS:
            raise MachineError(f"threads must be at most {MAX_THREADS}, got {value}")
        return int(value)
    raise MachineError(f"threads must be a positive integer, got {value!r:.80}")


def check_tries(value: object) -> int:
    """Return a number of tries if it is one."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1:
        return int(value)
    raise PlanError(f"tries must be a positive integer, got {value!r}")


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that numpy promotes all to, in the machine's byte order.

    Examples
    --------
    >>> common_dtype([np.dtype("f4"), np.dtype("i4")])
    dtype('float64')
    """
    try:
        return np.result_type(*dtypes).newbyteorder("=")
    except TypeError as error:
        names = ", ".join(map(str, dtypes))
        raise DtypeError(f"the operands have no common dtype: {names}") from error


def _is_of_numbers(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of numbers, truth values or objects; bfloat16 has no kind."""
    return dtype.kind in _KINDS or is_half(dtype.name)


_KINDS = "biufcO"
_TAKEN = "einsum takes numbers, booleans and objects"


def as_dtype(value: npt.DTypeLike, name: str) -> np.dtype[Any]:
    """Return a dtype, if it is one of numbers, truth values or objects.

    Examples
    --------
    >>> as_dtype("f4", "dtype")
    dtype('float32')
    >>> as_dtype("U3", "operand 0")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 0 is <U3; \
einsum takes numbers, booleans and objects
    """
    written = written_name(value)
    if written is not None and is_half(written):
        return array_dtype(written)
    try:
        dtype = find_dtype(value)
    except TypeError as error:
        raise DtypeError(f"{name} is {value!r}, which numpy does not know") from error
    if not _is_of_numbers(dtype):
        raise DtypeError(f"{name} is {dtype}; {_TAKEN}")
    return dtype


def as_array(value: npt.ArrayLike, number: int) -> Array:
    """Return an operand as an array.

    Another value becomes an array of objects only where each of them is a number, such as a
    fraction.

    Examples
    --------
    >>> as_array([[1, 2], [3]], 1)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 1 is no array: setting an array element \
with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected \
shape was (2,) + inhomogeneous part.
    """
    array = read_array(value, f"operand {number}")
    given = isinstance(value, np.ndarray)
    if not _is_of_numbers(array.dtype):
        what = f"{array.dtype}" if hasattr(value, "dtype") else type(value).__name__
        raise DtypeError(f"operand {number} is {what}; {_TAKEN}")
    if array.dtype.kind == "O" and not given:
        for element in array.flat:
            if not isinstance(element, Number):
                raise DtypeError(_no_number(value, element, number))
    return array


def _no_number(value: object, element: object, number: int) -> str:
    """Say what an operand is that has an element which is neither a number nor in an array."""
    if element is value:
        return f"operand {number} is {type(value).__name__}, which is no array"
    return (
        f"operand {number} is {type(value).__name__} with an element of {type(element).__name__}, "
        "which is no number; an array of dtype object may have any"
    )
