"""Calls of NumPy's functions with traced arrays: NumPy itself is asked what it takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import ASKED_ELEMENTS, ASKED_EXTENT
from tilesolve.contractions.errors import SizeError, SpecError, TilesolveError, TraceError
from tilesolve.pipelines.refusals import Refusing

_PRODUCTS = ("einsum", "tensordot", "matmul", "dot", "outer", "inner")
"""Functions that take as long as the elements of their arrays, multiplied."""

_VIEWS = ("reshape", "broadcast_to", "split", "array_split", "sliding_window_view", "transpose")
"""Functions that take no time, whatever the extents are."""


def call_traced(
    function: Any,
    traced: Callable[..., Any],
    given: Sequence[Any],
    named: Mapping[str, Any],
    ask: Callable[..., Any] | None = None,
) -> Any:
    """Call what is traced in the place of a function of NumPy's, and write the result to `out`.

    NumPy is asked first, or `ask`, which takes less time: what is traced may take it that arguments
    fit.
    """
    lacking = f"pipelines do not have {function.__name__} as it is called here"
    try:
        bound = signature(traced).bind(*given, **{x: named[x] for x in named if x != "out"})
    except TypeError as error:
        raise TraceError(f"{lacking}: {error}") from error
    out = bound.arguments.pop("out", named.get("out"))
    _check_out(out)
    small, told = ask_numpy(ask or function, given, named)
    try:
        found = traced(*bound.args, **bound.kwargs)
    except SpecError as error:
        raise TraceError(str(error)) from error
    except TilesolveError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        raise TraceError(lacking) from error
    if out is not None or not isinstance(told, np.ndarray | np.generic):
        return write_out(found, out)
    if (told.ndim, told.dtype) != (found.ndim, found.dtype):
        raise TraceError(lacking)
    if not small and told.shape != found.shape:
        raise TraceError(lacking)
    return found.as_number() if isinstance(told, np.generic) else found.as_array()


def ask_numpy(
    function: Any, given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Mapping[int, int], Any]:
    """Return what NumPy makes of a call with arrays of zeros.

    Where that takes long, arrays have fewer elements: those that are equal stay so. If NumPy
    refuses these, it is asked about its own.

    Returns
    -------
    tuple
        The extents of fewer elements that were asked about, and what NumPy returned.

    Raises
    ------
    TraceError, SizeError
        If NumPy refuses the call.
    """
    arrays = [*_list_arrays((*given, *named.values()))]
    sizes = [prod(one.shape) for one in arrays]
    work = prod(max(one, 1) for one in sizes) if function.__name__ in _PRODUCTS else sum(sizes)
    if work > ASKED_ELEMENTS and function.__name__ not in _VIEWS:
        small = _fewer({n for one in arrays for n in one.shape})
        try:
            return small, _ask_numpy(function, given, named, small)
        except TilesolveError:
            pass
    return {}, _ask_numpy(function, given, named, {})


def _fewer(extents: set[int]) -> dict[int, int]:
    """Return fewer elements for each extent, and others for others; smaller ones stay smaller.

    Examples
    --------
    >>> _fewer({1, 3, 4000, 70})
    {1: 1, 3: 3, 70: 5, 4000: 6}
    """
    found, last = dict[int, int](), -1
    for extent in sorted(extents):
        found[extent] = last = max(last + 1, min(extent, ASKED_EXTENT))
    return found


def _ask_numpy(
    function: Any, given: Sequence[Any], named: Mapping[str, Any], small: Mapping[int, int]
) -> Any:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            named = {name: _zeros(one, small) for name, one in named.items()}
            return function(*(_zeros(one, small) for one in given), **named)
    except TypeError as error:
        raise TraceError(str(error)) from error
    except (ValueError, IndexError, OverflowError) as error:
        raise SizeError(str(error)) from error


def _zeros(value: Any, small: Mapping[int, int]) -> Any:
    """Return a value with zeros in the place of traced arrays, of fewer elements."""
    if isinstance(value, Refusing):
        array: Any = value
        found = np.zeros([small.get(n, n) for n in array.shape], array.dtype)
        return found[()] if array.is_number else found
    if type(value) in (list, tuple):
        return type(value)(_zeros(one, small) for one in value)
    if isinstance(value, np.ndarray) and small:
        return value[tuple(slice(small[n]) for n in value.shape)]
    return value


def _list_arrays(values: Sequence[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, Refusing | np.ndarray):
            yield one
        elif isinstance(one, list | tuple):
            yield from _list_arrays(one)


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
