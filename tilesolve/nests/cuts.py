"""Parts of a statement in which its positions are sums of letters.

Positions that numbers cut off (`min`, `max`), periodic ones (`%`) and choices by positions make
borders: a padded image, an array that is put together of others. Between borders, such a term is
a plain one, and loops compute it at full speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import prod

from tilesolve.constants.nests import KEPT_REGIONS, NEST_PERIOD_PIECES, STAGE_PARTS
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import (
    Affine,
    Box,
    Condition,
    greatest_value,
    least_value,
)
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.pieces import negate
from tilesolve.contractions.statements.positions import fold_positions
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Dtypes,
    Number,
    Position,
    Read,
    Reduce,
    Term,
)

Ranges = tuple[tuple[str, int, int], ...]
"""Letters, each with its first and its last value."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a statement.

    Parameters
    ----------
    term
        What is computed there.
    ranges
        The letters of the statement there.
    conditions
        What else holds there.
    """

    term: Term
    ranges: Ranges
    conditions: tuple[Condition, ...] = ()

    @property
    def box(self) -> dict[str, tuple[int, int]]:
        """The first and the last value of each letter."""
        return {letter: (low, high) for letter, low, high in self.ranges}

    @property
    def points(self) -> int:
        """How many points its box has."""
        return prod(high - low + 1 for _, low, high in self.ranges)

    def region(self, stage: Stage, extents: Mapping[str, int]) -> tuple[Condition, ...]:
        """Return the conditions that hold in the part, and not in all of its statement."""
        found = []
        for x, low, high in self.ranges:
            letter = Affine.letter(x)
            found += [Condition(letter - low)] if low > 0 else []
            found += [Condition(high - letter)] if high < extents[x] - 1 else []
        return tuple(one for one in (*found, *self.conditions) if one not in stage.where)

    def cuts(self, letters: Sequence[str], extents: Mapping[str, int]) -> bool:
        """Return whether it has not all values of some letters."""
        return any(x in letters and high - low + 1 < extents[x] for x, low, high in self.ranges)


def cut_stage(computation: Computation, stage: Stage) -> tuple[Part, ...]:
    """Return the parts of a statement, the largest one first.

    One with all of it if they are many, or if none has one of its arguments.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[i] = x[(i-1) % 9]"), 9)
    >>> for part in cut_stage(found, found.stages[0]):
    ...     print(part.term, part.ranges)
    x[i-1] (('i', 1, 8),)
    x[i+8] (('i', 0, 0),)
    """
    if not any(isinstance(one, Position) for one in stage.term.all):
        return (_whole(stage, computation.sizes),)
    extents = tuple((x, computation.sizes[x]) for x in stage.letters)
    names = _arguments(stage)
    dtypes = tuple((x, one) for x, one in computation.dtypes.items() if x in names)
    return _cut(stage, extents, dtypes)


def _arguments(stage: Stage) -> set[str]:
    """Return the names of what a statement reads."""
    return {read.array for read in stage.reads}.union(stage.params)


def _whole(stage: Stage, extents: Mapping[str, int]) -> Part:
    return Part(stage.term, tuple((x, 0, extents[x] - 1) for x in stage.letters))


def settle_choices(computation: Computation, stage: Stage) -> Stage:
    """Return a statement without choices by positions that others around them decide.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.terms import apply
    >>> y, read = Affine.letter("y"), Read("A", (Affine.letter("y"),))
    >>> inner = Choose(apply("greater_equal", y, 3), read, read * 2)
    >>> stage = Stage("o", (y,), Choose(apply("greater_equal", y, 4), inner, read))
    >>> print(settle_choices(bind_stages([stage], 9), stage).term)
    where(y >= 4, A[y], A[y])
    """
    if not any(isinstance(one, Position) for one in stage.term.all):
        return stage
    cutter = _Cutter(frozenset(stage.output), computation.dtypes)
    box = _whole(stage, computation.sizes).box
    if any(high < low for low, high in box.values()):
        return stage
    return replace(stage, term=_Place(cutter, box, stage.where, cuts=False).settled(stage.term))


def fold_borders(computation: Computation, stage: Stage) -> Stage:
    """Return a statement without tests and limits of positions that are decided everywhere.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[i,j] = where((i+2 >= 1) & (j >= 1), x[max(i-1, 0),j], 0)")
    >>> found = bind_stages([stage], 9, shapes={"x": (9, 9)})
    >>> print(fold_borders(found, stage).term)
    where(j >= 1, x[max(i-1, 0),j], 0)
    """
    if not any(isinstance(one, Position) for one in stage.term.all):
        return stage
    cutter = _Cutter(frozenset(stage.output), computation.dtypes)
    box = _whole(stage, computation.sizes).box
    return replace(stage, term=_Place(cutter, box, stage.where, cuts=False).term(stage.term))


def largest_part(computation: Computation, stage: Stage) -> Stage:
    """Return a statement with the term that most of its points have: what it costs."""
    parts = cut_stage(computation, stage)
    if not parts or parts[0].term == stage.term:
        return stage
    return _with_term(stage, parts[0].term)


@lru_cache(maxsize=KEPT_REGIONS)
def _with_term(stage: Stage, term: Term) -> Stage:
    return replace(stage, term=term, augmented=False)


def list_parts(computation: Computation, stage: Stage) -> tuple[Stage, ...]:
    """Return a statement as one for each of its parts."""
    parts = cut_stage(computation, stage)
    if not parts or (len(parts) == 1 and parts[0].term == stage.term):
        return (stage,)
    dtype = computation.dtypes[stage.name]
    return tuple(
        Stage(
            stage.name,
            stage.axes,
            part.term,
            dtype,
            (*stage.where, *part.region(stage, computation.sizes)),
        )
        for part in parts
    )


@lru_cache(maxsize=KEPT_REGIONS)
def _cut(
    stage: Stage, extents: tuple[tuple[str, int], ...], dtypes: tuple[tuple[str, str], ...]
) -> tuple[Part, ...]:
    """Return the parts of a statement, given what it depends on."""
    whole = _whole(stage, dict(extents))
    if stage.update is not None or stage.sequence or not whole.points:
        return (whole,)
    cutter = _Cutter(frozenset(stage.output), dict(dtypes))
    box = whole.box
    for condition in stage.bounds:
        _narrow(box, condition)
    found: list[Part] = []
    for part in cutter.parts(stage.term, box, stage.where):
        found.append(part)
        if len(found) > STAGE_PARTS or _lacks_letters(part.term):
            return (whole,)
    kept = {name for part in found for name in _arguments(replace(stage, term=part.term))}
    if kept != _arguments(stage):
        return (whole,)
    return tuple(sorted(_joined(found), key=lambda one: -one.points))


def _lacks_letters(term: Term) -> bool:
    """Return whether a sum runs over a letter that what it sums up has no more."""
    sums = (one for one in term.all if isinstance(one, Reduce))
    return any(not set(one.over) <= set(one.term.letters) for one in sums)


def _narrow(box: dict[str, tuple[int, int]], condition: Condition) -> bool:
    """Leave out of a box what a condition on one letter does; return whether it is one."""
    if len(condition.letters) != 1:
        return False
    ((factor, letter),) = condition.position.terms
    low, high = box[letter]
    if factor > 0:
        box[letter] = max(low, -(condition.position.offset // factor)), high
    else:
        box[letter] = low, min(high, condition.position.offset // -factor)
    return True


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Return parts with those put together that compute the same and lie side by side."""
    found = list(parts)
    for one, other in combinations(found, 2):
        if (one.term, one.conditions) != (other.term, other.conditions):
            continue
        apart = [at for at, x in enumerate(one.ranges) if x != other.ranges[at]]
        if len(apart) != 1:
            continue
        (letter, low, high), (_, first, last) = one.ranges[apart[0]], other.ranges[apart[0]]
        if high + 1 != first and last + 1 != low:
            continue
        ranges = list(one.ranges)
        ranges[apart[0]] = letter, min(low, first), max(high, last)
        rest = [x for x in found if x is not one and x is not other]
        return _joined([*rest, Part(one.term, tuple(ranges), one.conditions)])
    return found


class _BorderError(Exception):
    """There is a border that cuts a box: a condition that holds on one of its sides."""


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts terms along some letters, given the dtypes of arrays."""

    letters: frozenset[str]
    dtypes: Dtypes

    def parts(self, term: Term, box: Box, where: tuple[Condition, ...]) -> Iterator[Part]:
        """Yield the parts of a box."""
        if any(high < low for low, high in box.values()):
            return
        if any(greatest_value(one.position, box, where) < 0 for one in where):
            return
        place = _Place(self, box, where)
        try:
            while isinstance(term, Choose) and isinstance(test := place.term(term.test), Number):
                term = place.chosen(term, term.yes if test.value else term.no)
            found = place.term(term)
        except _BorderError as border:
            (condition,) = border.args
            for one in (condition, negate(condition)):
                side = dict(box)
                plain = _narrow(side, one)
                if plain or greatest_value(one.position, box, (*where, one)) >= 0:
                    yield from self.parts(term, side, where if plain else (*where, one))
            return
        several = tuple(one for one in where if len(one.letters) > 1)
        yield Part(found, tuple((x, low, high) for x, (low, high) in box.items()), several)


_ORDERS = {
    "greater_equal": (False, True),
    "greater": (True, True),
    "less": (False, False),
    "less_equal": (True, False),
}
"""Comparisons: by that the first one is greater, or not less; and whether they hold where it is."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A box in which terms are looked at.

    `cuts` tells whether a border is an error; `known` are tests, and how they end.
    """

    cutter: _Cutter
    box: Box
    where: tuple[Condition, ...]
    cuts: bool = True
    known: Mapping[Term, bool] = field(default_factory=dict)

    def term(self, term: Term) -> Term:
        """Return a term as it is everywhere here; raise `_BorderError` if a border cuts the box."""
        match term:
            case Choose(test=test, yes=yes, no=no):
                return self._choice(term, self.term(test), yes, no)
            case Apply(name="bitwise_and", arguments=(first, second)):
                found = self.term(first)
                if isinstance(found, Number):
                    return self.term(second) if found.value else found
                return found & self.term(second)
        if not term.parts:
            return term
        parts = [self.term(one) for one in term.parts]
        match term:
            case Read(array=array, subscripts=subscripts):
                given = (x.position if isinstance(x, Position) else x for x in parts)
                return Read(
                    array, tuple(next(given) if isinstance(x, Term) else x for x in subscripts)
                )
            case Cast(dtype="int64") if isinstance(parts[0], Position):
                return parts[0]
            case Apply(name=name) if all(map(_is_place, parts)):
                place = fold_positions(name, parts)
                return self._folded(term.rebuilt(parts)) if place is None else place
        return term.rebuilt(parts)

    def _choice(self, choice: Choose, test: Term, yes: Term, no: Term) -> Term:
        """Return what a choice is, given its test."""
        if not isinstance(test, Number):
            return Choose(test, self.term(yes), self.term(no), choice.inline)
        return self.chosen(choice, self.term(yes if test.value else no))

    def settled(self, term: Term) -> Term:
        """Return a term without choices that those around decide; its positions are as they are."""
        if not isinstance(term, Choose):
            return term.rebuilt([self.settled(one) for one in term.parts]) if term.parts else term
        test = self.term(term.test)
        known = test.value if isinstance(test, Number) else self.known.get(test)
        if known is not None:
            return self.chosen(term, self.settled(term.yes if known else term.no))
        there = replace(self, box=self._narrowed(test), known={**self.known, test: True})
        other = replace(self, known={**self.known, test: False})
        return Choose(term.test, there.settled(term.yes), other.settled(term.no), term.inline)

    def chosen(self, choice: Choose, found: Term) -> Term:
        """Return one of two terms in the dtype of both."""
        kind = choice.kind(self.cutter.dtypes)
        if isinstance(kind, str) and found.kind(self.cutter.dtypes) != kind:
            found = Cast(kind, found)
        return found

    def _narrowed(self, test: Term) -> Box:
        """Return the box in which a test holds, as far as it tells."""
        box, waiting = dict(self.box), [test]
        while waiting:
            match waiting.pop():
                case Apply(name="bitwise_and", arguments=arguments):
                    waiting += arguments
                case Apply(name=name, arguments=(first, second)) if name in _ORDERS:
                    if _is_place(first) and _is_place(second):
                        border, holds = _apart(first, second, name)
                        if border is not None:
                            _narrow(box, border if holds else negate(border))
        return self.box if any(high < low for low, high in box.values()) else box

    def _folded(self, term: Term) -> Term:
        """Return an operation of positions that makes a border."""
        match term:
            case Apply(name="minimum" | "maximum" as name, arguments=(first, second)):
                test = "less_equal" if name == "minimum" else "greater_equal"
                holds = self._decide(first, second, test)
                if holds is None:
                    return term
                one = first if holds else second
                return one if isinstance(one, Position) else Position(Affine.number(_int(one)))
            case Apply(name="remainder", arguments=(Position(position), Number(int() as period))):
                return self._turn(term, position, period)
            case Apply(name=name, arguments=(first, second)) if name in _ORDERS:
                found = self._decide(first, second, name)
                return term if found is None else Number(found)
        return term

    def _turn(self, term: Term, position: Affine, period: int) -> Term:
        """Return a remainder by a number."""
        if period <= 0 or position.divisor > 1:
            return term
        first, last = (end // period for end in self._ends(position))
        if first == last:
            return Position(position - first * period)
        if last - first >= NEST_PERIOD_PIECES or not self.cuts:
            return term
        raise _BorderError(Condition(position - (first + 1) * period))

    def _decide(self, first: Term, second: Term, name: str) -> bool | None:
        """Return whether a comparison holds everywhere here; None if no border tells."""
        border, holds = _apart(first, second, name)
        if border is None:
            return None
        low, high = self._ends(border.position)
        if low >= 0 or high < 0:
            return (low >= 0) == holds
        own = len(border.letters) == 1 and self.cutter.letters.issuperset(border.letters)
        if own and self.cuts:
            raise _BorderError(border)
        return None

    def _ends(self, position: Affine) -> tuple[int, int]:
        """Return the least and the greatest value of a position here; of no points any."""
        low = least_value(position, self.box, self.where)
        return low, max(low, greatest_value(position, self.box, self.where))


def _apart(first: Term, second: Term, name: str) -> tuple[Condition | None, bool]:
    """Return the condition that a comparison of positions is, and whether it holds with that.

    None where no condition is.
    """
    greater, holds = _ORDERS[name]
    try:
        apart = _affine(first) - _affine(second) - greater
    except SpecError:  # quotients are not multiplied by -1, so the other way round
        greater, holds = not greater, not holds
        try:
            apart = _affine(second) - _affine(first) - greater
        except SpecError:
            return None, holds
    return Condition(Affine(apart.terms, apart.offset)), holds


def _is_place(term: Term) -> bool:
    return isinstance(term, Position) or (isinstance(term, Number) and type(term.value) is int)


def _int(term: Term) -> int:
    assert isinstance(term, Number)
    return int(term.value.real)


def _affine(term: Term) -> Affine:
    return term.position if isinstance(term, Position) else Affine.number(_int(term))
