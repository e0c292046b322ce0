"""The convolution slicing analysis of SConv: tiles of a layer by its equations 1 to 14.

It is a named baseline (arXiv 2303.04739, section 4), kept as written: `price` decides what runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

Schedule = Literal["input stationary", "weight stationary"]
"""Which operand's tile stays in the first cache while tiles of the other one pass by."""

CACHE_SHARE = 0.9
"""Share of each cache that tiles may take: α, β and γ of equations 2, 4 and 5."""

LATENCIES = (10.0, 30.0, 300.0)
"""Cycles of an access to the second cache, the third one and memory, where nothing else is known.

The paper leaves them to the machine; these are what its authors' code has.
"""


@dataclass(frozen=True, slots=True)
class LayerExtents:
    """What the equations know of a layer.

    Parameters
    ----------
    channels, windows, filters, taps
        Channels of the input, pixels of the output, channels of the output, taps of a filter.
    element_bytes
        Bytes of an element.
    """

    channels: int
    windows: int
    filters: int
    taps: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Windows and filters of one call of the microkernel: Nwin and Nf."""

    windows: int
    filters: int


@dataclass(frozen=True, slots=True)
class Caches:
    """What the equations know of a machine.

    Parameters
    ----------
    capacities
        Bytes of the first three caches.
    line_bytes
        Bytes of a line.
    latencies
        Cycles of an access to the second cache, the third one and memory.
    """

    capacities: tuple[float, float, float]
    line_bytes: int
    latencies: tuple[float, float, float] = LATENCIES


@dataclass(frozen=True, slots=True)
class Slices:
    """How a layer is cut.

    Parameters
    ----------
    schedule
        Which operand stays.
    channels
        Nc: channels that a call sums.
    passing
        K2: tiles of the other operand that the second cache holds.
    staying
        K3: tiles of the operand that stays, in the third cache.

    Examples
    --------
    >>> print(Slices("weight stationary", 16, 49, 3))
    weight stationary, Nc 16, K2 49, K3 3
    """

    schedule: Schedule
    channels: int
    passing: int
    staying: int

    def __str__(self) -> str:
        return f"{self.schedule}, Nc {self.channels}, K2 {self.passing}, K3 {self.staying}"


@dataclass(frozen=True, slots=True)
class Accesses:
    """Lines that come from memory, the third and the second cache: equations 7, 13 and 14."""

    memory: float
    third: float
    second: float

    def cycles(self, latencies: tuple[float, float, float]) -> float:
        """Return what they take together (6).

        Examples
        --------
        >>> Accesses(memory=1, third=2, second=3).cycles((10, 30, 300))
        390
        """
        second, third, memory = latencies
        return memory * self.memory + third * self.third + second * self.second


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of both operands and of the output, where so many channels are summed at once.

    Parameters
    ----------
    staying, passing, output
        Bytes of a tile of each (1).
    staying_count, passing_count
        Tiles of one set of channels (3).
    """

    staying: int
    passing: int
    output: int
    staying_count: int
    passing_count: int

    @classmethod
    def of(cls, layer: LayerExtents, cell: Cell, schedule: Schedule, channels: int) -> Tiles:
        """Return the tiles of a schedule.

        Examples
        --------
        >>> layer = LayerExtents(channels=32, windows=5625, filters=256, taps=9, element_bytes=4)
        >>> Tiles.of(layer, Cell(16, 8), "input stationary", 32)
        Tiles(staying=18432, passing=9216, output=512, staying_count=352, passing_count=32)
        """
        depth = channels * layer.taps * layer.element_bytes
        pair = [
            (cell.windows * depth, ceil(layer.windows / cell.windows)),
            (cell.filters * depth, ceil(layer.filters / cell.filters)),
        ]
        staying, passing = pair if schedule == "input stationary" else pair[::-1]
        output = cell.windows * cell.filters * layer.element_bytes
        return cls(staying[0], passing[0], output, staying[1], passing[1])

    @property
    def near(self) -> int:
        """Bytes in the first cache (2)."""
        return self.staying + self.passing + self.output

    def middle(self, passing: int) -> int:
        """Return the bytes in the second cache for K2 tiles that pass (4)."""
        return self.staying + passing * (self.passing + self.output)

    def far(self, passing: int, staying: int) -> int:
        """Return the bytes in the third cache for K2 and K3 tiles (5)."""
        return staying * self.staying + passing * self.passing + passing * staying * self.output


def slice_layer(layer: LayerExtents, cell: Cell, caches: Caches, schedule: Schedule) -> Slices:
    """Return the slices of a layer: Nc, then K2, then K3, halved from the most until they fit.

    Examples
    --------
    >>> layer = LayerExtents(channels=32, windows=5625, filters=256, taps=9, element_bytes=4)
    >>> caches = Caches((32768, 1 << 20, 4 << 20), line_bytes=128)
    >>> print(slice_layer(layer, Cell(16, 8), caches, "input stationary"))
    input stationary, Nc 32, K2 32, K3 88
    """
    first, second, third = (CACHE_SHARE * size for size in caches.capacities)
    channels = _halve(layer.channels, lambda n: Tiles.of(layer, cell, schedule, n).near <= first)
    tiles = Tiles.of(layer, cell, schedule, channels)
    passing = _halve(tiles.passing_count, lambda n: tiles.middle(n) <= second)
    staying = _halve(tiles.staying_count, lambda n: tiles.far(passing, n) <= third)
    return Slices(schedule, channels, passing, staying)


def count_accesses(layer: LayerExtents, cell: Cell, line_bytes: int, slices: Slices) -> Accesses:
    """Return the lines that slices of a layer move.

    Hits of the first cache, and the output that is loaded again for each set of channels, are left
    out: they are the same for both schedules.
    """
    tiles = Tiles.of(layer, cell, slices.schedule, slices.channels)
    sets = layer.channels / slices.channels
    staying = tiles.staying_count * tiles.staying / line_bytes
    passing = tiles.passing_count * tiles.passing / line_bytes
    passing_rounds = tiles.passing_count / slices.passing - 1  # 12
    staying_rounds = tiles.staying_count / slices.staying - 1  # 10
    once = sets * (staying + passing)  # 8
    again = sets * min(passing_rounds, 1) * staying_rounds * passing  # 9 and 11
    return Accesses(
        memory=once + again,
        third=sets * passing_rounds * staying,
        second=sets * (tiles.staying_count - 1) * passing,
    )


def both_slices(layer: LayerExtents, cell: Cell, caches: Caches) -> tuple[Slices, Slices]:
    """Return the slices of both schedules, first the one that takes fewer cycles (6).

    Examples
    --------
    >>> layer = LayerExtents(channels=32, windows=5625, filters=256, taps=9, element_bytes=4)
    >>> caches = Caches((32768, 1 << 20, 4 << 20), line_bytes=128)
    >>> both_slices(layer, Cell(16, 8), caches)[0].schedule
    'input stationary'
    """

    def cycles(slices: Slices) -> float:
        accesses = count_accesses(layer, cell, caches.line_bytes, slices)
        return accesses.cycles(caches.latencies)

    one, other = (slice_layer(layer, cell, caches, schedule) for schedule in get_args(Schedule))
    return (one, other) if cycles(one) <= cycles(other) else (other, one)


def _halve(most: int, fits: Callable[[int], bool]) -> int:
    """Return the most, halved until it fits; one is the least."""
    while most > 1 and not fits(most):
        most //= 2
    return most
