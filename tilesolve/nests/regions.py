"""Regions of stages: what a box of the root needs of each producer, by interval arithmetic.

The root is the stage whose box is given. Every other stage that leads to it is computed where its
consumers read it: each of its letters reaches from a first to a last value, which follow the first
and the last value of a letter of the root. All that executors, prices and reports know about
overlap, rings and work that is done again comes from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd, lcm
from typing import Any

import numpy as np

from tilesolve.constants.nests import KEPT_REGIONS
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Box
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import SEARCHES
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, Reduce, Term
from tilesolve.model.access import Size
from tilesolve.nests.cuts import cut_stage
from tilesolve.nests.spans import Span, extreme_of, follow, hull, span_of
from tilesolve.nests.subscript_ends import Ends, subscript_ends


@dataclass(frozen=True, slots=True)
class Use:
    """What a stage reads of another one.

    Parameters
    ----------
    producer, consumer
        Names of the stages.
    spans
        For each letter of the producer's axes: in the letters of the consumer's axes.
    """

    producer: str
    consumer: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Regions:
    """What boxes of a root need of the stages that lead to it.

    Parameters
    ----------
    root
        The stage whose boxes are given.
    extents
        Of its letters.
    spans
        For each stage that leads to the root, and the root itself: of each letter of its axes.
    uses
        Who reads what of whom.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "b[y,x] = I[y,x] + I[y,x+2]; o[u,v] = b[u,v] + b[u+2,v]"
    >>> stages = parse_stages(text.replace("; ", chr(10)))
    >>> regions = find_regions(bind_stages(stages, {"y": 10, "x": 8, "u": 8, "v": 8}))
    >>> regions.box("b", {"u": (2, 3), "v": (0, 7)})
    {'y': (2, 5), 'x': (0, 7)}
    >>> regions.points("b", {"u": 4}), regions.points("b", {})
    (96, 80)
    """

    root: str
    extents: Mapping[str, int]
    spans: Mapping[str, Mapping[str, Span]]
    uses: tuple[Use, ...]

    def covers(self, stage: str) -> bool:
        """Return whether the root as a whole needs all of a stage."""
        whole = {letter: (0, extent - 1) for letter, extent in self.extents.items()}
        box = self.box(stage, whole)
        return all(box[x] == (0, span.extent - 1) for x, span in self.spans[stage].items())

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages, in the order in which they run."""
        return tuple(self.spans)

    def box(self, stage: str, box: Box) -> dict[str, tuple[int, int]]:
        """Return the first and the last value of each letter of a stage that a box needs."""
        return {letter: span.interval(box) for letter, span in self.spans[stage].items()}

    def letter_of(self, stage: str, letter: str) -> str | None:
        """Return the letter of a stage that follows one of the root; None for none or several."""
        found = [own for own, span in self.spans[stage].items() if letter in span.low.letters]
        return found[0] if len(found) == 1 and self.spans[stage][found[0]].letter else None

    def size(self, stage: str, tiles: Mapping[str, Size]) -> Size:
        """Return how many elements of a stage tiles of the root need; in symbols a posynomial."""
        sides = {letter: tiles.get(letter, extent) for letter, extent in self.extents.items()}
        found: Size = 1.0
        for span in self.spans[stage].values():
            found = span.size(sides) * found
        return found

    def points(self, stage: str, tiles: Mapping[str, int]) -> int:
        """Return how many elements of a stage are computed if each tile computes all it needs.

        Tiles begin at multiples of their sizes, the last may be shorter; letters without one are
        not divided.
        """
        spans = self.spans[stage].values()
        groups: dict[tuple[str, ...], list[Span]] = {}
        for span in spans:
            groups.setdefault(span.low.letters, []).append(span)
        moved = {letter for letters in groups for letter in letters}
        found = 1
        for letter, tile in tiles.items():
            found *= 1 if letter in moved else -(-self.extents[letter] // tile)
        for letters, several in groups.items():
            first, last = self._ends(letters, tiles)
            lengths = reduce(np.multiply, [one.lengths(first, last) for one in several])
            found *= int(np.sum(lengths))
        return found

    def _ends(
        self, letters: Sequence[str], tiles: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the first and the last values of all tiles of some letters, as open grids."""
        begins = [
            np.arange(0, self.extents[x], tiles.get(x, max(self.extents[x], 1))) for x in letters
        ]
        grid = np.ix_(*begins) if letters else ()
        first = dict(zip(letters, grid, strict=True))
        last = {
            x: np.minimum(begin + tiles.get(x, self.extents[x]), self.extents[x]) - 1
            for x, begin in first.items()
        }
        return first, last

    def trips(self, letter: str, sliding: Iterable[str]) -> dict[str, Span]:
        """Return what each trip of a loop over a letter of the root computes, by stages.

        Parameters
        ----------
        letter
            Of the root. Stages of which no axis follows it are left out.
        sliding
            Stages that are kept from one trip to the next: a trip computes what the one before
            has not. All others compute what those that read them need in this trip.

        Examples
        --------
        >>> from tilesolve.contractions.statements.computation import bind_stages
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> stages = parse_stages("b[y] = I[y]" + chr(10) + "o[u] = b[u] + b[u+2]")
        >>> regions = find_regions(bind_stages(stages, {"y": 10, "u": 8}))
        >>> [str(regions.trips("u", found)["b"].low) for found in ([], ["b"])]
        ['u', 'u+2']
        """
        kept, found = frozenset(sliding), dict[str, Span]()
        before = {letter: Ends(*[Affine.letter(letter) - 1] * 2)}
        for stage in reversed(self.stages):
            own = self.letter_of(stage, letter)
            if own is None:
                continue
            span = self.spans[stage][own]
            if stage == self.root or stage not in kept:
                first = [self._needed(use, own, letter, found) for use in self._uses_of(stage)]
                low = extreme_of([one.low for one in first], min) if first else span.low
                found[stage] = Span(span.low if low is None else low, span.high, span.extent)
                continue
            done = Ends(span.high, span.high).within(before).high
            assert done is not None
            found[stage] = Span(done + 1, span.high, span.extent)
        return found

    def ring_rows(
        self,
        stage: str,
        letter: str,
        rows: int,
        sliding: Iterable[str],
        grid: int = 1,
        trips: Mapping[str, Span] | None = None,
    ) -> int:
        """Return how many rows of a ring are in use at once.

        Parameters
        ----------
        stage
            Whose elements are kept.
        letter
            Of the root: the one that the ring's loop walks.
        rows
            How many of its values each trip of that loop has.
        sliding
            Stages that are kept from one trip to the next.
        grid
            What the first values of trips are multiples of.
        trips
            What `trips` gives, if it is known.
        """
        own = self.follower(stage, letter)
        trips = self.trips(letter, sliding) if trips is None else trips
        high = self.spans[stage][own].high
        found = 1
        for use in self._uses_of(stage):
            first = self._needed(use, own, letter, trips).low
            for value in range(0, self.period, gcd(grid, self.period)):
                latest = high.at({letter: value + rows - 1})
                found = max(found, latest - first.at({letter: value}) + 1)
        return min(found, self.spans[stage][own].extent)

    def warm_up(self, letter: str, rows: int, sliding: Iterable[str], grid: int = 1) -> int:
        """Return how far before a strip its loop begins, so that rings hold what it needs then."""
        most = 0
        for stage in sliding:
            span = self.spans[stage][self.follower(stage, letter)]
            for value in range(0, self.period, gcd(grid, self.period)):
                trips = 0
                first = span.low.at({letter: value})
                while span.high.at({letter: value - trips * rows - 1}) + 1 > first:
                    trips += 1
                most = max(most, trips * rows)
        return most

    def follower(self, stage: str, letter: str) -> str:
        """Return the letter of a stage that follows one of the root; raise if there is none."""
        found = self.letter_of(stage, letter)
        if found is None:
            raise SpecError(f"no axis of {stage} alone follows {letter} of {self.root}")
        return found

    def readers(self, stage: str) -> tuple[str, ...]:
        """Return the stages that read one."""
        return tuple(use.consumer for use in self._uses_of(stage))

    @property
    def period(self) -> int:
        """How far the root goes until all ends of all regions lie as before."""
        return lcm(*(span.period for spans in self.spans.values() for span in spans.values()))

    def _uses_of(self, stage: str) -> list[Use]:
        return [use for use in self.uses if use.producer == stage]

    def _needed(self, use: Use, own: str, letter: str, trips: Mapping[str, Span]) -> Span:
        """Return what a trip's rows of a consumer need of a letter of a producer."""
        spans = dict(self.spans[use.consumer])
        follower = self.letter_of(use.consumer, letter)
        if follower is not None and use.consumer in trips:
            spans[follower] = trips[use.consumer]
        axis = list(self.spans[use.producer]).index(own)
        return follow(use.spans[axis], spans, self.spans[use.producer][own].extent)


@lru_cache(maxsize=KEPT_REGIONS)
def find_regions(computation: Computation, root: str | None = None) -> Regions:
    """Return what boxes of a root need of the stages that lead to it.

    Parameters
    ----------
    computation
        The stages.
    root
        The name of one of them; the last if None.
    """
    sizes, names = computation.sizes, [stage.name for stage in computation.stages]
    reached = computation.stages[: names.index(root or names[-1]) + 1]
    readers = _readers(reached)
    last = reached[-1]
    own = {x: Span(Affine.letter(x), Affine.letter(x), sizes[x]) for x in last.output_letters()}
    found, uses = {last.name: own}, list[Use]()
    for producer in reversed(reached[:-1]):
        consumers = readers.get(producer.name, {})
        mine = [
            _use(computation, producer, *pair)
            for pair in consumers.values()
            if pair[0].name in found
        ]
        if not consumers and _lies_beside(computation, producer, last):
            mine = [Use(producer.name, last.name, tuple(own.values()))]
        if not mine:
            continue
        uses += mine
        letters = producer.output_letters() if producer.update is None else []
        found[producer.name] = {
            letter: hull(
                [follow(use.spans[axis], found[use.consumer], sizes[letter]) for use in mine],
                sizes[letter],
            )
            for axis, letter in enumerate(letters)
        }
    order = {name: found[name] for name in names if name in found}
    return Regions(last.name, {x: sizes[x] for x in own}, order, tuple(uses))


def _lies_beside(computation: Computation, stage: Stage, root: Stage) -> bool:
    """Return whether a result that no stage reads may be computed where the root is."""
    shapes = {computation.array(one.name).shape for one in (stage, root)}
    return stage.name in computation.outputs and slides(stage) and len(shapes) == 1


def _readers(stages: Sequence[Stage]) -> dict[str, dict[str, tuple[Stage, list[Read]]]]:
    """Return for each array the stages that read it, by their names, with what they read of it."""
    found: dict[str, dict[str, tuple[Stage, list[Read]]]] = {}
    for stage in stages:
        for read in stage.reads:
            of = found.setdefault(read.array, {})
            of.setdefault(stage.name, (stage, []))[1].append(read)
    return found


def slides(stage: Stage) -> bool:
    """Return whether a stage may be computed a part at a time: each element by itself, and all."""
    if stage.update is not None or stage.bounds or stage.in_place or stage.sequence:
        return False
    return not any(isinstance(one, Scan) or _searches(one) for one in stage.term.all)


def _searches(term: Term) -> bool:
    """Return whether a term finds a place, which several statements do."""
    return isinstance(term, Reduce) and term.name in SEARCHES


def _use(computation: Computation, producer: Stage, consumer: Stage, reads: Sequence[Read]) -> Use:
    """Return what a stage reads of another one, given the elements."""
    shape = computation.array(producer.name).shape
    summed = {x: Ends.numbers(*ends) for x, ends in computation.box(consumer).items()}
    summed = {x: summed[x] for x in consumer.summed}
    cut = cut_stage(computation, consumer)
    places: list[tuple[Box, Read]] = [
        (part.box, read) for part in cut for read in part.term.reads if read.array == producer.name
    ]
    if len(cut) == 1 or not places:
        places = [(cut[0].box, read) for read in reads]
    spans = []
    for axis, extent in enumerate(shape):
        ends = [
            (box, subscript_ends(read.subscripts[axis], box).within(summed)) for box, read in places
        ]
        if len(cut) > 1:
            ends = [(box, one.along(ends[0][1], box)) for box, one in ends]
        different = dict.fromkeys(one for _, one in ends)
        spans.append(hull([span_of(one, extent) for one in different], extent))
    return Use(producer.name, consumer.name, tuple(spans))
