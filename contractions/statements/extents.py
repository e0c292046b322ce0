"""Extents: how many values each letter takes, as sizes say or as shapes of arrays have it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.affine import (
    Affine,
    Box,
    Condition,
    greatest_value,
    least_value,
)
from tilesolve.contractions.statements.pieces import find_period
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Number, Read

Shape = tuple[int, ...]

_ENDLESS = 2**62
"""More than any extent."""


def find_extents(
    stages: Sequence[Stage], sizes: Mapping[str, int] | int, shapes: Mapping[str, Shape]
) -> dict[str, int]:
    """Return the extent of each letter: as given, else what shapes have room for.

    An axis that is read by letters alone is as long as each of them. Elsewhere a letter takes as
    many values as all its positions have room for, given the letters that are known before; in a
    region, positions outside of it need none. A letter of which nothing else tells walks a period.

    Raises
    ------
    SizeError
        If a letter has no extent, shapes disagree, or no array has the first position.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> find_extents(parse_stages("o[i] += x[i+k] * w[k]"), {}, {"x": (50,), "w": (5,)})
    {'i': 46, 'k': 5}
    """
    letters = tuple(dict.fromkeys(letter for stage in stages for letter in stage.letters))
    text = "; ".join(map(str, stages))
    if isinstance(sizes, Mapping):
        for letter in sizes:
            if letter not in letters:
                raise SizeError(f"a size is given for {letter!r}, which {text!r} does not have")
        given = dict(sizes)
    else:
        given = dict.fromkeys(letters, sizes)
    for letter, extent in given.items():
        _check_extent(extent, letter, text)
    found = {x: int(n) for x, n in given.items()}
    if any(letter not in found for letter in letters):
        found = _Search(stages, letters, dict(shapes), found).find()
    for letter in letters:
        if letter not in found:
            known = ", ".join((*given, *shapes)) or "nothing"
            raise SizeError(f"no size for {letter!r} of {text!r}; sizes are given for {known}")
    return {letter: found[letter] for letter in letters}


def list_uses(stages: Sequence[Stage], name: str) -> Iterable[tuple[Stage, Read]]:
    """Yield the elements of an array that are written and read, with their stages.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> [str(read) for _, read in list_uses(parse_stages("o[i] = x[i] - x[i+1]"), "x")]
    ['x[i]', 'x[i+1]']
    """
    for stage in stages:
        for read in dict.fromkeys((stage.target, *stage.reads)):
            if read.array == name:
                yield stage, read


def _check_extent(extent: object, letter: str, text: str) -> None:
    if isinstance(extent, bool | np.bool_) or not isinstance(extent, int | np.integer):
        raise SizeError(f"the size of {letter!r} of {text!r} must be an integer, got {extent!r}")
    if not 0 <= extent < _ENDLESS:
        wanted = "not be negative" if extent < 0 else "be below 2**62"
        raise SizeError(f"the size of {letter!r} of {text!r} must {wanted}, got {extent}")


@dataclass(frozen=True, slots=True)
class _Use:
    """A position along an axis of some extent.

    `alone` says whether the axis has no other positions than letters.
    """

    stage: Stage
    read: Read
    axis: int
    extent: int
    alone: bool

    @property
    def position(self) -> Affine:
        position = self.read.subscripts[self.axis]
        assert isinstance(position, Affine)
        return position


@dataclass(slots=True)
class _Search:
    """The search for extents; `found` are those that are known."""

    stages: Sequence[Stage]
    letters: Sequence[str]
    shapes: dict[str, Shape]
    found: dict[str, int]
    uses: list[_Use] = field(default_factory=list)

    def find(self) -> dict[str, int]:
        """Return what follows from shapes, then from those of arrays that are computed."""
        for name in self.shapes:
            self._add_uses(name)
        self._settle()
        while self._add_computed() or self._add_period():
            self._settle()
        return self.found

    def _add_uses(self, name: str) -> None:
        """Take the shape of an array into account."""
        for axis, extent in enumerate(self.shapes[name]):
            uses = list(list_uses(self.stages, name))
            affine = [one.subscripts[axis] for _, one in uses]
            alone = all(isinstance(x, Affine) and x.plain for x in affine)
            self.uses += (
                _Use(stage, read, axis, extent, alone)
                for stage, read in uses
                if isinstance(read.subscripts[axis], Affine)
            )

    def _add_computed(self) -> bool:
        """Take the shape of an array into account that is computed from known letters."""
        for stage in self.stages:
            whole = stage.update is None and all(x in self.found for x in stage.output)
            if stage.name not in self.shapes and whole:
                self.shapes[stage.name] = tuple(self.found[x] for x in stage.output)
                self._add_uses(stage.name)
                return True
        return False

    def _add_period(self) -> bool:
        """Give a letter that walks a period as many values as that has."""
        subscripts = (x for stage in self.stages for read in stage.reads for x in read.subscripts)
        for position, period in filter(None, map(find_period, subscripts)):
            lacking = [x for x in position.letters if x not in self.found]
            if len(lacking) == 1 and isinstance(period, Number):
                self.found[lacking[0]] = int(period.value.real)
                return True
        return False

    def _settle(self) -> None:
        """Find letters until no other follows."""
        while more := {x: n for x in self.letters if (n := self._extent(x)) is not None}:
            self.found |= more

    def _extent(self, letter: str) -> int | None:
        """Return the extent of a letter that is not known yet, if it follows."""
        if letter in self.found:
            return None
        uses = [
            one
            for one in self.uses
            if letter in one.position.letters
            and all(x in self.found for x in one.position.letters if x != letter)
        ]
        exact = {one.extent: one for one in uses if one.alone}
        if len(exact) > 1:
            first, second = list(exact.values())[:2]
            text = "; ".join(map(str, self.stages))
            raise SizeError(
                f"the extents of {letter!r} in {text!r} disagree: {first.extent} on axis "
                f"{first.axis} of {first.read.array}, {second.extent} on axis {second.axis} of "
                f"{second.read.array}"
            )
        if exact:
            return next(iter(exact))
        whole = [one.extent for one in uses if one.position.plain]
        if whole and all(self._reaches(one, letter, min(whole)) for one in uses):
            return min(whole)
        room = [self._room(one, letter) for one in uses]
        found = min(room, default=_ENDLESS)
        return None if found == _ENDLESS else max(found, 0)

    def _region(self, use: _Use, letter: str, extent: int) -> tuple[Box, list[Condition]]:
        """Return values of letters if one has an extent, and the conditions on those known."""
        sizes = {**self.found, letter: extent}
        box = {x: (0, sizes.get(x, extent) - 1) for x in use.stage.letters}
        return box, [x for x in use.stage.region(use.read) if all(y in sizes for y in x.letters)]

    def _reaches(self, use: _Use, letter: str, extent: int) -> bool:
        """Return whether the positions of a region end inside if a letter has an extent."""
        return greatest_value(use.position, *self._region(use, letter, extent)) < use.extent

    def _leaves(self, use: _Use, letter: str, extent: int) -> bool:
        """Return whether positions of a region lie outside if a letter has an extent."""
        least = least_value(use.position, *self._region(use, letter, extent))
        return least < 0 or not self._reaches(use, letter, extent)

    def _room(self, use: _Use, letter: str) -> int:
        """Return how many values of a letter have positions inside, of a box of the others.

        Those outside of a region need to be inside only where the region has no others. Arrays may
        be too short for the first of them, as slices may be empty; none has negative positions.
        """
        position = use.position
        factor = position.factor(letter)
        box = {x: (0, self.found.get(x, 1) - 1) for x in position.letters}
        rest = Affine(position.terms, position.offset) - factor * Affine.letter(letter)
        least, greatest = rest.interval(box)
        room = (
            least // -factor + 1
            if factor < 0
            else (position.divisor * use.extent - 1 - greatest) // factor + 1
        )
        values = greatest_value(Affine.letter(letter), *self._region(use, letter, _ENDLESS)) + 1
        leaves = partial(self._leaves, use, letter)
        room = max(room, bisect_left(range(1, values + 1), 1, key=leaves))
        if room < 1 and least < 0 and use.extent and all(x <= y for x, y in box.values()):
            others = "".join(f", {x}={self.found[x]}" for x in rest.letters)
            raise SizeError(
                f"{use.stage} has {use.read} at position {least // position.divisor} of axis "
                f"{use.axis} where {letter} is 0{others}: positions begin at 0, and "
                f"{use.read.array} has extent {use.extent} there"
            )
        return room
