"""Parts of stages: some rows of them as a computation of their own, on rows of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Position, Read, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.cuts import cut_stage, fold_borders
from tilesolve.pipelines.graph import rename_stage, substitute

Rows = tuple[int, int]
"""The first of some rows, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class RowPart:
    """Some rows of stages.

    Parameters
    ----------
    computation
        What computes them; arrays and letters have names of its own, so that equal parts are equal.
    arrays
        For each of its arrays the name of the one that it is a part of.
    axes
        Along which axis of that rows are counted; -1 for all of it.
    rows
        Which ones it has.
    steps
        How many rows further of each it is if it is one row further of its stages.
    """

    computation: Computation
    arrays: Mapping[str, str]
    axes: Mapping[str, int]
    rows: Mapping[str, Rows]
    steps: Mapping[str, int] = field(default_factory=dict)

    def moved(self, count: int) -> RowPart:
        """Return the same so many rows further."""
        steps = {own: count * self.steps.get(own, 1) for own in self.rows}
        rows = {own: (low + steps[own], end + steps[own]) for own, (low, end) in self.rows.items()}
        return replace(self, rows=rows)


def take_rows(
    computation: Computation, stages: Sequence[Stage], letters: Mapping[str, str], rows: Rows
) -> RowPart:
    """Return some rows of stages; all but the last are needed in the same rows alone.

    Parameters
    ----------
    computation
        All stages.
    stages
        Some of them.
    letters
        The letter of each along which rows are counted, by its name.
    rows
        Of all these stages.

    Raises
    ------
    SpecError
        If they need other rows of one another, or an array along several axes.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[y,x] = a[y,x] + a[y+2,x]"), {"y": 9, "x": 4})
    >>> part = take_rows(found, found.stages, {"o": "y"}, (3, 5))
    >>> print(part.computation, part.rows)
    a1[x1,x2] = a2[x1,x2] + a2[x1+2,x2]  x1=2 x2=4 float64 {'a1': (3, 5), 'a2': (3, 7)}
    """
    first, end = rows
    sizes = {**computation.sizes, **{letters[one.name]: end - first for one in stages}}
    sized = replace(computation, extents=tuple(sizes.items()))
    moved = [_moved(sized, one, letters[one.name], first) for one in stages]
    axes, needed, steps = _find_rows(sized, moved, letters, rows)
    cut = [_counted_from(one, axes, needed) for one in moved]
    return _named(sized, cut, axes, needed, steps)


def list_borders(
    computation: Computation, stages: Sequence[Stage], letters: Mapping[str, str]
) -> list[int] | None:
    """Return the rows from which on stages are computed otherwise; None if these are not known.

    Between these, as many rows of them are the same part.
    """
    found: set[int] = set()
    for stage in stages:
        letter = letters[stage.name]
        for part in cut_stage(computation, stage):
            places = (one for one in part.term.all if isinstance(one, Position))
            if part.conditions or any(letter in one.position.letters for one in places):
                return None
            found.update(part.box[letter][:1])
    return sorted(found)


def _moved(sized: Computation, stage: Stage, letter: str, first: int) -> Stage:
    """Return a stage whose rows begin at 0, where others began."""
    dtype = sized.dtypes[stage.name]
    term = substitute(stage.term, {letter: Affine.letter(letter) + first})
    return fold_borders(sized, replace(stage, term=term, dtype=dtype, augmented=False))


def _find_rows(
    sized: Computation, stages: Sequence[Stage], letters: Mapping[str, str], rows: Rows
) -> tuple[dict[str, int], dict[str, Rows], dict[str, int]]:
    """Return along which axis stages have rows of each array, which ones, and how these move."""
    axes: dict[str, int] = {}
    steps: dict[str, int] = {}
    needed: dict[str, Rows] = {}
    for stage in stages:
        letter = letters[stage.name]
        axes[stage.name], needed[stage.name] = stage.output_letters().index(letter), rows
    made = set(needed)
    for stage in stages:
        letter = letters[stage.name]
        for part in cut_stage(sized, stage):
            for read in part.term.reads:
                axis = _axis_of(read, letter)
                if axes.setdefault(read.array, axis) != axis:
                    raise SpecError(f"{read.array} is read along several axes, or once as a whole")
                if axis < 0:
                    continue
                place = read.subscripts[axis]
                assert isinstance(place, Affine)
                if read.array in made:
                    if place - rows[0] != Affine.letter(letter):
                        raise SpecError(f"{stage} needs other rows of {read.array}")
                    continue
                step = place.factor(letter)
                if steps.setdefault(read.array, step) != step:
                    raise SpecError(f"rows of {read.array} move in several ways")
                low, high = place.interval(part.box)
                before = needed.get(read.array, (low, high + 1))
                needed[read.array] = min(before[0], low), max(before[1], high + 1)
    for name in [x for x, axis in axes.items() if axis < 0]:
        reads = [one for stage in stages for one in stage.term.reads if one.array == name]
        fixed = _fixed_axis(reads, sized.array(name).shape)
        if fixed is not None:
            axes[name], first = fixed
            needed[name], steps[name] = (first, first + 1), 0
    return axes, needed, steps


def _fixed_axis(reads: Sequence[Read], shape: Sequence[int]) -> tuple[int, int] | None:
    """Return an axis of which all read the same position, and that: a layer's of many."""
    for axis, extent in enumerate(shape):
        places = {one.subscripts[axis] for one in reads}
        place = places.pop()
        if extent > 1 and not places and isinstance(place, Affine) and not place.terms:
            return axis, place.offset
    return None


def _axis_of(read: Read, letter: str) -> int:
    """Return the axis along which rows are read; -1 for none."""
    if read.plain is None:
        raise SpecError(f"positions of {read} are computed")
    found = [axis for axis, one in enumerate(read.plain) if letter in one.letters]
    if len(found) > 1 or any(one.divisor > 1 for one in read.plain):
        raise SpecError(f"{read} has no rows along {letter}")
    return found[0] if found else -1


def _counted_from(stage: Stage, axes: Mapping[str, int], rows: Mapping[str, Rows]) -> Stage:
    """Return a stage whose positions are counted from the first rows."""
    moved: dict[Term, Term] = {}
    for read in stage.reads:
        if (at := axes.get(read.array, -1)) >= 0:
            places = list(read.subscripts)
            places[at] = places[at] - rows[read.array][0]
            moved[read] = Read(read.array, tuple(places))
    return replace(stage, term=replace_terms(stage.term, moved))


def _named(
    sized: Computation,
    stages: Sequence[Stage],
    axes: Mapping[str, int],
    rows: Mapping[str, Rows],
    steps: Mapping[str, int],
) -> RowPart:
    """Return stages as a computation with names of its own."""
    letters = list(dict.fromkeys(x for one in stages for x in one.letters))
    used = dict.fromkeys(x.array for one in stages for x in (one.target, *one.reads))
    own = {name: f"a{number}" for number, name in enumerate(used, 1)}
    short = {letter: f"x{number}" for number, letter in enumerate(letters, 1)}
    shapes = {}
    for name in used:
        shape = list(sized.array(name).shape)
        if axes.get(name, -1) >= 0:
            shape[axes[name]] = rows[name][1] - rows[name][0]
        shapes[own[name]] = tuple(shape)
    made = {one.name for one in stages}
    last = stages[-1].name
    returned = tuple(own[x.name] for x in stages if x.name in sized.outputs or x.name == last)
    found = bind_stages(
        [rename_stage(one, short, own) for one in stages],
        {short[x]: sized.sizes[x] for x in letters},
        {own[x]: sized.dtypes[x] for x in used if x not in made}
        | {x: sized.dtypes[x] for one in stages for x in one.params},
        shapes,
        returned,
    )
    return RowPart(
        found,
        {short_name: name for name, short_name in own.items()},
        {own[x]: axes.get(x, -1) for x in used},
        {own[x]: rows[x] for x in used if x in rows},
        {own[x]: step for x, step in steps.items()},
    )
