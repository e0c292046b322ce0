"""Scopes: where the names of loops stand at a point of a program that is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from llvmlite import ir

from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.vectors import INT64, extreme
from tilesolve.kernels.programs.bounds import range_of, tiles_within
from tilesolve.kernels.programs.program import Loop


@dataclass(frozen=True, slots=True)
class Place:
    """A position: a value that is known at run time, and what is added to it.

    Parameters
    ----------
    base
        The value; None for 0.
    offset
        What is added. Places of trips that are written out differ in it alone.
    """

    base: ir.Value | None
    offset: int = 0

    def value(self, builder: ir.IRBuilder) -> ir.Value:
        """Emit the sum."""
        if self.base is None:
            return INT64(self.offset)
        return builder.add(self.base, INT64(self.offset)) if self.offset else self.base


@dataclass(frozen=True, slots=True)
class Lanes:
    """The points of a vector: those from where its letter stands.

    Parameters
    ----------
    letter
        Which of them differ in.
    count
        How many there are.
    mask
        Those that are computed; None for all.
    reached
        Those that any point of a block computes whose points have masks of their own.
    """

    letter: str
    count: int
    mask: ir.Value | None = None
    reached: ir.Value | None = None

    @property
    def block_mask(self) -> ir.Value | None:
        """Those that points of a block compute together; None for all."""
        return self.mask if self.reached is None else self.reached


@dataclass(frozen=True, slots=True)
class Trip:
    """A trip of a loop that is written out whole: its number, of how many."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What surrounds a point of a program.

    Parameters
    ----------
    places
        Where the name of each loop stands; that of a vector loop at its first lane.
    ranges
        The first and the last value of each name.
    lanes
        The vector that the point is part of.
    active
        Whether the point is computed at all; None if it is.
    trips
        Loops around that are written out, all of whose trips run.
    key
        The trips of loops that a `Hold` writes out: which element it is.
    element
        Within a `Hold`, the point and the lanes that are beyond the end of no loop over the output:
        what is computed of others is not stored.
    tiles
        Loops over tiles around. Nothing stands in them but a loop within another, with the same
        bounds for all tiles, so that a tile may leave elements to the next one.
    """

    places: Mapping[str, Place] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lanes: Lanes | None = None
    active: ir.Value | None = None
    trips: Mapping[str, Trip] = field(default_factory=dict)
    key: tuple[tuple[str, int], ...] = ()
    element: tuple[ir.Value | None, ir.Value | None] = (None, None)
    tiles: Mapping[str, Loop] = field(default_factory=dict)

    def at(self, name: str, place: Place, values: tuple[int, int] | None = None) -> Self:
        """Return the scope in a loop."""
        ranges = {**self.ranges, name: values} if values else self.ranges
        return replace(self, places={**self.places, name: place}, ranges=ranges)

    def lane(self, number: int) -> Self:
        """Return the scope at one point of a vector."""
        assert self.lanes is not None
        place = self.places[self.lanes.letter]
        inner = self.at(self.lanes.letter, Place(place.base, place.offset + number))
        return replace(inner, lanes=None)

    def enter_element(self, around: Scope) -> Self:
        """Return the scope at an element of a `Hold`, given that around the bounds of its loop.

        Where something else decides around what is computed, it does so here.
        """
        if around.computed != around.element:
            return self
        return replace(self, element=self.computed)

    @property
    def computed(self) -> tuple[ir.Value | None, ir.Value | None]:
        """Whether the point is computed, and which lanes."""
        return self.active, None if self.lanes is None else self.lanes.mask


def both(builder: ir.IRBuilder, one: ir.Value | None, other: ir.Value | None) -> ir.Value | None:
    """Emit whether two conditions hold, each None if it always does."""
    if one is None or other is None:
        return other if one is None else one
    return builder.and_(one, other)


def emit_position(builder: ir.IRBuilder, position: Affine, scope: Scope) -> Place:
    """Emit a position, at the first lane of a vector."""
    base: ir.Value | None = None
    offset = position.offset
    for factor, letter in position.terms:
        place = scope.places[letter]
        offset += factor * place.offset
        if place.base is None:
            continue
        term = place.base if factor == 1 else builder.mul(place.base, INT64(factor))
        base = term if base is None else builder.add(base, term)
    if position.divisor == 1:
        return Place(base, offset)
    if base is None:
        return Place(None, offset // position.divisor)
    return Place(divide_down(builder, Place(base, offset).value(builder), position.divisor)[0])


def emit_places(
    builder: ir.IRBuilder, positions: Iterable[Affine | ir.Value], scope: Scope
) -> list[Place]:
    """Emit positions, of which some may be known as values."""
    return [
        emit_position(builder, one, scope) if isinstance(one, Affine) else Place(one)
        for one in positions
    ]


def emit_extreme(
    builder: ir.IRBuilder, positions: Iterable[Affine], scope: Scope, symbol: str
) -> Place:
    """Emit the least or the greatest of some positions."""
    found, *others = (emit_position(builder, one, scope) for one in positions)
    for other in others:
        found = Place(extreme(builder, symbol, found.value(builder), other.value(builder)))
    return found


def enter_trip(loop: Loop, scope: Scope, low: Place, trip: Trip) -> Scope:
    """Return the scope in a trip that is written out."""
    place = Place(low.base, low.offset + loop.step * trip.number)
    found = scope.at(loop.name, place, range_of(loop, scope.ranges))
    trips = {**scope.trips, loop.name: trip} if loop.step == 1 else scope.trips
    return replace(found, trips=trips, tiles=tiles_within(loop, scope.tiles))


def full_loop(builder: ir.IRBuilder, loop: Loop, scope: Scope, trips: int) -> ir.Value:
    """Emit whether a loop has so many trips."""
    low = emit_extreme(builder, loop.low, scope, ">").value(builder)
    high = emit_extreme(builder, loop.high, scope, "<").value(builder)
    last = INT64((trips - 1) * loop.step)
    return builder.icmp_signed("<", builder.add(low, last), high)
