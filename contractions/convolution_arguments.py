"""Arguments of convolutions: numbers for each spatial dimension, and padding."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import numpy as np

from tilesolve.contractions.errors import SizeError, SpecError

MAX_DIMENSIONS = 3
"""The most spatial dimensions of a layer."""

MAX_NUMBER = 10**18 - 1
"""The largest extent or step of a layer: what a coefficient of a spec may be."""

Ends = tuple[int, int]
"""Zeros before and after what an axis has."""

PaddingArgument = int | str | Sequence[int | Sequence[int]]
"""Padding as `Convolution.of` takes it."""


def read_shape(name: str, shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape as integers.

    Examples
    --------
    >>> read_shape("x", (1, -2))
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: an extent of x must be at least 0, got -2
    """
    if isinstance(shape, str | bytes) or not np.iterable(shape):
        raise SizeError(f"the shape of {name} must be a sequence of integers, got {shape!r}")
    return tuple(read_number(f"an extent of {name}", extent, 0) for extent in shape)


def read_number(name: str, value: object, least: int) -> int:
    """Return an integer that has to be so large; booleans and floats are none.

    Examples
    --------
    >>> read_number("groups", 0, 1)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: groups must be at least 1, got 0
    """
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SizeError(f"{name} must be an integer, got {value!r}") from None
    if found < least:
        raise SizeError(f"{name} must be at least {least}, got {found}")
    if found > MAX_NUMBER:
        raise SizeError(f"{name} must be at most {MAX_NUMBER}, got {found}")
    return found


def read_numbers(name: str, value: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return a number of at least 1 for each spatial dimension, of one or of as many.

    Examples
    --------
    >>> read_numbers("stride", 2, 2), read_numbers("stride", [2, 1], 2)
    ((2, 2), (2, 1))
    """
    if isinstance(value, str) or not np.iterable(value):
        return (read_number(name, value, 1),) * dimensions
    values = tuple(value)
    if len(values) != dimensions:
        raise SizeError(f"{name} has {len(values)} numbers, x has {dimensions} spatial dimensions")
    return tuple(read_number(name, one, 1) for one in values)


def read_padding(
    padding: PaddingArgument, reaches: Sequence[int], steps: Sequence[int]
) -> tuple[Ends, ...]:
    """Return the zeros before and after each spatial dimension.

    `padding` is as in `Convolution.of`; `reaches` are the pixels from the first to the last of
    a window.

    Examples
    --------
    >>> read_padding("same", (3, 4), (1, 1)), read_padding([(0, 1), 2], (3, 4), (1, 1))
    (((1, 1), (1, 2)), ((0, 1), (2, 2)))
    """
    if isinstance(padding, str):
        return _read_named(padding, reaches, steps)
    if not np.iterable(padding):
        padding = (padding,) * len(reaches)
    given = tuple(padding)
    if len(given) != len(reaches):
        raise SizeError(
            f"padding has {len(given)} entries, x has {len(reaches)} spatial dimensions"
        )
    found = []
    for one in given:
        ends = tuple(one) if np.iterable(one) else (one, one)
        if len(ends) != 2:
            raise SizeError(f"padding of a dimension is a number or a pair, got {one!r}")
        before, after = (read_number("padding", end, 0) for end in ends)
        found.append((before, after))
    return tuple(found)


def _read_named(name: str, reaches: Sequence[int], steps: Sequence[int]) -> tuple[Ends, ...]:
    if name == "valid":
        return ((0, 0),) * len(reaches)
    if name != "same":
        raise SpecError(f"padding {name!r} is not known; 'same' and 'valid' are")
    if any(step != 1 for step in steps):
        raise SizeError(f"padding 'same' needs a stride of 1, got {tuple(steps)}")
    return tuple(((reach - 1) // 2, reach - 1 - (reach - 1) // 2) for reach in reaches)


def count_dimensions(x: tuple[int, ...], w: tuple[int, ...], layout: str) -> int:
    """Return how many spatial dimensions the shapes of images and filters have."""
    blocked = layout == "NCHWc"
    dimensions = len(x) - 2 - blocked
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise SizeError(
            f"x has {len(x)} axes, shape {x}: {3 + blocked} to {5 + blocked} are supported in "
            f"{layout}"
        )
    wanted = dimensions + 2 + 2 * blocked
    if len(w) != wanted:
        raise SizeError(
            f"w has {len(w)} axes, shape {w}, but must have {wanted} in {layout} "
            f"where x has {len(x)}, shape {x}"
        )
    return dimensions


def read_sizes(
    x: tuple[int, ...], w: tuple[int, ...], groups: int, layout: str
) -> tuple[int, int, int, tuple[int, ...], tuple[int, int]]:
    """Return images, channels, filters, pixels and blocks that shapes tell."""
    blocks, own = (1, 1), w[1]
    batch, channels, filters, size = x[0], x[1], w[0], x[2:]
    if layout == "NHWC":
        channels, size = x[-1], x[1:-1]
    elif layout == "NCHWc":
        blocks, size = (x[-1], w[-1]), x[2:-1]
        channels, filters, own = x[1] * x[-1], w[0] * w[-1], w[1] * w[-2]
        if w[-2] != (x[-1] if groups == 1 else 1):
            raise SizeError(
                f"blocks of w have {w[-2]} channels (shape {w}), blocks of x {x[-1]} (shape {x}) "
                f"in {groups} groups"
            )
    for name, count in (("channels", channels), ("filters", filters)):
        read_number(f"the number of {name}", count, 1)
        if count % groups:
            raise SizeError(f"groups={groups} do not divide {count} {name}")
    if own * groups != channels:
        raise SizeError(
            f"w has {own} channels (shape {w}), but x has {channels} in {groups} groups "
            f"(shape {x}, {layout})"
        )
    if layout == "NCHWc" and groups > 1 and (filters != channels or blocks[0] != blocks[1]):
        raise SizeError(
            f"groups={groups} in NCHWc need one filter for each of the {channels} channels of x "
            f"in blocks of {blocks[0]}, w has {filters} in blocks of {blocks[1]}"
        )
    return batch, channels, filters, size, blocks


def write_numbers(values: Iterable[object]) -> str:
    """Return numbers of each dimension as text.

    Examples
    --------
    >>> write_numbers((3, 1))
    '3x1'
    """
    return "x".join(map(str, values))


def write_unusual(name: str, values: Sequence[object], usual: object) -> str:
    """Return a name with its values, or nothing where they are what they are most often.

    Examples
    --------
    >>> write_unusual("stride", (2, 2), 1), write_unusual("stride", (1, 1), 1)
    ('stride 2', '')
    """
    if all(value == usual for value in values):
        return ""
    return f"{name} {values[0] if len(set(values)) == 1 else write_numbers(values)}"
