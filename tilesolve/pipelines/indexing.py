"""Indices of arrays, as NumPy reads them: numbers, slices, new axes, dots and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as as_integer
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SizeError, TraceError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Term, apply
from tilesolve.pipelines.graph import Place, Shape, axis_letter, axis_letters


@dataclass(frozen=True, slots=True)
class Index:
    """What an index picks.

    Parameters
    ----------
    shape
        Of what it picks.
    affine
        The position along each axis of the array, in the letters of what is picked.
    arrays
        The positions along the axes that have them from arrays.
    first, width
        Where the axes of such arrays lie in the shape, and how many they are together.
    """

    shape: Shape
    affine: tuple[Affine, ...]
    arrays: dict[int, Any]
    first: int = 0
    width: int = 0


def _tests_within(letter: Affine, low: int, high: int, extent: int) -> list[Term]:
    """Return tests that a letter lies between two values, where it might not."""
    found = [apply("greater_equal", letter, low)] if low > 0 else []
    return [*found, apply("less_equal", letter, high)] if high < extent - 1 else found


def clip(place: Affine, values: int, extent: int) -> Place:
    """Return a position, or the nearest one on an axis, while its letter takes some values."""
    low, high = place.interval(dict.fromkeys(place.letters, (0, values - 1)))
    if low >= 0 and high < extent:
        return place
    return apply("minimum", apply("maximum", place, 0), extent - 1)


def find_written(
    places: Sequence[Place], extents: Shape, shape: Shape
) -> tuple[list[Place], list[Term]]:
    """Return where in a view each element of an array is written from, and tests whether it is.

    Parameters
    ----------
    places
        The position along each axis of the array, in the letters of the view.
    extents
        Of the array.
    shape
        Of the view.

    Raises
    ------
    TraceError
        If such views are not written to.
    """
    at: list[Place] = [Affine.number(0)] * len(shape)
    tests: list[Term] = []
    names = [axis_letter(axis) for axis in range(len(shape))]
    for letter, place, extent in zip(axis_letters(len(extents)), places, extents, strict=True):
        if isinstance(place, Term) or len(place.terms) > 1 or place.divisor > 1:
            raise TraceError("it writes to a view whose axes were put together or split")
        if not place.terms:
            tests += _tests_within(letter, place.offset, place.offset, extent)
            continue
        ((factor, name),) = place.terms
        axis = names.index(name)
        low, high = sorted((place.offset, place.offset + factor * (shape[axis] - 1)))
        tests += _tests_within(letter, low, high, extent)
        step, sign = abs(factor), 1 if factor > 0 else -1
        at[axis] = clip((sign * (letter - place.offset)) // step, extent, shape[axis])
        if step > 1 and shape[axis] > 1:
            tests.append(apply("equal", apply("remainder", letter - place.offset, step), 0))
    return at, tests


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that others are broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise SizeError(f"shapes {' and '.join(map(str, shapes))} do not fit together") from error


def read_index(key: object, shape: Shape) -> Index:
    """Read an index of an array of some shape.

    Raises
    ------
    SizeError
        If it lies outside of the array.
    TraceError
        If what it picks depends on values.

    Examples
    --------
    >>> found = read_index((slice(None, None, -2), None), (5, 4))
    >>> found.shape, [str(one) for one in found.affine]
    ((3, 1, 4), ['-2*_0+4', '_2'])
    """
    items = [_item(one) for one in (key if isinstance(key, tuple) else (key,))]
    if sum(one is Ellipsis for one in items) > 1:
        raise SizeError("an index has dots once")
    taken = sum(one is not None and one is not Ellipsis for one in items)
    if taken > len(shape):
        raise SizeError(f"an array of shape {shape} is given {taken} subscripts")
    at = next((at for at, one in enumerate(items) if one is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (len(shape) - taken)
    arrays = [at for at, one in enumerate(items) if hasattr(one, "ndim")]
    wide = broadcast(*(items[at].shape for at in arrays))
    joined = [at for at, one in enumerate(items) if at in arrays or isinstance(one, int)]
    apart = bool(arrays) and joined != list(range(joined[0], joined[-1] + 1))
    return _lay_out(items, shape, wide, 0 if apart else None)


def _lay_out(items: list[Any], shape: Shape, wide: Shape, first: int | None) -> Index:
    """Return an index whose items stand for all axes.

    `first` is where axes of arrays lie; None for the place of the first one.
    """
    found: list[int] = [] if first is None else list(wide)
    affine: list[Affine] = []
    arrays: dict[int, Any] = {}
    for one in items:
        axis = len(affine)
        if one is None:
            found.append(1)
        elif isinstance(one, slice):
            picked = range(*one.indices(shape[axis]))
            letter = Affine.letter(axis_letter(len(found)))
            affine.append(picked.start + picked.step * letter)
            found.append(len(picked))
        elif isinstance(one, int):
            if not -shape[axis] <= one < shape[axis]:
                raise SizeError(f"position {one} of axis {axis}, which has {shape[axis]}")
            affine.append(Affine.number(one % shape[axis]))
        else:
            if first is None:
                first = len(found)
                found += wide
            arrays[axis] = one
            affine.append(Affine.number(0))
    return Index(tuple(found), tuple(affine), arrays, first or 0, len(wide))


def _item(one: Any) -> Any:
    """Return a part of an index: None, dots, a slice, an integer or an array of integers."""
    if one is None or one is Ellipsis:
        return one
    if isinstance(one, slice):
        ends = one.start, one.stop, one.step
        return slice(*(None if x is None else as_integer(x) for x in ends))
    if isinstance(one, list):
        one = np.asarray(one) if one else np.zeros(0, int)
    kind = np.dtype(getattr(one, "dtype", type(one))).kind
    if kind == "b":
        raise TraceError("how much it picks depends on truth values; where(test, yes, no) chooses")
    if kind not in "iu":
        raise TraceError(f"a subscript is an integer, a slice or integers, not {one!r:.60}")
    scalar = hasattr(one, "__array_interface__") and not one.ndim  # and not traced
    return as_integer(one) if scalar or not hasattr(one, "ndim") else one
