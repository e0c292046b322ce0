"""Places that hold working sets, and the levels that refill them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class LevelView:
    """A place that holds a working set, and the level that refills it.

    Parameters
    ----------
    name
        The register file or a cache.
    capacity
        Bytes that a working set may take in it.
    line
        Bytes of the unit it is filled by.
    server
        The next level out, whose bandwidth the refills take.
    bandwidth
        Bytes per second of the server.
    ways
        Associativity; None where it is unknown, full or not a cache's.
    read
        Bytes per second at which the server is read and not written; None: at its bandwidth.
    stream
        Bytes per second at which it is written past all caches; None: at its bandwidth.

    Examples
    --------
    >>> LevelView("L1", 32768.0, 64, server="L2", bandwidth=8e10).ways is None
    True
    """

    name: str
    capacity: float
    line: int
    server: str
    bandwidth: float
    ways: int | None = None
    read: float | None = None
    stream: float | None = None

    @property
    def stream_rate(self) -> float:
        """Bytes per second at which the server is written past all caches."""
        return self.stream or self.bandwidth

    def seconds(self, volumes: Sequence[Any]) -> Any:  # noqa: ANN401 - numbers, arrays or signomials
        """Return how long the server takes for the volumes of all tensors, output first.

        Operands are only read, and that a server may do no faster than it reads and writes.

        Examples
        --------
        >>> LevelView("L2", 2.0**20, 64, "L3", bandwidth=40e9, read=20e9).seconds([4e9, 1e9, 1e9])
        0.2
        """
        output, *operands = volumes
        read, written = (
            min(self.bandwidth, self.read or self.bandwidth),
            output * (1 / self.bandwidth),
        )
        return written + sum(operands[1:], operands[0]) * (1 / read) if operands else written

    def delay(self, wait: float) -> LevelView:
        """Return the same where each byte takes so many seconds longer.

        Examples
        --------
        >>> LevelView("L2", 2.0**20, 64, "L3", bandwidth=40e9).delay(25e-12).bandwidth
        20000000000.0
        """
        return replace(
            self,
            bandwidth=1 / (1 / self.bandwidth + wait),
            read=self.read and 1 / (1 / self.read + wait),
        )

    def ways_for(self, tensors: int) -> int | None:
        """Return the ways that so many tensors divide among them, each in whole ones (Eq. 9).

        None where its capacity is all that counts: where ways are unknown, or fewer than tensors,
        which then share some whatever the tiles are.

        Examples
        --------
        >>> place = LevelView("L1", 32768.0, 64, server="L2", bandwidth=8e10, ways=2)
        >>> place.ways_for(2), place.ways_for(3)
        (2, None)
        """
        return None if self.ways is None or self.ways < tensors else self.ways
