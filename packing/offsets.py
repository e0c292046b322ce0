"""Axes: the indices of one role in the order in which a nest visits them, with their offsets.

Within a box, the address of an element of any tensor is a sum of one offset for each role: rows,
columns, sums and batches. An `RoleAxis` lists a role's offsets in the order of the nest's loops, so
that every tile of every level is a range of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tilesolve.packing.cover import CellSequence, cut_evenly

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoleTile:
    """One level's tile of a role: its loops and their extents.

    Parameters
    ----------
    order
        The role's letters, innermost loop first.
    sides
        Iterations of each of them, in the same order.

    Examples
    --------
    >>> RoleTile(("c", "a"), (4, 2)).sides
    (4, 2)
    """

    order: tuple[str, ...]
    sides: tuple[int, ...]

    def side(self, letter: str) -> int:
        """Return the iterations of a letter."""
        return self.sides[self.order.index(letter)]


@dataclass(frozen=True, slots=True, eq=False)
class RoleAxis:
    """One role's indices in a box.

    Parameters
    ----------
    offsets
        For the output and the two operands the byte offset of each index; zeros if the tensor
        does not have the role.
    bounds
        For each level, register tiles first, where its segments begin among those of the level
        below (for register tiles among the indices), and where the last one ends.

    Examples
    --------
    A box of 6 cut into tiles of 4, and these into register tiles of 3 at most:

    >>> tiles = [RoleTile("m", (side,)) for side in (3, 4, 6)]
    >>> axis = build_axis(tiles, [{"m": 8}, {}, {}])
    >>> axis.bounds[0].tolist(), axis.bounds[1].tolist(), axis.bounds[2].tolist()
    ([0, 2, 4, 6], [0, 2, 3], [0, 2])
    >>> axis.offsets[0].tolist()
    [0, 8, 16, 24, 32, 40]
    """

    offsets: tuple[Integers, Integers, Integers]
    bounds: tuple[Integers, ...]

    @property
    def size(self) -> int:
        """How many indices there are."""
        return len(self.offsets[0])

    def register_tiles(self, level: int, segment: int) -> tuple[int, int]:
        """Return the range of register tiles of a segment of a level."""
        low, high = segment, segment + 1
        for bounds in self.bounds[level:0:-1]:
            low, high = int(bounds[low]), int(bounds[high])
        return low, high

    def range(self, level: int, segment: int) -> tuple[int, int]:
        """Return the range of indices of a segment of a level."""
        low, high = self.register_tiles(level, segment)
        return int(self.bounds[0][low]), int(self.bounds[0][high])


def register_cells(
    extent: int, most: int, lanes: int, parts: int = 1, lead: int = 0
) -> tuple[int, ...]:
    """Return the register tiles that cut an extent: as few as `most` allows, near-equal ones.

    Sides are whole vectors where the extent is, else whole parts of vectors: five and four halves
    take less time than six and three. A ``lead`` is a tile of its own, so that the vectors behind
    it lie at lines.

    Examples
    --------
    >>> register_cells(9, 8, 1), register_cells(32, 24, 8), register_cells(7, 24, 8)
    ((5, 4), (16, 16), (7,))
    >>> register_cells(72, 48, 16), register_cells(72, 48, 16, parts=2)
    ((48, 24), (40, 32))
    >>> register_cells(72, 24, 8, lead=6)
    (6, 24, 24, 16, 2)
    """
    if lead and extent > lead:
        rest = (extent - lead) % lanes
        return lead, *cut_evenly(extent - lead - rest, most, lanes), *((rest,) if rest else ())
    part = max(1, lanes // parts)
    spared = -(-extent // lanes) * lanes - extent >= part
    return cut_evenly(extent, most, part if spared else lanes)


def build_axis(
    tiles: Sequence[RoleTile],
    strides: Sequence[Mapping[str, int]],
    lanes: Mapping[str, int] = MappingProxyType({}),
    parts: int = 1,
    cells: Mapping[str, CellSequence] = MappingProxyType({}),
    lead: int = 0,
) -> RoleAxis:
    """Return the axis of a box.

    Parameters
    ----------
    tiles
        From the register tile to the box itself.
    strides
        For the output and each operand the bytes between neighbours along each letter.
    lanes
        For a letter that runs along vectors, how many of its indices one holds.
    parts
        Parts of a vector that microkernels can take: two where the last vectors may be halves.
    cells
        For letters that are cut into cells of chosen sizes, these.
    lead
        Indices of the letter along vectors that each tile has before its first whole one.

    Examples
    --------
    >>> tiles = [RoleTile("ab", sides) for sides in ((2, 1), (2, 2))]
    >>> build_axis(tiles, [{"a": 8, "b": 100}] * 3).offsets[1].tolist()
    [0, 8, 100, 108]
    """
    letters = tiles[-1].order
    known: dict[tuple[int, tuple[int, ...]], RoleAxis] = {}

    def find_part(level: int, sides: tuple[int, ...]) -> RoleAxis:
        key = (level, sides)
        if key not in known:
            known[key] = (
                join_parts(*key) if level else _register_axis(tiles[0], letters, sides, strides)
            )
        return known[key]

    def cut_letter(level: int, letter: str, size: int) -> tuple[int, ...]:
        if letter in cells:
            return cells[letter].cut(level, size)
        side = max(1, tiles[level - 1].side(letter))
        if level == 1:
            before = lead if letter in lanes else 0
            return register_cells(size, side, lanes.get(letter, 1), parts, before)
        return tuple(min(side, size - start) for start in range(0, size, side))

    def join_parts(level: int, sides: tuple[int, ...]) -> RoleAxis:
        cells = {i: cut_letter(level, i, side) for i, side in zip(letters, sides, strict=True)}
        if not all(sides):  # one empty register tile, so that C is still written
            cells = {i: (side,) for i, side in zip(letters, sides, strict=True)}
        outermost_first = tiles[level].order[::-1]
        places = [outermost_first.index(letter) for letter in letters]
        cuts = product(*(cells[letter] for letter in outermost_first))
        pieces = [find_part(level - 1, tuple(cut[at] for at in places)) for cut in cuts]
        sizes = [piece.size for piece in pieces]
        offsets = []
        for tensor, of in enumerate(strides):
            starts = np.zeros(1, np.int64)
            for letter in outermost_first:
                begins = np.cumsum((0, *cells[letter][:-1])) * of.get(letter, 0)
                starts = (starts[:, None] + begins).ravel()
            within = np.concatenate([piece.offsets[tensor] for piece in pieces])
            offsets.append(within + np.repeat(starts, sizes))
        bounds = [
            _concatenate_bounds([piece.bounds[at] for piece in pieces]) for at in range(level)
        ]
        bounds.append(np.array([0, len(pieces)], np.int64))
        return RoleAxis((offsets[0], offsets[1], offsets[2]), tuple(bounds))

    return find_part(len(tiles) - 1, tiles[-1].sides)


def _register_axis(
    tile: RoleTile,
    letters: tuple[str, ...],
    sides: tuple[int, ...],
    strides: Sequence[Mapping[str, int]],
) -> RoleAxis:
    """Return the axis of a register tile."""
    extent = dict(zip(letters, sides, strict=True))
    found = []
    for of in strides:
        offsets = np.zeros(1, np.int64)
        for letter in tile.order:
            steps = np.arange(extent[letter], dtype=np.int64) * of.get(letter, 0)
            offsets = (steps[:, None] + offsets).ravel()
        found.append(offsets)
    return RoleAxis((found[0], found[1], found[2]), (np.array([0, len(found[0])], np.int64),))


def _concatenate_bounds(bounds: Sequence[Integers]) -> Integers:
    """Return all bounds as one list, each counted from the end of the one before."""
    ends = np.cumsum([0, *(one[-1] for one in bounds)])[:-1]
    following = np.concatenate([one[1:] for one in bounds])
    return np.append(0, following + np.repeat(ends, [len(one) - 1 for one in bounds]))
