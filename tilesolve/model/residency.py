"""Whether arrays stay in a cache between their uses: by reuse distance, Listing 3, or tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tilesolve.constants.policy import WHOLE_SUM_PASSES
from tilesolve.model.access import Size
from tilesolve.model.chain import Chain, collapse
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import Buffer
from tilesolve.model.walk import Position, Rule, Truth, choose


class Between:
    """What comes between two uses of what inner loops touch, for all places with such lines.

    Between two uses of what the innermost loops touch, an LRU cache sees the rest of one round and
    the beginning of the next. Each array's tile counts once if the outermost of these loops moves
    over it: new elements replace old ones step by step. It counts twice if every step touches the
    whole tile and a loop further out then moves on: the old tile is still there when the new one
    arrives. A packed copy that is made again brings its source along.
    """

    def __init__(self, chain: Chain, line: int, near: Sequence[bool], *, refilled: bool) -> None:
        """Find what so many loops touch.

        Parameters
        ----------
        chain
            The loops.
        line
            Bytes of a line of the places.
        near
            Of each access, whether its copy is what is read there.
        refilled
            Whether copies bring their sources along.
        """
        self.chain, number = chain, range(len(near))
        self.held = [footprints_at(chain, t, line, near=near[t]) for t in number]
        self.moved = [
            chain.latest(t, 1 if near[t] and t in chain.buffers else line) for t in number
        ]
        self.refills = {
            t: (inside, chain.footprints(chain.accesses[t], line, largest=True))
            for t, (inside, buffer) in chain.buffers.items()
            if refilled and buffer.layout != "prepared"
        }
        self.still = [
            [True, *(letter not in access.letters for letter, _ in chain.loops)]
            for access in chain.accesses
        ]
        self._views: dict[tuple[int, bool], _View] = {}
        self._known: dict[tuple[int, int], tuple[Size, float, float]] = {}

    @cached_property
    def whole(self) -> list[Size]:
        """What all arrays together have of so many loops."""
        return [sum(sizes) for sizes in zip(*self.held, strict=True)]

    def fits(self, inner: Position, outer: int, capacity: float) -> Truth:
        """Return whether what comes between has so much room."""
        key = (id(inner) if isinstance(inner, np.ndarray) else inner, outer)
        known = self._known.get(key)
        if known is None:
            total = self._total(self.view(inner, in_call=outer < self.chain.call), outer)
            ends = (total.min(), total.max()) if isinstance(total, np.ndarray) else (total, total)
            known = self._known[key] = total, *ends
        total, least, most = known
        if most <= capacity or least > capacity:
            return bool(most <= capacity)
        found: Truth = total <= capacity
        return found

    def view(self, inner: Position, *, in_call: bool) -> _View:
        """Return what is known of inner loops: outside of calls of no fewer than a call has."""
        number = id(inner) if isinstance(inner, np.ndarray) else inner
        if (number, in_call) not in self._views:
            self._views[number, in_call] = _View(inner, 0 if in_call else self.chain.call)
        return self._views[number, in_call]

    def _total(self, view: _View, outer: int) -> Size:
        """Return the bytes that come between two uses of what the inner loops touch."""
        total: Size = 0.0
        at = view.low if view.low == view.high else None
        for t, held in enumerate(self.held):
            touched = view.take(held) if at is None else held[at]
            still = view.take(self.still[t]) if at is None else self.still[t][at]
            again: Truth = False if still is False else self.moved[t][outer + 1] > view.inner
            again = again if again is False or still is True else again & still
            twice = touched if again is False else touched + again * touched
            if t not in self.refills:
                total = total + twice
                continue
            inside, source = self.refills[t]
            outside = view.inner > inside if at is None else at > inside
            swept = brought = twice
            if outside is not False:
                far = view.take(source)
                swept = held[inside] + (far if again is False else far + again * far)
            if outside is not True:
                made = self.chain.latest(t)[outer + 1] > inside
                brought = choose(made, held[inside] + source[inside], twice)
            total = total + choose(outside, swept, brought)
        return total


class _View:
    """Loops counted from the statement outwards, how many may differ from nest to nest."""

    def __init__(self, inner: Position, least: int) -> None:
        """Keep the numbers of loops, and what picks values by them."""
        self.given, self.inner = inner, inner
        """What was given is kept, so that it can be known by its place in memory."""
        self.low = self.high = 0
        if isinstance(inner, np.ndarray):
            self.low, self.high = max(least, int(inner.min())), max(least, int(inner.max()))
            self.inner = np.maximum(inner, least) if self.low < self.high else self.low
        else:
            self.inner = self.low = self.high = max(least, inner)
        self._masks = [self.inner >= number for number in range(self.low + 1, self.high + 1)]
        self._taken: dict[int, tuple[Sequence[Any], Any]] = {}

    def take(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        """Return values at these numbers."""
        if self.low == self.high:
            return values[self.low]
        if id(values) not in self._taken:
            found: Any = values[self.low]
            for number, there in enumerate(self._masks, start=self.low + 1):
                # Loops that leave a value alone have the same one before and after them.
                if values[number] is not values[number - 1]:
                    found = np.where(there, values[number], found)
            self._taken[id(values)] = values, found
        return self._taken[id(values)][1]


class Residency:
    """Whether arrays stay in one cache between their uses: if what comes between fits."""

    def __init__(
        self,
        chain: Chain,
        places: Sequence[LevelView],
        at: int,
        known: dict[tuple[Any, ...], Between] | None = None,
    ) -> None:
        """Ask for one of several places; what comes between may be known for another one."""
        self.chain, self.place, self.registers = chain, places[at], at == 0
        near = tuple(not at or at <= level_of(chain, t, places) for t in range(len(chain.accesses)))
        key, shared = (self.place.line, near, at > 0), {} if known is None else known
        if key not in shared:
            shared[key] = Between(chain, self.place.line, near, refilled=at > 0)
        self.between = shared[key]
        # Registers hold the output's tile; the operands pass through the few that are left.
        self.whole = self.between.whole if at else self.between.held[0]

    def stays(self, inner: Position, outer: int) -> Truth:
        """Return whether what the inner loops touch is there when the outer one comes round."""
        if self.registers:
            # A call loads and stores its tile; nothing stays in registers from call to call.
            if outer >= self.chain.held:
                return False
            touched = self.between.view(inner, in_call=True).take(self.whole)
            return collapse(touched <= self.place.capacity)
        return self.between.fits(inner, outer, self.place.capacity)

    def passes(self, inner: Position, outer: int) -> Truth:
        """Return whether what a call has read of the operands is there when the loop comes round.

        Each step of its sums reads it anew, be it the same as in the step before.
        """
        return outer < self.chain.sides and self.stays(inner, outer)

    def holds(self, t: int) -> Truth:
        """Return whether a copy is still there when it is first used.

        Its source has passed through beside it by then. If it is gone, what was packed is
        fetched once more, from farther out.
        """
        inside, source = self.between.refills[t]
        found: Truth = self.between.held[t][inside] + source[inside] <= self.place.capacity
        return found

    def keeps(self, t: int) -> Truth:
        """Return whether a copy made for a farther store never leaves this one.

        Then it is written and read here, and only its source comes in.
        """
        inside, source = self.between.refills[t]
        found: Truth = self.whole[inside] + source[inside] <= self.place.capacity
        return found

    def covers(self, between: Size) -> Truth:
        """Return whether what one work touches is there for a later one, with all between them."""
        return collapse(between <= self.place.capacity)

    @property
    def touched(self) -> Size:
        """What all loops touch."""
        return self.whole[-1]

    def comes_once(self, came: Size, whole: Size) -> Truth:
        """Return whether sums come once, so that they are as wide as elements by then."""
        found: Truth = came < WHOLE_SUM_PASSES * whole
        return found


class Listing3(Residency):
    """Whether arrays stay by Listing 3 of the paper: all that a loop touches has to fit."""

    def stays(self, inner: Position, outer: int) -> Truth:
        """Return whether all that the loops up to one touch fits."""
        del inner
        found: Truth = self.whole[outer] <= self.place.capacity
        return found

    def passes(self, inner: Position, outer: int) -> Truth:
        """Return whether what a call reads of operands is there when the loop comes round."""
        return outer < self.chain.sides and super().stays(inner, outer)


class TileResidency:
    """Whether arrays stay as programs have it: a level keeps what its tile touches, and no more.

    So copies are there when they are first used, and none that is made for a farther store stays.
    """

    def __init__(
        self,
        chain: Chain,
        places: Sequence[LevelView],
        at: int,
        known: dict[tuple[Any, ...], Between] | None = None,
    ) -> None:
        """Ask for one of several places."""
        del known
        self.chain, self.registers, self.outermost = chain, at == 0, at + 1 == len(places)
        tiles = [chain.tiles[one.name] for one in places[: at + 1] if one.name in chain.tiles]
        self.tile, self.around_works = max(tiles, default=0), bool(tiles)
        self.touched: Size = 0.0

    def stays(self, inner: Position, outer: int) -> Truth:
        """Return whether what the inner loops touch is there when the outer one comes round."""
        return outer < self.chain.held if self.registers else inner <= self.tile

    def passes(self, inner: Position, outer: int) -> Truth:
        """Return whether what a call reads of operands is there when the loop comes round."""
        return outer < self.chain.sides and self.stays(inner, outer)

    def holds(self, t: int) -> Truth:
        """Return whether a copy is still there when it is first used."""
        del t
        return True

    def keeps(self, t: int) -> Truth:
        """Return whether a copy made for a farther store never leaves this one."""
        del t
        return False

    def covers(self, between: Size) -> Truth:
        """Return whether what one work touches is there for a later one: both are in the tile."""
        del between
        return self.around_works

    def comes_once(self, came: Size, whole: Size) -> Truth:
        """Return whether sums come once, so that they are as wide as elements by then."""
        del came, whole
        return self.outermost


AnyResidency: TypeAlias = Residency | TileResidency

RESIDENCIES: Mapping[Rule, type[AnyResidency]] = {
    "distance": Residency,
    "listing3": Listing3,
    "tiles": TileResidency,
}
"""What says by each rule what stays."""


def level_of(chain: Chain, t: int, places: Sequence[LevelView]) -> int:
    """Return the number of the place that an access's copy lives in; beyond all if prepared."""
    if t not in chain.buffers:
        return 0
    _, buffer = chain.buffers[t]
    if not is_filled(buffer):
        return len(places)
    return next(at for at, place in enumerate(places) if place.name == buffer.level)


def is_filled(buffer: Buffer) -> bool:
    """Return whether calls fill a copy; if not, it was made before."""
    return buffer.layout != "prepared"


def footprints_at(
    chain: Chain, t: int, line: int, *, near: bool, largest: bool = True
) -> list[Size]:
    """Return what an access touches at a place: of its copy where that is near, as wide as sums.

    Parameters
    ----------
    chain, t
        Which access.
    line
        Bytes of a line of the place.
    near
        Whether its copy is what is read there.
    largest
        Whether of largest boxes.
    """
    if near and t in chain.buffers:
        return chain.footprints(chain.buffers[t][1].holds, 1, largest=largest)
    found = chain.footprints(chain.accesses[t], line, largest=largest)
    return found if t or chain.width == 1 else [size * chain.width for size in found]
