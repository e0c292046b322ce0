"""Working sets, misses and the order's cost of a tiled nest, in numbers or in symbols.

The formulas are those of chapter 4 of the thesis, (4.1) to (4.13), for any references. With `o` the
outermost loop within tiles and `n` the innermost loop over tiles, what one trip of `o` touches is
to stay in the first cache, and what one trip of `n` touches in the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilesolve.model.access import Access, Box
from tilesolve.solver.signomials import Signomial


@dataclass(frozen=True, slots=True)
class Weights:
    """What misses of the two caches cost, and how much of that is a line that is prefetched.

    Parameters
    ----------
    first, second
        The cost of a run's first line that the first and the second cache miss.
    later_first, later_second
        The share of it that each further line of a run costs: 0 where prefetching hides them, as
        the thesis has it; 1 where nothing prefetches.
    """

    first: float
    second: float
    later_first: float = 0.0
    later_second: float = 0.0


def first_working_set(references: Sequence[Access], tiles: Box, o: str, line: int) -> Any:  # noqa: ANN401
    """Return the bytes that one trip of the outermost loop within tiles touches (4.1).

    A reference whose last axis is moved by this loop alone counts whole lines.

    Examples
    --------
    >>> from tilesolve.model.access import Axis
    >>> a = Access("A", (Axis(((1, "i"),)), Axis(((1, "k"),))), (64, 64), 4)
    >>> first_working_set([a], {"i": 8, "k": 16}, "i", 64)
    64
    """
    one = {**tiles, o: 1}
    total: Any = 0
    for reference in references:
        count = line if reference.contiguous == (o,) else reference.element
        total = total + prod(reference.reaches(one)) * count
    return total


def second_working_set(references: Sequence[Access], tiles: Box) -> Any:  # noqa: ANN401
    """Return the bytes of a whole tile (4.6)."""
    return sum((prod(one.reaches(tiles)) * one.element for one in references), start=0)


def first_misses(
    references: Sequence[Access],
    tiles: Box,
    extents: Mapping[str, int],
    line: int,
    later: float = 0.0,
) -> Any:  # noqa: ANN401
    """Return the misses of the first cache in runs, with a share of their later lines (4.5)."""
    trips = prod(_trips(extents[x], tiles[x]) for x in extents)
    return sum((_run_cost(one, tiles, line, later) for one in references), start=0) * trips


def second_misses(
    references: Sequence[Access],
    tiles: Box,
    extents: Mapping[str, int],
    n: str,
    line: int,
    later: float = 0.0,
) -> Any:  # noqa: ANN401
    """Return the misses of the second cache in runs, with a share of their later lines (4.10)."""
    outer = prod((_trips(extents[x], tiles[x]) for x in extents if x != n), start=1)
    again = _trips(extents[n], tiles[n])
    total: Any = 0
    for one in references:
        cost = _run_cost(one, tiles, line, later)
        total = total + (cost * again if n in one.letters else cost)
    return total * outer


def cost(
    references: Sequence[Access],
    tiles: Box,
    extents: Mapping[str, int],
    n: str,
    weights: Weights,
    lines: tuple[int, int],
) -> Any:  # noqa: ANN401
    """Return what the misses of both caches cost (4.11)."""
    near = first_misses(references, tiles, extents, lines[0], weights.later_first)
    far = second_misses(references, tiles, extents, n, lines[1], weights.later_second)
    return near * weights.first + far * weights.second


def order_cost(
    inter: Sequence[str],
    intra: Sequence[str],
    tiles: Mapping[str, int],
    extents: Mapping[str, int],
) -> float:
    """Return how far loops over tiles lie from those within, in iterations (4.12).

    Parameters
    ----------
    inter, intra
        The letters of loops over tiles and within them, outermost first.
    tiles, extents
        Of the letters.

    Examples
    --------
    >>> tiles, extents = {"i": 32, "j": 128, "k": 16}, dict.fromkeys("ijk", 2048)
    >>> order_cost("ikj", "ikj", tiles, extents)
    3072.0
    """
    total = 0.0
    for letter in intra:
        within = inter[inter.index(letter) + 1 :]
        around = intra[: intra.index(letter)]
        total += prod(extents[x] / tiles[x] for x in within) * prod(tiles[x] for x in around)
    return total


def _run_cost(one: Access, tiles: Box, line: int, later: float) -> Any:  # noqa: ANN401
    """Return the cost of the runs that a tile touches, each of which begins anywhere in a line."""
    reaches = one.reaches(tiles)
    rows = prod(reaches) if one.gathered else prod(reaches[:-1])
    if not later:
        return rows
    elements = max(line // one.element, 1)
    run = 1 if one.gathered or not one.axes else reaches[-1]
    lines = run * (1 / elements) + (1 - 1 / elements)
    return rows * (lines * later + (1 - later))


def _trips(extent: int, tile: Any) -> Any:  # noqa: ANN401
    return Signomial.constant(extent) / tile if isinstance(tile, Signomial) else extent / tile
