"""Covers: extents as sums of cells, so that no cell is too small for a fast microkernel."""

from __future__ import annotations

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class CellSequence:
    """Cells of chosen sizes, one after the other, again and again along an extent.

    Tiles of all bands are whole cells. Where tiles of several sizes follow each other in a
    sequence, each of them is as many cells, of one size.

    Parameters
    ----------
    sizes
        The cells, in order.
    sides
        The largest tile of each band, nearest first: the largest cell first, the extent last.

    Examples
    --------
    Tiles of two cells each, twice in an extent of 68:

    >>> cells = CellSequence((11, 11, 12, 12), (12, 24, 46, 92))
    >>> cells.cut(3, 92), cells.cut(2, 46), cells.cut(1, 22), cells.counts
    ((46, 46), (22, 24), (11, 11), [8, 4, 2, 1])
    """

    sizes: tuple[int, ...]
    sides: tuple[int, ...]

    @property
    def counts(self) -> list[int]:
        """How many tiles of each band there are in the extent."""
        cells = [self._cells(side) for side in self.sides]
        return [cells[-1] // count for count in cells]

    def check(self) -> None:
        """Raise an error unless tiles of all bands are whole cells.

        Raises
        ------
        SizeError
            If they are not.
        """
        tiles = {self.sides[-1]}
        for band in range(len(self.sides) - 1, 0, -1):
            tiles = {part for tile in tiles for part in self.cut(band, tile)}
        if tiles != set(self.sizes) or max(tiles) != self.sides[0]:
            raise SizeError(f"tiles {self.sides} are not whole cells of the sizes {self.sizes}")

    def cut(self, band: int, size: int) -> tuple[int, ...]:
        """Return the nearer band's tiles of a band's tile of some size.

        Raises
        ------
        SizeError
            If that is not as many whole cells as the band's tiles have.
        """
        outer, inner, whole = self.sides[band], self.sides[band - 1], sum(self.sizes)
        count = self._cells(inner)
        if outer < whole:
            parts = self._cells(outer) // count
            found = (size // parts,) * parts
        elif inner >= whole:
            found = (inner,) * (size // inner)
        else:
            cells = self.sizes * (size // whole)
            found = tuple(sum(cells[at : at + count]) for at in range(0, len(cells), count))
        if sum(found) != size:
            raise SizeError(f"a tile of {size} is not whole cells of the sizes {self.sizes}")
        return found

    def _cells(self, side: int) -> int:
        """Return how many cells a tile of a side has."""
        whole = sum(self.sizes)
        if side < whole:
            return side // max(self.sizes)
        return side // whole * len(self.sizes)


def cut_evenly(extent: int, most: int, unit: int = 1) -> tuple[int, ...]:
    """Return the cells of an extent: as few as cells of `most` would be, but near-equal ones.

    Cells are whole units, of two sizes that are one unit apart, the larger ones first; if the
    extent is not, the last cell lacks what is missing. A `most` that is no whole number of units
    is cut into single indices. A remainder of one column would keep the FMA units waiting
    (section 3 of TTile, hal-03149553).

    Examples
    --------
    >>> cut_evenly(9, 8), cut_evenly(31, 6), cut_evenly(0, 8)
    ((5, 4), (6, 5, 5, 5, 5, 5), ())
    >>> cut_evenly(40, 24, 8), cut_evenly(72, 48, 16), cut_evenly(72, 48, 8)
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


def combinations(extent: int, sizes: Iterable[int]) -> list[Combination]:
    """Return all cells of at most two allowed sizes that cover an extent exactly.

    Cells of one size stand first with no others; those of two are once at least each.

    Examples
    --------
    TTile's products of 34 rows by cells of 8 to 13:

    >>> [one.cells for one in combinations(34, range(10, 14))]
    [(10, 12, 12), (11, 11, 12)]
    """
    allowed = sorted(set(sizes))
    single = [Combination(extent // size, size, 0, size) for size in allowed if extent % size == 0]
    double = [
        Combination((extent - second * other) // size, size, second, other)
        for at, size in enumerate(allowed)
        for other in allowed[at + 1 :]
        for second in range(1, (extent - 1) // other + 1)
        if (extent - second * other) % size == 0
    ]
    return [*single, *double] if extent > 0 else []
