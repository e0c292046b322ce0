"""Tracing: what a NumPy function does with arrays of some shapes, as a graph."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import BoundArguments
from itertools import dropwhile, takewhile
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np

from tilesolve.contractions import errors
from tilesolve.contractions.errors import SizeError, TilesolveError, TraceError
from tilesolve.contractions.stand_ins import StandInModule, rebuild
from tilesolve.nests import arguments
from tilesolve.nests.arguments import nest_dtype
from tilesolve.nests.calls import Array
from tilesolve.pipelines import moves
from tilesolve.pipelines.checks import list_unread
from tilesolve.pipelines.graph import Graph, Shape
from tilesolve.pipelines.moves import create
from tilesolve.pipelines.numpy_calls import call_traced
from tilesolve.pipelines.traced import FUNCTIONS, Storage, Traced


@dataclass(frozen=True, slots=True)
class Result:
    """An array that a function returns, or writes to.

    Parameters
    ----------
    name
        Of the array in the graph.
    shape, dtype
        As the function has it.
    argument
        The argument that it is written to; None if it is new.
    is_number
        Whether it is a number of NumPy's, and no array without axes.
    """

    name: str
    shape: Shape
    dtype: str
    argument: str | None = None
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """What a function does.

    Parameters
    ----------
    graph
        The arrays that it computes.
    results
        What it returns, then what else it writes to.
    returned
        How many of these it returns; None if it returns one that is no tuple and no list.
    collect
        What it returns them in.
    checked
        What NumPy computes, too, and may refuse, and results do not need all of.
    """

    graph: Graph
    results: tuple[Result, ...]
    returned: int | None
    collect: type[tuple[Any, ...]] | type[list[Any]]
    checked: tuple[Result, ...] = ()

    @property
    def computed(self) -> tuple[str, ...]:
        """The names of all arrays that are computed."""
        return tuple(dict.fromkeys(one.name for one in (*self.results, *self.checked)))


def trace_function(function: Callable[..., Any], bound: BoundArguments) -> Trace:
    """Return what a function does with arrays like its arguments.

    Raises
    ------
    TraceError
        If it does something that pipelines do not have; the message names the line. So do other
        errors of arrays that do not fit.

    Examples
    --------
    >>> from inspect import signature
    >>> difference = lambda a: a[1:] - a[:-1]
    >>> found = trace_function(difference, signature(difference).bind(np.zeros(5)))
    >>> found.results[0].shape
    (4,)
    """
    graph = Graph()
    traced: dict[str, Traced] = {}

    def stand_for(name: str, array: Array) -> Traced:
        if isinstance(array, np.matrix | np.ma.MaskedArray):
            raise TraceError(f"the argument {name} is a {type(array).__name__}, no plain array")
        kind = nest_dtype(array.dtype, f"the argument {name}")
        graph.labels[graph.give(name, array.shape, kind)] = name
        storage = Storage(graph, name, in_order=array.flags.c_contiguous)
        traced[name] = Traced(storage, array.shape)
        return traced[name]

    given = BoundArguments(bound.signature, map_arrays("", bound.arguments, stand_for))
    code = function
    if isinstance(function, FunctionType):
        code = rebuild(function, partial(_stand_in, graph, {}), {})
    with _naming(graph), _locating(function):
        returned = code(*given.args, **given.kwargs)
        if graph.refused is not None:
            raise graph.refused
        many = isinstance(returned, tuple | list)
        values = list(returned) if many else [] if returned is None else [returned]
        results = [_result(one, traced) for one in values]
        known = {one.argument for one in results}
        for name, one in traced.items():
            if one.storage.name != name and name not in known:
                results.append(_result(one, traced))
        if not results:
            raise TraceError("it returns no array, and writes to none")
        for result in results:
            graph.labels.setdefault(result.name, _call_result(function))
    count = len(values) if many or returned is None else None
    unread = (graph.nodes[x] for x in list_unread(graph, [one.name for one in results]))
    checked = tuple(Result(one.name, one.shape, one.dtype) for one in unread)
    kind: Any = list if isinstance(returned, list) else tuple
    return Trace(graph, tuple(results), count, kind, checked)


def map_arrays(name: str, value: Any, change: Callable[[str, Array], Any]) -> Any:
    """Return arguments with others in the place of arrays, given their names.

    Examples
    --------
    >>> map_arrays("", {"a": np.zeros(2), "more": [np.ones(3), 1]}, lambda name, array: name)
    {'a': 'a', 'more': ['more0', 1]}
    """
    if isinstance(value, np.ndarray):
        return change(name, value)
    if isinstance(value, dict):
        return {key: map_arrays(f"{name}{key}", one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        found = [map_arrays(f"{name}{at}", one, change) for at, one in enumerate(value)]
        if hasattr(value, "_fields"):  # fields keep their names
            return type(value)(*found)
        return found if isinstance(value, list) else tuple(found)
    return value


def describe(value: Any) -> Hashable:
    """Return what a plan depends on of an argument."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.flags.c_contiguous
    if isinstance(value, list | tuple):
        return type(value), *map(describe, value)
    if isinstance(value, dict):
        return type(value), *((name, describe(one)) for name, one in value.items())
    if isinstance(value, float | complex | np.inexact):
        return type(value), repr(value)  # zeros have signs, and what is no number is itself
    if isinstance(value, slice):
        return slice, *map(describe, (value.start, value.stop, value.step))
    if not isinstance(value, Hashable):
        raise TraceError(f"an argument is neither an array nor a constant: {value!r:.60}")
    return type(value), value


def _result(value: Any, arguments: Mapping[str, Traced]) -> Result:
    """Return what a function returns as a result of its graph."""
    if not isinstance(value, Traced):
        raise TraceError(f"it returns {value!r:.60}, not an array that it computes")
    value.element(value.shape)  # is it as NumPy has it now?
    argument = next((x for x, one in arguments.items() if one.storage is value.storage), None)
    if argument is not None and not value.is_whole:
        argument = None
    if argument == value.storage.name:
        argument = None  # it is returned, but not written to
    if not value.is_whole or value.graph.nodes[value.storage.name].term is None:
        value = value.copy()
    name, kind = value.storage.name, value.dtype.name
    return Result(name, value.shape, kind, argument, value.is_number)


def _call_result(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else "out"


def _stand_in(graph: Graph, made: dict[FunctionType, FunctionType], value: Any) -> Any:
    """Return what a function gets for what it refers to."""
    again = partial(_stand_in, graph, made)
    if isinstance(value, list | tuple) and any(isinstance(x, FunctionType) for x in value):
        return [again(one) for one in value]
    if isinstance(value, ModuleType):
        return StandInModule(value, again) if value is np else value
    if callable(value) and isinstance(value, Hashable) and value in _CREATING:
        return partial(_create_traced, value, graph)
    if isinstance(value, FunctionType) and not str(value.__module__).startswith("numpy"):
        return rebuild(value, again, made)
    return value


def _create_traced(function: Any, graph: Graph, *given: Any, **named: Any) -> Any:
    """Return what a function of NumPy's makes that is not asked of traced arrays."""
    taking = function is np.take or function in _TAKING
    if taking and not _has_traced((*given, *named.values())):
        return function(*given, **named)
    return call_traced(
        _ASKED.get(function, function), partial(_CREATING[function], graph), given, named
    )


def _filled(value: Any, graph: Graph, shape: Any, dtype: Any = None, order: str = "C") -> Any:
    return create(graph, shape, value, np.float64 if dtype is None else dtype)


def _full(graph: Graph, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Any:
    kind = fill_value.dtype if isinstance(fill_value, Traced) else np.asarray(fill_value).dtype
    return create(graph, shape, fill_value, kind if dtype is None else dtype)


def _as_array(
    take: Callable[..., Any],
    graph: Graph,
    value: Any,
    dtype: Any = None,
    order: Any = None,
    copy: bool | None = None,
) -> Any:
    if not isinstance(value, Traced):
        rows = [_as_array(np.asarray, graph, x) if _has_traced(x) else x for x in value]
        value = np.stack(rows)
    copies = take is np.array if copy is None else copy
    apart = take is np.ascontiguousarray and not value.is_whole
    apart = apart or (take is np.asfortranarray and not value.T.is_whole)
    kind = value.dtype if dtype is None else dtype
    return value.astype(kind, copy=bool(copies) or apart)


def _has_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_has_traced(one) for one in value)
    return isinstance(value, Traced)


_TAKING = (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
_CREATING: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((np.zeros, np.empty), partial(_filled, False)),
    np.ones: partial(_filled, True),
    np.full: _full,
    np.take: lambda _, *given, **named: FUNCTIONS[np.take](*given, **named),
    **{take: partial(_as_array, take) for take in _TAKING},
}
"""Functions of NumPy that are not asked of traced arrays, and what is called in their place."""


def _ask_full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C") -> Any:
    """Return what `np.full` does, where that takes no time."""
    value = np.asarray(fill_value, dtype)
    np.empty(shape, value.dtype, order)
    return np.broadcast_to(value, shape)


_ASKED = {np.ones: np.empty, np.full: _ask_full}
"""What NumPy is asked in the place of functions that take long."""


@contextmanager
def _naming(graph: Graph) -> Iterator[None]:
    """Call arrays what functions call them: what a function's names are when it returns."""
    before: Any = sys.getprofile()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and not _is_ours(frame):
            for name, value in frame.f_locals.items():
                _label(graph, name, value)

    sys.setprofile(note)
    try:
        yield
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # cProfile's own
            before.enable()


def _label(graph: Graph, name: str, value: Any) -> None:
    """Call an array by a name, and those of a list by its name and their number."""
    if isinstance(value, Traced) and value.graph is graph and value.is_whole:
        if name.isidentifier() and not (name.startswith("_") and name.strip("_").isdigit()):
            graph.labels[value.storage.name] = name
    elif isinstance(value, list | tuple) and len(value) < len(graph.nodes):
        for number, one in enumerate(value):
            _label(graph, f"{name}{number}", one)


@contextmanager
def _locating(function: Callable[..., Any]) -> Iterator[None]:
    """Have errors name the line of the function that they come from."""
    try:
        yield
    except TilesolveError as error:
        where = _find_line(error.__traceback__, function)
        name = getattr(function, "__name__", "the function")
        raise type(error)(f"{error}, in {name}{where}") from error
    except AttributeError:
        raise
    except Exception as error:
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        if isinstance(error.__cause__, TilesolveError):  # NumPy asked for a number
            found: TilesolveError = error.__cause__
        elif last.f_code.co_filename.startswith(_OURS[:-1]):  # an array was used otherwise
            kind = TraceError if isinstance(error, TypeError) else SizeError
            found = kind(f"{type(error).__name__}: {error}")
        else:
            raise
        with _locating(function):
            raise found.with_traceback(error.__traceback__) from None


def _find_line(found: TracebackType | None, function: Callable[..., Any]) -> str:
    """Return the last line of a traceback before ours and NumPy's, else the first one."""
    code = getattr(function, "__code__", None)
    frames = dropwhile(lambda one: _is_ours(one[0]), traceback.walk_tb(found))
    theirs = takewhile(lambda one: not _is_ours(one[0]), frames)
    lines = [(frame.f_code.co_filename, number) for frame, number in theirs]
    if code is not None:
        lines.insert(0, (code.co_filename, code.co_firstlineno))
    if not lines:
        return ""
    path, number = lines[-1]
    return f", {Path(path).name}:{number}: {linecache.getline(path, number).strip()}"


_OURS = tuple(str(Path(str(one.__file__)).parent) for one in (errors, arguments, moves, np))
"""Folders whose code has no lines of the user's."""


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)
