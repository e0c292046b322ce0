"""Bytes that every level moves, for one nest or for many of the same loop order at once.

Size are numbers or arrays of them: the integer repair prices thousands of tilings with the
very code that prices one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from tilesolve.constants.policy import PACK_CROSSINGS, WHOLE_SUM_PASSES
from tilesolve.model.access import Access, Box, Shared, Size
from tilesolve.model.chain import Chain, collapse
from tilesolve.model.loop_tree import Buffer, LoopTree
from tilesolve.model.walk import Position, Rule, Truth, choose, walk_loops

Evicts = Callable[[Access, Box, "LevelView"], float]
"""The share of what a box touches of an access that evicts itself from a place."""


@dataclass(frozen=True, slots=True)
class LevelView:
    """A place that holds a working set, and the level that refills it.

    Parameters
    ----------
    name
        The register file or a cache.
    capacity
        Bytes that a working set may take in it.
    line
        Bytes of the unit it is filled by.
    server
        The next level out, whose bandwidth the refills take.
    bandwidth
        Bytes per second of the server.
    ways
        Associativity; None where it is unknown, full or not a cache's.
    read
        Bytes per second at which the server is read and not written; None: at its bandwidth.

    Examples
    --------
    >>> LevelView("L1", 32768.0, 64, server="L2", bandwidth=8e10).ways is None
    True
    """

    name: str
    capacity: float
    line: int
    server: str
    bandwidth: float
    ways: int | None = None
    read: float | None = None

    def seconds(self, volumes: Sequence[Any]) -> Any:  # noqa: ANN401 - numbers, arrays or signomials
        """Return how long the server takes for the volumes of all tensors, output first.

        Operands are only read, and that a server may do no faster than it reads and writes.

        Examples
        --------
        >>> LevelView("L2", 2.0**20, 64, "L3", bandwidth=40e9, read=20e9).seconds([4e9, 1e9, 1e9])
        0.2
        """
        output, *operands = volumes
        read = min(self.bandwidth, self.read or self.bandwidth)
        return output * (1 / self.bandwidth) + sum(operands, output * 0) * (1 / read)

    def ways_for(self, tensors: int) -> int | None:
        """Return the ways that so many tensors divide among them, each in whole ones (Eq. 9).

        None where its capacity is all that counts: where ways are unknown, or fewer than tensors,
        which then share some whatever the tiles are.

        Examples
        --------
        >>> place = LevelView("L1", 32768.0, 64, server="L2", bandwidth=8e10, ways=2)
        >>> place.ways_for(2), place.ways_for(3)
        (2, None)
        """
        return None if self.ways is None or self.ways < tensors else self.ways


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What a tiling moves.

    Parameters
    ----------
    moved
        For each store the bytes of each tensor that come in: its misses.
    volumes
        The same both ways and with packing.
    packing
        The part of the volumes that packing causes.
    packed
        Elements of each tensor that are copied, repetitions counted.
    relaid
        Those of them that window copies have.
    calls
        Boxes of the first band: calls of the microkernel.

    Examples
    --------
    >>> Traffic(((8.0,),), ((16.0,),), ((0.0,),), (0.0,), 0.0, 1).volumes[0][0]
    16.0
    """

    moved: tuple[tuple[Size, ...], ...]
    volumes: tuple[tuple[Size, ...], ...]
    packing: tuple[tuple[Size, ...], ...]
    packed: tuple[Size, ...]
    relaid: Size
    calls: Size


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
        near = [not at or at <= _level_of(chain, t, places) for t in number]
        self.held = [_footprints(chain, t, line, near=near[t]) for t in number]
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

    def fits(self, inner: Position, outer: int) -> Truth:
        """Return whether all that the loops up to one touch fits: Listing 3 of the paper."""
        del inner
        found: Truth = self.whole[outer] <= self.place.capacity
        return found

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


def count_traffic(
    tree: LoopTree,
    places: Sequence[LevelView],
    rule: Rule = "distance",
    evicts: Evicts | None = None,
) -> Traffic:
    """Return the bytes that a tree moves into each of the stores.

    A packed operand is read from its copy in all stores nearer than the copy's; its own store
    and those beyond see the source, line by line.

    Parameters
    ----------
    tree
        One nest, or many of the same loops.
    places
        The register file and the caches, nearest first.
    rule
        When an array outlives a loop that does not move it: by ``"distance"``, if what comes
        between its uses fits beside it, or by ``"listing3"`` of the paper, if everything
        inside the loop fits.
    evicts
        The share of what a box touches of an access that evicts itself from a place; None: nothing
        does.

    Examples
    --------
    Two tilings at once, of 8 and of 16 columns for a call:

    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.model.loop_tree import tree_of_bands
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> boxes = ({"m": 8, "n": np.array([8, 16]), "k": 64}, dict.fromkeys("mnk", 64))
    >>> bands = (("register", ("m", "n", "k")), ("memory", ("m", "n", "k")))
    >>> tree = tree_of_bands(problem, bands, boxes, (None, None), "store")
    >>> found = count_traffic(tree, [LevelView("register", 2048.0, 1, "L1", 1e10)])
    >>> found.moved[0][1].tolist()
    [262144.0, 131072.0]
    """
    chain = Chain(tree)
    copied = {t: chain.copied(t) for t, (_, one) in chain.buffers.items() if _is_filled(one)}
    sizes = {t: n * chain.buffers[t][1].holds.element for t, n in copied.items()}
    moved, volumes, packing = [], [], []
    for at, place in enumerate(places):
        residency = Residency(chain, places, at)
        came = _come(chain, places, at, residency, rule, evicts)
        extra: list[Size] = [0.0] * len(came)
        for t, size in sizes.items():
            level = _level_of(chain, t, places)
            if at == level:
                came[t] = came[t] + choose(residency.holds(t), 0.0, size)
            if at >= level:
                continue
            # The source comes in as it is, the copy goes out and comes in.
            crossings: Size = (2.0 if at == 0 else PACK_CROSSINGS) - 1
            wide = chain.buffers[t][1].holds.element / chain.accesses[t].element
            crossings = 1 + wide * crossings
            if at:
                kept = residency.keeps(t)
                came[t] = choose(kept, np.maximum(came[t] - size, 0.0), came[t])
                crossings = choose(kept, 1.0, crossings)
            extra[t] = crossings * (size / wide)
        both = list(came)
        for t in (t for t, one in enumerate(chain.accesses) if one.mode != "read"):
            whole = _mean_bytes(chain, t, place.line, near=False)[-1]
            if chain.width > 1 and at:  # sums that come once are halves by then
                once = came[t] < WHOLE_SUM_PASSES * whole
                came[t], whole = (choose(once, n / chain.width, n) for n in (came[t], whole))
            # A first write needs no read in registers; past them it does unless it is streamed.
            unread = tree.output == "stream" or (tree.output == "store" and at == 0)
            both[t] = 2 * came[t] - (whole if unread else 0.0)
        moved.append(tuple(came))
        packing.append(tuple(extra))
        volumes.append(tuple(a + b for a, b in zip(both, extra, strict=True)))
    count = tuple(copied.get(t, 0.0) for t in range(len(chain.accesses)))
    relaid: Size = sum(n for t, n in copied.items() if chain.buffers[t][1].layout == "windows")
    return Traffic(tuple(moved), tuple(volumes), tuple(packing), count, relaid, chain.calls)


def _come(
    chain: Chain,
    places: Sequence[LevelView],
    at: int,
    residency: Residency,
    rule: Rule,
    evicts: Evicts | None,
) -> list[Size]:
    """Return the bytes of each access that a place takes in, copies made there left out.

    The working set of a copy's own store holds the copy; what comes in is the source. One that was
    prepared is read everywhere.
    """
    line, reads, mean = places[at].line, [], []
    for t, access in enumerate(chain.accesses):
        near = at < _level_of(chain, t, places)
        reads.append(chain.buffers[t][1].holds if near else access)
        mean.append(_mean_bytes(chain, t, line, near=near))
    stays = residency.stays if rule == "distance" else residency.fits
    if chain.children:
        start = _start(chain, places, at, rule, evicts)
        return walk_loops(reads, chain.loops, mean, stays if at else _never, chain.runs, start)
    if at and evicts is None:
        return walk_loops(reads, chain.loops, mean, stays, chain.runs)
    if at:
        alone = [_unless(stays, chain, one, places[at], evicts) for one in reads]
        each = zip(reads, mean, alone, strict=True)
        return [walk_loops([one], chain.loops, [n], own, chain.runs)[0] for one, n, own in each]
    came = walk_loops(reads[:1], chain.loops, mean[:1], stays, chain.runs)
    return came + walk_loops(reads[1:], chain.loops, mean[1:], residency.passes, chain.runs)


def _never(inner: Position, outer: int) -> Truth:
    """Return that no register holds anything from one work to the next."""
    del inner, outer
    return False


def _start(
    chain: Chain, places: Sequence[LevelView], at: int, rule: Rule, evicts: Evicts | None
) -> list[Size]:
    """Return the bytes of each array that works take in which run one after another.

    What an earlier one touched is there for a later one if all that both touch, and those between
    them, fits.
    """
    came: dict[str, Size] = {}
    touched: dict[str, Size] = {}
    first: dict[str, int] = {}
    lumps: list[Size] = []
    for number, child in enumerate(chain.children):
        residency = Residency(child, places, at)
        lumps.append(residency.whole[-1])
        moved = _come(child, places, at, residency, rule, evicts)
        for t, (one, size) in enumerate(zip(child.accesses, moved, strict=True)):
            own = _mean_bytes(child, t, places[at].line, near=False)[-1]
            if one.array not in came:
                came[one.array], touched[one.array], first[one.array] = size, own, number
                continue
            between = sum(lumps[first[one.array] :])
            there = collapse(between <= places[at].capacity) if at else False
            more = choose(there, np.maximum(size - touched[one.array], 0.0), size)
            came[one.array] = came[one.array] + more
            touched[one.array] = np.maximum(touched[one.array], own)
    return [came[one.array] for one in chain.accesses]


def _unless(
    stays: Callable[[Position, int], Truth],
    chain: Chain,
    access: Access | Shared,
    place: LevelView,
    evicts: Evicts | None,
) -> Callable[[Position, int], Truth | float]:
    """Return what stays of one access although it evicts itself, outside of calls."""
    if evicts is None or isinstance(access, Shared):
        return stays

    def found(inner: Position, outer: int) -> Truth | float:
        if outer < chain.sides:
            return True
        return stays(inner, outer) and 1 - evicts(access, chain.largest_box(int(inner)), place)

    return found


def _level_of(chain: Chain, t: int, places: Sequence[LevelView]) -> int:
    """Return the number of the place that an access's copy lives in; beyond all if prepared."""
    if t not in chain.buffers:
        return 0
    _, buffer = chain.buffers[t]
    if not _is_filled(buffer):
        return len(places)
    return next(n for n, place in enumerate(places) if place.name == buffer.level)


def _is_filled(buffer: Buffer) -> bool:
    """Return whether calls fill a copy; if not, it was made before."""
    return buffer.layout != "prepared"


def _mean_bytes(chain: Chain, t: int, line: int, *, near: bool) -> list[Size]:
    return _footprints(chain, t, line, near=near, largest=False)


def _footprints(chain: Chain, t: int, line: int, *, near: bool, largest: bool = True) -> list[Size]:
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
