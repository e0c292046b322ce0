"""Rows that lie one behind another in all arrays of a statement, as one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tilesolve.constants.nests import NEST_SHORT_ROW_VECTORS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.operations import REDUCTIONS
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Position, Read, Reduce, Term
from tilesolve.nests.task_writer import Located


@dataclass(frozen=True, slots=True)
class MergedRows:
    """A statement whose rows are one.

    Parameters
    ----------
    computation
        The statement with a letter for the one row.
    axes
        Of each array, those that are one with the axis behind them: the last one first.
    """

    computation: Computation
    axes: Mapping[str, tuple[int, ...]]

    def lay(self, arrays: Mapping[str, Located]) -> dict[str, Located] | None:
        """Return arrays with one row in place of several; None if one has gaps between them."""
        found = {}
        for name, array in arrays.items():
            shape, strides = list(array.shape), list(array.strides)
            for axis in self.axes.get(name, ()):
                if strides[axis] != shape[axis + 1] * strides[axis + 1]:
                    return None
                shape[axis + 1] *= shape[axis]
                del shape[axis], strides[axis]
            found[name] = replace(array, shape=tuple(shape), strides=tuple(strides))
        return found


def merge_rows(computation: Computation, lanes: int) -> MergedRows | None:
    """Return a statement with one row in place of several short ones; None if it has none.

    It computes each element by itself, updates elements in their order, or reduces them by what
    gives the same in any order: sums of floats would be added up in another one.

    Parameters
    ----------
    computation
        The statement.
    lanes
        Elements of a vector.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = merge_rows(bind_stages(parse_stages("o[y,x] = A[y,x] + b[0,y,x]"), 9), 8)
    >>> print(found.computation, dict(found.axes))
    o[x] = A[x] + b[0,x]  x=81 float64 {'o': (0,), 'A': (0,), 'b': (1,)}
    """
    (stage,) = computation.stages
    ordered = stage.sequence is not None
    if ordered or not all(_has_any_order(one, computation) for one in stage.term.all):
        return None
    found, axes = computation, dict[str, tuple[int, ...]]()
    while pair := _find_pair(found, NEST_SHORT_ROW_VECTORS * lanes):
        found, gone = _merge(found, *pair)
        axes = {name: (*axes.get(name, ()), *gone.get(name, ())) for name in (*axes, *gone)}
    return MergedRows(found, axes) if axes else None


def _has_any_order(term: Term, computation: Computation) -> bool:
    """Return whether points that a term goes through may come in any order."""
    if not isinstance(term, Reduce):
        return not isinstance(term, Scan)
    if term.name in ("add", "multiply"):
        return np.dtype(term.kind(computation.dtypes)).kind in "iu"
    return term.name in REDUCTIONS


def _find_pair(computation: Computation, longest: int) -> tuple[str, str] | None:
    """Return two letters that walk neighbouring axes wherever they are, the second one briefly."""
    (stage,) = computation.stages
    for element in (stage.target, *stage.reads):
        for first, second in pairwise(_letter_of(one) for one in element.subscripts):
            if first is None or second is None or computation.sizes[second] > longest:
                continue
            if _walks_rows(computation, stage, first, second):
                return first, second
    return None


def _letter_of(subscript: Affine | Term) -> str | None:
    return subscript.plain if isinstance(subscript, Affine) else None


def _walks_rows(computation: Computation, stage: Stage, first: str, second: str) -> bool:
    """Return whether a letter goes from row to row, and another along whole rows, everywhere."""
    pair = {first, second}
    terms = (*stage.term.all, *(x for part in stage.target.parts for x in part.all))
    bounds = {letter for one in stage.where for letter in one.letters}
    numbers = {x for one in terms if isinstance(one, Position) for x in one.letters}
    if pair & (bounds | numbers):
        return False
    rows, others = set[str](), set[str]()
    sums = [set(one.over) & pair for one in stage.term.all if isinstance(one, Reduce)]
    if any(one and one != pair for one in sums):
        return False
    for element in (stage.target, *stage.reads):
        letters = [_letter_of(one) for one in element.subscripts]
        walked = [x for one in element.subscripts if isinstance(one, Affine) for x in one.letters]
        (rows if pair & set(walked) else others).add(element.array)
        if element.array in others:
            continue
        if walked.count(first) != 1 or walked.count(second) != 1 or first not in letters:
            return False
        behind = letters.index(first) + 1
        whole = computation.array(element.array).shape[behind:][:1]
        if letters[behind:][:1] != [second] or whole != (computation.sizes[second],):
            return False
    return not rows & others


def _merge(
    computation: Computation, first: str, second: str
) -> tuple[Computation, dict[str, tuple[int, ...]]]:
    """Return a statement in which one letter walks all rows, and the axes that are gone."""
    (stage,) = computation.stages
    gone: dict[str, tuple[int, ...]] = {}
    for element in (stage.target, *stage.reads):
        letters = [_letter_of(one) for one in element.subscripts]
        if first in letters:
            gone[element.array] = (letters.index(first),)
    shapes = {}
    for array in computation.arrays:
        shape = list(array.shape)
        for axis in gone.get(array.name, ()):
            shape[axis + 1] *= shape[axis]
            del shape[axis]
        shapes[array.name] = tuple(shape)
    sizes = dict(computation.sizes)
    sizes[second] *= sizes.pop(first)
    axes = _without(stage.target, first).subscripts
    merged = replace(stage, axes=axes, term=_rewrite(stage.term, first))
    return bind_stages((merged,), sizes, computation.dtypes, shapes), gone


def _rewrite(term: Term, letter: str) -> Term:
    """Return a term whose reads lack an axis."""
    if isinstance(term, Read):
        return _without(term, letter)
    if isinstance(term, Reduce):
        term = replace(term, over=tuple(one for one in term.over if one != letter))
    parts: Sequence[Term] = [_rewrite(part, letter) for part in term.parts]
    return term.rebuilt(parts) if parts else term


def _without(read: Read, letter: str) -> Read:
    """Return a read without the axis that a letter walks."""
    kept = [one for one in read.subscripts if _letter_of(one) != letter]
    return replace(
        read,
        subscripts=tuple(_rewrite(one, letter) if isinstance(one, Term) else one for one in kept),
    )
