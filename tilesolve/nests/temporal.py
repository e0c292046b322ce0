"""Tiles and order of loops for statements that use elements again: Algorithm 2 of the thesis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.nests import NEST_ORDER_PAIRS
from tilesolve.nests.reuse import cost, order_cost
from tilesolve.nests.setting import Setting

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BoundaryLoops:
    """The loops that decide the cost of a tile.

    Parameters
    ----------
    innermost_tile, outermost_point
        The innermost loop over tiles, and the outermost one within them.
    threads
        The outermost loop over tiles, which threads divide; None where one thread runs, and any
        may be outermost.
    """

    innermost_tile: str
    outermost_point: str
    threads: str | None


@dataclass(frozen=True, slots=True)
class TemporalTiles:
    """Tiles of a nest, and the order of its loops.

    Parameters
    ----------
    ends
        The loops that decide the cost.
    tiles
        The tile of each letter.
    cost
        Of the misses, as `reuse.cost` has it.
    inter, intra
        The letters of loops over tiles and within them, outermost first.
    distance
        The order's cost (4.12).
    """

    ends: BoundaryLoops
    tiles: Mapping[str, int]
    cost: float
    inter: tuple[str, ...]
    intra: tuple[str, ...]
    distance: float


def list_boundary_loops(setting: Setting) -> Iterator[BoundaryLoops]:
    """Yield the choices of the loops that decide.

    The column letter, along which vectors lie, is outermost nowhere if another letter can be.
    Threads divide a letter of the output, for they must not add to the same element.
    """
    inner = [x for x in setting.tiled if x != setting.column] or [setting.column]
    outer = [x for x in setting.tiled if x in setting.output]
    for o in inner:
        for n in setting.tiled:
            if setting.trips == 1:
                yield BoundaryLoops(n, o, None)
                continue
            others = [x for x in outer if x != n or len(setting.tiled) == 1]
            for threads in [x for x in others if x != setting.column] or others:
                yield BoundaryLoops(n, o, threads)


def enumerate_tiles(setting: Setting) -> list[TemporalTiles]:
    """Return the best tiles of up to three letters, all of them tried, the cheapest first.

    There is one for each choice of loops; none if nothing fits. All costs fall with each tile, so
    the last letter takes the largest that fits.
    """
    groups: dict[tuple[str, str | None], list[BoundaryLoops]] = {}
    for ends in list_boundary_loops(setting):
        groups.setdefault((ends.outermost_point, ends.threads), []).append(ends)
    found = []
    for same in groups.values():
        tiles = _fitting(setting, same[0])
        for ends in same if _count(tiles) else ():
            prices = cost_of(setting, ends, tiles)
            at = int(np.argmin(prices))
            found.append((ends, _at(tiles, at), float(prices[at])))
    return order_tiles(setting, found)


def order_tiles(
    setting: Setting, found: Sequence[tuple[BoundaryLoops, dict[str, int], float]]
) -> list[TemporalTiles]:
    """Return tiles with their best order of loops, the cheapest first; of equals the nearest."""
    made = [
        TemporalTiles(ends, tiles, price, *order_loops(setting, ends, tiles))
        for ends, tiles, price in found
    ]
    return sorted(made, key=lambda one: (one.cost, one.distance))


def _fitting(setting: Setting, ends: BoundaryLoops) -> dict[str, Any]:
    """Return all tiles that fit, as arrays, the last letter's as large as may be."""
    column, *others = setting.tiled
    tiles: dict[str, Any] = dict(setting.least)
    tiles[column] = column_tiles(setting, ends)
    tiles = _kept(tiles, setting.fits(tiles, ends.outermost_point, ends.threads))
    for number, letter in enumerate(others if _count(tiles) else ()):
        most = largest(setting, ends, tiles, letter)
        if number == len(others) - 1:
            tiles[letter] = most
        else:
            tiles = {x: np.repeat(one, most) if _varies(one) else one for x, one in tiles.items()}
            starts = np.repeat(np.cumsum(most) - most, most)
            tiles[letter] = np.arange(most.sum()) - starts + 1
    return tiles


def cost_of(setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return what the misses of tiles cost."""
    return cost(
        setting.references,
        tiles,
        setting.extents,
        ends.innermost_tile,
        setting.weights,
        setting.lines,
    )


def column_tiles(setting: Setting, ends: BoundaryLoops) -> Ints:
    """Return the tiles of the column letter: whole lines, its extent, or what threads leave."""
    most = setting.most(setting.column, ends.threads)
    room = setting.capacities[1] // setting.references[0].element
    if most < setting.step:
        return np.array([most], dtype=np.int64)
    steps = np.arange(setting.step, min(most, room) + 1, setting.step, dtype=np.int64)
    whole = setting.extents[setting.column]
    return np.unique(np.append(steps, whole)) if whole <= most else steps


def largest(setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, Any], letter: str) -> Ints:
    """Return for each of many tiles the largest size of one more letter that fits."""

    def fits(size: Ints) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = setting.fits(
            {**tiles, letter: size}, ends.outermost_point, ends.threads
        )
        return found

    return largest_where(fits, _count(tiles), setting.most(letter, ends.threads))


def largest_where(fits: Callable[[Ints], npt.NDArray[np.bool_]], count: int, most: int) -> Ints:
    """Return for each of many the largest number up to a limit that fits, 1 at least.

    Examples
    --------
    >>> largest_where(lambda size: size * size <= np.array([10, 99]), 2, 7).tolist()
    [3, 7]
    """
    low, high = np.ones(count, dtype=np.int64), np.full(count, most, dtype=np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        good = fits(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle - 1)
    return low


def order_loops(
    setting: Setting, ends: BoundaryLoops, tiles: Mapping[str, int]
) -> tuple[tuple[str, ...], tuple[str, ...], float]:
    """Return the orders of loops over tiles and within them that lie nearest, and their cost.

    Letters without tiles run just around the vector loop.
    """
    tiled, column = setting.tiled, setting.column
    whole = [x for x in setting.extents if x not in tiled and setting.extents[x] > 1]
    inters = list(_between(tiled, ends.threads, ends.innermost_tile))
    intras = list(_between(tiled, ends.outermost_point, column))
    inter, intra = inters[0], intras[0]
    if len(inters) * len(intras) <= NEST_ORDER_PAIRS:
        inter, intra = min(
            ((inter, intra) for inter in inters for intra in intras),
            key=lambda pair: order_cost(pair[0], pair[1], tiles, setting.extents),
        )
    else:
        best = None
        while (inter, intra) != best:
            best = inter, intra
            inter = min(inters, key=lambda one: order_cost(one, intra, tiles, setting.extents))
            intra = min(intras, key=lambda one: order_cost(inter, one, tiles, setting.extents))
    distance = order_cost(inter, intra, tiles, setting.extents)
    return inter, (*intra[:-1], *whole, intra[-1]), distance


def _between(letters: Sequence[str], first: str | None, last: str) -> Iterator[tuple[str, ...]]:
    """Yield the orders of letters with one of them first, if it is given, and one last."""
    for order in permutations(letters):
        begins = first is None or order[0] == first
        if begins and (order[-1] == last or (first == last and len(order) > 1)):
            yield order


def _varies(tile: Any) -> bool:  # noqa: ANN401
    return isinstance(tile, np.ndarray)


def _count(tiles: Mapping[str, Any]) -> int:
    return next(int(tile.size) for tile in tiles.values() if _varies(tile))


def _kept(tiles: Mapping[str, Any], where: npt.NDArray[np.bool_]) -> dict[str, Any]:
    return {x: tile[where] if _varies(tile) else tile for x, tile in tiles.items()}


def _at(tiles: Mapping[str, Any], number: int) -> dict[str, int]:
    return {x: int(tile[number]) if _varies(tile) else int(tile) for x, tile in tiles.items()}
