"""Layouts: what the code of a program depends on of the arrays that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

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


@dataclass(frozen=True, slots=True)
class Layout:
    """Along which axis neighbours of each array lie side by side.

    Parameters
    ----------
    units
        Pairs of a name and an axis, or None where there is none: then elements are gathered.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((3, 4))
    >>> Layout.of({"A": rows, "B": rows.T, "C": rows[:, ::2]})
    Layout(units=(('A', 1), ('B', 0), ('C', None)))
    """

    units: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Strided]) -> Self:
        """Return the layout of some arrays."""
        return cls(tuple((name, _unit_axis(array)) for name, array in arrays.items()))

    @classmethod
    def rows(cls, computation: Computation) -> Self:
        """Return the layout of arrays in C order."""
        return cls(
            tuple(
                (array.name, len(array.shape) - 1 if array.shape else None)
                for array in computation.arrays
            )
        )

    def unit(self, name: str) -> int | None:
        """Return the axis of an array."""
        return dict(self.units)[name]


def _unit_axis(array: Strided) -> int | None:
    """Return the last axis with neighbours side by side, or the last one of extent 1."""
    axes = range(len(array.shape) - 1, -1, -1)
    side_by_side = [axis for axis in axes if array.strides[axis] == array.itemsize]
    long = [axis for axis in side_by_side if array.shape[axis] > 1]
    return next(iter(long or side_by_side), None)
