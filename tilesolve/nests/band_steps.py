"""What stages do that run in bands of rows: the buffers that they keep, and steps in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BandBuffer:
    """The rows of a stage that are kept from band to band: so many along an axis."""

    array: str
    axis: int
    rows: int


@dataclass(frozen=True, slots=True)
class BandStep:
    """What is done within a band.

    Parameters
    ----------
    kind
        The number of what computes it.
    arrays
        For each array of that its name there, the array or buffer that it is a part of, the axis
        along which it is one (-1 for all of it), and its first row.
    """

    kind: int
    arrays: tuple[tuple[str, str, int, int], ...]
