"""Where arrays lie when a nest begins, and what that spares of its price.

A price counts bytes as if all came from memory at first. Who repeats a call finds them nearer: in
the first cache that holds all of them. What such a cache holds in part comes from farther out in
part, as caches do not drop exactly what was used longest ago; the last one serves others, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Literal

from tilesolve.constants.policy import (
    LAST_START_RAMP,
    LAST_WRITTEN_RAMP,
    NEAR_START_RAMP,
    START_TOUCHED_SHARE,
)
from tilesolve.model.level_view import LevelView
from tilesolve.model.price import LevelPrice, Price

Start = Literal["warm", "cold"]
"""Where arrays lie at first: in the nearest cache that holds them all, or in memory."""


def start_arrays(
    cost: Price,
    places: Sequence[LevelView],
    start: Start,
    between: Sequence[float] = (),
) -> Price:
    """Return a price that counts from memory as one from where arrays lie at first.

    What is touched of them is what the last cache takes in: if it holds all, that comes once.

    Parameters
    ----------
    cost, places
        The price, and who holds what it moves.
    start
        Where arrays lie.
    between
        Of each tensor, how many bytes were touched since it was; infinite where it was not.

    Examples
    --------
    >>> one = LevelPrice("L1", "register", (64.0,), (64.0,), (0.0,), 1.0)
    >>> two = LevelPrice("memory", "L1", (64.0,), (64.0,), (0.0,), 4.0)
    >>> near = LevelView("register", 32.0, 1, "L1", 1e9)
    >>> cost, far = Price((one, two), 0.0, 1.0, ()), LevelView("L1", 640.0, 64, "memory", 1e9)
    >>> start_arrays(cost, (near, far), "warm").level("memory").seconds
    0.0
    >>> [start_arrays(cost, (near, far), "cold", [n]).level("memory").seconds for n in (64.0, inf)]
    [0.0, 4.0]
    """
    if not cost.levels or (start == "cold" and not between):
        return cost
    moved, last = cost.levels[-1].moved, places[-1]
    least = inf if start == "cold" else sum(moved)
    apart = [min(least, one) for one in between or [inf] * len(moved)]
    shares, found = [1.0] * len(apart), list(cost.levels[:1])
    for level, place in zip(cost.levels[1:], places[1:], strict=True):
        ramps = [LAST_START_RAMP if place is last else NEAR_START_RAMP] * len(apart)
        ramps[:1] = [LAST_WRITTEN_RAMP] if place is last else ramps[:1]
        pairs = zip(apart, ramps, strict=True)
        beyond = (max(x / place.capacity - low, 0.0) / (high - low) for x, (low, high) in pairs)
        shares = list(map(min, shares, beyond))
        found.append(_shared(level, place, shares))
    return replace(cost, levels=tuple(found))


def list_between(
    works: Sequence[Mapping[str, float]], past: Sequence[str | None]
) -> list[dict[str, float]]:
    """Return for works that run in turn how many bytes were touched since each of their arrays was.

    Parameters
    ----------
    works
        The bytes that each touches of arrays in caches, by their names.
    past
        The array that each writes past the caches.

    Examples
    --------
    >>> list_between([{"a": 8.0, "b": 2.0}, {"b": 2.0, "c": 0.0}, {"a": 8.0}], [None, "c", None])
    [{}, {'b': 10.0}, {'a': 10.0}]
    """
    found: list[dict[str, float]] = []
    for at, touched in enumerate(works):
        distances = {}
        for name in touched:
            begin = _find_touch(works, past, at, name)
            if begin is not None:
                seen: dict[str, float] = {}
                for one in works[begin:at]:
                    seen |= {x: max(size, seen.get(x, 0.0)) for x, size in one.items()}
                distances[name] = sum(seen.values())
        found.append(distances)
    return found


def _find_touch(
    works: Sequence[Mapping[str, float]], past: Sequence[str | None], at: int, name: str
) -> int | None:
    """Return since which work enough was touched of what one touches of an array; None if not.

    A border that was written last says nothing of where the rest is.
    """
    lacking = START_TOUCHED_SHARE * works[at][name]
    for number in reversed(range(at)):
        size = works[number].get(name)
        if size is not None and past[number] == name:
            return None
        lacking -= size or 0.0
        if size is not None and lacking <= 0:
            return number
    return None


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

    def share(level: LevelPrice, beyond: LevelPrice | None) -> float:
        """Return the share of a level's bytes that pass it."""
        return beyond.volume / level.volume if beyond and level.volume else 0.0

    farther = [*cost.levels[1:], None]
    found = [
        replace(level, seconds=level.seconds * max(1 - share(level, beyond), 0.0))
        for level, beyond in zip(cost.levels, farther, strict=True)
    ]
    return replace(cost, levels=tuple(found))


def _shared(level: LevelPrice, place: LevelView, shares: Sequence[float]) -> LevelPrice:
    """Return shares of what a level serves of each tensor."""

    def take(sizes: Sequence[float]) -> tuple[float, ...]:
        return tuple(share * size for share, size in zip(shares, sizes, strict=True))

    if not level.volumes:
        return level
    volumes, whole = take(level.volumes), float(place.seconds(level.volumes))
    seconds = level.seconds * (float(place.seconds(volumes)) / whole) if whole else 0.0
    return LevelPrice(
        level.level, level.holder, take(level.moved), volumes, take(level.packing), seconds
    )
