"""Nests of sliced layers: the five loops of SConv's macrokernel (section 5 of arXiv 2303.04739)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Self

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles
from tilesolve.model.fused import Fused, fuse
from tilesolve.model.nest import REGISTER, Band, CopyKind, Nest, Output
from tilesolve.planning.slicing.csa import Cell, LayerExtents, Slices

Sides = dict[str, int]
"""Iterations of letters."""


@dataclass(frozen=True, slots=True)
class SlicedLayer:
    """A convolution, or a product, by what its letters are to slicing; innermost letters first.

    Parameters
    ----------
    problem
        What one thread computes.
    input_operand
        The number of the input among the operands: 0 or 1.
    windows
        Letters of the output and the input.
    filters
        Letters of the output and the filters.
    channels
        Letters that are summed, one by one in both operands.
    taps
        Letters that are summed, and move within a window.
    groups
        Letters of all tensors: each of their indices is a layer of its own.
    """

    problem: Problem
    input_operand: int
    windows: tuple[str, ...]
    filters: tuple[str, ...]
    channels: tuple[str, ...]
    taps: tuple[str, ...]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return a problem as a layer.

        The input is the operand with windows. Of a product it is the one that does not stay from
        call to call, or the first one.

        Raises
        ------
        PlanError
            If the problem is neither a convolution nor a product.

        Examples
        --------
        >>> SlicedLayer.of(Problem.of("khw-kcrs-c[2h+r][2w+s]", 8)).windows
        ('w', 'h')
        >>> SlicedLayer.of(Problem.of("i-ij", 8))
        Traceback (most recent call last):
            ...
        tilesolve.contractions.errors.PlanError: slicing is for convolutions and products of two \
operands; 'i-ij' has 1
        """
        spec = problem.spec
        what = f"slicing is for convolutions and products of two operands; {str(spec)!r} has"
        if len(spec.operands) != 2:
            raise PlanError(f"{what} {len(spec.operands)}")
        moving = [
            {i for subscript in tensor.subscripts if not subscript.plain for i in subscript.letters}
            for tensor in spec.operands
        ]
        if all(moving):
            raise PlanError(f"{what} windows in both")
        own = [set(tensor.letters) for tensor in spec.operands]
        for letter in spec.letters:
            if letter not in spec.output.letters and not all(letter in one for one in own):
                raise PlanError(f"{what} {letter!r}, which is summed, in one alone")
        at = int(bool(moving[1]) or (not moving[0] and problem.constant == (1,)))
        rows, columns, sums, batches = Roles.of_spec(spec, rows=at)
        output = spec.output.letters[::-1]
        return cls(
            problem,
            at,
            tuple(i for i in output if i in rows),
            tuple(i for i in output if i in columns),
            tuple(i for i in sums[::-1] if i not in moving[at]),
            tuple(i for i in sums[::-1] if i in moving[at]),
            batches,
        )

    @property
    def extents(self) -> LayerExtents:
        """What the equations know of it."""
        return LayerExtents(
            channels=self._count(self.channels),
            windows=self._count(self.windows),
            filters=self._count(self.filters),
            taps=self._count(self.taps),
            element_bytes=self.problem.sum_itemsize,
        )

    @property
    def fused(self) -> Fused:
        """The problem over classes, as solutions have it."""
        return fuse(self.problem.part({i: self._extent(i) for i in self.problem.sizes}))

    def nest(
        self,
        slices: Slices,
        levels: Sequence[str],
        register_tile: tuple[int, int],
        lanes: int,
        output: Output,
        *,
        scattered: bool,
    ) -> Nest:
        """Return the five loops around the microkernel, of which the fifth is inside its calls.

        The input is packed tile by tile right before its use: one tile for the first cache where
        the input stays there, K2 tiles for the second where they pass. Filters that stay from call
        to call are prepared, others are packed where K2, or K3, of their tiles are used.

        Parameters
        ----------
        slices
            How the layer is cut.
        levels
            Names of the first three caches and of memory.
        register_tile
            Rows and columns of the microkernel.
        lanes
            Rows of a vector.
        output
            How C is written.
        scattered
            Whether C is written across the rows of register tiles.

        Examples
        --------
        >>> layer = SlicedLayer.of(Problem.of("xk-xc-ck", 64))
        >>> slices = Slices("weight stationary", 16, 2, 4)
        >>> found = layer.nest(slices, ["L1", "L2", "L3", "memory"], (16, 8), 16, "store",
        ...                    scattered=False)
        >>> [dict(band.box) for band in found.bands[1:4]]  # doctest: +NORMALIZE_WHITESPACE
        [{'x': 8, 'k': 16, 'c': 16}, {'x': 16, 'k': 16, 'c': 16}, {'x': 16, 'k': 64, 'c': 16}]
        >>> found.packed
        ('L2', 'L3')
        """
        names = (REGISTER, *levels)
        stays, passes = self.windows, self.filters
        copies = levels[0], levels[1]
        if slices.schedule == "weight stationary":
            stays, passes = passes, stays
            copies = levels[1], levels[2]
        call, near = self._cells(register_tile, lanes)
        depth = self._filled(self.channels, slices.channels, min)
        call, near = call | depth, near | depth
        middle = near | self._grown(near, passes, slices.passing)
        far = middle | self._grown(near, stays, slices.staying)
        whole = {letter: self._extent(letter) for letter in self.problem.sizes}
        rest = (*self.taps, *self.groups)
        orders = (
            (*self.channels, *self.taps, *self.windows, *self.filters, *self.groups),
            (*self.windows, *self.filters, *self.channels, *rest),
            (*passes, *stays, *self.channels, *rest),
            (*stays, *passes, *self.channels, *rest),
            (*passes, *stays, *self.channels, *rest),
        )
        bands = tuple(
            Band(name, order, tuple((i, box[i]) for i in self.problem.sizes))
            for name, order, box in zip(
                names, orders, (call, near, middle, far, whole), strict=True
            )
        )
        prepared = self.problem.constant == (2 - self.input_operand,)
        kinds: list[CopyKind] = ["micro-panels", "prepared" if prepared else "micro-panels"]
        packed = [copies[0], None if prepared else copies[1]]
        step = -1 if self.input_operand else 1
        return Nest(bands, tuple(packed[::step]), output, tuple(kinds[::step]), scattered)

    def counts(self, rows: int, columns: int) -> Cell:
        """Return a register tile as windows by filters."""
        return Cell(rows, columns) if self._windows_are_rows() else Cell(columns, rows)

    def _windows_are_rows(self) -> bool:
        """Return whether vectors lie along windows; else they lie along filters."""
        fused = self.fused
        return fused.rows is not None and fused.letters(fused.rows)[0] in self.windows

    def _cells(self, register_tile: tuple[int, int], lanes: int) -> tuple[Sides, Sides]:
        """Return what one microkernel covers, and a tile of windows by one of filters.

        The tile has the vectors of more than one line of the output where lines are short.
        """
        rows, columns = self.windows, self.filters
        if not self._windows_are_rows():
            rows, columns = columns, rows
        most_rows, most_columns = register_tile
        call = dict.fromkeys(self.problem.sizes, 1)
        call |= {tap: self._extent(tap) for tap in self.taps}
        call |= self._filled(columns, most_columns, _near_equal)
        if not rows:
            return call, call
        lane = rows[0]
        vectors = _near_equal(-(-self._extent(lane) // lanes), most_rows // lanes or 1)
        call[lane] = min(self._extent(lane), vectors * lanes)
        return call, call | self._filled(rows[1:], most_rows // call[lane], _near_equal)

    def _filled(self, letters: Sequence[str], most: int, cut: Callable[[int, int], int]) -> Sides:
        """Return sides of at most so many iterations in all, given how one extent is cut."""
        found = {}
        for letter in letters:
            found[letter] = cut(self._extent(letter), max(1, most))
            most //= found[letter]
        return found

    def _grown(self, cell: Sides, letters: Sequence[str], most: int) -> Sides:
        """Return the sides of at most so many cells side by side, along some letters."""
        found = {}
        for letter in letters:
            count = min(ceil(self._extent(letter) / cell[letter]), max(1, most))
            found[letter] = min(self._extent(letter), count * cell[letter])
            most //= count
        return found

    def _extent(self, letter: str) -> int:
        """Return the extent of a letter; that of an empty one is one, as in nests."""
        return max(1, self.problem.sizes[letter])

    def _count(self, letters: Sequence[str]) -> int:
        return prod(self._extent(letter) for letter in letters)


def _near_equal(extent: int, most: int) -> int:
    """Return the larger of two near-equal parts that an extent is cut into, at most so many."""
    return ceil(extent / ceil(extent / most))
