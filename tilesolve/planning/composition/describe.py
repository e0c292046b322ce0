"""Solutions in the notation of schemes: what a nest's loops, register tile and cells are."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tilesolve.contractions.roles import COLUMNS, ROWS, SUMS
from tilesolve.kernels.dtypes import lanes
from tilesolve.packing.offsets import register_cells
from tilesolve.planning.composition.scheme import (
    Rest,
    Scheme,
    Sequence,
    Specifier,
    Tile,
    Unrolled,
    Vector,
)
from tilesolve.planning.layout_policy import letter_of_row_vectors
from tilesolve.planning.runner import roles_of
from tilesolve.planning.solution import Composed, Solution

_GREEK = "αβγδεζηθικμνξοπρστυφχψω"


def scheme_of(solution: Solution) -> Scheme:
    """Return the scheme that a solution runs, or what its nest is as a scheme of the whole problem.

    The loop over threads is outermost. A letter's outermost loop is `R` where its tile divides the
    extent. What tiles or vectors do not divide is counted as if it were whole, so that the scheme
    covers more than the extent. A λ stands where register tiles have two sizes.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.planning.demand import Demand
    >>> from tilesolve.planning.geometric.strategy import GeometricProgram
    >>> problem, machine = Problem.of("ij-ik-kj", "i=11 j=32 k=64"), Machine.load("i7-6700k")
    >>> found = next(iter(GeometricProgram().solutions(problem, machine, 1, Demand())))
    >>> print(scheme_of(found))
    [λi α.[(1,6),(1,5)],Rj,T64,k,Uα,i,U2,j,Vj]
    """
    if isinstance(solution.origin, Composed):
        return solution.origin.scheme
    return Scheme(tuple(_specifiers(_Writer(solution))))


class _Writer:
    """What the specifiers of a solution are made from."""

    def __init__(self, solution: Solution) -> None:
        self.share, self.nest = solution.share, solution.nest
        self.split, self.parts = solution.split, len(solution.parts)
        self.roles = roles_of(self.share)
        strides = solution.problem.strides(0)
        self.vector = letter_of_row_vectors(self.share, self.roles, strides)
        group = lanes(self.share.dtype, solution.machine.vector_bits)
        self.units = {i: group if i == self.vector else 1 for i in self.share.sizes}
        free = [name for name in _GREEK if name not in self.share.sizes]
        letters = (i for i in self.nest.bands[0].order if self.is_unrolled(i))
        self.cells = {i: self._cells(i) for i in letters}
        two = [i for i, found in self.cells.items() if len(set(found)) > 1]
        self.names = dict(zip(two, free, strict=False))

    def is_unrolled(self, letter: str) -> bool:
        """Return whether the loop over a register tile's letter is in registers."""
        return self.roles.number(letter) in (ROWS, COLUMNS)

    def _cells(self, letter: str) -> tuple[int, ...]:
        """Return the register tiles of a letter in the nearest tile, in vectors or in elements."""
        unit, most = self.units[letter], self.nest.bands[0][letter]
        inside = self.nest.bands[min(1, len(self.nest.bands) - 1)][letter]
        return tuple(ceil(cell / unit) for cell in register_cells(inside, most, unit))


def _specifiers(writer: _Writer) -> Iterator[Specifier]:
    """Yield specifiers, outermost first."""
    bands = writer.nest.bands
    if writer.split is not None and writer.parts > 1:
        yield Tile(writer.parts, writer.split)
    for at in range(len(bands) - 1, 0, -1):
        for letter in reversed(bands[at].order):
            yield from _loop(writer, at, letter)
    yield from _register_tile(writer)


def _loop(writer: _Writer, at: int, letter: str) -> Iterator[Specifier]:
    """Yield the loop over a letter in a band, if it runs."""
    bands, extent = writer.nest.bands, writer.share.sizes[letter]
    outer, inner = bands[at][letter], bands[at - 1][letter]
    cells = writer.cells.get(letter, ()) if at == 1 else ()
    if cells and letter in writer.names:
        yield Sequence(letter, writer.names[letter], _runs(cells))
        return
    trips = len(cells) or ceil(outer / inner)
    tile = cells[0] * writer.units[letter] if cells else inner
    if trips > 1:
        rest = trips * tile == outer == extent
        yield Rest(letter) if rest else Tile(trips, letter)


def _register_tile(writer: _Writer) -> Iterator[Specifier]:
    """Yield what one call does: batches, sums, columns, rows."""
    register = writer.nest.bands[0]
    sums_first = sorted(register.order, key=lambda i: writer.roles.number(i) != SUMS)
    for letter in reversed(sums_first):
        if not writer.is_unrolled(letter) and register[letter] > 1:
            yield Tile(register[letter], letter)
    for role in (COLUMNS, ROWS):
        letters = [i for i in register.order if writer.roles.number(i) == role]
        for letter in sorted(letters, key=lambda i: i == writer.vector):
            if letter in writer.names:
                yield Unrolled(writer.names[letter], letter)
            elif (count := max(writer.cells[letter])) > 1:
                yield Unrolled(count, letter)
    if writer.vector is not None:
        yield Vector(writer.vector)


def _runs(cells: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return equal cells that follow each other as pairs of their number and their size."""
    runs: list[tuple[int, int]] = []
    for cell in cells:
        if runs and runs[-1][1] == cell:
            runs[-1] = (runs[-1][0] + 1, cell)
        else:
            runs.append((1, cell))
    return tuple(runs)
