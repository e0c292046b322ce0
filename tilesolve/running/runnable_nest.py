"""Nests as they are run: a plan's tiles, but for three rules.

A tile that is a single call is none of its own, rows that take turns are one tile, and what is too
large to be tabulated is walked part by part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Self

from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.tuning import MAX_TILE_VECTORS
from tilesolve.model.nest import Band, Nest

MOST_INDICES = 1 << 17
"""Indices of one role that are tabulated at once; what has more is walked box by box."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A nest, and what decides how it is run.

    Parameters
    ----------
    nest
        Its loops and tiles.
    family
        The kernels that are used.
    roles
        The letters of rows, columns, sums and batches.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> tiles = [("register", "kmn", 4), ("L1", "kmn", 4), ("memory", "kmn", 8)]
    >>> nest = Nest.of(Problem.of("mn-mk-kn", 8), tiles)
    >>> family, roles = Family.of("float64", 256, 16), (("n",), ("m",), ("k",), ())
    >>> [band.level for band in Runnable.of(nest, family, roles, (None, None)).nest.bands]
    ['register', 'memory']
    """

    nest: Nest
    family: Family
    roles: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls,
        nest: Nest,
        family: Family,
        roles: tuple[tuple[str, ...], ...],
        copies: tuple[str | None, str | None],
    ) -> Self:
        """Return how a plan's nest is run; `copies` are the levels of both operands' copies."""
        return cls(nest, family, roles)._without_idle(copies)._taking_turns(copies)

    @property
    def outermost(self) -> int:
        """The outermost band whose tile is small enough to be tabulated, 1 if none is."""
        tiles = enumerate(self.nest.bands[1:], start=1)
        return max((at for at, band in tiles if self._is_tabulated(band)), default=1)

    @property
    def orders(self) -> list[list[int]]:
        """The roles of each band's loops, innermost first."""
        return [self.order(band.order) for band in self.nest.bands]

    def order(self, letters: Sequence[str]) -> list[int]:
        """Return the roles of a band's loops, innermost first."""
        role_of = {letter: role for role, members in enumerate(self.roles) for letter in members}
        found = list(dict.fromkeys(role_of[letter] for letter in letters))
        return [*found, *(role for role in range(4) if role not in found)]

    def cell(self, role: int, order: Sequence[str], box: Mapping[str, int]) -> dict[str, int]:
        """Return a cell that a microkernel can cover: one batch, and no more than it has."""
        lanes, register = self.family.lanes, self.nest.bands[0]
        wanted = min(MAX_TILE_VECTORS, -(-max(1, _size(register, self.roles[ROWS])) // lanes))
        # Few registers have room for few vectors, whatever the register tile of the plan.
        groups, columns = max(tile for tile in self.family.tiles if tile[0] <= wanted)
        most = {
            ROWS: groups * lanes,
            COLUMNS: columns,
            BATCHES: 1,
        }.get(role)
        if most is None:
            return dict(box)
        found, taken = {}, 1
        for letter in order:
            found[letter] = min(box[letter], max(1, most // taken))
            taken *= max(1, found[letter])
        return found

    def tabulated(self, top: int) -> Self:
        """Return this with a tile of one band, given by number, that can be tabulated.

        A cache holds more indices than that where they share elements, as those of a window do,
        and a nest may have no tile at all between a call and the whole problem. The tile is then
        walked part by part, in the same order. What a nearer one, or a copy, had for more indices
        it has again for each part: that is seldom enough.
        """
        if self._is_tabulated(self.nest.bands[top]):
            return self
        part = self._part(top)
        nearer = (
            Band(band.level, band.order, tuple((i, min(n, part[i])) for i, n in band.box))
            for band in self.nest.bands[: top + 1]
        )
        return self._running(*nearer, *self.nest.bands[top:])

    def _without_idle(self, copies: Sequence[str | None]) -> Self:
        """Return this without the nearest tile, if that is one cell and holds no copy.

        The loops around it are then those of cells, of which one call computes many.
        """
        cell, tile, *others = self.nest.bands
        if not others or tile.level in copies:
            return self
        if not all(self._is_one_cell(role, cell, tile) for role in range(4)):
            return self
        return self._running(cell, *others)

    def _taking_turns(self, copies: Sequence[str | None]) -> Self:
        """Return this with a nearest tile that takes in the loop around it where cells take turns.

        Where that tile is one row of cells, or one column, and the loop around it goes on to the
        next one, this is the loop of a tile of many. The macrokernel then prepares a row of calls
        once, not each time: else it took a tenth of the time of a product of 128 x 128 x 128.
        """
        if len(self.nest.bands) < 3:
            return self
        cell, tile, around, *others = self.nest.bands
        several = [role for role in range(4) if not self._is_one_cell(role, cell, tile)]
        loops = (
            role
            for role in self.order(around.order)
            if any(around[letter] > tile[letter] for letter in self.roles[role])
        )
        turns = next(loops, None)
        if turns is None or len(several) != 1 or {*several, turns} != {ROWS, COLUMNS}:
            return self
        if tile.level in copies or not self._is_tabulated(around):
            return self
        row = [i for i in tile.order if i in self.roles[several[0]]]
        next_ones = [i for i in around.order if i in self.roles[turns]]
        rest = [i for i in tile.order if i not in (*row, *next_ones)]
        box = tuple((i, around[i] if i in next_ones else side) for i, side in tile.box)
        larger = Band(tile.level, (*row, *next_ones, *rest), box)
        return self._running(cell, larger, around, *others)

    def _part(self, at: int) -> dict[str, int]:
        """Return the largest part of a band's tile that can be tabulated: whole nearer tiles."""
        band, found = self.nest.bands[at], {}
        for letters in self.roles:
            sizes = [_size(nearer, letters) for nearer in self.nest.bands[:at]]
            whole = sum(size <= MOST_INDICES for size in sizes)  # bands nest: these are the nearest
            nearer = {i: self.nest.bands[whole - 1][i] if whole else 1 for i in letters}
            part = dict(nearer)
            for letter in (i for i in band.order if i in letters):
                most = MOST_INDICES // (prod(part.values()) // part[letter])
                part[letter] = min(band[letter], most // nearer[letter] * nearer[letter])
            found.update(part)
        return found

    def _running(self, *bands: Band) -> Self:
        """Return this with other bands."""
        return replace(self, nest=replace(self.nest, bands=bands))

    def _is_one_cell(self, role: int, cell: Band, tile: Band) -> bool:
        """Return whether a microkernel covers all that a tile has of a role."""
        letters = self.roles[role]
        whole = {letter: cell[letter] for letter in letters}
        return all(tile[i] == side for i, side in whole.items()) and (
            role == SUMS or self.cell(role, letters, whole) == whole
        )

    def _is_tabulated(self, band: Band) -> bool:
        """Return whether a band's tile is small enough to be tabulated."""
        return all(_size(band, letters) <= MOST_INDICES for letters in self.roles)


def _size(band: Band, letters: Sequence[str]) -> int:
    """Return the iterations of a role in a band's tile."""
    return prod(band[letter] for letter in letters)
