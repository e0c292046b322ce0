"""Register tiles to choose from: the default one, and catalogues of measured ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from tilesolve.constants import tuning
from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.dtypes import lanes, max_columns, real_of

MANY_REGISTERS = 32
"""Vector registers of instruction sets that have many; the others have sixteen."""


def default_tile(dtype: str, vector_bits: int, registers: int) -> tuple[int, int]:
    """Return the vectors of rows and the columns of the register tile where none was measured.

    Three vectors of rows by eight columns where there are 32 registers, two by six where there
    are 16: 24 and 12 accumulators, so that the vectors of A and the broadcast of B fit beside
    them. A complex element needs two accumulators: half as many columns, and with 16 registers one
    vector of rows, so that nothing is spilled. With fewer registers there are as many columns as
    fit beside two vectors of rows, or beside one where that leaves too few accumulators to hide the
    latency of an FMA.

    Raises
    ------
    MachineError
        If the registers hold no tile at all.

    Examples
    --------
    >>> [default_tile("float64", bits, count) for bits, count in ((512, 32), (256, 16), (128, 8))]
    [(3, 8), (2, 6), (1, 6)]
    """
    many = registers >= MANY_REGISTERS
    vectors, columns = (3, 8) if many else (2, 6)
    if dtype.startswith("complex"):
        vectors, columns = (vectors, columns // 2) if many else (1, columns)
    elif vectors * max_columns(dtype, registers, vectors) < tuning.INDEPENDENT_FMAS:
        vectors, columns = 1, vectors * columns
    columns = min(columns, max_columns(dtype, registers, vectors))
    if not columns:
        raise MachineError(f"{registers} vector registers hold no register tile of {dtype}")
    return vectors, columns


def product_cycles(dtype: str, bits: int, frequency: float, flops: float) -> float:
    """Return the cycles that a product of two vectors, and its sum, takes at a rate of arithmetic.

    Examples
    --------
    >>> [product_cycles(dtype, 256, 4e9, 64e9) for dtype in ("float64", "complex128")]
    [0.5, 2.0]
    """
    products = lanes(dtype, bits) if real_of(dtype) == dtype else 4 * lanes(dtype, bits)
    return 2 * products * frequency / flops


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A register tile and how fast its microkernel was, alone and with all it reads in L1.

    Parameters
    ----------
    vectors, columns
        Groups of rows, each a vector wide, and columns.
    step
        Cycles of one step of k.
    call
        Cycles that a tile takes besides its steps, one of several that a call computes.

    Examples
    --------
    >>> RegisterTile(vectors=3, columns=8, step=24.0, call=48.0).cycles(256)
    6192.0
    """

    vectors: int
    columns: int
    step: float
    call: float

    def __post_init__(self) -> None:
        counts = type(self.vectors) is int is type(self.columns)
        times = isfinite(self.step) and isfinite(self.call)
        if not (counts and times and min(self.vectors, self.columns) >= 1):
            raise MachineError(f"an impossible register tile: {self}")
        if self.step <= 0 or self.call < 0:
            raise MachineError(f"an impossible register tile: {self}")

    def cycles(self, sums: float) -> float:
        """Return the cycles of a call that sums so many products into each element."""
        return self.call + sums * self.step

    def is_possible(self, product: float) -> bool:
        """Return whether steps take as long as they do at the peak, but for noise.

        Parameters
        ----------
        product
            Cycles of a product of vectors at the peak, see `product_cycles`.

        Examples
        --------
        >>> [RegisterTile(1, 7, step, 0.0).is_possible(1.0) for step in (6.86, 6.95, 7.05)]
        [False, True, True]
        """
        least = (1 - tuning.PROBE_TOLERANCE) * self.vectors * self.columns * product
        return self.step >= least


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The measured microkernels of a dtype and a vector width.

    Parameters
    ----------
    dtype
        Of all tensors.
    bits, registers
        Width of vectors, and how many of them kernels may use.
    tiles
        All register tiles that were measured.
    in_place_rows_slowdown
        How many times as long calls take that read rows in place, each step's in another page; None
        where that was not measured.
    aliased_store_slowdown
        How many times as long short calls with non-temporal stores take where the lines of C have
        the same address modulo 4 KiB; None where that was not measured.
    prefetch_gain_ratio
        Time of short calls with non-temporal stores that prefetch the first lines of the next
        tile's rows, to that of calls that do not; None where that was not measured.
    in_place_columns_slowdown
        How many times as long calls take that read columns in place, each in another page; None
        where that was not measured.

    Examples
    --------
    >>> tiles = RegisterTile(3, 8, 24.0, 48.0), RegisterTile(1, 1, 4.0, 20.0)
    >>> Catalogue("float64", 512, 32, tiles).rate
    1.0
    """

    dtype: str
    bits: int
    registers: int
    tiles: tuple[RegisterTile, ...]
    in_place_rows_slowdown: float | None = None
    aliased_store_slowdown: float | None = None
    prefetch_gain_ratio: float | None = None
    in_place_columns_slowdown: float | None = None

    def __post_init__(self) -> None:
        for what, times in (
            ("rows in place", self.in_place_rows_slowdown),
            ("columns in place", self.in_place_columns_slowdown),
            ("aliased stores", self.aliased_store_slowdown),
        ):
            if times is not None and not (isfinite(times) and times >= 1):
                raise MachineError(f"{what} cannot take {times!r} times as long")
        ratio = self.prefetch_gain_ratio
        if ratio is not None and not (isfinite(ratio) and ratio > 0):
            raise MachineError(f"calls that prefetch cannot take {ratio!r} of their time")

    def __hash__(self) -> int:
        # Plans are looked up by their machine: hundreds of tiles would take longer than the rest.
        return hash((self.dtype, self.bits, self.registers, len(self.tiles)))

    @property
    def rate(self) -> float:
        """Cycles that a vector FMA takes in the fastest of the tiles."""
        return min(tile.step / (tile.vectors * tile.columns) for tile in self.tiles)

    def faster(self, factor: float) -> Self:
        """Return the catalogue of a machine that computes so many times as fast.

        Calls and what is measured beside the steps stay as they are.

        Examples
        --------
        >>> tile = RegisterTile(3, 8, step=24.0, call=24.0)
        >>> Catalogue("float64", 512, 32, (tile,)).faster(2.0).tiles[0].cycles(sums=1)
        36.0
        """
        tiles = tuple(replace(tile, step=tile.step / factor) for tile in self.tiles)
        return replace(self, tiles=tiles)

    def share(self, tile: RegisterTile, sums: float) -> float:
        """Return the share of the fastest tile's rate that calls of a length reach.

        Examples
        --------
        >>> tile = RegisterTile(3, 8, step=24.0, call=24.0)
        >>> Catalogue("float64", 512, 32, (tile,)).share(tile, sums=1)
        0.5
        """
        return sums * tile.vectors * tile.columns * self.rate / tile.cycles(sums)
