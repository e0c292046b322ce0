"""The loops of a nest one by one, and the iterations between two of them as boxes.

All is exact, cut tiles included: what working sets are counted from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles
from tilesolve.model.nest import Nest, tile_counts
from tilesolve.packing.cover import CellSequence

Ranges = Mapping[str, tuple[int, int]]
"""For each letter its first iteration, and the one after its last: a box of iterations."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that runs, over tiles of one letter within a larger tile.

    Parameters
    ----------
    letter
        What it goes along.
    band
        The number of its band in the nest.
    over
        The level whose tiles it goes over; empty where it goes over single iterations.
    step, span
        The sides of a tile and of what it goes through, where neither is cut.
    tiles, begins
        Tiles along the whole extent, and those of the next larger kind.
    cells
        Of a letter whose register tiles have chosen sizes.

    Examples
    --------
    >>> loop = Loop("m", 1, "L1", step=4, span=10, tiles=3, begins=1)
    >>> [loop.part(trip, 10) for trip in range(loop.trips(10))]
    [(0, 4), (4, 4), (8, 2)]
    """

    letter: str
    band: int
    over: str
    step: int
    span: int
    tiles: int
    begins: int
    cells: CellSequence | None = None

    def trips(self, size: int) -> int:
        """Return how many trips there are through so many iterations."""
        if self.cells is None:
            return -(-size // self.step)
        return len(self.cells.cut(self.band, size))

    def part(self, trip: int, size: int) -> tuple[int, int]:
        """Return where a trip begins in so many iterations, and how many are its own."""
        if self.cells is None:
            begin = trip * self.step
            return begin, min(self.step, size - begin)
        parts = self.cells.cut(self.band, size)
        return sum(parts[:trip]), parts[trip]


def loops_of(problem: Problem, nest: Nest) -> list[Loop]:
    """Return the loops of a nest that run, outermost first.

    A call goes over the sides of its register tile in each step of its sums, and each batch is a
    call of its own.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 6)
    >>> nest = Nest.of(problem, [("register", "mnk", dict(m=2, n=1, k=1)), ("memory", "kmn", 6)])
    >>> [(loop.letter, loop.over) for loop in loops_of(problem, nest)]
    [('n', 'register'), ('m', 'register'), ('k', 'register'), ('m', '')]
    """
    roles = Roles.of_problem(problem)
    rank = {i: 2 if i in roles.batches else int(i in roles.sums) for i in problem.sizes}
    sequences = nest.sequences
    tiles = {
        letter: sequences[letter].counts
        if letter in sequences
        else tile_counts([band[letter] for band in nest.bands])
        for letter in problem.sizes
    }
    inner, counts, names = dict.fromkeys(problem.sizes, 1), dict(problem.sizes), nest.names
    found: list[Loop] = []
    for at, band in enumerate(nest.bands):
        order = band.order if at else sorted(band.order, key=rank.__getitem__)
        for letter in order:
            begins, count, step = tiles[letter][at], counts[letter], inner[letter]
            if count > begins:
                over = names[at - 1] if at else ""
                own = sequences.get(letter) if at else None
                found.append(Loop(letter, at, over, step, band[letter], count, begins, own))
            counts[letter], inner[letter] = begins, band[letter]
    return found[::-1]


def last_trips(
    problem: Problem, loops: Sequence[Loop], trips: Sequence[int | None]
) -> tuple[int, ...]:
    """Return an iteration whose loops are in given trips, or in their last one for None."""
    box = whole(problem)
    found = []
    for loop, trip in zip(loops, trips, strict=True):
        low, high = box[loop.letter]
        found.append(loop.trips(high - low) - 1 if trip is None else trip)
        box = _enter(box, loop, found[-1])
    return tuple(found)


def whole(problem: Problem) -> Ranges:
    """Return all iterations of a problem as a box."""
    return {letter: (0, extent) for letter, extent in problem.sizes.items()}


def boxes_between(
    box: Ranges, loops: Sequence[Loop], source: Sequence[int], target: Sequence[int]
) -> list[Ranges]:
    """Return all iterations from one to a later one as boxes, both included.

    Parameters
    ----------
    box
        What the loops go through.
    loops
        Outermost first; what they leave open is part of the first and of the last iteration.
    source, target
        The trip of each loop.

    Examples
    --------
    From the first iteration to the beginning of the next row:

    >>> loops = [Loop("m", 1, "", 1, 4, 4, 1), Loop("k", 1, "", 1, 9, 9, 1)]
    >>> boxes_between({"m": (0, 4), "k": (0, 9)}, loops, (0, 0), (1, 0))
    [{'m': (0, 1), 'k': (0, 9)}, {'m': (1, 2), 'k': (0, 1)}]
    """
    pairs = list(zip(source, target, strict=True))
    carrier = next((at for at, (first, last) in enumerate(pairs) if first != last), None)
    if carrier is None:
        for loop, trip in zip(loops, source, strict=True):
            box = _enter(box, loop, trip)
        return [box]
    for loop, trip in zip(loops[:carrier], source, strict=False):
        box = _enter(box, loop, trip)
    loop = loops[carrier]
    first, last = _enter(box, loop, source[carrier]), _enter(box, loop, target[carrier])
    found = list(_onwards(first, loops[carrier + 1 :], source[carrier + 1 :]))
    middle = first[loop.letter][1], last[loop.letter][0]
    if middle[0] < middle[1]:
        found.append({**box, loop.letter: middle})
    return [*found, *_up_to(last, loops[carrier + 1 :], target[carrier + 1 :])]


def _enter(box: Ranges, loop: Loop, trip: int) -> Ranges:
    """Return what one trip of a loop goes through."""
    low, high = box[loop.letter]
    start, side = loop.part(trip, high - low)
    return {**box, loop.letter: (low + start, low + start + side)}


def _onwards(box: Ranges, loops: Sequence[Loop], trips: Sequence[int]) -> Iterator[Ranges]:
    """Yield the iterations of a box from one on."""
    for at, (loop, trip) in enumerate(zip(loops, trips, strict=True)):
        if not any(trips[at:]):
            break
        inside = _enter(box, loop, trip)
        after = inside[loop.letter][1], box[loop.letter][1]
        if after[0] < after[1]:
            yield {**box, loop.letter: after}
        box = inside
    yield box


def _up_to(box: Ranges, loops: Sequence[Loop], trips: Sequence[int]) -> Iterator[Ranges]:
    """Yield the iterations of a box up to one."""
    for loop, trip in zip(loops, trips, strict=True):
        inside = _enter(box, loop, trip)
        before = box[loop.letter][0], inside[loop.letter][0]
        if before[0] < before[1]:
            yield {**box, loop.letter: before}
        box = inside
    yield box
