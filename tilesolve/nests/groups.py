"""Groups of stages in a loop tree: tiles of the root around each, and what is computed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import gcd, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.model.loop_tree import Buffer, Do, Loop, Node
from tilesolve.nests.loops import Bounds, step_of
from tilesolve.nests.regions import Regions, find_regions
from tilesolve.nests.spans import Span
from tilesolve.nests.subscript_ends import Ends


@dataclass(frozen=True, slots=True)
class Tile:
    """A loop that several stages of a group share: it walks tiles of a letter of the root.

    Parameters
    ----------
    letter, step
        Of the loop.
    sliding
        Stages that are kept from one trip to the next.
    trips
        What each trip computes of the stages that follow the letter.
    warm_up
        How far before a tile around it the loop begins.
    grid
        What the first values of trips are multiples of.
    """

    letter: str
    step: int
    sliding: frozenset[str] = frozenset()
    trips: Mapping[str, Span] = field(default_factory=dict, hash=False)
    warm_up: int = 0
    grid: int = 1

    @property
    def name(self) -> str:
        """What the loop is called in a program: no letter, as those are the stages' own."""
        return f"{self.letter}_{self.step}"

    @property
    def begin(self) -> Affine:
        """The first value of a trip."""
        return Affine.letter(self.name)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a stage of a group is computed, and where it is kept.

    Parameters
    ----------
    work, stage
        Its number and its name.
    regions
        Of the group.
    tiles
        Around what computes it, outermost first.
    kept
        How many of them are around its buffer; None without one.
    own
        The loops within them, which compute it alone.
    """

    work: int
    stage: str
    regions: Regions
    tiles: tuple[Tile, ...]
    kept: int | None = None
    own: tuple[Loop, ...] = ()

    @property
    def ring(self) -> tuple[str, Tile] | None:
        """Its letter along which places come again, and the loop in which they do."""
        found = [tile for tile in self.tiles if self.stage in tile.sliding]
        if not found:
            return None
        return self.regions.follower(self.stage, found[0].letter), found[0]

    @property
    def waits(self) -> tuple[Tile, ...]:
        """The loops whose trips before a tile around them need nothing of it."""
        return tuple(tile for tile in self.tiles if tile.sliding and not self._is_early(tile))

    def _is_early(self, tile: Tile) -> bool:
        """Return whether trips that warm rings up need it."""
        if self.stage in tile.sliding:
            return True
        waiting, seen = list(self.regions.readers(self.stage)), set[str]()
        while waiting:
            reader = waiting.pop()
            if reader in tile.sliding:
                return True
            if reader not in seen:
                seen.add(reader)
                waiting += self.regions.readers(reader)
        return False

    def bounds(self, letter: str) -> Bounds:
        """Return what a place within all its tiles computes of a letter."""
        span, extents = self.regions.spans[self.stage][letter], self.regions.extents
        tiles = [tile for tile in self.tiles if tile.letter in span.low.letters]
        low = [_at(self._first(span, tiles), tiles)]
        before = list(tiles)
        while before and before[-1].sliding:
            before.pop()
            low.append(_at(span.low, before))
        ends = [_at(span.high, inner, extents) + 1 for inner in _endings(tiles)]
        whole = _at(span.high, (), extents) + 1
        ends.append(Affine.number(min(whole.offset, span.extent)))
        least = max([0, *(one.offset for one in low if not one.terms)])
        warm_up = sum(tile.warm_up for tile in tiles)
        reached = {tile.name: (-warm_up, extents[tile.letter]) for tile in tiles}
        moving = [one for one in low if one.terms]
        if not any(one.interval(reached)[0] >= least for one in moving):
            moving.append(Affine.number(least))
        return tuple(dict.fromkeys(moving)), tuple(dict.fromkeys(ends))

    def room(self) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
        """Return where the buffer begins along each axis, and how many positions it keeps."""
        ring, origins, shape = self.ring, list[Affine](), list[int]()
        for letter, span in self.regions.spans[self.stage].items():
            tiles = [one for one in self.tiles[: self.kept] if one.letter in span.low.letters]
            first = self._first(span, tiles)
            whole = _most(span, first, tiles, self.regions)
            if ring is None or ring[0] != letter:
                begin = _at(first, tiles)
                origins.append(begin if begin.terms else Affine.number(max(begin.offset, 0)))
                shape.append(whole)
                continue
            tile = ring[1]
            rows = self.regions.ring_rows(
                self.stage, tile.letter, tile.step, tile.sliding, tile.grid, tile.trips
            )
            origins.append(Affine.number(0))
            shape.append(min(rows, whole, span.extent))
        return tuple(origins), tuple(shape)

    def points(self, lanes: Mapping[str, int] = MappingProxyType({})) -> int:
        """Return how many elements all its places compute, those that are computed again too.

        Parameters
        ----------
        lanes
            Of some of its letters: how many values count as one, as the last ones of each place
            do.
        """
        spans = self.regions.spans[self.stage].values()
        several = {x for span in spans if len(span.low.letters) > 1 for x in span.low.letters}
        alone = {(one,) for one in self.regions.extents if one not in several}
        return prod(self._count(together, lanes) for together in {tuple(several), *alone, ()})

    def _count(self, letters: Sequence[str], lanes: Mapping[str, int]) -> int:
        """Return how many elements places compute along what letters of the root move."""
        table = _places([tile for tile in self.tiles if tile.letter in letters], self.regions)
        count: Any = np.ones(table.pop(""), np.int64)
        for letter, span in self.regions.spans[self.stage].items():
            moving = span.low.letters
            if set(moving) <= set(letters) and bool(moving) == bool(letters):
                low, high = self.bounds(letter)
                begin = reduce(np.maximum, [one.at(table) for one in low])
                end = reduce(np.minimum, [one.at(table) for one in high])
                count = count * -(-np.maximum(end - begin, 0) // lanes.get(letter, 1))
        for tile in self.waits:
            if tile.letter in letters:
                count = count * (table[tile.name] >= self.begin_of(tile).at(table))
        return int(count.sum())

    def begin_of(self, tile: Tile) -> Affine:
        """Return where the tile around a loop begins."""
        outer = [one for one in self.tiles if one.letter == tile.letter]
        before = outer[: outer.index(tile)]
        return before[-1].begin if before else Affine.number(0)

    def ends_of(self, tile: Tile) -> tuple[Affine, ...]:
        """Return what a loop ends with: the tiles around it, or the whole letter."""
        outer = [one for one in self.tiles if one.letter == tile.letter]
        letter = Affine.letter(tile.letter)
        ends = [
            _at(letter, one, self.regions.extents) + 1
            for one in _endings(outer[: outer.index(tile)])
        ]
        return (*ends, Affine.number(self.regions.extents[tile.letter]))

    def _first(self, span: Span, tiles: Sequence[Tile]) -> Affine:
        """Return the first value that a trip of the innermost tile computes, in its letter."""
        if len(span.low.letters) == 1 and tiles and tiles[-1].trips:
            return tiles[-1].trips[self.stage].low
        return span.low


@dataclass(frozen=True, slots=True)
class Group:
    """Stages that a node of a tree computes together, each where its consumers need it.

    Parameters
    ----------
    regions
        What boxes of the root need.
    tiles
        The shared loops, by the identity of the node.
    placed
        Where each stage is computed and kept, by its number.
    """

    regions: Regions
    tiles: Mapping[int, Tile]
    placed: Mapping[int, Placed]

    @classmethod
    def of(cls, computation: Computation, node: Node) -> Group:
        """Return the group of a node that holds rings.

        Raises
        ------
        SpecError
            If what a stage reads is not kept around it, or a ring would slide along two loops.
        """
        paths = dict(_paths((node,), ()))
        names = {work: computation.stages[work].name for work in paths}
        regions = find_regions(computation, names[max(paths)])
        nodes = list(list_nodes((node,)))
        rings = [one for one in nodes if isinstance(one, Buffer) and one.layout in _KEPT]
        kept = {one.holds.array: one for one in rings}
        _check_kept(regions, {names[work]: path for work, path in paths.items()}, kept)
        within: dict[int, list[int]] = {}
        for work, path in paths.items():
            for one in path:
                within.setdefault(id(one), []).append(work)
        tiles: dict[int, Tile] = {}
        for loop in nodes:
            inside = within.get(id(loop), [])
            if isinstance(loop, Loop) and len(inside) > 1:
                path = paths[inside[0]]
                outer = {id(one) for one in path[: _index(path, loop)]}
                around = {names[x] for x in inside if id(kept.get(names[x])) in outer}
                tiles[id(loop)] = _tile(loop, regions, around, path)
        placed = {}
        for work, path in paths.items():
            shared = tuple(tiles[id(one)] for one in path if id(one) in tiles)
            own = tuple(x for x in path if isinstance(x, Loop) and id(x) not in tiles)
            at, ring = None, kept.get(names[work])
            if ring is not None:
                at = sum(id(one) in tiles for one in path[: _index(path, ring)])
            placed[work] = Placed(work, names[work], regions, shared, at, own)
        _check_slides(placed.values())
        return cls(regions, tiles, placed)


def holds_rings(node: Node) -> bool:
    """Return whether a node keeps what one work writes for a later one, or beside it."""
    return any(isinstance(one, Buffer) and one.layout in _KEPT for one in list_nodes((node,)))


_KEPT = ("ring", "array")
"""Layouts of what one stage computes for others."""


def _tile(loop: Loop, regions: Regions, kept: set[str], path: Sequence[Node]) -> Tile:
    """Return a shared loop, given the stages in it that are kept around it, and what is around."""
    step, letter = step_of(loop), loop.letter
    sliding = frozenset(one for one in kept if regions.letter_of(one, letter))
    around = [one for one in path if isinstance(one, Loop) and one.letter == letter]
    grid = gcd(*(step_of(one) for one in around[: _index(around, loop) + 1]))
    if not sliding:
        return Tile(letter, step, grid=grid)
    warm_up = regions.warm_up(letter, step, sliding, grid)
    return Tile(letter, step, sliding, regions.trips(letter, sliding), warm_up, grid)


def _check_kept(
    regions: Regions, paths: Mapping[str, tuple[Node, ...]], kept: Mapping[str, Buffer]
) -> None:
    """Raise `SpecError` unless each stage but the root is kept around all that read it."""
    for array in kept:
        if array not in paths:
            raise SpecError(f"a ring of {array} has no stage within it that computes {array}")
    for name, path in paths.items():
        if name == regions.root:
            continue
        if name not in kept or not any(one is kept[name] for one in path):
            raise SpecError(f"{name} is computed amid loops of {regions.root}, and kept nowhere")
        for reader in regions.readers(name):
            if not any(one is kept[name] for one in paths.get(reader, ())):
                raise SpecError(f"{reader} reads {name}, and is not where that is kept")


def _check_slides(placed: Iterable[Placed]) -> None:
    """Raise `SpecError` if a stage slides along several loops, or not along the innermost one."""
    for one in placed:
        loops = [tile for tile in one.tiles if one.stage in tile.sliding]
        if len(loops) > 1:
            names = " and ".join(tile.name for tile in loops)
            raise SpecError(f"{one.stage} would slide along {names}: a ring does along one loop")
        if loops and [tile for tile in one.tiles if tile.letter == loops[0].letter][-1] != loops[0]:
            raise SpecError(f"{one.stage} slides along {loops[0].name}, which is cut once more")


def _paths(
    nodes: Sequence[Node], around: tuple[Node, ...]
) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """Yield the works of nodes, each with the nodes around it, outermost first."""
    for node in nodes:
        if isinstance(node, Do):
            yield node.work, around
        else:
            yield from _paths(node.body, (*around, node))


def _index(path: Sequence[Node], node: Node) -> int:
    return next(at for at, one in enumerate(path) if one is node)


def _endings(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Yield the tiles whose ends may end what is within all of them, with those around each.

    Whole tiles end where the tiles within them do.
    """
    found: list[Tile] = []
    for at in reversed(range(len(tiles))):
        tile = tiles[at]
        inner = [one for one in found if one.letter == tile.letter]
        if not inner or tile.step % inner[-1].step:
            found.append(tile)
            yield list(tiles[: at + 1])


def _at(position: Affine, tiles: Sequence[Tile], last: Mapping[str, int] | None = None) -> Affine:
    """Return a position at the first values of the innermost tiles; or at their last ones.

    Letters without a tile have the first value of all; or the last one.
    """
    ends = {x: Affine.number(0 if last is None else last[x] - 1) for x in position.letters}
    for tile in tiles:
        ends[tile.letter] = tile.begin + (0 if last is None else tile.step - 1)
    found = Ends(position, position).within({x: Ends(one, one) for x, one in ends.items()}).low
    assert found is not None
    return found


def _most(span: Span, first: Affine, tiles: Sequence[Tile], regions: Regions) -> int:
    """Return how many values of a span places within some tiles need at most."""
    sides, grids = dict(regions.extents), dict[str, int]()
    for tile in tiles:
        sides[tile.letter] = min(tile.step, regions.extents[tile.letter])
        grids[tile.letter] = gcd(tile.step, grids.get(tile.letter, regions.period))
    found = 1
    begins = [range(0, regions.period, grids[x]) if x in grids else (0,) for x in span.low.letters]
    for values in product(*begins):
        begin = dict(zip(span.low.letters, values, strict=True))
        low = first.at(begin) if grids else max(first.at(begin), 0)
        end = {x: value + sides[x] - 1 for x, value in begin.items()}
        found = max(found, span.high.at(end) - low + 1)
    warm_up = sum(tile.warm_up for tile in tiles)
    least = first.interval({x: (-warm_up, regions.extents[x]) for x in span.low.letters})[0]
    return min(found, span.extent - min(least, 0) if grids else span.extent)


def _places(tiles: Sequence[Tile], regions: Regions) -> dict[str, Any]:
    """Return where tiles stand, by their names, one entry a place; and under "" how many."""
    table: dict[str, Any] = {"": 1}
    for at, tile in enumerate(tiles):
        extent, count = regions.extents[tile.letter], table.pop("")
        outer = [one for one in tiles[:at] if one.letter == tile.letter]
        begins = table[outer[-1].name] if outer else np.zeros(count, np.int64)
        ends = np.full(count, extent)
        for one in outer:
            ends = np.minimum(ends, table[one.name] + one.step)
        begins = begins - tile.warm_up
        trips = np.maximum(-(-(ends - begins) // tile.step), 0)
        table = {name: np.repeat(values, trips) for name, values in table.items()}
        numbers = np.arange(int(trips.sum())) - np.repeat(np.cumsum(trips) - trips, trips)
        table[tile.name] = np.repeat(begins, trips) + numbers * tile.step
        table[""] = int(trips.sum())
    return table
