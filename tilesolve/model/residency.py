"""Whether arrays stay in a cache between their uses: by reuse distance, Listing 3, or tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from tilesolve.constants.policy import WHOLE_SUM_PASSES
from tilesolve.model.access import Size
from tilesolve.model.chain import Chain, collapse
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import Buffer
from tilesolve.model.walk import Position, Rule, Truth, choose


class Residency:
    """Whether arrays stay in one cache between their uses.

    Between two uses of what the innermost loops touch, an LRU cache sees the rest of one round and
    the beginning of the next. Each array's tile counts once if the outermost of these loops moves
    over it: new elements replace old ones step by step. It counts twice if every step touches the
    whole tile and a loop further out then moves on: the old tile is still there when the new one
    arrives. A packed copy that is made again brings its source along.
    """

    def __init__(self, chain: Chain, places: Sequence[LevelView], at: int) -> None:
        self.chain, self.place, self.registers = chain, places[at], at == 0
        line, number = self.place.line, range(len(chain.accesses))
        near = [not at or at <= level_of(chain, t, places) for t in number]
        self.held = [footprints_at(chain, t, line, near=near[t]) for t in number]
        self.moved = [
            chain.latest(t, 1 if near[t] and t in chain.buffers else line) for t in number
        ]
        # Registers hold the output's tile; the operands pass through the few that are left.
        kept = self.held if at else self.held[:1]
        self.whole = [sum(sizes) for sizes in zip(*kept, strict=True)]
        self.refills = {
            t: (inside, chain.footprints(chain.accesses[t], self.place.line, largest=True))
            for t, (inside, buffer) in chain.buffers.items()
            if at and buffer.layout != "prepared"
        }
        self.still = [
            [True, *(letter not in access.letters for letter, _ in chain.loops)]
            for access in chain.accesses
        ]
        self._known: dict[tuple[int, int], Truth] = {}

    def stays(self, inner: Position, outer: int) -> Truth:
        """Return whether what the inner loops touch is there when the outer one comes round."""
        if self.registers:
            # A call loads and stores its tile; nothing stays in registers from call to call.
            return outer < self.chain.held and _at(inner)(self.whole) <= self.place.capacity
        if outer >= self.chain.call:
            inner = choose(inner > self.chain.call, inner, self.chain.call)
        if isinstance(inner, np.ndarray):
            return collapse(self._between(inner, outer) <= self.place.capacity)
        if (inner, outer) not in self._known:
            found = collapse(self._between(inner, outer) <= self.place.capacity)
            self._known[inner, outer] = found
        return self._known[inner, outer]

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
        inside, source = self.refills[t]
        found: Truth = self.held[t][inside] + source[inside] <= self.place.capacity
        return found

    def keeps(self, t: int) -> Truth:
        """Return whether a copy made for a farther store never leaves this one.

        Then it is written and read here, and only its source comes in.
        """
        inside, source = self.refills[t]
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

    def _between(self, inner: Position, outer: int) -> Size:
        """Return the bytes that come between two uses of what the inner loops touch."""
        total: Size = 0.0
        there = _at(inner)
        for t, held in enumerate(self.held):
            touched = there(held)
            again = (self.moved[t][outer + 1] > inner) & there(self.still[t])
            comes = touched + choose(again, touched, 0.0)
            if t in self.refills:
                inside, source = self.refills[t]
                far = there(source)
                swept = held[inside] + far + choose(again, far, 0.0)
                made = self.chain.latest(t)[outer + 1] > inside
                brought = choose(made, held[inside] + source[inside], comes)
                comes = choose(inner > inside, swept, brought)
            total = total + comes
        return total


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

    def __init__(self, chain: Chain, places: Sequence[LevelView], at: int) -> None:
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


def _at(position: Position) -> Callable[[Sequence[Any]], Any]:
    """Return what takes values at a position, which may differ from nest to nest."""
    if not isinstance(position, np.ndarray) or not position.ndim:
        return itemgetter(int(position))
    low, high = int(position.min()), int(position.max())
    others = [(number, position == number) for number in range(low + 1, high + 1)]

    def taken(values: Sequence[Any]) -> Any:  # noqa: ANN401
        found: Any = values[low]
        for number, there in others:
            # Loops that leave a value alone have the same one before and after them.
            if values[number] is not found:
                found = np.where(there, values[number], found)
        return found

    return taken


def level_of(chain: Chain, t: int, places: Sequence[LevelView]) -> int:
    """Return the number of the place that an access's copy lives in; beyond all if prepared."""
    if t not in chain.buffers:
        return 0
    _, buffer = chain.buffers[t]
    if not is_filled(buffer):
        return len(places)
    return next(n for n, place in enumerate(places) if place.name == buffer.level)


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
