"""Classes of microkernels: the fast ones, of which schemes compose what they call."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.constants.policy import (
    FAST_SHARE,
    MOST_CALL_PRODUCTS,
    MOST_COMBINATIONS,
    MOST_REGISTERS,
)
from tilesolve.kernels.dtypes import register_tiles
from tilesolve.kernels.microkernel_costs import RegisterTile
from tilesolve.machine.model import Machine
from tilesolve.packing.cover import Combination, combinations


@dataclass(frozen=True, slots=True)
class MicrokernelClass:
    """Microkernels of as many vectors, by the columns that they have.

    Parameters
    ----------
    vectors
        Of rows.
    tiles
        Register tiles, by their columns.
    """

    vectors: int
    tiles: tuple[RegisterTile, ...]

    def combinations(self, extent: int) -> list[Combination]:
        """Return the cells of at most two sizes that cover an extent, the fastest ones first.

        Examples
        --------
        >>> tiles = tuple(RegisterTile(2, n, 2.0 * n, 10.0) for n in range(8, 14))
        >>> [one.cells for one in MicrokernelClass(2, tiles).combinations(34)]
        [(11, 11, 12), (10, 12, 12), (8, 13, 13)]
        """
        found = combinations(extent, (tile.columns for tile in self.tiles))
        found.sort(key=lambda one: (self.cycles(one), one.other - one.size))
        return found[:MOST_COMBINATIONS]

    def cycles(self, cells: Combination) -> float:
        """Return the cycles of a call for each of some cells."""
        of = {tile.columns: tile.cycles(MOST_CALL_PRODUCTS) for tile in self.tiles}
        return sum(of[cell] for cell in cells.cells)


def fast_classes(
    dtype: str, machine: Machine, rows: int, share: float = FAST_SHARE
) -> list[MicrokernelClass]:
    """Return the classes of microkernels that are nearly as fast as the best of all.

    Those count whose vectors divide the rows: no vector is cut.

    Parameters
    ----------
    dtype
        Of all tensors.
    machine
        Whose catalogue has the microkernels. Without one a microkernel starts as many FMAs as the
        CPU can, if it has enough that are independent.
    rows
        Vectors of rows that there are.
    share
        Of the fastest one's rate.

    Examples
    --------
    >>> found = fast_classes("float64", Machine.load("i7-6700k"), rows=6)
    >>> [(one.vectors, [tile.columns for tile in one.tiles]) for one in found]
    [(1, [7, 8, 9, 10, 11, 12, 13, 14]), (2, [4, 5, 6]), (3, [3, 4])]
    """
    usable = [tile for tile in _tiles(dtype, machine) if rows % tile.vectors == 0]

    def rate(tile: RegisterTile) -> float:
        return tile.vectors * tile.columns * MOST_CALL_PRODUCTS / tile.cycles(MOST_CALL_PRODUCTS)

    least = share * max(map(rate, usable), default=0.0)
    found: dict[int, list[RegisterTile]] = {}
    for tile in sorted(usable, key=lambda tile: (tile.vectors, tile.columns)):
        if rate(tile) >= least:
            found.setdefault(tile.vectors, []).append(tile)
    return [MicrokernelClass(vectors, tuple(tiles)) for vectors, tiles in found.items()]


def _tiles(dtype: str, machine: Machine) -> list[RegisterTile]:
    """Return the register tiles that kernels have, as measured where they were."""
    kernels = register_tiles(dtype, min(machine.vector_registers, MOST_REGISTERS))
    catalogue = machine.catalogue(dtype)
    if catalogue is not None:
        return [tile for tile in catalogue.tiles if (tile.vectors, tile.columns) in kernels]
    independent = machine.fma_latency * machine.fma_rate
    return [
        RegisterTile(high, wide, max(independent, high * wide) / machine.fma_rate, call)
        for high, wide in kernels
        for call in [machine.costs.tile_cycles]
    ]
