"""How the letters of C are cut into register boxes by tiles of some vectors and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import uses_half_vectors
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.planning.letter_boxes import shape_box

Sides = tuple[int, int]
"""Vectors of rows, and columns, of a register tile."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the letters of one side of C are cut into register boxes.

    Parameters
    ----------
    boxes
        How many there are along these letters.
    total
        Vectors, or columns, of all of them together.
    sides
        Of one box.
    """

    boxes: int
    total: float
    sides: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """A problem as register tiles see it.

    Parameters
    ----------
    rows, columns
        Letters of either side of C.
    lane
        The letter that vectors lie along.
    sums
        Products that each element of C sums.
    high, wide
        Cuts of the rows by the vectors of a tile, of the columns by its columns.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    lane: tuple[str, ...]
    sums: int
    high: Mapping[int, Cut]
    wide: Mapping[int, Cut]

    @classmethod
    def of(cls, problem: Problem, tiles: Iterable[Sides], machine: Machine) -> Shape:
        """Return a problem as register tiles of some sides see it."""
        fused = fuse(problem)
        rows = fused.letters(fused.rows) if fused.rows else ()
        columns = fused.letters(fused.columns) if fused.columns else ()
        lane = (problem.lane,) if problem.lane in rows else rows[:1]
        group, line = lanes(problem.dtype, machine.vector_bits), machine.memory.line
        parts = 2 if uses_half_vectors(machine, problem.dtype) else 1
        high, wide = map(set, zip(*tiles, strict=True))
        return cls(
            rows,
            columns,
            lane,
            prod(max(1, problem.sizes[i]) for index in fused.reduced for i in fused.letters(index)),
            {
                vectors: _cut(problem, rows, lane, vectors * group, group, parts, line)
                for vectors in high
            },
            {count: _cut(problem, columns, (), count, 1, 1, line) for count in wide},
        )


def _cut(
    problem: Problem,
    letters: Sequence[str],
    lane: Sequence[str],
    most: int,
    group: int,
    parts: int,
    line: int,
) -> Cut:
    """Return how letters are cut into boxes of at most so many elements, along lanes in groups.

    Of a letter's last group only so many parts count as there is something in.
    """
    if not letters:
        return Cut(1, 1, {})
    inner = {i: max(1, min(group if i in lane else 1, problem.sizes[i])) for i in letters}
    sides = shape_box(problem, letters, inner, most, line, [problem.spec.output])
    extents = {i: max(1, problem.sizes[i]) for i in letters}
    total = prod(ceil(parts * n / group) / parts if i in lane else n for i, n in extents.items())
    return Cut(prod(ceil(n / sides[i]) for i, n in extents.items()), total, sides)
