"""What a statement touches: one reference for the elements of an array that lie together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.solver.signomials import Signomial

Tiles = Mapping[str, Any]
"""The size of each letter's tile: a number, an array of them, or a signomial."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Elements of an array that a statement touches by the same letters.

    Reads that differ in their offsets alone are one: they touch the same lines.

    Parameters
    ----------
    array
        Its name.
    axes
        For each axis the factors of letters, as pairs, without their signs.
    spread
        For each axis how far the offsets of reads are apart.
    divisors
        For each axis.
    shape
        Of the array.
    element
        Bytes of an element.
    written
        Whether it is the output.
    gathered
        Whether positions are known at run time alone; it counts as one run for each element then.
    """

    array: str
    axes: tuple[tuple[tuple[int, str], ...], ...]
    spread: tuple[int, ...]
    divisors: tuple[int, ...]
    shape: tuple[int, ...]
    element: int
    written: bool = False
    gathered: bool = False

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that move it."""
        return tuple(dict.fromkeys(letter for axis in self.axes for _, letter in axis))

    @property
    def contiguous(self) -> tuple[str, ...]:
        """The letters of the last axis."""
        return tuple(letter for _, letter in self.axes[-1]) if self.axes else ()

    @property
    def pitch(self) -> int:
        """Elements from row to row."""
        return self.shape[-1] if self.shape else 1

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one position of each axis to the next.

        Examples
        --------
        >>> Reference("A", ((), ((1, "k"),)), (0, 0), (1, 1), (64, 32), 4).strides
        (32, 1)
        """
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def stride(self, letter: str) -> float:
        """Return the bytes from one iteration of a letter to the next; 0 where it does not move it.

        Examples
        --------
        >>> rows = Reference("A", (((1, "i"),), ((1, "k"),)), (0, 0), (1, 1), (64, 32), 4)
        >>> rows.stride("i"), rows.stride("k"), rows.stride("j")
        (128.0, 4.0, 0.0)
        """
        found, pitch = 0.0, float(self.element)
        for axis, divisor, extent in zip(
            reversed(self.axes), reversed(self.divisors), reversed(self.shape), strict=True
        ):
            found += pitch * sum(factor for factor, name in axis if name == letter) / divisor
            pitch *= extent
        return found

    def sides(self, tiles: Tiles) -> list[Any]:
        """Return how many positions of each axis a tile touches; from above for signomials.

        Examples
        --------
        >>> image = Reference("I", (((2, "y"), (1, "r")),), (0,), (1,), (20,), 4)
        >>> image.sides({"y": 8, "r": 3})
        [17]
        """
        found = []
        for axis, spread, divisor in zip(self.axes, self.spread, self.divisors, strict=True):
            symbolic = any(isinstance(tiles[letter], Signomial) for _, letter in axis)
            reach: Any = sum((factor * tiles[letter] for factor, letter in axis), start=0)
            more = spread - sum(factor for factor, _ in axis) + (divisor if divisor > 1 else 1)
            reach = reach + (max(more, 0) if symbolic else more)
            found.append(reach * (1 / divisor) if divisor > 1 else reach)
        return found

    def rows(self, tiles: Tiles) -> Any:  # noqa: ANN401 - of the kind that tiles are
        """Return how many contiguous runs a tile touches."""
        sides = self.sides(tiles)
        return prod(sides) if self.gathered else prod(sides[:-1])

    def elements(self, tiles: Tiles) -> Any:  # noqa: ANN401
        """Return how many elements a tile touches."""
        return prod(self.sides(tiles))

    def run(self, tiles: Tiles) -> Any:  # noqa: ANN401
        """Return how many elements lie side by side."""
        return 1 if self.gathered or not self.axes else self.sides(tiles)[-1]

    def lines(self, tiles: Tiles, line_bytes: int) -> Any:  # noqa: ANN401
        """Return the mean number of lines of a run, which begins anywhere in a line."""
        line = max(line_bytes // self.element, 1)
        return self.run(tiles) * (1 / line) + (1 - 1 / line)


def find_references(computation: Computation, stage: Stage) -> tuple[Reference, ...]:
    """Return what a stage touches, its output first.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("out[y,x] = A[y,x] + A[y,x+2]"), 8, "float32")
    >>> [(one.array, one.spread) for one in find_references(found, found.stages[0])]
    [('out', (0, 0)), ('A', (0, 2))]
    """
    groups: dict[Any, list[Read]] = {}
    for read in (stage.target, *stage.reads):
        plain = tuple(
            (one.terms, one.divisor) if isinstance(one, Affine) else str(one)
            for one in read.subscripts
        )
        groups.setdefault((read.array, plain), []).append(read)
    return tuple(_reference(computation, stage, reads) for reads in groups.values())


def _reference(computation: Computation, stage: Stage, reads: Sequence[Read]) -> Reference:
    info, first = computation.array(reads[0].array), reads[0]
    axes, spread, divisors = [], [], []
    for axis, subscript in enumerate(first.subscripts):
        if isinstance(subscript, Affine):
            offsets = [_offset(read, axis) for read in reads]
            axes.append(tuple((abs(factor), letter) for factor, letter in subscript.terms))
            spread.append(max(offsets) - min(offsets))
            divisors.append(subscript.divisor)
        else:
            axes.append(tuple((1, letter) for letter in subscript.letters))
            spread.append(0)
            divisors.append(1)
    return Reference(
        info.name,
        tuple(axes),
        tuple(spread),
        tuple(divisors),
        info.shape,
        np.dtype(info.dtype).itemsize,
        written=first == stage.target,
        gathered=first.plain is None,
    )


def _offset(read: Read, axis: int) -> int:
    subscript = read.subscripts[axis]
    assert isinstance(subscript, Affine)
    return subscript.offset


def touched(references: Iterable[Reference], tiles: Tiles) -> Any:  # noqa: ANN401
    """Return the bytes that a tile touches of all references."""
    return sum((one.elements(tiles) * one.element for one in references), start=0)
