"""Graphs: the arrays that a traced function computes, each by a term of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import TraceError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Position, Read, Reduce, Term, as_term
from tilesolve.nests.arguments import nest_dtype

Shape = tuple[int, ...]
Place = Affine | Term
"""A position along an axis: known beforehand, or a number that is computed."""


@dataclass(frozen=True, slots=True)
class Node:
    """An array: each element is a term in the letters of its axes.

    Parameters
    ----------
    name, shape, dtype
        Of the array. An array without axes has one element.
    term
        What an element is; None of an array that is given.
    writes
        How many times parts of it were written since it was made: its term chooses among these.
    """

    name: str
    shape: Shape
    dtype: str
    term: Term | None = None
    writes: int = 0


@dataclass(slots=True)
class Graph:
    """All arrays of a function, in the order in which they are made.

    Parameters
    ----------
    nodes, dtypes
        By name.
    constants
        The arrays of the function's own, by the name of their node.
    extents
        How many values each letter takes that is summed.
    labels
        What the function calls its arrays.
    refused
        The first thing that its arrays refused.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    refused: TraceError | None = None

    def give(self, name: str, shape: Shape, dtype: str) -> str:
        """Take in an array that is given, and return its name."""
        self.nodes[name], self.dtypes[name] = Node(name, shape, dtype), dtype
        return name

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Take in an array of the function's own as it is now, and return its name."""
        for name, known in self.constants.items():
            if known is array or (known.dtype == array.dtype and np.array_equal(known, array)):
                return name
        name = f"constant{len(self.constants) + 1}"
        self.constants[name] = array.copy()
        return self.give(name, array.shape, nest_dtype(array.dtype, "a constant"))

    def add(self, term: Term, shape: Shape, dtype: str | None = None, writes: int = 0) -> str:
        """Add an array, and return its name."""
        name = f"_{len(self.nodes)}"
        kind = dtype or named_kind(term.kind(self.dtypes))
        self.nodes[name], self.dtypes[name] = Node(name, shape, kind, term, writes), kind
        return name

    def letter(self, extent: int) -> str:
        """Return a new letter to sum over."""
        name = f"_s{len(self.extents)}"
        self.extents[name] = extent
        return name


def axis_letter(axis: int) -> str:
    """Return the letter of an axis, within a graph."""
    return f"_{axis}"


def axis_letters(count: int) -> tuple[Affine, ...]:
    """Return the position along each axis.

    Examples
    --------
    >>> print(*axis_letters(2))
    _0 _1
    """
    return tuple(Affine.letter(axis_letter(axis)) for axis in range(count))


def compose(position: Affine, places: Mapping[str, Place]) -> Place:
    """Return a position in which others stand in the place of letters.

    Raises
    ------
    SpecError
        If no position is made of them.

    Examples
    --------
    >>> print(compose(2 * Affine.letter("x") + 1, {"x": Affine.letter("y") - 3}))
    2*y-5
    """
    total = Affine.number(position.offset)
    computed: list[Term] = []
    for factor, letter in position.terms:
        place = places.get(letter, Affine.letter(letter))
        if isinstance(place, Affine):
            total = total + factor * place
        else:
            computed.append(place if factor == 1 else factor * place)
    if not computed:
        return total // position.divisor if position.divisor > 1 else total
    if total != Affine.number(0):
        computed.append(as_term(total if total.letters else total.offset))
    term = reduce(add, computed)
    return term // position.divisor if position.divisor > 1 else term


def substitute(
    term: Term, places: Mapping[str, Place], arrays: Mapping[str, str] = MappingProxyType({})
) -> Term:
    """Return a term in which positions stand in the place of letters, with other names of arrays.

    Letters that are summed take other names, if the positions are letters.

    Raises
    ------
    SpecError
        If no position is made of them.

    Examples
    --------
    >>> x, k = Affine.letter("x"), Affine.letter("k")
    >>> print(substitute(Read("A", (x,)) + 1, {"x": 2 * x}))
    A[2*x] + 1
    >>> print(substitute(Reduce("add", ("x",), Read("A", (x + 1,))), {"x": k}, {"A": "B"}))
    sum(B[k+1], k)
    """
    match term:
        case Position(position=position):
            found = compose(position, places)
            return Position(found) if isinstance(found, Affine) else found
        case Read(array=array, subscripts=subscripts):
            given = tuple(place_at(one, places, arrays) for one in subscripts)
            return Read(arrays.get(array, array), given)
    parts = [substitute(one, places, arrays) for one in term.parts]
    match term:
        case Reduce(name=name, over=over):
            return Reduce(name, tuple(str(places.get(x, x)) for x in over), *parts)
        case Scan(name=name, letter=letter):
            return Scan(name, str(places.get(letter, letter)), *parts)
    return term.rebuilt(parts) if parts else term


def place_at(
    place: Place, places: Mapping[str, Place], arrays: Mapping[str, str] = MappingProxyType({})
) -> Place:
    """Return a position, known or computed, in which others stand in the place of letters."""
    if isinstance(place, Affine):
        return compose(place, places)
    return substitute(place, places, arrays)


def name_places(places: Sequence[Place]) -> dict[str, Place]:
    """Return positions by the letters of the axes that they are for."""
    return {axis_letter(axis): place for axis, place in enumerate(places)}


def rename_stage(
    stage: Stage, letters: Mapping[str, str], arrays: Mapping[str, str] = MappingProxyType({})
) -> Stage:
    """Return a stage with other names of letters and arrays."""
    places: dict[str, Place] = {x: Affine.letter(letter) for x, letter in letters.items()}
    target = substitute(stage.target, places, arrays)
    where = (compose(one.position, places) for one in stage.where)
    assert isinstance(target, Read)
    return replace(
        stage,
        name=target.array,
        axes=target.subscripts,
        term=substitute(stage.term, places, arrays),
        where=tuple(Condition(one) for one in where if isinstance(one, Affine)),
    )
