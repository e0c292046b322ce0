"""Tilings: loops from the statement outwards, and the boxes between them.

Sizes are numbers or arrays of them: the integer repair prices thousands of tilings with the very
code that prices one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles
from tilesolve.model.copies import with_panels
from tilesolve.model.footprints import Sizes, divisor, footprint, reached_bytes, runs_in
from tilesolve.model.nest import CopyKind, Output, tile_counts
from tilesolve.model.walk import Position, Truth, choose
from tilesolve.packing.cover import CellSequence

PANEL = 0
"""Stands for the bytes of a line where a tensor is read from micro-panels."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Loops from the statement outwards, with sizes that may be arrays.

    Parameters
    ----------
    bands
        Level and loop order (innermost first) of each band, innermost band first.
    boxes
        For each band the tile of each letter; the last is the whole problem.
    packed
        For each operand the level that its copy lives in; None: calls make none.
    output
        How C is written.
    kinds
        For each operand the kind of its copy; if empty, all copies are micro-panels.
    cells
        Of letters whose register tiles have chosen sizes.

    Examples
    --------
    >>> bands = (("register", ("k", "m", "n")), ("memory", ("m", "n", "k")))
    >>> boxes = (dict(m=4, n=4, k=8), dict(m=64, n=64, k=64))
    >>> Tiling(bands, boxes, packed=(None, None), output="store").boxes[0]["k"]
    8
    """

    bands: tuple[tuple[str, tuple[str, ...]], ...]
    boxes: tuple[Mapping[str, Sizes], ...]
    packed: tuple[str | None, ...]
    output: Output
    kinds: tuple[CopyKind, ...] = ()
    cells: Mapping[str, CellSequence] = field(default_factory=dict)


class LoopPath:
    """A tiling's loops, innermost first, and the boxes between them."""

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        counts = {
            letter: tiling.cells[letter].counts
            if letter in tiling.cells
            else tile_counts([box[letter] for box in tiling.boxes])
            for letter in problem.sizes
        }
        self.problem = problem
        self.loops: list[tuple[str, Sizes]] = []
        self.runs: list[Any] = []
        self.through: dict[str, int] = {}
        self.calls = prod(counts[letter][0] for letter in counts)
        corners = {letter: _corners(tiling, letter) for letter in problem.sizes}
        box: dict[str, Sizes] = dict.fromkeys(problem.sizes, 1.0)
        grid: dict[str, Sizes] = dict.fromkeys(problem.sizes, 1)
        self._largest, self._mean, self._grids = [box], [box], [grid]
        # A call goes over the sides of its tile in each step of its sums, whatever the order, and
        # each batch is a call of its own.
        roles = Roles.of_problem(problem)
        rank = {i: 2 if i in roles.batches else int(i in roles.sums) for i in problem.sizes}
        for at, ((level, order), tile) in enumerate(zip(tiling.bands, tiling.boxes, strict=True)):
            walked = order if at else sorted(order, key=rank.__getitem__)
            for letter in walked:
                extent = problem.sizes[letter]
                inner = counts[letter][at - 1] if at else extent
                trips = inner / counts[letter][at]
                runs = collapse(trips > 1)
                if runs is False:
                    continue
                self.loops.append((letter, trips))
                self.runs.append(runs)
                box, grid = self._largest[-1], self._grids[-1]
                # Of many nests those in which the loop does not run have no such loop.
                side = choose(runs, tile[letter], box[letter])
                corner = choose(runs, corners[letter][at], grid[letter])
                self._largest.append({**box, letter: side})
                self._mean.append({**self._mean[-1], letter: extent / counts[letter][at]})
                self._grids.append({**grid, letter: corner})
            self.through[level] = len(self.loops)
        self.call = self.through[tiling.bands[0][0]]
        """Loops of one call of the microkernel, which touches all it touches at once."""
        self.sides = sum(rank[letter] == 0 for letter, _ in self.loops[: self.call])
        """Those of them that one step of its sums goes over."""
        self.tensors = problem.spec.tensors
        self.panels = with_panels(problem.spec, tuple(range(1, len(self.tensors)))).tensors
        self._known: dict[tuple[int, int, bool], list[Sizes]] = {}
        self._latest: dict[int, list[Position]] = {}

    def footprints(self, lines: Sequence[int], *, largest: bool = False) -> list[list[Sizes]]:
        """Return each tensor's footprint at the statement and after each loop.

        Largest boxes decide what fits, mean ones how much moves. A line of `PANEL` bytes counts
        what micro-panels hold.
        """
        return [self._steps(t, line, largest) for t, line in enumerate(lines)]

    def runs_taken(self, t: int, line: int, tile: int) -> list[Sizes]:
        """Return the runs of a tensor in mean boxes, at the statement and after each loop.

        Tiles, of so many loops, cut runs: where a tile touches several, each of the next tile's
        starts anew, be it where one ended.
        """
        problem, tensor = self.problem, self.tensors[t]
        joined = [runs_in(problem, tensor, box, line) for box in self._mean]
        apart = [runs_in(problem, tensor, box, line, whole_rows_join=False) for box in self._mean]
        found = joined[: tile + 1]
        along = tensor.subscripts[-1].letters if tensor.subscripts else ()
        for at in range(tile, len(self.loops)):
            letter, trips = self.loops[at]
            ratio = trips if letter in along else apart[at + 1] / apart[at]
            started = choose(self.runs[at], found[-1] * ratio, found[-1])
            found.append(choose(found[-1] > 1, started, joined[at + 1]))
        return found

    def _steps(self, t: int, line: int, largest: bool) -> list[Sizes]:
        key = (t, line, largest)
        if key not in self._known:
            tensor = self.tensors[t] if line else self.panels[t]
            boxes = self._largest if largest else self._mean
            steps = [footprint(self.problem, tensor, boxes[0], line, self._grids[0])]
            for (letter, _), box, grid in zip(self.loops, boxes[1:], self._grids[1:], strict=True):
                touched = letter in tensor.letters
                steps.append(
                    footprint(self.problem, tensor, box, line, grid) if touched else steps[-1]
                )
            self._known[key] = steps
        return self._known[key]

    def copied_bytes(self, t: int, inside: int, line: int, kind: CopyKind) -> Sizes:
        """Return the bytes of a copy of a tensor, made for the tile of so many loops at a time.

        A copy is made whole, with all that it shares with the tile before it, whenever a loop
        outside has moved to another one (Eqs 11-14). One of windows has what strides leave out.
        """
        letters = (self.tensors if line else self.panels)[t].letters
        amount = self._steps(t, line, largest=False)[inside]
        if kind == "windows":
            amount = reached_bytes(self.problem, self.tensors[t], self._mean[inside])
        moved: Truth = False
        for (letter, trips), runs in zip(self.loops[inside:], self.runs[inside:], strict=True):
            if letter in letters:
                moved = moved | runs
            amount = choose(moved, amount * trips, amount)
        return amount

    def latest(self, t: int) -> list[Position]:
        """Return for each number of loops the last of them that runs and indexes a tensor."""
        if t not in self._latest:
            letters = self.problem.spec.tensors[t].letters
            found: list[Position] = [0]
            for at, (letter, _) in enumerate(self.loops, start=1):
                indexes = letter in letters
                found.append(choose(self.runs[at - 1], at, found[-1]) if indexes else found[-1])
            self._latest[t] = found
        return self._latest[t]


def collapse(found: Any) -> Truth:  # noqa: ANN401
    """Return one answer for all nests, if they have the same: it costs less to choose by."""
    if not isinstance(found, np.ndarray):
        return bool(found)
    if found.all():
        return True
    return found if found.any() else False


def _corners(tiling: Tiling, letter: str) -> list[Sizes]:
    """Return for each band what its tiles' first iterations are multiples of."""
    found: list[Sizes] = []
    common: Any = 0  # of all outer tiles; one that is the whole range begins at 0 only
    extent = tiling.boxes[-1][letter]
    cells = tiling.cells.get(letter)
    for box in reversed(tiling.boxes):
        side = gcd(*cells.sizes) if cells else box[letter]
        common = divisor(common, choose(box[letter] < extent, side, 0))
        found.append(common)
    return found[::-1]
