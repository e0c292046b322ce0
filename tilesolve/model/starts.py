"""Where arrays lie when a nest begins, and what that spares of its price.

A price counts bytes as if all came from memory at first. Who repeats a call finds them nearer: in
the first cache that holds all of them. What such a cache holds in part comes from farther out in
part, as caches do not drop exactly what was used longest ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tilesolve.constants.policy import START_RAMP
from tilesolve.model.level_view import LevelView
from tilesolve.model.price import LevelPrice, Price

Start = Literal["warm", "cold"]
"""Where arrays lie at first: in the nearest cache that holds them all, or in memory."""


def start_arrays(cost: Price, places: Sequence[LevelView], start: Start) -> Price:
    """Return a price that counts from memory as one from where arrays lie at first.

    What is touched of them is what the last cache takes in: if it holds all, that comes once.

    Examples
    --------
    >>> one = LevelPrice("L1", "register", (64.0,), (64.0,), (0.0,), 1.0)
    >>> two = LevelPrice("memory", "L1", (64.0,), (64.0,), (0.0,), 4.0)
    >>> near = LevelView("register", 32.0, 1, "L1", 1e9)
    >>> cost, far = Price((one, two), 0.0, 1.0, ()), LevelView("L1", 64.0, 64, "memory", 1e9)
    >>> start_arrays(cost, (near, far), "warm").level("memory").seconds
    0.0
    """
    if start == "cold" or not cost.levels:
        return cost
    touched, share, found = sum(cost.levels[-1].moved), 1.0, list(cost.levels[:1])
    for level, place in zip(cost.levels[1:], places[1:], strict=True):
        share = min(share, max(touched / place.capacity - 1, 0.0) / START_RAMP)
        found.append(_shared(level, share))
    return replace(cost, levels=tuple(found))


def charge_sources(cost: Price) -> Price:
    """Return a price that charges each byte at the level that it comes from.

    Rates of levels are those of sweeps, whose bytes pass all nearer levels on their way: there they
    take no more time of their own.

    Examples
    --------
    >>> one = LevelPrice("L1", "register", (64.0,), (64.0,), (0.0,), 1.0)
    >>> two = LevelPrice("memory", "L1", (16.0,), (16.0,), (0.0,), 4.0)
    >>> charge_sources(Price((one, two), 0.0, 1.0, ())).level("L1").seconds
    0.75
    """
    farther = [*cost.levels[1:], None]
    found = [
        level if not (level.volume and beyond) else _timed(level, beyond.volume / level.volume)
        for level, beyond in zip(cost.levels, farther, strict=True)
    ]
    return replace(cost, levels=tuple(found))


def _timed(level: LevelPrice, passing: float) -> LevelPrice:
    return replace(level, seconds=level.seconds * max(1 - passing, 0.0))


def _shared(level: LevelPrice, share: float) -> LevelPrice:
    """Return a share of what a level serves."""
    return LevelPrice(
        level.level,
        level.holder,
        tuple(share * size for size in level.moved),
        tuple(share * size for size in level.volumes),
        tuple(share * size for size in level.packing),
        share * level.seconds,
    )
