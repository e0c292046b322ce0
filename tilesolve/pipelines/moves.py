"""NumPy's functions that put elements elsewhere, and those that make arrays, as they are traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from operator import index
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TraceError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Choose, Position, Term, apply
from tilesolve.nests.arguments import nest_dtype
from tilesolve.pipelines.functions import Axes, axis_of, read_axes, traces
from tilesolve.pipelines.graph import Graph, Place, Shape, axis_letters
from tilesolve.pipelines.indexing import clip
from tilesolve.pipelines.numbers import cast, filling
from tilesolve.pipelines.traced import (
    METHODS,
    Traced,
    as_traced,
    graph_of,
    new_array,
)

ALL = slice(None)


@traces(np.transpose, method="transpose")
def _transpose(array: Traced, *axes: Any) -> Traced:
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return array.view_as(read_axes(range(array.ndim)[::-1] if given is None else given, array.ndim))


@traces(np.swapaxes, method="swapaxes")
def _swapaxes(array: Traced, first: int, second: int) -> Traced:
    order = list(range(array.ndim))
    first, second = axis_of(first, array.ndim), axis_of(second, array.ndim)
    order[first], order[second] = second, first
    return array.view_as(order)


@traces(np.moveaxis)
def _moveaxis(array: Traced, source: Axes, destination: Axes) -> Traced:
    moved, places = read_axes(source, array.ndim), read_axes(destination, array.ndim)
    order = [one for one in range(array.ndim) if one not in moved]
    for place, one in sorted(zip(places, moved, strict=True)):
        order.insert(place, one)
    return array.view_as(order)


@traces(np.expand_dims)
def _expand_dims(array: Traced, axis: int | Sequence[int]) -> Traced:
    count = array.ndim + len(np.atleast_1d(axis))
    added = read_axes(axis, count)
    return array[tuple(None if one in added else ALL for one in range(count))]


@traces(np.squeeze, method="squeeze")
def _squeeze(array: Traced, axis: Axes = None) -> Traced:
    gone = [x for x in read_axes(axis, array.ndim) if axis is not None or array.shape[x] == 1]
    return array[(*(0 if one in gone else ALL for one in range(array.ndim)), ...)]


@traces(np.broadcast_to)
def _broadcast_to(array: Traced, shape: Shape) -> Traced:
    wide = tuple(map(index, shape if np.iterable(shape) else (shape,)))
    return array.make(array.element(wide), wide).seen_from(array)


def _reshape(array: Traced, *shape: Any, order: str = "C", copy: bool | None = None) -> Traced:
    given = shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape
    wanted = list(map(index, given))
    if order == "F":
        return _reshape(array.T, wanted[::-1], copy=copy).T
    if order != "C":
        raise TraceError(f"elements are in order 'C' or 'F', not {order!r}")
    if copy:
        array = array.copy()
    if -1 in wanted:
        wanted[wanted.index(-1)] = array.size // max(-prod(wanted), 1)
    if not array.size:
        return create(array.graph, wanted, 0, array.dtype)
    groups = list(_group_axes(array.shape, wanted))
    in_order = array.is_whole and array.storage.in_order
    if any(len(old) > 1 for old, _ in groups) and not in_order:
        array = array.copy().seen_from(array)
    letters, places = axis_letters(len(wanted)), list[Place]([Affine.number(0)] * array.ndim)
    for old, new in groups:
        flat = Affine.number(0)
        for axis in new:
            flat = wanted[axis] * flat + letters[axis]
        stride = prod(array.shape[axis] for axis in old)
        for number, axis in enumerate(old):
            stride //= array.shape[axis]
            place = flat // stride if stride > 1 else flat
            places[axis] = place if number == 0 else Position(place) % array.shape[axis]
    return array.view(tuple(wanted), places)


METHODS["reshape"] = _reshape


@traces(np.reshape)
def _reshape_to(array: Traced, shape: Any, order: str = "C", copy: bool | None = None) -> Traced:
    return _reshape(array, *np.atleast_1d(shape).tolist(), order=order, copy=copy)


def _group_axes(shape: Shape, wanted: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield axes of a shape and those of another one that take their place, as few as there can be.

    Axes of one element are left out.
    """
    old = [axis for axis, n in enumerate(shape) if n > 1]
    new = [axis for axis, n in enumerate(wanted) if n > 1]
    while old:
        mine, others = [old.pop(0)], [new.pop(0)]
        while (count := prod(shape[x] for x in mine)) != (made := prod(wanted[x] for x in others)):
            (mine if count < made else others).append((old if count < made else new).pop(0))
        yield mine, others


@traces(np.ravel, method="ravel")
def _ravel(array: Traced, order: str = "C") -> Traced:
    letters = [x for x, n in zip(axis_letters(array.ndim), array.shape, strict=True) if n > 1]
    if len(letters) == 1:
        last = array.places[-1]
        if not isinstance(last, Affine) or last - last.offset != letters[0]:
            array = array.copy()  # NumPy, too, copies what lies apart
        elif not array.storage.in_order:
            array = array.copy() if array.is_whole else array.copy().seen_from(array)
    return _reshape(array, -1, order=order)


METHODS["flatten"] = lambda array, order="C": _ravel(array, order).copy()
METHODS["fill"] = lambda array, value: array.assign(value)
traces(np.fliplr)(lambda array: array[:, ::-1])
traces(np.flipud)(lambda array: array[::-1])


@traces(np.rot90)
def _rot90(array: Traced, k: int = 1, axes: Sequence[int] = (0, 1)) -> Traced:
    for _ in range(k % 4):
        array = _flip(_swapaxes(array, *axes), axes[0])
    return array


@traces(np.tile)
def _tile(array: Traced, reps: Any) -> Traced:
    times = np.atleast_1d(reps).tolist()
    array = array[(None,) * (len(times) - array.ndim)] if len(times) > array.ndim else array
    for axis, count in enumerate(times, array.ndim - len(times)):
        none = (*(ALL,) * axis, slice(0))
        array = _concatenate([array] * count, axis) if count else array[none]
    return array


@traces(np.lib.stride_tricks.sliding_window_view)
def _windows(array: Traced, window_shape: Any, axis: Axes = None, **named: Any) -> Traced:
    if named.keys() - {"subok"}:
        raise TraceError("windows are read, and not written to")
    sizes = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = read_axes(axis, array.ndim)
    shape, at = list(array.shape), list(axis_letters(array.ndim + len(sizes)))
    for one, size, letter in zip(axes, sizes, at[array.ndim :], strict=True):
        shape[one] += 1 - size
        at[one] = at[one] + letter
    return array.view((*shape, *sizes), at[: array.ndim])


@traces(np.flip)
def _flip(array: Traced, axis: Axes = None) -> Traced:
    turned = read_axes(axis, array.ndim)
    return array[tuple(slice(None, None, -1 if x in turned else 1) for x in range(array.ndim))]


@traces(np.repeat, method="repeat")
def _repeat(array: Traced, repeats: Any, axis: int | None = None) -> Traced:
    if not isinstance(repeats, int | np.integer):
        raise TraceError("pipelines have repeat by a number")
    array, axis = (_ravel(array), 0) if axis is None else (array, axis_of(axis, array.ndim))
    if not repeats:
        return array[(*(ALL,) * axis, slice(0))]
    at = list(axis_letters(array.ndim))
    at[axis] = at[axis] // int(repeats)
    return array.make(array.read(at), _with(array.shape, axis, array.shape[axis] * int(repeats)))


@traces(np.take, method="take")
def _take(
    array: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Traced:
    whole = as_traced(graph_of((array, indices)), array)
    whole, axis = (_ravel(whole), 0) if axis is None else (whole, axis_of(axis, whole.ndim))
    if mode == "clip":
        indices = np.clip(indices, 0, whole.shape[axis] - 1)
    if mode == "wrap":
        indices = np.remainder(indices, whole.shape[axis])
    found = whole[(*(ALL,) * axis, indices)]
    return found.copy() if found.storage is whole.storage else found


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    """Return a shape with another extent of an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _choose_run(axis: int, runs: Sequence[tuple[int, Term]]) -> Term:
    """Return a term that is another one in each of some runs of an axis, given their ends."""
    letter = axis_letters(axis + 1)[axis]
    *others, (_, found) = runs
    for end, term in reversed(others):
        found = Choose(apply("less", letter, end), term, found)
    return found


def _assemble(array: Traced, axis: int, positions: np.ndarray[Any, Any]) -> Traced:
    """Return the elements at some positions along an axis, by runs in which these are a sum."""
    steps, first, count = np.diff(positions), 0, len(positions)
    turns = np.flatnonzero(np.diff(steps)) + 1
    runs: list[tuple[int, Term]] = []
    while first < count:
        end = int(next((turn + 1 for turn in turns if turn > first), count))
        if end - first > 1 and abs(steps[first]) > 1:
            end = first + 1  # where another run begins
        at: list[Place] = list(axis_letters(array.ndim))
        step = int(steps[first]) if end - first > 1 else 0
        place = step * (axis_letters(array.ndim)[axis] - first) + int(positions[first])
        at[axis] = clip(place, count, array.shape[axis])
        runs.append((end, array.read(at)))
        first = end
    shape = _with(array.shape, axis, count)
    return array.make(_choose_run(axis, runs), shape) if array.size else array.copy()


def _turn(array: Traced, axis: int, first: int, count: int) -> Traced:
    """Return so many elements along an axis from a position on, turn by turn."""
    at: list[Place] = list(axis_letters(array.ndim))
    extent = array.shape[axis]
    if not extent:
        return array.copy()
    at[axis] = Position(axis_letters(array.ndim)[axis] + first % extent) % extent
    return array.make(array.read(at), _with(array.shape, axis, count))


@traces(np.pad)
def _pad(array: Traced, pad_width: Any, mode: Any = "constant", **named: Any) -> Traced:
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    if mode not in modes or named.keys() - {"constant_values"}:
        raise TraceError(f"borders are one of {', '.join(modes)}, without further arguments")
    if isinstance(pad_width, dict):
        sides = {axis_of(one, array.ndim): pad_width[one] for one in pad_width}
        pad_width = [np.broadcast_to(sides.get(one, 0), 2) for one in range(array.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    if mode == "constant":
        shape = tuple(n + low + high for n, (low, high) in zip(array.shape, widths, strict=True))
        values = named.get("constant_values", 0)
        made = create(array.graph, shape, 0 if np.ndim(values) else values, array.dtype)
        ends = zip(array.shape, widths, strict=True)
        made[tuple(slice(low, low + n) for n, (low, _) in ends)] = array
        if np.ndim(values):
            pairs = np.broadcast_to(values, (array.ndim, 2)).tolist()
            for axis, ((low, high), (before, after)) in enumerate(zip(widths, pairs, strict=True)):
                made[(*(ALL,) * axis, slice(low))] = before
                made[(*(ALL,) * axis, slice(shape[axis] - high, None))] = after
        return made
    array = array if np.any(widths) else array.copy()
    for axis, (low, high) in enumerate(widths):
        at: list[Place] = list(axis_letters(array.ndim))
        extent, count = array.shape[axis], array.shape[axis] + low + high
        if count == extent:
            continue
        if mode == "wrap":
            array = _turn(array, axis, -low, count)
        elif mode == "edge":
            at[axis] = clip(axis_letters(array.ndim)[axis] - low, count, extent)
            array = array.make(array.read(at), _with(array.shape, axis, count))
        else:
            array = _assemble(array, axis, np.pad(np.arange(extent), (low, high), mode))
    return array


@traces(np.roll)
def _roll(array: Traced, shift: Any, axis: Any = None) -> Traced:
    if axis is None and array.ndim != 1:
        return _reshape(_roll(_ravel(array), shift), array.shape)
    given = range(array.ndim) if axis is None else axis
    array = array.copy() if np.size(given) == 0 else array
    for by, one in np.broadcast(shift, given):
        place = axis_of(int(one), array.ndim)
        array = _turn(array, place, -int(by), array.shape[place])
    return array


@traces(np.diff)
def _diff(
    array: Traced, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Traced:
    place = axis_of(axis, array.ndim)
    before, wide = (ALL,) * place, _with(array.shape, place, 1)
    given = [as_traced(array.graph, x) for x in (prepend, array, append) if x is not None]
    if n and len(given) > 1:
        array = _concatenate([x if x.ndim else _broadcast_to(x, wide) for x in given], place)
    for _ in range(n):
        later, earlier = array[(*before, slice(1, None))], array[(*before, slice(None, -1))]
        array = later != earlier if array.dtype == bool else later - earlier
    return array


@traces(np.concatenate)
def _concatenate(
    arrays: Sequence[Any], axis: int | None = 0, out: Any = None, dtype: Any = None
) -> Traced:
    given = _trace_all(arrays)
    graph = given[0].graph
    if axis is None:
        given, axis = [_ravel(one) for one in given], 0
    axis = axis_of(axis, given[0].ndim)
    ends = np.cumsum([one.shape[axis] for one in given]).tolist()
    kinds = {one.dtype for one in given}
    kind = nest_dtype(np.result_type(*kinds) if dtype is None else dtype, "an array")
    shape = _with(given[0].shape, axis, ends[-1])
    letters, runs = axis_letters(len(shape)), list[tuple[int, Term]]()
    for one, end in zip(given, ends, strict=True):
        if one.size:
            at: list[Place] = list(letters)
            extent = one.shape[axis]
            at[axis] = clip(letters[axis] - (end - extent), ends[-1], extent)
            runs.append((end, cast(one.read(at), one.dtype.name, kind)))
    if not runs:
        return create(graph, shape, 0, kind)
    return new_array(graph, _choose_run(axis, runs), shape, kind)


@traces(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, dtype: Any = None) -> Traced:
    given = [_expand_dims(one, axis) for one in _trace_all(arrays)]
    return _concatenate(given, axis, dtype=dtype)


def _trace_all(arrays: Sequence[Any]) -> list[Traced]:
    graph = graph_of(arrays)
    return [as_traced(graph, one) for one in arrays]


@traces(np.hstack)
def _hstack(arrays: Sequence[Any]) -> Traced:
    given = [one if one.ndim else one[None] for one in _trace_all(arrays)]
    return _concatenate(given, min(1, given[0].ndim - 1))


@traces(np.vstack)
def _vstack(arrays: Sequence[Any]) -> Traced:
    return _concatenate([_add_rows(one) for one in _trace_all(arrays)])


@traces(np.dstack)
def _dstack(arrays: Sequence[Any]) -> Traced:
    rows = [_add_rows(one) for one in _trace_all(arrays)]
    return _concatenate([one[..., None] if one.ndim == 2 else one for one in rows], 2)


def _add_rows(array: Traced) -> Traced:
    """Return an array of two axes at least."""
    return array if array.ndim > 1 else array.reshape(1, -1)


def _split(split: Callable[..., Any], array: Traced, parts: Any, axis: int = 0) -> list[Traced]:
    axis = axis_of(axis, array.ndim)
    if isinstance(parts, Traced):
        raise TraceError("it splits an array at positions that are computed")
    pieces = split(np.arange(array.shape[axis]), parts)
    runs = [slice(one[0], one[-1] + 1) if len(one) else slice(0) for one in pieces]
    return [array[(*(ALL,) * axis, run)] for run in runs]


traces(np.split)(partial(_split, np.split))
traces(np.array_split)(partial(_split, np.array_split))


def create(graph: Graph, shape: Any, value: Any, dtype: Any) -> Traced:
    """Return a new array that is filled with a value."""
    kind = nest_dtype(dtype, "an array")
    wide = tuple(map(index, shape if np.iterable(shape) else (shape,)))
    if isinstance(value, Traced):
        return _broadcast_to(value.astype(kind), wide).copy()
    return new_array(graph, filling(value, kind), wide, kind)


def _create_like(
    value: Any, like: Traced, dtype: Any = None, *_: object, shape: Any = None, **__: object
) -> Traced:
    kind = like.dtype if dtype is None else dtype
    return create(like.graph, like.shape if shape is None else shape, value, kind)


traces(np.zeros_like, np.empty_like)(partial(_create_like, 0))
traces(np.ones_like)(partial(_create_like, 1))
traces(np.full_like)(
    lambda a, fill_value, *given, **named: _create_like(fill_value, a, *given, **named)
)
traces(np.copy)(lambda a, order="K", subok=False: a.copy())
traces(np.shape)(lambda array: array.shape)
traces(np.ndim)(lambda array: array.ndim)
traces(np.size)(lambda array, axis=None: array.size if axis is None else array.shape[axis])
