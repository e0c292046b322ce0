"""Bytes that every level moves, for one nest or for many of the same loop order at once.

Sizes are numbers or arrays of them: the integer repair prices thousands of tilings with the
very code that prices one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from tilesolve.constants.policy import PACK_CROSSINGS, WHOLE_SUM_PASSES
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.model.copies import repeats
from tilesolve.model.footprints import Sizes
from tilesolve.model.nest import CopyKind
from tilesolve.model.tiling import PANEL, LoopPath, Tiling, collapse
from tilesolve.model.walk import Position, Rule, Truth, choose, walk


@dataclass(frozen=True, slots=True)
class Store:
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
    >>> Store("L1", 32768.0, 64, server="L2", bandwidth=8e10).ways is None
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
        >>> Store("L2", 2.0**20, 64, "L3", bandwidth=40e9, read=20e9).seconds([4e9, 1e9, 1e9])
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
        >>> place = Store("L1", 32768.0, 64, server="L2", bandwidth=8e10, ways=2)
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

    moved: tuple[tuple[Sizes, ...], ...]
    volumes: tuple[tuple[Sizes, ...], ...]
    packing: tuple[tuple[Sizes, ...], ...]
    packed: tuple[Sizes, ...]
    relaid: Sizes
    calls: Sizes


class Residency:
    """Whether tensors stay in one cache between their uses.

    Between two uses of what the innermost loops touch, an LRU cache sees the rest of the one
    round and the beginning of the next: of every tensor what these loops touch, once if the
    outermost of them moves over it, so that the new part replaces the old one step by step;
    but twice, the old and the new, if it is touched as a whole in each step and a loop further
    out has moved it on. A packed copy that is made again brings its source along.
    """

    def __init__(
        self,
        path: LoopPath,
        place: Store,
        at: int,
        copies: Sequence[int],
        lines: Sequence[int | None],
        names: Sequence[str],
        widths: Sequence[float],
    ) -> None:
        self.path, self.place, self.registers = path, place, at == 0
        tensors = path.tensors
        copied = [c if at else 0 for c in copies]
        seen, own = lines_seen(place, lines, [at <= c or not c for c in copied])
        self.held = _as_summed(path.footprints(seen, largest=True), own, widths)
        sources = path.footprints([place.line] * len(tensors), largest=True)
        # Registers hold the output's tile; the operands pass through the few that are left.
        kept = self.held if at else self.held[:1]
        self.whole = [sum(sizes) for sizes in zip(*kept, strict=True)]
        self.refills = {t: (path.through[names[c]], sources[t]) for t, c in enumerate(copied) if c}
        self.still = [
            [True, *(letter not in tensor.letters for letter, _ in path.loops)]
            for tensor in tensors
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
            return outer < self.path.call and _at(inner)(self.whole) <= self.place.capacity
        if outer >= self.path.call:
            inner = choose(inner > self.path.call, inner, self.path.call)
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
        return outer < self.path.sides and self.stays(inner, outer)

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

    def _between(self, inner: Position, outer: int) -> Sizes:
        """Return the bytes that come between two uses of what the inner loops touch."""
        total: Sizes = 0.0
        there = _at(inner)
        for t, held in enumerate(self.held):
            latest = self.path.latest(t)[outer + 1]
            touched = there(held)
            again = (latest > inner) & there(self.still[t])
            comes = touched + choose(again, touched, 0.0)
            if t in self.refills:
                inside, source = self.refills[t]
                far = there(source)
                swept = held[inside] + far + choose(again, far, 0.0)
                made = latest > inside
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


def traffic(
    problem: Problem, tiling: Tiling, places: Sequence[Store], rule: Rule = "distance"
) -> Traffic:
    """Return the bytes that a tiling moves into each of the stores.

    A packed operand is read from its copy in all stores nearer than the copy's; its own store
    and those beyond see the source, line by line.

    Parameters
    ----------
    problem
        The contraction or convolution.
    tiling
        One nest, or many of the same order.
    places
        The register file and the caches, nearest first.
    rule
        When a tensor outlives a loop that does not index it: by ``"distance"``, if what comes
        between its uses fits beside it, or by ``"listing3"`` of the paper, if everything
        inside the loop fits.

    Examples
    --------
    Two tilings at once, of 8 and of 16 columns for a call:

    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> boxes = ({"m": 8, "n": np.array([8, 16]), "k": 64}, dict.fromkeys("mnk", 64))
    >>> bands = (("register", ("m", "n", "k")), ("memory", ("m", "n", "k")))
    >>> tiling = Tiling(bands, boxes, (None, None), "store")
    >>> found = traffic(problem, tiling, [Store("register", 2048.0, 1, "L1", 1e10)])
    >>> found.moved[0][1].tolist()
    [262144.0, 131072.0]
    """
    path = LoopPath(problem, tiling)
    names = [place.name for place in places]
    copies, kinds, lines, widths = copies_of(problem, tiling, names)
    packed = [
        path.copied_bytes(t, path.through[names[at]], lines[t] or 0, kind) if at else 0.0
        for t, (at, kind) in enumerate(zip(copies, kinds, strict=True))
    ]
    width = widths[0]
    moved, volumes, packing = [], [], []
    for at, place in enumerate(places):
        residency = Residency(path, place, at, copies, lines, names, widths)
        # The working set of a copy's own store holds the copy; what comes in is the source. One
        # that was prepared is read everywhere.
        seen, own = lines_seen(place, lines, [at < c or not c for c in copies])
        mean = _as_summed(path.footprints(seen), own, widths)
        tensors = [
            tensor if line else panel
            for tensor, panel, line in zip(path.tensors, path.panels, seen, strict=True)
        ]
        stays = residency.stays if rule == "distance" else residency.fits
        if at:
            came = walk(tensors, path.loops, mean, stays, path.runs)
        else:
            came = walk(tensors[:1], path.loops, mean[:1], stays, path.runs)
            came += walk(tensors[1:], path.loops, mean[1:], residency.passes, path.runs)
        # The source comes in as it is, the copy goes out and comes in.
        crossings = [1 + own * ((2.0 if at == 0 else PACK_CROSSINGS) - 1) for own in widths]
        for t, c in enumerate(copies):
            if c == at and c:
                came[t] = came[t] + choose(residency.holds(t), 0.0, widths[t] * packed[t])
            elif 0 < at < c:
                kept = residency.keeps(t)
                came[t] = choose(kept, np.maximum(came[t] - widths[t] * packed[t], 0.0), came[t])
                crossings[t] = choose(kept, 1.0, crossings[t])
        whole = mean[0][-1]
        if width > 1 and at:  # sums that come once are halves by then
            once = came[0] < WHOLE_SUM_PASSES * whole
            came[0], whole = (choose(once, size / width, size) for size in (came[0], whole))
        # A first write needs no read in registers; past them it does unless it is streamed.
        unread = tiling.output == "stream" or (tiling.output == "store" and at == 0)
        written = 2 * came[0] - (whole if unread else 0.0)
        extra = [crossings[t] * packed[t] if at < c else 0.0 for t, c in enumerate(copies)]
        moved.append(tuple(came))
        packing.append(tuple(extra))
        volumes.append(tuple(a + b for a, b in zip([written, *came[1:]], extra, strict=True)))
    count = tuple(size / problem.itemsize for size in packed)
    windows = (kind == "windows" for kind in kinds)
    relaid: Sizes = sum(n for n, relaid in zip(count, windows, strict=True) if relaid)
    return Traffic(tuple(moved), tuple(volumes), tuple(packing), count, relaid, path.calls)


def copies_of(
    problem: Problem, tiling: Tiling, names: Sequence[str]
) -> tuple[list[int], tuple[CopyKind, ...], list[int | None], list[float]]:
    """Return for each tensor the place and the kind of its copy, its line, and its widths as sums.

    Parameters
    ----------
    problem, tiling
        What is computed, and how.
    names
        Of the places.
    """
    copies = [0, *(names.index(level) if level else 0 for level in tiling.packed)]
    kinds: tuple[CopyKind, ...] = ("in place", *_kinds(tiling))
    lines = [_copy_line(problem.spec, t, kind) for t, kind in enumerate(kinds)]
    width = problem.sum_itemsize / problem.itemsize
    widths = [width, *(1.0 if kind == "windows" else width for kind in kinds[1:])]
    return copies, kinds, lines, widths


def lines_seen(
    place: Store, lines: Sequence[int | None], near: Sequence[bool]
) -> tuple[list[int], list[bool]]:
    """Return the bytes of lines in which tensors are read, and whether from copies of their own.

    Parameters
    ----------
    place
        Where.
    lines
        Of copies, None where a tensor has none.
    near
        Whether the copy is what is read there.
    """
    own = [line is not None and close for line, close in zip(lines, near, strict=True)]
    seen = [
        place.line if line is None or not close else line
        for line, close in zip(lines, near, strict=True)
    ]
    return seen, own


def _as_summed(
    footprints: list[list[Sizes]], own: Sequence[bool], widths: Sequence[float]
) -> list[list[Sizes]]:
    """Return footprints of elements as wide as sums, and as what is read from copies of one's own.

    Parameters
    ----------
    footprints
        Of each tensor, by elements of arrays.
    own
        Whether it is read from a copy.
    widths
        How many times as wide elements are there, or in sums.
    """
    return [
        steps if width == 1 or not (copied or t == 0) else [size * width for size in steps]
        for t, (steps, copied, width) in enumerate(zip(footprints, own, widths, strict=True))
    ]


def _kinds(tiling: Tiling) -> tuple[CopyKind, ...]:
    """Return the kind of each operand's copy."""
    return tiling.kinds or tuple("strips" if level else "in place" for level in tiling.packed)


def _copy_line(spec: Spec, tensor: int, kind: CopyKind) -> int | None:
    """Return the bytes of a line of a copy, see `LoopPath.footprints`; None for no copy."""
    if kind == "in place":
        return None
    return PANEL if kind != "windows" and repeats(spec, tensor) else 1
