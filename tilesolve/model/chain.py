"""Chains: the loops of a tree from a point outwards, and the boxes between them.

Steps are numbers, arrays of them, or symbols: the integer repair prices thousands of tilings with
the very code that prices one, and that writes the terms of a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from math import gcd, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from tilesolve.model.access import Access, Box, Shared, Size, divisor
from tilesolve.model.loop_tree import Buffer, Call, Do, Loop, LoopTree, Node
from tilesolve.model.nest import tile_counts
from tilesolve.model.walk import Position, Truth, choose, find_last
from tilesolve.packing.cover import CellSequence
from tilesolve.solver.signomials import Signomial


class Chain:
    """The loops of a tree that run, innermost first, the boxes between them, and copies."""

    def __init__(
        self,
        tree: LoopTree,
        nodes: tuple[Node, ...] | None = None,
        around: Mapping[str, Sequence[Size]] = MappingProxyType({}),
        rings: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Find the loops of a tree, or of some of its nodes, up to where works part.

        Parameters
        ----------
        tree, nodes
            What runs.
        around
            For each letter the steps of loops further out, the outermost first.
        rings
            Bytes of rings that are around, by their arrays.
        """
        self.tree = tree
        self.width = 1.0
        """How many times as wide the output is while it is summed."""
        self.share = 1.0
        """Of the trips, those that compute."""
        self.buffers: dict[int, tuple[int, Buffer]] = {}
        """For each access with a copy the number of loops that use one filling, and the copy."""
        own, inside = _descend(tree.body if nodes is None else nodes)
        steps = {x: list(around.get(x, ())) for one in tree.works for x, _ in one.extents}
        for node in own:
            if isinstance(node, Loop):
                steps[node.letter].append(node.step)
        self.children: tuple[Chain, ...] = ()
        """Chains of the works that the innermost loop runs one after another."""
        self.accesses: tuple[Access | Shared, ...] = self._find_accesses(inside, steps, rings)
        self.boxes = _boxes_of(tree, own, steps)
        """The loops that run, and the boxes between them."""
        self.loops, self.runs, self.tiles = self.boxes.loops, self.boxes.runs, self.boxes.tiles
        self.call, self.sides, self.held = self.boxes.call, self.boxes.sides, self.boxes.held
        self.calls = self.boxes.calls
        loops = 0
        for node in reversed(own):
            loops += isinstance(node, Loop)
            if isinstance(node, Buffer) and node.layout != "registers":
                self.buffers[node.access] = self.boxes.counts[loops], node

    def _find_accesses(
        self,
        inside: tuple[Node, ...],
        steps: Mapping[str, Sequence[Size]],
        rings: Mapping[str, float],
    ) -> tuple[Access | Shared, ...]:
        """Return what the innermost nodes touch; of each array once, if works part there."""
        kept: set[str] = set()
        while len(inside) == 1:
            (node,) = inside
            if isinstance(node, Do):
                work = self.tree.works[node.work]
                found: tuple[Access | Shared, ...] = work.accesses
                self.width, self.share = work.summed / work.accesses[0].element, work.share
                if not rings:
                    return found
                return tuple(
                    Shared((one,), one.letters, rings[one.array]) if one.array in rings else one
                    for one in found
                )
            if not isinstance(node, Buffer) or node.layout != "ring":
                break
            holds, inside = node.holds, node.body
            kept.add(holds.array)
            rings = {**rings, holds.array: float(prod(holds.shape) * holds.element)}
        lumps = (inside,) if kept else tuple((node,) for node in inside)
        self.children = tuple(Chain(self.tree, lump, steps, rings) for lump in lumps)
        by_array: dict[str, list[Access | Shared]] = {}
        for child in self.children:
            for one in child.accesses:
                by_array.setdefault(one.array, []).append(one)
        united = []
        for array, several in by_array.items():
            letters = tuple(dict.fromkeys(x for one in several for x in one.letters))
            if array in kept:
                letters = ()
            united.append(Shared(tuple(several), letters, rings.get(array)))
        return tuple(united)

    def footprints(
        self, access: Access | Shared, line: int, *, largest: bool = False
    ) -> list[Size]:
        """Return what an access touches at the point and after each loop, see `Boxes`."""
        return self.boxes.footprints(access, line, largest=largest)

    def largest_box(self, at: int) -> Box:
        """Return the largest sides of what so many loops touch: they decide what fits."""
        return self.boxes.largest[at]

    def mean_box(self, at: int) -> Box:
        """Return the mean sides of what so many loops touch: they decide how much moves."""
        return self.boxes.mean[at]

    def last(self, letters: Sequence[str]) -> list[Position]:
        """Return for each number of loops the last one of some letters that runs."""
        return self.boxes.last(tuple(letters))

    def latest(self, number: int, line: int = 1) -> list[Position]:
        """Return for each number of loops the last of them that runs and moves an access."""
        return self.boxes.latest(self.accesses[number], line)

    def copied(self, number: int) -> Size:
        """Return the elements that are copied of an access over all fillings of its copy.

        A copy is made whole, with all that it shares with the tile before it, whenever a loop
        outside has moved to another one (Eqs 11-14). One of windows has what strides leave out.
        """
        inside, buffer = self.buffers[number]
        holds = buffer.holds
        if buffer.layout == "windows":
            source = self.accesses[number]
            assert isinstance(source, Access)  # works that share arrays copy none
            amount = source.reached(self.boxes.mean[inside]) / source.element
        else:
            amount = self.footprints(holds, 1)[inside] / holds.element
        moved: Truth = False
        for (letter, trips), runs in zip(self.loops[inside:], self.runs[inside:], strict=True):
            if letter in holds.letters:
                moved = moved | runs
            amount = choose(moved, amount * trips, amount)
        return amount


_Step = tuple[str, Size, str, str] | bool
"""Letter, step, kind and level of a loop; or of what loops are in whether it is a call."""


class Boxes:
    """Loops that run, innermost first, and the boxes between them: all but copies.

    Parameters
    ----------
    steps
        The loops, what holds the output in registers, and calls, innermost first.
    letters
        The tiles of each letter.
    threads, aligned
        As trees have them.
    """

    def __init__(
        self, steps: Sequence[_Step], letters: Mapping[str, _Letter], threads: int, *, aligned: bool
    ) -> None:
        self.loops: list[tuple[str, Size]] = []
        """Letter and trips of each."""
        self.runs: list[Truth] = []
        self.counts = [0]
        """How many loops run of the innermost ones, for each number of these."""
        self.call = 0
        """Loops of one call, which touches all it touches at once."""
        self.sides = 0
        """Those of them that lanes and written-out code go over."""
        self.held = 0
        """Loops over which registers hold the output."""
        self.tiles: dict[str, int] = {}
        """For each level with a tile of its own the number of loops within that."""
        self.calls: Size = 1.0
        self.largest: list[dict[str, Size]] = [{x: one.side(0) for x, one in letters.items()}]
        self.mean = [{x: one.mean(0) for x, one in letters.items()}]
        self._letters, self._threads, self._aligned = letters, threads, aligned
        self._places: list[int] = []
        for step in steps:
            if not isinstance(step, bool):
                self._add(*step)
            elif step:
                self.call = len(self.loops)
                self.calls = prod(one.counts[one.place] for one in letters.values())
            else:
                self.held = len(self.loops)
        self._known: dict[tuple[int, int, bool], tuple[Access | Shared, list[Size]]] = {}
        self._latest: dict[tuple[int, int], tuple[Access | Shared, list[Position]]] = {}
        self._last: dict[tuple[str, ...], list[Position]] = {}

    def _add(self, name: str, step: Size, kind: str, fills: str) -> None:
        """Take in one more loop, around those before; one that never runs is none."""
        del step  # the letter knows it
        letter = self._letters[name]
        trips, share = letter.enter(kind == "threads", self._threads)
        runs = collapse(_exceeds_one(trips))
        if runs is not False:
            self.loops.append((name, trips))
            self.runs.append(runs)
            self._places.append(letter.place)
            self._grow(name, letter, share)
            self.sides += kind in ("vector", "unrolled")
        if fills:
            self.tiles[fills] = len(self.loops)
        self.counts.append(len(self.loops))

    def _grow(self, name: str, letter: _Letter, share: float) -> None:
        """Add the boxes of one more loop, of which a thread has a share."""
        at, largest, mean = letter.place, self.largest[-1], self.mean[-1]
        side, usual = letter.side(at), letter.mean(at)
        if share != 1:
            self.calls, side, usual = self.calls * share, side * share, usual * share
        # Of many nests those in which the loop does not run have no such loop.
        self.largest.append({**largest, name: choose(self.runs[-1], side, largest[name])})
        self.mean.append({**mean, name: usual})

    @cached_property
    def _grids(self) -> list[Box]:
        """What the corners of each box are multiples of."""
        grids: list[Box] = [{x: one.corner(0) for x, one in self._letters.items()}]
        for (name, _), at, runs in zip(self.loops, self._places, self.runs, strict=True):
            grid = grids[-1]
            corner = self._letters[name].corner(at)
            grids.append({**grid, name: choose(runs, corner, grid[name])})
        return grids

    def footprints(
        self, access: Access | Shared, line: int, *, largest: bool = False
    ) -> list[Size]:
        """Return what an access touches at the point and after each loop, in whole lines.

        Largest boxes decide what fits, mean ones how much moves. A line of one byte counts
        elements.
        """
        key = (id(access), line, largest)
        if key not in self._known:
            boxes = self.largest if largest else self.mean
            in_lines = self._aligned and line > 1
            grids = self._grids if in_lines else [None] * len(boxes)
            found = [access.touched(boxes[0], line, grids[0])]
            for (letter, _), box, grid in zip(self.loops, boxes[1:], grids[1:], strict=True):
                moved = letter in access.letters
                found.append(access.touched(box, line, grid) if moved else found[-1])
            self._known[key] = access, found  # kept as long as its number stands for it
        return self._known[key][1]

    def last(self, letters: tuple[str, ...]) -> list[Position]:
        """Return for each number of loops the last one of some letters that runs."""
        if letters not in self._last:
            counted = [letter in letters for letter, _ in self.loops]
            self._last[letters] = find_last(self.runs, counted)
        return self._last[letters]

    def latest(self, access: Access | Shared, line: int) -> list[Position]:
        """Return for each number of loops the last of them that runs and moves an access.

        Where arrays may begin anywhere, a loop whose steps are no longer than half a line goes on
        within lines: it moves nothing that is counted in whole ones.
        """
        if self._aligned or line <= access.element:
            return self.last(access.letters)
        key = (id(access), line)
        if key not in self._latest:
            counted = [letter in access.letters for letter, _ in self.loops]
            moves = list(self.runs)
            for at, (letter, _) in enumerate(self.loops):
                if letter in access.contiguous:
                    step = access.stride(letter) * self.largest[at][letter]
                    moves[at] = moves[at] & collapse(2 * step > line)
            self._latest[key] = access, find_last(moves, counted)
        return self._latest[key][1]


def _boxes_of(
    tree: LoopTree, own: Sequence[Loop | Buffer | Call], steps: Mapping[str, Sequence[Size]]
) -> Boxes:
    """Return the boxes of some loops within one another; those of numbers alone are kept.

    So nests that differ in their copies share them.
    """
    shell = tuple(
        (node.letter, node.step, node.kind, node.fills)
        if isinstance(node, Loop)
        else isinstance(node, Call)
        for node in reversed(own)
        if not isinstance(node, Buffer) or node.layout == "registers"
    )
    extents = dict(pair for one in tree.works for pair in one.extents)
    inner_first = {x: tuple(steps[x][::-1]) for x in extents}
    if not tree.cells and all(type(n) is int for sizes in inner_first.values() for n in sizes):
        tiles = tuple((x, inner_first[x], n) for x, n in extents.items())
        return keep_boxes(shell, tiles, tree.threads, tree.aligned)
    letters = {x: _Letter(inner_first[x], n, tree.cells.get(x)) for x, n in extents.items()}
    return Boxes(shell, letters, tree.threads, aligned=tree.aligned)


@lru_cache(maxsize=16)
def keep_boxes(
    shell: tuple[_Step, ...],
    tiles: tuple[tuple[str, tuple[int, ...], int], ...],
    threads: int,
    aligned: bool,
) -> Boxes:
    """Return the boxes of loops whose steps are numbers, and keep them for other copies."""
    letters = {x: _Letter(sizes, extent, None) for x, sizes, extent in tiles}
    return Boxes(shell, letters, threads, aligned=aligned)


def _descend(nodes: tuple[Node, ...]) -> tuple[list[Loop | Buffer | Call], tuple[Node, ...]]:
    """Return the nodes within one another, outermost first, and what is in the last one.

    That is the point of a work, nodes that run one after another, or a ring.
    """
    own: list[Loop | Buffer | Call] = []
    while len(nodes) == 1:
        (node,) = nodes
        if isinstance(node, Do) or (isinstance(node, Buffer) and node.layout == "ring"):
            break
        own.append(node)
        nodes = node.body
    return own, nodes


class _Letter:
    """The tiles of one letter, and how many of them there are."""

    def __init__(self, steps: Sequence[Size], extent: int, cells: CellSequence | None) -> None:
        extent = max(extent, 1)  # none costs what one does
        self.extent, self.cells = extent, cells
        self.sizes = [
            *(1 if isinstance(size, int) and not size else size for size in steps),
            extent,
        ]
        self.single = bool(steps) and isinstance(steps[0], int) and steps[0] == 1
        self.symbolic = any(isinstance(size, Signomial) for size in steps)
        if self.symbolic:
            self.counts: list[Size] = [extent / size for size in self.sizes]
        elif cells is not None:
            self.counts = [extent, *cells.counts]
        elif self.single:
            self.counts = [extent, *tile_counts(self.sizes[1:])]
        else:
            self.counts = tile_counts(self.sizes)
        self.place = 0
        self._corners: list[Size] | None = None

    def enter(self, divided: bool, threads: int) -> tuple[Size, float]:
        """Go one loop outwards: return its trips, and the share of its tiles that a thread has."""
        trips = self.counts[self.place] / self.counts[self.place + 1]
        self.place += 1
        if not divided:
            return trips, 1.0
        own = max(trips / threads, 1.0)
        return own, own / trips

    def side(self, at: int) -> Size:
        """Return the largest tile after so many loops."""
        return self.sizes[at] if at else self.sizes[0] * 1.0

    def mean(self, at: int) -> Size:
        """Return the mean tile after so many loops."""
        return self.sizes[at] if self.symbolic else self.extent / self.counts[at]

    def corner(self, at: int) -> Size:
        """Return what the first iterations of tiles are multiples of."""
        if self._corners is None:
            found: list[Size] = []
            common: Any = 0  # of all outer tiles; one that is the whole range begins at 0 only
            for size in reversed(self.sizes):
                side = gcd(*self.cells.sizes) if self.cells else size
                common = divisor(common, choose(size < self.extent, side, 0))
                found.append(common)
            self._corners = found[::-1]
        return 1 if not at and self.single else self._corners[at]


def _exceeds_one(trips: Size) -> Truth:
    """Return whether a loop runs more than once; of a number in symbols, whether it may."""
    if isinstance(trips, Signomial):
        return bool(trips.symbols) or trips.at({}) > 1
    found: Truth = trips > 1
    return found


def collapse(found: Any) -> Truth:  # noqa: ANN401
    """Return one answer for all nests, if they have the same: it costs less to choose by."""
    if not isinstance(found, np.ndarray):
        return bool(found)
    if found.all():
        return True
    return found if found.any() else False
