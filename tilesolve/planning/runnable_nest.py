"""Nests as they are run: a solution's tiles after four rules.

A tile of one register tile is no tile of its own, loops between letters of one role are a band of
their own, register tiles of a row or column become one tile, and a tile that is too large to be
tabulated is walked part by part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Self

from tilesolve.constants import tuning
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles
from tilesolve.kernels.runtime.state import MAX_LEVELS
from tilesolve.model.nest import Band, Nest


@dataclass(frozen=True, slots=True)
class RunnableNest:
    """A nest, and what decides how it is run.

    Parameters
    ----------
    nest
        Its loops and tiles.
    lanes
        Rows of a vector.
    tiles
        Groups of rows and columns of every register tile that there is a kernel for.
    roles
        The letters of rows, columns, sums and batches.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> bands = [("register", "kmn", 4), ("L1", "kmn", 4), ("memory", "kmn", 8)]
    >>> nest = Nest.of(Problem.of("mn-mk-kn", 8), bands)
    >>> roles = Roles(rows=("n",), columns=("m",), sums=("k",), batches=())
    >>> found = RunnableNest.of(nest, 4, ((1, 4),), roles, (None, None))
    >>> [band.level for band in found.nest.bands]
    ['register', 'memory']
    """

    nest: Nest
    lanes: int
    tiles: tuple[tuple[int, int], ...]
    roles: Roles

    @classmethod
    def of(
        cls,
        nest: Nest,
        lanes: int,
        tiles: tuple[tuple[int, int], ...],
        roles: Roles,
        copies: tuple[str | None, str | None],
    ) -> Self:
        """Return how a solution's nest is run; `copies` are the levels of both operands' copies."""
        run = cls(nest, lanes, tiles, roles)._without_idle_tile(copies)
        return run._split_where_roles_return()._merging_rows(copies)

    @property
    def outermost(self) -> int:
        """The outermost band whose tile is small enough to be tabulated, 1 if none is."""
        tiles = enumerate(self.nest.bands[1:MAX_LEVELS], start=1)
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

    def register_box(
        self, role: int, order: Sequence[str], box: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the part of a box that one microkernel covers: of batches there is one."""
        rows = max(1, _size(self.nest.bands[0], self.roles.rows))
        wanted = min(tuning.MAX_TILE_VECTORS, -(-rows // self.lanes))
        # Few registers have room for few vectors, whatever the register tile of the plan.
        groups, columns = max(tile for tile in self.tiles if tile[0] <= wanted)
        most = {
            ROWS: groups * self.lanes,
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

    def cut_to_table(self, top: int) -> Self:
        """Return this with a tile of one band, given by number, that can be tabulated.

        A cache holds more indices than a table has where they share elements, as those of a window
        do; and a nest may have no tile at all between a call and the whole problem. Such a tile is
        walked part by part, in the same order. A nearer tile, or a copy, is used anew in each part.
        """
        if self._is_tabulated(self.nest.bands[top]):
            return self
        part = self._part(top)
        nearer = (
            Band(band.level, band.order, tuple((i, min(n, part[i])) for i, n in band.box))
            for band in self.nest.bands[: top + 1]
        )
        return self._running(*nearer, *self.nest.bands[top:])

    def _without_idle_tile(self, copies: Sequence[str | None]) -> Self:
        """Return this without the nearest tile, if that is one register tile and holds no copy.

        The loops around it are then those of register tiles, of which one call computes many.
        """
        register, tile, *others = self.nest.bands
        if not others or tile.level in copies:
            return self
        if not all(self._is_one_register_tile(role, register, tile) for role in range(4)):
            return self
        return self._running(register, *others)

    def _split_where_roles_return(self) -> Self:
        """Return this with bands in which the loops of each role follow each other.

        The macrokernel walks a role's loops of a band together. Where a band has a loop of another
        role between two of them, it becomes several bands, and the tile of each completes its own
        loops. Loops that do not run come last. See ``docs/decisions/013-orders-of-letters.md``.
        """
        register, *_ = self.nest.bands
        found = [register]
        for inner, band in pairwise(self.nest.bands):
            running = [i for i in band.order if band[i] > inner[i]]
            if inner is register:
                running = [i for i in band.order if i in running or self._is_cut(i, register)]
            side = dict(inner.box)
            groups = self.roles.split(running)
            for number, group in enumerate(groups, start=1):
                side |= {letter: band[letter] for letter in group}
                level = band.level if number == len(groups) else f"{band.level}, part {number}"
                order = (*group, *(i for i in band.order if i not in group))
                found.append(Band(level, order, tuple((i, side[i]) for i, _ in band.box)))
        return self._running(*found)

    def _is_cut(self, letter: str, register: Band) -> bool:
        """Return whether the call's tile of a letter may be several microkernels'."""
        role = self.roles.number(letter)
        return register[letter] > 1 and not self._is_one_register_tile(role, register, register)

    def _merging_rows(self, copies: Sequence[str | None]) -> Self:
        """Return this with rows, or columns, of register tiles merged into the nearest tile.

        Where that tile is one row of register tiles, and the loop around it goes on to the next
        row, it takes in this loop: the macrokernel then prepares a row of calls once for all rows.
        See ``docs/decisions/012-calls.md``.
        """
        if len(self.nest.bands) < 3:
            return self
        register, tile, around, *others = self.nest.bands
        several = [
            role for role in range(4) if not self._is_one_register_tile(role, register, tile)
        ]
        loops = (
            role
            for role in self.order(around.order)
            if any(around[letter] > tile[letter] for letter in self.roles[role])
        )
        around_it = next(loops, None)
        if around_it is None or len(several) != 1 or {*several, around_it} != {ROWS, COLUMNS}:
            return self
        if tile.level in copies or not self._is_tabulated(around):
            return self
        row = [i for i in tile.order if i in self.roles[several[0]]]
        next_ones = [i for i in around.order if i in self.roles[around_it]]
        rest = [i for i in tile.order if i not in (*row, *next_ones)]
        box = tuple((i, around[i] if i in next_ones else side) for i, side in tile.box)
        larger = Band(tile.level, (*row, *next_ones, *rest), box)
        return self._running(register, larger, around, *others)

    def _part(self, at: int) -> dict[str, int]:
        """Return the largest part of a band's tile that can be tabulated: whole nearer tiles."""
        band, found = self.nest.bands[at], {}
        for letters in self.roles:
            sizes = [_size(nearer, letters) for nearer in self.nest.bands[:at]]
            # Tiles nest: those that can be tabulated are the nearest ones.
            whole = sum(size <= tuning.MAX_TABLE_INDICES for size in sizes)
            nearer = {i: self.nest.bands[whole - 1][i] if whole else 1 for i in letters}
            part = dict(nearer)
            for letter in (i for i in band.order if i in letters):
                most = tuning.MAX_TABLE_INDICES // (prod(part.values()) // part[letter])
                part[letter] = min(band[letter], most // nearer[letter] * nearer[letter])
            found.update(part)
        return found

    def _running(self, *bands: Band) -> Self:
        """Return this with other bands."""
        return replace(self, nest=replace(self.nest, bands=bands))

    def _is_one_register_tile(self, role: int, register: Band, tile: Band) -> bool:
        """Return whether a microkernel covers all that a tile has of a role."""
        letters = self.roles[role]
        whole = {letter: register[letter] for letter in letters}
        return all(tile[i] == side for i, side in whole.items()) and (
            role == SUMS or self.register_box(role, letters, whole) == whole
        )

    def _is_tabulated(self, band: Band) -> bool:
        """Return whether a band's tile is small enough to be tabulated."""
        return all(_size(band, letters) <= tuning.MAX_TABLE_INDICES for letters in self.roles)


def _size(band: Band, letters: Sequence[str]) -> int:
    """Return the iterations of a role in a band's tile."""
    return prod(band[letter] for letter in letters)
