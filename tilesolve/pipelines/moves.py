"""NumPy's functions that put elements elsewhere, and those that make arrays, as they are traced."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SizeError, TraceError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.pipelines.functions import Axes, axis_of, read_axes, traces
from tilesolve.pipelines.graph import Graph, Shape, axis_letters
from tilesolve.pipelines.traced import Traced, as_traced, broadcast, filling, graph_of, new_array

ALL = slice(None)


@traces(np.transpose, method="transpose")
def _transpose(array: Traced, *axes: Any) -> Traced:
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return array.view_as(read_axes(range(array.ndim)[::-1] if given is None else given, array.ndim))


@traces(np.swapaxes, method="swapaxes")
def _swapaxes(array: Traced, first: int, second: int) -> Traced:
    order = list(range(array.ndim))
    order[first], order[second] = order[second], order[first]
    return array.view_as(order)


@traces(np.moveaxis)
def _moveaxis(array: Traced, source: Axes, destination: Axes) -> Traced:
    moved, places = read_axes(source, array.ndim), read_axes(destination, array.ndim)
    order = [one for one in range(array.ndim) if one not in moved]
    for place, one in sorted(zip(places, moved, strict=True)):
        order.insert(place, one)
    return array.view_as(order)


@traces(np.expand_dims)
def _expand_dims(array: Traced, axis: int) -> Traced:
    return array[(ALL,) * axis_of(axis, array.ndim + 1) + (None,)]


@traces(np.squeeze, method="squeeze")
def _squeeze(array: Traced, axis: Axes = None) -> Traced:
    gone = [x for x in read_axes(axis, array.ndim) if axis is not None or array.shape[x] == 1]
    if any(array.shape[one] != 1 for one in gone):
        raise SizeError(f"axis {axis} of shape {array.shape} has more than one element")
    return array[tuple(0 if one in gone else ALL for one in range(array.ndim))]


@traces(np.broadcast_to)
def _broadcast_to(array: Traced, shape: Shape) -> Traced:
    wide = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if broadcast(array.shape, wide) != wide:
        raise SizeError(f"an array of shape {array.shape} is not broadcast to {wide}")
    return array.make(array.element(wide), wide)


@traces(np.reshape, method="reshape")
def _reshape(array: Traced, *shape: Any, **named: Any) -> Traced:
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    wanted = list(named.get("shape", given))
    if -1 in wanted:
        wanted[wanted.index(-1)] = array.size // max(-prod(wanted), 1)
    if prod(wanted) != array.size:
        raise SizeError(f"an array of shape {array.shape} has no shape {tuple(wanted)}")
    letters, at, axis = axis_letters(len(wanted)), [], 0
    for extent in array.shape:
        place, count = Affine.number(0), 1
        while count < extent:  # each axis is split, or taken as it is
            place = wanted[axis] * place + letters[axis]
            count, axis = count * wanted[axis], axis + 1
        if count != extent:
            raise TraceError(
                f"pipelines split axes, but put none together: {array.shape} as {tuple(wanted)}"
            )
        at.append(place)
    return array.view(tuple(wanted), at)


@traces(np.ravel, method="ravel")
def _ravel(array: Traced) -> Traced:
    return _reshape(array, -1)


@traces(np.flip)
def _flip(array: Traced, axis: Axes = None) -> Traced:
    turned = read_axes(axis, array.ndim)
    return array[tuple(slice(None, None, -1 if x in turned else 1) for x in range(array.ndim))]


@traces(np.repeat, method="repeat")
def _repeat(array: Traced, repeats: Any, axis: int | None = None) -> Traced:
    if not isinstance(repeats, int | np.integer) or (axis is None and array.ndim != 1):
        raise TraceError("pipelines have repeat by a number, along an axis")
    axis = axis_of(axis or 0, array.ndim)
    at = list(axis_letters(array.ndim))
    at[axis] = at[axis] // int(repeats)
    return array.make(array.read(at), _with(array.shape, axis, array.shape[axis] * int(repeats)))


@traces(np.take, method="take")
def _take(array: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Traced:
    whole = as_traced(graph_of((array, indices)), array)
    whole, axis = (_ravel(whole), 0) if axis is None else (whole, axis_of(axis, whole.ndim))
    if mode == "clip":
        indices = np.clip(indices, 0, whole.shape[axis] - 1)
    if mode == "wrap":
        indices = indices % whole.shape[axis]
    return whole[(*(ALL,) * axis, indices)]


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    """Return a shape with another extent of an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _assemble(array: Traced, axis: int, positions: np.ndarray[Any, Any]) -> Traced:
    """Return the elements at some positions along an axis, by runs of which each is a slice."""
    made = create(array.graph, _with(array.shape, axis, len(positions)), 0, array.dtype)
    steps, first = np.diff(positions), 0
    turns = np.flatnonzero(np.diff(steps)) + 1
    while first < len(positions):
        end = int(next((turn + 1 for turn in turns if turn > first), len(positions)))
        if end - first > 1 and abs(steps[first]) > 1:
            end = first + 1  # where another run begins
        at = list(axis_letters(array.ndim))
        step = int(steps[first]) if end - first > 1 else 0
        at[axis] = step * at[axis] + int(positions[first])
        run = array.make(array.read(at), _with(array.shape, axis, end - first))
        made[(*(ALL,) * axis, slice(first, end))] = run
        first = end
    return made


@traces(np.pad)
def _pad(array: Traced, pad_width: Any, mode: Any = "constant", **named: Any) -> Traced:
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    if mode not in modes or named.keys() - {"constant_values"}:
        raise TraceError(f"borders are one of {', '.join(modes)}, without further arguments")
    widths = np.broadcast_to(np.asarray(pad_width, int), (array.ndim, 2)).tolist()
    if mode == "constant":
        shape = tuple(n + low + high for n, (low, high) in zip(array.shape, widths, strict=True))
        made = create(array.graph, shape, named.get("constant_values", 0), array.dtype)
        ends = zip(array.shape, widths, strict=True)
        made[tuple(slice(low, low + n) for n, (low, _) in ends)] = array
        return made
    for axis, width in enumerate(widths):
        if any(width):
            array = _assemble(array, axis, np.pad(np.arange(array.shape[axis]), width, mode))
    return array


@traces(np.roll)
def _roll(array: Traced, shift: Any, axis: Any = None) -> Traced:
    if axis is None and array.ndim != 1:
        raise TraceError("pipelines roll arrays along axes")
    axes = read_axes(axis, array.ndim)
    for one, by in zip(axes, np.broadcast_to(shift, len(axes)).tolist(), strict=True):
        array = _assemble(array, one, np.roll(np.arange(array.shape[one]), by))
    return array


@traces(np.diff)
def _diff(array: Traced, n: int = 1, axis: int = -1) -> Traced:
    before = (ALL,) * axis_of(axis, array.ndim)
    for _ in range(n):
        later, earlier = array[(*before, slice(1, None))], array[(*before, slice(None, -1))]
        array = later != earlier if array.dtype == bool else later - earlier
    return array


@traces(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Traced:
    graph = graph_of(arrays)
    given = [as_traced(graph, one) for one in arrays]
    axis = axis_of(axis, given[0].ndim)
    if len({(one.ndim, _with(one.shape, axis, 0)) for one in given}) > 1:
        raise SizeError(f"arrays of shapes {[one.shape for one in given]} are put together")
    ends = np.cumsum([one.shape[axis] for one in given]).tolist()
    kind = np.result_type(*(one.dtype for one in given))
    made = create(graph, _with(given[0].shape, axis, ends[-1]), 0, kind)
    for one, end in zip(given, ends, strict=True):
        made[(*(ALL,) * axis, slice(end - one.shape[axis], end))] = one
    return made


@traces(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> Traced:
    graph = graph_of(arrays)
    return _concatenate([_expand_dims(as_traced(graph, one), axis) for one in arrays], axis)


@traces(np.vstack)
def _vstack(arrays: Sequence[Any]) -> Traced:
    return _concatenate([one[None] if one.ndim == 1 else one for one in arrays])


@traces(np.hstack)
def _hstack(arrays: Sequence[Any]) -> Traced:
    return _concatenate(arrays, min(1, arrays[0].ndim - 1))


def create(graph: Graph, shape: Any, value: Any, dtype: Any) -> Traced:
    """Return a new array that is filled with a value."""
    kind = np.dtype(dtype).name
    wide = tuple(map(int, shape)) if isinstance(shape, Sequence) else (int(shape),)
    if isinstance(value, Traced):
        return _broadcast_to(value.astype(kind), wide)
    return new_array(graph, filling(value, kind), wide, kind)


def _create_like(value: Any, like: Traced, dtype: Any = None, shape: Any = None) -> Traced:
    kind = like.dtype if dtype is None else dtype
    return create(like.graph, like.shape if shape is None else shape, value, kind)


traces(np.zeros_like, np.empty_like)(partial(_create_like, 0))
traces(np.ones_like)(partial(_create_like, 1))
traces(np.full_like)(lambda like, value, dtype=None: _create_like(value, like, dtype))
traces(np.copy)(Traced.copy)
traces(np.shape)(lambda array: array.shape)
traces(np.ndim)(lambda array: array.ndim)
traces(np.size)(lambda array, axis=None: array.size if axis is None else array.shape[axis])
