"""Regions as boxes: those that lie wholly inside, and those that the border cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilesolve.contractions.statements.affine import Affine, Box, Condition
from tilesolve.contractions.statements.stage import Stage


@dataclass(frozen=True, slots=True)
class Cover:
    """Boxes that have all points of a region, each point in one of them.

    All points of `inside` boxes are in the region; some of `border` boxes may be outside of it.
    """

    inside: tuple[Box, ...] = ()
    border: tuple[Box, ...] = ()


def cover_region(conditions: Sequence[Condition], box: Box, panels: int, most: int) -> Cover:
    """Cut a box along the letters that conditions couple, and sort out what is outside.

    Boxes are equal but at the ends.

    All `conditions` hold in the region; `box` has the first and the last value of each letter.
    A letter is cut into `panels` at most, and into fewer where more than `most` boxes would be
    looked at.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> found = cover_region([Condition(i - j)], {"i": (0, 99), "j": (0, 99)}, 2, 64)
    >>> found.inside
    ({'i': (50, 99), 'j': (0, 49)},)
    >>> found.border
    ({'i': (0, 49), 'j': (0, 49)}, {'i': (50, 99), 'j': (50, 99)})
    """
    tight = _tighten(conditions, box)
    if any(high < low for low, high in tight.values()):
        return Cover()
    open_ = open_conditions(conditions, tight)
    letters = tuple(dict.fromkeys(x for one in open_ for x in one.letters))
    while panels > 1 and panels ** len(letters) > most:
        panels -= 1
    inside: list[Box] = []
    border: list[Box] = []
    for cut in product(*(_panels(tight[x], panels) for x in letters)):
        found = {**tight, **dict(zip(letters, cut, strict=True))}
        if any(one.position.interval(found)[1] < 0 for one in conditions):
            continue
        (border if open_conditions(conditions, found) else inside).append(found)
    return Cover(tuple(inside), tuple(border))


def fills_shape(parts: Sequence[Sequence[tuple[int, int]]], shape: Sequence[int]) -> bool:
    """Return whether parts of an array are all of it together.

    A part has the first position along each axis, and the last one.

    Examples
    --------
    >>> fills_shape([[(0, 1), (0, 4)], [(2, 3), (0, 4)]], (4, 5)), fills_shape([[(0, 1)]], (4,))
    (True, False)
    """
    cuts = [
        {0, *(end for part in parts for end in (part[axis][0], part[axis][1] + 1) if end < n)}
        for axis, n in enumerate(shape)
    ]
    return all(
        any(
            all(low <= x <= high for x, (low, high) in zip(one, part, strict=True))
            for part in parts
        )
        for one in product(*cuts)
    )


def whole_parts(stages: Sequence[Stage], sizes: Mapping[str, int]) -> list[list[tuple[int, int]]]:
    """Return the parts of an array that statements compute, but for those that are no boxes."""
    found = []
    for stage in stages:
        letters = stage.output_letters()
        box = _tighten(stage.bounds, {letter: (0, sizes[letter] - 1) for letter in letters})
        if not open_conditions(stage.bounds, box) and not stage.in_place:
            found.append([box[letter] for letter in letters])
    return found


def open_conditions(conditions: Sequence[Condition], box: Box) -> tuple[Condition, ...]:
    """Return the conditions that do not hold at all points of a box."""
    return tuple(one for one in conditions if one.position.interval(box)[0] < 0)


def shift_condition(condition: Condition, origin: Box) -> Condition:
    """Return a condition for letters that count from the first value of a box.

    Examples
    --------
    >>> i, j = Affine.letter("i"), Affine.letter("j")
    >>> print(shift_condition(Condition(i - j), {"i": (8, 15), "j": (4, 7)}))
    i+4 >= j
    """
    position = condition.position
    return Condition(position + sum(factor * origin[x][0] for factor, x in position.terms))


def _tighten(conditions: Sequence[Condition], box: Box) -> Box:
    """Return a box without ends that conditions rule out, as far as a pass for each of them tells.

    So panels begin where a border does.
    """
    found = dict(box)
    for _ in conditions:
        for condition in conditions:
            for factor, letter in condition.position.terms:
                low, high = found[letter]
                rest = condition.position - factor * Affine.letter(letter)
                most = rest.interval(found)[1]
                if factor > 0:
                    found[letter] = max(low, -(most // factor)), high
                else:
                    found[letter] = low, min(high, most // -factor)
    return found


def _panels(ends: tuple[int, int], most: int) -> list[tuple[int, int]]:
    """Return equal parts of a range, the last one with what is left."""
    low, high = ends
    size = -(-(high - low + 1) // most)
    return [(first, min(first + size - 1, high)) for first in range(low, high + 1, size)]
