"""Grids: where stages lie that differ only in where they begin to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from types import MappingProxyType

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, Term
from tilesolve.pipelines.graph import Place, rename_stage

Offsets = tuple[int, ...]
"""What is added to the letters of a position, for each position of a stage."""

Parts = Mapping[str, tuple[str, Offsets]]
"""Arrays that are parts of others, and where in those they lie."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where things lie that differ in where they begin to read, if that is at all points of a grid.

    Parameters
    ----------
    counts
        How many there are along each of its axes.
    columns
        For each position the least offset, the step, and the axis along which it moves, or -1.
    members
        Where each lies.
    """

    counts: tuple[int, ...]
    columns: tuple[tuple[int, int, int], ...]
    members: tuple[Offsets, ...]

    @classmethod
    def of(cls, offsets: Sequence[Offsets]) -> Grid | None:
        """Return the grid of some offsets; None if they are none.

        Examples
        --------
        >>> found = Grid.of([(0, 4, 1), (2, 4, 1), (0, 4, 2), (2, 4, 2)])
        >>> print(found.counts, *found.places("yx"))
        (2, 2) 2*y 4 x+1
        """
        columns, axes = list[tuple[int, int, int]](), list[Offsets]()
        for column in zip(*offsets, strict=True):
            low = min(column)
            step = gcd(*(one - low for one in column))
            scaled = tuple((one - low) // (step or 1) for one in column)
            if step and scaled not in axes:
                axes.append(scaled)
            columns.append((low, step, axes.index(scaled) if step else -1))
        counts = tuple(max(one) + 1 for one in axes)
        members = tuple(zip(*axes, strict=True))
        if prod(counts) != len(offsets) or len(set(members)) != len(offsets):
            return None
        return cls(counts, tuple(columns), members)

    def places(self, letters: Sequence[str]) -> Iterator[Affine]:
        """Yield what is added to each position, in letters of the axes."""
        for low, step, axis in self.columns:
            yield Affine.of([(step, letters[axis])] if step else [], low)


def find_form(
    stage: Stage, sizes: Mapping[str, int], parts: Parts = MappingProxyType({})
) -> tuple[object, Offsets]:
    """Return what stages have in common that differ in where they begin to read, and where."""
    named = rename_stage(stage, {x: f"_{number}" for number, x in enumerate(stage.letters)})
    bare, offsets = lay_bare(named.term, parts)
    return (named.axes, bare, stage.dtype, tuple(sizes[x] for x in stage.letters)), offsets


def lay_bare(term: Term, parts: Parts = MappingProxyType({})) -> tuple[Term, Offsets]:
    """Return a term whose positions begin at 0, and where they began.

    Examples
    --------
    >>> bare, offsets = lay_bare(Read("A", (Affine.letter("x") + 3,)) * 2)
    >>> print(bare, offsets, begin_at(bare, iter([Affine.letter("y")])))
    A[x] * 2 (3,) A[x+y] * 2
    """
    offsets: list[int] = []

    def bare(one: Term) -> Term:
        if not isinstance(one, Read):
            inner = [bare(x) for x in one.parts]
            return one.rebuilt(inner) if inner else one
        name, at = parts.get(one.array, (one.array, ()))
        offsets.extend(at)
        places: list[Place] = [Affine.number(0)] * len(at)
        for x in one.subscripts:
            if isinstance(x, Affine):
                offsets.append(x.offset)
                places.append(replace(x, offset=0))
            else:
                places.append(bare(x))
        return Read(name, tuple(places))

    return bare(term), tuple(offsets)


def begin_at(term: Term, given: Iterator[Affine]) -> Term:
    """Return a term whose positions begin at some places, in the order of `lay_bare`."""
    if not isinstance(term, Read):
        inner = [begin_at(one, given) for one in term.parts]
        return term.rebuilt(inner) if inner else term
    places: list[Place] = []
    for one in term.subscripts:
        if isinstance(one, Affine):
            more = next(given)
            places.append(Affine.of((*one.terms, *more.terms), more.offset, one.divisor))
        else:
            places.append(begin_at(one, given))
    return Read(term.array, tuple(places))
