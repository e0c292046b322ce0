"""Layouts: what the code of a program depends on of the arrays that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from tilesolve.constants.tuning import NEAR_VECTORS
from tilesolve.contractions.statements.computation import Computation


class Strided(Protocol):
    """What tells how an array lies: NumPy's arrays do, and what stands for one of a later call."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each axis."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""


class Pixels(NamedTuple):
    """Few elements side by side, such as the colours of an image, and again behind them.

    Parameters
    ----------
    axis
        Along which one lies behind another, with nothing between.
    channels
        The elements of one.
    """

    axis: int
    channels: int


def is_pixel(extent: int) -> bool:
    """Return whether an axis is so short that vectors of whole pixels are loaded."""
    return 2 <= extent <= NEAR_VECTORS


@dataclass(frozen=True, slots=True)
class Layout:
    """Along which axis neighbours of each array lie side by side.

    Parameters
    ----------
    units
        Pairs of a name and an axis, or None where there is none: then elements are gathered.
    pixels
        Arrays whose axis of neighbours is short, and what is behind it.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((3, 8))
    >>> Layout.of({"A": rows, "B": rows.T, "C": rows[:, ::2]})
    Layout(units=(('A', 1), ('B', 0), ('C', None)), pixels=())
    >>> Layout.of({"I": np.zeros((5, 6, 3))}).pixels
    (('I', Pixels(axis=1, channels=3)),)
    """

    units: tuple[tuple[str, int | None], ...]
    pixels: tuple[tuple[str, Pixels], ...] = ()

    @classmethod
    def of(cls, arrays: Mapping[str, Strided]) -> Self:
        """Return the layout of some arrays."""
        units = {name: _unit_axis(array) for name, array in arrays.items()}
        found = {name: _find_pixels(array, units[name]) for name, array in arrays.items()}
        return cls(tuple(units.items()), tuple((name, one) for name, one in found.items() if one))

    @classmethod
    def rows(cls, computation: Computation) -> Self:
        """Return the layout of arrays in C order, with or without gaps between rows."""
        return cls(
            tuple(
                (array.name, len(array.shape) - 1 if array.shape else None)
                for array in computation.arrays
            )
        )

    def unit(self, name: str) -> int | None:
        """Return the axis of an array."""
        return dict(self.units)[name]

    def pixels_of(self, name: str) -> Pixels | None:
        """Return the pixels of an array, if it has some."""
        return dict(self.pixels).get(name)

    def steps(self, name: str) -> dict[int, int]:
        """Return the elements between neighbours, for each axis where code knows them."""
        unit, pixels = self.unit(name), self.pixels_of(name)
        found = {} if unit is None else {unit: 1}
        return found if pixels is None else {**found, pixels.axis: pixels.channels}


def _unit_axis(array: Strided) -> int | None:
    """Return the last axis with neighbours side by side, or the last one of extent 1."""
    axes = range(len(array.shape) - 1, -1, -1)
    side_by_side = [axis for axis in axes if array.strides[axis] == array.itemsize]
    long = [axis for axis in side_by_side if array.shape[axis] > 1]
    return next(iter(long or side_by_side), None)


def _find_pixels(array: Strided, unit: int | None) -> Pixels | None:
    """Return the axis along which a short axis comes again; None if there is none."""
    if unit is None or not is_pixel(channels := array.shape[unit]):
        return None
    behind = channels * array.itemsize
    axes = [axis for axis, step in enumerate(array.strides) if step == behind]
    return Pixels(axes[-1], channels) if axes else None
