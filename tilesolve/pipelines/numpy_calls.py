"""Calls of NumPy's functions with traced arrays: NumPy itself is asked what it takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import ASKED_ELEMENTS
from tilesolve.contractions.errors import SizeError, SpecError, TilesolveError, TraceError
from tilesolve.pipelines.refusals import Refusing

_PRODUCTS = ("einsum", "tensordot", "matmul", "dot", "outer", "inner")
"""Functions that take as long as the elements of their arrays, multiplied."""


def call_traced(
    function: Any, traced: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    """Call what is traced in the place of a function of NumPy's, and write the result to `out`."""
    name = function.__name__
    try:
        bound = signature(traced).bind(*given, **{x: named[x] for x in named if x != "out"})
    except TypeError as error:
        raise TraceError(f"pipelines do not have {name} as it is called here: {error}") from error
    out = bound.arguments.pop("out", named.get("out"))
    _check_out(out)
    try:
        found = traced(*bound.args, **bound.kwargs)
    except SpecError as error:
        raise TraceError(str(error)) from error
    except TilesolveError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        _ask_numpy(function, given, named)
        raise TraceError(f"pipelines do not have {name} as it is called here") from error
    told = ask_numpy(function, given, named, found)
    both = isinstance(found, Refusing) and isinstance(told, np.ndarray | np.generic)
    if both and out is None and (told.shape, told.dtype) != (found.shape, found.dtype):
        raise TraceError(f"pipelines do not have {name} as it is called here")
    return write_out(found, out)


def ask_numpy(function: Any, given: Sequence[Any], named: Mapping[str, Any], *made: Any) -> Any:
    """Return what NumPy makes of a call with arrays of zeros; None where these are large.

    Raises
    ------
    TraceError, SizeError
        If NumPy refuses the call.
    """
    sizes = [one.size for one in _list_traced((*given, *named.values(), *made))]
    work = prod(max(one, 1) for one in sizes) if function.__name__ in _PRODUCTS else sum(sizes)
    return _ask_numpy(function, given, named) if work <= ASKED_ELEMENTS else None


def _ask_numpy(function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*map(_zeros, given), **{x: _zeros(one) for x, one in named.items()})
    except TypeError as error:
        raise TraceError(str(error)) from error
    except (ValueError, IndexError, OverflowError) as error:
        raise SizeError(str(error)) from error


def _zeros(value: Any) -> Any:
    """Return a value with zeros in the place of traced arrays."""
    if isinstance(value, Refusing):
        array: Any = value
        return np.zeros(array.shape, array.dtype)
    if type(value) in (list, tuple):
        return type(value)(map(_zeros, value))
    return value


def _list_traced(values: Sequence[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, Refusing):
            yield one
        elif isinstance(one, list | tuple):
            yield from _list_traced(one)


def _check_out(out: Any) -> None:
    if out is not None and not isinstance(out, Refusing):
        raise TraceError("it writes to an array that is none of its own")


def write_out(found: Any, out: Any) -> Any:
    """Return a result, or the array that it is written to."""
    if out is None:
        return found
    _check_out(out)
    if not np.can_cast(found.dtype, out.dtype, "same_kind"):
        raise TraceError(f"{found.dtype} is written to an array of {out.dtype}")
    out.assign(found)
    return out
