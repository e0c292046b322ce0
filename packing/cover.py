"""Covers: extents as sums of cells, so that no cell is too small for a fast microkernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from tilesolve.contractions.errors import SizeError


@dataclass(frozen=True, slots=True)
class Combination:
    """Cells of at most two sizes: `first` times `size`, then `second` times `other`.

    Examples
    --------
    >>> Combination(1, 8, 2, 13).extent
    34
    """

    first: int
    size: int
    second: int
    other: int

    @property
    def extent(self) -> int:
        """What the cells cover together."""
        return self.first * self.size + self.second * self.other

    @property
    def cells(self) -> tuple[int, ...]:
        """The sizes of all cells, in order."""
        return (self.size,) * self.first + (self.other,) * self.second


def cover(extent: int, most: int, unit: int = 1) -> tuple[int, ...]:
    """Return the cells of an extent: as few as cells of `most` would be, but near-equal ones.

    Cells are whole units, of two sizes that are one unit apart, the larger ones first; if the
    extent is not, the last cell lacks what is missing. A `most` that is no whole number of units
    is cut into single indices. A remainder of one column would keep the FMA units waiting
    (section 3 of TTile, hal-03149553).

    Examples
    --------
    >>> cover(9, 8), cover(31, 6), cover(0, 8)
    ((5, 4), (6, 5, 5, 5, 5, 5), ())
    >>> cover(40, 24, 8), cover(72, 48, 16), cover(72, 48, 8)
    ((24, 16), (48, 24), (40, 32))
    """
    if extent <= 0:
        return ()
    unit = 1 if most % unit else unit
    count = ceil(extent / most)
    least, larger = divmod(ceil(extent / unit), count)
    sides = [(least + (at < larger)) * unit for at in range(count)]
    sides[-1] -= sum(sides) - extent
    return tuple(sides)


def combine(extent: int, costs: Mapping[int, float]) -> Combination:
    """Return the cells of at most two allowed sizes that cover an extent at the least cost.

    Parameters
    ----------
    extent
        What is covered, exactly.
    costs
        What a cell of each allowed size costs.

    Raises
    ------
    SizeError
        If no cells of two of these sizes cover it.

    Examples
    --------
    TTile's products of 34 rows: once 8 and twice 13, if large cells are hardly slower by the row:

    >>> combine(34, {8: 8.0, 13: 12.0})
    Combination(first=1, size=8, second=2, other=13)
    """
    found = [
        (first * costs[size] + second * costs[other], first + second, other - size, first, size)
        for size in costs
        for other in costs
        if size <= other
        for second in range(extent // other + 1)
        for first, rest in [divmod(extent - second * other, size)]
        if not rest and (size < other or not second)
    ]
    if extent < 1 or not found:
        sizes = ", ".join(map(str, sorted(costs)))
        raise SizeError(f"no cells of two of the sizes {sizes} cover an extent of {extent}")
    _, cells, apart, first, size = min(found)
    return Combination(first, size, cells - first, size + apart)
