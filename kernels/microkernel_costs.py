"""Microkernels to choose from: their register tiles and what using them costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from tilesolve.contractions.errors import MachineError
from tilesolve.kernels.dtypes import lanes, max_columns

PACK = 2.5
"""Cycles that packing one element takes, from wherever it is (measured: 1 to 7, as its lines come;
plans for 2.5 were up to a tenth faster than for 1). Reading in place waits as packing does: `fetch`
and `stream` of a `Microkernel` were fitted beside it."""

NEAR = 0.4
"""Part of that, and of what reading in place waits, where the second cache holds everything
(measured on a Granite Rapids: packing took 0.4 to 1.1 cycles an element in loops over one operand;
what 54 plans of products up to 300 pack was the fastest choice, or 3 % from it, in all but 6)."""

PLACED = 1.3
"""How many times as long steps of k take at least with 16 registers where rows are read in place:
tiles are small, and addresses take as many loads as elements (measured on Zen 3: 1.04 to 1.21 with
all in the nearest cache, 1.2 to 2 in whole runs)."""

STREAMS = 1.25
"""The same where columns are read in place: their addresses take registers, and loads of their own
(measured on a Granite Rapids with all in the nearest caches: 1.19 to 1.33; where a catalogue has
it, that counts)."""

HINDERED = 1.25
"""How many times as long writing past the caches may take before C goes through them instead."""

GAINED = 0.98
"""Part of its time that a call must stay under that asks for lines, or it had better not."""

ADDING = 80.0
"""Cycles that a tile takes besides its steps, at least, where it adds to C, which is mostly in the
second cache, after sums too long to be foreseen (measured on a Zen 4: 58 to 125 with sums of 64 to
128, and `ab-acd-dbc` takes 382 ms with sums of 64 and 363 with 192; all in the nearest cache, tiles
that sum 16 and 80 products seem to take next to none)."""

HIDDEN = 8
"""Accumulators from which on a tile hides the latency of FMAs: two a cycle, each taking four."""

WALK = 5.0
"""Cycles that the macrokernel takes for each tile: a call, which takes 40, mostly computes a run of
eight or more."""


@dataclass(frozen=True, slots=True)
class Microkernel:
    """A register tile and the costs that the planner counts with.

    Parameters
    ----------
    rows, columns
        MR and NR: elements of the output that stay in registers over a call.
    efficiency
        Share of the machine's peak that its inner loop reaches.
    call
        Cycles that a call costs besides its arithmetic: entry, and C in and out.
    pack
        Cycles that packing one element costs.
    fetch
        Cycles that an element of rows read in place costs each time it enters the second cache.
    stream
        Cycles that one of columns read in place costs each time it enters the first.
    placed, streams
        How many times as long the inner loop takes where rows, or columns, are read in place.

    Examples
    --------
    >>> Microkernel(rows=24, columns=8).rows
    24
    """

    rows: int
    columns: int
    efficiency: float = 1.0
    call: float = 60.0
    pack: float = PACK
    fetch: float = 1.25
    stream: float = 0.6
    placed: float = 1.0
    streams: float = STREAMS

    def nearby(self) -> Microkernel:
        """Return the same with the costs of operands that are in the second cache.

        Examples
        --------
        >>> Microkernel(rows=24, columns=8).nearby().pack
        1.0
        """
        fields = ("pack", "fetch", "stream")
        return replace(self, **{name: NEAR * getattr(self, name) for name in fields})


def default(dtype: str, vector_bits: int, registers: int) -> Microkernel:
    """Return the microkernel that holds where none has been measured.

    Three vectors of rows by eight columns where there are 32 registers, two by six where there
    are 16: 24 and 12 accumulators, so that the vectors of A and the broadcast of B fit beside
    them. A complex element needs two accumulators: half as many columns, and with 16 registers one
    vector of rows, so that nothing is spilled. With fewer registers there are as many columns as
    fit beside two vectors of rows, or beside one where that leaves fewer than eight accumulators:
    these hide the latency of an FMA.

    Raises
    ------
    MachineError
        If the registers hold no tile at all.

    Examples
    --------
    >>> default("float64", 512, 32)  # doctest: +ELLIPSIS
    Microkernel(rows=24, columns=8, ..., fetch=1.25, stream=0.6, placed=1.0, streams=1.25)
    >>> default("float32", 256, 16)  # doctest: +ELLIPSIS
    Microkernel(rows=16, columns=6, ..., fetch=1.25, stream=0.6, placed=1.3, streams=1.25)
    >>> default("float64", 128, 8)  # doctest: +ELLIPSIS
    Microkernel(rows=2, columns=6, ..., fetch=1.25, stream=0.6, placed=1.3, streams=1.25)
    """
    group = lanes(dtype, vector_bits)
    vectors, columns = (3, 8) if registers >= 32 else (2, 6)
    if dtype.startswith("complex"):
        vectors, columns = (vectors, columns // 2) if registers >= 32 else (1, columns)
    elif vectors * max_columns(dtype, registers, vectors) < HIDDEN:
        vectors, columns = 1, vectors * columns
    columns = min(columns, max_columns(dtype, registers, vectors))
    if not columns:
        raise MachineError(f"{registers} vector registers hold no register tile of {dtype}")
    return Microkernel(vectors * group, columns, placed=PLACED if registers < 32 else 1.0)


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
    placed
        How many times as long calls take that read rows in place, each step's in another page; None
        where that was not measured.
    crowded
        How many times as long short calls take that write C past the caches where its lines are at
        one place in their pages; None where that was not measured.
    asked
        What part of their time short calls take that write C past the caches where each tile asks
        for the first lines of the next one's rows before; None where that was not measured.
    streams
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
    placed: float | None = None
    crowded: float | None = None
    asked: float | None = None
    streams: float | None = None

    def __post_init__(self) -> None:
        for what, times in (
            ("rows in place", self.placed),
            ("columns in place", self.streams),
            ("crowded lines", self.crowded),
        ):
            if times is not None and not (isfinite(times) and times >= 1):
                raise MachineError(f"{what} cannot take {times!r} times as long")
        if self.asked is not None and not (isfinite(self.asked) and self.asked > 0):
            raise MachineError(f"calls that ask for lines cannot take {self.asked!r} of their time")

    def __hash__(self) -> int:
        # Plans are looked up by their machine: hundreds of tiles would take longer than the rest.
        return hash((self.dtype, self.bits, self.registers, len(self.tiles)))

    @property
    def rate(self) -> float:
        """Cycles that a vector FMA takes in the fastest of the tiles."""
        return min(tile.step / (tile.vectors * tile.columns) for tile in self.tiles)

    @property
    def hinders(self) -> bool:
        """Whether C had better not pass by the caches where its lines are at one place in pages.

        Examples
        --------
        >>> tiles = (RegisterTile(3, 8, step=24.0, call=24.0),)
        >>> [Catalogue("float64", 512, 32, tiles, crowded=c).hinders for c in (None, 1.1, 2.0)]
        [False, False, True]
        """
        return self.crowded is not None and self.crowded >= HINDERED

    @property
    def asks(self) -> bool:
        """Whether tiles ask for the next one's first lines before they write C past the caches.

        It is so where that was not measured.

        Examples
        --------
        >>> tiles = (RegisterTile(3, 8, step=24.0, call=24.0),)
        >>> [Catalogue("float64", 512, 32, tiles, asked=part).asks for part in (None, 0.9, 1.0)]
        [True, True, False]
        """
        return self.asked is None or self.asked <= GAINED

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

    def microkernel(self, tile: RegisterTile, *, adds: bool = False) -> Microkernel:
        """Return a tile as the planner counts with it, for calls that may have to add to C.

        Examples
        --------
        >>> tile = RegisterTile(3, 8, step=24.0, call=48.0)
        >>> found = Catalogue("float64", 512, 32, (tile,), placed=1.5).microkernel(tile)
        >>> found.call, found.placed
        (53.0, 1.5)
        >>> Catalogue("float64", 512, 32, (tile,)).microkernel(tile, adds=True).call
        85.0
        """
        call = max(tile.call, ADDING) if adds else tile.call
        usual = default(self.dtype, self.bits, self.registers)
        group = lanes(self.dtype, self.bits)
        return replace(
            usual,
            rows=tile.vectors * group,
            columns=tile.columns,
            efficiency=tile.vectors * tile.columns * self.rate / tile.step,
            call=call + WALK,
            placed=max(usual.placed, self.placed or 1.0),
            streams=self.streams or usual.streams,
        )
