"""The macrokernel as what runs nests: which form a nest has to have, before it is priced.

A tile of one register tile is no tile of its own, loops between letters of one role are a band of
their own, a tile that is too large to be tabulated is walked part by part, and register tiles of a
row or column become one tile. Loops that do not run come last, and are in the order of boxes. A
nest that has this form stays as it is.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Self

from tilesolve.constants import tuning
from tilesolve.constants.policy import MIN_NEAREST_TILES, MOST_REGISTERS
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import (
    BATCHES,
    COLUMNS,
    ROWS,
    SUMS,
    Roles,
    lane_is_last,
    shared_lane,
)
from tilesolve.kernels.dtypes import lanes, register_tiles
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse_share
from tilesolve.model.nest import Band, Nest

Bands = tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Runner:
    """What decides how nests of a problem are run.

    Parameters
    ----------
    roles
        The letters of rows, columns, sums and batches.
    lanes
        Rows of a vector.
    tiles
        Groups of rows and columns of every register tile that there is a kernel for, in order.
    operands
        The letters of each operand.
    windows
        Whether an operand in C order has window copies whatever a nest says: with the zeros of
        padding, or where vectors multiply vectors and it is not contiguous along them.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 8)
    >>> bands = [("register", "kmn", 4), ("L1", "kmn", 4), ("memory", "kmn", 8)]
    >>> runner = Runner.of(problem, Machine.load("i7-6700k"))
    >>> [band.level for band in runner.form(Nest.of(problem, bands)).bands]
    ['register', 'memory']
    """

    roles: Roles
    lanes: int
    tiles: tuple[tuple[int, int], ...]
    operands: tuple[tuple[str, ...], ...]
    windows: tuple[bool, ...]

    @classmethod
    def of(cls, problem: Problem, machine: Machine, roles: Roles | None = None) -> Self:
        """Return what runs one thread's share of a problem, whose roles may be known."""
        padded, lane = {one.tensor for one in problem.padding}, shared_lane(problem)
        operands = problem.spec.operands
        return cls(
            roles or roles_of(problem),
            lanes(problem.dtype, machine.vector_bits),
            register_tiles(problem.dtype, min(machine.vector_registers, MOST_REGISTERS)),
            tuple(operand.letters for operand in operands),
            tuple(
                at in padded or bool(lane and not lane_is_last(problem, at))
                for at in range(1, 1 + len(operands))
            ),
        )

    def form(
        self,
        nest: Nest,
        copies: Collection[str | None] | None = None,
        windows: Sequence[bool] | None = None,
    ) -> Nest:
        """Return a nest as it is run; one of other than two operands stays, nothing runs it.

        Parameters
        ----------
        nest
            Any nest.
        copies
            The levels of the copies that calls make; if None, those of the nest.
        windows
            Whether each operand has window copies; if None, as it has in C order.
        """
        if len(self.operands) != 2 or not self.tiles:
            return nest
        copies, split = nest.packed if copies is None else copies, self._split_roles(nest.bands[0])
        while True:
            found = self._arrange(nest.bands, copies, split)
            top = self.top(replace(nest, bands=found), copies, windows)
            if not self._is_tabulated(found[top]):
                found = self._arrange(self._cut_to_table(found, top), copies, split)
            found = self._merge_rows(found, copies, split)
            if not (split or nest.sequences or any(copies)):
                found = self._lengthen(found)
            if found == nest.bands:
                return nest
            if found[0] != nest.bands[0]:
                split = self._split_roles(found[0])
            nest = replace(nest, bands=found)

    def top(
        self,
        nest: Nest,
        copies: Collection[str | None],
        windows: Sequence[bool] | None = None,
    ) -> int:
        """Return the number of the band whose tile is tabulated at once; see `form`.

        It is the outermost one that is small enough, and no nearer one than a copy's. A window
        copy is one of such a tile, and is made anew for each; so where there are some, a larger
        tile is taken only if it has no more of the operands than a copy's has.
        """
        bands = nest.bands
        if windows is None:
            windows = [
                always or nest.kind(at) == "windows" for at, always in enumerate(self.windows)
            ]
        numbers = enumerate(bands[1 : tuning.MAX_LEVELS], start=1)
        largest = max((at for at, band in numbers if self._is_tabulated(band)), default=1)
        names = [band.level for band in bands]
        wanted = max((names.index(copy) for copy in copies if copy), default=0)
        if not wanted or not any(windows):
            return max(largest, wanted)
        own = [set(i) for i, copied in zip(self.operands, windows, strict=True) if copied]
        letters = set[str]().union(*own)
        for at in range(wanted + 1, min(largest + 1, len(bands) - 1)):
            if any(bands[at][letter] > bands[wanted][letter] for letter in letters):
                return at - 1
        return max(wanted, min(largest, len(bands) - 2))

    def order(self, letters: Sequence[str]) -> list[int]:
        """Return the roles of a band's loops, innermost first."""
        found = list(dict.fromkeys(map(self.roles.number, letters)))
        return [*found, *(role for role in range(4) if role not in found)]

    def register_box(
        self, role: int, order: Sequence[str], box: Mapping[str, int], register: Band
    ) -> dict[str, int]:
        """Return the part of a box that one microkernel covers: of batches there is one.

        Parameters
        ----------
        role, order
            A role and its letters, innermost first.
        box
            Their iterations.
        register
            The band of a call.
        """
        if role == SUMS:
            return dict(box)
        most = 1
        if role != BATCHES:
            rows = max(1, _size(register, self.roles.rows))
            wanted = min(tuning.MAX_TILE_VECTORS, -(-rows // self.lanes))
            # Few registers have room for few vectors, whatever the register tile of the plan.
            groups, columns = self.tiles[bisect(self.tiles, (wanted + 1,)) - 1]
            most = groups * self.lanes if role == ROWS else columns
        found, taken = {}, 1
        for letter in order:
            found[letter] = min(box[letter], max(1, most // taken))
            taken *= max(1, found[letter])
        return found

    def _arrange(self, bands: Bands, copies: Collection[str | None], split: Set[int]) -> Bands:
        """Return bands without idle tiles, in which the loops of each role follow each other.

        The nearest tile is idle if it is one register tile, and no copy's. The loops around it are
        then those of register tiles, of which the macrokernel walks many: as tables have room for.
        """
        register, *tiles = bands
        cell = dict(register.box)
        while (
            len(tiles) > 1
            and not split
            and tiles[0].level not in copies
            and dict(tiles[0].box) == cell
            and self._is_tabulated(tiles[1])
        ):
            del tiles[0]
        return self._split_where_roles_return((register, *tiles), split)

    def _split_roles(self, register: Band) -> Set[int]:
        """Return the roles of which a call's tile has more than one microkernel covers."""
        box, found = dict(register.box), set()
        for role in (ROWS, COLUMNS, BATCHES):
            own = {letter: box[letter] for letter in self.roles[role]}
            if self.register_box(role, self.roles[role], own, register) != own:
                found.add(role)
        return found

    def _split_where_roles_return(self, bands: Bands, split: Set[int]) -> Bands:
        """Return bands in which the loops of each role follow each other.

        The macrokernel walks a role's loops of a band together. Where a band has a loop of another
        role between two of them, it becomes several bands, and the tile of each completes its own
        loops. Loops that do not run come last. See ``docs/decisions/013-orders-of-letters.md``.
        """
        register, *_ = bands
        cut = {i for role in split for i in self.roles[role] if register[i] > 1}
        found = [register]
        for inner, band in pairwise(bands):
            within, sides = dict(inner.box), dict(band.box)
            running = {i for i in band.order if sides[i] > within[i]}
            # The nearest band goes over what a call has more of than one microkernel, too.
            near = cut if inner is register else set[str]()
            first, *others = self.roles.split(i for i in band.order if i in running or i in near)
            later = [[i for i in group if i in running] for group in others]
            groups = [first, *(group for group in later if group)]
            for number, group in enumerate(groups, start=1):
                within |= {letter: sides[letter] for letter in group}
                order = (*group, *(i for i in within if i not in group))
                level = band.level if number == len(groups) else ""
                found.append(Band(level, order, tuple((i, within[i]) for i, _ in band.box)))
        return tuple(found)

    def _cut_to_table(self, bands: Bands, top: int) -> Bands:
        """Return bands of which the one with a number has a part as tile that can be tabulated.

        A cache holds more indices than a table has where they share elements, as those of a window
        do; and a nest may have no tile at all between a call and the whole problem. Such a tile is
        walked part by part, in the same order. A nearer tile, or a copy, is used anew in each part.
        """
        part = self._part(bands, top)
        nearer = (
            Band(band.level, band.order, tuple((i, min(n, part[i])) for i, n in band.box))
            for band in bands[: top + 1]
        )
        return *nearer, replace(bands[top], level=""), *bands[top + 1 :]

    def _part(self, bands: Bands, at: int) -> dict[str, int]:
        """Return the largest part of a band's tile that can be tabulated: whole nearer tiles."""
        band, found = bands[at], {}
        for letters in self.roles:
            sizes = [_size(nearer, letters) for nearer in bands[:at]]
            # Tiles nest: those that can be tabulated are the nearest ones.
            whole = sum(size <= tuning.MAX_TABLE_INDICES for size in sizes)
            nearer = {i: bands[whole - 1][i] if whole else 1 for i in letters}
            part = dict(nearer)
            for letter in (i for i in band.order if i in letters):
                most = tuning.MAX_TABLE_INDICES // (prod(part.values()) // part[letter])
                part[letter] = min(band[letter], most // nearer[letter] * nearer[letter])
            found.update(part)
        return found

    def _merge_rows(self, bands: Bands, copies: Collection[str | None], split: Set[int]) -> Bands:
        """Return bands with rows, or columns, of register tiles merged into the nearest tile.

        Where that tile is one row of register tiles, and the loop around it goes on to the next
        row, it takes in this loop: the macrokernel then prepares a row of calls once for all rows.
        See ``docs/decisions/012-calls.md``.
        """
        if len(bands) < 3 or bands[1].level in copies or not self._is_tabulated(bands[2]):
            return bands
        register, tile, around, *others = bands
        cell, sides, outer = dict(register.box), dict(tile.box), dict(around.box)
        grown = {role for role in range(4) if any(sides[i] > cell[i] for i in self.roles[role])}
        several = grown | split
        running = (i for i in around.order if outer[i] > sides[i])
        around_it = next(map(self.roles.number, running), None)
        if around_it is None or len(several) != 1 or {*several, around_it} != {ROWS, COLUMNS}:
            return bands
        row = [i for i in tile.order if i in self.roles[min(several)]]
        next_ones = [i for i in around.order if i in self.roles[around_it]]
        rest = [i for i in tile.order if i not in (*row, *next_ones)]
        box = tuple((i, outer[i] if i in next_ones else side) for i, side in tile.box)
        larger = Band(tile.level, (*row, *next_ones, *rest), box)
        return *self._split_where_roles_return((register, larger, around), split), *others

    def _lengthen(self, bands: Bands) -> Bands:
        """Return bands whose nearest tile, if of few register tiles, goes on with the next loop.

        It does if that loop is over the letter of the tile's outermost loop, or over another one
        of its role: calls follow each other as before, but more of them are prepared at once.
        There are no copies of tiles.
        """
        cell, sides = dict(bands[0].box), dict(bands[1].box)
        numbers = (at for at, band in enumerate(bands) if at > 1 and dict(band.box) != sides)
        at = next(numbers, None)
        if at is None or not self._is_tabulated(bands[at]):
            return bands
        outer = dict(bands[at].box)
        inner = [i for i in bands[1].order if sides[i] > cell[i]]
        letter = next(i for i in bands[at].order if outer[i] > sides[i])
        role = self.roles.number(letter)
        if not inner or role not in (ROWS, COLUMNS) or self.roles.number(inner[-1]) != role:
            return bands
        if letter in inner[:-1] or sides[letter] % cell[letter]:
            return bands
        tiles = prod(-(-sides[i] // cell[i]) for i in (*self.roles.rows, *self.roles.columns))
        side = min(outer[letter], sides[letter] * -(-MIN_NEAREST_TILES // max(1, tiles)))
        order = (*inner, *(i for i in bands[1].order if i not in inner))
        if letter not in inner:
            order = (*inner, letter, *(i for i in order if i not in (*inner, letter)))
        nearer = (
            Band(band.level, order, tuple((i, side if i == letter else n) for i, n in band.box))
            for band in bands[1:at]
        )
        return bands[0], *nearer, *bands[at:]

    def _is_tabulated(self, band: Band) -> bool:
        """Return whether a band's tile is small enough to be tabulated."""
        box = dict(band.box)
        most = tuning.MAX_TABLE_INDICES
        return all(prod([box[i] for i in letters]) <= most for letters in self.roles)


def rows_operand(problem: Problem) -> int:
    """Return which operand has the rows: 0 or 1; one without columns, where both have the lane."""
    fused = fuse_share(problem)
    if shared_lane(problem):
        column = fused.letters(fused.columns)[0] if fused.columns else None
        return int(column in problem.spec.operands[0].letters)
    row = fused.letters(fused.rows)[0] if fused.rows else None
    return int(row in Roles.of_spec(problem.spec).columns)


def roles_of(problem: Problem) -> Roles:
    """Return the letters of each role as they are run."""
    return Roles.of_problem(problem, rows=rows_operand(problem))


def _size(band: Band, letters: Sequence[str]) -> int:
    """Return the iterations of a role in a band's tile."""
    return prod(band[letter] for letter in letters)
