"""Bands: stages that run a band of rows at a time, so that caches hold what lies between them.

Contractions run by the microkernels of plans for a band. Each stage computes in each band the rows
that those before it have not; its buffer has the rows that are still read. Before a band, rows that
stay move to the buffer's front.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

from tilesolve.constants.nests import PIPELINE_BANDS
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.nests.band_steps import BandBuffer, BandStep
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.regions import Regions, find_regions, slides
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import BandSolution, NestSolution
from tilesolve.pipelines.grouping import Graph, Names
from tilesolve.pipelines.row_parts import RowPart, Rows, list_borders, take_rows
from tilesolve.system.units import format_count

Solve = Callable[[NestRequest], tuple[NestSolution, ...]]
"""Returns what computes stages one after another, in one thread."""


def choose_bands(
    request: NestRequest, members: Sequence[Names], solve: Solve
) -> BandSolution | None:
    """Return how stages run in bands at the least price; None if they do not.

    Parameters
    ----------
    request
        Of all stages.
    members
        Those that run together within a band, in order; each of these reads another one.
    solve
        What solves for a part of them.
    """
    letter = find_rows(request.computation, members)
    if letter is None:
        return None
    chain, found = _Chain(request, members, letter), list[BandSolution]()
    known: dict[Computation, tuple[NestSolution, ...]] = {}
    for rows in PIPELINE_BANDS:
        if rows * request.threads >= chain.extent:
            break
        with suppress(SpecError):  # rows that move would overlap, or an array has none
            kinds, strips, buffers = chain.in_bands(rows)
            for one in kinds:
                if one not in known:
                    known[one] = solve(replace(request.alone(), computation=one))
            count = format_count(len(chain.regions.stages), "stage")
            why = f"{count} in bands of {rows} rows of {chain.regions.root}"
            solutions = tuple(known[one] for one in kinds)
            found.append(BandSolution(request, why, letter, rows, buffers, solutions, strips))
            if len(found) > 1 and found[-1].score > found[-2].score:
                break
    return min(found, key=lambda one: one.score, default=None)


def find_rows(computation: Computation, members: Sequence[Names]) -> str | None:
    """Return the first letter of the last stage that all stages follow, one for one; else None.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "b[i,x] += W[i,k] * I[k,x]" + chr(10) + "o[j,y] += V[j,l] * b[l,y]"
    >>> find_rows(bind_stages(parse_stages(text), 8), [("b",), ("o",)])
    'y'
    """
    regions = find_regions(computation)
    if set(regions.stages) != {name for one in members for name in one}:
        return None
    for letter in regions.extents:
        own = [(regions.spans[x], regions.letter_of(x, letter)) for x in regions.stages]
        if all(x is not None and spans[x].scale == 1 for spans, x in own):
            return letter
    return None


def list_chains(graph: Graph, groups: Sequence[Names]) -> Iterator[list[Names]]:
    """Yield groups that follow one another along rows; each other one by itself.

    Parameters
    ----------
    graph
        Of all stages.
    groups
        In order.
    """
    chain: list[Names] = []
    for group in groups:
        if chain and not _goes_on(graph, [*chain, group]):
            yield chain
            chain = []
        chain.append(group)
    if chain:
        yield chain


def _goes_on(graph: Graph, chain: Sequence[Names]) -> bool:
    """Return whether groups have a contraction, and the last one reads what others compute."""
    *before, last = chain
    whole = graph.request.computation
    made = {name for one in before for name in one}
    alone = [graph.stages[x] for x in (*made, *last) if x in graph.alone]
    if not alone or not all(slides(x) and not x.where and is_contraction(whole, x) for x in alone):
        return False
    read = {x.array for name in last for x in graph.stages[name].reads}
    if not read & made:
        return False
    near = [one for one in before if read.intersection(one)]
    request = graph.part(name for one in (*near, last) for name in one)
    return find_rows(request.computation, [*near, last]) is not None


@dataclass(frozen=True, slots=True)
class _Step:
    """A part of a band: what is computed, and in which band."""

    band: int
    part: RowPart


@dataclass(frozen=True)
class _Chain:
    """Stages that may run in bands.

    Parameters
    ----------
    request
        Of all stages.
    members
        Those that run together within a band.
    letter
        Of the last stage, along which bands follow one another.
    borders, parts
        What is known of members: where they are computed otherwise, and parts between.
    """

    request: NestRequest
    members: Sequence[Names]
    letter: str
    borders: dict[Names, list[int] | None] = field(default_factory=dict)
    parts: dict[tuple[Names, int, int], tuple[int, RowPart]] = field(default_factory=dict)

    @property
    def computation(self) -> Computation:
        """All stages."""
        return self.request.computation

    @cached_property
    def regions(self) -> Regions:
        """What rows of the last stage need."""
        return find_regions(self.computation)

    @cached_property
    def letters(self) -> dict[str, str]:
        """The letter of each stage that follows."""
        return {x: self.regions.follower(x, self.letter) for x in self.regions.stages}

    @property
    def extent(self) -> int:
        """How many rows the last stage has."""
        return self.regions.extents[self.letter]

    @cached_property
    def between(self) -> tuple[str, ...]:
        """Stages that are kept in buffers."""
        return tuple(x for x in self.regions.stages if x not in self.computation.outputs)

    def axis(self, stage: str) -> int:
        """Return the axis of a stage along which its rows are."""
        return list(self.regions.spans[stage]).index(self.letters[stage])

    def take(self, member: Names, rows: Rows) -> RowPart:
        """Return some rows of a member: as another part, where there is one like it."""
        stages = [one for one in self.computation.stages if one.name in member]
        if member not in self.borders:
            self.borders[member] = list_borders(self.computation, stages, self.letters)
        borders = self.borders[member]
        if borders is None or bisect(borders, rows[0]) != bisect(borders, rows[1] - 1):
            return take_rows(self.computation, stages, self.letters, rows)
        key = member, rows[1] - rows[0], bisect(borders, rows[0])
        if key not in self.parts:
            self.parts[key] = rows[0], take_rows(self.computation, stages, self.letters, rows)
        first, part = self.parts[key]
        return part.moved(rows[0] - first)

    def in_bands(
        self, rows: int
    ) -> tuple[list[Computation], tuple[tuple[BandStep, ...], ...], tuple[BandBuffer, ...]]:
        """Return the different parts of bands of so many rows, the steps of strips, and buffers.

        Raises
        ------
        SpecError
            If there are none.
        """
        share = ceil(self.extent / self.request.threads / rows) * rows
        kinds: dict[Computation, int] = {}
        strips: list[tuple[BandStep, ...]] = []
        rooms = dict.fromkeys(self.between, 0)
        for low in range(0, self.extent, share):
            strip = _Strip(self, rows, (low, min(low + share, self.extent)))
            strips.append(tuple(_as_step(one, kinds) for one in strip.parts()))
            rooms = {x: max(room, strip.rooms[x]) for x, room in rooms.items()}
        buffers = tuple(BandBuffer(x, self.axis(x), room) for x, room in rooms.items())
        return list(kinds), tuple(strips), buffers


def _as_step(part: RowPart, kinds: dict[Computation, int]) -> BandStep:
    """Return a part as a step, and take its computation in."""
    kind = kinds.setdefault(part.computation, len(kinds))
    rows = {own: part.rows.get(own, (0, 0)) for own in part.arrays}
    arrays = ((own, name, part.axes[own], rows[own][0]) for own, name in part.arrays.items())
    return BandStep(kind, tuple(arrays))


@dataclass(slots=True)
class _Strip:
    """The rows of the last stage that a thread computes.

    Parameters
    ----------
    chain
        All stages.
    rows
        Of a band.
    strip
        Which ones.
    rooms
        How many rows of each stage its buffer has.
    base, ends
        The first row in the buffer of each, and the one behind the last one.
    """

    chain: _Chain
    rows: int
    strip: Rows
    rooms: dict[str, int] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def parts(self) -> Iterator[RowPart]:
        """Yield all parts with rows as in buffers, and before each band moves of rows that stay.

        Raises
        ------
        SpecError
            If a row is not there.
        """
        steps = list(self.steps())
        first = {x: _first_rows(steps, x) for x in self.chain.between}
        self.rooms = dict.fromkeys(self.chain.between, 0)
        self.base = {x: lows[0] for x, lows in first.items()}
        band = 0
        for step in steps:
            while band < step.band:
                band += 1
                for name, lows in first.items():
                    yield from self._move(name, lows[band])
            yield self._placed(step.part)

    def steps(self) -> Iterator[_Step]:
        """Yield the parts of all bands, with rows as in whole arrays."""
        chain = self.chain
        first, end = self._bounds(0), self._bounds(1)
        lead, done = self._leads(first), dict(first)
        count = ceil((self.strip[1] - self.strip[0]) / self.rows) + max(lead.values()) - 1
        for band in range(count):
            for member in chain.members:
                root = member[-1]
                ahead = self.rows * max(band + 1 - max(lead.values()) + lead[root], 0)
                rows = done[root], min(first[root] + ahead, end[root])
                if rows[1] > rows[0]:
                    yield _Step(band, chain.take(member, rows))
                    done |= dict.fromkeys(member, rows[1])

    def _bounds(self, end: int) -> dict[str, int]:
        """Return the first row of each stage that the strip needs, or the one behind the last."""
        found, row = {}, self.strip[1] - 1 if end else self.strip[0]
        for stage, letter in self.chain.letters.items():
            box = {self.chain.letter: (row, row)}
            found[stage] = self.chain.regions.spans[stage][letter].interval(box)[end] + end
        return found

    def _leads(self, first: dict[str, int]) -> dict[str, int]:
        """Return how many bands of each stage there are once the last one has its first one."""
        found: dict[str, int] = {}
        for stage in reversed(self.chain.regions.stages):
            needed = [first[stage] + self.rows] if stage == self.chain.regions.root else []
            for use in self.chain.regions.uses:
                if use.producer == stage:
                    own, reader = self.chain.letters[use.consumer], use.consumer
                    last = {own: first[reader] + self.rows * found[reader] - 1}
                    needed.append(int(use.spans[self.chain.axis(stage)].high.at(last)) + 1)
            found[stage] = ceil((max(needed) - first[stage]) / self.rows)
        return found

    def _placed(self, part: RowPart) -> RowPart:
        """Return a part with rows as in buffers."""
        rows, base = dict(part.rows), self.base
        made = {one.name for one in part.computation.stages}
        for own, (low, end) in part.rows.items():
            name = part.arrays[own]
            if own in made:
                self.ends[name] = end
            elif name in self.chain.letters and end > self.ends.get(name, 0):
                raise SpecError(f"rows {low} to {end} of {name} are not there")
            if name in base:
                rows[own] = low - base[name], end - base[name]
                self.rooms[name] = max(self.rooms[name], end - base[name])
        return replace(part, rows=rows)

    def _move(self, name: str, first: int) -> Iterator[RowPart]:
        """Yield the move of rows that stay to the front of a buffer, unless onto themselves."""
        shift, kept = first - self.base[name], self.ends.get(name, 0) - first
        if kept > shift:
            return
        self.base[name] = first
        if not shift or kept <= 0:
            return
        info, axis = self.chain.computation.array(name), self.chain.axis(name)
        shape = [kept if at == axis else n for at, n in enumerate(info.shape)]
        letters = [f"x{number}" for number, _ in enumerate(shape, 1)]
        places = tuple(map(Affine.letter, letters))
        stage = Stage("a1", places, Read("a2", places))
        found = bind_stages([stage], dict(zip(letters, shape, strict=True)), info.dtype)
        axes, rows = {"a1": axis, "a2": axis}, {"a1": (0, kept), "a2": (shift, shift + kept)}
        yield RowPart(found, {"a1": name, "a2": name}, axes, rows)


def _first_rows(steps: Sequence[_Step], name: str) -> list[int]:
    """Return the first row of a stage that each band, or a later one, reads or makes.

    It is that of the band before where none does.
    """
    least: dict[int, int] = {}
    for step in steps:
        for own, (first, _) in step.part.rows.items():
            if step.part.arrays[own] == name:
                least[step.band] = min(first, least.get(step.band, first))
    found: list[int] = []
    for band in range(steps[-1].band + 1):
        later = [first for at, first in least.items() if at >= band]
        found.append(min(later) if later else found[-1])
    return found
